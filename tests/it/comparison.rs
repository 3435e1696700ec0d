//! The comparison of modes: it holds what it claims, fails when what it claims is not so, and its report can be looked at.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use serde_json::{Value, json};
use toolbridge::mock_provider::{MockOptions, MockProvider};

/// The example, built as cargo would; done already when all tests are run.
fn example() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let binary = Path::new(env!("CARGO_BIN_EXE_toolbridge"));
        let folder = binary.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        // What cargo tells a test of itself would have build scripts run again, and all that rests on them be built anew.
        for (name, _) in std::env::vars_os() {
            let told =
                ["OUT_DIR", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_TARGET_TMPDIR"];
            if told.iter().any(|told| name.to_string_lossy().starts_with(told)) {
                build.env_remove(&name);
            }
        }
        build.args(["build", "--locked", "--offline", "--quiet", "--example", "gateway_comparison"]);
        build.arg("--target-dir").arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let output = build.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder.join("examples/gateway_comparison")
    })
}

struct Compared {
    output: Output,
    out: tempfile::TempDir,
    temporary: tempfile::TempDir,
}

impl Compared {
    fn run(args: &[&str]) -> Self {
        Self::with(args, &[])
    }

    fn with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let (out, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut command = Command::new(example());
        command
            .args(args)
            .arg("--out")
            .arg(out.path())
            .env("TMPDIR", temporary.path())
            .envs(environment.iter().copied());
        command.args(["--toolbridge", env!("CARGO_BIN_EXE_toolbridge"), "--repeat", "0"]);
        Self { output: command.output().unwrap(), out, temporary }
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    fn said(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.output.stdout), String::from_utf8_lossy(&self.output.stderr))
    }

    fn report(&self) -> Value {
        let text =
            fs::read_to_string(self.out.path().join("report.json")).unwrap_or_else(|_| panic!("{}", self.said()));
        serde_json::from_str(&text).unwrap()
    }

    /// The claims that do not hold.
    fn failing(&self) -> Vec<String> {
        let report = self.report();
        let failing = report["claims"].as_array().unwrap().iter().filter(|claim| claim["holds"] == false);
        failing.map(|claim| claim["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// What the clock decides.
fn without_times(mut report: Value) -> Value {
    for lane in report["lanes"].as_array_mut().unwrap() {
        assert!(lane["firstLatencyMs"].as_f64().unwrap() > 0.0);
        lane["firstLatencyMs"] = json!("[ms]");
    }
    report
}

#[test]
fn a_small_catalog_shows_every_claim_and_leaves_report_and_logs() {
    let compared = Compared::run(&["--tools", "12"]);
    assert_eq!(compared.code(), Some(0), "{}", compared.said());
    insta::assert_json_snapshot!("report_of_12_tools", without_times(compared.report()));
    assert_eq!(names(compared.out.path()), ["logs", "report.html", "report.json"].map(str::to_owned).into());
    let logs = compared.out.path().join("logs");
    assert_eq!(names(&logs), ["code", "direct", "requests.jsonl", "tools"].map(str::to_owned).into());
    assert!(names(compared.temporary.path()).is_empty(), "everything else is removed");
    let said = compared.said();
    assert!(said.trim_end().ends_with("report.html"), "it ends with the path of the report: {said}");
}

#[test]
fn at_56_tools_the_savings_are_claimed_and_hold() {
    let compared = Compared::run(&["--tools", "56", "--seed", "7"]);
    assert_eq!(compared.code(), Some(0), "{}", compared.said());
    let report = compared.report();
    let says: Vec<&str> =
        report["claims"].as_array().unwrap().iter().filter_map(|claim| claim["says"].as_str()).collect();
    assert!(
        says.contains(&"Over all turns, code sends at least 60 % fewer bytes than direct, tools at least 40 %"),
        "{says:#?}"
    );
}

#[test]
fn the_seed_decides_everything_but_the_times() {
    let [one, same, other] = ["3", "3", "4"].map(|seed| Compared::run(&["--tools", "9", "--seed", seed]));
    assert_eq!(without_times(one.report()), without_times(same.report()));
    assert_ne!(one.report()["target"], other.report()["target"]);
}

#[test]
fn a_renamed_target_makes_the_run_fail_and_is_named() {
    let compared = Compared::run(&["--tools", "12", "--rename-target"]);
    assert_eq!(compared.code(), Some(1), "{}", compared.said());
    let failing = compared.failing();
    assert!(failing.contains(&"same_call".to_owned()) && failing.contains(&"log_tells".to_owned()), "{failing:?}");
    assert!(compared.said().contains("error: these claims fail: same_call"), "{}", compared.said());
}

#[test]
fn a_broken_search_makes_the_run_fail_in_the_lanes_that_search() {
    let compared = Compared::run(&["--tools", "12", "--break-search"]);
    assert_eq!(compared.code(), Some(1), "{}", compared.said());
    let report = compared.report();
    let claim = report["claims"].as_array().unwrap().iter().find(|claim| claim["id"] == "same_call").unwrap();
    let seen = claim["seen"].as_str().unwrap();
    assert!(seen.starts_with("code: 0 calls ran, not one; the answer was \"I found no tool"), "{seen}");
    assert_eq!(report["lanes"][0]["callsExecuted"], 1, "direct does not search");
}

#[test]
fn a_catalog_file_is_sampled_by_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools.jsonl");
    let tool = |server: &str, name: &str, description: &str, property: &str| {
        json!({
            "id": format!("{server}::{name}"), "name": name, "server": server, "source": "made up", "description": description,
            "inputSchema": { "type": "object", "properties": { property: { "type": "string" } }, "required": [property] },
        })
    };
    let tools = [
        tool("north.harbour", "berths.list", "List every free berth along the northern quay", "quay"),
        tool("north.harbour", "berths.book", "Book one berth for an arriving vessel tonight", "vessel"),
        tool("bakery", "dough", "Prepare the sourdough for tomorrow morning bread", "flour"),
        tool("bakery", "oven", "Heat the large stone oven before sunrise", "oven"),
        tool("south-harbour", "berths.list", "Count all boats that anchor near southern cliffs", "cliff"),
    ];
    fs::write(&file, tools.map(|tool| tool.to_string()).join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let compared = Compared::run(&["--catalog", file, "--tools", "4"]);
    assert_eq!(compared.code(), Some(0), "{}", compared.said());
    let report = compared.report();
    assert_eq!((&report["catalog"]["origin"], &report["catalog"]["tools"]), (&json!("tools.jsonl"), &json!(4)));
}

#[test]
fn a_provider_at_an_address_is_compared_in_the_same_way() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let key = "canary-of-a-real-provider";
    let options = MockOptions { key: Some(key.to_owned()), ..MockOptions::default() };
    let provider = runtime.block_on(MockProvider::start(options)).unwrap();
    let url = provider.url();
    let args = ["--tools", "12", "--provider-url", &url, "--model", "large", "--api-key-env", "KEY_OF_PROVIDER"];
    let compared = Compared::with(&args, &[("KEY_OF_PROVIDER", key)]);
    assert_eq!(compared.code(), Some(0), "{}", compared.said());
    let report = compared.report();
    assert_eq!((&report["provider"], &report["model"]), (&json!("127.0.0.1"), &json!("large")));
    assert!(report["claims"].as_array().unwrap().iter().all(|claim| claim["id"] != "denied_unreachable"));
    assert!(provider.asked().iter().all(|request| request.body["model"] == "large"), "each request has passed through");
    let requests = fs::read_to_string(compared.out.path().join("logs/requests.jsonl")).unwrap();
    assert_eq!((requests.lines().count(), requests.contains(key)), (2 * provider.asked().len(), false));
}

#[test]
fn what_can_not_be_run_is_said_with_another_code() {
    for (args, problem) in [
        (vec!["--tools", "2"], "error: --tools must be from 3 to 7680"),
        (vec!["--catalog", "/nowhere.jsonl"], "error: /nowhere.jsonl: entity not found"),
        (vec!["--api-key-env", "KEY"], "error: the following required arguments were not provided"),
    ] {
        let compared = Compared::run(&args);
        assert_eq!((compared.code(), compared.said().starts_with(problem)), (Some(2), true), "{}", compared.said());
    }
}

/// Chromium on one page, in a profile of its own.
fn chromium(page: &Path, args: &[&str]) -> Vec<u8> {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]);
    command.args([
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--window-size=800,1100",
    ]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).args(args);
    let output =
        command.arg(format!("file://{}", page.display())).output().expect("chromium is installed by make setup");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Width, height, and each colour with the number of its pixels, of a PNG.
fn pixels(image: &Path) -> (u64, u64, Vec<(String, u64)>) {
    const READ: &str = r##"
import collections, json, struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, idat = 8, b""
while at < len(data):
    length, kind = struct.unpack(">I4s", data[at:at + 8])
    part = data[at + 8:at + 8 + length]
    if kind == b"IHDR": width, height, depth, colour = struct.unpack(">IIBB", part[:10])
    if kind == b"IDAT": idat += part
    at += 12 + length
assert depth == 8 and colour in (2, 6), (depth, colour)
size = 3 if colour == 2 else 4
raw, row = zlib.decompress(idat), width * size
before, counts = bytearray(row), collections.Counter()
for y in range(height):
    kind, line = raw[y * (row + 1)], bytearray(raw[y * (row + 1) + 1:(y + 1) * (row + 1)])
    for x in range(row):
        a = line[x - size] if x >= size else 0
        b, c = before[x], before[x - size] if x >= size else 0
        if kind == 1: line[x] = (line[x] + a) & 255
        elif kind == 2: line[x] = (line[x] + b) & 255
        elif kind == 3: line[x] = (line[x] + (a + b) // 2) & 255
        elif kind == 4:
            p = a + b - c
            pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
            line[x] = (line[x] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
    before = line
    counts.update(bytes(line[x:x + 3]) for x in range(0, row, size))
print(json.dumps([width, height, [["#" + colour.hex(), count] for colour, count in counts.most_common(4000)]]))
"##;
    let output = Command::new("python3").args(["-c", READ]).arg(image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_report_is_one_page_that_a_browser_draws_in_light_and_dark() {
    let compared = Compared::run(&["--tools", "56"]);
    let page = compared.out.path().join("report.html");
    let text = fs::read_to_string(&page).unwrap_or_else(|_| panic!("{}", compared.said()));
    for outside in ["http:", "https:", "<script", "<link", "@import", "url(", "src="] {
        assert!(!text.contains(outside), "the page needs nothing from elsewhere, but holds {outside}");
    }
    let dom = String::from_utf8(chromium(&page, &["--dump-dom"])).unwrap();
    assert_eq!((dom.matches("<svg").count(), dom.matches("<table").count()), (3, 2));
    let shown = [
        ("light", "1", "#fbfaf8", ["#b5532c", "#1f6fa8", "#4d8a3d"]),
        ("dark", "0", "#15181c", ["#e0835a", "#62aee0", "#8cc97a"]),
    ];
    for (name, scheme, ground, lanes) in shown {
        let image = compared.out.path().join(format!("{name}.png"));
        let setting = format!("--blink-settings=preferredColorScheme={scheme}");
        chromium(&page, &[&setting, &format!("--screenshot={}", image.display())]);
        let (width, height, colours) = pixels(&image);
        assert_eq!((width, height), (800, 1100));
        let count = |wanted: &str| colours.iter().find(|(colour, _)| colour == wanted).map_or(0, |(_, count)| *count);
        let all = width * height;
        assert!(count(ground) > all / 2, "{name}: most of it is the ground, {} of {all} pixels", count(ground));
        assert!(count(ground) < all * 97 / 100, "{name}: it is not blank");
        assert!(colours.len() > 50, "{name}: text is drawn with soft edges, {} colours", colours.len());
        // Direct has the longest bar, so it is seen most.
        let [direct, code, tools] = lanes.map(count);
        assert!(direct > 4_000 && code > 300 && tools > 300, "{name}: bars of all lanes: {direct}, {code}, {tools}");
        assert!(direct > 2 * code, "{name}: the bars show the saving: {direct}, {code}");
    }
}
