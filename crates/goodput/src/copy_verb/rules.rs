//! What is left out of a copy, in the order in which it was typed: the first rule that fits decides, as rsync has it.
//!
//! clap's derive keeps a list for each option, and so forgets the order between two of them; here it is asked where each stood.
//! The far side gets one list, of which each line is what `--exclude` takes: `+ ` in front makes an include of it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ::copy::filter::Filter;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::job;
use crate::failure::Failure;

/// `--include`, `--exclude` and their files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    typed: Vec<Rule>,
    /// Lines of all of them; standard input can be read once.
    lines: OnceLock<Vec<String>>,
}

#[derive(Clone, Debug)]
struct Rule {
    is_include: bool,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Pattern(String),
    File(PathBuf),
}

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const INCLUDE_FROM: &str = "include_from";
const EXCLUDE_FROM: &str = "exclude_from";

impl Rules {
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
    pub(super) fn lines(&self) -> Result<&[String], Failure> {
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
    pub(super) fn filter(&self) -> Result<Filter, Failure> {
        let mut filter = Filter::new();
        for line in self.lines()? {
            filter
                .exclude(line.as_bytes())
                .map_err(|error| Failure::usage(anyhow::anyhow!("'{line}': {error}")))?;
        }
        Ok(filter)
    }
}

fn of_file(path: &Path, is_include: bool, why: &str) -> Failure {
    let option = if is_include { "include" } else { "exclude" };
    Failure::usage(anyhow::anyhow!("--{option}-from {}: {why}", path.display()))
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

impl clap::FromArgMatches for Rules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all = Vec::new();
        for (id, is_include) in [(INCLUDE, true), (EXCLUDE, false)] {
            let at = matches.indices_of(id).into_iter().flatten();
            let typed = matches.get_many::<String>(id).into_iter().flatten();
            all.extend(at.zip(typed.map(|typed| (is_include, What::Pattern(typed.clone())))));
        }
        for (id, is_include) in [(INCLUDE_FROM, true), (EXCLUDE_FROM, false)] {
            let at = matches.indices_of(id).into_iter().flatten();
            let typed = matches.get_many::<PathBuf>(id).into_iter().flatten();
            all.extend(at.zip(typed.map(|typed| (is_include, What::File(typed.clone())))));
        }
        all.sort_by_key(|(at, _)| *at);
        let rules = all.into_iter();
        Ok(Self {
            typed: rules
                .map(|(_, (is_include, what))| Rule { is_include, what })
                .collect(),
            lines: OnceLock::new(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Rules {
    fn augment_args(command: Command) -> Command {
        let pattern = |id: &'static str, help: &'static str| {
            let arg = Arg::new(id).long(id).value_name("PATTERN");
            // A pattern may begin with `- `.
            let arg = arg.allow_hyphen_values(true);
            arg.action(ArgAction::Append).help(help)
        };
        let file = |id: &'static str, long: &'static str, help: &'static str| {
            let arg = Arg::new(id).long(long).value_name("FILE");
            let arg = arg.value_parser(value_parser!(PathBuf));
            arg.action(ArgAction::Append).help(help)
        };
        command
            .arg(pattern(
                EXCLUDE,
                "Leave out what this pattern says (rsync's patterns). Of all that is typed here and with the next three, the \
                 first that fits decides",
            ))
            .arg(pattern(
                INCLUDE,
                "Do not leave out what this pattern says, whatever is excluded behind it",
            ))
            .arg(file(
                EXCLUDE_FROM,
                "exclude-from",
                "As --exclude for each line of this file; `+ ` in front includes, lines with # or ; in front and empty ones \
                 say nothing; - for standard input",
            ))
            .arg(file(
                INCLUDE_FROM,
                "include-from",
                "As --include for each line of this file; `- ` in front excludes",
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn typed(args: &[&str]) -> Rules {
        let command = Rules::augment_args(Command::new("copy").no_binary_name(true));
        Rules::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
    }

    #[test]
    fn rules_stay_in_the_order_in_which_they_were_typed() {
        let place = std::env::temp_dir().join(format!("goodput-rules-{}", std::process::id()));
        std::fs::write(&place, "# a list\r\n+ kept\n\nfrom-file\r\n").unwrap();
        let file = place.to_str().unwrap();
        let rules = typed(&[
            "--exclude",
            "a",
            "--include=b",
            "--exclude-from",
            file,
            "--include",
            "- c",
            "--exclude",
            "+ d",
            "--include-from",
            file,
        ]);
        let lines = [
            "a",
            "+ b",
            "+ kept",
            "from-file",
            "- c",
            "+ d",
            "+ kept",
            "+ from-file",
        ];
        assert_eq!(rules.lines().unwrap(), lines);
        // Once: what was read is kept.
        std::fs::write(&place, "!\nlast\n").unwrap();
        assert_eq!(rules.lines().unwrap(), lines);
        assert_eq!(
            typed(&["--exclude", "a", "--exclude-from", file])
                .lines()
                .unwrap(),
            ["last"]
        );
        std::fs::write(&place, "fine\nb[c\n").unwrap();
        let wrong = typed(&["--exclude-from", file]);
        let said = wrong.filter().unwrap_err().to_string();
        assert!(
            said.contains("--exclude-from") && said.contains("line 2"),
            "{said}"
        );
        std::fs::remove_file(&place).unwrap();
        assert!(typed(&["--exclude-from", file]).filter().is_err());
        assert!(
            typed(&["--exclude", "b[c"])
                .filter()
                .unwrap_err()
                .to_string()
                .contains("'b[c'")
        );
        assert!(typed(&[]).filter().unwrap().is_empty());
    }
}
