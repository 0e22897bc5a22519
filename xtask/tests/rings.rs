//! The rooms of the house: which crate may depend on which, and what may stand in it.
//!
//! Read from `cargo metadata` and from the sources themselves, so that a new crate or a new arrow has
//! to pass here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Every crate of the workspace with its ring: 0 pure, 1 the kernel, 2 services, 3 jobs, 4 what is run.
const RINGS: [(&str, u32); 32] = [
    ("goodput-units", 0),
    ("goodput-wire", 0),
    ("goodput-link", 0),
    ("goodput-tcp", 0),
    ("goodput-throughput", 0),
    ("goodput-explain", 0),
    ("goodput-fault", 0),
    ("goodput-sim", 0),
    ("goodput-fabric", 0),
    ("goodput-settings", 0),
    ("goodput-testing", 0),
    ("goodput-sys", 1),
    ("goodput-capture", 2),
    ("goodput-cluster", 2),
    ("goodput-copy", 2),
    ("goodput-gateway", 2),
    ("goodput-lab", 2),
    ("goodput-measure", 2),
    ("goodput-report", 2),
    ("goodput-run", 2),
    ("goodput-spans", 2),
    ("goodput-table", 2),
    ("goodput-tls", 2),
    ("goodput-watch", 2),
    ("goodput-tune", 2),
    ("goodput-analyse", 3),
    ("goodput-doctor", 3),
    ("goodput-job", 3),
    ("goodput-reproduce", 3),
    ("goodput-trial", 3),
    ("goodput", 4),
    ("xtask", 4),
];

/// The only crate that may hold unsafe code.
const UNSAFE_CRATE: &str = "goodput-sys";

/// A dependency as the manifest has it.
struct Arrow {
    from: String,
    to: String,
    /// Built only for tests and examples.
    dev: bool,
    /// Another crate of this workspace.
    inside: bool,
}

fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap().to_owned()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn arrows() -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for package in packages() {
        for dependency in package["dependencies"].as_array().unwrap() {
            arrows.push(Arrow {
                from: package["name"].as_str().unwrap().to_owned(),
                to: dependency["name"].as_str().unwrap().to_owned(),
                dev: dependency["kind"] == "dev",
                inside: dependency["path"].is_string(),
            });
        }
    }
    arrows
}

fn ring(name: &str) -> u32 {
    let found = RINGS.iter().find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("{name} has no ring: give it one in this test and in the design"))
        .1
}

#[test]
fn every_crate_has_a_ring() {
    let mut names: Vec<String> = packages()
        .iter()
        .map(|p| p["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    let mut known: Vec<&str> = RINGS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(names, known);
}

#[test]
fn no_arrow_points_outwards() {
    for arrow in arrows().iter().filter(|a| a.inside) {
        let (from, to) = (ring(&arrow.from), ring(&arrow.to));
        assert!(
            to <= from,
            "{} (ring {from}) must not depend on {} (ring {to})",
            arrow.from,
            arrow.to
        );
    }
}

#[test]
fn a_change_in_explain_builds_no_service_again() {
    let users: Vec<String> = arrows()
        .into_iter()
        .filter(|a| a.to == "goodput-explain" && !a.dev && ring(&a.from) < 4)
        .map(|a| a.from)
        .collect();
    assert_eq!(users, ["goodput-analyse", "goodput-doctor"]);
}

/// What pure crates have from outside: a hint to the processor's caches, which no result hangs on and which has no safe form in
/// the standard library.
const HINTS: [(&str, &str); 1] = [("goodput-fabric", "prefetch-index")];

#[test]
fn ring_0_needs_nothing_from_outside_but_hints() {
    for arrow in arrows() {
        let is_hint = HINTS.contains(&(arrow.from.as_str(), arrow.to.as_str()));
        assert!(
            arrow.inside || arrow.dev || is_hint || ring(&arrow.from) > 0,
            "{} is pure and must not depend on {}",
            arrow.from,
            arrow.to
        );
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for package in packages() {
        let manifest = fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        let table: Vec<&str> = manifest
            .lines()
            .skip_while(|line| line.trim() != "[lints]")
            .skip(1)
            .take(1)
            .collect();
        assert_eq!(table, ["workspace = true"], "{}", package["name"]);
    }
}

#[test]
fn ring_0_crates_share_one_list_of_forbidden_calls() {
    let lists: BTreeMap<String, String> = packages()
        .iter()
        .filter(|p| ring(p["name"].as_str().unwrap()) == 0)
        .map(|p| {
            let file = folder(p).join("clippy.toml");
            let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{e}: {file:?}"));
            (p["name"].to_string(), text)
        })
        .collect();
    let (name, first) = lists.first_key_value().unwrap();
    for clock in ["Instant::now", "SystemTime::now", "thread::sleep"] {
        assert!(first.contains(clock), "{name} may call {clock}");
    }
    for (other, list) in &lists {
        assert_eq!(list, first, "clippy.toml of {other} and of {name} differ");
    }
}

#[test]
fn unsafe_code_stands_in_one_crate_and_ring_0_forbids_it() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let sources = rust_files(&folder(&package).join("src"));
        assert!(!sources.is_empty(), "{name} has no sources");
        for file in &sources {
            let text = fs::read_to_string(file).unwrap();
            for (number, line) in text.lines().enumerate() {
                assert!(
                    name == UNSAFE_CRATE || !is_unsafe(line),
                    "{}:{}: unsafe code belongs in {UNSAFE_CRATE}",
                    file.display(),
                    number + 1
                );
            }
        }
        if ring(name) == 0 {
            let root = fs::read_to_string(folder(&package).join("src/lib.rs")).unwrap();
            assert!(root.contains("#![forbid(unsafe_code)]"), "{name}");
        }
    }
}

/// True for a line that opens unsafe code or lets it in.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let opens = ["{", "fn", "impl", "trait", "extern"]
        .iter()
        .any(|what| code.contains(&format!("unsafe {what}")));
    opens || code.contains("allow(unsafe_code")
}

fn folder(package: &Value) -> PathBuf {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    manifest.parent().unwrap().to_owned()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}
