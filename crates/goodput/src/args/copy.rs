//! What `goodput copy` and `goodput agent` take: what was typed becomes a request, and what came of
//! it is shown.

mod rules;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ::copy::engine::disk::Io;
use ::copy::engine::gaps::Pacing;
use ::copy::quic::Transport;
use ::copy::schedule::Schedule;
use ::copy::source::Keep;
use ::copy::task::observed::Tool;
use ::copy::task::operand::Operand;
use ::copy::task::{Plan, Request, agent as far_side, daemon};
use ::copy::{Cipher, Key};
use ::trial::copy::{EndsBeside, Means, caller, lab_of};
use fault::{Failure, Verdict};
use job::Context;
use measure::Secret;
use report::model::Run;

use crate::args::ServeArgs;
use crate::print;
use crate::print::copy::live::{Live, Show};
use doctor::observer::Beside;
use report::shown::Shown;
use rules::RulesArg;

/// What `goodput copy` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CopyArgs {
    /// What to copy, and last where to: PATH, HOST:PATH, USER@HOST:PATH, HOST,HOST:PATH for an end whose files several
    /// hosts see, HOST::PATH or goodput://HOST:PORT/PATH for
    /// a daemon, or lab:NAME:PATH. A slash after a folder means what is in it, as rsync has it
    #[arg(value_name = "SRC... DST", required = true, num_args = 1..)]
    operands: Vec<OsString>,
    /// Taken from rsync's and scp's users: folders with all in them, what is kept, progress and going on are as usual here
    #[arg(
        short = 'r',
        short_aliases = ['a', 'p', 'P', 't', 'l', 'H', 'A', 'X', 'S'],
        long = "recursive",
        aliases = ["archive", "perms", "times", "links", "hard-links", "acls", "xattrs", "sparse", "progress", "partial"],
        action = clap::ArgAction::Count,
        hide = true
    )]
    as_usual: u8,
    /// Taken from rsync's and scp's users, with a word: nothing is compressed
    #[arg(short = 'z', long, action = clap::ArgAction::Count, hide = true)]
    compress: u8,
    /// Change nothing, and say what would be copied
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Remove what the source has not
    #[arg(long)]
    delete: bool,
    /// Compare files of the same length and time by their sums, and copy blocks that differ
    #[arg(short, long)]
    checksum: bool,
    #[command(flatten)]
    rules: RulesArg,
    /// Copy what this file of this host lists, one name a line, out of the one source folder, which may be on another host, but
    /// no daemon's; - for standard input
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// Do not keep permission bits
    #[arg(long)]
    no_mode: bool,
    /// Do not keep owner and group
    #[arg(long)]
    no_owner: bool,
    /// Do not keep times of last modification
    #[arg(long)]
    no_times: bool,
    /// Do not keep extended attributes and access control lists
    #[arg(long)]
    no_attributes: bool,
    /// Copy each name of a file with several as a file of its own
    #[arg(long)]
    no_links: bool,
    /// Do not wait until files are on the destination's disk; after a power cut there, compare with --checksum
    #[arg(long)]
    no_fsync: bool,
    /// How many connections carry bytes [default: as many as help]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    streams: Option<u16>,
    /// What bytes are encrypted with [default: the faster of aes-128-gcm and chacha20-poly1305 here]
    #[arg(long, value_enum, value_name = "NAME")]
    cipher: Option<CipherArg>,
    /// Bytes in a block, a power of two from 64KiB to 16MiB [default: 1MiB, more for files over 256 GiB]
    #[arg(long, value_name = "SIZE")]
    block: Option<units::Bytes>,
    /// At most so fast, all connections together; by time of day as 100Mb/s@08:00-18:00,none, the first that fits
    #[arg(long, value_name = "RATE[@FROM-TO],...")]
    limit: Option<Schedule>,
    /// As --limit, one or more to a line of this file, which may be changed while the copy runs
    #[arg(long, value_name = "FILE", conflicts_with = "limit")]
    limit_from: Option<PathBuf>,
    /// Read back from the disk what was written, before it gets its name
    #[arg(long)]
    verify: bool,
    /// Write the BLAKE3 hash of each file to FILE, for `b3sum --check` where the copy is; reads all files of this side
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Compare the destination, which is on this host, with the manifest of an earlier copy, and copy what is not as it
    /// says: of the source only these files are read, and of these the blocks that differ travel
    #[arg(long, value_name = "FILE", conflicts_with_all = ["include", "exclude", "include_from", "exclude_from", "files_from", "delete", "null_source", "null_sink"])]
    repair: Option<PathBuf>,
    /// Congestion control of the connections, which are then TCP's [default: on long paths cubic, paced, and bbr where losses
    /// or others speak against that]
    #[arg(long, value_name = "NAME", visible_alias = "cc")]
    congestion: Option<String>,
    /// What carries bytes: quic forgives losses, costs several times the CPU, and needs the port open for UDP too; auto
    /// is TCP until losses or buffers hold it and QUIC was measured to be faster
    #[arg(long, value_enum, value_name = "NAME", default_value = "auto")]
    transport: TransportArg,
    /// How files are read and written: direct goes past the kernel's page cache (O_DIRECT) where the file system has that;
    /// auto does so where more comes than memory holds, or the disk holds streams, and it is as good. One for both ends,
    /// or the source's and the destination's
    #[arg(
        long,
        value_enum,
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        default_value = "auto"
    )]
    io: Vec<IoArg>,
    /// Hold streams just under what the path takes: even, or none [default: even on long paths where neither streams nor
    /// congestion control are asked for, or fewer than 16 that know no rate]
    #[arg(long, value_enum, value_name = "NAME")]
    pacing: Option<PacingArg>,
    /// Keep set-user-ID and set-group-ID bits, and capabilities, of files that come from another host
    #[arg(long)]
    set_id: bool,
    /// File with the token that the daemon's `serve --dir --token-file` has; only its owner may read it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate to show to a daemon, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Key of --certificate, in PEM; only its owner may read it
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Authorities of which one must have signed a daemon's certificate, in PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Have the far side connect to this one, where a firewall wants it so
    #[arg(long, conflicts_with = "through_ssh")]
    reverse: bool,
    /// Send everything inside ssh connections, where no other port is open
    #[arg(long)]
    through_ssh: bool,
    /// Port that is listened on, on the side that listens [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Spread connections over these addresses of the far host (of a destination, where both are far), or over `all`
    /// that it has an interface for
    #[arg(long, value_name = "A,B,...", value_delimiter = ',')]
    addresses: Vec<String>,
    /// Addresses of this host that connections leave from, or with --reverse are made to; the first goes with the first
    /// of --addresses, and so on
    #[arg(long, value_name = "A,B,...", value_delimiter = ',')]
    from_addresses: Vec<String>,
    /// Send so many bytes that no file has, in place of a source: to see what the rest can do
    #[arg(long, value_name = "SIZE")]
    null_source: Option<units::Bytes>,
    /// Check what arrives and write none of it, nor change anything else at the destination: to see what the rest can do
    #[arg(long, conflicts_with = "delete")]
    null_sink: bool,
    /// What starts a shell on the far host, with quotes as in a shell
    #[arg(
        short = 'e',
        long,
        value_name = "COMMAND",
        default_value = "ssh",
        env = "GOODPUT_RSH"
    )]
    rsh: String,
    /// What goodput is called on the far host
    #[arg(long, value_name = "PATH", default_value = "goodput")]
    far_goodput: String,
    /// Where the far host has no goodput, bring this program along, to a temporary place
    #[arg(long)]
    push: bool,
    /// Ask another tool beside: openssl how fast ciphers are, sha256sum whether files are the same
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    observer: Vec<ObserverArg>,
    /// Folder that run folders are made in
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    runs: PathBuf,
    /// Print the run as JSON (run.json's layout) instead of text
    #[arg(long)]
    json: bool,
    /// What to print
    #[arg(long, value_enum, default_value_t = CopyFormat::Text, conflicts_with = "json")]
    format: CopyFormat,
    /// Say every second how it goes, also where the output is no terminal
    #[arg(long)]
    live: bool,
    /// Beside that, how each connection is: rate, round trip, window, segments sent again, and what holds it
    #[arg(long)]
    per_stream: bool,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CopyFormat {
    /// A summary
    #[default]
    Text,
    /// The run as JSON, as --json
    Json,
    /// A JSON object a line: one a second while it runs, one for each note, and a last one with the run
    Jsonl,
}

/// Pacing as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PacingArg {
    /// All streams together just under the rate that is found while they send
    Even,
    /// As the congestion control has it
    None,
}

/// Ciphers as they are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CipherArg {
    /// AES of 128 bits in Galois/counter mode
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
    /// AES of 256 bits
    #[value(name = "aes-256-gcm")]
    Aes256Gcm,
    /// ChaCha20 with Poly1305
    #[value(name = "chacha20-poly1305")]
    Chacha20Poly1305,
    /// Readable by all, and no byte changed unnoticed
    IntegrityOnly,
    /// Readable and changeable by all on the path
    None,
}

impl CipherArg {
    const fn cipher(self) -> Cipher {
        match self {
            Self::Aes128Gcm => Cipher::Aes128Gcm,
            Self::Aes256Gcm => Cipher::Aes256Gcm,
            Self::Chacha20Poly1305 => Cipher::Chacha20Poly1305,
            Self::IntegrityOnly => Cipher::IntegrityOnly,
            Self::None => Cipher::None,
        }
    }
}

/// Transports as they are typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransportArg {
    /// TCP, until it shows that it cannot and QUIC that it can
    #[default]
    Auto,
    /// TCP only
    Tcp,
    /// QUIC, and TCP where the path carries no UDP
    Quic,
}

/// Ways to the disk as they are typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IoArg {
    /// Through the page cache, until much is to come or the disk holds streams
    #[default]
    Auto,
    /// Through the page cache
    Buffered,
    /// Past it
    Direct,
}

pub(crate) const COPY_EXAMPLES: &str = "\
Examples:
  goodput copy big.dat node7:/scratch/             over ssh's word, beside ssh's connection
  goodput copy results/ me@node7:results/          what is in a folder; run it again and only changes go
  goodput copy node7:/scratch/run3 .               from there to here
  goodput copy -n --delete tree/ node7:tree/       what would be done
  goodput copy hostA:/data/x hostB:/data/          from one far host to the other
  goodput copy big.dat io1,io2,io3:/scratch/       by three hosts that see the same files
  goodput copy --addresses 10.0.1.7,10.0.2.7 big.dat node7:   over two of its addresses
  goodput copy --token-file t node7::run3 .        from a daemon (`goodput serve --dir`), without ssh
  goodput copy big.dat lab:dtn-100ms:/tmp/to/      through a lab's path, for trying
  goodput copy --format jsonl big.dat node7: | jq .goodput_bits_per_second
An interrupted copy goes on where it was when the same command is given again.
rsync's and scp's -r, -a, -p, -P and their like are taken, and are what is done anyway; -z is, and compresses nothing.";

/// Who is asked beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ObserverArg {
    /// `openssl speed` on the ciphers that are chosen from
    Openssl,
    /// `sha256sum` on every file, at both ends; of copies on this host and through labs
    Sha256sum,
    /// One stream of iperf3 on the same path while the copy runs: what it leaves to others; of copies through labs
    Iperf3,
}

/// What `goodput agent` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// Carry standard input and output to this port of this host
    #[arg(long, value_name = "PORT")]
    relay: Option<u16>,
}

impl CopyArgs {
    /// Whether a lab is its far side.
    pub(crate) fn needs_lab(&self) -> bool {
        let is_lab = |typed: &OsString| typed.to_string_lossy().starts_with("lab:");
        self.operands.iter().any(is_lab)
    }

    /// What is printed.
    fn format(&self) -> CopyFormat {
        match self.json {
            true => CopyFormat::Json,
            false => self.format,
        }
    }

    fn keep(&self) -> Keep {
        Keep {
            mode: !self.no_mode,
            owner: !self.no_owner,
            times: !self.no_times,
            attributes: !self.no_attributes,
            links: !self.no_links,
        }
    }

    /// What they ask for.
    fn request(&self) -> Result<Request, Failure> {
        let is_served =
            |typed: &OsString| matches!(Operand::parse(typed), Ok(Operand::Served { .. }));
        // Whoever goes to no daemon shows no token.
        let token_file = self.token_file.as_deref();
        let token_file = token_file.filter(|_| self.operands.iter().any(is_served));
        let asked = |observer: &ObserverArg| match observer {
            ObserverArg::Openssl => Tool::Openssl,
            ObserverArg::Sha256sum => Tool::Sha256sum,
            ObserverArg::Iperf3 => Tool::Iperf3,
        };
        let io = |typed: &IoArg| match typed {
            IoArg::Auto => Io::Auto,
            IoArg::Buffered => Io::Buffered,
            IoArg::Direct => Io::Direct,
        };
        Ok(Request {
            operands: self.operands.clone(),
            dry_run: self.dry_run,
            delete: self.delete,
            checksum: self.checksum,
            rules: self.rules.0.clone(),
            files_from: self.files_from.clone(),
            keep: self.keep(),
            fsync: !self.no_fsync,
            streams: self.streams,
            cipher: self.cipher.map(CipherArg::cipher),
            block: self.block,
            limit: self.limit.clone(),
            limit_from: self.limit_from.clone(),
            verify: self.verify,
            manifest: self.manifest.clone(),
            repair: self.repair.clone(),
            congestion: self.congestion.clone(),
            transport: match self.transport {
                TransportArg::Auto => Transport::Auto,
                TransportArg::Tcp => Transport::Tcp,
                TransportArg::Quic => Transport::Quic,
            },
            io: self.io.iter().map(io).collect(),
            pacing: match self.pacing {
                None => Pacing::Chosen,
                Some(PacingArg::Even) => Pacing::Even,
                Some(PacingArg::None) => Pacing::Off,
            },
            set_id: self.set_id,
            token: token_file.map(token).transpose()?,
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            ca: self.ca.clone(),
            reverse: self.reverse,
            through_ssh: self.through_ssh,
            port: self.port,
            addresses: self.addresses.clone(),
            from_addresses: self.from_addresses.clone(),
            null_source: self.null_source,
            null_sink: self.null_sink,
            rsh: self.rsh.clone(),
            far_goodput: self.far_goodput.clone(),
            push: self.push,
            observers: self.observer.iter().map(asked).collect(),
            is_for_programs: self.format() != CopyFormat::Text,
        })
    }
}

/// A daemon's key out of a token file.
fn token(path: &Path) -> Result<Key, Failure> {
    let digits = Secret::read(path)?.derived(daemon::PURPOSE);
    Key::from_hex(&digits).ok_or_else(|| Failure::here("a token that is no key"))
}

/// Does what was typed.
pub(crate) fn run(args: &CopyArgs, context: &Context) -> Verdict {
    let shown = Shown::default();
    let (run, folder) = perform(args, &args.runs, context, &shown)?;
    print::copy::result(args.format(), &run, &folder, &shown)?;
    let failed = run.copy.as_ref().map_or(0, |copy| {
        copy.failed + copy.repair.as_ref().map_or(0, |repair| repair.left)
    });
    Ok(match failed {
        0 => fault::DONE,
        _ => fault::CHECK_FAILED,
    })
}

/// As a step of `reproduce`: what it found, and its run folder.
pub(crate) fn step(
    args: &CopyArgs,
    runs: &Path,
    context: &Context,
) -> Result<(serde_json::Value, Option<PathBuf>), Failure> {
    // An experiment file may come from anybody: nothing but this host and its labs, nothing removed.
    let is_far = |typed: &OsString| {
        matches!(
            Operand::parse(typed),
            Ok(Operand::Far { .. } | Operand::Served { .. })
        )
    };
    if args.delete || args.push || args.operands.iter().any(is_far) {
        return Err(Failure::usage(
            "a step copies on this host and through labs only, and deletes nothing",
        ));
    }
    let (run, folder) = perform(args, runs, context, &Shown::default())?;
    let value = serde_json::to_value(&run).map_err(Failure::here)?;
    Ok((value, Some(folder)))
}

fn perform(
    args: &CopyArgs,
    runs: &Path,
    context: &Context,
    shown: &Shown,
) -> Result<(Run, PathBuf), Failure> {
    let request = args.request()?;
    let lab = lab_of(&request.operands)?;
    let plan = Plan::new(request)?;
    if args.compress > 0 {
        print::note("-z: nothing is compressed, bytes go as they are in the files");
    }
    let noted = shown.clone();
    let caller = caller(context, move |text| {
        // Both sides may report the same.
        if noted.is_new(text) {
            print::note(text);
        }
    });
    let means = Means {
        runs,
        context,
        caller: &caller,
        beside: &|from, to| {
            let beside = Beside::begin(from, to).map_err(|error| error.to_string())?;
            let ends: EndsBeside = Box::new(|| beside.end().map_err(|error| error.to_string()));
            Ok(ends)
        },
    };
    let mut live = Live::new(
        Show {
            format: args.format(),
            is_live: args.live,
            per_stream: args.per_stream,
        },
        shown.clone(),
    );
    ::trial::copy::run(plan, lab.as_deref(), means, &mut live)
}

/// Does what standard input says.
pub(crate) fn agent(args: &AgentArgs, context: &Context) -> Verdict {
    let mut output = io::stdout();
    if let Some(port) = args.relay {
        far_side::relay(port, io::stdin(), &mut output)?;
        print::print("")?;
        return Ok(fault::DONE);
    }
    let caller = caller(context, |text| print::note(text));
    far_side::run(io::stdin(), &mut output, &caller)
}

/// `goodput serve --dir`: serves copies until asked to stop.
pub(crate) fn serve(args: &ServeArgs, folder: &Path, context: &Context) -> Verdict {
    let at = super::serve::address_at(&args.listen, daemon::PORT)?;
    let token = args.token_file.as_deref().map(token).transpose()?;
    let pair = |(certificate, key): (&PathBuf, &PathBuf)| (certificate.clone(), key.clone());
    let clients = args.client_ca.as_ref();
    let most = |clients: u32| usize::try_from(clients).unwrap_or(usize::MAX);
    let service = daemon::Service {
        at,
        is_writable: args.writable,
        identity: args.certificate.as_ref().zip(args.key.as_ref()).map(pair),
        clients: clients.map(|authorities| (authorities.clone(), args.client_crl.clone())),
        sessions_max: most(args.clients),
        sessions_of_one_max: args.clients_per_address.map_or(usize::MAX, most),
        ..daemon::Service::new(folder.to_owned(), token)
    };
    daemon::serve(&service, &caller(context, |text| print::note(text)))?;
    Ok(fault::DONE)
}
