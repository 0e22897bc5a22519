//! `goodput lab shell`: a program behind a path.
//!
//! The program has the terminal. Ctrl-C and Ctrl-\ are its own; who asks this process to stop has
//! the program stopped, and then the lab.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Certificate, Lab, LabError, Options, PathFile};
use sys::child::{self, ChildHandle};
use sys::netns::NetNs;
use sys::signal::{self, Interrupt};

use super::args::ShellArgs;
use super::outside::{self, Outside};
use super::serving::{self, StopOnDrop};
use super::{build, daemon, nest, protocol, remote};
use crate::context;
use crate::failure::{Failure, Verdict};

pub(super) fn command(args: &ShellArgs) -> Verdict {
    let outer = if args.outside {
        None
    } else {
        nest::Outer::here()?
    };
    let mut path = match (&args.path, &outer) {
        (Some(name), _) => build::named(name)?,
        (None, Some(outer)) => build::of_flags(&outer.flags(&args.flags))?,
        (None, None) => build::of_flags(&args.flags)?,
    };
    if let Some(outer) = &outer {
        outer.put_behind(&mut path, args.path.is_none())?;
    }
    if let Some(warning) = build::overload(&path) {
        context::note(format_args!("warning: {warning}"));
    }
    if args.outside {
        outside::check()?;
    }
    crate::become_able_to_run_labs()?;
    let interrupts = interrupts().map_err(Failure::here)?;
    let options = Options {
        log: args.log.clone(),
    };
    // Given and taken back when the lab is gone, however that comes.
    let outer = outer.map(nest::Outer::take).transpose()?;
    let outside = match args.outside {
        true => Some(Outside::put_behind(&mut path)?),
        false => None,
    };
    let lab = Lab::up_with(&path, options)?;
    if let Some(outer) = &outer {
        outer.give_to(&lab)?;
    }
    if let Some(outside) = &outside {
        outside.introduce(&lab, &path)?;
    }
    if !args.quiet {
        context::note(introduce(args, &lab, &path));
        if let Some(used) = lab.near().other_congestion_control() {
            context::note(format!(
                "lab: programs here use {used} unless they ask for another: this machine lets \
                 namespaces default to no other than net.ipv4.tcp_allowed_congestion_control names"
            ));
        }
    }
    let gateway = outside.as_ref().map(Outside::gateway);
    let ended = run(&lab, args, gateway, &interrupts);
    let log = lab.down();
    drop((outer, outside));
    let (code, certificate) = ended?;
    conclude(args, certificate, log)?;
    Ok(code)
}

/// What the certificate is, if there can be one.
type Certified = Option<Result<Certificate, LabError>>;

/// Runs the program to its end.
fn run(
    lab: &Lab,
    args: &ShellArgs,
    gateway: Option<Ipv4Addr>,
    interrupts: &Receiver<Interrupt>,
) -> Result<(u8, Certified), Failure> {
    thread::scope(|scope| {
        let serving = StopOnDrop::default();
        let certifiable = daemon::certifiable(lab);
        if certifiable {
            serving::serve(scope, lab.far(), &serving.0)?;
        }
        let phase = certifiable.then(|| lab.begin_phase()).transpose()?;
        let (program, arguments) = program(&args.command);
        let mut command = lab.near().program(&program)?;
        command.args(arguments);
        command.env("GOODPUT_LAB", format!("shell-{}", std::process::id()));
        if certifiable {
            command.env("GOODPUT_FAR", lab.far().address().to_string());
            command.env("GOODPUT_FAR6", lab.far().address6().to_string());
        }
        if let Some(gateway) = gateway {
            command.env("GOODPUT_FAR", gateway.to_string());
        }
        let code = attend(command, &program, lab.near().namespace()?, interrupts)?;
        Ok((code, phase.map(lab::Phase::finish)))
    })
}

/// Starts the program and waits for its end; returns its exit code. Asked to stop, it stops all that
/// runs in the host.
fn attend(
    mut command: Command,
    program: &str,
    host: &NetNs,
    interrupts: &Receiver<Interrupt>,
) -> Result<u8, Failure> {
    if let Some(interrupt) = interrupts.try_iter().next() {
        return Err(Failure::interrupted(interrupt.exit_code()));
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return Ok(remote::not_started(program, &e)),
    };
    let handle = ChildHandle::of(&child).map_err(Failure::here)?;
    let all = |interrupt| child::interrupt_all_in(host, interrupt).map_err(Failure::here);
    let mut asked: Option<(Instant, u8)> = None;
    while !handle.wait(TICK).map_err(Failure::here)? {
        match (interrupts.try_recv(), asked) {
            // The terminal tells the program as well.
            (Ok(Interrupt::Int), _) => {}
            (Ok(_), Some(_)) => all(None)?,
            (Ok(interrupt), None) => {
                all(Some(interrupt))?;
                // Interactive shells heed nothing else.
                all(Some(Interrupt::Hangup))?;
                asked = Some((Instant::now(), interrupt.exit_code()));
            }
            (Err(_), Some((since, _))) if since.elapsed() > GRACE => all(None)?,
            (Err(_), _) => {}
        }
    }
    let status = child.wait().map_err(Failure::here)?;
    let own = status.code().or_else(|| status.signal().map(|n| 128 + n));
    let own = own.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(asked.map_or(own, |(_, code)| code))
}

/// Waits for requests to stop on a thread of its own, which must be the first.
fn interrupts() -> io::Result<Receiver<Interrupt>> {
    child::block_quit()?;
    signal::block_interrupts()?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            while let Ok(interrupt) = signal::wait_for_interrupt() {
                if sender.send(interrupt).is_err() {
                    break;
                }
            }
        })?;
    Ok(receiver)
}

/// What was typed, or the user's shell.
fn program(typed: &[OsString]) -> (String, &[OsString]) {
    match typed {
        [] => (
            std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned()),
            typed,
        ),
        [program, arguments @ ..] => (program.to_string_lossy().into_owned(), arguments),
    }
}

fn introduce(args: &ShellArgs, lab: &Lab, path: &PathFile) -> String {
    let (near, far) = (lab.near(), lab.far());
    let behind = match &path.network.hosts[path.transfer.to].interface {
        Some(interface) if args.outside => format!("this machine's network, by {interface}"),
        Some(interface) => {
            format!("{interface} of this host, whose own programs have no network meanwhile")
        }
        None => format!(
            "{} ({}, goodput serve runs there)",
            far.name(),
            far.address()
        ),
    };
    let by = match path.network.by_kernel {
        true => "; the kernel runs its links",
        false => "",
    };
    format!(
        "lab: {} ({}) -> {behind}: {}{by}",
        near.name(),
        near.address(),
        path.title
    )
}

/// Says how accurate the lab was and what became of the log.
fn conclude(
    args: &ShellArgs,
    certificate: Certified,
    log: Result<Option<link::record::End>, LabError>,
) -> Result<(), Failure> {
    let note = |line: String| {
        if !args.quiet {
            context::note(line);
        }
    };
    let certificate = match certificate {
        None => {
            note(daemon::NOT_CERTIFIED.to_owned());
            None
        }
        Some(Err(e)) => {
            note(build::not_certified(&e));
            None
        }
        Some(Ok(certificate)) => {
            note(build::verdict(&certificate));
            Some(protocol::certificate_json(&certificate))
        }
    };
    if let Some(file) = &args.certificate {
        let json = serde_json::to_string_pretty(&certificate).map_err(Failure::here)?;
        fs::write(file, json + "\n")
            .map_err(|e| Failure::here(anyhow::anyhow!("cannot write {}: {e}", file.display())))?;
    }
    if let Some(end) = log? {
        note(build::log_verdict(&end));
    }
    Ok(())
}

/// How soon the end of the program is noticed at the latest, and a request to stop.
const TICK: Duration = Duration::from_millis(50);
/// From the request to stop to the end by force.
const GRACE: Duration = Duration::from_secs(2);
