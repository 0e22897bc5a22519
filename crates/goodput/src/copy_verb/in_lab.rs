//! A copy through a lab's path: both sides in this process, each with the sockets of its host. The disk is this host's.

use std::net::{SocketAddr, TcpListener, TcpStream};

use ::copy::link::Socket;
use ::copy::meeting::Meeting;
use ::copy::quic::Carriage;
use ::copy::{Near, Way};
use lab::{Lab, PathFile};
use report::model::{PathFacts, Run};
use units::Rate;

use super::observed::ObserverArg;
use super::operand::Operand;
use super::{Done, Plan};
use crate::context::Context;
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
    let bind = SocketAddr::from((to.address(), plan.args.port));
    let listener = to
        .run(|| TcpListener::bind(bind))?
        .map_err(|error| Failure::here(anyhow::anyhow!("cannot listen at {bind}: {error}")))?;
    let at = listener.local_addr().map_err(Failure::here)?;
    let space = from.namespace()?.duplicate().map_err(Failure::here)?;
    let datagrams = from.namespace()?.duplicate().map_err(Failure::here)?;
    let wish = plan.args.transport();
    let open = move |peer| datagrams.run(|| ::copy::quic::towards(peer))?;
    let listens = to.run(|| super::job::carriage(wish, &listener))?;
    let dial = Box::new(move || space.run(|| TcpStream::connect(at))?.map(Socket::Tcp));
    let known = from.run(|| Near::towards(at))?;
    let way = Way::new("the far side", dial).with_near(known);
    let near = Meeting::connecting_over(vec![way], plan.session, plan.key.clone(), plan.cipher)
        .with_carriage(Carriage::connecting_by(wish, Box::new(open)));
    let far =
        Meeting::listening(plan.session, plan.key.clone(), plan.allowed()).with_carriage(listens);
    let phase = lab.begin_phase()?;
    let is_asked = plan.args.observer.contains(&ObserverArg::Iperf3);
    let beside = is_asked.then(|| Beside::begin(from, to));
    let done = plan.both(&source, &near, &far, &listener, context);
    if let Some(beside) = beside {
        let _ = plan.beside.set(beside.and_then(Beside::end));
    }
    let certificate = phase.finish()?;
    let mut done = done?;
    done.certificate = Some(record::certificate(&certificate));
    done.achievable = achievable;
    Ok(done)
}
