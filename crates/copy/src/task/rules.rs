//! What is left out of a copy, in the order in which it was typed: the first rule that fits
//! decides, as rsync has it. The far side gets one list, of which each line is what `--exclude`
//! takes: `+ ` in front makes an include of it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::filter::Filter;

use super::job;
use fault::Failure;

/// `--include`, `--exclude` and their files.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    typed: Vec<Rule>,
    /// Lines of all of them; standard input can be read once.
    lines: OnceLock<Vec<String>>,
}

/// A rule, or a file of rules.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What fits is not left out.
    pub is_include: bool,
    /// What it says.
    pub what: What,
}

/// What a rule says.
#[derive(Clone, Debug)]
pub enum What {
    /// A pattern, as rsync has them.
    Pattern(String),
    /// A file with a pattern a line; `-` for standard input.
    File(PathBuf),
}

impl Rules {
    /// Of these rules, in this order.
    pub fn new(typed: Vec<Rule>) -> Self {
        Self {
            typed,
            lines: OnceLock::new(),
        }
    }

    /// What lines say that `--exclude` takes.
    pub(super) fn of(lines: Vec<String>) -> Self {
        Self {
            typed: Vec::new(),
            lines: OnceLock::from(lines),
        }
    }

    /// All of them, each as `--exclude` takes it.
    ///
    /// # Errors
    /// What is no pattern, and a file that cannot be read.
    pub fn lines(&self) -> Result<&[String], Failure> {
        if let Some(lines) = self.lines.get() {
            return Ok(lines);
        }
        let mut lines = Vec::new();
        for rule in &self.typed {
            match &rule.what {
                What::Pattern(pattern) => lines.push(line(rule.is_include, pattern)),
                What::File(path) => {
                    let text = job::read_list(path)
                        .map_err(|error| of_file(path, rule.is_include, &error.to_string()))?;
                    add(&text, rule.is_include, &mut lines)
                        .map_err(|why| of_file(path, rule.is_include, &why))?;
                }
            }
        }
        Ok(self.lines.get_or_init(|| lines))
    }

    /// The filter that they are.
    ///
    /// # Errors
    /// As [`Rules::lines`].
    pub fn filter(&self) -> Result<Filter, Failure> {
        let mut filter = Filter::new();
        for line in self.lines()? {
            filter
                .exclude(line.as_bytes())
                .map_err(|error| Failure::usage(format!("'{line}': {error}")))?;
        }
        Ok(filter)
    }
}

fn of_file(path: &Path, is_include: bool, why: &str) -> Failure {
    let option = if is_include { "include" } else { "exclude" };
    Failure::usage(format!("--{option}-from {}: {why}", path.display()))
}

/// A pattern as `--exclude` takes it.
fn line(is_include: bool, pattern: &str) -> String {
    let says_itself = pattern.starts_with("+ ") || pattern.starts_with("- ");
    match is_include && !says_itself {
        true => format!("+ {pattern}"),
        false => pattern.to_owned(),
    }
}

/// Adds a file's lines, as [`Filter::lines`] reads them.
fn add(text: &[u8], is_include: bool, lines: &mut Vec<String>) -> Result<(), String> {
    Filter::new()
        .lines(is_include, text)
        .map_err(|(number, error)| format!("line {number}: {error}"))?;
    let text = std::str::from_utf8(text).map_err(|_| "its patterns are not UTF-8".to_owned())?;
    for pattern in text.split('\n') {
        let pattern = pattern.strip_suffix('\r').unwrap_or(pattern);
        match pattern {
            "!" => lines.clear(),
            _ if pattern.is_empty() || pattern.starts_with(['#', ';']) => {}
            _ => lines.push(line(is_include, pattern)),
        }
    }
    Ok(())
}
