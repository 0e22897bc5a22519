//! What can be typed. Meaning is given to it elsewhere; nothing here touches the world.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use measure::Dscp;
use units::{Bytes, Duration, Rate};

use crate::copy_verb::job::AgentArgs;
use crate::copy_verb::{COPY_EXAMPLES, CopyArgs};
use crate::fabric_verb::{FABRIC_EXAMPLES, FabricArgs};
use crate::gateway_verb::{GATEWAY_EXAMPLES, GatewayArgs};
use crate::lab_verb::{LAB_EXAMPLES, LabArgs};
use crate::rotate_verb::{ROTATE_EXAMPLES, RotateArgs};
use crate::sim_verb::{GrowthArg, SIM_EXAMPLES, SimArgs};

/// Measures, explains, reproduces and fixes what keeps fast networks from being filled, and proves
/// the gain.
#[derive(Debug, Parser)]
#[command(
    name = "goodput",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Explain what is done; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Find what limits a path, apply the remedy where that is safe, and prove the gain
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Measure TCP, MPTCP, UDP, TLS or messages, memory to memory, and say where the time went
    #[command(after_help = MEASURE_EXAMPLES)]
    Measure(Box<MeasureArgs>),
    /// Be the far end of measurements
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Write the packets of an interface to a file: pcapng, headers only, drops counted
    #[command(after_help = CAPTURE_EXAMPLES)]
    Capture(CaptureArgs),
    /// Say of every TCP connection in captures why it was no faster, with the packets that prove it
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Put programs behind a path: a shell, or labs in the background
    #[command(after_help = LAB_EXAMPLES)]
    Lab(LabArgs),
    /// Run a path in virtual time: every packet, no network, no privilege
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Run a cluster fabric in virtual time: cables, switches, credits, virtual lanes
    #[command(after_help = FABRIC_EXAMPLES)]
    Fabric(FabricArgs),
    /// Have pairs of a cluster's hosts send at once, as CBench's rotate: who gets how much, and why
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(RotateArgs),
    /// Copy files and folders to, from or between hosts: checked, resumable, at the path's speed
    #[command(after_help = COPY_EXAMPLES)]
    Copy(Box<CopyArgs>),
    /// End TCP connections between two networks and go on with others: each half at its best
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(Box<GatewayArgs>),
    /// The far side of a copy, as ssh starts it
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Draw the report of a run again, or compare runs
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Run what the seed documents describe and compare the numbers; without an id, show the board
    #[command(after_help = REPRODUCE_EXAMPLES)]
    Reproduce(ReproduceArgs),
    /// Print shell completions
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the command or of one verb
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The verb, such as doctor
        verb: Option<String>,
    },
}

/// What every verb that measures takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct TransferArgs {
    /// Far end: HOST, HOST:PORT (where `goodput serve` runs), iperf3://HOST (where `iperf3 -s` runs),
    /// lab:FILE or lab:NAME.
    /// Without one: lab:columbia-untuned, a 1 Gb/s path of 85 ms with untuned hosts
    pub(crate) target: Option<String>,
    /// Parallel connections, 1 to 128 [default: the path file's, else 1]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) streams: Option<u16>,
    /// Time that data is sent [default: the path file's, else 10s]
    #[arg(short, long, value_name = "TIME", visible_alias = "time")]
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
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) approach: ApproachArgs,
}

/// How to come to a far host.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ApproachArgs {
    /// Source address of all connections
    #[arg(long, help_heading = FAR_HOST, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
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
    #[arg(long, value_name = "TIME", default_value_t = crate::stamp::INTERVAL)]
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
    #[arg(long, value_name = "TIME")]
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

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on: ADDRESS, ADDRESS:PORT or [IPv6]:PORT. Only this machine can reach the
    /// default; 0.0.0.0 or [::] opens it to every network
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) listen: String,
    /// Listen on iperf3's port too, 5201 unless another is named. Both ports answer both protocols
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "5201", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) iperf3: Option<u16>,
    /// Clients served at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: u32,
    /// Of these, clients from one address (of IPv6, one /64) [default: all but one; with --dir, all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients_per_address: Option<u32>,
    /// Log a line for what each client asks for and gets, on stderr
    #[arg(long)]
    pub(crate) log_clients: bool,
    /// Serve only who has the token in this file, which only its owner may read. Of measurements, nothing is
    /// encrypted; of copies, all is
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve copies from and to what is below this folder, in place of measurements, on port 5212
    #[arg(long, value_name = "DIR", conflicts_with_all = ["iperf3", "iperf3_open", "metrics", "ranks", "stamp"])]
    pub(crate) dir: Option<PathBuf>,
    /// Let clients of --dir write and delete there
    #[arg(long, requires = "dir")]
    pub(crate) writable: bool,
    /// Certificate of --dir for its clients to check, in PEM, with those between it and its authority
    #[arg(long, value_name = "FILE", requires_all = ["dir", "key"])]
    pub(crate) certificate: Option<PathBuf>,
    /// Key of --certificate, in PEM; only its owner may read it
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Serve only clients with a certificate that one of these authorities signed, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["dir", "certificate"])]
    pub(crate) client_ca: Option<PathBuf>,
    /// Revocation lists (CRL) of these authorities, in PEM, read at the start: no certificate on one is let in, nor one of an
    /// authority that has none here or whose list is out of date
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    pub(crate) client_crl: Option<PathBuf>,
    /// Serve iperf3's clients without the token, which they cannot have
    #[arg(long, requires = "token_file")]
    pub(crate) iperf3_open: bool,
    /// Answer GET /metrics (OpenMetrics) on this port of 127.0.0.1, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub(crate) metrics: Option<String>,
    /// A client that says nothing for this long is dropped
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) silence: Duration,
    /// Send at most this rate in all to clients without the token, such as 1Gb/s
    #[arg(long, value_name = "RATE", conflicts_with = "dir")]
    pub(crate) rate_max: Option<Rate>,
    /// Let clients have this host connect to other hosts, and send to those that serve so: for
    /// `goodput rotate`. Where others than the cluster reach it, with --token-file
    #[arg(long)]
    pub(crate) ranks: bool,
    /// Also reflect STAMP probes (RFC 8762) on this UDP port; below 1024 takes a privilege
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "862")]
    pub(crate) stamp: Option<u16>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CaptureArgs {
    /// Interface, such as eth0
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,
    /// Which packets, in tcpdump's language, such as: host 192.0.2.1 and tcp port 443
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
    /// File to write: pcapng, or with nanoseconds in the classic format where the name ends in .pcap; - is
    /// stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<Duration>,
    /// Stop after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) packets: Option<u64>,
    /// Stop before more than so many bytes are written, all files together
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<Bytes>,
    /// Bytes kept of each packet: 128 are the headers of all that is not tunnelled, with 192 also of what is
    #[arg(long, value_name = "N", default_value_t = capture::live::HEADERS_BYTES,
          value_parser = clap::value_parser!(u32).range(14..=262_144), conflicts_with = "whole")]
    pub(crate) snaplen: u32,
    /// Keep whole packets
    #[arg(long)]
    pub(crate) whole: bool,
    /// Packets that come in, go out, or both
    #[arg(long, value_enum, default_value_t = WayArg::Both)]
    pub(crate) direction: WayArg,
    /// Also packets that are not addressed to this host
    #[arg(long)]
    pub(crate) promiscuous: bool,
    /// Whose clock stamps packets
    #[arg(long, value_enum, default_value_t = StampsArg::Auto)]
    pub(crate) stamps: StampsArg,
    /// Begin another file before one gets larger than this
    #[arg(long, value_name = "SIZE")]
    pub(crate) file_size: Option<Bytes>,
    /// Begin another file after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) file_time: Option<Duration>,
    /// Keep the newest N files of those, remove the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) files: Option<u32>,
    /// Write over a file that is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Memory of the kernel for packets that wait to be written, 256KiB to 2GiB
    #[arg(long, value_name = "SIZE", default_value_t = capture::live::RING)]
    pub(crate) buffer: Bytes,
    /// Print what was captured as JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Captures: pcap or pcapng, plain or in gzip or zstd; - is standard input. Or an interface, such as eth0,
    /// and behind it which packets, in tcpdump's language. Or lab:FILE or lab:NAME, a path that is filled.
    /// Or a lab's packet log (FILE.gplog)
    #[arg(required = true, value_name = "FILE|IFACE|lab:PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// Also when packets came: gaps, bursts, rates in sections, order of parallel streams
    #[arg(long)]
    pub(crate) spacing: bool,
    /// Length of these sections, 100ns to 4.2s; may be repeated [default: 5ms and 300ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) section: Vec<Duration>,
    /// Width of the gaps' bins [default: as fine as the stamps tell apart]
    #[arg(long, value_name = "TIME")]
    pub(crate) bin: Option<Duration>,
    /// The line's rate: gaps are then also told without the packets' own time
    #[arg(long, value_name = "RATE")]
    pub(crate) line_rate: Option<Rate>,
    /// Have another program work out the spacing from the same packets, and compare
    #[arg(long, value_enum, value_name = "TOOL")]
    pub(crate) observer: Option<SpacingObserverArg>,
    /// End of an interface's capture [default: Ctrl-C]; time that a path is filled
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<Duration>,
    /// Memory of the kernel for an interface's packets that wait to be read, 256KiB to 2GiB [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer: Option<Bytes>,
    /// Fill lab:PATH in virtual time, with a gap of so many octets behind each frame, several in turn; without
    /// this it is filled in real time, by iperf3
    #[arg(long, value_name = "OCTETS", value_delimiter = ',')]
    pub(crate) gaps: Vec<u32>,
    /// Match two captures packet by packet: which way losses and delays were. auto does so where both hold
    /// the same packets
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = MatchArg::Auto)]
    pub(crate) r#match: MatchArg,
    /// Also write connections.parquet and intervals.parquet into the run folder: every connection, and each
    /// slice of its time
    #[arg(long)]
    pub(crate) parquet: bool,
    /// Folder that run folders are made in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    pub(crate) runs: PathBuf,
    /// Threads, 1 to 16 [default: as many as there are CPUs, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) threads: Option<u8>,
    /// Print the run as JSON (run.json's layout) instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who works out the spacing as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpacingObserverArg {
    /// Wireshark's
    Tshark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MatchArg {
    /// Where two captures have packets in common
    Auto,
    /// Fail where they have none
    Always,
    /// Each by itself
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WayArg {
    /// What comes in
    In,
    /// What goes out
    Out,
    /// Both; of loopback, which shows each packet twice, what comes in
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StampsArg {
    /// The interface's, where its stamps are on and only what comes in is captured; else the kernel's
    Auto,
    /// The interface's wherever a packet has one
    Hardware,
    /// The kernel's
    Kernel,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Run folders: one is drawn again, several are compared. Or one packet log of a lab (FILE.gplog)
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Where to write the page [default: report.html in the run's folder; of several runs,
    /// comparison.html here; of a log, an .html beside it]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// Row to run, such as N1
    pub(crate) id: Option<String>,
    /// Show the row instead of running it
    #[arg(long, requires = "id")]
    pub(crate) show: bool,
    /// Folder with the runs and the board's state
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    pub(crate) runs: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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

/// A share, of frames or datagrams: a number, or a percentage with its sign. No range is kept here.
pub(crate) fn share(typed: &str) -> Result<f64, String> {
    match typed.parse() {
        Ok(share) => Ok(share),
        Err(_) => typed
            .parse()
            .map(units::Percentage::as_share)
            .map_err(|e| e.to_string()),
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

const FAR_HOST: &str = "To a far host";

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the check or comparison failed, or nothing could be concluded; 2 usage;
3 cannot run here (privilege, kernel, disk); 4 far end or network failed; 128+n ended by signal n.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  goodput doctor                              a lab of 85 ms on this machine, no set-up needed
  goodput doctor lab:healthy-1g-20ms          another of the built-in paths
  goodput doctor lab:my-path.toml             a path file of your own
  goodput doctor dtn.example.org              a real path; run `goodput serve` over there first
Nothing on a real host is changed; inside the lab the remedy is applied and measured.";

const MEASURE_EXAMPLES: &str = "\
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

const SERVE_EXAMPLES: &str = "\
Examples:
  goodput serve                               for tries on this machine
  goodput serve --listen 0.0.0.0              for other machines: TCP and UDP port 5210, open to all
  goodput serve --listen 0.0.0.0 --iperf3     for `iperf3 -c HOST` as well; UDP port 5201 for its -u
  goodput serve --listen 0.0.0.0 --stamp      answers STAMP probes on UDP port 862 as well
  goodput serve --listen 0.0.0.0 --ranks      a rank of `goodput rotate --hosts`
  goodput serve --listen [::] --token-file token --metrics 9555 --log-clients
  goodput serve --dir /data --token-file token --listen 0.0.0.0    copies out of /data; see `goodput copy`
                                              who has the token only; counters on 127.0.0.1:9555";

const CAPTURE_EXAMPLES: &str = "\
Examples:
  goodput capture eth0 -w transfer.pcapng     headers of all packets until Ctrl-C
  goodput capture eth0 tcp port 5210 -w transfer.pcapng --time 30s
  goodput capture eth0 -w ring.pcapng --files 10 --file-size 100MB
  goodput capture eth0 'host 192.0.2.7 and not port 22' -w - --whole | tshark -r -
  goodput lab exec near -- goodput capture eth0 -w near.pcapng
It needs CAP_NET_RAW. The filter is what pcap-filter(7) describes, but names of hosts are not looked up.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  goodput explain slow.pcap
  goodput explain slow.pcapng.zst --json | jq .trace.connections[0].shares
  ssh dtn tcpdump -s 128 -w - tcp | goodput explain -
  goodput explain near.pcapng far.pcapng              both ends: where each segment was lost
  goodput explain frames.gplog                        a lab's packet log: what it lost and why
  goodput explain eth0 tcp port 5210 --time 30s       an interface; needs CAP_NET_RAW
  goodput explain slow.pcap --spacing --section 1ms   gaps, bursts, sections, order of streams
  goodput explain lab:master-1-10g --gaps 700,720     a path, in virtual time
Frame numbers are those that Wireshark shows. Captures that end at headers suffice.";

const REPORT_EXAMPLES: &str = "\
Examples:
  goodput report runs/20261121T120000.000Z-doctor-columbia-untuned
  goodput report runs/*-doctor-* --output all.html
  goodput report q.gplog                      a lab's packet log: queues, drops, who was dropped";

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  goodput reproduce                           where all 47 rows stand
  goodput reproduce N1 --show                 what a row compares
  goodput reproduce N1                        run it";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  goodput completions bash > ~/.local/share/bash-completion/completions/goodput
  goodput completions fish > ~/.config/fish/completions/goodput.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  goodput man > goodput.1 && man -l goodput.1";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{CommandFactory, error::ErrorKind};

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

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every file of the repository under `place` that is Markdown, or that file itself.
    fn pages(place: &Path, found: &mut Vec<PathBuf>) {
        if place.is_dir() {
            for entry in std::fs::read_dir(place).unwrap() {
                pages(&entry.unwrap().path(), found);
            }
        } else if place.extension().is_some_and(|e| e == "md") {
            found.push(place.to_owned());
        }
    }

    /// The words of the first `goodput` command in a line of shell: up to a pipe, a redirection, a
    /// comment, or the three blanks before an example's remark.
    fn command_in(line: &str) -> Option<Vec<String>> {
        let line = line.trim_start();
        let line = match line.split_once("$ ") {
            Some((prompt, rest)) if prompt.chars().all(char::is_alphanumeric) => rest.trim_start(),
            _ => line,
        };
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let rest = line.strip_prefix("goodput ")?;
        if rest.starts_with([' ', '-']) && !rest.starts_with("--") {
            return None; // a column of output
        }
        let mut words = vec!["goodput".to_owned(), String::new()];
        let mut quote = None;
        let mut chars = rest.chars().peekable();
        let mut blanks = 0;
        while let Some(c) = chars.next() {
            let word = words.last_mut().unwrap();
            blanks = if c == ' ' { blanks + 1 } else { 0 };
            match (c, quote) {
                ('#', None) if word.is_empty() => break,
                ('|' | '>' | ';' | '&', None) => break,
                (' ', None) if blanks == 3 => break,
                (' ', None) if word.is_empty() => {}
                (' ', None) => words.push(String::new()),
                ('\\', None) if chars.peek().is_none() => {}
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(q)) if c == q => quote = None,
                _ => word.push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        Some(words)
    }

    /// What clap says against a command, if anything. A mention in a sentence may name a verb or an
    /// option only, and leave out what follows.
    fn refusal(words: &[String], mention: bool) -> Option<String> {
        let error = Cli::try_parse_from(words).err()?;
        let fine = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
            ErrorKind::MissingRequiredArgument
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingSubcommand => mention,
            ErrorKind::InvalidValue => mention && words.last().is_some_and(|w| w.starts_with("--")),
            _ => false,
        };
        (!fine).then(|| error.to_string())
    }

    #[test]
    fn every_command_that_the_documents_print_is_understood() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = Vec::new();
        for place in ["README.md", "docs", "experiments", "bench/README.md"] {
            pages(&root.join(place), &mut found);
        }
        assert!(found.len() > 10, "{found:?}");
        let mut wrong = Vec::new();
        let mut read = 0;
        for page in found {
            let text = std::fs::read_to_string(&page).unwrap();
            let mut fenced = false;
            for (number, line) in text.lines().enumerate() {
                if line.starts_with("```") {
                    fenced = !fenced;
                    continue;
                }
                let spans = line.split('`').skip(1).step_by(2);
                let commands: Vec<_> = if fenced || line.starts_with("    ") {
                    command_in(line).into_iter().collect()
                } else {
                    spans.filter_map(command_in).collect()
                };
                for words in commands {
                    read += 1;
                    if let Some(error) = refusal(&words, !fenced) {
                        wrong.push(format!("{}:{}: {error}", page.display(), number + 1));
                    }
                }
            }
        }
        assert!(read > 80, "{read}");
        for wrong in [
            "goodput measure x --no-such",
            "goodput mesure x",
            "goodput report x -d 1s",
        ] {
            let words = command_in(wrong).unwrap();
            assert!(refusal(&words, true).is_some(), "{wrong}");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_example_of_the_help_is_understood() {
        let mut read = 0;
        for examples in [
            DOCTOR_EXAMPLES,
            MEASURE_EXAMPLES,
            SERVE_EXAMPLES,
            CAPTURE_EXAMPLES,
            EXPLAIN_EXAMPLES,
            REPORT_EXAMPLES,
            REPRODUCE_EXAMPLES,
            LAB_EXAMPLES,
            SIM_EXAMPLES,
            ROTATE_EXAMPLES,
            COMPLETIONS_EXAMPLES,
            MAN_EXAMPLES,
        ] {
            for words in examples.lines().filter_map(command_in) {
                read += 1;
                assert_eq!(refusal(&words, false), None, "{words:?}");
            }
        }
        assert!(read > 40, "{read}");
    }
}
