//! What `doctor` and `measure` take, what that means, and their course.

mod growth;
mod messages;
mod plan;
mod stamp;
mod sweep;
mod verbs;

use std::net::SocketAddr;
use std::path::PathBuf;

use ::measure::Dscp;
use clap::{Args, ValueEnum};
use doctor::Scale;
use doctor::observer::Tool;
use job::target::Target;
use sys::endpoint::{self, Endpoint};
use units::{Bytes, Duration, Rate};

use super::share;
use crate::args::sim::GrowthArg;
use crate::print;
use crate::print::live::Screen;
use crate::print::measure::Layout;
use fault::{Failure, Verdict};
use job::Context;

pub(crate) use plan::approach;

const FAR_HOST: &str = "To a far host";

/// What every verb that measures takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct TransferArgs {
    /// Far end: HOST, HOST:PORT, [IPv6%INTERFACE]:PORT (where `goodput serve` runs), iperf3://HOST (where `iperf3 -s` runs),
    /// lab:FILE or lab:NAME.
    /// Without one: lab:columbia-untuned, a 1 Gb/s path of 85 ms with untuned hosts
    pub(crate) target: Option<String>,
    /// Port of the far end, where TARGET names none
    #[arg(short, long, value_name = "PORT", requires = "target", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// In a lab: the same path with rates and queues divided by N, or by what this machine needs (auto); round trips stay
    #[arg(long, value_name = "auto|N")]
    pub(crate) scale: Option<Scale>,
    /// Parallel connections, 1 to 128 [default: the path file's, else 1]
    #[arg(short, long, visible_short_alias = 'P', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) streams: Option<u16>,
    /// Time that data is sent [default: the path file's, else 10s]
    #[arg(
        short,
        long,
        value_name = "TIME",
        visible_alias = "time",
        visible_short_alias = 't'
    )]
    pub(crate) duration: Option<Duration>,
    /// Start of it that is left out of the headline number [default: the path file's, else a fifth]
    #[arg(long, value_name = "TIME")]
    pub(crate) ramp: Option<Duration>,
    /// Who sends: up is this side, down the far one
    #[arg(long, value_enum, default_value_t = DirectionArg::Up)]
    pub(crate) direction: DirectionArg,
    /// Congestion control of the sender [default: the path file's, else the host's]
    #[arg(short, long, value_name = "NAME", visible_alias = "cc")]
    pub(crate) congestion: Option<String>,
    /// Let another tool measure the same lab path in the same run
    #[arg(long, value_enum)]
    pub(crate) observer: Option<ObserverArg>,
    /// Folder that run folders are made in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    pub(crate) runs: PathBuf,
    /// Print the run as JSON (run.json's layout) instead of text
    #[arg(long, visible_short_alias = 'J')]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) approach: ApproachArgs,
}

/// How to come to a far host.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ApproachArgs {
    /// Source address of all connections
    #[arg(long, help_heading = FAR_HOST, value_name = "ADDRESS", value_parser = endpoint::source)]
    pub(crate) bind: Option<SocketAddr>,
    /// Interface that all connections leave and come by
    #[arg(long, help_heading = FAR_HOST, value_name = "IFACE")]
    pub(crate) device: Option<String>,
    /// Mark of the packets of both ends: 0 to 63, or a name such as ef, cs1, af41, le
    #[arg(long, help_heading = FAR_HOST, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    /// File with the token that the far end's `serve --token-file` has; only its owner may read it
    #[arg(long, help_heading = FAR_HOST, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    /// Only diagnose: do not apply the remedy inside the lab
    #[arg(long)]
    pub(crate) no_fix: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    /// Vary a setting over many short transfers: write-size, socket-buffer, send-buffer,
    /// receive-buffer, streams, pacing, mtu (of TCP's packets), message-size (rates and latency of
    /// messages, or datagrams with --udp) or sender (hosts of a lab path), alone, as =FROM..TO,
    /// =FROM..TO/STEPS an octave or =VALUE,VALUE. Twice for two at once
    #[arg(long, value_name = "SETTING", group = "sizes", conflicts_with_all = ["via", "live", "format"])]
    pub(crate) sweep: Vec<String>,
    /// Time that a sweep may take
    #[arg(long, value_name = "TIME", default_value = "3min", requires = "sweep")]
    pub(crate) budget: Duration,
    /// Half of the 95 % confidence interval that a sweep's points are repeated for, per cent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 3.0,
        requires = "sweep"
    )]
    pub(crate) precision: f64,
    /// Seed of the order in which a sweep measures
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sweep")]
    pub(crate) seed: u64,
    /// Measure the round trip while idle and during the transfer, and the queue between them
    #[arg(long, conflicts_with_all = ["messages", "sweep"])]
    pub(crate) latency: bool,
    /// Latency and rates of messages instead of a transfer: a size, several with commas, or FROM..TO
    /// for powers of two; --duration is the time of each measurement [default: 500ms]
    #[arg(long, value_name = "SIZES", group = "sizes")]
    pub(crate) messages: Option<String>,
    /// With messages: both ends ask their sockets again and again instead of sleeping; a CPU each
    #[arg(long, requires = "sizes")]
    pub(crate) spin: bool,
    /// With messages: how many may be unconfirmed where rates are measured [default: 64; over verbs 128]
    #[arg(long = "outstanding", value_name = "N", requires = "sizes", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) outstanding: Option<u32>,
    /// With a target stamp://HOST[:PORT] (UDP 862): probes to send
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// With such a target: time between two probes
    #[arg(long, value_name = "TIME", default_value_t = doctor::stamp::INTERVAL)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) test: TestArgs,
    /// Say what each line of the summary and each key of the files means, and measure nothing
    #[arg(long)]
    pub(crate) explain_columns: bool,
}

/// What `measure` takes beside; much of it only where iperf3 is at the far end.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TestArgs {
    /// The far side sends: --direction down
    #[arg(short = 'R', long, conflicts_with = "direction")]
    pub(crate) reverse: bool,
    /// Both sides send at once (iperf3:// only)
    #[arg(long, conflicts_with_all = ["reverse", "direction"])]
    pub(crate) bidir: bool,
    /// What the payload travels by [default: tcp, or udp with --udp]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportArg>,
    /// UDP at this rate of each stream; 0b/s is as fast as the host can. `search` finds the highest
    /// rate whose loss stays within --loss-limit
    #[arg(short, long, value_name = "RATE", value_parser = udp_arg)]
    pub(crate) udp: Option<UdpArg>,
    /// Share of the datagrams that --udp search may lose, 0 to below 1 or such as 0.1% [default: 0.1%]
    #[arg(long, value_name = "SHARE", value_parser = loss_limit, requires = "udp")]
    pub(crate) loss_limit: Option<f64>,
    /// What --transport tls or quic encrypts with [default: aes-128-gcm]
    #[arg(long, value_enum, requires = "transport")]
    pub(crate) cipher: Option<CipherArg>,
    /// Send without copying (MSG_ZEROCOPY)
    #[arg(long, conflicts_with = "sendfile")]
    pub(crate) zero_copy: bool,
    /// Send a file by sendfile(2), over and over; `generated` is one in memory
    #[arg(long, value_name = "FILE")]
    pub(crate) sendfile: Option<PathBuf>,
    /// Bytes of a write, or of a datagram
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) length: Option<Bytes>,
    /// Pace each stream: at a rate, packet by packet; `auto` to find the path's rate while sending and
    /// hold it just under; `even` to find that of all streams together and give each the same part; application=RATE, write by write; window=SIZE under way
    #[arg(long, value_name = "RATE|auto|...", value_parser = pacing_arg)]
    pub(crate) pacing: Option<PacingArg>,
    /// What Reno's window grows by: bytes, as every Linux does now, or acks, whatever each acknowledges, as Linux
    /// did before 3.13 (a congestion control that is loaded for the run; as root)
    #[arg(long, value_enum, value_name = "GROWTH", conflicts_with_all = ["udp", "messages", "sweep", "fill", "via"])]
    pub(crate) growth: Option<GrowthArg>,
    /// Time between samples of both ends' kernels, 1 ms or more [default: 100ms]
    #[arg(long, visible_short_alias = 'i', value_name = "TIME")]
    pub(crate) every: Option<Duration>,
    /// Socket buffers of both ends [default: tuned by the kernels]
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) window: Option<Bytes>,
    /// End the test after so many bytes of all streams instead of a time (iperf3:// only)
    #[arg(short = 'n', long, value_name = "SIZE", conflicts_with = "duration")]
    pub(crate) bytes: Option<Bytes>,
    /// Ask for the server's own report (iperf3:// only; iperf3-json shows it)
    #[arg(long)]
    pub(crate) get_server_output: bool,
    /// Find the path's rate, then pick streams, congestion control and pacing that hold the path full,
    /// and say what stood in the way. It overloads the path for some seconds before
    #[arg(long, conflicts_with_all = ["udp", "transport", "pacing", "via", "bidir", "bytes", "messages", "sweep"])]
    pub(crate) fill: bool,
    /// In a lab: how parallel streams fared at the queue, from a packet log that is kept in memory until
    /// the end of the run
    #[arg(long, conflicts_with_all = ["udp", "via", "messages", "sweep", "fill"])]
    pub(crate) balance: bool,
    /// With --balance: size of a file that is striped over all streams alike, on the wire
    #[arg(long, value_name = "SIZE", requires = "balance")]
    pub(crate) striped: Option<Bytes>,
    /// Say every second how it goes, also where the output is no terminal
    #[arg(long)]
    pub(crate) live: bool,
    /// Hosts along the path where `goodput serve` runs, the nearest first: each is measured before the
    /// far end, and the leg named that is bad
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub(crate) via: Vec<String>,
    /// What to print
    #[arg(long, value_enum, default_value_t = FormatArg::Text, conflicts_with = "json")]
    pub(crate) format: FormatArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionArg {
    /// This side sends
    Up,
    /// The far side sends
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportArg {
    /// TCP
    Tcp,
    /// Multipath TCP where both kernels have it, else TCP
    Mptcp,
    /// Datagrams at the rate of --udp
    Udp,
    /// TLS 1.3 over TCP, to measure its cipher; nobody is authenticated
    Tls,
    /// QUIC, a connection for each stream; nobody is authenticated
    Quic,
    /// RDMA verbs, reliable connection: with --messages or --sweep message-size, where both ends have
    /// a device; --device names one, as mlx5_0[:PORT[:GID]], or its interface
    VerbsRc,
    /// RDMA verbs, unreliable connection
    VerbsUc,
    /// RDMA verbs, unreliable datagram: messages of up to the path's MTU
    VerbsUd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CipherArg {
    /// AES, 128 bits, in Galois/counter mode
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
    /// AES, 256 bits, in Galois/counter mode
    #[value(name = "aes-256-gcm")]
    Aes256Gcm,
    /// ChaCha20 with Poly1305
    #[value(name = "chacha20-poly1305")]
    Chacha20Poly1305,
}

/// What follows --pacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacingArg {
    /// A rate of each stream, kept by the kernel packet by packet.
    Rate(Rate),
    /// Found while it sends.
    Auto,
    /// An even part of what is found for all streams.
    Even,
    /// A rate of each stream, kept by the application write by write.
    Application(Rate),
    /// What may be under way on each stream.
    Window(Bytes),
}

fn pacing_arg(typed: &str) -> Result<PacingArg, String> {
    let wrong = |e: units::ParseError| e.to_string();
    match typed.split_once('=') {
        Some(("application", rate)) => rate.parse().map(PacingArg::Application).map_err(wrong),
        Some(("window", size)) => size.parse().map(PacingArg::Window).map_err(wrong),
        Some((kind, _)) => Err(format!("'{kind}='; 'application=' or 'window=' work")),
        None if typed == "auto" => Ok(PacingArg::Auto),
        None if typed == "even" => Ok(PacingArg::Even),
        None => typed
            .parse()
            .map(PacingArg::Rate)
            .map_err(|e| format!("{e}, or 'auto', 'even', 'application=RATE', 'window=SIZE'")),
    }
}

/// What follows --udp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpArg {
    /// A rate of each stream.
    Rate(Rate),
    /// The highest that comes through.
    Search,
}

fn udp_arg(typed: &str) -> Result<UdpArg, String> {
    match typed {
        "search" => Ok(UdpArg::Search),
        _ => typed
            .parse()
            .map(UdpArg::Rate)
            .map_err(|e: units::ParseError| format!("{e}, or 'search'")),
    }
}

/// A share of datagrams that leaves some.
fn loss_limit(typed: &str) -> Result<f64, String> {
    let limit = Some(share(typed)?).filter(|share| (0.0..1.0).contains(share));
    limit.ok_or_else(|| "expected a share from 0 to below 1, or such as 0.1%".to_owned())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// A summary
    #[default]
    Text,
    /// The run as JSON, as --json
    Json,
    /// A JSON object a line: one a second while it runs, and a last one with the run
    Jsonl,
    /// What `iperf3 -J` prints
    Iperf3Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObserverArg {
    /// iperf3, inside the lab
    Iperf3,
    /// tshark at both ends of one more connection: what becomes of the options of its SYNs
    Tshark,
}

impl ObserverArg {
    /// The tool that it stands for.
    const fn tool(self) -> Tool {
        match self {
            Self::Iperf3 => Tool::Iperf3,
            Self::Tshark => Tool::Tshark,
        }
    }
}

/// `goodput doctor`.
pub(crate) fn doctor(args: &DoctorArgs, context: &Context) -> Verdict {
    Wanted::of_doctor(args, &TestArgs::default()).run(context)
}

/// `goodput measure`, which is one of several jobs.
pub(crate) fn measure(args: &MeasureArgs, context: &Context) -> Verdict {
    if !args.sweep.is_empty() {
        return sweep::run(args, context);
    }
    if let Some(reflector) = args.reflector() {
        return stamp::run(args, reflector, context);
    }
    if let Some(sizes) = &args.messages {
        return messages::run(args, sizes, context);
    }
    Wanted::of_measure(args).run(context)
}

impl TransferArgs {
    /// Refuses a host that was typed as iperf3 has it, before a lab is made in its place.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let typed = self.congestion.as_deref().filter(|_| self.target.is_none());
        match typed.filter(|name| !is_congestion(name)) {
            Some(name) => Err(Failure::usage(format!(
                "'{name}' is no congestion control: -c is --congestion here; give the host without a flag, as in \
                 `goodput measure {name}`"
            ))),
            None => Ok(()),
        }
    }

    /// What was typed, with the port of `--port`.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        Ok(match Target::parse(self.target.as_deref())? {
            Target::Host(host) => Target::Host(self.with_port(&host)?),
            Target::Iperf3(host) => Target::Iperf3(self.with_port(&host)?),
            Target::Lab(_) if self.port.is_some() => {
                return Err(Failure::usage("--port is a far host's; a lab has its own"));
            }
            lab @ Target::Lab(_) => lab,
        })
    }

    /// A host with the port of `--port`.
    fn with_port(&self, host: &str) -> Result<String, Failure> {
        let Some(port) = self.port else {
            return Ok(host.to_owned());
        };
        let wrong = |problem| Failure::usage(format!("'{host}': {problem}"));
        let endpoint = Endpoint::parse(host).map_err(wrong)?;
        match endpoint.port().filter(|&typed| typed != port) {
            Some(typed) => Err(wrong(format!("--port {port} is not its port {typed}"))),
            None => Ok(endpoint.with_port(port).to_string()),
        }
    }
}

/// Whether Linux or QUIC here has a congestion control of that name, loaded or not.
fn is_congestion(name: &str) -> bool {
    CONGESTION.contains(&name)
        || sys::host::congestion_available()
            .iter()
            .any(|has| has == name)
}

impl MeasureArgs {
    /// The reflector that is to be probed, if the target is one.
    fn reflector(&self) -> Option<&str> {
        self.transfer.target.as_deref()?.strip_prefix("stamp://")
    }

    /// What stands in the target's place, for who asks whether it is a lab.
    pub(crate) fn place(&self) -> Option<&str> {
        self.reflector().or(self.transfer.target.as_deref())
    }
}

/// What a verb that measures once, or before and after a remedy, was asked for.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    /// `doctor` or `measure`.
    verb: &'a str,
    transfer: &'a TransferArgs,
    /// What was typed beside, of `measure`.
    test: &'a TestArgs,
    fix: bool,
    latency: bool,
}

impl<'a> Wanted<'a> {
    const fn of_doctor(args: &'a DoctorArgs, test: &'a TestArgs) -> Self {
        Self {
            verb: "doctor",
            transfer: &args.transfer,
            test,
            fix: !args.no_fix,
            latency: false,
        }
    }

    const fn of_measure(args: &'a MeasureArgs) -> Self {
        Self {
            verb: "measure",
            transfer: &args.transfer,
            test: &args.test,
            fix: false,
            latency: args.latency,
        }
    }

    fn run(&self, context: &Context) -> Verdict {
        let finished = self.perform(context)?;
        print::measure::finished(&finished, layout(self.transfer, self.test))?;
        match finished.failure {
            Some(failure) => Err(failure),
            None => Ok(code(finished.is_answered())),
        }
    }

    fn perform(&self, context: &Context) -> Result<doctor::Finished, Failure> {
        let log = plan::balance_log(self.test)?;
        let read = |end| match &log {
            Some(log) => log.balance(end, self.test.striped),
            None => Err(Failure::here("no packet log")),
        };
        let balance = log.as_ref().map(|log| doctor::BalanceLog {
            file: log.file().to_owned(),
            read: &read,
        });
        let plan = plan::plan(self, balance)?;
        let mut screen = Screen::of(layout(self.transfer, self.test), self.test.live);
        doctor::perform(plan, context, &mut screen)
    }
}

/// Runs a step of `goodput reproduce` as if it had been typed, and keeps it in `runs`.
pub(crate) fn step(
    verb: &str,
    words: &[String],
    runs: &std::path::Path,
    context: &Context,
) -> Result<doctor::Finished, String> {
    let failed = |f: Failure| f.to_string();
    if verb == "doctor" {
        let mut args: DoctorArgs = super::reproduce::parse(words)?;
        args.transfer.runs = runs.to_owned();
        let wanted = Wanted::of_doctor(&args, &TestArgs::default()).perform(context);
        return wanted.and_then(whole).map_err(failed);
    }
    let mut args: MeasureArgs = super::reproduce::parse(words)?;
    args.transfer.runs = runs.to_owned();
    if !args.sweep.is_empty() {
        return sweep::perform(&args, context).map_err(failed);
    }
    let wanted = Wanted {
        latency: false,
        ..Wanted::of_measure(&args)
    };
    wanted.perform(context).and_then(whole).map_err(failed)
}

/// A run that came to its end.
fn whole(finished: doctor::Finished) -> Result<doctor::Finished, Failure> {
    match finished.failure {
        Some(failure) => Err(failure),
        None => Ok(finished),
    }
}

/// How the result is to be printed.
const fn layout(args: &TransferArgs, test: &TestArgs) -> Layout {
    match test.format {
        FormatArg::Text if args.json => Layout::Json,
        FormatArg::Text => Layout::Text,
        FormatArg::Json => Layout::Json,
        FormatArg::Jsonl => Layout::JsonLines,
        FormatArg::Iperf3Json => Layout::Iperf3,
    }
}

/// Zero when the question was answered.
const fn code(is_answered: bool) -> u8 {
    match is_answered {
        true => fault::DONE,
        false => fault::CHECK_FAILED,
    }
}

/// net/ipv4/Kconfig of Linux 6.18, and QUIC's.
const CONGESTION: [&str; 18] = [
    "reno", "newreno", "cubic", "bbr", "bic", "westwood", "htcp", "hybla", "vegas", "nv",
    "scalable", "lp", "veno", "yeah", "illinois", "dctcp", "cdg", "bbr3",
];

pub(crate) const DOCTOR_EXAMPLES: &str = "\
Examples:
  goodput doctor                              a lab of 85 ms on this machine, no set-up needed
  goodput doctor lab:healthy-1g-20ms          another of the built-in paths
  goodput doctor lab:my-path.toml             a path file of your own
  goodput doctor dtn.example.org              a real path; run `goodput serve` over there first
Nothing on a real host is changed; inside the lab the remedy is applied and measured.";

pub(crate) const MEASURE_EXAMPLES: &str = "\
Examples:
  goodput measure dtn.example.org --streams 4 --duration 30s
  goodput measure lab:columbia-untuned --direction down --json
  goodput measure dtn.example.org --sweep write-size --sweep streams=1,4
  goodput measure lab:healthy-1g-20ms --sweep socket-buffer=64KiB..8MiB/4 --budget 5min
  goodput measure dtn.example.org --sweep message-size
  goodput measure dtn.example.org --sweep mtu=1280,1500,9000
  goodput measure dtn.example.org --via campus.example.org,exchange.example.org
  goodput measure dtn.example.org --live | tee log
  goodput measure dtn.example.org --udp search --loss-limit 0.1%
  goodput measure dtn.example.org --transport mptcp --streams 4
  goodput measure dtn.example.org --zero-copy --length 1MiB
  goodput measure iperf3://far.example.org --reverse --time 10s
  goodput measure iperf3://far.example.org --udp 50Mb/s --format iperf3-json
  goodput measure lab:bufferbloat --latency   the round trip idle and under load
  goodput measure dtn.example.org --messages 1..8MiB
  goodput measure dtn.example.org --sweep message-size --transport verbs-rc
  goodput measure stamp://router.example.org --count 1000 --interval 10ms";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_are_read() {
        let rate = |bits| Ok(UdpArg::Rate(Rate::from_bits_per_second(bits)));
        assert_eq!(udp_arg("50Mb/s"), rate(50_000_000));
        assert_eq!(udp_arg("search"), Ok(UdpArg::Search));
        assert!(udp_arg("fast").unwrap_err().contains("'search'"));
        for (typed, limit) in [("0.1%", 0.001), ("0.001", 0.001), ("0", 0.0), ("99%", 0.99)] {
            assert_eq!(loss_limit(typed), Ok(limit), "{typed}");
            // What `lab shell --loss` reads.
            assert_eq!(share(typed), Ok(limit), "{typed}");
        }
        for bad in ["100%", "1", "-1%", "-0.1", "nan", "inf", "", "%"] {
            assert!(loss_limit(bad).is_err(), "{bad}");
        }
        // One per cent typed without its sign is not taken for all.
        assert!(loss_limit("1").unwrap_err().contains("such as 0.1%"));
    }

    #[test]
    fn iperf3s_letters_are_read_and_its_host_is_asked_for_without_a_flag() {
        use crate::args::reproduce::parse;
        let typed = |words: &str| -> MeasureArgs {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            parse(&words).unwrap()
        };
        let args = typed("far -P 4 -t 5s -p 99 -i 1s -J -R -u 5Mb/s");
        assert_eq!(args.transfer.streams, Some(4));
        assert_eq!(args.transfer.duration, Some(Duration::from_s(5)));
        assert_eq!(args.test.every, Some(Duration::from_s(1)));
        assert!(args.transfer.json && args.test.reverse);
        let host = |args: MeasureArgs| args.transfer.target().map(|target| target.name());
        assert_eq!(host(args).unwrap(), "far:99");
        assert_eq!(host(typed("iperf3://[::1] -p 9")).unwrap(), "[::1]:9");
        assert_eq!(host(typed("fe80::1%lo -p 9")).unwrap(), "[fe80::1%lo]:9");
        assert!(
            host(typed("far:8 -p 9"))
                .unwrap_err()
                .to_string()
                .contains("port 8")
        );
        assert!(host(typed("lab:healthy-1g-20ms -p 9")).is_err());
        let refused = typed("-c dtn.example.org").transfer.check().unwrap_err();
        let said = "-c is --congestion here; give the host without a flag";
        assert!(refused.to_string().contains(said), "{refused}");
        assert!(typed("-c bbr").transfer.check().is_ok());
        assert!(typed("far -c whatever").transfer.check().is_ok());
    }

    #[test]
    fn kinds_of_pacing_are_read() {
        let rate = Rate::from_bits_per_second(900_000_000);
        for (typed, wanted) in [
            ("auto", PacingArg::Auto),
            ("even", PacingArg::Even),
            ("900Mb/s", PacingArg::Rate(rate)),
            ("application=900Mb/s", PacingArg::Application(rate)),
            ("window=1MB", PacingArg::Window(Bytes::new(1_000_000))),
        ] {
            assert_eq!(pacing_arg(typed), Ok(wanted));
        }
        assert!(pacing_arg("fast").unwrap_err().contains("'auto'"));
        assert!(pacing_arg("gap=700").unwrap_err().contains("'window='"));
        assert!(pacing_arg("window=").is_err());
    }
}
