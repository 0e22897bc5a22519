//! `cargo xtask bench gateway`: the gateway beside HAProxy in TCP mode with splice(2), over veth.
//!
//! A client, what stands in the middle and a server are namespaces; connections are made by threads of this
//! process. Each cell measures the path without anything in the middle but a router (`direct`), the gateway
//! transparent (`ours`) and explicit (`explicit`), and HAProxy explicit (`haproxy`) and transparent by TPROXY with
//! `usesrc clientip` (`haproxy-transparent`), one after the other, so that a machine that grows slower does so for all. All have one thread. HAProxy is what `haproxy` is in PATH, or what
//! HAPROXY names (Debian: apt-get install haproxy). WHO names some of them, with commas between, where only those are wanted.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use sys::nftables::{self, At, Chain, Expression, IpVersion, Owned};
use sys::transparent::Diversion;

use super::children::{self, Ended};
use super::record::{Machine, Record, Recorder};
use super::table::{self, Table, number};
use super::{Options, run, workspace};

/// What is measured.
#[derive(Clone, Copy, Debug)]
enum Cell {
    /// So many connections that send all the time.
    Bulk(usize),
    /// Connections one after the other, a byte there and back on each.
    Churn,
    /// A byte there and back on one connection.
    Latency,
    /// Connections on which nothing happens.
    Idle(usize),
    /// So many of those, and so many that send all the time.
    Scale(usize, usize),
}

const CELLS: [Cell; 8] = [
    Cell::Bulk(1),
    Cell::Bulk(8),
    Cell::Bulk(64),
    Cell::Churn,
    Cell::Latency,
    Cell::Idle(MANY),
    Cell::Scale(8_000, 800),
    WHOLE,
];

/// With both ends in this process, as many as 20,000 descriptors are for.
const MANY: usize = 9_000;
/// What the gateway is made for; needs more.
const WHOLE: Cell = Cell::Scale(10_000, 1_000);

/// Who is in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Direct,
    Ours,
    Explicit,
    Haproxy,
    HaproxyTransparent,
}

const WHO: [(Who, &str); 5] = [
    (Who::Direct, "direct"),
    (Who::Ours, "ours"),
    (Who::Explicit, "explicit"),
    (Who::Haproxy, "haproxy"),
    (Who::HaproxyTransparent, "haproxy-transparent"),
];

impl Cell {
    fn name(&self) -> String {
        match self {
            Self::Bulk(n) => format!("gateway/bulk/{n}"),
            Self::Churn => "gateway/churn".into(),
            Self::Latency => "gateway/latency".into(),
            Self::Idle(n) => format!("gateway/idle/{n}"),
            Self::Scale(idle, busy) => format!("gateway/scale/{idle}/{busy}"),
        }
    }

    /// At a time.
    const fn connections(&self, quick: bool) -> usize {
        let part = if quick { 10 } else { 1 };
        match self {
            Self::Bulk(count) => *count,
            Self::Churn | Self::Latency => 2,
            Self::Idle(count) => *count / part,
            Self::Scale(still, busy) => *still / part + *busy / part,
        }
    }

    fn measure(&self, program: &Path, quick: bool, to: &mut Recorder) -> anyhow::Result<()> {
        let time = Duration::from_secs(if quick { 1 } else { 4 });
        // Both ends of each are here, and as many in the middle.
        let need = 2 * self.connections(quick) as u64 + 512;
        let have = gateway::make_room_for(self.connections(quick));
        if have < need {
            to.note(&format!("not without {need} descriptors; here are {have}"));
            return Ok(());
        }
        // Some of them alone, where two are compared in alternation.
        let named = std::env::var("WHO").unwrap_or_default();
        for (who, name) in WHO {
            if !named.is_empty() && !named.split(',').any(|n| n == name) {
                continue;
            }
            let site = Site::new()?;
            let server = Server::start(&site)?;
            let Some(middle) = Middle::start(who, &site, program, server.addr)? else {
                to.note("haproxy is missing");
                continue;
            };
            let target = middle.target;
            match self {
                Self::Bulk(count) => {
                    let before = middle.cpu_s();
                    let (bytes, seconds) = bulk(&site, target, *count, time)?;
                    to.put(format!("{name}.rate"), bytes * 8.0 / seconds, "bit/s");
                    if let (Some(before), Some(after)) = (before, middle.cpu_s()) {
                        let per_gb = (after - before) / (bytes / 1e9);
                        to.put(format!("{name}.cpu_per_gb"), per_gb, "s/GB");
                    }
                }
                Self::Churn => {
                    let count = churn(&site, target, time)?;
                    let rate = count / time.as_secs_f64();
                    to.put(format!("{name}.connections"), rate, "1/s");
                }
                Self::Latency => {
                    let mut times = latency(&site, target, time)?;
                    times.sort_unstable();
                    for (key, permille) in [("p50", 500), ("p99", 990)] {
                        let at = (times.len() * permille / 1000).min(times.len() - 1);
                        to.put(format!("{name}.{key}"), times[at].as_secs_f64(), "s");
                    }
                }
                Self::Idle(count) => {
                    let count = if quick { count / 10 } else { *count };
                    let held = idle(&site, target, count)?;
                    if let Some(bytes) = middle.resident_bytes() {
                        to.put(format!("{name}.resident"), bytes, "B");
                    }
                    drop(held);
                }
                Self::Scale(still, busy) => {
                    let part = if quick { 10 } else { 1 };
                    let before = slab_bytes()?;
                    let held = idle(&site, target, still / part)?;
                    let most = Peak::of(&middle);
                    let (bytes, seconds) = bulk(&site, target, busy / part, time)?;
                    to.put(format!("{name}.rate"), bytes * 8.0 / seconds, "bit/s");
                    let (resident, kernel) = most.end();
                    if let Some(resident) = resident {
                        to.put(format!("{name}.resident"), resident, "B");
                    }
                    if let Some(kernel) = kernel {
                        to.put(format!("{name}.kernel"), kernel - before, "B");
                    }
                    drop(held);
                }
            }
        }
        Ok(())
    }
}

/// Three namespaces and two links.
struct Site {
    client: NetNs,
    middle: NetNs,
    server: NetNs,
}

const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 2);
const PORT: u16 = 5001;

impl Site {
    fn new() -> anyhow::Result<Self> {
        let site = Self {
            client: NetNs::create()?,
            middle: NetNs::create()?,
            server: NetNs::create()?,
        };
        // Whatever this machine's own choice is: a paced one measures timers here.
        for host in [&site.client, &site.middle, &site.server] {
            let file = "/proc/sys/net/ipv4/tcp_congestion_control";
            // A namespace may have what net.ipv4.tcp_allowed_congestion_control names, and reno always.
            host.run(|| fs::write(file, "cubic").or_else(|_| fs::write(file, "reno")))??;
        }
        site.join(&site.client, 1, "in0")?;
        site.join(&site.server, 2, "out0")?;
        site.middle.run(|| -> io::Result<()> {
            Netlink::open()?.set_up("lo", None)?;
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        })??;
        // Ports of connections that have just ended are used again: churn would run out of them.
        site.client
            .run(|| fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65000"))??;
        Ok(site)
    }

    fn join(&self, host: &NetNs, number: u8, name: &str) -> anyhow::Result<()> {
        let near = Ipv4Addr::new(198, 18, number, 1);
        let far = Ipv4Addr::new(198, 18, number, 2);
        self.middle.run(|| -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            let there = VethEnd {
                name: "eth0",
                mac: [2, 0, 0, 0, number, 2],
                netns: host.as_fd(),
            };
            let here = VethEnd {
                name,
                mac: [2, 0, 0, 0, number, 1],
                netns: self.middle.as_fd(),
            };
            netlink.add_veth(there, here)?;
            netlink.add_address(name, near, 24)?;
            netlink.set_up(name, None)
        })??;
        host.run(|| -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            netlink.set_up("lo", None)?;
            netlink.add_address("eth0", far, 24)?;
            netlink.set_up("eth0", None)?;
            let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            netlink.add_route("eth0", any, 0, near.into())
        })??;
        Ok(())
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.client.run(|| connect(to))?
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(10))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// Answers each connection by its first byte: swallows, echoes, or waits.
struct Server {
    addr: SocketAddr,
    /// Those that wait, until it goes.
    waiting: Arc<Mutex<Vec<TcpStream>>>,
}

impl Server {
    /// Its threads end with their connections, the acceptor with this process.
    fn start(site: &Site) -> anyhow::Result<Self> {
        let listener = site
            .server
            .run(|| TcpListener::bind(SocketAddr::from((SERVER, 0))))??;
        let addr = listener.local_addr()?;
        let waiting: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let its = Arc::clone(&waiting);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let mut kind = [0];
                match stream.read_exact(&mut kind).map(|()| kind[0]) {
                    Ok(b'1') => {
                        let _ = stream.write_all(b"1");
                    }
                    Ok(b'i') => its
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(stream),
                    Ok(kind) => {
                        thread::spawn(move || serve(stream, kind));
                    }
                    Err(_) => {}
                }
            }
        });
        Ok(Self { addr, waiting })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.clear();
    }
}

fn serve(mut stream: TcpStream, kind: u8) {
    let _ = stream.set_nodelay(true);
    let mut buffer = vec![0; 128 << 10];
    let mut sum = 0_u64;
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        sum += read as u64;
        if kind == b'e' && stream.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
    // What arrived counts, not what was sent.
    let _ = stream.write_all(&sum.to_be_bytes());
}

/// What is in the middle.
struct Middle {
    target: SocketAddr,
    child: Option<(Ended, u32)>,
    _diverted: Option<Owned>,
}

impl Middle {
    fn start(
        who: Who,
        site: &Site,
        program: &Path,
        server: SocketAddr,
    ) -> anyhow::Result<Option<Self>> {
        let here = SocketAddr::from((NEAR, PORT));
        let (listen, to) = (here.to_string(), server.to_string());
        let mut diverted = None;
        let (mut command, target) = match who {
            Who::Direct => {
                let middle = Self {
                    target: server,
                    child: None,
                    _diverted: None,
                };
                middle.wait_until_it_answers(site, who)?;
                return Ok(Some(middle));
            }
            Who::Ours => {
                let mut command = Command::new(program);
                command.args(["gateway", "--inside", "in0", "--outside", "out0"]);
                (command, server)
            }
            Who::Explicit => {
                let mut command = Command::new(program);
                command.args(["gateway", "--listen", &listen, "--target", &to]);
                (command, here)
            }
            Who::Haproxy | Who::HaproxyTransparent => {
                let Some(program) = haproxy() else {
                    return Ok(None);
                };
                let file = workspace().join("target/bench/haproxy.cfg");
                fs::create_dir_all(workspace().join("target/bench"))?;
                let (listen, source, target) = match who {
                    Who::Haproxy => (listen, "", here),
                    _ => {
                        diverted = Some(divert(site, server)?);
                        let at = format!("127.0.0.1:{PORT} transparent");
                        (at, "  source 0.0.0.0 usesrc clientip\n", server)
                    }
                };
                fs::write(&file, haproxy_config(&listen, &to) + source)?;
                let mut command = Command::new(program);
                command.arg("-db").arg("-f").arg(file);
                (command, target)
            }
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = site.middle.place(&mut command)?.spawn()?;
        let id = child.id();
        let middle = Self {
            target,
            child: Some((Ended::of(child), id)),
            _diverted: diverted,
        };
        middle.wait_until_it_answers(site, who)?;
        Ok(Some(middle))
    }

    fn wait_until_it_answers(&self, site: &Site, who: Who) -> anyhow::Result<()> {
        // An emulated machine takes its time.
        for _ in 0..1200 {
            thread::sleep(Duration::from_millis(25));
            let ready = match who {
                Who::Ours => site
                    .middle
                    .run(|| -> io::Result<bool> { Ok(Netlink::open()?.routes_in(4710)? > 0) })??,
                // Without a listener a connection would pass to the server itself.
                Who::HaproxyTransparent => site
                    .middle
                    .run(|| connect(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))))?
                    .is_ok(),
                _ => site.connect(self.target).is_ok(),
            };
            if ready {
                // The table follows the route at once.
                thread::sleep(Duration::from_millis(100));
                return Ok(());
            }
        }
        bail!("{who:?} does not answer")
    }

    /// CPU time of the process, to 10 ms.
    fn cpu_s(&self) -> Option<f64> {
        let (_, id) = self.child.as_ref()?;
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // proc(5): utime and stime are the 12th and 13th after the name in parentheses.
        let rest = stat.rsplit_once(')')?.1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / TICKS_A_SECOND)
    }

    fn resident_bytes(&self) -> Option<f64> {
        resident(self.child.as_ref()?.1)
    }
}

/// Gives what goes to the server to a transparent listener, and answers to the clients' addresses back to it (the kernel's
/// Documentation/networking/tproxy.rst).
fn divert(site: &Site, server: SocketAddr) -> anyhow::Result<Owned> {
    use Expression as E;
    let diversion = Diversion {
        mark: 1,
        table: 100,
        priority: 100,
    };
    let divert = [E::SetMark(diversion.mark), E::Accept];
    let stands = [&[E::Tcp, E::TransparentSocket][..], &divert].concat();
    let at = E::ToSocket(Ipv4Addr::LOCALHOST.into(), PORT);
    let new = [
        E::FromInterface("in0".into()),
        E::Version(IpVersion::V4),
        E::Tcp,
        E::DestinationElsewhere,
        at,
    ];
    let table = nftables::Table {
        name: "bench-divert".into(),
        chains: vec![Chain {
            name: "divert".into(),
            at: At::Prerouting,
            priority: -150,
            rules: vec![stands, [&new[..], &divert].concat()],
        }],
    };
    anyhow::ensure!(server.is_ipv4(), "an IPv4 server");
    site.middle
        .run(|| -> io::Result<Owned> {
            diversion.add(&mut Netlink::open()?, Ipv4Addr::UNSPECIFIED.into())?;
            Owned::install(&table)
        })?
        .map_err(Into::into)
}

/// The most memory that a process has while something goes on, and the most of the kernel's own.
struct Peak {
    done: Arc<AtomicBool>,
    thread: thread::JoinHandle<(Option<f64>, Option<f64>)>,
}

impl Peak {
    fn of(middle: &Middle) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let (seen, id) = (Arc::clone(&done), middle.child.as_ref().map(|(_, id)| *id));
        let more = |most: Option<f64>, now: Option<f64>| if now > most { now } else { most };
        let thread = thread::spawn(move || {
            let (mut most, mut kernel) = (None, None);
            while !seen.load(Ordering::Relaxed) {
                most = more(most, id.and_then(resident));
                kernel = more(kernel, slab_bytes().ok());
                thread::sleep(Duration::from_millis(50));
            }
            (most, kernel)
        });
        Self { done, thread }
    }

    fn end(self) -> (Option<f64>, Option<f64>) {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn resident(id: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024.0)
}

/// What the kernel's own objects take, of everybody: sockets of all three and their ends included.
fn slab_bytes() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("Slab:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB"));
    Ok(kib.context("no Slab in /proc/meminfo")?.parse::<f64>()? * 1024.0)
}

fn haproxy() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("HAPROXY") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join("haproxy"))
        .find(|file| file.exists())
}

fn haproxy_config(listen: &str, to: &str) -> String {
    // It does not begin with fewer descriptors than these need.
    let have = gateway::make_room_for(0);
    let (most, pipes) = if have < 30_000 {
        (MANY + 100, 400)
    } else {
        (12_000, 1_000)
    };
    format!(
        "global\n  nbthread 1\n  maxconn {most}\n  maxpipes {pipes}\n\
         defaults\n  mode tcp\n  option splice-auto\n  timeout connect 10s\n  \
         timeout client 300s\n  timeout server 300s\n\
         listen bench\n  bind {listen}\n  server s {to}\n"
    )
}

/// Bytes that arrived of so many connections that send for `time`, and how long it took until the last had:
/// what waits in buffers at the end takes its time, too.
fn bulk(site: &Site, to: SocketAddr, count: usize, time: Duration) -> anyhow::Result<(f64, f64)> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = site.connect(to)?;
        // For the sum, which comes when all buffers are empty: those of a thousand take long.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(b"b")?;
        streams.push(stream);
    }
    let begin = Instant::now();
    let end = begin + time;
    let total = AtomicU64::new(0);
    thread::scope(|scope| {
        for stream in &mut streams {
            let total = &total;
            scope.spawn(move || {
                let block = vec![0x5a; 128 << 10];
                while Instant::now() < end {
                    if stream.write_all(&block).is_err() {
                        return;
                    }
                }
                let mut sum = [0; 8];
                let _ = stream.shutdown(Shutdown::Write);
                if stream.read_exact(&mut sum).is_ok() {
                    total.fetch_add(u64::from_be_bytes(sum), Ordering::Relaxed);
                }
            });
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "bytes of some seconds")]
    Ok((total.into_inner() as f64, seconds))
}

/// Connections that were made, answered and ended in `time`, two at a time.
fn churn(site: &Site, to: SocketAddr, time: Duration) -> anyhow::Result<f64> {
    let end = Instant::now() + time;
    let (count, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let work = || -> io::Result<()> {
                    site.client.enter()?;
                    while Instant::now() < end {
                        let mut stream = connect(to)?;
                        stream.write_all(b"1")?;
                        stream.read_exact(&mut [0])?;
                        // The server has ended; so no port rests in TIME-WAIT here.
                        stream.read_to_end(&mut Vec::new())?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                };
                if let Err(e) = work() {
                    eprintln!("churn: {e}");
                    failed.store(true, Ordering::Relaxed);
                }
            });
        }
    });
    anyhow::ensure!(!failed.into_inner(), "a connection failed");
    #[allow(clippy::cast_precision_loss, reason = "connections of some seconds")]
    Ok(count.into_inner() as f64)
}

fn latency(site: &Site, to: SocketAddr, time: Duration) -> anyhow::Result<Vec<Duration>> {
    let mut stream = site.connect(to)?;
    stream.write_all(b"e")?;
    let end = Instant::now() + time;
    let mut times = Vec::new();
    while Instant::now() < end {
        let begin = Instant::now();
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        times.push(begin.elapsed());
        // As a program that thinks: back to back would measure who spins.
        thread::sleep(Duration::from_micros(200));
    }
    anyhow::ensure!(!times.is_empty(), "no byte came back");
    Ok(times)
}

fn idle(site: &Site, to: SocketAddr, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut held = Vec::with_capacity(count);
    site.client.run(|| -> io::Result<()> {
        for _ in 0..count {
            let mut stream = connect(to)?;
            stream.write_all(b"i")?;
            held.push(stream);
        }
        Ok(())
    })??;
    thread::sleep(Duration::from_secs(1));
    Ok(held)
}

/// In a virtual machine, whose root may have as many descriptors as it likes: the cell that needs them, unless
/// another one is named. Rows go to bench/gateway-guest.json.
fn in_guest(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let whole = WHOLE.name();
    let only = options.only.as_ref().unwrap_or(&whole);
    // The words are one of the kernel's command line, with commas between them.
    anyhow::ensure!(!only.contains(','), "--guest takes one name for --only");
    let rounds = options.rounds.unwrap_or(1).to_string();
    let mut command = Command::new(root.join("bench/netem-guest/run.sh"));
    command.args(["gateway", "--rounds", &rounds, "--only", only]);
    if options.quick {
        command.arg("--quick");
    }
    if options.quick || options.only.is_some() {
        command.env("OUT", root.join("target/bench/gateway-guest.json"));
        fs::create_dir_all(root.join("target/bench"))?;
    }
    command.env("GOODPUT", children::program()?);
    command.env("XTASK", std::env::current_exe()?);
    let ended = command.stdin(Stdio::null()).status();
    let ended = ended.context("running bench/netem-guest/run.sh")?;
    Ok(if ended.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Measures and keeps rows and table.
pub(crate) fn gateway(options: &Options) -> anyhow::Result<ExitCode> {
    if options.guest {
        return in_guest(options);
    }
    let root = workspace();
    let program = children::program()?;
    let machine = Machine::read(&root);
    let only = options.only.as_deref().unwrap_or_default();
    let mut cells = CELLS.to_vec();
    cells.retain(|cell| only.split(',').any(|name| cell.name().contains(name)));
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 5 });
    let (rows, notes, failed) = run(rounds, &cells, Cell::name, |cell, to, _| {
        cell.measure(&program, options.quick, to)
    });
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let text = tables(&record);
    println!("{text}");
    let file = match options.quick || options.only.is_some() {
        false => root.join("bench/gateway.json"),
        true => root.join("target/bench/gateway.json"),
    };
    fs::create_dir_all(root.join("target/bench"))?;
    fs::write(&file, record.to_json()?)?;
    if !options.quick && options.only.is_none() {
        let page = root.join("bench/README.md");
        let old = fs::read_to_string(&page)?;
        let new = table::put_between(&old, &text, MARKERS).context("the page lacks the markers")?;
        fs::write(page, new)?;
    }
    eprintln!("results: {}", file.display());
    Ok(if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn tables(record: &Record) -> String {
    let mut table = Table::new(&[
        "",
        "direct",
        "ours",
        "explicit",
        "HAProxy",
        "HAProxy transparent",
    ]);
    let mut row = |cell: Cell, title: &str, key: &str, scale: f64, decimals: usize| {
        let mut columns = vec![title.to_owned()];
        for (_, who) in WHO {
            let median = record.median(&cell.name(), &format!("{who}.{key}"));
            columns.push(number(median, scale, decimals));
        }
        table.row(columns);
    };
    for count in [1, 8, 64] {
        let cell = Cell::Bulk(count);
        row(cell, &format!("{count} connections, Gb/s"), "rate", 1e9, 2);
        row(
            cell,
            &format!("{count} connections, CPU ms/GB"),
            "cpu_per_gb",
            1e-3,
            0,
        );
    }
    row(Cell::Churn, "connections a second", "connections", 1.0, 0);
    row(Cell::Latency, "byte there and back, p50 us", "p50", 1e-6, 0);
    row(Cell::Latency, "the same, p99 us", "p99", 1e-6, 0);
    row(
        Cell::Idle(MANY),
        "9,000 idle connections, MB",
        "resident",
        1e6,
        1,
    );
    for (scale, title) in [
        (Cell::Scale(8_000, 800), "8,000 idle and 800 busy"),
        (WHOLE, "10,000 idle and 1,000 busy"),
    ] {
        row(scale, &format!("{title}, Gb/s"), "rate", 1e9, 2);
        row(scale, &format!("{title}, MB"), "resident", 1e6, 1);
        let kernel = format!("{title}, kernel's objects of all, MB");
        row(scale, &kernel, "kernel", 1e6, 0);
    }
    format!("{}\n{}", table::head(record), table.finish())
}

const MARKERS: (&str, &str) = ("<!-- gateway:begin -->", "<!-- gateway:end -->");
/// USER_HZ.
const TICKS_A_SECOND: f64 = 100.0;
