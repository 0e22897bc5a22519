//! `goodput lab check`: is what the lab says of its frames what others saw of them?
//!
//! Traffic is sent, dumpcap captures at every host, the lab logs. tshark reads the captures and the
//! log, and the two accounts must be one: the frames that left and never came are those that the log
//! calls dropped. With `--virtual` the same network is filled in virtual time instead.

mod account;
mod capture;
mod queue;
mod traffic;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use lab::log::{Filter, Legend, convert};
use lab::path::{Network, Node, RuleSpec};
use lab::{Lab, Options, PathFile, rehearsal};
use link::record::{Block, Reader};
use measure::Stop;
use serde_json::{Value, json};
use sys::folder::Folder;
use sys::map;
use units::{Bytes, Duration, Rate};

use self::account::Seen;
pub(crate) use self::capture::Capture;
use self::traffic::{Flow, Pair, Plan};
use super::args::{CheckArgs, LabArgs, LabVerb, ToolArg};
use super::build::{self, grouped};
use super::change;
use super::protocol;
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::record;

pub(super) fn command(args: &CheckArgs) -> Verdict {
    if !args.in_virtual_time {
        crate::become_able_to_run_labs()?;
    }
    let context = Context::start().map_err(Failure::here)?;
    let (found, folder) = run(args, &context.stop)?;
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    if args.json {
        context::print_json(&found)?;
    } else {
        context::print(&render(&found))?;
        context::note(format_args!("kept in {}", folder.display()));
    }
    Ok(match found["holds"].as_bool() {
        Some(true) => failure::DONE,
        _ => failure::CHECK_FAILED,
    })
}

/// Runs a check out of words as they would be typed behind `goodput lab`.
pub(crate) fn perform(
    args: &LabArgs,
    runs: &Path,
    stop: &Stop,
) -> Result<(Value, PathBuf), Failure> {
    let LabVerb::Check(args) = &args.verb else {
        return Err(Failure::usage(anyhow::anyhow!(
            "of the lab's verbs only check can be judged"
        )));
    };
    let args = CheckArgs {
        runs: runs.to_owned(),
        ..args.clone()
    };
    run(&args, stop)
}

fn run(args: &CheckArgs, stop: &Stop) -> Result<(Value, PathBuf), Failure> {
    let mut path = build::named(&args.path)?;
    let plan = plan(&path, args)?;
    let rule = args.rule.as_ref();
    let rule = rule.map(|typed| self::rule(&path, typed)).transpose()?;
    let folder = folder(&args.runs, &path).map_err(Failure::here)?;
    let found = if args.in_virtual_time {
        in_virtual_time(&path, args.time)?
    } else {
        for host in &mut path.network.hosts {
            host.offloads = false;
        }
        in_real_time(&path, args, (&plan, rule.as_ref()), &folder, stop)?
    };
    let text = serde_json::to_string_pretty(&found).map_err(Failure::here)? + "\n";
    let file = folder.join("check.json");
    sys::folder::replace(&file, text)
        .with_context(|| format!("cannot write {}", file.display()))
        .map_err(Failure::here)?;
    Ok((found, folder))
}

fn folder(runs: &Path, path: &PathFile) -> anyhow::Result<PathBuf> {
    let name = path.file.file_stem().unwrap_or_default().to_string_lossy();
    let time = record::now_utc().replace([':', '-'], "");
    let name = format!("{time}-lab-check-{name}");
    let made = Folder::fresh(runs, &name);
    let made = made.with_context(|| format!("cannot make {}", runs.join(name).display()))?;
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
    path: &PathFile,
    args: &CheckArgs,
    (plan, rule): (&Plan, Option<&Rules>),
    folder: &Path,
    stop: &Stop,
) -> Result<Value, Failure> {
    if let Some(host) = path.network.hosts.iter().find(|h| h.interface.is_some()) {
        return Err(Failure::usage(anyhow::anyhow!(
            "host {} is an interface of this machine: nothing can be captured behind it",
            host.name
        )));
    }
    let log = folder.join("network.gplog");
    let options = Options {
        log: (!args.no_captures).then(|| log.clone()),
    };
    let lab = Lab::up_with(path, options)?;
    let before = counters(&lab)?;
    let mut captures = Vec::new();
    if !args.no_captures {
        for host in lab.hosts() {
            let file = folder.join(format!("{}.pcapng", host.name()));
            captures.push(Capture::start(host, file).map_err(Failure::here)?);
        }
    }
    let phase = lab.begin_phase()?;
    let (flows, rule) = std::thread::scope(|scope| {
        let meanwhile = scope.spawn(|| with_rule(&lab, rule, plan.time / 3));
        let flows = match args.with {
            ToolArg::Datagrams => traffic::datagrams(&lab, plan, stop),
            ToolArg::Iperf3 => traffic::iperf3(&lab, plan, stop),
        };
        (flows.map_err(Failure::here), meanwhile.join())
    });
    let (flows, rule) = (flows?, rule.unwrap_or(Ok(Value::Null))?);
    let certificate = phase.finish()?;
    std::thread::sleep(empties_after(&path.network).to_std());
    let mut capture_drops = 0;
    let mut files = Vec::new();
    for capture in captures {
        let (file, dropped) = capture.finish().map_err(Failure::here)?;
        capture_drops += dropped;
        files.push(file);
    }
    let hosts = passed(&before, &counters(&lab)?);
    let of_all = |key: &str| hosts.iter().filter_map(|h| h[key].as_u64()).sum::<u64>();
    let kernel = [of_all("sent_packets"), of_all("received_packets")];
    let addresses: Vec<(String, usize)> = (0..)
        .zip(lab.hosts())
        .map(|(n, h)| (h.address().to_string(), n))
        .collect();
    let end = lab.down()?;
    let all_came = flows.iter().all(|f| f.sent_bytes == f.received_bytes);
    let mut found = json!({
        "format": 1,
        "clock": "real",
        "path": title(path),
        "port_count": hosts.len(),
        "traffic": {
            "pattern": args.traffic,
            "tool": match args.with { ToolArg::Datagrams => "datagrams", ToolArg::Iperf3 => "iperf3" },
            "flow_count": flows.len(),
            "complete": all_came,
            "sent_bytes": sum(&flows, |f| f.sent_bytes),
            "received_bytes": sum(&flows, |f| f.received_bytes),
            "flows": flows,
        },
        "hosts": hosts,
        "kernel": { "sent_packets": kernel[0], "received_packets": kernel[1] },
        "rule": rule,
        "certificate": protocol::certificate_json(&certificate),
        "delay_configured_max_ns": delay_max(&path.network).as_ns(),
    });
    let trusted_log = end.is_none_or(|end| end.lost_rows + end.lost_frames == 0);
    let mut holds = certificate.frames_lost_by_lab() == 0 && trusted_log;
    if !args.no_captures {
        let judged = judge(path, folder, &log, &files, &addresses).map_err(Failure::here)?;
        let account = &judged["account"];
        holds &= account["agree"].as_bool() == Some(true) && capture_drops == 0;
        // What was sent the kernel counts before it is cut into segments.
        let captured = account["captured_received"].as_u64();
        found["kernel"]["agrees"] = (captured == Some(kernel[1])).into();
        merge(&mut found, judged);
        found["captures_dropped"] = capture_drops.into();
    }
    found["log_complete"] = trusted_log.into();
    found["holds"] = holds.into();
    Ok(found)
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
) -> anyhow::Result<Value> {
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
    let legend = reader.clone().flatten().find_map(|block| match block {
        Block::Legend(text) => Legend::read(text),
        _ => None,
    });
    let queues = queue::drops(reader, &legend.unwrap_or_default());
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

fn plan(path: &PathFile, args: &CheckArgs) -> Result<Plan, Failure> {
    let hosts = &path.network.hosts;
    let number = |name: &str| {
        hosts.iter().position(|h| h.name == name).ok_or_else(|| {
            let names = hosts.iter().map(|h| h.name.as_str());
            Failure::usage(anyhow::anyhow!(
                "there is no host '{name}'{}",
                lab::path::hint::did_you_mean(name, names)
            ))
        })
    };
    let n = hosts.len();
    let pairs: Vec<Pair> = match args.traffic.as_str() {
        // Each begins with another, or all would begin with the first.
        "all" => (1..n)
            .flat_map(|ahead| (0..n).map(move |from| (from, (from + ahead) % n)))
            .collect(),
        "ring" => (0..n).map(|from| (from, (from + 1) % n)).collect(),
        other => match other.split_once(':') {
            Some(("into", name)) => {
                let to = number(name)?;
                (0..n).filter(|&f| f != to).map(|f| (f, to)).collect()
            }
            Some((from, to)) => vec![(number(from)?, number(to)?)],
            None => {
                return Err(Failure::usage(anyhow::anyhow!(
                    "--traffic {other}: wants all, ring, into:HOST or FROM:TO"
                )));
            }
        },
    };
    if pairs.iter().any(|(from, to)| from == to) {
        return Err(Failure::usage(anyhow::anyhow!(
            "a host cannot send to itself"
        )));
    }
    let mtu = hosts.iter().map(|h| h.mtu_bytes).min().unwrap_or(1500);
    let room = u64::from(mtu) - traffic::HEADER_BYTES;
    let payload = args.payload.unwrap_or_else(|| Bytes::new(room));
    if payload.as_u64() == 0 || payload.as_u64() > room {
        return Err(Failure::usage(anyhow::anyhow!(
            "--payload {payload}: wants 1 to {room} bytes, so that a datagram is one frame"
        )));
    }
    if args.rate.as_bits_per_second() == 0 || args.time == Duration::ZERO {
        return Err(Failure::usage(anyhow::anyhow!(
            "--rate and --time must be above 0"
        )));
    }
    Ok(Plan {
        pairs,
        rate: args.rate,
        burst: args.burst,
        payload,
        time: args.time.to_std(),
    })
}

/// A node and the rules that it is to have for a while.
type Rules = (String, Vec<RuleSpec>);

/// `NODE=RULE` as typed.
fn rule(path: &PathFile, typed: &str) -> Result<Rules, Failure> {
    let (node, rule) = typed.split_once('=').ok_or_else(|| {
        Failure::usage(anyhow::anyhow!(
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
        let unknown = || Failure::here(anyhow::anyhow!("this kernel counts no IP packets"));
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

/// The check in words.
fn render(found: &Value) -> String {
    let mut out = String::new();
    let number = |v: &Value| grouped(v.as_u64().unwrap_or(0));
    let time = |v: &Value| {
        v.as_i64().map_or_else(
            || "unknown".to_owned(),
            |ns| {
                let sign = if ns < 0 { "-" } else { "" };
                format!("{sign}{}", Duration::from_ns(ns.unsigned_abs()))
            },
        )
    };
    let rate = |v: &Value| Rate::from_bits_per_second(v.as_u64().unwrap_or(0));
    let _ = writeln!(
        out,
        "{}",
        found["path"]["title"].as_str().unwrap_or_default()
    );
    if found["clock"] == "virtual" {
        for port in found["ports"].as_array().into_iter().flatten() {
            let _ = writeln!(
                out,
                "  {}: {} of {} frames came, {} on the wire; at most {} in flight",
                port["name"].as_str().unwrap_or_default(),
                number(&port["frames_received"]),
                number(&port["frames_sent"]),
                rate(&port["received_bits_per_second"]),
                Bytes::new(port["in_flight_max_bytes"].as_u64().unwrap_or(0)),
            );
        }
        return out;
    }
    let traffic = &found["traffic"];
    let _ = writeln!(
        out,
        "  traffic   {} flows by {}: {} bytes sent, {} received",
        number(&traffic["flow_count"]),
        traffic["tool"].as_str().unwrap_or_default(),
        number(&traffic["sent_bytes"]),
        number(&traffic["received_bytes"]),
    );
    for host in found["hosts"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "  {:<9} {} packets sent, {} received (kernel's counters)",
            host["name"].as_str().unwrap_or_default(),
            number(&host["sent_packets"]),
            number(&host["received_packets"]),
        );
    }
    let account = &found["account"];
    if account.is_object() {
        let _ = writeln!(
            out,
            "  captures  {} frames left, {} came, {} are missing\n  log       {} frames, {} dropped{}",
            number(&account["captured_sent"]),
            number(&account["captured_received"]),
            number(&account["captured_missing"]),
            number(&account["logged"]),
            number(&account["logged_dropped"]),
            causes(&found["drops_by_cause"]),
        );
        let said = if account["agree"].as_bool() == Some(true) {
            "the same frames, one by one".to_owned()
        } else {
            format!(
                "THEY DIFFER: {} frames are in one account only, {} were dropped and came, {} are \
                 missing and were not dropped",
                number(&account["not_in_both"]),
                number(&account["dropped_but_came"]),
                number(&account["missing_but_not_dropped"]),
            )
        };
        let _ = writeln!(out, "  verdict   {said}");
    }
    for queue in found["queues"].as_array().into_iter().flatten() {
        let percent = |v: &Value| v.as_f64().unwrap_or(0.0) * 100.0;
        let _ = writeln!(
            out,
            "  {} to {}: {} of {} frames found no room; the frames that waited before them add up \
             to the depth in {} of {}.\n            In {} bursts with loss the lost stood at {:.2} of \
             the burst (median; 0 first, 1 last); {:.0} % lost their first frame",
            queue["from"].as_str().unwrap_or_default(),
            queue["to"].as_str().unwrap_or_default(),
            number(&queue["queue_full"]),
            number(&queue["arrivals"]),
            number(&queue["explained"]),
            number(&queue["queue_full"]),
            number(&queue["bursts_with_loss"]),
            queue["lost_place_median"].as_f64().unwrap_or(0.0),
            percent(&queue["lost_first_share"]),
        );
    }
    let rule = &found["rule"];
    if rule.is_object() {
        let _ = writeln!(
            out,
            "  rule      at {} for a third of the time: {} frames met it",
            rule["node"].as_str().unwrap_or_default(),
            number(&rule["hits"]),
        );
    }
    let one_way = &found["one_way"];
    if one_way.is_object() {
        let _ = writeln!(
            out,
            "  one way   {} by the hosts' stamps; beyond delay and serialisation p50 {}, p99 {}, \
             queues included",
            time(&one_way["time_p50_ns"]),
            time(&one_way["beyond_p50_ns"]),
            time(&one_way["beyond_p99_ns"]),
        );
    }
    let certificate = &found["certificate"];
    let _ = writeln!(
        out,
        "  lab       {}",
        if certificate["trusted"].as_bool() == Some(true) {
            "trusted".to_owned()
        } else {
            let problems = certificate["problems"].as_array().into_iter().flatten();
            let problems: Vec<&str> = problems.filter_map(Value::as_str).collect();
            format!("NOT trusted: {}", problems.join("; "))
        }
    );
    if found["captures_dropped"].as_u64().unwrap_or(0) > 0 {
        let _ = writeln!(
            out,
            "  The captures dropped {} frames themselves: lower --rate",
            number(&found["captures_dropped"])
        );
    }
    out
}

fn causes(found: &Value) -> String {
    let causes = found.as_object().into_iter().flatten();
    let list: Vec<String> = causes
        .map(|(cause, n)| format!("{} {cause}", grouped(n.as_u64().unwrap_or(0))))
        .collect();
    if list.is_empty() {
        String::new()
    } else {
        format!(" ({})", list.join(", "))
    }
}

const ETHERNET_BYTES: u32 = 14;
