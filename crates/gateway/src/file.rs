//! A gateway's file, and the line of it where something is wrong.

use std::path::Path;

use fault::Failure;

use crate::config::{Config, ConfigError};

/// A file as it was when it was read.
#[derive(Debug)]
pub struct ConfigFile {
    name: String,
    text: String,
}

impl ConfigFile {
    /// Reads it.
    ///
    /// # Errors
    /// The file's name and why it cannot be read.
    pub fn open(file: &Path) -> Result<Self, Failure> {
        let name = file.display().to_string();
        let text =
            std::fs::read_to_string(file).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
        Ok(Self { name, text })
    }

    /// What it says.
    ///
    /// # Errors
    /// What cannot be meant, with its place.
    pub fn parse(&self) -> Result<Config, Failure> {
        let parsed = Config::parse(&self.text);
        parsed.map_err(|e| Failure::usage(self.told(&e)))
    }

    /// An error with the file and, where the key stands in it, the line.
    pub fn told(&self, error: &ConfigError) -> String {
        let line = match error {
            ConfigError::Value { key, .. } => line_of(&self.text, key),
            // It has one already.
            _ => None,
        };
        match line {
            Some(line) => format!("{}:{line}: {error}", self.name),
            None => format!("{}: {error}", self.name),
        }
    }
}

/// The line of a key, as errors name it, or else of the section where it would stand; from 1.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let (section, wanted, name) = match key.strip_prefix("rule ") {
        Some(rest) => {
            let (number, name) = rest.split_once(": ")?;
            ("rule", number.parse().ok()?, name)
        }
        None => match key.split_once('.') {
            Some((section, name)) => (section, 1, name),
            None => ("", 1, key),
        },
    };
    // Of "harmonize and pacing" the first.
    let name = name.split_whitespace().next()?;
    let (mut here, mut times, mut nearest) = ("", 0_usize, None);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_start_matches('[').split(']').next();
            here = header.unwrap_or_default().trim();
            times += usize::from(here == section);
            let is_it = match section {
                "" => here == name,
                _ => here == section && times == wanted,
            };
            nearest = nearest.or_else(|| is_it.then_some(number));
        } else if here == section && (section.is_empty() || times == wanted) {
            let found = line.split('=').next().map(str::trim);
            if found == Some(name) {
                return Some(number);
            }
        }
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
workers = 3  # many
# queue = 7
[inside]
buffer = '1kB'
[[rule]]
ports = '1'
[[rule]] # the second
action = 'bypass'
ports = 'x'
[outside]
";

    #[test]
    fn a_key_is_found_where_it_stands_or_would_stand() {
        for (key, line) in [
            ("workers", Some(1)),
            ("queue", None),
            ("inside", Some(3)),
            ("inside.buffer", Some(4)),
            ("rule 1: ports", Some(6)),
            ("rule 2: ports", Some(9)),
            ("rule 2: server", Some(7)),
            ("rule 3: ports", None),
            ("outside.buffer", Some(10)),
            ("outside.harmonize and pacing = even", Some(10)),
            ("explicit.listen", None),
            ("", None),
        ] {
            assert_eq!(line_of(TEXT, key), line, "{key}");
        }
    }

    #[test]
    fn an_error_names_file_line_and_what_is_expected() {
        let file = |text: &str| ConfigFile {
            name: "gateway.toml".to_owned(),
            text: text.to_owned(),
        };
        let said = |text: &str| file(text).parse().unwrap_err().to_string();
        let value = said(TEXT);
        assert!(value.starts_with("gateway.toml:"), "{value}");
        let rule = said("[[rule]]\naction = 'bypass'\nports = '9-1'\n");
        assert!(
            rule.starts_with("gateway.toml:3: rule 1: ports: "),
            "{rule}"
        );
        let syntax = said("[[rule]]\naction = 'pass'\n");
        assert!(syntax.starts_with("gateway.toml: "), "{syntax}");
        assert!(syntax.contains("line 2"), "{syntax}");
        assert!(syntax.contains("expected one of"), "{syntax}");
    }
}
