//! What can be typed. Meaning is given to it elsewhere; nothing here touches the world.

pub(crate) mod capture;
pub(crate) mod copy;
pub(crate) mod explain;
pub(crate) mod fabric;
pub(crate) mod gateway;
pub(crate) mod lab;
pub(crate) mod measure;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod rotate;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod tune;
pub(crate) mod watch;

use clap::{Parser, Subcommand};

use self::capture::{CAPTURE_EXAMPLES, CaptureArgs};
use self::copy::{AgentArgs, COPY_EXAMPLES, CopyArgs};
use self::explain::{EXPLAIN_EXAMPLES, ExplainArgs};
use self::fabric::{FABRIC_EXAMPLES, FabricArgs};
use self::gateway::{GATEWAY_EXAMPLES, GatewayArgs};
use self::lab::{LAB_EXAMPLES, LabArgs};
pub(crate) use self::measure::{ApproachArgs, DoctorArgs, MeasureArgs};
use self::measure::{DOCTOR_EXAMPLES, MEASURE_EXAMPLES};
use self::report::{REPORT_EXAMPLES, ReportArgs};
use self::reproduce::{REPRODUCE_EXAMPLES, ReproduceArgs};
use self::rotate::{ROTATE_EXAMPLES, RotateArgs};
use self::serve::SERVE_EXAMPLES;
pub(crate) use self::serve::ServeArgs;
use self::sim::{SIM_EXAMPLES, SimArgs};
use self::tune::{TUNE_EXAMPLES, TuneArgs};
use self::watch::{WATCH_EXAMPLES, WatchArgs};

/// Measures, explains, reproduces and fixes what keeps fast networks from being filled, and proves
/// the gain.
#[derive(Debug, Parser)]
#[command(
    name = "goodput",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Explain what is done; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print errors only, and results for programs (such as --json)
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Find what limits a path, apply the remedy where that is safe, and prove the gain
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Measure TCP, MPTCP, UDP, TLS or messages, memory to memory, and say where the time went
    #[command(after_help = MEASURE_EXAMPLES)]
    Measure(Box<MeasureArgs>),
    /// Be the far end of measurements
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Show what limits every TCP connection of this host right now: nothing is sent, no root
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(Box<WatchArgs>),
    /// Write the packets of an interface to a file: pcapng, headers only, drops counted
    #[command(after_help = CAPTURE_EXAMPLES)]
    Capture(CaptureArgs),
    /// Say of every TCP connection in captures why it was no faster, with the packets that prove it
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Derive a host's network settings from a path; apply, verify and undo them
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(Box<TuneArgs>),
    /// Put programs behind a path: a shell, or labs in the background
    #[command(after_help = LAB_EXAMPLES)]
    Lab(LabArgs),
    /// Run a path in virtual time: every packet, no network, no privilege
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Run a cluster fabric in virtual time: cables, switches, credits, virtual lanes
    #[command(after_help = FABRIC_EXAMPLES)]
    Fabric(FabricArgs),
    /// Have pairs of a cluster's hosts send at once, as CBench's rotate: who gets how much, and why
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(RotateArgs),
    /// Copy files and folders to, from or between hosts: checked, resumable, at the path's speed
    #[command(after_help = COPY_EXAMPLES)]
    Copy(Box<CopyArgs>),
    /// End TCP connections between two networks and go on with others: each half at its best
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(Box<GatewayArgs>),
    /// The far side of a copy, as ssh starts it
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Draw the report of a run again, or compare runs
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Run what the seed documents describe and compare the numbers; without an id, show the board
    #[command(after_help = REPRODUCE_EXAMPLES)]
    Reproduce(ReproduceArgs),
    /// Print shell completions
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the command or of one verb
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The verb, such as doctor
        verb: Option<String>,
    },
}

/// A share, of frames or datagrams: a number, or a percentage with its sign. No range is kept here.
pub(crate) fn share(typed: &str) -> Result<f64, String> {
    match typed.parse() {
        Ok(share) => Ok(share),
        Err(_) => typed
            .parse()
            .map(units::Percentage::as_share)
            .map_err(|e| e.to_string()),
    }
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the check or comparison failed, or nothing could be concluded; 2 usage;
3 cannot run here (privilege, kernel, disk); 4 far end or network failed; 128+n ended by signal n.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  goodput completions bash > ~/.local/share/bash-completion/completions/goodput
  goodput completions fish > ~/.config/fish/completions/goodput.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  goodput man > goodput.1 && man -l goodput.1";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{CommandFactory, error::ErrorKind};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every file of the repository under `place` that is Markdown, or that file itself.
    fn pages(place: &Path, found: &mut Vec<std::path::PathBuf>) {
        if place.is_dir() {
            for entry in std::fs::read_dir(place).unwrap() {
                pages(&entry.unwrap().path(), found);
            }
        } else if place.extension().is_some_and(|e| e == "md") {
            found.push(place.to_owned());
        }
    }

    /// The words of the first `goodput` command in a line of shell: up to a pipe, a redirection, a
    /// comment, or the three blanks before an example's remark.
    fn command_in(line: &str) -> Option<Vec<String>> {
        let line = line.trim_start();
        let line = match line.split_once("$ ") {
            Some((prompt, rest)) if prompt.chars().all(char::is_alphanumeric) => rest.trim_start(),
            _ => line,
        };
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let rest = line.strip_prefix("goodput ")?;
        if rest.starts_with([' ', '-']) && !rest.starts_with("--") {
            return None; // a column of output
        }
        let mut words = vec!["goodput".to_owned(), String::new()];
        let mut quote = None;
        let mut chars = rest.chars().peekable();
        let mut blanks = 0;
        while let Some(c) = chars.next() {
            let word = words.last_mut().unwrap();
            blanks = if c == ' ' { blanks + 1 } else { 0 };
            match (c, quote) {
                ('#', None) if word.is_empty() => break,
                ('|' | '>' | ';' | '&', None) => break,
                (' ', None) if blanks == 3 => break,
                (' ', None) if word.is_empty() => {}
                (' ', None) => words.push(String::new()),
                ('\\', None) if chars.peek().is_none() => {}
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(q)) if c == q => quote = None,
                _ => word.push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        Some(words)
    }

    /// What clap says against a command, if anything. A mention in a sentence may name a verb or an
    /// option only, and leave out what follows.
    fn refusal(words: &[String], mention: bool) -> Option<String> {
        let error = Cli::try_parse_from(words).err()?;
        let fine = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
            ErrorKind::MissingRequiredArgument
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingSubcommand => mention,
            ErrorKind::InvalidValue => mention && words.last().is_some_and(|w| w.starts_with("--")),
            _ => false,
        };
        (!fine).then(|| error.to_string())
    }

    #[test]
    fn every_command_that_the_documents_print_is_understood() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = Vec::new();
        for place in ["README.md", "docs", "experiments", "bench/README.md"] {
            pages(&root.join(place), &mut found);
        }
        assert!(found.len() > 10, "{found:?}");
        let mut wrong = Vec::new();
        let mut read = 0;
        for page in found {
            let text = std::fs::read_to_string(&page).unwrap();
            let mut fenced = false;
            for (number, line) in text.lines().enumerate() {
                if line.starts_with("```") {
                    fenced = !fenced;
                    continue;
                }
                let spans = line.split('`').skip(1).step_by(2);
                let commands: Vec<_> = if fenced || line.starts_with("    ") {
                    command_in(line).into_iter().collect()
                } else {
                    spans.filter_map(command_in).collect()
                };
                for words in commands {
                    read += 1;
                    if let Some(error) = refusal(&words, !fenced) {
                        wrong.push(format!("{}:{}: {error}", page.display(), number + 1));
                    }
                }
            }
        }
        assert!(read > 80, "{read}");
        for wrong in [
            "goodput measure x --no-such",
            "goodput mesure x",
            "goodput report x -d 1s",
        ] {
            let words = command_in(wrong).unwrap();
            assert!(refusal(&words, true).is_some(), "{wrong}");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_example_of_the_help_is_understood() {
        let mut read = 0;
        for examples in [
            DOCTOR_EXAMPLES,
            MEASURE_EXAMPLES,
            SERVE_EXAMPLES,
            CAPTURE_EXAMPLES,
            EXPLAIN_EXAMPLES,
            REPORT_EXAMPLES,
            REPRODUCE_EXAMPLES,
            LAB_EXAMPLES,
            SIM_EXAMPLES,
            TUNE_EXAMPLES,
            ROTATE_EXAMPLES,
            COMPLETIONS_EXAMPLES,
            MAN_EXAMPLES,
        ] {
            for words in examples.lines().filter_map(command_in) {
                read += 1;
                assert_eq!(refusal(&words, false), None, "{words:?}");
            }
        }
        assert!(read > 40, "{read}");
    }
}
