//! Whatever the texts of a fabric file, a trace or a list of hosts are, a terminal and a page only show them.

#[path = "../../units/tests/hostile/document.rs"]
mod document;
#[path = "../../units/tests/hostile/mod.rs"]
mod hostile;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cluster::{FabricFile, trace};
use hostile::{HOSTILE, assert_clean_lines};

#[test]
fn no_text_of_a_fabric_file_is_shown_raw() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fabrics");
    let mut seen = BTreeSet::new();
    let mut refused = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let file = entry.unwrap().path();
        // The largest takes seconds, and has nothing that smaller ones have not.
        let is_large = file.ends_with("ten-thousand.toml");
        if file.extension().is_none_or(|kind| kind != "toml") || is_large {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let read = |name: &str| {
            let beside = fs::read_to_string(folder.join(name));
            beside.map_err(|error| format!("{name}: {error}"))
        };
        for (place, text) in document::variants(&text, HOSTILE) {
            if !seen.insert(place.clone()) {
                continue;
            }
            let what = format!("{}: {place}", file.display());
            match FabricFile::parse_with(Path::new(HOSTILE), &text, None, &read) {
                Ok(found) => {
                    assert_clean_lines(&found.title, &what);
                    for case in &found.cases {
                        assert_clean_lines(&case.name, &what);
                    }
                    for study in &found.studies {
                        assert_clean_lines(&study.name, &what);
                    }
                }
                Err(error) => {
                    refused += 1;
                    assert_clean_lines(&error.to_string(), &what);
                }
            }
        }
    }
    assert!(refused > 100, "{refused} refused");
}

#[test]
fn no_field_of_a_trace_is_shown_raw() {
    let words = HOSTILE.replace(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}', ' '], "");
    for n in 0..5 {
        let mut fields = ["1", "2", "3", "4", "5"];
        fields[n] = &words;
        for between in [" ", ",", "\t"] {
            if let Err(error) = trace::parse(&fields.join(between)) {
                assert_clean_lines(&error.to_string(), &format!("field {n}"));
            }
        }
    }
}
