#!/usr/bin/env python3
"""The retrieval evaluation once more with a peer: ratel-ai 0.12 (PyPI), BM25, beside toolbridge.

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install ratel-ai==0.12.0
    /tmp/peer/bin/python benches/peers/retrieval.py target/release/toolbridge ../shared/data/retrieval/*

Both see the same tools and queries and are measured the same way: a group is found when any of its ids is among the hits,
recall is the mean share of groups found. Prints a table, percent.
"""

import json
import pathlib
import subprocess
import sys
import warnings

import ratel_ai

DEPTH = 10
LONG_WORD = 6


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value ^ value >> 31


def swap_letters(query):
    """As `toolbridge eval` does it: two neighbouring letters in every third long word."""
    words, long_words = [], 0
    for word in query.split(" "):
        if len(word) >= LONG_WORD and word.isalpha():
            long_words += 1
            if long_words % 3 == 2:
                places = [at for at in range(1, len(word) - 1) if word[at] != word[at + 1]]
                if places:
                    at = places[fnv(word) % len(places)]
                    word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        words.append(word)
    return " ".join(words)


def recall(found, groups, k):
    return sum(any(gold in found[:k] for gold in group) for group in groups) / len(groups)


def ratel(folder):
    registry = ratel_ai.ToolRegistry()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # registering is synchronous without a model; the coroutine does nothing
        for tool in lines(folder / "tools.jsonl"):
            schema = tool.get("inputSchema") or {"type": "object", "properties": {}}
            registry.register(tool["id"], tool["name"], tool["description"], schema, {})
    queries = lines(folder / "queries.jsonl")
    rows = []
    for change in (lambda query: query, swap_letters):
        hits = [[hit.tool_id for hit in registry.search(change(query["query"]), DEPTH)] for query in queries]
        rows.append([
            sum(recall(found, query["gold_groups"], k) for found, query in zip(hits, queries)) / len(queries) * 100
            for k in (1, 5, 10)
        ])
    return rows


def main():
    binary, *folders = sys.argv[1:]
    if not folders:
        sys.exit(__doc__)
    report = json.loads(subprocess.run([binary, "eval", "retrieval", "--json", *folders], check=True, stdout=subprocess.PIPE).stdout)
    print(f"{'set':<12} {'queries':<15} {'toolbridge R@1/5/10':<22} ratel-ai R@1/5/10")
    worse = False
    for folder, ours in zip(map(pathlib.Path, folders), report["sets"]):
        for name, key, theirs in zip(("all", "letters swapped"), ("all", "lettersSwapped"), ratel(folder)):
            figures = [ours[key][field] * 100 for field in ("recallAt1", "recallAt5", "recallAt10")]
            show = lambda values: " / ".join(f"{value:.1f}" for value in values)
            print(f"{folder.name:<12} {name:<15} {show(figures):<22} {show(theirs)}")
            worse |= any(us <= them for us, them in zip(figures, theirs))
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
