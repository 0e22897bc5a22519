//! Ranks over TCP: hosts where `goodput serve --ranks` runs, and hosts of a lab.

use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use lab::{Host, Lab, PathFile};
use measure::{Approach, Client, Limits, MeasureError, Member, Ranks, Server, Stop};
use units::Duration;

use super::ways::Ways;
use super::{Kept, RotateArgs, plan};
use crate::cli::ApproachArgs;
use crate::context::{self, Context};
use crate::doctor;
use crate::failure::Failure;
use crate::record;
use crate::session::CONNECT_TIMEOUT;
use crate::target::Target;

/// Far hosts, led from here.
pub(super) fn far(args: &RotateArgs, kept: &mut Kept, context: &Context) -> Result<(), Failure> {
    let named: Vec<String> = in_order(args, &args.hosts);
    let plan = plan::of(args, &named)?;
    kept.rotate.ranks.clone_from(&named);
    let stop = &context.stop;
    let members = members(args, &named, stop)?;
    reachable(&members)?;
    let mut ranks = Ranks::enlist(members, stop)?;
    kept.run.hosts = hosts(&ranks);
    kept.drive(&mut ranks, &plan, stop)
}

/// A session with each host. Those that there are already stay awake while the next is connected to, which
/// may take longer than they would be silent for.
fn members(args: &RotateArgs, named: &[String], stop: &Stop) -> Result<Vec<Member>, Failure> {
    let mut members: Vec<Member> = Vec::with_capacity(named.len());
    let mut awake = Instant::now();
    for name in named {
        let target = Target::parse(Some(name))?;
        let Target::Host(host) = &target else {
            return Err(Failure::usage(anyhow::anyhow!(
                "--hosts {name}: expected hosts where `goodput serve --ranks` runs"
            )));
        };
        let approach = doctor::approach(&args.approach, &target)?;
        let client = thread::scope(|scope| {
            let (done, connected) = mpsc::channel();
            scope.spawn(|| {
                let done = done;
                drop(done.send(connect(&approach, host, stop)));
            });
            loop {
                let heard = connected.recv_timeout(PING_EVERY);
                if awake.elapsed() >= PING_EVERY {
                    awake = Instant::now();
                    for member in &mut members {
                        member.keep_awake(stop)?;
                    }
                }
                match heard {
                    Ok(client) => return client,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Failure::here(anyhow::anyhow!(
                            "a thread that connects panicked"
                        )));
                    }
                }
            }
        })?;
        members.push(member(name, client, args.congestion.clone()));
    }
    Ok(members)
}

fn connect(approach: &Approach, host: &str, stop: &Stop) -> Result<Client, Failure> {
    let connected = Client::connect_by(approach, host, CONNECT_TIMEOUT, stop);
    connected.map_err(|error| {
        Failure::from(match error {
            MeasureError::Interrupted => MeasureError::Interrupted,
            error => MeasureError::Rank {
                name: host.to_owned(),
                error: Box::new(error),
            },
        })
    })
}

/// Ranks connect to each other where this host reached them: an address that is this host's alone, beside
/// others, leads each rank to itself.
fn reachable(members: &[Member]) -> Result<(), Failure> {
    let is_own = |m: &&Member| m.client.addr().ip().is_loopback();
    let Some(own) = members.iter().find(is_own) else {
        return Ok(());
    };
    if members.iter().all(|m| is_own(&m)) {
        return Ok(());
    }
    Err(Failure::usage(anyhow::anyhow!(
        "--hosts {}: that is {} here and another host everywhere else; name it as the others reach it",
        own.name,
        own.client.addr().ip()
    )))
}

fn member(name: &str, client: Client, congestion: Option<String>) -> Member {
    Member {
        name: name.to_owned(),
        client,
        addr: None,
        congestion,
    }
}

/// The ranks as they were named, or in the order that the seed chooses.
fn in_order<T: Clone>(args: &RotateArgs, named: &[T]) -> Vec<T> {
    match args.seed {
        None => named.to_vec(),
        Some(seed) => {
            let order = pairs::shuffled(named.len(), seed);
            order.into_iter().map(|n| named[n].clone()).collect()
        }
    }
}

fn hosts(ranks: &Ranks) -> Vec<report::model::HostFacts> {
    let hosts = ranks.hosts();
    hosts
        .map(|(name, facts)| report::model::HostFacts {
            role: "rank".to_owned(),
            name: name.to_owned(),
            kernel: facts.kernel.clone(),
            cpu_model: facts.cpu_model.clone(),
            cpus: facts.cpus,
            tcp_rmem_bytes: facts.tcp_rmem_bytes,
            tcp_wmem_bytes: facts.tcp_wmem_bytes,
            congestion_control: facts.congestion_control.clone(),
            ..report::model::HostFacts::default()
        })
        .take(HOSTS_MAX)
        .collect()
}

/// Hosts of a lab, each with a server of its own; each is told what to do within itself, so that only what
/// ranks send crosses the lab's links.
pub(super) fn in_lab(
    args: &RotateArgs,
    path: PathFile,
    kept: &mut Kept,
    context: &Context,
) -> Result<(), Failure> {
    no_approach(&args.approach)?;
    let chosen = in_order(args, &chosen(args, &path)?);
    let name = |&n: &usize| path.network.hosts[n].name.clone();
    let names: Vec<String> = chosen.iter().map(name).collect();
    let plan = plan::of(args, &names)?;
    kept.rotate.ranks = names;
    kept.ways = Some(Ways::of(&path, &chosen));
    // A rank has some five descriptors here, its namespace among them.
    tracing::debug!("up to {} descriptors", sys::host::raise_descriptor_limit());
    let lab = Lab::up(&path)?;
    let hosts: Vec<&Host> = chosen.iter().map(|&n| &lab.hosts()[n]).collect();
    let phase = lab.begin_phase()?;
    let stop = &context.stop;
    let driven = serving(&hosts, || {
        let mut members = Vec::with_capacity(hosts.len());
        for host in &hosts {
            let own = address(host);
            let client = host.run(|| Client::connect_addr_until(own, CONNECT_TIMEOUT, stop))??;
            let congestion = args.congestion.clone();
            let congestion = congestion.unwrap_or_else(|| host.congestion_control().to_owned());
            members.push(member(host.name(), client, Some(congestion)));
        }
        let mut ranks = Ranks::enlist(members, stop)?;
        kept.run.hosts = self::hosts(&ranks);
        kept.drive(&mut ranks, &plan, stop)
    });
    let certificate = phase.finish()?;
    kept.rotate.certificate = Some(record::certificate(&certificate));
    driven
}

fn no_approach(approach: &ApproachArgs) -> Result<(), Failure> {
    if is_set(approach) {
        return Err(Failure::usage(anyhow::anyhow!(
            "--bind, --device, --dscp and --token-file are for far hosts, not for labs"
        )));
    }
    Ok(())
}

/// Whether any of them was typed.
pub(super) fn is_set(approach: &ApproachArgs) -> bool {
    let ApproachArgs {
        bind,
        device,
        dscp,
        token_file,
    } = approach;
    bind.is_some() || device.is_some() || dscp.is_some() || token_file.is_some()
}

/// Numbers of the hosts that take part.
fn chosen(args: &RotateArgs, path: &PathFile) -> Result<Vec<usize>, Failure> {
    let all = &path.network.hosts;
    let usage = |text: String| Failure::usage(anyhow::anyhow!("{text}"));
    if let Some(host) = all.iter().find(|h| h.interface.is_some()) {
        return Err(usage(format!(
            "host {}: an interface of this machine is no rank; run `goodput serve --ranks` behind it",
            host.name
        )));
    }
    if args.hosts.is_empty() {
        return Ok((0..all.len()).collect());
    }
    let number = |name: &String| {
        let found = all.iter().position(|h| h.name == *name);
        found.ok_or_else(|| {
            let names = all.iter().map(|h| h.name.as_str());
            let hint = lab::path::hint::did_you_mean(name, names);
            usage(format!("--hosts {name}: the lab has no such host{hint}"))
        })
    };
    args.hosts.iter().map(number).collect()
}

fn address(host: &Host) -> SocketAddr {
    SocketAddr::from((host.address(), measure::DEFAULT_PORT))
}

/// Stops the servers when it goes out of scope, however that happens.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `work` while each host serves.
fn serving<T>(hosts: &[&Host], work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let serving = Stop::new();
    thread::scope(|scope| {
        let _ends = StopOnDrop(serving.clone());
        let (ready, bound) = mpsc::channel();
        for &host in hosts {
            let (ready, stop) = (ready.clone(), serving.clone());
            scope.spawn(move || {
                let served = host.run(|| serve(address(host), &ready, &stop));
                if let Err(error) = served {
                    let _ = ready.send(Err(Failure::from(error)));
                }
            });
        }
        drop(ready);
        for _ in hosts {
            match bound.recv() {
                Ok(bound) => bound?,
                Err(_) => return Err(lab::LabError::ForwarderGone.into()),
            }
        }
        work()
    })
}

fn serve(address: SocketAddr, ready: &Sender<Result<(), Failure>>, stop: &Stop) {
    let limits = Limits {
        ranks: true,
        // A queue that is full for long is the path's, and no reason to give up.
        silence: SILENCE,
        ..Limits::default()
    };
    match Server::bind(address, limits) {
        Ok(server) => {
            let _ = ready.send(Ok(()));
            if let Err(error) = server.serve(stop) {
                context::note(format_args!("a host of the lab failed: {error}"));
            }
        }
        Err(error) => {
            let _ = ready.send(Err(error.into()));
        }
    }
}

/// A few retransmission timeouts of a flow that finds no room.
const SILENCE: Duration = Duration::from_s(30);
/// Three times in the least silence of `goodput serve`.
const PING_EVERY: std::time::Duration = std::time::Duration::from_millis(300);
/// A page need not list a thousand hosts that are alike.
const HOSTS_MAX: usize = 16;
