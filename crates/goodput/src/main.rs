//! The `goodput` command: what was typed, what it means, and the exit code.

mod args;
mod print;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{CommandFactory, Parser};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;
use units::text::{is_plain, plain};

use crate::args::{Cli, Verb};
use fault::{Failure, Verdict};
use job::Context;
use report::machine::Machine;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    log_to_stderr(match &cli.verb {
        Verb::Serve(args) if args.log_clients => cli.verbose.max(1),
        _ => cli.verbose,
    });
    let is_text = matches!(cli.verb, Verb::Completions { .. } | Verb::Man { .. });
    print::QUIET.store(cli.quiet && !is_text, Ordering::Relaxed);
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            print::QUIET.store(false, Ordering::Relaxed);
            let text = sys::threads::with_limits(&failure.to_string());
            print::note(format_args!("goodput: {text}"));
            tell_programs(&text, failure.code);
            ExitCode::from(failure.code)
        }
    }
}

/// Prints help and the version as clap does, and what is wrong with what was typed: in clap's layout, but where a word has
/// more than plain text, as a name of somebody else's file may, as [`print::note`] does.
fn refuse(error: &clap::Error) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(fault::USAGE);
    if error.use_stderr() {
        let text = error.render().to_string();
        tell_programs(text.trim_end(), code);
        let typed_plain = |word: OsString| word.to_string_lossy().chars().all(is_plain);
        match std::env::args_os().all(typed_plain) {
            true => print::note_lines(text.trim_end()),
            false => print::note(text.trim_end()),
        }
    } else {
        let _ = error.print();
    }
    ExitCode::from(code)
}

/// Says why in the layout that was asked for, where that is one for programs.
fn tell_programs(error: &str, code: u8) {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(machine) = Machine::asked(words.iter().map(OsString::as_os_str)) {
        print::fail(machine, error, code);
    }
}

fn run(cli: &Cli) -> Verdict {
    match &cli.verb {
        Verb::Doctor(args) => {
            args.transfer.check()?;
            let lab = needs_lab(args.transfer.target.as_deref());
            args::measure::doctor(args, &start(lab)?)
        }
        Verb::Measure(args) if args.explain_columns => {
            print::print(&report::columns::text(print::width()))?;
            Ok(fault::DONE)
        }
        Verb::Measure(args) => {
            args.transfer.check()?;
            args::measure::measure(args, &start(needs_lab(args.place()))?)
        }
        Verb::Serve(args) => args::serve::run(args, &start(false)?),
        Verb::Watch(args) => args::watch::run(args, &start(false)?),
        Verb::Capture(args) => args::capture::run(args, &start(false)?),
        Verb::Lab(args) => args::lab::run(args),
        Verb::Explain(args) => {
            let path = args
                .files
                .first()
                .is_some_and(|f| f.to_string_lossy().starts_with("lab:"));
            args::explain::run(args, &start(path)?)
        }
        Verb::Tune(args) => args::tune::run(args),
        Verb::Fabric(args) => args::fabric::run(args, &start(false)?),
        Verb::Sim(args) => args::sim::run(args, &start(false)?),
        Verb::Rotate(args) => args::rotate::run(args, &start(args.needs_lab())?),
        Verb::Copy(args) => args::copy::run(args, &start(args.needs_lab())?),
        Verb::Gateway(args) => args::gateway::command(args, || start(false)),
        Verb::Agent(args) => args::copy::agent(args, &start(false)?),
        Verb::Report(args) => args::report::run(args),
        Verb::Reproduce(args) => {
            args::reproduce::run(args, &start(args.id.is_some() && !args.show)?)
        }
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "goodput", &mut text);
            print::print(&String::from_utf8_lossy(&text))?;
            Ok(fault::DONE)
        }
        Verb::Man { verb } => {
            let mut text = Vec::new();
            clap_mangen::Man::new(manual_of(verb.as_deref())?)
                .render(&mut text)
                .map_err(Failure::here)?;
            print::print(&String::from_utf8_lossy(&text))?;
            Ok(fault::DONE)
        }
    }
}

/// The whole command, or one verb's under the name that its manual page has.
fn manual_of(verb: Option<&str>) -> Result<clap::Command, Failure> {
    let mut whole = Cli::command();
    whole.build();
    let Some(verb) = verb else { return Ok(whole) };
    match whole.find_subcommand(verb) {
        Some(found) => Ok(found
            .clone()
            .name(format!("goodput-{verb}"))
            .version(env!("CARGO_PKG_VERSION"))),
        None => Err(Failure::usage(anyhow::anyhow!(
            "there is no verb '{verb}'; see goodput --help"
        ))),
    }
}

fn needs_lab(target: Option<&str>) -> bool {
    target.is_none_or(|t| t.starts_with("lab:"))
}

/// Prepares the process, in the order that the kernel wants: namespaces before the first thread.
fn start(lab: bool) -> Result<Context, Failure> {
    if lab {
        become_able_to_run_labs()?;
    }
    let leave = || {
        print::live::leave_screen();
        print::watch::leave();
    };
    Context::start(leave).map_err(Failure::here)
}

/// Enters a user namespace if that is what it takes to make network namespaces.
fn become_able_to_run_labs() -> Result<(), Failure> {
    if !sys::netns::can_create_namespaces() {
        sys::netns::become_root_in_user_namespace().map_err(lab::LabError::NoNamespaces)?;
    }
    Ok(())
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .without_time()
        .with_target(false)
        .fmt_fields(plain_fields())
        .init();
}

/// Fields of a log line: the message, then `name=value`. None has a line end or a control character, wherever it comes from.
fn plain_fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|out, field, value| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(out, "{}", plain(&value)),
            name => write!(out, "{name}={}", plain(&value)),
        }
    })
    .delimited(" ")
}
