//! `cargo xtask bench fabric`: how fast fabrics are simulated, and in how much memory.
//!
//! `packets`: a random permutation on a three-level fat tree, a message of 2 MB from each host in packets of 4 KB at
//! 100 Gb/s, by the packet engine on one thread. `threads`: the same on one thread and on two. `fluid`: all rotations of many hosts by the flow-level estimate.
//! `tables`: routing tables of each engine, and their check for cycles. Each cell is a process of its own, whose
//! peak memory is its own.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use cluster::parallel;
use fabric::fluid::{Fluid, Sharing};
use fabric::link::{Cable, CableKind, Speed};
use fabric::route::{Engine, Graph, Manager, Routes};
use fabric::topology::{FatTree, Parts, Placement, Topology};
use fabric::{FabricSpec, FlowSpec, HostSpec, PortSpec, Routing, SwitchSpec, Transport, World};
use sys::clock;

use super::children::{self, peak_bytes};
use super::record::{Machine, Record, Recorder};
use super::table::{self, Table, number};
use super::{Options, ROUNDS, run, workspace, write};

/// What a process of its own does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// Packets of a permutation; ports of a chip.
    Packets(u8),
    /// The same on one thread and on two.
    Threads(u8),
    /// All rotations of so many hosts, estimated.
    Fluid(u32),
    /// Tables for so many hosts.
    Tables(u32),
}

impl Cell {
    fn all(quick: bool) -> [Self; 5] {
        match quick {
            true => [
                Self::Packets(4),
                Self::Packets(8),
                Self::Threads(4),
                Self::Fluid(128),
                Self::Tables(128),
            ],
            false => [
                Self::Packets(8),
                Self::Packets(16),
                Self::Threads(16),
                Self::Fluid(10_240),
                Self::Tables(1_024),
            ],
        }
    }

    fn hosts(self) -> u32 {
        match self {
            Self::Packets(ports) | Self::Threads(ports) => u32::from(ports).pow(3) / 4,
            Self::Fluid(hosts) | Self::Tables(hosts) => hosts,
        }
    }

    fn name(&self) -> String {
        let what = match self {
            Self::Packets(_) => "packets",
            Self::Threads(_) => "threads",
            Self::Fluid(_) => "fluid",
            Self::Tables(_) => "tables",
        };
        format!("{what}/{}", self.hosts())
    }

    fn of(name: &str) -> Option<Self> {
        let all = [Self::all(false), Self::all(true)].concat();
        all.into_iter().find(|cell| cell.name() == name)
    }

    /// Metrics, with their units, in the order in which the process tells them.
    fn metrics(self) -> Vec<(String, &'static str)> {
        let fixed: &[(&str, &str)] = match self {
            Self::Packets(_) => &[
                ("wall", "s"),
                ("cpu", "s"),
                ("hops", "1"),
                ("events", "1"),
                ("done", "s"),
            ],
            Self::Threads(_) => &[("one", "s"), ("two", "s"), ("compared", "1")],
            Self::Fluid(_) => &[
                ("routed", "s"),
                ("rotated", "s"),
                ("rotations", "1"),
                ("average", "1"),
            ],
            Self::Tables(_) => &[],
        };
        let mut all: Vec<_> = fixed.iter().map(|(m, u)| ((*m).to_owned(), *u)).collect();
        if let Self::Tables(_) = self {
            for engine in engines() {
                all.push((format!("{}.built", engine.name()), "s"));
                all.push((format!("{}.checked", engine.name()), "s"));
            }
        }
        all.push(("memory".to_owned(), "B"));
        all
    }

    /// Lets a process of its own do it.
    fn measure(self, to: &mut Recorder) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["fabric", &self.name()]);
        let numbers = children::numbers(&mut command, CHILD_MAX)?;
        let metrics = self.metrics();
        ensure!(numbers.len() == metrics.len(), "{numbers:?}");
        for ((metric, unit), value) in metrics.into_iter().zip(&numbers) {
            to.put(metric, *value, unit);
        }
        if let (Self::Packets(_), [wall, cpu, hops, ..]) = (self, &numbers[..]) {
            to.put("rate", hops / wall, "packet-hops/s");
            to.put("rate_of_cpu", hops / cpu, "packet-hops/s");
            to.put("cost", cpu / hops, "s");
        }
        Ok(())
    }

    /// What the process does, and finds.
    fn numbers(self) -> anyhow::Result<Vec<f64>> {
        match self {
            Self::Packets(ports) => packets(ports),
            Self::Threads(ports) => threads(ports),
            Self::Fluid(hosts) => fluid(hosts),
            Self::Tables(hosts) => tables(hosts),
        }
    }
}

/// The process: does a cell and prints what it found.
pub(crate) fn child(name: &str) -> anyhow::Result<()> {
    let cell = Cell::of(name).context("no such cell")?;
    let mut numbers = cell.numbers()?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    numbers.push(peak_bytes()? as f64);
    let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
    println!("{}", words.join(" "));
    Ok(())
}

/// Three levels of chips with so many ports.
fn tree(ports: u8, hosts: Option<u32>, virtual_lanes: u8) -> anyhow::Result<FabricSpec> {
    let port = PortSpec {
        speed: Speed::Edr,
        width: 4,
        buffer_bytes: 128 << 10,
        virtual_lanes,
        credit_ps: 50_000,
    };
    let cable = Cable {
        kind: CableKind::Fibre,
        length_mm: 100_000,
        rated: None,
        electronics_ps: 0,
    };
    let parts = Parts {
        host: HostSpec {
            port,
            bus: None,
            post_ps: 0,
            engine_ps: 0,
            engine_datagram_ps: 0,
            prefetch_packets: 4,
        },
        chip: SwitchSpec {
            ports,
            port,
            latency_ps: 200_000,
            store_and_forward: false,
        },
        host_cable: cable,
        inner_cable: cable,
        outer_cable: cable,
    };
    let tree = Topology::FatTree(FatTree::full(3, ports));
    let network = tree.build(&parts, hosts, Placement::InOrder);
    let mut spec = network.map_err(anyhow::Error::msg)?.spec;
    spec.operational_lanes = virtual_lanes;
    Ok(spec)
}

/// Each host sends to another one, and each receives from one; hosts that drew themselves are silent.
fn permutation(hosts: u32) -> Vec<FlowSpec> {
    let mut rng = units::Rng::new(SEED);
    let mut to: Vec<u32> = (0..hosts).collect();
    for n in (1..to.len()).rev() {
        let other = rng.next_u64() % (n as u64 + 1);
        to.swap(n, usize::try_from(other).unwrap_or(0));
    }
    let pairs = (0..hosts).zip(to).filter(|(from, to)| from != to);
    let flow = |(from, to)| FlowSpec {
        from,
        to,
        transport: Transport::Uc,
        mtu_bytes: 4_096,
        message_bytes: 2_000_000,
        ..FlowSpec::default()
    };
    pairs.map(flow).collect()
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn packets(ports: u8) -> anyhow::Result<Vec<f64>> {
    let spec = tree(ports, None, 1)?;
    let flows = permutation(Cell::Packets(ports).hosts());
    let mut world = World::new(&spec, &flows)?;
    let (at, cpu) = (clock::monotonic(), clock::thread_cpu());
    world.run()?;
    let wall_s = clock::monotonic().saturating_since(at).as_s_f64();
    let cpu_s = (clock::thread_cpu() - cpu).as_s_f64();
    let counters = world.counters();
    let done = (0..flows.len()).map(|n| world.flow(n).last_ps).max();
    Ok(vec![
        wall_s,
        cpu_s,
        counters.packet_hops as f64,
        counters.events as f64,
        done.unwrap_or(0) as f64 / 1e12,
    ])
}

/// Runs on one, two, two and one thread; all that both tell must be equal.
#[allow(clippy::cast_precision_loss, reason = "for people")]
fn threads(ports: u8) -> anyhow::Result<Vec<f64>> {
    let spec = tree(ports, None, 1)?;
    let flows = permutation(Cell::Threads(ports).hosts());
    let mut walls_s = [0.0; 2];
    let mut found: Option<Vec<String>> = None;
    for threads in [1, 2, 2, 1] {
        let mut world = World::new(&spec, &flows)?;
        let at = clock::monotonic();
        parallel::run_in(&mut world, threads, threads)?;
        walls_s[threads - 1] += clock::monotonic().saturating_since(at).as_s_f64() / 2.0;
        let mut told = vec![format!("{:?} {}", world.counters(), world.now_ps())];
        told.extend((0..flows.len()).map(|n| format!("{:?}", world.flow(n))));
        let channels = 0..spec.links.len() * 2;
        told.extend(channels.map(|n| format!("{:?}", world.channel(n / 2, n % 2))));
        told.extend(world.blames().iter().map(|b| format!("{b:?}")));
        let same = found.get_or_insert_with(|| told.clone()) == &told;
        ensure!(same, "{threads} threads give other results than one");
    }
    let compared = found.map_or(0, |f| f.len());
    Ok(vec![walls_s[0], walls_s[1], compared as f64])
}

fn fluid(hosts: u32) -> anyhow::Result<Vec<f64>> {
    let mut spec = tree(36, Some(hosts), 8)?;
    spec.routing = Routing::Managed(Manager::min_hop(1));
    let at = clock::monotonic();
    let graph = Graph::new(&spec);
    let routes = Routes::new(&spec)?;
    let routed = clock::monotonic();
    let mut fluid = Fluid::new(&spec, &graph, &routes, Transport::Rc, 2_048);
    let all = fluid.rotate(hosts, 0..hosts / 2, Sharing::MaxMin);
    let done = clock::monotonic();
    Ok(vec![
        routed.saturating_since(at).as_s_f64(),
        done.saturating_since(routed).as_s_f64(),
        f64::from(hosts / 2),
        all.average / fluid.capacity(0),
    ])
}

fn tables(hosts: u32) -> anyhow::Result<Vec<f64>> {
    let ports = if hosts > 128 { 16 } else { 8 };
    let mut spec = tree(ports, Some(hosts), 8)?;
    let graph = Graph::new(&spec);
    let mut found = Vec::new();
    for engine in engines() {
        spec.routing = Routing::Managed(engine.into());
        let at = clock::monotonic();
        let routes = Routes::new(&spec)?;
        let built = clock::monotonic();
        ensure!(routes.cycle(&graph).is_none(), "{}: a cycle", engine.name());
        let checked = clock::monotonic();
        found.push(built.saturating_since(at).as_s_f64());
        found.push(checked.saturating_since(built).as_s_f64());
    }
    Ok(found)
}

/// Those that route trees.
fn engines() -> impl Iterator<Item = Engine> {
    let all = Engine::ALL.into_iter();
    all.filter(|engine| *engine != Engine::DimensionOrder)
}

/// Runs the benchmark and writes its results.
pub(crate) fn fabric(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let machine = Machine::read(&root);
    let mut cells = Cell::all(options.quick).to_vec();
    let only = options.only.as_deref().unwrap_or_default();
    cells.retain(|cell| cell.name().contains(only));
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 1 } else { ROUNDS });
    let (rows, notes, failed) = run(rounds, &cells, Cell::name, |cell, to, _| cell.measure(to));
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let tables = render(&record);
    println!("{tables}");
    let whole = (!options.quick && options.only.is_none()).then_some(&*tables);
    let written = write(&root, "fabric.json", &record, whole, MARKERS)?;
    eprintln!("results: {}", written.display());
    Ok(if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn render(record: &Record) -> String {
    let mut packets = Table::new(&[
        "hosts",
        "M packet-hops",
        "events a hop",
        "M packet-hops/s",
        "of CPU",
        "ns a hop",
        "of the smallest",
        "MB",
    ]);
    let mut threads = Table::new(&[
        "hosts",
        "one thread, s",
        "two threads, s",
        "times as fast",
        "equal results",
        "MB",
    ]);
    let mut fluid = Table::new(&[
        "hosts",
        "rotations",
        "routes, s",
        "rotations, s",
        "average of peak",
        "MB",
    ]);
    let mut tables = Table::new(&["hosts", "engine", "tables, ms", "check for cycles, ms"]);
    let cells = Cell::all(record.quick);
    let smallest = cells[0].name();
    for cell in cells.iter().filter(|cell| record.has(&cell.name())) {
        let name = cell.name();
        let median = |metric: &str| record.median(&name, metric);
        let hosts = cell.hosts().to_string();
        match cell {
            Cell::Packets(_) => packets.row(vec![
                hosts,
                number(median("hops"), 1e6, 2),
                number(
                    record.median_ratio((&name, "events"), (&name, "hops")),
                    1.0,
                    2,
                ),
                number(median("rate"), 1e6, 2),
                number(median("rate_of_cpu"), 1e6, 2),
                number(median("cost"), 1e-9, 0),
                number(
                    record.median_ratio((&name, "cost"), (&smallest, "cost")),
                    1.0,
                    2,
                ),
                number(median("memory"), 1e6, 0),
            ]),
            Cell::Threads(_) => threads.row(vec![
                hosts,
                number(median("one"), 1.0, 2),
                number(median("two"), 1.0, 2),
                number(record.median_ratio((&name, "one"), (&name, "two")), 1.0, 2),
                number(median("compared"), 1.0, 0),
                number(median("memory"), 1e6, 0),
            ]),
            Cell::Fluid(_) => fluid.row(vec![
                hosts,
                number(median("rotations"), 1.0, 0),
                number(median("routed"), 1.0, 2),
                number(median("rotated"), 1.0, 2),
                number(median("average"), 0.01, 1) + " %",
                number(median("memory"), 1e6, 0),
            ]),
            Cell::Tables(_) => {
                for engine in engines() {
                    let of = |what: &str| median(&format!("{}.{what}", engine.name()));
                    tables.row(vec![
                        hosts.clone(),
                        engine.name().to_owned(),
                        number(of("built"), 1e-3, 1),
                        number(of("checked"), 1e-3, 1),
                    ]);
                }
            }
        }
    }
    let mut text = table::head(record);
    for (title, legend, table) in [
        ("Packets", PACKETS_LEGEND, packets),
        ("Two threads", THREADS_LEGEND, threads),
        ("Rotations as fluids", FLUID_LEGEND, fluid),
        ("Routing tables", TABLES_LEGEND, tables),
    ] {
        text += &format!("\n### {title}\n\n{legend}\n\n{}", table.finish());
    }
    for note in &record.notes {
        text += &format!("\n* {note}");
    }
    text
}

const PACKETS_LEGEND: &str = "A random permutation, 2 MB a flow in packets of 4 KB over 100 Gb/s, three levels of \
    chips, InfiniBand credits: one thread. A packet-hop is a packet over a cable. Ns are the thread's CPU time; MB \
    is the process' peak. Medians over the rounds.";
const THREADS_LEGEND: &str = "The same in one piece on one thread, and in two parts on two threads: one, two, two, one in \
    a process. Equal results are those compared, digit by digit: of each flow, each direction of a cable, each output that \
    waited, and all counters; any difference fails the benchmark.";
const FLUID_LEGEND: &str = "Every rotation of all hosts of three levels of 36-port chips, min-hop tables, max-min \
    shares: one thread.";
const TABLES_LEGEND: &str =
    "Tables of each engine for three levels of chips, and the check of all lanes' dependencies.";
const SEED: u64 = 7;
const CHILD_MAX: Duration = Duration::from_secs(300);
const MARKERS: (&str, &str) = ("<!-- fabric:begin -->", "<!-- fabric:end -->");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_finds_what_it_names_and_stands_in_its_table() {
        let mut rows = Vec::new();
        for cell in Cell::all(true) {
            assert_eq!(Cell::of(&cell.name()), Some(cell));
            let mut recorder = Recorder::new(1, cell.name(), 0.0);
            let mut numbers = cell.numbers().unwrap();
            numbers.push(1e6);
            let metrics = cell.metrics();
            assert_eq!(numbers.len(), metrics.len(), "{cell:?}");
            for ((metric, unit), value) in metrics.into_iter().zip(numbers) {
                assert!(value >= 0.0, "{cell:?} {metric}");
                recorder.put(metric, value, unit);
            }
            rows.extend(recorder.into_parts().0);
        }
        let text = render(&Record::of(Machine::default(), 1, true, Vec::new(), rows));
        assert!(text.contains("| 128   | minhop"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn a_permutation_reaches_each_host_once() {
        let flows = permutation(64);
        let mut to: Vec<u32> = flows.iter().map(|f| f.to).collect();
        to.sort_unstable();
        to.dedup();
        assert_eq!(to.len(), flows.len());
        assert!(flows.iter().all(|f| f.from != f.to));
    }
}
