//! Ranks over TCP: hosts where `goodput serve --ranks` runs, and hosts of a lab.

use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use fault::Failure;
use lab::{Host, Lab, PathFile};
use measure::{
    Approach, CONNECT_TIMEOUT, Client, Limits, MeasureError, Member, Ranks, Server, Stop,
};
use sys::threads;
use units::Duration;

use super::drive::{Event, Measured, Observer};
use super::plan::{self, Setup};
use super::ways::Ways;
use crate::pairs;

/// A host where `goodput serve --ranks` runs.
#[derive(Clone, Debug)]
pub struct Far {
    /// As it was named.
    pub name: String,
    /// Its name or address, with the port if it is another.
    pub host: String,
    /// How to come to it.
    pub approach: Approach,
}

/// Far hosts, led from here; `congestion` is the senders' control, each host's own where there is none.
///
/// # Errors
/// A host cannot be reached or fails, or they cannot do what is wanted. What was measured until then stays.
///
/// ```no_run
/// use cluster::rotate::{Far, Measured, Setup, far};
/// let setup = Setup::default();
/// let hosts = ["n01", "n02"].map(|name| Far {
///     name: name.to_owned(),
///     host: name.to_owned(),
///     approach: measure::Approach::default(),
/// });
/// let mut found = Measured::new(&setup);
/// far(&setup, &hosts, None, &mut found, &|_| Ok(()), &measure::Stop::new())?;
/// let (findings, verdict) = found.conclude(true, None);
/// println!("{}, {} findings", verdict.sentence, findings.len());
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn far(
    setup: &Setup,
    hosts: &[Far],
    congestion: Option<&str>,
    found: &mut Measured,
    observer: &Observer<'_>,
    stop: &Stop,
) -> Result<(), Failure> {
    let hosts = in_order(setup, hosts);
    let named: Vec<String> = hosts.iter().map(|h| h.name.clone()).collect();
    let plan = plan::of(setup, &named)?;
    found.rotate.ranks = named;
    let members = members(&hosts, congestion, stop)?;
    reachable(&members)?;
    let mut ranks = Ranks::enlist(members, stop)?;
    found.hosts = facts(&ranks);
    found.drive(&mut ranks, &plan, observer, stop)
}

/// A session with each host. Those that there are already stay awake while the next is connected to, which
/// may take longer than they would be silent for.
fn members(hosts: &[Far], congestion: Option<&str>, stop: &Stop) -> Result<Vec<Member>, Failure> {
    let mut members: Vec<Member> = Vec::with_capacity(hosts.len());
    let mut awake = Instant::now();
    for far in hosts {
        let client = thread::scope(|scope| {
            let (done, connected) = mpsc::channel();
            threads::scoped(scope, "gp-connect", || {
                let done = done;
                drop(done.send(connect(&far.approach, &far.host, stop)));
            })
            .map_err(Failure::here)?;
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
                        return Err(Failure::here("a thread that connects panicked"));
                    }
                }
            }
        })?;
        members.push(member(&far.name, client, congestion.map(str::to_owned)));
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
    Err(Failure::usage(format!(
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
fn in_order<T: Clone>(setup: &Setup, named: &[T]) -> Vec<T> {
    match setup.seed {
        None => named.to_vec(),
        Some(seed) => {
            let order = pairs::shuffled(named.len(), seed);
            order.into_iter().map(|n| named[n].clone()).collect()
        }
    }
}

fn facts(ranks: &Ranks) -> Vec<run::model::HostFacts> {
    let hosts = ranks.hosts();
    hosts
        .map(|(name, facts)| run::model::HostFacts {
            role: "rank".to_owned(),
            name: name.to_owned(),
            kernel: facts.kernel.clone(),
            cpu_model: facts.cpu_model.clone(),
            cpus: facts.cpus,
            tcp_rmem_bytes: facts.tcp_rmem_bytes,
            tcp_wmem_bytes: facts.tcp_wmem_bytes,
            congestion_control: facts.congestion_control.clone(),
            ..run::model::HostFacts::default()
        })
        .take(HOSTS_MAX)
        .collect()
}

/// Hosts of a lab, all or those that are `named`, each with a server of its own; each is told what to do within itself, so
/// that only what ranks send crosses the lab's links. Without `congestion`, the control is the path file's.
///
/// # Errors
/// The lab cannot be had or fails, or its hosts cannot do what is wanted. What was measured until then stays.
pub fn in_lab(
    setup: &Setup,
    path: &PathFile,
    named: &[String],
    congestion: Option<&str>,
    found: &mut Measured,
    observer: &Observer<'_>,
    stop: &Stop,
) -> Result<(), Failure> {
    let chosen = in_order(setup, &chosen(named, path)?);
    let name = |&n: &usize| path.network.hosts[n].name.clone();
    let names: Vec<String> = chosen.iter().map(name).collect();
    let plan = plan::of(setup, &names)?;
    found.rotate.ranks = names;
    found.ways = Some(Ways::of(path, &chosen));
    // A rank has some five descriptors here, its namespace among them.
    tracing::debug!("up to {} descriptors", sys::host::raise_descriptor_limit());
    let lab = Lab::up(path)?;
    let hosts: Vec<&Host> = chosen.iter().map(|&n| &lab.hosts()[n]).collect();
    let phase = lab.begin_phase()?;
    let driven = serving(&hosts, observer, || {
        let mut members = Vec::with_capacity(hosts.len());
        for host in &hosts {
            let own = address(host);
            let client = host.run(|| Client::connect_addr_until(own, CONNECT_TIMEOUT, stop))??;
            let congestion = congestion.unwrap_or_else(|| host.congestion_control());
            members.push(member(host.name(), client, Some(congestion.to_owned())));
        }
        let mut ranks = Ranks::enlist(members, stop)?;
        found.hosts = facts(&ranks);
        found.drive(&mut ranks, &plan, observer, stop)
    });
    found.certificate = Some(phase.finish()?);
    driven
}

/// Numbers of the hosts that take part.
fn chosen(named: &[String], path: &PathFile) -> Result<Vec<usize>, Failure> {
    let all = &path.network.hosts;
    if let Some(host) = all.iter().find(|h| h.interface.is_some()) {
        return Err(Failure::usage(format!(
            "host {}: an interface of this machine is no rank; run `goodput serve --ranks` behind it",
            host.name
        )));
    }
    if named.is_empty() {
        return Ok((0..all.len()).collect());
    }
    let number = |name: &String| {
        let found = all.iter().position(|h| h.name == *name);
        found.ok_or_else(|| {
            let names = all.iter().map(|h| h.name.as_str());
            let hint = lab::path::hint::did_you_mean(name, names);
            Failure::usage(format!("--hosts {name}: the lab has no such host{hint}"))
        })
    };
    named.iter().map(number).collect()
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
fn serving<T>(
    hosts: &[&Host],
    observer: &Observer<'_>,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let serving = Stop::new();
    thread::scope(|scope| {
        let _ends = StopOnDrop(serving.clone());
        let (ready, bound) = mpsc::channel();
        for &host in hosts {
            let (ready, stop) = (ready.clone(), serving.clone());
            let started = threads::scoped(scope, "gp-serve", move || {
                let served = host.run(|| serve(address(host), &ready, observer, &stop));
                if let Err(error) = served {
                    let _ = ready.send(Err(Failure::from(error)));
                }
            });
            started.map_err(Failure::here)?;
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

fn serve(
    address: SocketAddr,
    ready: &Sender<Result<(), Failure>>,
    observer: &Observer<'_>,
    stop: &Stop,
) {
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
                // That it cannot be told is no reason to end.
                let _ = observer(Event::HostFailed(&error));
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
