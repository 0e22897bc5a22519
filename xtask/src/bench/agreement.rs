//! Whether we and iperf3 say the same of one path, each at either end with each.
//!
//! Every pair of ends transfers over the same lab path in turns; what the client says the receiver got
//! is held against what iperf3 says with iperf3 at both ends.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use measure::{Config, Direction, Stop, Transport, iperf3 as theirs};
use units::{Duration, Rate};

use super::children::{Ended, output_within};
use super::iperf3;
use super::record::{Record, Recorder};
use super::site::{CONGESTION_CONTROL, Site};
use super::table::{Table, number};
use super::throughput::interval;

/// One thing measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// TCP from the client to the server.
    Up,
    /// TCP from the server to the client.
    Down,
    /// Datagrams at [`UDP_RATE`] from the client to the server.
    Udp,
}

/// Who is at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Iperf3,
    Ours,
}

/// Client and server; the first is what the others are held against.
const PAIRS: [(Who, Who); 4] = [
    (Who::Iperf3, Who::Iperf3),
    (Who::Ours, Who::Iperf3),
    (Who::Iperf3, Who::Ours),
    (Who::Ours, Who::Ours),
];

impl Who {
    const fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Ours => "ours",
        }
    }
}

impl Cell {
    pub(crate) const ALL: [Self; 3] = [Self::Up, Self::Down, Self::Udp];

    pub(crate) fn name(self) -> String {
        format!("agreement/{}", self.word())
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Udp => "udp",
        }
    }

    /// Measures by every pair of ends; `own` is this program.
    pub(crate) fn measure(
        self,
        round: u32,
        own: &Path,
        healthy: &Path,
        to: &mut Recorder,
    ) -> anyhow::Result<()> {
        let site = Site::lab_file(healthy)?;
        let mut pairs = PAIRS;
        pairs.rotate_left(usize::try_from(round).unwrap_or(0) % PAIRS.len());
        for (client, server) in pairs {
            let name = pair_name(client, server);
            let goodput = self.goodput(&site, own, client, server);
            let goodput = goodput.with_context(|| name.clone())?;
            to.put(format!("{name}.goodput"), goodput, "b/s");
        }
        Ok(())
    }

    /// Bits a second that the client says the receiver got.
    fn goodput(self, site: &Site, own: &Path, client: Who, server: Who) -> anyhow::Result<f64> {
        let (near, far) = (site.near(), site.far());
        let own = own.to_str().context("a path that is no text")?;
        let port = match server {
            Who::Iperf3 => theirs::DEFAULT_PORT,
            Who::Ours => measure::DEFAULT_PORT,
        };
        let address = SocketAddr::from((far.address(), port)).to_string();
        let mut program = match server {
            Who::Iperf3 => far.program("iperf3")?,
            Who::Ours => far.program(own)?,
        };
        match server {
            Who::Iperf3 => program.args(["-s", "-1"]),
            Who::Ours => program.args(["end", "serve", &address]),
        };
        let quiet = program.stdin(Stdio::null()).stdout(Stdio::null());
        let _server = Ended::of(quiet.stderr(Stdio::null()).spawn()?);
        if client == Who::Iperf3 {
            let [port, seconds, omit] =
                [u64::from(port), SECONDS, OMIT_S].map(|number| number.to_string());
            let rate = UDP_RATE.as_bits_per_second().to_string();
            let length = DATAGRAM_BYTES.to_string();
            let mut args = vec!["-p", &port, "-t", &seconds, "-O", &omit];
            match self {
                Self::Up => args.extend(["-C", CONGESTION_CONTROL]),
                Self::Down => args.extend(["-C", CONGESTION_CONTROL, "-R"]),
                Self::Udp => args.extend(["-u", "-b", &rate, "-l", &length]),
            }
            let answer = iperf3::ask_at(&near, &far, &args)?;
            let said = |pointer: &str| iperf3::number(&answer, pointer);
            return Ok(match self {
                Self::Up | Self::Down => said("/end/sum_received/bits_per_second")?,
                Self::Udp => {
                    let lost = said("/end/sum/lost_percent")? / 100.0;
                    said("/end/sum/bits_per_second")? * (1.0 - lost)
                }
            });
        }
        let mut program = near.program(own)?;
        program.args(["end", "agree", server.name(), self.word(), &address]);
        let program = program.stdin(Stdio::null()).stdout(Stdio::piped());
        let text = output_within(program.spawn()?, TIME_LIMIT)?;
        let text = String::from_utf8_lossy(&text);
        text.trim().parse().context("one number expected")
    }
}

fn pair_name(client: Who, server: Who) -> String {
    format!("{}_to_{}", client.name(), server.name())
}

/// Our client, in a process of its own: `xtask end agree SERVER CELL ADDRESS`. Prints bits a second.
pub(crate) fn agree(args: &[&str]) -> anyhow::Result<()> {
    let &[server, cell, address] = args else {
        bail!("three words expected");
    };
    let cell = Cell::ALL.into_iter().find(|c| c.word() == cell);
    let cell = cell.context("no such cell")?;
    let udp = cell == Cell::Udp;
    let base = Config::default();
    let config = Config {
        direction: match cell {
            Cell::Down => Direction::Down,
            Cell::Up | Cell::Udp => Direction::Up,
        },
        ramp: Duration::from_s(OMIT_S),
        duration: Duration::from_s(OMIT_S + SECONDS),
        congestion: (!udp).then(|| CONGESTION_CONTROL.to_owned()),
        ..base
    };
    let stop = Stop::new();
    let goodput = if server == Who::Iperf3.name() {
        let wish = theirs::Wish {
            config,
            udp: udp.then_some(UDP_RATE),
            length: udp.then_some(DATAGRAM_BYTES),
            ..theirs::Wish::default()
        };
        let tested = connect(address, &stop)?.run(&wish, &stop, &mut |_| {})?;
        let half = tested.halves.first().context("nothing was measured")?;
        half.outcome.goodput_after_ramp()
    } else {
        let config = match udp {
            false => config,
            true => Config {
                transport: Transport::Udp,
                rate: Some(UDP_RATE),
                block_bytes: DATAGRAM_BYTES,
                ..config
            },
        };
        let mut client = super::measure::connect(address.parse()?)?;
        let outcome = client.run(&config, &stop, &mut |_| {})?;
        outcome.goodput_after_ramp()
    };
    println!("{}", goodput.as_bits_per_second());
    Ok(())
}

/// The server is started at the same time and may need a moment.
fn connect(address: &str, stop: &Stop) -> anyhow::Result<theirs::Client> {
    let mut tries = 0;
    loop {
        match theirs::Client::connect(address, Duration::from_s(5), stop) {
            Ok(client) => return Ok(client),
            Err(error) if tries == CONNECT_TRIES => return Err(error.into()),
            Err(_) => tries += 1,
        }
        std::thread::sleep(CONNECT_PAUSE);
    }
}

/// The table of these cells, as far as they were measured.
pub(crate) fn render(record: &Record) -> String {
    let mut table = Table::new(&[
        "what",
        "iperf3 to iperf3, Mb/s",
        "ours to iperf3",
        "iperf3 to ours",
        "ours to ours",
    ]);
    let mut any = false;
    for cell in Cell::ALL {
        let name = cell.name();
        if !record.has(&name) {
            continue;
        }
        any = true;
        let metric = |(client, server)| format!("{}.goodput", pair_name(client, server));
        let first = metric(PAIRS[0]);
        let mut row = vec![match cell {
            Cell::Up => "TCP to the server".to_owned(),
            Cell::Down => "TCP from the server".to_owned(),
            Cell::Udp => format!("UDP to the server, {UDP_RATE} offered"),
        }];
        row.push(number(record.median(&name, &first), 1e6, 1));
        let others = PAIRS[1..].iter();
        row.extend(others.map(|&pair| interval(record, &name, &metric(pair), &first)));
        table.row(row);
    }
    match any {
        true => format!(
            "\n### We and iperf3 at either end\n\n{LEGEND}\n\n{}",
            table.finish()
        ),
        false => String::new(),
    }
}

const LEGEND: &str = "Client to server over the path of paths/healthy-1g-20ms.toml, one stream of CUBIC, 4 s \
    after 2 s that do not count; what the client says the receiver got. The last three columns are of \
    iperf3 at both ends: medians of the rounds' ratios, with half of the 95 % confidence interval of \
    their mean.";
const SECONDS: u64 = 4;
const OMIT_S: u64 = 2;
const UDP_RATE: Rate = Rate::from_bits_per_second(500_000_000);
/// Full packets at MTU 1500 over IPv4.
const DATAGRAM_BYTES: u32 = 1_472;
/// Several times the longest transfer here.
const TIME_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);
const CONNECT_TRIES: u32 = 100;
const CONNECT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
