//! `goodput lab shell`: a program behind a path.

use std::fs;

use fault::{Failure, Verdict};
use lab::daemon::Ended;
use lab::nest::Outer;
use lab::shell::{self, Event};
use lab::{Options, Overload, outside};

use super::{PathFlags, ShellArgs, flags, not_started, note};
use crate::print;

pub(super) fn run(args: &ShellArgs) -> Verdict {
    let outer = if args.outside { None } else { Outer::here()? };
    let mut path = match (&args.path, &outer) {
        (Some(name), _) => flags::named(name)?,
        (None, Some(outer)) => flags::of_flags(&within(outer, &args.flags))?,
        (None, None) => flags::of_flags(&args.flags)?,
    };
    if let Some(outer) = &outer {
        outer.put_behind(&mut path, args.path.is_none())?;
    }
    if let Some(overload) = Overload::of(&path) {
        print::note(print::lab::overload(&overload));
    }
    if args.outside {
        outside::check()?;
    }
    crate::become_able_to_run_labs()?;
    let plan = shell::Plan {
        path,
        options: Options {
            log: args.log.clone(),
        },
        outer,
        outside: args.outside,
        command: args.command.clone(),
        note,
    };
    let (code, ended) = shell::run(plan, &mut |event| tell(args, event))?;
    conclude(args, ended)?;
    Ok(code)
}

/// The flags with the outer interface's MTU, which both ends must have.
fn within(outer: &Outer, flags: &PathFlags) -> PathFlags {
    PathFlags {
        mtu: Some(flags.mtu.unwrap_or_else(|| outer.mtu_bytes())),
        ..flags.clone()
    }
}

fn tell(args: &ShellArgs, event: Event<'_>) {
    match event {
        Event::Up { lab, path } => {
            print::note(print::lab::behind(lab, path, args.outside));
            if let Some(used) = lab.near().other_congestion_control() {
                print::note(format!(
                    "lab: programs here use {used} unless they ask for another: this machine lets \
                     namespaces default to no other than net.ipv4.tcp_allowed_congestion_control \
                     names"
                ));
            }
        }
        Event::NotStarted { program, error } => not_started(program, &error),
    }
}

/// Says how accurate the lab was and what became of the log.
fn conclude(args: &ShellArgs, ended: Ended) -> Result<(), Failure> {
    print::note(print::lab::certified(&ended.certificate));
    if let Some(file) = &args.certificate {
        let certificate = ended.certificate.and_then(Result::ok);
        let certificate = certificate.map(|c| job::certificate_json(&c));
        let json = serde_json::to_string_pretty(&certificate).map_err(Failure::here)?;
        fs::write(file, json + "\n")
            .map_err(|e| Failure::here(format!("cannot write {}: {e}", file.display())))?;
    }
    if let Some(end) = ended.log? {
        print::note(print::lab::log_verdict(&end));
    }
    Ok(())
}
