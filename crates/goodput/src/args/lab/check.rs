//! `goodput lab check`: what is typed as a plan of [`trial::lab_check`].

use std::path::Path;

use fault::{Failure, Verdict};
use job::Context;
use measure::Stop;
use trial::lab_check::{self, Checked, Pattern, Plan, Tool};

use super::{CheckArgs, LabArgs, LabVerb, ToolArg, flags};
use crate::print;

pub(super) fn run(args: &CheckArgs) -> Verdict {
    if !args.in_virtual_time {
        crate::become_able_to_run_labs()?;
    }
    let context = Context::start(print::live::leave_screen).map_err(Failure::here)?;
    let checked = lab_check::run(plan(args, &args.runs)?, &context.stop)?;
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    if args.json {
        print::print_json(&checked.found)?;
    } else {
        print::print(&print::lab::check::text(&checked.found, print::width()))?;
        print::note(format_args!("kept in {}", checked.folder.display()));
    }
    Ok(match checked.holds() {
        true => fault::DONE,
        false => fault::CHECK_FAILED,
    })
}

/// Runs a check out of words as they would be typed behind `goodput lab`.
pub(crate) fn perform(args: &LabArgs, runs: &Path, stop: &Stop) -> Result<Checked, Failure> {
    let LabVerb::Check(args) = &args.verb else {
        return Err(Failure::usage(
            "of the lab's verbs only check can be judged",
        ));
    };
    lab_check::run(plan(args, runs)?, stop)
}

fn plan(args: &CheckArgs, runs: &Path) -> Result<Plan, Failure> {
    Ok(Plan {
        path: flags::named(&args.path)?,
        traffic: pattern(&args.traffic)?,
        with: match args.with {
            ToolArg::Datagrams => Tool::Datagrams,
            ToolArg::Iperf3 => Tool::Iperf3,
        },
        rate: args.rate,
        burst: args.burst,
        payload: args.payload,
        time: args.time,
        rule: args.rule.clone(),
        captures: !args.no_captures,
        in_virtual_time: args.in_virtual_time,
        runs: runs.to_owned(),
    })
}

fn pattern(typed: &str) -> Result<Pattern, Failure> {
    Ok(match (typed, typed.split_once(':')) {
        ("all", _) => Pattern::All,
        ("ring", _) => Pattern::Ring,
        (_, Some(("into", to))) => Pattern::Into(to.to_owned()),
        (_, Some((from, to))) => Pattern::Pair(from.to_owned(), to.to_owned()),
        (_, None) => {
            return Err(Failure::usage(format!(
                "--traffic {typed}: wants all, ring, into:HOST or FROM:TO"
            )));
        }
    })
}
