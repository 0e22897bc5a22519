//! Records are written and read in one way, whatever else serde could do: byte for byte as by deriving.

use std::fs;

use crate::values::{Which, make};
use run::RunFolder;
use run::model::{FindingRecord, ResultRecord, Run, RunState};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use serde_json::{Serializer, Value};

/// A run of which every member is there.
fn full() -> Run {
    let (run, texts) = make::<Run>(Which::Only(0), "a \"text\"\nof lines", 1);
    assert!(texts > 100, "{texts}");
    Run {
        state: RunState::Done,
        ..run.unwrap()
    }
}

fn derived(run: &Run, format: impl Formatter) -> String {
    let mut bytes = Vec::new();
    Run::serialize(run, &mut Serializer::with_formatter(&mut bytes, format)).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_run_is_written_as_its_types_say() {
    let mut unnumbered = full();
    unnumbered.phases[0].shares.network = f64::NAN;
    for run in [Run::default(), full(), unnumbered] {
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(text, derived(&run, CompactFormatter));
        let text = serde_json::to_string_pretty(&run).unwrap();
        assert_eq!(text, derived(&run, PrettyFormatter::new()));
        let value = serde_json::to_value(&run).unwrap();
        assert_eq!(
            value,
            Run::serialize(&run, serde_json::value::Serializer).unwrap()
        );
        let result = serde_json::to_string(&ResultRecord {
            run: run.clone(),
            ..ResultRecord::default()
        });
        assert!(result.unwrap().contains(&derived(&run, CompactFormatter)));
    }
}

#[test]
fn files_of_a_folder_are_read_as_their_types_say() {
    let parent = std::env::temp_dir().join(format!("goodput-written-{}", std::process::id()));
    let run = full();
    let (finding, _) = make::<FindingRecord>(Which::All, "a text", 0);
    let findings = [finding.unwrap()];
    let mut folder = RunFolder::create(&parent, "doctor", "x", Run::default()).unwrap();
    folder
        .finish(&run, &findings, &|_, _, _| String::new())
        .unwrap();
    let file = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let written = folder.run();
    assert_eq!(
        file("run.json"),
        derived(written, PrettyFormatter::new()) + "\n"
    );
    let text = serde_json::to_string_pretty(&findings).unwrap() + "\n";
    assert_eq!(file("findings.json"), text);
    let loaded = RunFolder::load(folder.path()).unwrap();
    assert_eq!(&loaded.run, written);
    let value: Value = serde_json::from_str(&file("run.json")).unwrap();
    assert_eq!(loaded.run, serde_json::from_value(value).unwrap());
    assert_eq!(loaded.findings, findings);
    // Which member is at fault is said in the same words.
    for wrong in [
        r#"{"phases": 3}"#,
        r#"{"phases": {"a": true}}"#,
        r#"{"seed": "x"}"#,
        r#"{"seed": -1}"#,
        r#"{"schema_version": 4294967296}"#,
        r#"{"hosts": [{"tcp_rmem_bytes": [1, 2]}]}"#,
        r#"{"hosts": [{"tcp_rmem_bytes": [1, 2, 3, 4]}]}"#,
        r#"{"verdict": "x"}"#,
        r#"{"state": "dancing"}"#,
        r#"{"state": 1}"#,
        r#"{"verb": 1.5}"#,
        "7",
        "false",
    ] {
        fs::write(folder.path().join("run.json"), wrong).unwrap();
        let error = RunFolder::load(folder.path()).unwrap_err().to_string();
        let value: Value = serde_json::from_str(wrong).unwrap();
        let expected = serde_json::from_value::<Run>(value)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&expected), "{wrong}: {error}: {expected}");
    }
    fs::remove_dir_all(&parent).unwrap();
}
