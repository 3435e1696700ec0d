# The few words a person types. Each does its own set-up; `make help` lists them.

CARGO ?= cargo
# Labelled queries of public projects, beside the repository; measured by `make bench` where they are.
RETRIEVAL_DATA ?= ../shared/data/retrieval

.PHONY: help demo test bench check fmt setup tools v8 peers browser

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: tools v8 peers ## run a program against a real MCP server, then compare what a model is sent with and without the bridge
	@scripts/demo

test: setup ## every test
	$(CARGO) test --locked
	$(CARGO) run --locked --quiet --example embed

bench: setup ## the measurements, with peers beside them
	$(CARGO) bench --locked
	@scripts/hot-functions --check
	@if [ -d $(RETRIEVAL_DATA) ]; then $(CARGO) run --quiet --release --locked -- eval retrieval $(RETRIEVAL_DATA)/*; fi

check: tools v8 ## formatting, lints and documentation, each warning an error
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --document-private-items

fmt: ## format the sources
	$(CARGO) fmt --all

setup: tools v8 peers browser ## all that building and testing need

tools:
	@scripts/tools

v8: tools
	@scripts/v8

peers: tools
	@scripts/peers

# What a test looks at the report with.
browser: tools
	@command -v chromium >/dev/null || scripts/apt-install chromium
