//! Copies, and what a run folder keeps of them. One through a lab's path has both sides in this
//! process, each with the sockets of its host; the disk is this host's.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use ::copy::meeting::Meeting;
use ::copy::quic::Carriage;
use ::copy::task::observed::Tool;
use ::copy::task::operand::Operand;
use ::copy::task::repair::{self, Hurt};
use ::copy::task::ways::{self, Typed, WayTo};
use ::copy::task::{Caller, Done, Observer, Plan, job as far_job, why};
use ::copy::{Near, Way};
use ::job::{Context, Target, record};
use fault::Failure;
use lab::path::Node;
use lab::{Host, Lab, PathFile};
use report::RunFolder;
use report::model::{self, PathFacts, Run, RunState, SCHEMA_VERSION};
use throughput::{PathKnowledge, models};
use units::Rate;

/// Begins another tool on a lab's path, between these hosts.
pub type Beside<'a> = &'a dyn Fn(&Host, &Host) -> Result<EndsBeside, String>;
/// Ends it, and says what it had.
pub type EndsBeside = Box<dyn FnOnce() -> Result<model::Observer, String>>;

/// What a copy is made with.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// Folder that run folders are made in.
    pub runs: &'a Path,
    /// How this began, and who can stop it.
    pub context: &'a Context,
    /// Who hears notes.
    pub caller: &'a Caller,
    /// What is asked beside where [`Tool::Iperf3`] is.
    pub beside: Beside<'a>,
}

impl std::fmt::Debug for Means<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Means")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

/// A caller that the user's signals stop.
pub fn caller(context: &Context, note: impl Fn(&str) + Send + Sync + 'static) -> Caller {
    let context = context.clone();
    Caller::new(move || context.interrupted(), note)
}

/// The lab that operands name; the first, where they name several.
///
/// # Errors
/// What is no operand, and a lab that there is none of.
pub fn lab_of(operands: &[OsString]) -> Result<Option<Box<PathFile>>, Failure> {
    let mut found = Vec::new();
    for typed in operands {
        if let Operand::Lab { name, .. } = Operand::parse(typed)? {
            let Target::Lab(path) = Target::parse(Some(&format!("lab:{name}")))? else {
                return Err(Failure::usage(format!("'{name}' is no lab")));
            };
            found.push(path);
        }
    }
    Ok(found.into_iter().next())
}

/// Carries a plan out, by a lab where there is one, and keeps what came of it in a run folder: the
/// run, and where it is.
///
/// ```no_run
/// use copy::task::{Plan, Request, Unobserved};
/// use trial::copy::{Means, caller, lab_of, run};
///
/// let context = job::Context::start(|| {})?;
/// let caller = caller(&context, |text| eprintln!("{text}"));
/// let request = Request {
///     operands: vec!["big.dat".into(), "lab:dtn-100ms:/tmp/to/".into()],
///     ..Request::default()
/// };
/// let lab = lab_of(&request.operands)?;
/// let means = Means {
///     runs: "runs".as_ref(),
///     context: &context,
///     caller: &caller,
///     beside: &|_, _| Err("no other tool".to_owned()),
/// };
/// let (run, _) = run(Plan::new(request)?, lab.as_deref(), means, &mut Unobserved)?;
/// println!("{:?}", run.verdict);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Why not, with whose fault it is.
pub fn run(
    plan: Plan,
    lab: Option<&PathFile>,
    means: Means<'_>,
    observer: &mut dyn Observer,
) -> Result<(Run, PathBuf), Failure> {
    let Some(file) = &plan.request.repair else {
        return perform(&plan, lab, None, means, observer);
    };
    let hurt = repair::look(file, &plan, means.caller)?;
    let only = Plan::new(hurt.request(&plan.request))?;
    perform(&only, lab, Some(&hurt), means, observer)
}

fn perform(
    plan: &Plan,
    lab: Option<&PathFile>,
    hurt: Option<&Hurt>,
    means: Means<'_>,
    observer: &mut dyn Observer,
) -> Result<(Run, PathBuf), Failure> {
    let Means {
        context, caller, ..
    } = means;
    let name = plan.name();
    let mut run = Run {
        schema_version: SCHEMA_VERSION,
        verb: "copy".to_owned(),
        name: name.clone(),
        state: RunState::Running,
        command_line: context.command_line.clone(),
        goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_utc: record::now_utc(),
        ..Run::default()
    };
    let mut folder = RunFolder::create(means.runs, "copy", &name, run.clone())?;
    let result = match lab {
        Some(path) => through_lab(plan, path, &mut run, means, observer),
        None => plan.run(caller, observer),
    };
    let result = match result {
        Ok(done) => {
            plan.record(&mut run, &done, caller);
            for sample in done.samples() {
                folder.append_sample(&sample)?;
            }
            let mended = hurt.map_or(Ok(()), |hurt| hurt.end(plan, &mut run, caller));
            mended.and_then(|()| plan.write_manifest(caller))
        }
        Err(failure) => Err(failure),
    };
    record::end_as(&mut run, &result, context);
    let place = folder.path().to_owned();
    let kept = folder.finish(&run, &[]);
    if let Some(code) = context.interrupted() {
        caller.note("stopped; give the same command again and it goes on where it was");
        return Err(Failure::interrupted(code));
    }
    result?;
    kept?;
    Ok((run, place))
}

fn through_lab(
    plan: &Plan,
    path: &PathFile,
    run: &mut Run,
    means: Means<'_>,
    observer: &mut dyn Observer,
) -> Result<Done, Failure> {
    let usage = |text: &str| Err(Failure::usage(text.to_owned()));
    if plan.request.reverse || plan.request.through_ssh {
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
    let knowledge = record::knowledge(path, to_far);
    let achievable = knowledge.achievable_rate();
    let rtt = path.forward.delay + path.backward.delay;
    run.path = Some(PathFacts {
        rate_bits_per_second: knowledge.bottleneck.map(Rate::as_bits_per_second),
        achievable_bits_per_second: achievable.map(Rate::as_bits_per_second),
        rtt_idle_ns: Some(rtt.as_ns()),
        bdp_bytes: knowledge
            .bottleneck
            .map(|rate| models::bdp(rate, rtt).as_u64()),
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
    let listeners = ends.listen(to, plan.request.port, means.caller)?;
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
    let wish = plan.request.transport();
    let carriage = match far_job::connecting(wish, ways.len()).is_possible() {
        true => {
            let space = from.namespace()?.duplicate().map_err(Failure::here)?;
            let open = move |from, peer| space.run(|| ::copy::quic::towards(from, peer))?;
            Carriage::connecting_by(wish, Box::new(open))
        }
        false => Carriage::nowhere(wish),
    };
    let listens = to.run(|| far_job::carriage(wish, &listeners))?;
    let count = ways.len();
    let ways = ways.iter().map(|way| way_in(from, way, count));
    let ways = ways.collect::<Result<Vec<_>, Failure>>()?;
    let near = Meeting::connecting_over(ways, plan.session, plan.key.clone(), plan.cipher)
        .with_carriage(carriage);
    let far = Meeting::listening(plan.session, plan.key.clone(), plan.allowed())
        .with_far_ways(count)
        .with_carriage(listens);
    let phase = lab.begin_phase()?;
    let is_asked = plan.request.observers.contains(&Tool::Iperf3);
    let beside = is_asked.then(|| (means.beside)(from, to));
    let done = plan.both(&source, &near, &far, &listeners, means.caller, observer);
    if let Some(beside) = beside {
        let _ = plan.beside.set(beside.and_then(|ends| ends()));
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
    fn of(plan: &Plan, [from, to]: [&Host; 2], to_far: bool) -> Result<Self, Failure> {
        let typed = Typed::of(&plan.request)?;
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
                return Err(Failure::usage(format!(
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

    fn listen(&self, to: &Host, port: u16, caller: &Caller) -> Result<Vec<TcpListener>, Failure> {
        let mut notes = Vec::new();
        let listeners = to.run(|| ways::listen_at(&self.to, port, &mut |text| notes.push(text)))?;
        notes.iter().for_each(|text| caller.note(text));
        let at = &self.to[0];
        listeners.map_err(|error| Failure::here(format!("cannot listen at {at}: {error}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_that_there_is_none_of_is_refused() {
        let lab_of = |typed: &str| lab_of(&[OsString::from("from"), OsString::from(typed)]);
        assert!(lab_of("lab:no-such-lab:/x").is_err());
        assert!(lab_of("lab:dtn-100ms:/x").unwrap().is_some());
        assert!(lab_of("node:/x").unwrap().is_none());
    }
}
