//! `goodput gateway trial`: what a gateway of a lab does to connections, judged by others.
//!
//! iperf3 sends, the gateway's kernel counts what each of its links carries, dumpcap and tshark say how large
//! the segments are on either side, and a connection of our own shows that bytes, ends and resets pass. A
//! link may be cut meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use lab::{Certificate, Host, Lab, PathFile};
use measure::Stop;
use report::RunFolder;
use report::model::{GatewayRun, Run, SampleRecord};
use serde_json::{Value, json};
use sys::netlink::Netlink;
use sys::nftables::{self, At, Chain, Expression, Owned, Table};
use units::Duration;

use super::exact;
use super::recorded::{self, BUSIEST, Record};
use super::renew;
use super::reread;
use super::steady::Steady;
use super::systemd;
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::lab_verb::{Capture, certificate_json};
use crate::observer::Ended;
use crate::record;
use crate::target::Target;

/// What a trial takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct TrialArgs {
    /// A path with a gateway among its nodes, such as lab:cray-cns
    path: String,
    /// Connections of iperf3 at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: usize,
    /// Hosts that they go to by turns [default: the far end of the path's transfer]
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    to: Vec<String>,
    /// How long they send
    #[arg(long, value_name = "TIME", default_value = "10s")]
    time: Duration,
    /// The hosts that they go to send instead
    #[arg(long)]
    down: bool,
    /// Capture at both ends, with all off-loads off, and have tshark say how large segments are
    #[arg(long)]
    capture: bool,
    /// See whether bytes, half-closes and resets pass whole
    #[arg(long)]
    exact: bool,
    /// Send with one connection alone first, to hold the others against
    #[arg(long)]
    alone: bool,
    /// Cut this link after a third of the time; as many connections more begin one second later, and as many stand
    /// from before until after
    #[arg(long, value_name = "LINK")]
    cut: Option<String>,
    /// Have another gateway go on for the one that runs, after a third of the time, while others connect
    #[arg(long)]
    renew: bool,
    /// Have it read wrong files and then a right one, after a third of the time, while connections stand
    #[arg(long)]
    reload: bool,
    /// Have a systemd of its own run the gateway by its unit; kill it when the connections are over, while others
    /// connect. Root
    #[arg(long, conflicts_with_all = ["cut", "renew", "reload"])]
    systemd: bool,
    /// Where run folders are kept
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// `goodput gateway trial`.
pub(super) fn command(args: &TrialArgs) -> Verdict {
    crate::become_able_to_run_labs()?;
    let context = Context::start().map_err(Failure::here)?;
    let (found, folder) = run(args, &context)?;
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    if args.json {
        context::print_json(&found)?;
    } else {
        context::print(&words(&found))?;
        context::note(format_args!("kept in {}", folder.display()));
    }
    Ok(match found["certificate"]["trusted"].as_bool() {
        Some(true) => failure::DONE,
        _ => failure::CHECK_FAILED,
    })
}

/// Runs a trial as a step of an experiment.
pub(crate) fn step(
    args: &TrialArgs,
    runs: &Path,
    context: &Context,
) -> Result<(Value, PathBuf), Failure> {
    let args = TrialArgs {
        runs: runs.to_owned(),
        ..args.clone()
    };
    run(&args, context)
}

fn run(args: &TrialArgs, context: &Context) -> Result<(Value, PathBuf), Failure> {
    let Target::Lab(mut path) = Target::parse(Some(&args.path))? else {
        return Err(Failure::usage(anyhow::anyhow!(
            "'{}' is not a lab's path; say lab:{0}",
            args.path
        )));
    };
    if args.connections == 0 || args.connections > CONNECTIONS_MAX {
        return Err(Failure::usage(anyhow::anyhow!(
            "--connections: expected 1 to {CONNECTIONS_MAX}"
        )));
    }
    if args.capture {
        without_offloads(&mut path);
    }
    let title = path.file.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("trial-{title}");
    let mut run = recorded::run(&name, context.command_line.clone());
    run.path = Some(record::of_file(&path));
    let mut folder = RunFolder::create(&args.runs, "gateway", &name, run.clone())?;
    let result = attempts(args, &path, &mut folder, &mut run, &context.stop);
    record::end_as(&mut run, &result, context);
    let kept = folder.finish(&run, &[]);
    let found = result?;
    kept?;
    Ok((found, folder.path().to_owned()))
}

/// Until the lab is trusted, twice at most.
fn attempts(
    args: &TrialArgs,
    path: &PathFile,
    folder: &mut RunFolder,
    run: &mut Run,
    stop: &Stop,
) -> Result<Value, Failure> {
    let mut attempts = 0;
    let (found, watched) = loop {
        attempts += 1;
        let lab = Lab::up(path)?;
        let watching = Watching::start(&lab);
        let (mut found, certificate) = observed(args, path, &lab, folder.path(), &watching, stop)?;
        found["attempts"] = attempts.into();
        let trusted = certificate.trusted();
        if trusted || attempts == ATTEMPTS || stop.is_stopped() {
            let mut watched = watching.end(&lab);
            for gateway in &mut watched.0 {
                gateway.certificate = Some(record::certificate(&certificate));
            }
            break (found, watched);
        }
        let problems = &found["certificate"]["problems"];
        context::note(format_args!("the lab fell behind ({problems}); once more"));
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
        .with_context(|| format!("cannot write {}", file.display()))
        .map_err(Failure::here)?;
    Ok(found)
}

/// What the lab's gateways are seen to do during a trial.
struct Watching(Mutex<Watched>);

struct Watched {
    records: Vec<Record>,
    readings: Vec<SampleRecord>,
}

impl Watching {
    fn start(lab: &Lab) -> Self {
        let now = sys::clock::monotonic();
        let gateways = lab.gateways().iter().enumerate();
        let records = gateways.map(|(number, gateway)| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            Record::new(number, now, gateway.counts())
        });
        Self(Mutex::new(Watched {
            records: records.collect(),
            readings: Vec::new(),
        }))
    }

    /// Looks once.
    fn look(&self, lab: &Lab) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Watched { records, readings } = &mut *watched;
        for (gateway, record) in lab.gateways().iter().zip(records) {
            let (counts, seen) = (gateway.counts(), gateway.look(BUSIEST));
            record.look(sys::clock::monotonic(), counts, &seen, gateway.placed());
            record.set_others(gateway.buffers(), gateway.sampled());
            readings.extend(record.readings());
        }
    }

    /// Looks each second while `going` holds.
    fn look_on(&self, lab: &Lab, going: &AtomicBool) {
        let mut next = Instant::now();
        while going.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                next += StdDuration::from_secs(1);
                self.look(lab);
            }
            thread::sleep(StdDuration::from_millis(50));
        }
    }

    fn end(self, lab: &Lab) -> (Vec<GatewayRun>, Vec<SampleRecord>) {
        self.look(lab);
        let watched = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let gateways = lab.gateways().iter().zip(&watched.records);
        let runs = gateways.map(|(g, record)| record.result(g.host().name(), g.config()));
        (runs.collect(), watched.readings)
    }
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

/// Everything that one lab shows.
fn observed(
    args: &TrialArgs,
    path: &PathFile,
    lab: &Lab,
    folder: &Path,
    watching: &Watching,
    stop: &Stop,
) -> Result<(Value, Certificate), Failure> {
    let mut to = Vec::new();
    for name in &args.to {
        to.push(lab.host(name)?);
    }
    if to.is_empty() {
        to.push(lab.far());
    }
    let mut captures = Vec::new();
    if args.capture {
        for host in [lab.near(), to[0]] {
            let file = folder.join(format!("{}.pcapng", host.name()));
            captures.push((host, Capture::start(host, file).map_err(Failure::here)?));
        }
    }
    let unit = args.systemd.then(|| systemd::start(lab, folder));
    let unit = unit.transpose()?;
    let phase = lab.begin_phase()?;
    let alone = match args.alone {
        true => Some(total(&flows(args, 1, lab, &to, stop)?)),
        false => None,
    };
    let before = counters(lab)?;
    let going = AtomicBool::new(true);
    let (flows, cut, renewed, reread) = thread::scope(|scope| {
        scope.spawn(|| watching.look_on(lab, &going));
        let sending = scope.spawn(|| flows(args, args.connections, lab, &to, stop));
        let cut = args.cut.as_deref().map(|link| cut(args, lab, &to, link));
        let renewed = args.renew.then(|| {
            thread::sleep(args.time.to_std() / 3);
            renew::renew(lab, &to, args.connections)
        });
        let reread = args.reload.then(|| {
            thread::sleep(args.time.to_std() / 3);
            reread::reread(lab, &to, args.connections, folder)
        });
        let sent = sending.join();
        going.store(false, Ordering::Relaxed);
        (
            sent,
            cut.transpose(),
            renewed.transpose(),
            reread.transpose(),
        )
    });
    let unit = unit.map(|unit| systemd::tried(unit, lab, &to));
    let certificate = phase.finish()?;
    let unit = unit.transpose()?;
    let flows = flows.map_err(|_| Failure::here(anyhow::anyhow!("a thread panicked")))??;
    let (cut, renewed, reread) = (cut?, renewed?, reread?);
    let links = passed(&before, &counters(lab)?);
    let exact = match args.exact {
        true => Some(exact::of(lab.near(), to[0]).map_err(Failure::here)?),
        false => None,
    };
    let segments = match captures.is_empty() {
        true => Value::Null,
        false => segments(captures, lab.near(), to[0]).map_err(Failure::here)?,
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

/// What iperf3's connections received together, bits a second.
fn total(flows: &[Value]) -> f64 {
    flows
        .iter()
        .filter_map(|f| f["bits_per_second"].as_f64())
        .sum()
}

/// iperf3's connections, all at once.
fn flows(
    args: &TrialArgs,
    connections: usize,
    lab: &Lab,
    to: &[&Host],
    stop: &Stop,
) -> Result<Vec<Value>, Failure> {
    let ended: Vec<anyhow::Result<Value>> = thread::scope(|scope| {
        let all = (0..connections).map(|n| {
            let far = to[n % to.len()];
            scope.spawn(move || {
                // One after the other, so that each finds the load of those before it.
                thread::sleep(APART * u32::try_from(n).unwrap_or(0));
                flow(args, lab.near(), far, n, stop)
            })
        });
        let all: Vec<_> = all.collect();
        let joined = all.into_iter().map(|one| one.join());
        joined
            .map(|r| r.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))))
            .collect()
    });
    let flows: anyhow::Result<Vec<Value>> = ended.into_iter().collect();
    flows.map_err(Failure::here)
}

fn flow(
    args: &TrialArgs,
    near: &Host,
    far: &Host,
    number: usize,
    stop: &Stop,
) -> anyhow::Result<Value> {
    let port = (IPERF3_PORT + number).to_string();
    let mut server = far.program("iperf3")?;
    server.args(["-s", "-1", "-p", &port]).stdout(Stdio::null());
    let _server = Ended::start(&mut server)
        .context("iperf3 cannot be started; install it (Debian: apt-get install iperf3)")?;
    let address = far.address().to_string();
    let whole = args.time.as_ns().div_ceil(1_000_000_000).max(2);
    let omitted = (whole / 5).max(1);
    let (counted, omitted) = ((whole - omitted).to_string(), omitted.to_string());
    let mut words = vec![
        "-c", &address, "-p", &port, "-J", "-t", &counted, "-O", &omitted,
    ];
    if args.down {
        words.push("-R");
    }
    for _ in 0..TRIES {
        thread::sleep(PAUSE);
        if stop.is_stopped() {
            break;
        }
        let output = near.program("iperf3")?.args(&words).output()?;
        if !output.status.success() {
            continue;
        }
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let number = |at: &str| report.pointer(at).and_then(Value::as_f64);
        return Ok(json!({
            "tool": "iperf3",
            "to": far.name(),
            "bits_per_second": number("/end/sum_received/bits_per_second"),
            "retransmits": number("/end/sum_sent/retransmits"),
            "segment_bytes": number("/start/tcp_mss_default"),
        }));
    }
    bail!("iperf3 from {} to {} failed", near.name(), far.name())
}

/// What the gateways' kernels counted: by link, side and bytes sent and received.
fn counters(lab: &Lab) -> Result<BTreeMap<String, (&'static str, u64, u64)>, Failure> {
    let mut all = BTreeMap::new();
    for gateway in lab.gateways() {
        for link in gateway.links()? {
            let c = link.counters;
            all.insert(link.link, (link.zone.name(), c.tx_bytes, c.rx_bytes));
        }
    }
    Ok(all)
}

type Counters = BTreeMap<String, (&'static str, u64, u64)>;

fn passed(before: &Counters, after: &Counters) -> Vec<Value> {
    let links = after.iter().map(|(name, (side, tx, rx))| {
        let (_, tx_before, rx_before) = before.get(name).copied().unwrap_or_default();
        json!({
            "link": name,
            "side": side,
            "sent_bytes": tx - tx_before,
            "received_bytes": rx - rx_before,
        })
    });
    links.collect()
}

/// The least or largest part that a link outside has of what all of them sent.
fn share(links: &[Value], which: fn(f64, f64) -> f64) -> Option<f64> {
    let outside = links.iter().filter(|l| l["side"] == "outside");
    let sent: Vec<f64> = outside.filter_map(|l| l["sent_bytes"].as_f64()).collect();
    let sum: f64 = sent.iter().sum();
    let found = sent.into_iter().reduce(which)?;
    (sum > 0.0).then_some(found / sum)
}

/// Cuts a link in the middle of it all, begins others a second later, and says what the links carried before
/// and from then on, what each host got, and how those fared that stood before.
fn cut(args: &TrialArgs, lab: &Lab, to: &[&Host], link: &str) -> Result<Value, Failure> {
    let third = args.time.to_std() / 3;
    thread::sleep(third.saturating_sub(BEFORE));
    let steady = Steady::start(lab.near(), to, args.connections).map_err(Failure::here)?;
    let (then, begun) = (counters(lab)?, Instant::now());
    thread::sleep(BEFORE);
    let first = counters(lab)?;
    let side = first.get(link).map_or("outside", |(side, ..)| *side);
    let before = rate(&passed(&then, &first), side, begun.elapsed());
    let on_it = connections_on(lab, link)?;
    lab.set(link, true, true, link::Change::Up(false))?;
    thread::sleep(StdDuration::from_secs(1));
    let (second, begun) = (counters(lab)?, Instant::now());
    let hosts_before = received(to)?;
    let on_link = TcpOn::count(lab, link)?;
    let connected = AtomicU64::new(0);
    let ended = thread::scope(|scope| {
        let all = (0..args.connections).map(|n| {
            let (far, connected) = (to[n % to.len()], &connected);
            scope.spawn(move || -> anyhow::Result<()> {
                exact::greet(lab.near(), far, NEW_PORT + n)?;
                connected.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        });
        let all: Vec<_> = all.collect();
        all.into_iter()
            .map(|one| one.join())
            .filter(|r| !matches!(r, Ok(Ok(()))))
            .count()
    });
    thread::sleep(third.saturating_sub(StdDuration::from_secs(1)));
    let third = counters(lab)?;
    let on_link = on_link.map(TcpOn::bytes).transpose()?;
    let after = passed(&second, &third);
    let rate_after = rate(&after, side, begun.elapsed());
    let hosts = received(to)?;
    let hosts: Vec<u64> = hosts.iter().zip(hosts_before).map(|(b, a)| b - a).collect();
    lab.set(link, true, true, link::Change::Up(true))?;
    // Mended, it is used again: they go back to it.
    thread::sleep(BEFORE);
    let steady = steady.end();
    Ok(json!({
        "link": link,
        "connections_on_it": on_it,
        "hosts_received_bytes": hosts,
        "host_share_least": hosts_share(&hosts),
        "steady": steady,
        "new_connections": connected.into_inner(),
        "new_connections_failed": ended,
        "in_the_first_second": passed(&first, &second),
        "after_a_second": after,
        "before_bits_per_second": before,
        "after_a_second_bits_per_second": rate_after,
        "after_to_before": rate_after / before.max(1.0),
        "tcp_on_the_link_after_a_second_bytes": on_link,
    }))
}

/// A counter of nftables for the TCP that a gateway sends by one link: an interface's own counts the lab's probes and
/// the gateway's questions to the next hop as well.
struct TcpOn<'a> {
    gateway: &'a Host,
    _table: Owned,
}

impl<'a> TcpOn<'a> {
    /// Counts from now on; `None` where no gateway has such a link.
    fn count(lab: &'a Lab, link: &str) -> Result<Option<Self>, Failure> {
        for gateway in lab.gateways() {
            let Some(interface) = gateway.interface(link) else {
                continue;
            };
            let (gateway, interface) = (gateway.host(), interface.to_owned());
            let table = Table {
                name: COUNTED.into(),
                chains: vec![Chain {
                    name: "output".into(),
                    at: At::Output,
                    priority: 0,
                    rules: vec![vec![
                        Expression::ToInterface(interface),
                        Expression::Tcp,
                        Expression::Count,
                    ]],
                }],
            };
            let installed = gateway.run(|| Owned::install(&table));
            let table = installed.map_err(Failure::here)?.map_err(Failure::here)?;
            return Ok(Some(Self {
                gateway,
                _table: table,
            }));
        }
        Ok(None)
    }

    fn bytes(self) -> Result<u64, Failure> {
        let counted = self.gateway.run(|| nftables::counted(COUNTED));
        let counted = counted.map_err(Failure::here)?.map_err(Failure::here)?;
        Ok(counted.iter().map(|c| c.bytes).sum())
    }
}

/// Connections that the gateway has on a link, where its side has several.
fn connections_on(lab: &Lab, link: &str) -> Result<u64, Failure> {
    for gateway in lab.gateways() {
        let interface = gateway.interface(link);
        let placed = gateway.placed();
        let found = placed
            .iter()
            .find(|l| Some(l.interface.as_str()) == interface);
        if let Some(found) = found {
            return Ok(found.connections);
        }
    }
    Ok(0)
}

/// Bytes that each host's kernel has received.
fn received(hosts: &[&Host]) -> Result<Vec<u64>, Failure> {
    let each = hosts.iter().map(|host| -> anyhow::Result<u64> {
        let counters = host.run(|| Netlink::open()?.counters("eth0"))??;
        Ok(counters.rx_bytes)
    });
    let all: anyhow::Result<Vec<u64>> = each.collect();
    all.map_err(Failure::here)
}

/// The part of all that the host got which got least.
#[allow(clippy::cast_precision_loss, reason = "a share of bytes")]
fn hosts_share(bytes: &[u64]) -> Option<f64> {
    let least = *bytes.iter().min()?;
    let sum: u64 = bytes.iter().sum();
    (sum > 0).then(|| least as f64 / sum as f64)
}

/// What all links of a side sent together, bits a second by the kernel's count.
fn rate(links: &[Value], side: &str, time: StdDuration) -> f64 {
    let outside = links.iter().filter(|l| l["side"] == *side);
    let bytes: f64 = outside.filter_map(|l| l["sent_bytes"].as_f64()).sum();
    8.0 * bytes / time.as_secs_f64().max(1e-9)
}

/// Largest TCP payloads that tshark finds at either end, each way.
fn segments(captures: Vec<(&Host, Capture)>, near: &Host, far: &Host) -> anyhow::Result<Value> {
    let mut found = json!({});
    let mut dropped = 0;
    let (from, to) = (near.address().to_string(), far.address().to_string());
    for ((host, capture), end) in captures.into_iter().zip(["near", "far"]) {
        let (file, lost) = capture.finish()?;
        dropped += lost;
        let output = Command::new("tshark")
            .args([
                "-n",
                "-Y",
                "tcp.len > 0",
                "-T",
                "fields",
                "-E",
                "separator=,",
            ])
            .args(["-e", "ip.src", "-e", "ip.dst", "-e", "tcp.len", "-r"])
            .arg(&file)
            .stderr(Stdio::null())
            .output()
            .context("tshark cannot be started; install it (Debian: apt-get install tshark)")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (mut there, mut back, mut count) = (0_u64, 0_u64, 0_u64);
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let [src, dst, len] = fields.as_slice() else {
                continue;
            };
            let Ok(len) = len.parse::<u64>() else {
                continue;
            };
            if *src == from && *dst == to {
                there = there.max(len);
            } else if *src == to && *dst == from {
                back = back.max(len);
            }
            count += 1;
        }
        found[end] = json!({
            "host": host.name(),
            "segments": count,
            "there_max_bytes": there,
            "back_max_bytes": back,
        });
    }
    found["tool"] = "tshark".into();
    found["captures_dropped"] = dropped.into();
    Ok(found)
}

fn words(found: &Value) -> String {
    let rate = found["goodput_bits_per_second"].as_f64().unwrap_or(0.0) / 1e6;
    let mut text = format!("{rate:.1} Mb/s by iperf3\n");
    for link in found["links"].as_array().into_iter().flatten() {
        text += &format!(
            "{} {}: sent {} B, received {} B by the kernel's count\n",
            link["side"].as_str().unwrap_or(""),
            link["link"].as_str().unwrap_or(""),
            link["sent_bytes"],
            link["received_bytes"],
        );
    }
    for (key, what) in [
        ("cut", "cut"),
        ("renew", "renewed"),
        ("reload", "files read"),
        ("systemd", "by systemd"),
        ("segments", "segments"),
        ("exact", "exact"),
    ] {
        if !found[key].is_null() {
            text += &format!("{what}: {}\n", found[key]);
        }
    }
    let trusted = found["certificate"]["trusted"].as_bool() == Some(true);
    let by_kernel = !found["certificate"]["kernel"].is_null();
    text += match trusted {
        true if by_kernel => "the kernel ran the links and kept their rates\n",
        true => "the lab kept up\n",
        false => "the lab did not keep up: these figures are the machine's\n",
    };
    text
}

/// How long the rate before a cut is counted.
/// The trial's own table of nftables in a gateway's namespace.
const COUNTED: &str = "goodput-trial";
const BEFORE: StdDuration = StdDuration::from_secs(2);
const CONNECTIONS_MAX: usize = 64;
const IPERF3_PORT: usize = 5300;
const NEW_PORT: usize = 5400;
/// A lab that falls behind twice in a row runs on a machine that is too busy.
const ATTEMPTS: u32 = 2;
/// Between the beginnings of connections.
const APART: StdDuration = StdDuration::from_millis(200);
const TRIES: u32 = 20;
const PAUSE: StdDuration = StdDuration::from_millis(250);
