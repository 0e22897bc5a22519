//! Where dependencies come from, and their licences: what `deny.toml` allows. `cargo deny` checks more, but has to be
//! installed; its list of known vulnerabilities has to be fetched, so it is for a release (SECURITY.md).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap().to_owned()
}

/// What stands in quotes in the list of that name.
fn listed(text: &str, name: &str) -> Vec<String> {
    let (_, list) = text.split_once(&format!("\n{name} = [")).unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let quoted = list.split('"').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

/// Whether what is allowed satisfies an SPDX expression. `MIT/Apache-2.0` is an older form of OR.
fn satisfies(allowed: &[String], expression: &str) -> bool {
    let expression = expression.trim();
    let split = |word: &str| -> Vec<String> {
        let mut parts = vec![String::new()];
        let mut depth = 0;
        for token in expression
            .replace('(', "( ")
            .replace(')', " )")
            .split_whitespace()
        {
            depth += i32::from(token == "(") - i32::from(token == ")");
            match token == word && depth == 0 {
                true => parts.push(String::new()),
                false => {
                    let part = parts.last_mut().unwrap();
                    *part += " ";
                    *part += token;
                }
            }
        }
        parts
    };
    let (any, all) = (split("OR"), split("AND"));
    if any.len() > 1 {
        return any.iter().any(|part| satisfies(allowed, part));
    }
    if all.len() > 1 {
        return all.iter().all(|part| satisfies(allowed, part));
    }
    match expression
        .strip_prefix('(')
        .and_then(|e| e.strip_suffix(')'))
    {
        Some(inner) => satisfies(allowed, inner),
        None => expression
            .split('/')
            .any(|one| allowed.iter().any(|a| a == one)),
    }
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let deny = fs::read_to_string(workspace().join("deny.toml")).unwrap();
    let allowed = listed(&deny, "allow");
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", host.unwrap()])
        .current_dir(workspace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or_default();
        let name = &package["name"];
        assert!(satisfies(&allowed, licence), "{name}: '{licence}'");
    }
}

#[test]
fn every_dependency_comes_from_crates_io_with_a_checksum() {
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let text = fs::read_to_string(workspace().join(lock)).unwrap();
        let mut sources = 0;
        for package in text.split("[[package]]") {
            let field = |name: &str| {
                let mut lines = package.lines();
                lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))
            };
            let Some(source) = field("source") else {
                continue;
            };
            sources += 1;
            let source = source.trim_matches('"');
            let is_allowed =
                source.starts_with("registry+") && source.ends_with("/crates.io-index");
            assert!(is_allowed, "{lock}: {package}");
            assert!(field("checksum").is_some(), "{lock}: {package}");
        }
        assert!(sources > 10, "{lock}");
    }
}

#[test]
fn expressions_of_licences_are_read() {
    let allowed: Vec<String> = ["MIT", "Apache-2.0"].map(str::to_owned).into();
    for (expression, is_satisfied) in [
        ("MIT", true),
        ("MIT/GPL-3.0-only", true),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("(GPL-3.0-only OR MIT) AND Apache-2.0", true),
        ("(GPL-3.0-only AND MIT) OR BSD-3-Clause", false),
        ("MIT AND GPL-3.0-only OR Apache-2.0", true),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("MIT-0", false),
        ("", false),
    ] {
        assert_eq!(
            satisfies(&allowed, expression),
            is_satisfied,
            "{expression}"
        );
    }
}
