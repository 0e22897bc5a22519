//! `--include`, `--exclude` and their files, in the order in which they were typed.
//!
//! clap's derive keeps a list for each option, and so forgets the order between two of them; here it is asked where each stood.

use std::path::PathBuf;

use ::copy::task::rules::{Rule, Rules, What};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

/// `--include`, `--exclude` and their files.
#[derive(Clone, Debug, Default)]
pub(crate) struct RulesArg(pub(super) Rules);

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const INCLUDE_FROM: &str = "include_from";
const EXCLUDE_FROM: &str = "exclude_from";

impl clap::FromArgMatches for RulesArg {
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
        let rules = rules.map(|(_, (is_include, what))| Rule { is_include, what });
        Ok(Self(Rules::new(rules.collect())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for RulesArg {
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
        let command = RulesArg::augment_args(Command::new("copy").no_binary_name(true));
        let matches = command.try_get_matches_from(args).unwrap();
        RulesArg::from_arg_matches(&matches).unwrap().0
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
