//! Is what the lab says of its frames what others saw of them?
//!
//! Traffic is sent, dumpcap captures at every host, the lab logs. tshark reads the captures and the
//! log, and the two accounts must be one: the frames that left and never came are those that the log
//! calls dropped. In virtual time the same network is filled without kernels instead.

mod account;
mod capture;
mod queue;
mod traffic;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fault::{Cause, Failure};
use job::{certificate_json, record};
use lab::log::{Filter, convert, legend_of};
use lab::path::{Network, Node, RuleSpec};
use lab::{Certificate, Lab, Options, PathFile, change, rehearsal};
use link::record::Reader;
use measure::Stop;
use serde_json::{Value, json};
use sys::folder::Folder;
use sys::map;
use units::{Bytes, Duration, Rate};

use self::account::Seen;
pub use self::capture::Capture;
use self::traffic::{Flow, Load, Pair};
use sys::threads;

/// What is to be checked, and with what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The network.
    pub path: PathFile,
    /// Who sends to whom.
    pub traffic: Pattern,
    /// With what.
    pub with: Tool,
    /// What each host sends, all destinations together.
    pub rate: Rate,
    /// Datagrams in a row to one destination; above 1 the bursts of all hosts begin together.
    pub burst: u32,
    /// Payload of each datagram; what the MTU takes if nothing is said.
    pub payload: Option<Bytes>,
    /// How long.
    pub time: Duration,
    /// `NODE=RULE`: a rule that a switch or router has for the middle third of the time.
    pub rule: Option<String>,
    /// Whether captures and a log are made.
    pub captures: bool,
    /// Whether every port is filled to its rate in virtual time, without kernels.
    pub in_virtual_time: bool,
    /// Where the run folder is made.
    pub runs: PathBuf,
}

/// Who sends to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each host to each other.
    All,
    /// Each host to the next.
    Ring,
    /// All to one.
    Into(String),
    /// One to another.
    Pair(String, String),
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "all"),
            Self::Ring => write!(f, "ring"),
            Self::Into(to) => write!(f, "into:{to}"),
            Self::Pair(from, to) => write!(f, "{from}:{to}"),
        }
    }
}

/// Who makes the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Our own, paced and in bursts.
    Datagrams,
    /// TCP connections, each of a set number of bytes.
    Iperf3,
}

impl Tool {
    /// Its name in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::Iperf3 => "iperf3",
        }
    }
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The record, as it is in check.json of the folder.
    pub found: Value,
    /// Where it is kept, with captures and log.
    pub folder: PathBuf,
}

impl Checked {
    /// True when the lab's account is that of the others.
    pub fn holds(&self) -> bool {
        self.found["holds"].as_bool() == Some(true)
    }
}

/// Runs a check. This process must be able to run labs, unless it is for virtual time.
///
/// ```no_run
/// use lab::PathFile;
/// use trial::lab_check::{Pattern, Plan, Tool, run};
///
/// let plan = Plan {
///     path: PathFile::read("five-ports.toml".as_ref())?,
///     traffic: Pattern::All,
///     with: Tool::Datagrams,
///     rate: units::Rate::from_bits_per_second(20_000_000),
///     burst: 1,
///     payload: None,
///     time: units::Duration::from_s(5),
///     rule: None,
///     captures: true,
///     in_virtual_time: false,
///     runs: "runs".into(),
/// };
/// let checked = run(plan, &measure::Stop::new())?;
/// println!("{}: {}", checked.folder.display(), checked.holds());
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn run(mut plan: Plan, stop: &Stop) -> Result<Checked, Failure> {
    let load = load(&plan)?;
    let rule = plan.rule.as_ref();
    let rule = rule.map(|typed| self::rule(&plan.path, typed));
    let rule = rule.transpose()?;
    let folder = folder(&plan.runs, &plan.path)?;
    let found = if plan.in_virtual_time {
        in_virtual_time(&plan.path, plan.time)?
    } else {
        for host in &mut plan.path.network.hosts {
            host.offloads = false;
        }
        in_real_time(&plan, (&load, rule.as_ref()), &folder, stop)?
    };
    let text = serde_json::to_string_pretty(&found).map_err(Failure::here)? + "\n";
    let file = folder.join("check.json");
    sys::folder::replace(&file, text)
        .map_err(|_| Failure::here(format!("cannot write {}", file.display())))?;
    Ok(Checked { found, folder })
}

fn folder(runs: &Path, path: &PathFile) -> Result<PathBuf, Failure> {
    let name = path.file.file_stem().unwrap_or_default().to_string_lossy();
    let time = record::now_utc().replace([':', '-'], "");
    let name = format!("{time}-lab-check-{name}");
    let made = Folder::fresh(runs, &name);
    let made =
        made.map_err(|_| Failure::here(format!("cannot make {}", runs.join(name).display())))?;
    Ok(made.path().to_owned())
}

fn in_virtual_time(path: &PathFile, time: Duration) -> Result<Value, Failure> {
    let ports = rehearsal::fill(path, time).map_err(Failure::usage)?;
    let list: Vec<Value> = ports
        .iter()
        .map(|p| {
            json!({
                "name": p.name,
                "frames_sent": p.frames_sent,
                "frames_received": p.frames_received,
                "received_bits_per_second": p.received_bits_per_second,
                "in_flight_max_bytes": p.in_flight_bytes_max,
            })
        })
        .collect();
    let least = |of: fn(&rehearsal::PortTally) -> u64| ports.iter().map(of).min();
    Ok(json!({
        "format": 1,
        "clock": "virtual",
        "path": title(path),
        "port_count": ports.len(),
        "ports": list,
        "port_rate_min_bits_per_second": least(|p| p.received_bits_per_second),
        "port_in_flight_min_bytes": least(|p| p.in_flight_bytes_max),
        "holds": ports.iter().all(|p| p.frames_sent > 0 && p.frames_received > 0),
    }))
}

fn in_real_time(
    plan: &Plan,
    (load, rule): (&Load, Option<&Rules>),
    folder: &Path,
    stop: &Stop,
) -> Result<Value, Failure> {
    let path = &plan.path;
    if let Some(host) = path.network.hosts.iter().find(|h| h.interface.is_some()) {
        return Err(Failure::usage(format!(
            "host {} is an interface of this machine: nothing can be captured behind it",
            host.name
        )));
    }
    let log = folder.join("network.gplog");
    let options = Options {
        log: plan.captures.then(|| log.clone()),
    };
    let lab = Lab::up_with(path, options)?;
    let before = counters(&lab)?;
    let captures = match plan.captures {
        true => begin(&lab, folder).map_err(Failure::here)?,
        false => Vec::new(),
    };
    let phase = lab.begin_phase()?;
    let (flows, rule) = send(&lab, plan.with, (load, rule), stop)?;
    let certificate = phase.finish()?;
    std::thread::sleep(empties_after(&path.network).to_std());
    let (files, captures_dropped) = end(captures).map_err(Failure::here)?;
    let hosts = passed(&before, &counters(&lab)?);
    let addresses: Vec<(String, usize)> = (0..)
        .zip(lab.hosts())
        .map(|(n, h)| (h.address().to_string(), n))
        .collect();
    let log_end = lab.down()?;
    let trusted_log = log_end.is_none_or(|end| end.lost_rows + end.lost_frames == 0);
    let mut holds = certificate.frames_lost_by_lab() == 0 && trusted_log;
    let mut found = told(plan, &flows, hosts, rule, &certificate);
    if plan.captures {
        let judged = judge(path, folder, &log, &files, &addresses).map_err(Failure::here)?;
        let account = &judged["account"];
        holds &= account["agree"].as_bool() == Some(true) && captures_dropped == 0;
        // What was sent the kernel counts before it is cut into segments.
        let captured = account["captured_received"].as_u64();
        let counted = found["kernel"]["received_packets"].as_u64();
        found["kernel"]["agrees"] = (captured == counted).into();
        merge(&mut found, judged);
        found["captures_dropped"] = captures_dropped.into();
    }
    found["log_complete"] = trusted_log.into();
    found["holds"] = holds.into();
    Ok(found)
}

/// Captures at every host.
fn begin(lab: &Lab, folder: &Path) -> Result<Vec<Capture>, Cause> {
    let one = |host: &lab::Host| {
        let file = folder.join(format!("{}.pcapng", host.name()));
        Capture::start(host, file)
    };
    lab.hosts().iter().map(one).collect()
}

/// Ends captures; their files, and the frames that they dropped themselves.
fn end(captures: Vec<Capture>) -> Result<(Vec<PathBuf>, u64), Cause> {
    let (mut files, mut dropped) = (Vec::new(), 0);
    for capture in captures {
        let (file, frames) = capture.finish()?;
        dropped += frames;
        files.push(file);
    }
    Ok((files, dropped))
}

/// Sends the traffic while a node has a rule for a while; what was sent, and what met the rule.
fn send(
    lab: &Lab,
    with: Tool,
    (load, rule): (&Load, Option<&Rules>),
    stop: &Stop,
) -> Result<(Vec<Flow>, Value), Failure> {
    let (flows, rule) = std::thread::scope(|scope| {
        let meanwhile = threads::scoped(scope, "gp-rule", || with_rule(lab, rule, load.time / 3));
        let flows = match with {
            Tool::Datagrams => traffic::datagrams(lab, load, stop),
            Tool::Iperf3 => traffic::iperf3(lab, load, stop),
        };
        let meanwhile = meanwhile.map(|thread| thread.join().unwrap_or(Ok(Value::Null)));
        (flows.map_err(Failure::here), meanwhile)
    });
    Ok((flows?, rule.map_err(Failure::here)??))
}

/// The record without what captures say.
fn told(
    plan: &Plan,
    flows: &[Flow],
    hosts: Vec<Value>,
    rule: Value,
    certificate: &Certificate,
) -> Value {
    let of_all = |key: &str| hosts.iter().filter_map(|h| h[key].as_u64()).sum::<u64>();
    let kernel = [of_all("sent_packets"), of_all("received_packets")];
    let all_came = flows.iter().all(|f| f.sent_bytes == f.received_bytes);
    json!({
        "format": 1,
        "clock": "real",
        "path": title(&plan.path),
        "port_count": hosts.len(),
        "traffic": {
            "pattern": plan.traffic.to_string(),
            "tool": plan.with.name(),
            "flow_count": flows.len(),
            "complete": all_came,
            "sent_bytes": sum(flows, |f| f.sent_bytes),
            "received_bytes": sum(flows, |f| f.received_bytes),
            "flows": flows,
        },
        "hosts": hosts,
        "kernel": { "sent_packets": kernel[0], "received_packets": kernel[1] },
        "rule": rule,
        "certificate": certificate_json(certificate),
        "delay_configured_max_ns": delay_max(&plan.path.network).as_ns(),
    })
}

fn merge(found: &mut Value, more: Value) {
    if let (Value::Object(found), Value::Object(more)) = (found, more) {
        found.extend(more);
    }
}

fn sum(flows: &[Flow], of: fn(&Flow) -> u64) -> u64 {
    flows.iter().map(of).sum()
}

fn title(path: &PathFile) -> Value {
    json!({ "title": path.title, "file": path.file.display().to_string(), "text": path.text })
}

/// Reads captures and log and holds them against each other.
fn judge(
    path: &PathFile,
    folder: &Path,
    log: &Path,
    files: &[PathBuf],
    addresses: &[(String, usize)],
) -> Result<Value, Cause> {
    let number: BTreeMap<&str, usize> = addresses.iter().map(|(a, n)| (a.as_str(), *n)).collect();
    let destination = |seen: &Seen| {
        let to = seen.key.split('|').nth(1)?;
        number.get(to).copied()
    };
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (host, file) in files.iter().enumerate() {
        capture::read(file, |read| {
            let (Some(&from), Some(to)) = (number.get(read.from.as_str()), destination(&read.seen))
            else {
                return;
            };
            if from == host {
                sent.push((from, to, read.seen));
            } else if to == host {
                received.push(read.seen);
            }
        })?;
    }
    let bytes = map::File::open(log)?;
    let reader = Reader::new(&bytes)?;
    let pcapng = folder.join("network.pcapng");
    convert::pcapng(
        reader.clone(),
        File::create_new(&pcapng)?,
        &Filter::default(),
    )?;
    let (mut logged, mut dropped) = (Vec::new(), Vec::new());
    let mut causes: BTreeMap<String, u64> = BTreeMap::new();
    capture::read(&pcapng, |read| {
        if !number.contains_key(read.from.as_str()) || destination(&read.seen).is_none() {
            return;
        }
        if let Some(why) = read.comment.strip_prefix("dropped: ") {
            let cause = why.split_whitespace().next().unwrap_or(why);
            *causes.entry(cause.to_owned()).or_insert(0) += 1;
            dropped.push(read.seen.clone());
        }
        logged.push(read.seen.key);
    })?;
    let queues = queue::drops(reader.clone(), &legend_of(reader));
    let all: Vec<Seen> = sent.iter().map(|(.., seen)| seen.clone()).collect();
    let account = account::settle(&all, &received, &logged, &dropped);
    Ok(json!({
        "account": account,
        "drops_by_cause": causes,
        "queues": queues,
        "one_way": one_way(path, &sent, (&received, &dropped)),
    }))
}

/// How long frames took from the sender's to the receiver's stamp, beyond delays and one
/// serialisation at each link of their way: waiting in queues, and the lab's error.
fn one_way(
    path: &PathFile,
    sent: &[(usize, usize, Seen)],
    (received, dropped): (&[Seen], &[Seen]),
) -> Value {
    let mut beyond: Vec<i64> = Vec::new();
    let mut total: Vec<i64> = Vec::new();
    let mut pairs: BTreeMap<Pair, Vec<Seen>> = BTreeMap::new();
    for (from, to, seen) in sent {
        pairs.entry((*from, *to)).or_default().push(seen.clone());
    }
    let mut by_departure: Vec<(u64, i64)> = Vec::new();
    for ((from, to), list) in &pairs {
        let Some(way) = way(&path.network, *from, *to) else {
            continue;
        };
        let took = account::delays(list, received, dropped);
        for (seen, ns) in took {
            let length = seen.key.split('|').nth(3).and_then(|l| l.parse().ok());
            let due = due_ns(&path.network, &way, length.unwrap_or(0));
            total.push(ns);
            beyond.push(ns - due);
            by_departure.push((seen.time_ns, ns - due));
        }
    }
    by_departure.sort_unstable();
    let tenth = (by_departure.len() / 10).max(1);
    let median = |part: &[(u64, i64)]| {
        let mut ns: Vec<i64> = part.iter().map(|p| p.1).collect();
        quantile(&mut ns, 0.5)
    };
    let drift = match by_departure.len() {
        0..100 => None,
        n => median(&by_departure[n - tenth..])
            .zip(median(&by_departure[..tenth]))
            .map(|(last, first)| last - first),
    };
    json!({
        "frames": total.len(),
        "time_p50_ns": quantile(&mut total, 0.5),
        "beyond_p50_ns": quantile(&mut beyond, 0.5),
        "beyond_p99_ns": quantile(&mut beyond, 0.99),
        "beyond_max_ns": quantile(&mut beyond, 1.0),
        "drift_ns": drift,
        "drift_size_ns": drift.map(i64::abs),
    })
}

fn quantile(ns: &mut [i64], q: f64) -> Option<i64> {
    ns.sort_unstable();
    let last = ns.len().checked_sub(1)?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a list's length"
    )]
    let place = (last as f64 * q).round() as usize;
    ns.get(place).copied()
}

/// The directions on the way between two hosts with the fewest links: link and whether forward.
fn way(network: &Network, from: usize, to: usize) -> Option<Vec<(usize, bool)>> {
    let mut came: BTreeMap<Node, (Node, usize, bool)> = BTreeMap::new();
    let (start, end) = (Node::Host(from), Node::Host(to));
    let mut next = VecDeque::from([start]);
    while let Some(node) = next.pop_front() {
        if node == end {
            break;
        }
        for (n, link) in network.links.iter().enumerate() {
            let (other, forward) = match link.between {
                [a, b] if a == node => (b, true),
                [a, b] if b == node => (a, false),
                _ => continue,
            };
            if other != start && !came.contains_key(&other) {
                came.insert(other, (node, n, forward));
                next.push_back(other);
            }
        }
    }
    let mut way = Vec::new();
    let mut node = end;
    while node != start {
        let &(before, link, forward) = came.get(&node)?;
        way.push((link, forward));
        node = before;
    }
    way.reverse();
    Some(way)
}

/// Delay and serialisation of a packet of so many network layer bytes over a way, nanoseconds.
fn due_ns(network: &Network, way: &[(usize, bool)], bytes: u32) -> i64 {
    let of = |&(link, forward): &(usize, bool)| {
        let spec = network.links[link].direction(forward);
        let wire = spec.medium.wire_bytes(bytes + ETHERNET_BYTES);
        let rate = match spec.rate.as_ref().map(|r| &r.server) {
            Some(link::spec::ServerSpec::Rate(rate)) => Some(rate.as_bits_per_second()),
            _ => None,
        };
        let serialised = rate.map_or(0, |r| u64::from(wire) * 8_000_000_000 / r.max(1));
        (spec.delay.as_ns() + serialised).cast_signed()
    };
    way.iter().map(of).sum()
}

fn delay_max(network: &Network) -> Duration {
    let of = |l: &lab::path::LinkSpec| l.forward.delay.max(l.backward.delay);
    network.links.iter().map(of).max().unwrap_or_default()
}

/// By when the last frame has left: all delays and queues in a row, and a little.
fn empties_after(network: &Network) -> Duration {
    let of = |spec: &link::spec::DirectionSpec| {
        let queue = spec.rate.as_ref().map_or(0, |r| match &r.server {
            link::spec::ServerSpec::Rate(rate) => {
                let bytes = r.limits.bytes.unwrap_or(0).min(1 << 32);
                bytes * 8_000_000_000 / rate.as_bits_per_second().max(1)
            }
            link::spec::ServerSpec::Trace(_) => 1_000_000_000,
        });
        spec.delay.as_ns() + queue
    };
    let links = network.links.iter();
    let ns: u64 = links.map(|l| of(&l.forward).max(of(&l.backward))).sum();
    (Duration::from_ns(ns) + Duration::from_ms(300)).min(Duration::from_s(60))
}

/// Who sends what to whom.
fn load(plan: &Plan) -> Result<Load, Failure> {
    let hosts = &plan.path.network.hosts;
    let pairs = pairs(&plan.path.network, &plan.traffic)?;
    if pairs.iter().any(|(from, to)| from == to) {
        return Err(Failure::usage("a host cannot send to itself"));
    }
    let mtu = hosts.iter().map(|h| h.mtu_bytes).min().unwrap_or(1500);
    let room = u64::from(mtu) - traffic::HEADER_BYTES;
    let payload = plan.payload.unwrap_or_else(|| Bytes::new(room));
    if payload.as_u64() == 0 || payload.as_u64() > room {
        return Err(Failure::usage(format!(
            "--payload {payload}: wants 1 to {room} bytes, so that a datagram is one frame"
        )));
    }
    if plan.rate.as_bits_per_second() == 0 || plan.time == Duration::ZERO {
        return Err(Failure::usage("--rate and --time must be above 0"));
    }
    Ok(Load {
        pairs,
        rate: plan.rate,
        burst: plan.burst,
        payload,
        time: plan.time.to_std(),
    })
}

fn pairs(network: &Network, traffic: &Pattern) -> Result<Vec<Pair>, Failure> {
    let hosts = &network.hosts;
    let number = |name: &str| {
        hosts.iter().position(|h| h.name == name).ok_or_else(|| {
            let names = hosts.iter().map(|h| h.name.as_str());
            Failure::usage(format!(
                "there is no host '{name}'{}",
                lab::path::hint::did_you_mean(name, names)
            ))
        })
    };
    let n = hosts.len();
    Ok(match traffic {
        // Each begins with another, or all would begin with the first.
        Pattern::All => (1..n)
            .flat_map(|ahead| (0..n).map(move |from| (from, (from + ahead) % n)))
            .collect(),
        Pattern::Ring => (0..n).map(|from| (from, (from + 1) % n)).collect(),
        Pattern::Into(name) => {
            let to = number(name)?;
            (0..n).filter(|&f| f != to).map(|f| (f, to)).collect()
        }
        Pattern::Pair(from, to) => vec![(number(from)?, number(to)?)],
    })
}

/// A node and the rules that it is to have for a while.
type Rules = (String, Vec<RuleSpec>);

/// `NODE=RULE` as typed.
fn rule(path: &PathFile, typed: &str) -> Result<Rules, Failure> {
    let (node, rule) = typed.split_once('=').ok_or_else(|| {
        Failure::usage(format!(
            "--rule {typed}: wants NODE=RULE, such as 'switch=dst_port = 80, drop = true'"
        ))
    })?;
    let (_, specs) = change::rules(path, node.trim(), &format!("rules = [{{ {rule} }}]"))?;
    Ok((node.trim().to_owned(), specs))
}

/// Gives a node a rule after a while and takes it away after another.
fn with_rule(
    lab: &Lab,
    rule: Option<&Rules>,
    third: std::time::Duration,
) -> Result<Value, Failure> {
    let Some((node, specs)) = rule else {
        return Ok(Value::Null);
    };
    std::thread::sleep(third);
    lab.set_rules(node, specs)?;
    std::thread::sleep(third);
    let hits: u64 = lab.rule_hits(node)?.iter().sum();
    lab.set_rules(node, &[])?;
    let left = lab.rule_hits(node)?.len();
    Ok(json!({ "node": node, "hits": hits, "removed": left == 0 }))
}

/// IPv4 packets that each host's kernel has sent and received: `OutRequests` and `InReceives` of its
/// /proc/net/snmp (RFC 4293).
fn counters(lab: &Lab) -> Result<Vec<(String, u64, u64)>, Failure> {
    let one = |host: &lab::Host| {
        let read = host.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))?;
        let text = read.map_err(Failure::here)?;
        let mut lines = text.lines().filter_map(|l| l.strip_prefix("Ip: "));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let of = |name: &str| {
            let place = names.split(' ').position(|n| n == name)?;
            values.split(' ').nth(place)?.parse().ok()
        };
        let unknown = || Failure::here("this kernel counts no IP packets");
        Ok((
            host.name().to_owned(),
            of("OutRequests").ok_or_else(unknown)?,
            of("InReceives").ok_or_else(unknown)?,
        ))
    };
    lab.hosts().iter().map(one).collect()
}

fn passed(before: &[(String, u64, u64)], after: &[(String, u64, u64)]) -> Vec<Value> {
    let one = |(b, a): (&(String, u64, u64), &(String, u64, u64))| json!({ "name": a.0, "sent_packets": a.1 - b.1, "received_packets": a.2 - b.2 });
    before.iter().zip(after).map(one).collect()
}

const ETHERNET_BYTES: u32 = 14;
