//! Whatever the texts of a path file or of a log's legend are, a terminal, a table and a page only show them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::hostile::{HOSTILE, assert_clean_lines};
use lab::PathFile;

/// All that a path's verbs print of it.
fn names(path: &PathFile) -> Vec<&str> {
    let network = &path.network;
    let hosts = network.hosts.iter();
    let hosts = hosts.flat_map(|host| [&host.name, &host.congestion_control]);
    let links = network.links.iter().map(|link| &link.name);
    let switches = network.switches.iter().map(|switch| &switch.name);
    let routers = network.routers.iter().map(|router| &router.name);
    let all = hosts.chain(links).chain(switches).chain(routers);
    let all = all.chain([&path.title, &path.link]);
    all.map(String::as_str).collect()
}

#[test]
fn no_text_of_a_path_file_is_shown_raw() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paths");
    let files = |_: &Path| Ok("1\n1\n20\n".to_owned());
    let (mut taken, mut refused) = (0, 0);
    // Each place once: many examples have the same.
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        // A tree of 128 hosts has nothing that smaller ones have not.
        if text.len() > 8_192 {
            continue;
        }
        for (place, text) in crate::document::variants(&text, HOSTILE) {
            if !seen.insert(place.clone()) {
                continue;
            }
            let what = format!("{}: {place}", file.display());
            match PathFile::parse_with(Path::new(HOSTILE), &text, &files) {
                Ok(path) => {
                    taken += 1;
                    for name in names(&path) {
                        assert_clean_lines(name, &what);
                    }
                }
                Err(error) => {
                    refused += 1;
                    assert_clean_lines(&error.to_string(), &what);
                }
            }
        }
    }
    assert!(
        taken >= 2 && refused > 1_000,
        "{taken} taken, {refused} refused"
    );
}
