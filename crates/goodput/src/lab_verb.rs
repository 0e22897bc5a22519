//! `goodput lab`: labs for any program, for as long as it runs or in the background.

mod args;
mod build;
mod change;
mod check;
mod daemon;
mod log;
mod nest;
mod outside;
mod place;
mod protocol;
mod remote;
mod serving;
mod shell;

use crate::failure::Verdict;

use self::args::LabVerb;
pub(crate) use self::args::{LAB_EXAMPLES, LabArgs};
pub(crate) use self::check::{Capture, perform as check};
pub(crate) use self::protocol::certificate_json;

/// Runs one of the lab's verbs.
pub(crate) fn command(args: &LabArgs) -> Verdict {
    // What killed ones left goes at the next occasion. The others look for labs anyhow.
    if let LabVerb::Shell(_) | LabVerb::Log(_) = &args.verb {
        place::sweep();
    }
    if !matches!(args.verb, LabVerb::Daemon(_)) {
        outside::sweep();
    }
    match &args.verb {
        LabVerb::Shell(args) => shell::command(args),
        LabVerb::Up(args) => daemon::up(args),
        LabVerb::Ps(args) => remote::ps(args),
        LabVerb::Exec(args) => remote::exec(args),
        LabVerb::Set(args) => remote::set(args),
        LabVerb::Rules(args) => remote::rules(args),
        LabVerb::Down(args) => remote::down(args),
        LabVerb::Log(args) => log::command(args),
        LabVerb::Check(args) => check::command(args),
        LabVerb::Daemon(args) => daemon::command(args),
    }
}
