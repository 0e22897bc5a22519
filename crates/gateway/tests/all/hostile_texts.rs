//! Whatever the texts of a gateway's file are, its errors are plain.

use crate::hostile::{HOSTILE, assert_clean_lines};
use gateway::config::Config;

const FILE: &str = r#"
workers = 1
drain = "30s"
buffer-memory = "64MiB"
[inside]
interfaces = ["lan0"]
congestion = "cubic"
[outside]
interfaces = ["wan0"]
[limits]
connections = 100
[[rule]]
action = "bypass"
clients = ["10.0.0.0/8"]
ports = ["80"]
"#;

#[test]
fn no_text_of_a_gateways_file_is_raw_in_an_error() {
    let mut refused = 0;
    for (place, text) in crate::document::variants(FILE, HOSTILE) {
        let found = Config::parse(&text).and_then(|config| config.check());
        if let Err(error) = found {
            refused += 1;
            let error = error.to_string();
            assert!(!error.contains('\n'), "{place}: {error:?}");
            assert_clean_lines(&error, &place);
        }
    }
    assert!(refused > 15, "{refused} refused");
}
