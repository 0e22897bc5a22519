//! The same steps by ns-3: other queues, other senders, the same cables, tables and pairs.
//!
//! A program of our own (`rotate.cc`) is compiled against the distribution's ns-3 and told cables, routes and flows. Its
//! hosts send by TCP with a bounded window into queues that hold all, so nothing is lost and what a pair gets is what
//! its cables leave it. Compared are shares of what the first pair gets alone, each program's own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::pattern::Kind;
use crate::{Study, Tier};
use fabric::{FlowSpec, Node, Selection, World};
use run::model::{FabricObserved, FabricStudy};
use sys::folder::Scratch;

use super::made::Made;
use super::{Rates, float, seconds};
use fault::{Cause, Failure};

/// Adds what ns-3 finds to points of each study that it can run: rotate on static routes, packet by packet.
///
/// # Errors
/// ns-3 cannot be compiled against, or fails.
pub(crate) fn ns3(studies: &[Study], found: &mut [FabricStudy]) -> Result<(), Failure> {
    let can = |s: &Study| s.tier == Tier::Packets && s.traffic.kind == Kind::Rotate;
    let asked: Vec<(&Study, &mut FabricStudy)> = studies
        .iter()
        .zip(found)
        .filter(|(study, _)| can(study) && study.build(0).spec.selection == Selection::Static)
        .collect();
    if asked.is_empty() {
        let why = "ns-3 runs rotate on static routes, packet by packet; no case here is that";
        return Err(Failure::usage(why));
    }
    // Who made it first would choose what is run.
    let folder = Scratch::new("ns3").map_err(Failure::here)?;
    let program = folder.path().join("rotate");
    let version = compile(&program).map_err(Failure::here)?;
    for (study, found) in asked {
        if let Some(nodes) = point(&study.traffic.nodes) {
            let told = compare(study, nodes, &program, &version)?;
            if let Some(point) = found.points.iter_mut().find(|p| p.nodes == nodes) {
                point.observed = Some(told);
            }
        }
    }
    Ok(())
}

/// The largest that takes seconds; where all are larger, the smallest.
fn point(nodes: &[u32]) -> Option<u32> {
    let quick = nodes.iter().copied().filter(|n| *n <= NODES_QUICK).max();
    quick.or_else(|| nodes.iter().copied().filter(|n| *n <= NODES_MAX).min())
}

fn compare(
    study: &Study,
    nodes: u32,
    program: &Path,
    version: &str,
) -> Result<FabricObserved, Failure> {
    let mut text = String::new();
    let mut ours = Vec::new();
    let mut steps = 0;
    for seed in 0..study.traffic.seeds.min(SEEDS_MAX) {
        let made = Made::new(study, seed)?;
        let drawn = study.traffic.steps(nodes, seed.into());
        for step in drawn.into_iter().take(STEPS_MAX) {
            let flows = study.sends(&made.built, nodes, step, seed.into()).flows;
            // The first pair alone, then all.
            for flows in [&flows[..1], &flows] {
                describe(study, &made, flows, &mut text);
                ours.push(rates(&made, flows)?);
            }
            steps += 1;
        }
    }
    let theirs = run(program, &text).map_err(Failure::here)?;
    let ours = shares(&ours);
    let theirs = shares(&theirs);
    Ok(FabricObserved {
        tool: version.to_owned(),
        steps,
        flows: u32::try_from(theirs.count).unwrap_or(u32::MAX),
        average_share_of_alone: theirs.mean(),
        ours_share_of_alone: ours.mean(),
        apart: (theirs.mean() - ours.mean()).abs(),
    })
}

/// Rates of each step over that of its first pair alone.
fn shares(all: &[Vec<f64>]) -> Rates {
    let mut found = Rates::default();
    for pair in all.chunks_exact(2) {
        let alone = pair[0].first().copied().unwrap_or(f64::INFINITY);
        pair[1].iter().for_each(|rate| found.add(rate / alone));
    }
    found
}

/// By our own packets, in bytes a second.
fn rates(made: &Made, flows: &[FlowSpec]) -> Result<Vec<f64>, Failure> {
    let mut world = World::new(&made.built.spec, flows).map_err(Failure::usage)?;
    let stuck = |stuck| Failure::check(format!("beside ns-3: {stuck}"));
    world.run().map_err(stuck)?;
    let rate = |n| {
        let info = world.flow(n);
        let took = info.last_ps - info.first_posted_ps;
        float(info.bytes_arrived) / seconds(took.max(1))
    };
    Ok((0..flows.len()).map(rate).collect())
}

/// Cables, routes there and back, and flows, as the program reads them.
fn describe(study: &Study, made: &Made, flows: &[FlowSpec], text: &mut String) {
    let (spec, traffic) = (&made.built.spec, &study.traffic);
    let number = |node: Node| match node {
        Node::Host(n) => n,
        Node::Switch(n) => n + u32::try_from(spec.hosts.len()).unwrap_or(u32::MAX),
    };
    let mut links: Vec<u32> = Vec::new();
    let mut routes = BTreeSet::new();
    for flow in flows {
        for (from, to) in [(flow.from, flow.to), (flow.to, flow.from)] {
            for (link, way) in made.way(from, to) {
                links.push(link);
                let at = number(spec.links[link as usize].ends[way]);
                routes.insert((at, to, link));
            }
        }
    }
    links.sort_unstable();
    links.dedup();
    let place = |link: u32| links.binary_search(&link).unwrap_or(0);
    let window = traffic.window_bytes.min(WINDOW_MAX);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "tcp {} {window}", traffic.mtu_bytes);
    for n in &links {
        let link = &spec.links[*n as usize];
        let (speed, width) = spec.trained(link);
        let bits = 8e12 / speed.byte_time(width).as_f64();
        let [a, b] = link.ends.map(number);
        // A chip's time is shared by the two cables of each way through it.
        let chips = link.ends.iter().map(|end| match end {
            Node::Switch(n) => spec.switches[*n as usize].latency_ps / 2,
            Node::Host(_) => 0,
        });
        let ns = (link.cable.delay_ps() + chips.sum::<u64>()) / 1_000;
        let _ = writeln!(text, "link {a} {b} {bits:.0} {ns}");
    }
    for (at, to, link) in routes {
        let _ = writeln!(text, "route {at} {to} {}", place(link));
    }
    for flow in flows {
        let bytes = u64::from(flow.message_bytes) * flow.messages;
        let _ = writeln!(text, "flow {} {} {bytes}", flow.from, flow.to);
    }
    text.push_str("go\n");
}

/// Compiles the program against the ns-3 that pkg-config knows; returns its version.
fn compile(program: &Path) -> Result<String, Cause> {
    let told = |args: &[&str]| -> Result<String, Cause> {
        let told = Command::new("pkg-config").args(args).args(MODULES).output();
        let told = told.map_err(|_| MISSING)?;
        if !told.status.success() {
            return Err(MISSING.into());
        }
        Ok(String::from_utf8_lossy(&told.stdout).into_owned())
    };
    let version = told(&["--modversion"])?;
    let options = told(&["--cflags", "--libs"])?;
    // Of its statistics' libraries only headers of other packages are missing, which nothing here needs.
    let options = options
        .split_whitespace()
        .filter(|o| o.starts_with("-I/") || o.starts_with("-l") || o.starts_with("-L"));
    let source = program.with_extension("cc");
    std::fs::write(&source, PROGRAM)?;
    let built = Command::new("g++")
        .args(["-O2", "-std=c++17", "-o"])
        .arg(program)
        .arg(&source)
        .args(options)
        .output()
        .map_err(|_| MISSING)?;
    let why = String::from_utf8_lossy(&built.stderr);
    if !built.status.success() {
        return Err(format!("g++ with ns-3 failed: {why}").into());
    }
    Ok(format!("ns-3 {}", version.lines().next().unwrap_or("?")))
}

/// Rates of each set of flows.
fn run(program: &Path, text: &str) -> Result<Vec<Vec<f64>>, Cause> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|_| "starting the program of ns-3")?;
    let mut stdin = child.stdin.take().ok_or("its input")?;
    let input = text.to_owned();
    let feeds = sys::threads::spawn("gp-feeds", move || stdin.write_all(input.as_bytes()));
    let feeds = match feeds {
        Ok(feeds) => feeds,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error.into());
        }
    };
    let told = child.wait_with_output()?;
    if !told.status.success() {
        return Err(format!("ns-3 ended with {}", told.status).into());
    }
    feeds.join().unwrap_or(Ok(()))?;
    let line = |line: &str| -> Result<Vec<f64>, Cause> {
        let words = line.split_whitespace();
        let rates: Result<Vec<f64>, _> = words.map(str::parse).collect();
        let rates = rates.map_err(|_| "reading what ns-3 printed")?;
        match rates.iter().all(|rate| *rate > 0.0) {
            true => Ok(rates),
            false => Err("a flow did not end in ns-3".into()),
        }
    };
    String::from_utf8_lossy(&told.stdout)
        .lines()
        .map(line)
        .collect()
}

const PROGRAM: &str = include_str!("observed/rotate.cc");
const MODULES: [&str; 6] = [
    "ns3-internet",
    "ns3-point-to-point",
    "ns3-applications",
    "ns3-network",
    "ns3-core",
    "ns3-traffic-control",
];
const MISSING: &str =
    "--observer ns3 needs g++, pkg-config and ns-3's headers (Debian: apt install g++ libns3-dev)";
/// A second a step of so many nodes, and a few.
const NODES_QUICK: u32 = 64;
const NODES_MAX: u32 = 128;
const SEEDS_MAX: u32 = 3;
const STEPS_MAX: usize = 3;
/// More would lie in queues only.
const WINDOW_MAX: u32 = 32 << 10;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::FabricFile;

    use super::*;

    #[test]
    fn the_program_is_told_of_ways_there_and_back() {
        let text = include_str!("../../../../fabrics/talon-ib.toml");
        let file = FabricFile::parse(Path::new("talon-ib.toml"), text).unwrap();
        let study = &file.studies[0];
        let made = Made::new(study, 0).unwrap();
        let flows = study.sends(&made.built, 24, 1, 0).flows;
        let mut told = String::new();
        describe(study, &made, &flows[..2], &mut told);
        let count = |word: &str| told.lines().filter(|l| l.starts_with(word)).count();
        // Host, leaf, spine, leaf, host; the two pairs may share cables inside, and ways back are others.
        assert!((8..=12).contains(&count("link")), "{told}");
        assert_eq!(count("flow"), 2, "{told}");
        assert!(count("route") <= 16, "{told}");
        assert!(told.ends_with("go\n"), "{told}");
    }

    #[test]
    fn few_nodes_are_asked_for_or_the_fewest_of_many() {
        assert_eq!(point(&[2, 24, 64, 124]), Some(64));
        assert_eq!(point(&[128, 256, 512, 1024]), Some(128));
        assert_eq!(point(&[1024]), None);
    }

    #[test]
    fn shares_are_of_what_the_first_pair_gets_alone() {
        let found = shares(&[vec![4.0], vec![2.0, 4.0], vec![8.0], vec![4.0, 8.0]]);
        assert!((found.mean() - 0.75).abs() < 1e-12);
        assert_eq!(found.count, 4);
    }
}
