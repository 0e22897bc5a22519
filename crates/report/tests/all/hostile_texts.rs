//! Whatever the texts of a run folder are, a terminal and a page only show them.

use std::path::PathBuf;

use crate::hostile::{FORGED, HOSTILE, assert_clean, assert_clean_page};
use crate::values::{Which, each, make};
use report::model::{FindingRecord, Run, SampleRecord};
use report::{LoadedRun, RunFolder, render, render_comparison, terminal};
use serde_json::Value;

fn shown(run: &Run, findings: &[FindingRecord]) -> [String; 2] {
    [
        terminal::summary(run, findings, false, 80),
        terminal::summary(run, findings, true, 80).replace('\x1b', "ESC"),
    ]
}

fn page(run: &Run, samples: &[SampleRecord], findings: &[FindingRecord]) -> String {
    render(run, samples, findings)
}

fn comparison(run: &Run, samples: &[SampleRecord], findings: &[FindingRecord]) -> String {
    let loaded = LoadedRun {
        path: PathBuf::from(HOSTILE),
        run: run.clone(),
        samples: samples.to_vec(),
        findings: findings.to_vec(),
        skipped_lines: 1,
        truncated: true,
    };
    render_comparison(&[loaded.clone(), loaded])
}

/// The run with one of its sections alone: of several some are not shown.
fn sections(run: &Run) -> Vec<Run> {
    let whole = serde_json::to_value(run).unwrap();
    let Value::Object(members) = &whole else {
        panic!("a run is an object");
    };
    let is_section = |value: &Value| matches!(value, Value::Object(_) | Value::Array(_));
    let names = members.iter().filter(|(_, value)| is_section(value));
    let only = |kept: &String| {
        let mut alone = members.clone();
        alone.retain(|name, value| name == kept || !is_section(value));
        serde_json::from_value(Value::Object(alone)).unwrap()
    };
    names.map(|(name, _)| only(name)).collect()
}

#[test]
fn no_text_of_a_run_reaches_a_terminal_or_a_page_raw() {
    let (findings, _) = make::<Vec<FindingRecord>>(Which::All, HOSTILE, 0);
    let findings = findings.unwrap();
    let sample = SampleRecord {
        phase: HOSTILE.to_owned(),
        end: HOSTILE.to_owned(),
        ..SampleRecord::default()
    };
    let samples = [sample.clone(), sample];
    let one_line = HOSTILE.replace("\r\n", "  ");
    for state in 0..4 {
        let (run, texts) = make::<Run>(Which::All, HOSTILE, state);
        let (run, texts) = (run.unwrap(), texts);
        assert!(texts > 300, "{texts} texts");
        let (same, _) = make::<Run>(Which::All, &one_line, state);
        let (same_findings, _) = make::<Vec<FindingRecord>>(Which::All, &one_line, 0);
        let all = [vec![run.clone()], sections(&run)].concat();
        let same = same.unwrap();
        let same = [vec![same.clone()], sections(&same)].concat();
        for (run, same) in all.iter().zip(&same) {
            let texts = shown(run, &findings);
            texts.iter().for_each(|text| assert_clean(text, "terminal"));
            // A line feed from outside makes no line.
            assert_eq!(texts, shown(same, same_findings.as_ref().unwrap()));
            assert_clean_page(&page(run, &samples, &findings), "page");
            assert_clean_page(&comparison(run, &samples, &findings), "comparison");
        }
    }
}

#[test]
fn no_single_text_of_a_run_reaches_a_terminal_or_a_page_raw() {
    each::<Run>(HOSTILE, 1, |run, which| {
        let what = format!("{which:?}");
        shown(&run, &[])
            .iter()
            .for_each(|text| assert_clean(text, &what));
        assert_clean_page(&page(&run, &[], &[]), &what);
    });
    let run = Run::default();
    each::<FindingRecord>(HOSTILE, 0, |finding, which| {
        let (what, findings) = (format!("{which:?}"), [finding]);
        shown(&run, &findings)
            .iter()
            .for_each(|text| assert_clean(text, &what));
        assert_clean_page(&page(&run, &[], &findings), &what);
    });
}

#[test]
fn a_folder_of_somebody_else_is_read_plain_and_its_errors_are() {
    let parent = std::env::temp_dir().join(format!("goodput-hostile-{}", std::process::id()));
    let (run, _) = make::<Run>(Which::All, HOSTILE, 1);
    let folder = RunFolder::create(&parent, "report", "x", Run::default()).unwrap();
    let path = folder.path().to_owned();
    drop(folder);
    let file = path.join("run.json");
    std::fs::write(&file, serde_json::to_vec(&run.unwrap()).unwrap()).unwrap();
    let read = RunFolder::load(&path).unwrap();
    let text = serde_json::to_string(&read.run).unwrap();
    assert!(text.contains(FORGED));
    assert_clean(&text.replace("\\n", ""), "a run that was read");
    // The state is no text: what is none of its values is quoted in the error.
    std::fs::write(&file, serde_json::json!({ "state": HOSTILE }).to_string()).unwrap();
    let error = RunFolder::load(&path).unwrap_err().to_string();
    crate::hostile::assert_clean_lines(&error, "a state");
    assert!(error.contains("unknown variant"), "{error}");
    std::fs::remove_dir_all(&parent).unwrap();
}
