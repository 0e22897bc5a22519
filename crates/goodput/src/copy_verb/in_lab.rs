//! A copy through a lab's path: both sides in this process, each with the sockets of its host. The disk is this host's.

use std::net::{IpAddr, SocketAddr, TcpListener};

use ::copy::meeting::Meeting;
use ::copy::quic::Carriage;
use ::copy::{Near, Way};
use explain::PathKnowledge;
use lab::path::Node;
use lab::{Host, Lab, PathFile};
use report::model::{PathFacts, Run};
use units::Rate;

use super::observed::ObserverArg;
use super::operand::Operand;
use super::ways::{self, Typed, WayTo};
use super::{Done, Plan, job, why};
use crate::context::{self, Context};
use crate::failure::Failure;
use crate::observer::Beside;
use crate::record;
use crate::session::Site;

pub(super) fn run(
    plan: &Plan<'_>,
    path: &PathFile,
    run: &mut Run,
    context: &Context,
) -> Result<Done, Failure> {
    let usage = |text: &str| Err(Failure::usage(anyhow::anyhow!("{text}")));
    if plan.args.reverse || plan.args.through_ssh {
        return usage("--reverse and --through-ssh are for far hosts, not for labs");
    }
    let to_far = match (&plan.from[0], &plan.to) {
        (Operand::Here(_), Operand::Lab { .. }) => true,
        (Operand::Lab { .. }, Operand::Here(_)) => false,
        _ => {
            return usage(
                "one side of a copy through a lab is the lab's far host, the other its near one",
            );
        }
    };
    // Both hosts have this host's disk.
    plan.not_into_itself()?;
    let source = plan.source()?;
    let direction = match to_far {
        true => measure::Direction::Up,
        false => measure::Direction::Down,
    };
    let knowledge = Site::path_knowledge(path, direction);
    let achievable = knowledge.achievable_rate();
    let rtt = path.forward.delay + path.backward.delay;
    run.path = Some(PathFacts {
        rate_bits_per_second: knowledge.bottleneck.map(Rate::as_bits_per_second),
        achievable_bits_per_second: achievable.map(Rate::as_bits_per_second),
        rtt_idle_ns: Some(rtt.as_ns()),
        bdp_bytes: knowledge
            .bottleneck
            .map(|rate| explain::models::bdp(rate, rtt).as_u64()),
        mtu_bytes: knowledge.mtu_bytes,
        queue_bytes: knowledge.queue.map(units::Bytes::as_u64),
        ..record::of_file(path)
    });
    let lab = Lab::up(path)?;
    let (from, to) = match to_far {
        true => (lab.near(), lab.far()),
        false => (lab.far(), lab.near()),
    };
    let ends = Ends::of(plan, [from, to], to_far)?;
    let listeners = ends.listen(to, plan.args.port)?;
    let at = listeners.iter().map(TcpListener::local_addr);
    let at = at.collect::<Result<Vec<_>, _>>().map_err(Failure::here)?;
    let ways = match (&at[..], ends.from.is_empty()) {
        ([only], true) => WayTo::only(vec![*only]),
        _ => ways::pairs(
            &ends.from,
            &at.iter().map(|at| vec![*at]).collect::<Vec<_>>(),
        ),
    };
    let achievable = match ways.len() {
        1 => achievable,
        _ => together(path, &knowledge, &ways),
    };
    let wish = plan.args.transport();
    let carriage = match job::connecting(wish, ways.len()).is_possible() {
        true => {
            let space = from.namespace()?.duplicate().map_err(Failure::here)?;
            let open = move |from, peer| space.run(|| ::copy::quic::towards(from, peer))?;
            Carriage::connecting_by(wish, Box::new(open))
        }
        false => Carriage::nowhere(wish),
    };
    let listens = to.run(|| job::carriage(wish, &listeners))?;
    let count = ways.len();
    let ways = ways.iter().map(|way| way_in(from, way, count));
    let ways = ways.collect::<Result<Vec<_>, Failure>>()?;
    let near = Meeting::connecting_over(ways, plan.session, plan.key.clone(), plan.cipher)
        .with_carriage(carriage);
    let far = Meeting::listening(plan.session, plan.key.clone(), plan.allowed())
        .with_far_ways(count)
        .with_carriage(listens);
    let phase = lab.begin_phase()?;
    let is_asked = plan.args.observer.contains(&ObserverArg::Iperf3);
    let beside = is_asked.then(|| Beside::begin(from, to));
    let done = plan.both(&source, &near, &far, &listeners, context);
    if let Some(beside) = beside {
        let _ = plan.beside.set(beside.and_then(Beside::end));
    }
    let certificate = phase.finish()?;
    let mut done = done?;
    for (host, known) in [from, to].into_iter().zip(&mut done.hosts) {
        known.buffers = host.run(why::buffers_here)?;
    }
    done.certificate = Some(record::certificate(&certificate));
    done.achievable = achievable;
    Ok(done)
}

/// Addresses of the host that sends, where they were typed, and of the one that listens.
struct Ends {
    from: Vec<IpAddr>,
    to: Vec<IpAddr>,
}

impl Ends {
    fn of(plan: &Plan<'_>, [from, to]: [&Host; 2], to_far: bool) -> Result<Self, Failure> {
        let typed = Typed::of(plan.args)?;
        let all: Vec<IpAddr> = to.addresses().map(IpAddr::from).collect();
        let far = typed.far.iter().map(SocketAddr::ip).collect();
        let (from_typed, to_typed) = match to_far {
            true => (typed.near, far),
            false => (far, typed.near),
        };
        for (host, typed) in [(from, &from_typed), (to, &to_typed)] {
            let own: Vec<IpAddr> = host.addresses().map(IpAddr::from).collect();
            if let Some(wrong) = typed.iter().find(|address| !own.contains(address)) {
                let known: Vec<String> = own.iter().map(ToString::to_string).collect();
                return Err(Failure::usage(anyhow::anyhow!(
                    "{wrong} is no address of the lab's {}; it has {}",
                    host.name(),
                    known.join(", ")
                )));
            }
        }
        let to = match (typed.is_far_all, to_typed.is_empty()) {
            (true, _) => all,
            (false, true) => vec![to.address().into()],
            (false, false) => to_typed,
        };
        Ok(Self {
            from: from_typed,
            to,
        })
    }

    fn listen(&self, to: &Host, port: u16) -> Result<Vec<TcpListener>, Failure> {
        let mut notes = Vec::new();
        let listeners = to.run(|| ways::listen_at(&self.to, port, &mut |text| notes.push(text)))?;
        notes.into_iter().for_each(context::note);
        let at = &self.to[0];
        listeners.map_err(|error| Failure::here(anyhow::anyhow!("cannot listen at {at}: {error}")))
    }
}

/// A way that begins in the host.
fn way_in(host: &Host, way: &WayTo, count: usize) -> Result<Way, Failure> {
    let near = match way.to.first() {
        Some(at) => host.run(|| Near::towards(*at))?,
        None => Near::default(),
    };
    let space = host.namespace()?.duplicate().map_err(Failure::here)?;
    let dial = ways::dialing(way.from, way.to.clone(), ways::patience(count));
    let dial = Box::new(move || space.run(&dial)?);
    Ok(ways::way_of(way, dial, near))
}

/// What links of their own carry together; `None` where a way is no link alone, or has no rate.
fn together(path: &PathFile, knowledge: &PathKnowledge, ways: &[WayTo]) -> Option<Rate> {
    let network = &path.network;
    let link_to = |address: IpAddr| {
        let hosts = network.hosts.iter().enumerate();
        let mut own = hosts.flat_map(|(n, host)| {
            let first = (n, host.link, IpAddr::V4(host.address4));
            let more = host.more.iter();
            let more = more.map(move |own| (n, own.link, IpAddr::V4(own.address4)));
            std::iter::once(first).chain(more)
        });
        own.find(|(.., at)| *at == address)
    };
    let mut taken = Vec::new();
    let mut sum = 0;
    for way in ways {
        let (host, link, _) = link_to(way.to.first()?.ip())?;
        if taken.contains(&link) {
            continue;
        }
        taken.push(link);
        let spec = &network.links[link];
        let forward = spec.between[1] == Node::Host(host);
        if !matches!(spec.between[usize::from(!forward)], Node::Host(_)) {
            return None;
        }
        let rate = spec.rate(forward)?;
        sum += knowledge.achievable_of(rate).as_bits_per_second();
    }
    Some(Rate::from_bits_per_second(sum))
}
