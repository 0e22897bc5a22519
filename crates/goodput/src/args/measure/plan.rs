//! What `doctor` and `measure` were asked for, as the plan of a job: what was typed, else what the path file says.

use std::path::Path;

use doctor::{BalanceLog, FillGiven, Plan};
use lab::PathFile;
use lab::path::TransferSpec;
use measure::iperf3::Wish;
use measure::{
    Approach, Cipher, Config, DATAGRAM_BYTES_MAX, Direction, Secret, Sending, Transport,
    WriteCosts, datagram_problem,
};
use units::{Bytes, Duration, Rate};

use super::{
    ApproachArgs, CipherArg, DirectionArg, FormatArg, ObserverArg, PacingArg, TestArgs,
    TransferArgs, TransportArg, UdpArg, Wanted, growth,
};
use fault::Failure;
use job::balance::Log;
use job::target::Target;

/// The plan of a run, with the packet log that `--balance` wants.
pub(super) fn plan<'a>(
    wanted: &Wanted<'a>,
    balance: Option<BalanceLog<'a>>,
) -> Result<Plan<'a>, Failure> {
    let (args, test) = (wanted.transfer, wanted.test);
    let target = args.target()?;
    let config = config(args, test, &target)?;
    let approach = approach(&args.approach, &target)?;
    for host in &test.via {
        approach.check_target(host)?;
    }
    let reno_by_acks = growth::is_of_acks(args, test, &target)?;
    let document = test.format == FormatArg::Iperf3Json;
    if document && !test.via.is_empty() {
        return Err(Failure::usage(
            "--via and --format iperf3-json: iperf3's layout holds one test; --format json holds all",
        ));
    }
    let wish = match target {
        Target::Iperf3(_) if test.via.is_empty() => Some(wish(test, &config)?),
        _ => None,
    };
    Ok(Plan {
        scale: args.scale,
        approach,
        config,
        runs: args.runs.clone(),
        fix: wanted.fix,
        latency: wanted.latency,
        observer: args.observer.map(ObserverArg::tool),
        search: (test.udp == Some(UdpArg::Search)).then(|| test.loss_limit.unwrap_or(LOSS_LIMIT)),
        reno_by_acks,
        via: test.via.clone(),
        fill: test.fill.then_some(FillGiven {
            streams: args.streams,
            congestion: args.congestion.is_some(),
            duration: args.duration,
            ramp: args.ramp,
        }),
        wish,
        document,
        settles: test.every.is_some(),
        balance,
        ..Plan::new(wanted.verb, target)
    })
}

/// Where the packet log of `--balance` is to be, if that was asked for.
pub(super) fn balance_log(test: &TestArgs) -> Result<Option<Log>, Failure> {
    test.balance.then(Log::new).transpose()
}

/// How to come to a far host; the token is read here. A lab has one way only.
pub(crate) fn approach(args: &ApproachArgs, target: &Target) -> Result<Approach, Failure> {
    let refuse = |text| Err(Failure::usage(text));
    let secret = args.token_file.as_deref();
    match target {
        Target::Lab(_) if args.bind.is_some() || args.device.is_some() || secret.is_some() => {
            return refuse("--bind, --device and --token-file are for far hosts, not for labs");
        }
        Target::Iperf3(_) if secret.is_some() => {
            return refuse(
                "iperf3's protocol has no token: name the far end without iperf3://, or let its `serve \
                 --iperf3-open` do without",
            );
        }
        _ => {}
    }
    let approach = Approach {
        bind: args.bind,
        device: args.device.clone(),
        dscp: args.dscp,
        secret: secret.map(Secret::read).transpose()?,
    };
    approach.check()?;
    if let Target::Host(host) | Target::Iperf3(host) = target {
        approach.check_target(host)?;
    }
    Ok(approach)
}

/// What to measure: what was typed, else what the path file says, else ten seconds of one stream.
pub(super) fn config(
    args: &TransferArgs,
    test: &TestArgs,
    target: &Target,
) -> Result<Config, Failure> {
    let path: Option<&PathFile> = match target {
        Target::Lab(path) => Some(path),
        Target::Host(_) | Target::Iperf3(_) => None,
    };
    let is_foreign = matches!(target, Target::Iperf3(_));
    check_far(test, is_foreign)?;
    if test.balance && path.is_none() {
        return Err(Failure::usage(
            "--balance reads a lab's packet log: name a lab path",
        ));
    }
    let transport = transport(test)?;
    check_transport(args, test, transport)?;
    check_datagrams(test, transport)?;
    let spec = path.map(|p| p.transfer);
    let (duration, ramp) = times(args, spec, is_foreign);
    let direction = match args.direction {
        DirectionArg::Up if !test.reverse => Direction::Up,
        _ => Direction::Down,
    };
    let sender = path.map(|p| match direction {
        Direction::Up => &p.near,
        Direction::Down => &p.far,
    });
    // A path file's is the host's kernel's.
    let of_kernel = transport != Transport::Quic && test.pacing != Some(PacingArg::Auto);
    let own = sender.filter(|_| of_kernel);
    let usual = Config::default();
    let length = test
        .length
        .map(|n| u32::try_from(n.as_u64()).unwrap_or(u32::MAX));
    let config = Config {
        direction,
        streams: args
            .streams
            .or_else(|| spec.map(|s| s.streams))
            .unwrap_or(1),
        duration,
        ramp,
        congestion: args
            .congestion
            .clone()
            .or_else(|| own.map(|host| host.congestion_control.clone())),
        block_bytes: length.unwrap_or(usual.block_bytes),
        send_buffer: test.window,
        receive_buffer: test.window,
        sample_interval: test.every.unwrap_or(usual.sample_interval),
        dscp: args.approach.dscp,
        costs: sender.map_or_else(WriteCosts::default, doctor::session::costs),
        transport: if is_foreign {
            Transport::Tcp
        } else {
            transport
        },
        cipher: test.cipher.map_or(Cipher::Aes128Gcm, CipherArg::cipher),
        ..paced(test, is_foreign, sending(test))
    };
    config.check()?;
    check_files(args, path, &config)?;
    Ok(config)
}

/// What only one of the two kinds of far ends can do.
fn check_far(test: &TestArgs, is_foreign: bool) -> Result<(), Failure> {
    let new = test.transport.is_some_and(|t| t != TransportArg::Udp)
        || test.zero_copy
        || test.sendfile.is_some()
        || test.udp == Some(UdpArg::Search)
        || test.fill
        || matches!(test.pacing, Some(PacingArg::Window(_)));
    if is_foreign && new {
        return Err(Failure::usage(
            "--transport, --udp search, --zero-copy, --sendfile, --fill and --pacing window=... want \
             `goodput serve` at the far end",
        ));
    }
    if !is_foreign && (test.bidir || test.bytes.is_some()) {
        return Err(Failure::usage(
            "--bidir and --bytes work with iperf3's protocol: name the far end as \
             iperf3://HOST:PORT; `goodput serve` answers it too, on its own port",
        ));
    }
    Ok(())
}

/// What does not go with a transport.
fn check_transport(
    args: &TransferArgs,
    test: &TestArgs,
    transport: Transport,
) -> Result<(), Failure> {
    let quic = transport == Transport::Quic;
    if test.cipher.is_some() && transport != Transport::Tls && !quic {
        return Err(Failure::usage(
            "--cipher goes with --transport tls or quic only",
        ));
    }
    if quic && args.observer.is_some() {
        return Err(Failure::usage(
            "--observer looks at TCP; leave it out with --transport quic",
        ));
    }
    Ok(())
}

/// A size that no datagram has: [`Config`] takes its default for what fits the path's MTU.
fn check_datagrams(test: &TestArgs, transport: Transport) -> Result<(), Failure> {
    let asked = test
        .length
        .map(Bytes::as_u64)
        .filter(|_| transport == Transport::Udp);
    match asked.filter(|&bytes| bytes > DATAGRAM_BYTES_MAX.into()) {
        Some(bytes) => Err(Failure::usage(format!(
            "--length: {}",
            datagram_problem(bytes)
        ))),
        None => Ok(()),
    }
}

/// What a transfer wants on this machine.
fn check_files(
    args: &TransferArgs,
    path: Option<&PathFile>,
    config: &Config,
) -> Result<(), Failure> {
    if config.file.as_ref().is_some_and(|file| !file.is_file()) {
        return Err(Failure::usage(format!(
            "--sendfile wants a file with bytes in it, or the word {GENERATED}"
        )));
    }
    if args.observer.is_some() && path.is_none() {
        return Err(Failure::usage(
            "--observer runs the other tool inside a lab: name a lab path, or run the tool yourself",
        ));
    }
    Ok(())
}

/// How long data is sent, and how much of it does not count.
fn times(
    args: &TransferArgs,
    spec: Option<TransferSpec>,
    is_foreign: bool,
) -> (Duration, Duration) {
    let duration = args
        .duration
        .or_else(|| spec.map(|s| s.duration))
        .unwrap_or(DURATION);
    let of_spec = spec.filter(|_| args.duration.is_none());
    let ramp = match of_spec {
        // What iperf3 leaves out its server leaves out too, and iperf3 leaves out nothing unasked.
        _ if is_foreign => Duration::ZERO,
        Some(spec) => spec.ramp,
        None => Duration::from_ns(duration.as_ns() / 5),
    };
    (duration, args.ramp.unwrap_or(ramp))
}

/// How data is handed to the kernel.
fn sending(test: &TestArgs) -> Config {
    Config {
        sending: match &test.sendfile {
            Some(_) => Sending::Sendfile,
            None if test.zero_copy => Sending::ZeroCopy,
            None => Sending::Write,
        },
        file: test
            .sendfile
            .clone()
            .filter(|file| file != Path::new(GENERATED)),
        ..Config::default()
    }
}

/// The same with what limits the rate, and who keeps it.
fn paced(test: &TestArgs, is_foreign: bool, config: Config) -> Config {
    let datagrams = match test.udp {
        Some(UdpArg::Rate(rate)) if !is_foreign => Some(rate),
        _ => None,
    };
    let (mut packets, mut writes, mut window) = (None, None, None);
    match test.pacing {
        Some(PacingArg::Rate(rate)) => packets = Some(rate),
        Some(PacingArg::Application(rate)) => writes = Some(rate),
        Some(PacingArg::Window(bytes)) => window = Some(bytes),
        Some(PacingArg::Auto | PacingArg::Even) | None => {}
    }
    Config {
        max_pacing: packets,
        finds_gap: test.pacing == Some(PacingArg::Auto),
        evens: test.pacing == Some(PacingArg::Even),
        rate: datagrams.filter(|rate| *rate > Rate::default()).or(writes),
        window_clamp: window,
        ..config
    }
}

/// What the payload is to travel by: what was named, else what goes with --udp.
fn transport(test: &TestArgs) -> Result<Transport, Failure> {
    match (test.transport, test.udp) {
        (None | Some(TransportArg::Udp), Some(_)) => Ok(Transport::Udp),
        (None | Some(TransportArg::Tcp), None) => Ok(Transport::Tcp),
        (Some(TransportArg::Mptcp), None) => Ok(Transport::Mptcp),
        (Some(TransportArg::Tls), None) => Ok(Transport::Tls),
        (Some(TransportArg::Quic), None) => Ok(Transport::Quic),
        (Some(TransportArg::VerbsRc | TransportArg::VerbsUc | TransportArg::VerbsUd), _) => Err(
            Failure::usage("verbs carry messages: add --messages SIZES or --sweep message-size"),
        ),
        (Some(TransportArg::Udp), None) => Err(Failure::usage(
            "--transport udp needs a rate: say --udp 50Mb/s, or --udp search",
        )),
        (Some(_), Some(_)) => Err(Failure::usage("--udp goes with --transport udp only")),
    }
}

/// What is asked of an iperf3 server.
fn wish(test: &TestArgs, config: &Config) -> Result<Wish, Failure> {
    if test.bytes.is_some_and(|bytes| bytes.as_u64() == 0) {
        return Err(Failure::usage("--bytes 0 sends nothing"));
    }
    Ok(Wish {
        config: config.clone(),
        bidirectional: test.bidir,
        udp: match test.udp {
            Some(UdpArg::Rate(rate)) => Some(rate),
            _ => None,
        },
        length: test.length.map(|_| config.block_bytes),
        window: test.window,
        bytes: test.bytes.map(Bytes::as_u64),
        server_output: test.get_server_output,
    })
}

impl CipherArg {
    const fn cipher(self) -> Cipher {
        match self {
            Self::Aes128Gcm => Cipher::Aes128Gcm,
            Self::Aes256Gcm => Cipher::Aes256Gcm,
            Self::Chacha20Poly1305 => Cipher::Chacha20Poly1305,
        }
    }
}

const DURATION: Duration = Duration::from_s(10);
/// What voice and video shrug off, and what a sender that fills a path at a set rate may cost others.
const LOSS_LIMIT: f64 = 0.001;
/// In place of a file's name.
const GENERATED: &str = "generated";
