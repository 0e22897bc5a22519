//! A program behind a path.
//!
//! The program has the terminal. Ctrl-C and Ctrl-\ are its own; who asks this process to stop has
//! the program stopped, and then the lab.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use fault::Failure;
use sys::child::{self, ChildHandle};
use sys::netns::NetNs;
use sys::signal::{self, Interrupt};
use sys::threads;

use crate::daemon::{self, Certified, Ended};
use crate::lab::{Lab, Options, Phase};
use crate::nest::Outer;
use crate::outside::{Note, Outside};
use crate::path::PathFile;
use crate::serving::{self, StopOnDrop};

/// What is to be run, and behind what.
#[derive(Debug)]
pub struct Plan {
    /// The path; where there is an outer host, already [put in front of it](Outer::put_behind).
    pub path: PathFile,
    /// What the lab writes.
    pub options: Options,
    /// The host of another lab that this process is in.
    pub outer: Option<Outer>,
    /// Whether the machine's own network is behind the path.
    pub outside: bool,
    /// The program and its arguments; nothing is the user's shell.
    pub command: Vec<OsString>,
    /// Is told what is done to the machine.
    pub note: Note,
}

/// What happens meanwhile.
#[derive(Debug)]
pub enum Event<'a> {
    /// The lab is up, and the program comes next.
    Up {
        /// The lab.
        lab: &'a Lab,
        /// Its path, as it is with the machine's network or an outer host behind it.
        path: &'a PathFile,
    },
    /// There is no program of that name, or it could not be run.
    NotStarted {
        /// Its name.
        program: &'a str,
        /// What the kernel said.
        error: io::Error,
    },
}

/// Runs a program behind a path to its end; returns its exit code, and how the lab ended. This thread
/// must be the process's first, and able to run labs.
///
/// ```no_run
/// use lab::shell::{Plan, run};
///
/// let plan = Plan {
///     path: lab::PathFile::read("my-path.toml".as_ref())?,
///     options: lab::Options::default(),
///     outer: None,
///     outside: false,
///     command: ["ping", "-c3", "198.18.0.2"].map(Into::into).into(),
///     note: |line| println!("{line}"),
/// };
/// let (code, ended) = run(plan, &mut |_| {})?;
/// println!("exit code {code}, certified: {}", ended.certificate.is_some());
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn run(plan: Plan, observer: &mut dyn FnMut(Event<'_>)) -> Result<(u8, Ended), Failure> {
    let (mut path, note) = (plan.path, plan.note);
    let interrupts = interrupts().map_err(Failure::here)?;
    // Given and taken back when the lab is gone, however that comes.
    let outer = plan.outer.map(|outer| outer.take(note)).transpose()?;
    let outside = match plan.outside {
        true => Some(Outside::put_behind(&mut path, note)?),
        false => None,
    };
    let lab = Lab::up_with(&path, plan.options)?;
    if let Some(outer) = &outer {
        outer.give_to(&lab)?;
    }
    if let Some(outside) = &outside {
        outside.introduce(&lab, &path)?;
    }
    observer(Event::Up {
        lab: &lab,
        path: &path,
    });
    let gateway = outside.as_ref().map(Outside::gateway);
    let ended = within(&lab, &plan.command, gateway, &interrupts, observer);
    let log = lab.down();
    drop((outer, outside));
    let (code, certificate) = ended?;
    Ok((code, Ended { certificate, log }))
}

/// Runs the program to its end.
fn within(
    lab: &Lab,
    typed: &[OsString],
    gateway: Option<Ipv4Addr>,
    interrupts: &Receiver<Interrupt>,
    observer: &mut dyn FnMut(Event<'_>),
) -> Result<(u8, Certified), Failure> {
    thread::scope(|scope| {
        let serving = StopOnDrop::default();
        let certifiable = daemon::certifiable(lab);
        if certifiable {
            serving::serve(scope, lab.far(), &serving.0)?;
        }
        let phase = certifiable.then(|| lab.begin_phase()).transpose()?;
        let (program, arguments) = program(typed);
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
        let host = lab.near().namespace()?;
        let code = attend(command, &program, host, interrupts, observer)?;
        Ok((code, phase.map(Phase::finish)))
    })
}

/// Starts the program and waits for its end; returns its exit code. Asked to stop, it stops all that
/// runs in the host.
fn attend(
    mut command: Command,
    program: &str,
    host: &NetNs,
    interrupts: &Receiver<Interrupt>,
    observer: &mut dyn FnMut(Event<'_>),
) -> Result<u8, Failure> {
    if let Some(interrupt) = interrupts.try_iter().next() {
        return Err(Failure::interrupted(interrupt.exit_code()));
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let code = exit_code_without(&error);
            observer(Event::NotStarted { program, error });
            return Ok(code);
        }
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

/// The exit code of shells where a program did not start (POSIX 2.8.2).
pub fn exit_code_without(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// Waits for requests to stop on a thread of its own, which must be the first.
fn interrupts() -> io::Result<Receiver<Interrupt>> {
    child::block_quit()?;
    signal::block_interrupts()?;
    let (sender, receiver) = mpsc::channel();
    threads::spawn("signals", move || {
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

/// How soon the end of the program is noticed at the latest, and a request to stop.
const TICK: Duration = Duration::from_millis(50);
/// From the request to stop to the end by force.
const GRACE: Duration = Duration::from_secs(2);
