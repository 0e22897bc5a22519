//! The `goodput` command: what was typed, what it means, and the exit code.

mod balance;
mod board;
mod capture_verb;
mod cli;
mod context;
mod copy_verb;
mod cost;
mod doctor;
mod explain_verb;
mod fabric_verb;
mod failure;
mod gateway_verb;
mod growth;
mod guest;
mod lab_verb;
mod latency;
mod legs;
mod live;
mod messages;
mod observer;
mod record;
mod report_cmd;
mod reproduce;
mod rotate_verb;
mod serve;
mod session;
mod sim_verb;
mod stamp;
mod sweep;
mod target;
mod verbs;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;
use units::text::{is_plain, plain};

use crate::cli::{Cli, TestArgs, Verb};
use crate::context::Context;
use crate::doctor::Plan;
use crate::failure::{Failure, Verdict};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    log_to_stderr(match &cli.verb {
        Verb::Serve(args) if args.log_clients => cli.verbose.max(1),
        _ => cli.verbose,
    });
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            context::note(format_args!("goodput: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}

/// Prints help and the version as clap does, and what is wrong with what was typed: in clap's layout, but where a word has
/// more than plain text, as a name of somebody else's file may, as [`context::note`] does.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = error.render().to_string();
        let typed_plain = |word: OsString| word.to_string_lossy().chars().all(is_plain);
        match std::env::args_os().all(typed_plain) {
            true => context::note_lines(text.trim_end()),
            false => context::note(text.trim_end()),
        }
    } else {
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::USAGE))
}

fn run(cli: &Cli) -> Verdict {
    match &cli.verb {
        Verb::Doctor(args) => {
            let plan = Plan {
                verb: "doctor",
                args: &args.transfer,
                test: &TestArgs::default(),
                fix: !args.no_fix,
                latency: false,
            };
            doctor::command(plan, &start(needs_lab(args.transfer.target.as_deref()))?)
        }
        Verb::Measure(args) if args.explain_columns => {
            context::print(&report::columns::text(context::width()))?;
            Ok(failure::DONE)
        }
        Verb::Measure(args) if !args.sweep.is_empty() => {
            sweep::command(args, &start(needs_lab(args.transfer.target.as_deref()))?)
        }
        Verb::Measure(args) => {
            let target = args.transfer.target.as_deref();
            let probed = target.and_then(|t| t.strip_prefix("stamp://"));
            let context = start(needs_lab(probed.or(target)))?;
            if let Some(reflector) = probed {
                return stamp::command(args, reflector, &context);
            }
            if let Some(sizes) = &args.messages {
                return messages::command(args, sizes, &context);
            }
            let plan = Plan {
                verb: "measure",
                args: &args.transfer,
                test: &args.test,
                fix: false,
                latency: args.latency,
            };
            doctor::command(plan, &context)
        }
        Verb::Serve(args) => serve::command(args, &start(false)?),
        Verb::Capture(args) => capture_verb::command(args, &start(false)?),
        Verb::Lab(args) => lab_verb::command(args),
        Verb::Explain(args) => {
            let path = args
                .files
                .first()
                .is_some_and(|f| f.to_string_lossy().starts_with("lab:"));
            explain_verb::command(args, &start(path)?)
        }
        Verb::Fabric(args) => fabric_verb::command(args, &start(false)?),
        Verb::Sim(args) => sim_verb::command(args, &start(false)?),
        Verb::Rotate(args) => rotate_verb::command(args, &start(args.needs_lab())?),
        Verb::Copy(args) => copy_verb::command(args, &start(args.needs_lab())?),
        Verb::Gateway(args) => gateway_verb::command(args, || start(false)),
        Verb::Agent(args) => copy_verb::job::command(args, &start(false)?),
        Verb::Report(args) => report_cmd::command(args),
        Verb::Reproduce(args) => reproduce::command(args, &start(args.id.is_some() && !args.show)?),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "goodput", &mut text);
            context::print(&String::from_utf8_lossy(&text))?;
            Ok(failure::DONE)
        }
        Verb::Man { verb } => {
            let mut text = Vec::new();
            clap_mangen::Man::new(manual_of(verb.as_deref())?)
                .render(&mut text)
                .map_err(Failure::here)?;
            context::print(&String::from_utf8_lossy(&text))?;
            Ok(failure::DONE)
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
    Context::start().map_err(Failure::here)
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
