//! What a gateway of a lab does to connections, judged by others.
//!
//! iperf3 sends, the gateway's kernel counts what each of its links carries, dumpcap and tshark say how large
//! the segments are on either side, and a connection of our own shows that bytes, ends and resets pass. A
//! link may be cut meanwhile.

mod counted;
mod cut;
mod exact;
mod flows;
mod plan;
mod renew;
mod reread;
mod segments;
mod steady;
mod systemd;
mod watching;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ::gateway::recorded;
use fault::Failure;
use job::record;
use job::target::Target;
use job::{Context, certificate_json};
use lab::{Certificate, Host, Lab, PathFile};
use measure::Stop;
use report::RunFolder;
use report::model::Run;
use serde_json::{Value, json};

use crate::lab_check::Capture;

pub use self::plan::{Event, Plan};

use self::counted::{counters, passed, share};
use self::flows::{flows, total};
use self::watching::Watching;
use sys::threads;

/// What was found, and the run folder that keeps it.
#[derive(Debug)]
pub struct Done {
    /// What the tools, the kernel and the ends saw, as `trial.json` has it.
    pub found: Value,
    /// The run folder.
    pub folder: PathBuf,
}

/// Runs a trial until its lab can be trusted, twice at most. The process may make network
/// namespaces by then.
///
/// ```no_run
/// # fn plan() -> trial::gateway::Plan { unimplemented!() }
/// # fn context() -> job::Context { unimplemented!() }
/// let done = trial::gateway::run(&plan(), &context(), &mut |event| println!("{event:?}"))?;
/// println!("{} b/s", done.found["goodput_bits_per_second"]);
/// # Ok::<(), fault::Failure>(())
/// ```
///
/// # Errors
/// What cannot be meant, what this machine lacks, or what failed in the lab.
pub fn run(plan: &Plan, context: &Context, tell: &mut dyn FnMut(Event)) -> Result<Done, Failure> {
    let Target::Lab(mut path) = Target::parse(Some(&plan.path))? else {
        return Err(Failure::usage(format!(
            "'{}' is not a lab's path; say lab:{0}",
            plan.path
        )));
    };
    if plan.connections == 0 || plan.connections > CONNECTIONS_MAX {
        return Err(Failure::usage(format!(
            "--connections: expected 1 to {CONNECTIONS_MAX}"
        )));
    }
    if plan.capture {
        without_offloads(&mut path);
    }
    let title = path.file.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("trial-{title}");
    let mut run = recorded::run(&name, context.command_line.clone(), record::this_host());
    run.path = Some(record::of_file(&path));
    let mut folder = RunFolder::create(&plan.runs, "gateway", &name, run.clone())?;
    let result = attempts(plan, &path, (&mut folder, &mut run), &context.stop, tell);
    record::end_as(&mut run, &result, context);
    let kept = folder.finish(&run, &[]);
    let found = result?;
    kept?;
    Ok(Done {
        found,
        folder: folder.path().to_owned(),
    })
}

/// Until the lab is trusted, twice at most.
fn attempts(
    plan: &Plan,
    path: &PathFile,
    (folder, run): (&mut RunFolder, &mut Run),
    stop: &Stop,
    tell: &mut dyn FnMut(Event),
) -> Result<Value, Failure> {
    let mut attempts = 0;
    let (found, watched) = loop {
        attempts += 1;
        let lab = Lab::up(path)?;
        let watching = Watching::start(&lab);
        let (mut found, certificate) = observed(plan, path, &lab, folder.path(), &watching, stop)?;
        found["attempts"] = attempts.into();
        let trusted = certificate.trusted();
        if trusted || attempts == ATTEMPTS || stop.is_stopped() {
            let mut watched = watching.end(&lab);
            for gateway in &mut watched.0 {
                gateway.certificate = Some(record::certificate(&certificate));
            }
            break (found, watched);
        }
        tell(Event::FellBehind(found["certificate"]["problems"].clone()));
    };
    let (gateways, readings) = watched;
    for reading in &readings {
        folder.append_sample(reading)?;
    }
    run.verdict = Some(recorded::verdict(&gateways));
    run.gateways = gateways;
    let text = serde_json::to_string_pretty(&found).map_err(Failure::here)? + "\n";
    let file = folder.path().join("trial.json");
    sys::folder::replace(&file, text)
        .map_err(|_| Failure::here(format!("cannot write {}", file.display())))?;
    Ok(found)
}

fn without_offloads(path: &mut PathFile) {
    for host in &mut path.network.hosts {
        host.offloads = false;
    }
    for router in &mut path.network.routers {
        if let Some(gateway) = &mut router.gateway {
            gateway.offloads = false;
        }
    }
}

/// What iperf3's connections came to, and what was done meanwhile. It fails no sooner than the
/// lab's phase has ended.
struct During {
    flows: thread::Result<Result<Vec<Value>, Failure>>,
    cut: Result<Option<Value>, Failure>,
    renewed: Result<Option<Value>, Failure>,
    reread: Result<Option<Value>, Failure>,
}

fn during(
    plan: &Plan,
    lab: &Lab,
    to: &[&Host],
    (folder, watching): (&Path, &Watching),
    stop: &Stop,
) -> During {
    let going = AtomicBool::new(true);
    let third = || thread::sleep(plan.time.to_std() / 3);
    thread::scope(|scope| {
        let looks = threads::scoped(scope, "gp-looks", || watching.look_on(lab, &going));
        let sending = threads::scoped(scope, "gp-flows", || {
            flows(plan, plan.connections, lab, to, stop)
        });
        let cut = plan.cut.as_deref();
        let cut = cut.map(|link| cut::cut(plan, lab, to, link));
        let renewed = plan.renew.then(|| {
            third();
            renew::renew(lab, to, plan.connections)
        });
        let reread = plan.reload.then(|| {
            third();
            reread::reread(lab, to, plan.connections, folder)
        });
        let flows = match (looks, sending) {
            (Err(error), _) | (_, Err(error)) => Ok(Err(Failure::here(error))),
            (_, Ok(sending)) => sending.join(),
        };
        going.store(false, Ordering::Relaxed);
        During {
            flows,
            cut: cut.transpose(),
            renewed: renewed.transpose(),
            reread: reread.transpose(),
        }
    })
}

/// Everything that one lab shows.
fn observed(
    plan: &Plan,
    path: &PathFile,
    lab: &Lab,
    folder: &Path,
    watching: &Watching,
    stop: &Stop,
) -> Result<(Value, Certificate), Failure> {
    let mut to = Vec::new();
    for name in &plan.to {
        to.push(lab.host(name)?);
    }
    if to.is_empty() {
        to.push(lab.far());
    }
    let mut captures = Vec::new();
    if plan.capture {
        for host in [lab.near(), to[0]] {
            let file = folder.join(format!("{}.pcapng", host.name()));
            captures.push((host, Capture::start(host, file).map_err(Failure::here)?));
        }
    }
    let unit = plan.systemd.then(|| systemd::start(lab, folder));
    let unit = unit.transpose()?;
    let phase = lab.begin_phase()?;
    let alone = match plan.alone {
        true => Some(total(&flows(plan, 1, lab, &to, stop)?)),
        false => None,
    };
    let before = counters(lab)?;
    let sent = during(plan, lab, &to, (folder, watching), stop);
    let unit = unit.map(|unit| systemd::tried(unit, lab, &to));
    let certificate = phase.finish()?;
    let unit = unit.transpose()?;
    let flows = sent
        .flows
        .map_err(|_| Failure::here("a thread panicked"))??;
    let (cut, renewed, reread) = (sent.cut?, sent.renewed?, sent.reread?);
    let links = passed(&before, &counters(lab)?);
    let exact = match plan.exact {
        true => Some(exact::of(lab.near(), to[0]).map_err(Failure::here)?),
        false => None,
    };
    let segments = match captures.is_empty() {
        true => Value::Null,
        false => segments::segments(captures, lab.near(), to[0]).map_err(Failure::here)?,
    };
    let gateways = lab.gateways().iter().map(|gateway| {
        json!({
            "name": gateway.host().name(),
            "counts": gateway.counts(),
            "placed": gateway.placed(),
        })
    });
    let sum = total(&flows);
    let found = json!({
        "format": 1,
        "path": { "title": path.title, "file": path.file.display().to_string(), "text": path.text },
        "goodput_bits_per_second": sum,
        "alone_bits_per_second": alone,
        "times_alone": alone.filter(|one| *one > 0.0).map(|one| sum / one),
        "flows": flows,
        "gateways": gateways.collect::<Vec<_>>(),
        "links": links,
        "link_share_least": share(&links, f64::min),
        "link_share_most": share(&links, f64::max),
        "cut": cut,
        "renew": renewed,
        "reload": reread,
        "systemd": unit,
        "segments": segments,
        "exact": exact,
        "certificate": certificate_json(&certificate),
    });
    Ok((found, certificate))
}

const CONNECTIONS_MAX: usize = 64;
/// A lab that falls behind twice in a row runs on a machine that is too busy.
const ATTEMPTS: u32 = 2;
