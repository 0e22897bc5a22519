//! Far sides that a shell starts: ssh, or what the user has in its place.

mod printed;
mod reported;
mod started;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::destination::Trust;
use crate::engine::early::Early;
use crate::engine::receive::receive_prepared;
use crate::engine::send::{SendOptions, send_early};
use crate::engine::{CopyError, Note, Watch};
use crate::meeting::{self, Meeting};
use crate::message::Account;
use crate::quic::{Carriage, Counts};
use crate::source::Source;
use crate::{Cipher, Way};
use units::text::plain;

use self::reported::Reported;
pub(super) use self::started::rsh_words;
use self::started::{Far, START_BESIDE, dial_inside, hurry_when_gone};
use super::job::{self, Job, Meets, Ready, Reply};
use super::joined;
use super::limits::Limits;
use super::operand::Operand;
use super::reach::{Reach, UNREACHED, WORDLESS};
use super::ways::{self, Typed, WayTo};
use super::why::HostFacts;
use super::{Caller, Done, Observer, Plan, Request, failure, prepare_here, progress};
use fault::Failure;
use sys::endpoint::{self, Endpoint};
use sys::threads::{self, Crew};

/// Addresses at which a host whose goodput a shell started is reached: those of its name, and the one that it reports, where
/// it may be connected to.
fn addresses(plan: &Plan, host: &str, ready: &Ready) -> Result<Vec<SocketAddr>, Failure> {
    let far = |why: String| Failure::far(format!("{host}: {why}"));
    let Some(at) = ready.at else {
        return Err(far("it does not report where it listens".to_owned()));
    };
    let mut all = named(host, at.port());
    let reported = reported(plan, &all)?;
    if let Some(why) = reported.wrong_port(at.port()) {
        return Err(far(format!(
            "{why}; --port names one, --through-ssh needs none"
        )));
    }
    match reported.wrong_address(at.ip()) {
        None if !all.contains(&at) => all.push(at),
        Some(why) if all.is_empty() => {
            let ip = at.ip();
            return Err(far(format!(
                "{why}; `--addresses {ip}` allows it, --through-ssh needs no address"
            )));
        }
        _ => {}
    }
    Ok(all)
}

/// Addresses of what the user typed, where it is a name and no alias of ssh's; the host's own address may be one that is
/// good in its own network only.
fn named(host: &str, port: u16) -> Vec<SocketAddr> {
    let name = host.rsplit('@').next().unwrap_or(host);
    let endpoint = Endpoint::parse(name).map(|endpoint| endpoint.without_port());
    let found = endpoint.ok().and_then(|it| it.resolve(port).ok());
    let mut all: Vec<SocketAddr> = found.unwrap_or_default();
    let (this_host, own) = (sys::host::hostname(), own_addresses());
    all.retain(|at| reported::believed(name, &this_host, &own, at.ip()));
    all
}

fn own_addresses() -> Vec<IpAddr> {
    let own = sys::host::addresses();
    own.into_iter().map(|(_, ip)| ip).collect()
}

/// What a host may have this one connect to, or the source where both ends are other hosts: there this host's addresses are
/// nothing special, but loopback is never another host.
fn reported(plan: &Plan, named: &[SocketAddr]) -> Result<Reported, Failure> {
    let typed = Typed::of(&plan.request)?;
    let named = named.iter().chain(&typed.far);
    let is_between_others = plan.from.iter().all(Operand::is_far) && plan.to.is_far();
    Ok(Reported {
        named: named.map(SocketAddr::ip).collect(),
        own: match is_between_others {
            true => Vec::new(),
            false => own_addresses(),
        },
        port: plan.request.port,
    })
}

/// Of the addresses that a host offers, those that may be connected to; a note names each of the others.
fn offered(
    plan: &Plan,
    host: &str,
    ready: &Ready,
    caller: &Caller,
) -> Result<Vec<(SocketAddr, String)>, Failure> {
    let reported = reported(plan, &named(host, plan.request.port))?;
    let mut all = ready.all.clone();
    all.retain(|(at, _)| {
        // All are of one port.
        let is_other = ready.at.is_none_or(|first| first.port() != at.port());
        let port = is_other.then(|| format!("it reports port {} as well", at.port()));
        let why = port.or_else(|| reported.wrong_address(at.ip()));
        if let Some(why) = &why {
            caller.note(format_args!("{host}: {why}: skipped"));
        }
        why.is_none()
    });
    Ok(all)
}

/// Starts the hosts that see the files of one that leads, and says by which ways all of them are reached. One that
/// cannot be started is told, and the others do its work.
fn start_helpers(
    plan: &Plan,
    operand: &Operand,
    leader: &mut Far,
    job: &Job,
    caller: &Caller,
) -> Result<Vec<WayTo>, Failure> {
    let at = addresses(plan, &leader.host, &leader.ready)?;
    let mut ways = vec![WayTo {
        name: leader.host.clone(),
        from: None,
        to: at.clone(),
        is_for_blocks_only: false,
        has_no_datagrams: !leader.ready.quic,
    }];
    let job = job.clone().helping(at);
    let started = thread::scope(|scope| {
        let (request, job) = (&plan.request, &job);
        let mut started = Vec::new();
        for host in operand.beside() {
            started.push((
                host,
                threads::scoped(scope, "gp-start", move || {
                    Far::start(request, host, job, Some(START_BESIDE), caller)
                }),
            ));
        }
        let panicked = |_| Err(Failure::here("a thread panicked"));
        let joined = started.into_iter().map(|(host, started)| {
            let started = started.map_err(Failure::here);
            let joined = |started: ScopedJoinHandle<'_, _>| started.join().unwrap_or_else(panicked);
            (host, started.and_then(joined))
        });
        joined.collect::<Vec<_>>()
    });
    for (host, started) in started {
        if let Some(code) = caller.interrupted() {
            return Err(Failure::interrupted(code));
        }
        let reached = started.and_then(|far| Ok((addresses(plan, host, &far.ready)?, far)));
        match reached {
            Ok((to, far)) => {
                ways.push(WayTo {
                    name: host.clone(),
                    from: None,
                    to,
                    is_for_blocks_only: true,
                    has_no_datagrams: !far.ready.quic,
                });
                leader.helpers.push(far.into_helper(caller.clone()));
            }
            Err(failure) => caller.note(format_args!(
                "{host} does not help: {failure}; the others carry its share"
            )),
        }
    }
    Ok(ways)
}

/// Where a far side shall listen.
fn listens(request: &Request) -> Result<Meets, Failure> {
    let typed = Typed::of(request)?;
    let port = request.port;
    Ok(match typed.is_far_all || !typed.far.is_empty() {
        true => Meets::ListensAt {
            addresses: typed.far.iter().map(SocketAddr::ip).collect(),
            port,
        },
        false => Meets::Listens { port },
    })
}

/// By which addresses a far side that listens is reached.
fn ways_to(
    plan: &Plan,
    operand: &Operand,
    ready: &Ready,
    caller: &Caller,
) -> Result<Vec<WayTo>, Failure> {
    let typed = Typed::of(&plan.request)?;
    let host = host_of(operand);
    let usual = match (operand, ready.at) {
        // Connected to already, at an address of its name.
        (Operand::Served { .. }, Some(at)) => {
            let mut all = named(host, at.port());
            if !all.contains(&at) {
                all.push(at);
            }
            all
        }
        _ => addresses(plan, host, ready)?,
    };
    if !typed.is_any() {
        return Ok(WayTo::only(usual));
    }
    let to: Vec<Vec<SocketAddr>> = match operand {
        // A daemon listens where it listens.
        Operand::Served { port, .. } if !typed.far.is_empty() => {
            let at = |address: &SocketAddr| {
                let mut at = *address;
                at.set_port(*port);
                vec![at]
            };
            typed.far.iter().map(at).collect()
        }
        _ if typed.is_far_all => {
            let found = ways::that_answer(host, offered(plan, host, ready, caller)?, caller);
            found.into_iter().map(|at| vec![at]).collect()
        }
        // Nowhere else than was typed, whatever the far side says.
        _ => {
            let at = |address: &SocketAddr| {
                let all = ready.all.iter().map(|(at, _)| *at).chain(ready.at);
                let port = ready.at?.port();
                let mut all = all.filter(|at| at.port() == port);
                let found = all.find(|at| at.ip() == address.ip())?;
                // Its interface has another number there.
                Some(match address {
                    SocketAddr::V6(typed) => endpoint::scoped(found, typed.scope_id()),
                    SocketAddr::V4(_) => found,
                })
            };
            typed.far.iter().filter_map(at).map(|at| vec![at]).collect()
        }
    };
    // None was typed, or none answers: what reached it before.
    let to = match to.len() {
        0 => vec![usual],
        _ => to,
    };
    Ok(ways::pairs(&typed.near, &to))
}

/// The cipher that is faster at both ends together.
fn cipher(plan: &Plan, ready: &Ready) -> Cipher {
    if plan.request.cipher.is_some() || ready.speeds.is_empty() {
        return plan.cipher;
    }
    let near = job::speeds();
    let cost = |cipher: Cipher| {
        let of = |speeds: &[(Cipher, f64)]| {
            let found = speeds.iter().find(|(other, _)| *other == cipher);
            found.map_or(f64::INFINITY, |(_, speed)| 1.0 / speed)
        };
        of(&near).max(of(&ready.speeds))
    };
    let both = [Cipher::Aes128Gcm, Cipher::Chacha20Poly1305];
    let mut best = plan.cipher;
    for cipher in both {
        if cost(cipher) < cost(best) {
            best = cipher;
        }
    }
    best
}

/// How the far side is met, and what this side does for it.
fn meet(
    plan: &Plan,
    operand: &Operand,
    caller: &Caller,
    job: impl FnOnce(Meets) -> Result<Job, Failure>,
) -> Result<(Far, Vec<TcpListener>, Meeting), Failure> {
    let request = &plan.request;
    let typed = Typed::of(request)?;
    let far = |meets| {
        let job = job(meets)?;
        let mut far = Far::begin(plan, operand, &job, caller)?;
        let ways = match job.has_helpers {
            true => Some(start_helpers(plan, operand, &mut far, &job, caller)?),
            false => None,
        };
        Ok::<_, Failure>((far, ways))
    };
    if request.reverse && typed.is_any() {
        let note = &mut |text: String| caller.note(text);
        if typed.near.is_empty() {
            return Err(Failure::usage(
                "with --reverse, say with --from-addresses where the far side connects to",
            ));
        }
        let listeners = ways::listen_at(&typed.near, request.port, note)
            .map_err(|error| Failure::here(format!("cannot listen: {error}")))?;
        let at = |listener: &TcpListener| listener.local_addr().map(|at| vec![at]);
        let at = listeners.iter().map(at).collect::<Result<Vec<_>, _>>();
        let from: Vec<_> = typed.far.iter().map(SocketAddr::ip).collect();
        let ways = ways::pairs(&from, &at.map_err(Failure::here)?);
        let count = ways.len();
        let (mut far, _) = far(Meets::ConnectsOver { ways })?;
        let port = listeners
            .first()
            .and_then(|listener| listener.local_addr().ok());
        far.reach = Arc::new(Reach::back(
            host_of(operand),
            port.map_or(request.port, |at| at.port()),
        ));
        let carriage = match far.ready.quic {
            true => job::carriage(request.transport(), &listeners),
            false => Carriage::nowhere(request.transport()),
        };
        let meeting = Meeting::listening(plan.session, plan.key.clone(), plan.allowed())
            .with_far_ways(count)
            .with_carriage(carriage);
        return Ok((far, listeners, meeting));
    }
    if request.reverse {
        let listener = TcpListener::bind(("::", request.port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", request.port)))
            .map_err(|error| Failure::here(format!("cannot listen: {error}")))?;
        let port = listener.local_addr().map_err(Failure::here)?.port();
        let (mut far, _) = far(Meets::ConnectsBack { port })?;
        far.reach = Arc::new(Reach::back(host_of(operand), port));
        let carriage = match far.ready.quic {
            true => job::carriage(request.transport(), std::slice::from_ref(&listener)),
            false => Carriage::nowhere(request.transport()),
        };
        let meeting = Meeting::listening(plan.session, plan.key.clone(), plan.allowed())
            .with_carriage(carriage);
        return Ok((far, vec![listener], meeting));
    }
    let meets = match (request.through_ssh, operand) {
        (true, _) => Meets::ListensInside,
        (false, Operand::Served { .. }) => Meets::Listens { port: request.port },
        (false, _) => listens(request)?,
    };
    let (mut far, hosts) = far(meets)?;
    let cipher = cipher(plan, &far.ready);
    let is_daemon = matches!(operand, Operand::Served { .. });
    if let (false, Some(at)) = (request.through_ssh, far.ready.at) {
        far.reach = Arc::new(Reach::to(host_of(operand), at.port(), is_daemon));
    }
    let ways = match (request.through_ssh, far.ready.at) {
        (true, Some(at)) => {
            let host = host_of(operand);
            let inside = far.inside.insert(Arc::default());
            let dial = dial_inside(request, host, &far.program, at.port(), inside, caller);
            vec![Way::new("ssh", dial)]
        }
        _ => ways::ways(match hosts {
            Some(hosts) => hosts,
            None => ways_to(plan, operand, &far.ready, caller)?,
        }),
    };
    let carriage = match far.ready.quic {
        true => job::connecting(request.transport(), ways.len()),
        false => Carriage::nowhere(request.transport()),
    };
    let meeting = Meeting::connecting_over(ways, plan.session, plan.key.clone(), cipher)
        .with_carriage(carriage);
    Ok((far, Vec::new(), meeting))
}

fn host_of(operand: &Operand) -> &str {
    operand.place().unwrap_or_default()
}

/// The job of an end, which leads where other hosts were named beside.
fn led(operand: &Operand, job: Job) -> Job {
    // Where nothing is written, nobody need help.
    match operand.beside().is_empty() || job.dry {
        true => job,
        false => job.leading(),
    }
}

/// From here to there.
pub(super) fn push(
    plan: &Plan,
    caller: &Caller,
    observer: &mut dyn Observer,
) -> Result<Done, Failure> {
    let source = plan.source()?;
    let (options, filter) = (plan.request.send_options()?, plan.request.filter()?);
    let early = Early::default();
    let reads = !plan.request.dry_run && !options.null;
    thread::scope(|scope| {
        // A shell takes more than a dozen round trips to start the far side.
        let walks = || early.walk(&source, &filter, &options.keep, reads);
        threads::scoped(scope, "gp-walk", walks).map_err(Failure::here)?;
        let _stops = Stops(&early);
        push_of(plan, (&source, &early), &options, caller, observer)
    })
}

/// Ends a walk that nobody takes any more.
struct Stops<'a>(&'a Early);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn push_of(
    plan: &Plan,
    (source, early): (&Source, &Early),
    options: &SendOptions,
    caller: &Caller,
    observer: &mut dyn Observer,
) -> Result<Done, Failure> {
    let (far, listeners, meeting) = meet(plan, &plan.to, caller, |meets| {
        let mut job = Job::of(plan, false, meets)?;
        job.is_one_file = source.is_one_file();
        Ok(led(&plan.to, job))
    })?;
    let options = &SendOptions {
        tells_all_attributes: far.ready.all_attributes,
        // A host that helps the destination may be of an older version.
        leaves_out_zeros: far.ready.gaps && plan.to.beside().is_empty(),
        unasked: far.ready.unasked,
        ..options.clone()
    };
    let watch = Watch::default();
    far.say_inside(&watch, plan.request.streams);
    let mut limits = Limits::of(&plan.request)?;
    limits.tick(&watch);
    // Without ssh's own time, and a password's.
    let begun = Instant::now();
    let crew = Crew::new(|_: &io::Error| meeting.close());
    let (sent, progress) = thread::scope(|scope| {
        for listener in &listeners {
            crew.start(scope, "gp-listen", || meeting::listen(listener, &meeting));
        }
        let sent = crew.start(scope, "gp-sends", || {
            let sent = send_early(&meeting, source, early, options, &watch);
            meeting.close();
            sent
        });
        let is_gone = &far.is_gone;
        crew.start(scope, "gp-gone", || hurry_when_gone(is_gone, &meeting));
        let inside = far.inside.as_deref();
        crew.start(scope, "gp-reach", || far.reach.look(&meeting, &watch));
        let progress = progress::follow(&watch, &mut limits, caller, observer, &|| {
            inside.inspect(|inside| inside.look());
            joined::is_over(&sent)
        });
        (joined::join(sent, &crew), progress)
    });
    let far_host = HostFacts::told(&far.ready);
    let ssh_cpu_ns = far.inside.as_ref().map(|inside| inside.cpu_ns());
    let (account, far) = match sent {
        // Problems came by the session; what would be done is told at the end.
        Ok(account) if plan.request.dry_run => {
            let told = far.end(caller, plan.request.is_for_programs);
            (account, told.ok().map(|told| told.spent))
        }
        Ok(account) => (account, far.leave()),
        Err(error) => {
            let reach = Arc::clone(&far.reach);
            let told = far.end(
                caller,
                plan.request.is_for_programs || !plan.request.dry_run,
            );
            let is_theirs = matches!(error, CopyError::Far(_) | CopyError::Link(_));
            return Err(match told {
                Err(told @ CopyError::Here(_)) if is_theirs => failure(told, caller),
                told => match reach.advice(&error, told.as_ref().err()) {
                    Some(words) => Failure::far(words),
                    None => failure(error, caller),
                },
            });
        }
    };
    Ok(Done {
        account,
        watch,
        far,
        watched_cpu_ns: None,
        hosts: [HostFacts::here(), far_host],
        ssh_cpu_ns,
        progress,
        took: begun.elapsed(),
        is_source: true,
        reconnects: meeting.reconnects(),
        ways: meeting.carried(),
        cipher: meeting.cipher(),
        certificate: None,
        achievable: None,
    })
}

/// From there to here.
pub(super) fn pull(
    plan: &Plan,
    caller: &Caller,
    observer: &mut dyn Observer,
) -> Result<Done, Failure> {
    let (far, listeners, meeting) = meet(plan, &plan.from[0], caller, |meets| {
        let mut job = Job::of(plan, true, meets)?;
        job.unasked = plan.is_free()?;
        Ok(led(&plan.from[0], job))
    })?;
    let (destination, name) = job::destination(
        plan.to.path(),
        far.ready.is_one_file,
        plan.request.makes_nothing(),
    )
    .map_err(Failure::here)?;
    let trust = match plan.request.set_id {
        true => Trust::Whole,
        false => Trust::NoSetId,
    };
    let destination = destination.with_trust(trust);
    let destination = match plan.request.verify {
        true => destination.with_read_back(),
        false => destination,
    };
    let mut options = plan.request.receive_options(plan.identity())?;
    options.name = name;
    options.only = plan.only()?;
    let prepared = prepare_here(&destination, &options, caller)?;
    let watch = Watch::default();
    far.say_inside(&watch, plan.request.streams);
    let begun = Instant::now();
    let crew = Crew::new(|_: &io::Error| meeting.close());
    let (received, mut progress) = thread::scope(|scope| {
        for listener in &listeners {
            crew.start(scope, "gp-listen", || meeting::listen(listener, &meeting));
        }
        let (links, watched, target, wanted) = (&meeting, &watch, &destination, &options);
        let received = crew.start(scope, "gp-receives", move || {
            let received = receive_prepared(links, target, prepared, wanted, watched);
            links.close();
            received
        });
        let (is_gone, heard) = (&far.is_gone, &far.spent);
        let inside = far.inside.as_deref();
        crew.start(scope, "gp-gone", || hurry_when_gone(is_gone, &meeting));
        crew.start(scope, "gp-reach", || far.reach.look(&meeting, &watch));
        let progress = progress::follow(&watch, &mut Limits::none(), caller, observer, &|| {
            inside.inspect(|inside| inside.look());
            heard.tell(&watch);
            joined::is_over(&received)
        });
        (joined::join(received, &crew), progress)
    });
    let (heard, reach) = (Arc::clone(&far.spent), Arc::clone(&far.reach));
    let far_host = HostFacts::told(&far.ready);
    let ssh_cpu_ns = far.inside.as_ref().map(|inside| inside.cpu_ns());
    let told = far.end(caller, plan.request.is_for_programs);
    // What it said after its last block.
    heard.tell(&watch);
    progress.know(&watch);
    let account = match (received, &told) {
        (Ok(account), _) => account,
        (Err(CopyError::Far(_) | CopyError::Link(_)), Err(CopyError::Here(text))) => {
            return Err(failure(CopyError::Here(text.clone()), caller));
        }
        (Err(error), told) => {
            return Err(match reach.advice(&error, told.as_ref().err()) {
                Some(words) => Failure::far(words),
                None => failure(error, caller),
            });
        }
    };
    if let Ok(told) = &told {
        watch.sent_bytes.store(told.sent_bytes, Ordering::Relaxed);
        watch.unread.store(told.unread, Ordering::Relaxed);
        watch.know_specials(told.specials);
    }
    Ok(Done {
        account,
        watch,
        far: told.ok().map(|told| told.spent),
        watched_cpu_ns: None,
        hosts: [far_host, HostFacts::here()],
        ssh_cpu_ns,
        progress,
        took: begun.elapsed(),
        is_source: false,
        reconnects: meeting.reconnects(),
        ways: meeting.carried(),
        cipher: meeting.cipher(),
        certificate: None,
        achievable: None,
    })
}

/// From one far host to another; this one watches.
pub(super) fn third_party(
    plan: &Plan,
    caller: &Caller,
    observer: &mut dyn Observer,
) -> Result<Done, Failure> {
    let request = &plan.request;
    if request.reverse || request.through_ssh {
        return Err(Failure::usage(
            "--reverse and --through-ssh are for copies that this host takes part in",
        ));
    }
    let (from, to) = (host_of(&plan.from[0]), host_of(&plan.to));
    let begun = Instant::now();
    // Whether the source is one file decides what the destination's name means; so it is asked first.
    let mut probe = Job::of(plan, true, Meets::ListensInside)?;
    probe.asks = true;
    let is_one_file = Far::start(request, from, &probe, None, caller)?
        .ready
        .is_one_file;
    let mut job = Job::of(plan, false, listens(request)?)?;
    job.is_one_file = is_one_file;
    job.only = plan
        .only()?
        .map(|names| names.into_iter().map(Vec::from).collect());
    let job = led(&plan.to, job);
    let mut destination = Far::start(request, to, &job, None, caller)?;
    let meets = match (job.has_helpers, Typed::of(request)?.is_any()) {
        (true, _) => Meets::ConnectsOver {
            ways: start_helpers(plan, &plan.to, &mut destination, &job, caller)?,
        },
        (false, true) => Meets::ConnectsOver {
            ways: ways_to(plan, &plan.to, &destination.ready, caller)?,
        },
        (false, false) => Meets::Connects {
            to: addresses(plan, to, &destination.ready)?,
        },
    };
    let mut job = Job::of(plan, true, meets)?;
    job.all_attributes = destination.ready.all_attributes;
    job.gaps = destination.ready.gaps && plan.to.beside().is_empty();
    job.unasked = destination.ready.unasked;
    let source = Far::start(request, from, &job, None, caller)?;
    let mut hosts = [HostFacts::told(&source.ready), HostFacts::default()];
    let watch = Watch::default();
    let crew = Crew::new(|_: &io::Error| ());
    let (ended, progress) = thread::scope(|scope| {
        let ended = crew.start(scope, "gp-follow", || follow(source, from, &watch));
        let progress = progress::follow(&watch, &mut Limits::none(), caller, observer, &|| {
            joined::is_over(&ended)
        });
        (joined::join(ended, &crew), progress)
    });
    if ended.is_err() {
        // It need not wait for a source that is gone.
        destination.held.let_go();
    }
    hosts[1] = HostFacts::told(&destination.ready);
    let told = destination.end(caller, request.is_for_programs || !request.dry_run);
    let account = match (ended, &told) {
        (Ok(account), _) => account,
        (Err(CopyError::Far(_)), Err(CopyError::Here(text))) => {
            return Err(failure(CopyError::Here(text.clone()), caller));
        }
        (Err(CopyError::Far(why)), _) if why.contains(UNREACHED) => {
            return Err(Failure::far(format!(
                "{why}; {from} connects to {to}, and a firewall may stand between: --port says which port of {to} is open, \
                 and `goodput copy` on {to} itself has --reverse and --through-ssh besides"
            )));
        }
        (Err(error), _) => return Err(failure(error, caller)),
    };
    let (account, cpu_ns) = account;
    Ok(Done {
        account,
        watch,
        far: told.ok().map(|told| told.spent),
        watched_cpu_ns: Some(cpu_ns).filter(|ns| *ns > 0),
        hosts,
        ssh_cpu_ns: None,
        progress,
        took: begun.elapsed(),
        is_source: true,
        reconnects: 0,
        ways: Vec::new(),
        cipher: plan.cipher,
        certificate: None,
        achievable: None,
    })
}

/// Keeps what a far source says of itself, until it ends; with its CPU time.
fn follow(source: Far, from: &str, watch: &Watch) -> Result<(Account, u64), CopyError> {
    loop {
        if watch.is_stopped() {
            break Err(CopyError::Stopped);
        }
        match source.replies.recv_timeout(Duration::from_millis(200)) {
            Ok(Reply::Progress {
                confirmed_bytes,
                wanted_bytes,
                names,
                placed,
                streams,
                connections,
                over_quic,
                ..
            }) => {
                for (stream, words) in &over_quic {
                    watch.know_over_quic(*stream, Counts::of_words(words));
                }
                for (stream, connection) in connections.iter().filter_map(job::connection_of) {
                    watch.know_connection(stream, connection);
                }
                watch
                    .confirmed_bytes
                    .store(confirmed_bytes, Ordering::Relaxed);
                watch.wanted_bytes.store(wanted_bytes, Ordering::Relaxed);
                watch.names.store(names, Ordering::Relaxed);
                watch.placed.store(placed, Ordering::Relaxed);
                watch.streams.store(streams, Ordering::Relaxed);
            }
            Ok(Reply::Note(text)) => {
                watch.note(Note::Skipped(format!("{from}: {}", plain(&text))));
            }
            Ok(Reply::Done {
                numbers,
                sent_bytes,
                unread,
                spent_ns,
                cpu_ns,
                over_quic,
                quic_cpu_ns,
                direct_bytes,
                specials,
                ..
            }) => {
                watch.know_specials(specials);
                watch.direct_bytes.store(direct_bytes, Ordering::Relaxed);
                watch.is_quic.store(over_quic, Ordering::Relaxed);
                watch.quic_cpu_ns.store(quic_cpu_ns, Ordering::Relaxed);
                watch.unread.store(unread, Ordering::Relaxed);
                watch.sent_bytes.store(sent_bytes, Ordering::Relaxed);
                let counters = [
                    &watch.disk_ns,
                    &watch.sum_ns,
                    &watch.link_ns,
                    &watch.idle_ns,
                ];
                for (counter, ns) in counters.into_iter().zip(spent_ns) {
                    counter.store(ns, Ordering::Relaxed);
                }
                break Ok((Account::of(numbers), cpu_ns));
            }
            Ok(Reply::Failed { why, .. }) => {
                break Err(CopyError::Far(format!("{from}: {}", plain(&why))));
            }
            Ok(Reply::Ready(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break Err(CopyError::Far(format!("{from}: {WORDLESS}")));
            }
        }
    }
}
