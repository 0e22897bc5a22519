//! `goodput copy`: files and folders to another host, at the speed of the path.
//!
//! ssh starts the far side ([`far`]) and carries a key that is used once; the bytes go over connections of their own. A
//! lab's far host ([`in_lab`]) and this host itself are far sides too. What runs on both sides is the `copy` crate.

pub(crate) mod daemon;
mod far;
mod in_lab;
mod inside;
pub(crate) mod job;
mod limits;
mod live;
mod manifest;
mod observed;
mod operand;
mod reach;
mod repair;
mod rules;
mod served;
mod told;
mod ways;
mod why;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ::copy::destination::Destination;
use ::copy::engine::disk::Io;
use ::copy::engine::gaps::Pacing;
use ::copy::engine::receive::ReceiveOptions;
use ::copy::engine::send::SendOptions;
use ::copy::engine::tune::Streams;
use ::copy::engine::{CopyError, Note, Watch};
use ::copy::filter::Filter;
use ::copy::meeting::Meeting;
use ::copy::message::Account;
use ::copy::quic::{Carriage, Transport};
use ::copy::schedule::Schedule;
use ::copy::source::{Keep, Source};
use ::copy::{Carried, Cipher, Key, RelPath, SessionId};
use report::RunFolder;
use report::model::{self, Run, RunState, SCHEMA_VERSION};
use sys::folder::Scratch;
use units::Rate;

use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::record;
use limits::Limits;
use operand::Operand;
use rules::Rules;
use why::HostFacts;

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
    rules: Rules,
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
    /// What starts a shell on the far host
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
    observer: Vec<observed::ObserverArg>,
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

    /// Whether standard output and notes are for a program.
    fn is_for_programs(&self) -> bool {
        self.format() != CopyFormat::Text
    }

    fn pacing(&self) -> Pacing {
        match self.pacing {
            None => Pacing::Chosen,
            Some(PacingArg::Even) => Pacing::Even,
            Some(PacingArg::None) => Pacing::Off,
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

    fn filter(&self) -> Result<Filter, Failure> {
        self.rules.filter()
    }

    /// What may carry blocks: QUIC always encrypts, not inside ssh, and by a congestion control of its own.
    fn transport(&self) -> Transport {
        let is_open = self.cipher.is_some_and(|cipher| cipher.cipher().is_open());
        match self.transport {
            TransportArg::Tcp => Transport::Tcp,
            TransportArg::Quic => Transport::Quic,
            TransportArg::Auto if is_open || self.through_ssh => Transport::Tcp,
            // QUIC has one of its own, and would put what was asked for aside.
            TransportArg::Auto if self.congestion.is_some() => Transport::Tcp,
            TransportArg::Auto => Transport::Auto,
        }
    }

    /// How an end reads or writes its files.
    fn io(&self, is_source: bool) -> Io {
        let typed = match is_source {
            true => self.io.first(),
            false => self.io.last(),
        };
        match typed.copied().unwrap_or_default() {
            IoArg::Auto => Io::Auto,
            IoArg::Buffered => Io::Buffered,
            IoArg::Direct => Io::Direct,
        }
    }

    fn check_transport(&self) -> Result<(), Failure> {
        if self.transport != TransportArg::Quic {
            return Ok(());
        }
        let why = if self.through_ssh {
            "--transport quic and --through-ssh: ssh carries no datagrams"
        } else if self.cipher.is_some_and(|cipher| cipher.cipher().is_open()) {
            "--transport quic always encrypts: take a --cipher of TLS"
        } else if self.congestion.is_some() {
            "--transport quic has a congestion control of its own, --congestion is TCP's"
        } else {
            return Ok(());
        };
        Err(Failure::usage(anyhow::anyhow!("{why}")))
    }

    fn send_options(&self) -> Result<SendOptions, Failure> {
        let block = match self.block {
            None => None,
            Some(size) => {
                let block = u32::try_from(size.as_u64()).ok();
                let cut = block.and_then(|block| ::copy::digest::Cut::new(0, block));
                Some(cut.map(|cut| cut.block()).ok_or_else(|| {
                    Failure::usage(anyhow::anyhow!(
                        "--block {size}: a power of two from 64KiB to 16MiB"
                    ))
                })?)
            }
        };
        Ok(SendOptions {
            keep: self.keep(),
            streams: match self.streams {
                Some(n) => Streams::Fixed(n),
                None => Streams::Chosen { most: 32 },
            },
            block,
            limit: None,
            null: self.null_source.is_some(),
            congestion: self.congestion.clone(),
            pacing: self.pacing(),
            has_helpers: false,
            io: self.io(true),
            // Another host's version is asked.
            tells_all_attributes: true,
            // A far destination says whether it takes them.
            unasked: false,
        })
    }

    /// Nothing at the destination is made, nor written.
    const fn makes_nothing(&self) -> bool {
        self.dry_run || self.null_sink
    }

    fn receive_options(&self, identity: [u8; 16]) -> Result<ReceiveOptions, Failure> {
        Ok(ReceiveOptions {
            only: None,
            name: None,
            delete: self.delete,
            dry: self.dry_run,
            fsync: !self.no_fsync,
            checksum: self.checksum,
            null: self.null_sink,
            has_helpers: false,
            filter: self.filter()?,
            identity,
            io: self.io(false),
        })
    }
}

/// One copy, before anything is begun.
struct Plan<'a> {
    args: &'a CopyArgs,
    from: Vec<Operand>,
    to: Operand,
    cipher: Cipher,
    session: SessionId,
    key: Key,
    /// What stands for a source that is none.
    _scratch: Option<Scratch>,
    /// What `--files-from` lists; standard input can be read once.
    listed: OnceCell<Vec<u8>>,
    /// What another tool had on the same path meanwhile.
    beside: OnceCell<anyhow::Result<model::Observer>>,
}

/// What came of a copy on this side or as the far side told.
struct Done {
    account: Account,
    /// What this side watched; the source's where both are here.
    watch: Watch,
    /// What the other side told of its time.
    far: Option<told::Spent>,
    /// CPU time of the side that was watched, where that is a process of another host.
    watched_cpu_ns: Option<u64>,
    /// What is known of the source's host, and of the destination's.
    hosts: [HostFacts; 2],
    /// CPU time of ssh on this host, where it carried the copy.
    ssh_cpu_ns: Option<u64>,
    /// What had arrived when.
    progress: live::Progress,
    took: Duration,
    is_source: bool,
    reconnects: u64,
    /// What each way carried, where this side connected by several.
    ways: Vec<Carried>,
    cipher: Cipher,
    certificate: Option<model::Certificate>,
    achievable: Option<Rate>,
}

/// Does what was typed.
pub(crate) fn command(args: &CopyArgs, context: &Context) -> Verdict {
    let (run, folder) = perform(args, &args.runs, context)?;
    match args.format() {
        CopyFormat::Text => {
            let text = report::terminal::summary(&run, &[], context::color(), context::width());
            context::print_colored(&format!("\n{text}"))?;
            context::print_place("Report", &folder.join("report.html"))?;
        }
        CopyFormat::Json => {
            context::print_json(&run)?;
        }
        CopyFormat::Jsonl => {
            let last = model::ResultRecord {
                event: "result".to_owned(),
                folder: folder.display().to_string(),
                run: run.clone(),
            };
            context::print_json_line(&last)?;
        }
    }
    let failed = run.copy.as_ref().map_or(0, |copy| {
        copy.failed + copy.repair.as_ref().map_or(0, |repair| repair.left)
    });
    Ok(match failed {
        0 => failure::DONE,
        _ => failure::CHECK_FAILED,
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
        return Err(Failure::usage(anyhow::anyhow!(
            "a step copies on this host and through labs only, and deletes nothing"
        )));
    }
    let (run, folder) = perform(args, runs, context)?;
    let value = serde_json::to_value(&run).map_err(Failure::here)?;
    Ok((value, Some(folder)))
}

fn perform(args: &CopyArgs, runs: &Path, context: &Context) -> Result<(Run, PathBuf), Failure> {
    let plan = plan(args)?;
    if args.compress > 0 {
        context::note("-z: nothing is compressed, bytes go as they are in the files");
    }
    let Some(file) = &args.repair else {
        return perform_plan(&plan, None, runs, context);
    };
    let hurt = repair::look(file, &plan, context)?;
    let only = hurt.args(args);
    perform_plan(&self::plan(&only)?, Some(&hurt), runs, context)
}

fn perform_plan(
    plan: &Plan<'_>,
    hurt: Option<&repair::Hurt>,
    runs: &Path,
    context: &Context,
) -> Result<(Run, PathBuf), Failure> {
    let name = plan.name();
    let mut run = Run {
        schema_version: SCHEMA_VERSION,
        verb: "copy".to_owned(),
        name: name.clone(),
        state: RunState::Running,
        command_line: context.command_line.clone(),
        goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_utc: record::now_utc(),
        ..Run::default()
    };
    let mut folder = RunFolder::create(runs, "copy", &name, run.clone())?;
    let result = plan.run(&mut run, context);
    let result = match result {
        Ok(done) => {
            told::put(&mut run, plan, &done);
            for sample in done.progress.samples() {
                folder.append_sample(&sample)?;
            }
            let mended = hurt.map_or(Ok(()), |hurt| hurt.end(plan, &mut run, context));
            mended.and_then(|()| manifest::write(plan, context))
        }
        Err(failure) => Err(failure),
    };
    record::end_as(&mut run, &result, context);
    let place = folder.path().to_owned();
    let kept = folder.finish(&run, &[]);
    if let Some(code) = context.interrupted() {
        context::note("stopped; give the same command again and it goes on where it was");
        return Err(Failure::interrupted(code));
    }
    result?;
    kept?;
    Ok((run, place))
}

fn plan(args: &CopyArgs) -> Result<Plan<'_>, Failure> {
    let mut operands = args.operands.iter().map(|typed| Operand::parse(typed));
    let mut from = operands.by_ref().collect::<Result<Vec<_>, _>>()?;
    if let Some(size) = args.null_source {
        return null_plan(args, from, size);
    }
    let Some(to) = from.pop().filter(|_| !from.is_empty()) else {
        return Err(Failure::usage(anyhow::anyhow!(
            "say what to copy, and where to"
        )));
    };
    plan_of(args, from, to, None)
}

/// A file of one hole stands for the source; it is never read.
fn null_plan(
    args: &CopyArgs,
    mut operands: Vec<Operand>,
    size: units::Bytes,
) -> Result<Plan<'_>, Failure> {
    let (Some(to), true) = (operands.pop(), operands.is_empty()) else {
        return Err(Failure::usage(anyhow::anyhow!(
            "--null-source takes the place of the source: name the destination only"
        )));
    };
    let scratch = scratch_of(size.as_u64())
        .map_err(|error| Failure::here(anyhow::anyhow!("a file of {size}: {error}")))?;
    let from = vec![Operand::Here(scratch.path().join("null"))];
    plan_of(args, from, to, Some(scratch))
}

/// A file of that size, in a folder that goes when it is no longer needed.
fn scratch_of(size: u64) -> std::io::Result<Scratch> {
    let place = Scratch::new("null")?;
    std::fs::File::create_new(place.path().join("null"))?.set_len(size)?;
    Ok(place)
}

fn plan_of(
    args: &CopyArgs,
    from: Vec<Operand>,
    to: Operand,
    scratch: Option<Scratch>,
) -> Result<Plan<'_>, Failure> {
    let first = from.first().map(Operand::place);
    if from.iter().any(|operand| Some(operand.place()) != first) {
        return Err(Failure::usage(anyhow::anyhow!(
            "all that is copied must be on one host; give a command for each"
        )));
    }
    if args.manifest.is_some() && from[0].is_elsewhere() && to.is_elsewhere() {
        let host = to.place().unwrap_or_default();
        return Err(Failure::usage(anyhow::anyhow!(
            "--manifest reads files of this host, and both ends are others: run `goodput copy --manifest` on \
             {host}, with the source as it is and the destination as a path there"
        )));
    }
    if args.files_from.is_some() && (from.len() != 1 || matches!(from[0], Operand::Served { .. })) {
        return Err(Failure::usage(anyhow::anyhow!(
            "--files-from goes with one source folder, here or where ssh leads; of a daemon's, --include and --exclude choose"
        )));
    }
    if (args.limit.is_some() || args.limit_from.is_some()) && args.through_ssh {
        return Err(Failure::usage(anyhow::anyhow!(
            "--limit paces connections of its own; inside ssh there are none"
        )));
    }
    args.check_transport()?;
    if args.io.len() > 2 {
        return Err(Failure::usage(anyhow::anyhow!(
            "--io takes one word for both ends, or the source's and the destination's"
        )));
    }
    observed::check(&args.observer, &from, &to)?;
    ways::check(args, &from, &to)?;
    let is_served = |operand: &Operand| matches!(operand, Operand::Served { .. });
    if from.iter().chain([&to]).any(is_served) {
        served::check(args)?;
        if from[0].is_far() && to.is_far() {
            return Err(Failure::usage(anyhow::anyhow!(
                "a copy with a daemon has its other end on this host"
            )));
        }
    }
    sys::host::raise_descriptor_limit();
    let cipher = match args.cipher {
        Some(cipher) => cipher.cipher(),
        None => job::faster_cipher(),
    };
    let (session, key) = SessionId::random()
        .and_then(|session| Ok((session, Key::random()?)))
        .map_err(|error| Failure::here(anyhow::anyhow!("no random bytes: {error}")))?;
    Ok(Plan {
        args,
        from,
        to,
        cipher,
        session,
        key,
        _scratch: scratch,
        listed: OnceCell::new(),
        beside: OnceCell::new(),
    })
}

impl Plan<'_> {
    /// Ciphers that whoever listens takes.
    fn allowed(&self) -> Vec<Cipher> {
        match self.args.cipher {
            Some(_) => vec![self.cipher],
            None => vec![Cipher::Aes128Gcm, Cipher::Chacha20Poly1305],
        }
    }

    fn name(&self) -> String {
        let far = [&self.to, &self.from[0]]
            .into_iter()
            .find_map(Operand::far_name);
        far.unwrap_or_else(|| "here".to_owned())
    }

    fn run(&self, run: &mut Run, context: &Context) -> Result<Done, Failure> {
        match (&self.from[0], &self.to) {
            (Operand::Lab { path, .. }, _) | (_, Operand::Lab { path, .. }) => {
                in_lab::run(self, path, run, context)
            }
            (Operand::Far { .. }, Operand::Far { .. }) => far::third_party(self, context),
            (Operand::Far { .. } | Operand::Served { .. }, _) => far::pull(self, context),
            (_, Operand::Far { .. } | Operand::Served { .. }) => far::push(self, context),
            (Operand::Here(_), Operand::Here(_)) => self.here(context),
        }
    }

    /// First names that a source may tell: those that were asked for, unless what is in a folder was.
    fn only(&self) -> Result<Option<Vec<Box<[u8]>>>, Failure> {
        let Some(names) = self.names()? else {
            return Ok(self.from.iter().map(Operand::last_name).collect());
        };
        let first = names.iter().map(|(name, _)| name.names().next());
        let first: Option<BTreeSet<_>> = first.map(|name| name.map(Box::from)).collect();
        Ok(first.map(|first| first.into_iter().collect()))
    }

    /// Of a destination on this host: whether nothing stands there that a copy may meet.
    fn is_free(&self) -> Result<bool, Failure> {
        // Whether the source is one file is not known yet; as a dry run, nothing is made.
        let Ok((there, _)) = Destination::resolve(self.to.path(), false, true) else {
            return Ok(false);
        };
        let names = self.only()?.unwrap_or_default();
        let names: Result<Vec<_>, _> = names.iter().map(|name| RelPath::new(name)).collect();
        Ok(!self.args.makes_nothing() && names.is_ok_and(|names| there.is_free(&names)))
    }

    /// What `--files-from` lists, as it stands there.
    fn list(&self) -> Result<Option<&[u8]>, Failure> {
        let Some(file) = &self.args.files_from else {
            return Ok(None);
        };
        if let Some(text) = self.listed.get() {
            return Ok(Some(text));
        }
        let text = job::read_list(file).map_err(|error| of_list(file, &error.to_string()))?;
        Ok(Some(self.listed.get_or_init(|| text)))
    }

    /// The names in it, each with whether all that is in it is meant.
    fn names(&self) -> Result<Option<Vec<(RelPath, bool)>>, Failure> {
        let (Some(text), Some(file)) = (self.list()?, &self.args.files_from) else {
            return Ok(None);
        };
        let names = ::copy::source::listed(text, false);
        Ok(Some(
            names.map_err(|error| of_list(file, &error.to_string()))?,
        ))
    }

    /// By what an interrupted attempt is known again: where from and where to.
    fn identity(&self) -> [u8; 16] {
        let mut hasher = [0; 16];
        // Two hosts may have the same paths.
        let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut text = host;
        for operand in self.from.iter().chain([&self.to]) {
            text.extend_from_slice(&operand.identity());
            text.push(0);
        }
        hasher.copy_from_slice(&::copy::digest::sum_of(&text)[..16]);
        hasher
    }

    /// The source, where it is on this host.
    fn source(&self) -> Result<Source, Failure> {
        let paths: Vec<_> = self.from.iter().map(Operand::path).collect();
        let opened = match self.names()? {
            None => Source::open(&paths),
            Some(names) => Source::from_list(paths[0], names),
        };
        opened.map_err(|error| Failure::usage(anyhow::Error::from(error)))
    }

    /// Both sides on this host, over loopback.
    fn here(&self, context: &Context) -> Result<Done, Failure> {
        self.not_into_itself()?;
        let source = self.source()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Failure::here)?;
        let at = listener.local_addr().map_err(Failure::here)?;
        let dial = ways::dialing(None, vec![at], job::CONNECT);
        // Nothing is lost on the way to oneself.
        let wish = match self.args.transport() {
            Transport::Auto => Transport::Tcp,
            other => other,
        };
        let near = Meeting::connecting(dial, self.session, self.key.clone(), self.cipher)
            .with_carriage(Carriage::connecting(wish));
        let far = Meeting::listening(self.session, self.key.clone(), vec![self.cipher])
            .with_carriage(job::carriage(wish, std::slice::from_ref(&listener)));
        self.both(&source, &near, &far, &[listener], context)
    }

    /// A folder copied below itself would never be whole.
    fn not_into_itself(&self) -> Result<(), Failure> {
        let whole = |path: &Path| {
            // What does not exist yet is in a folder that does.
            let (mut path, mut below) = (std::path::absolute(path).ok()?, PathBuf::new());
            loop {
                if let Ok(found) = path.canonicalize() {
                    return Some(found.join(below));
                }
                below = Path::new(path.file_name()?).join(below);
                path.pop();
            }
        };
        let to = whole(self.to.path());
        for from in &self.from {
            let path = from.path();
            if let (Some(from), Some(to)) = (whole(path), &to)
                && from.is_dir()
                && to.starts_with(&from)
            {
                return Err(Failure::usage(anyhow::anyhow!(
                    "{} is in {}, which is to be copied there",
                    self.to.path().display(),
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Both sides in this process; `far` listens, at all of these, and is the destination.
    fn both(
        &self,
        source: &Source,
        near: &Meeting,
        far: &Meeting,
        listeners: &[TcpListener],
        context: &Context,
    ) -> Result<Done, Failure> {
        let (destination, name) = job::destination(
            self.to.path(),
            source.is_one_file(),
            self.args.makes_nothing(),
        )
        .map_err(Failure::here)?;
        let mut receive = self.args.receive_options(self.identity())?;
        receive.name = name;
        let (send, filter) = (self.args.send_options()?, self.args.filter()?);
        let destination = match self.args.verify {
            true => destination.with_read_back(),
            false => destination,
        };
        let (watch, far_watch) = (Watch::default(), Watch::default());
        let mut limits = Limits::of(self.args)?;
        limits.tick(&watch);
        let begun = Instant::now();
        let (sent, progress) = thread::scope(|scope| {
            for listener in listeners {
                scope.spawn(|| ::copy::meeting::listen(listener, far));
            }
            let received = scope.spawn(|| {
                let received =
                    ::copy::engine::receive::receive(far, &destination, &receive, &far_watch);
                far.close();
                if received.is_err() {
                    // The other side's thread waits for a connection that will not come.
                    near.hurry(Duration::from_millis(500));
                }
                received
            });
            let sent =
                scope.spawn(|| ::copy::engine::send::send(near, source, &filter, &send, &watch));
            let progress = live::show(self.args, &watch, &mut limits, context, &|| {
                sent.is_finished()
            });
            let sent = sent
                .join()
                .unwrap_or_else(|_| Err(CopyError::Here("a thread panicked".into())));
            if sent.is_err() {
                far_watch.stop();
            }
            let received = received
                .join()
                .unwrap_or_else(|_| Err(CopyError::Here("a thread panicked".into())));
            // Of two complaints, the one that is not about the other side.
            let sent = match (sent, received) {
                (Err(CopyError::Far(_) | CopyError::Link(_)), Err(error @ CopyError::Here(_))) => {
                    Err(error)
                }
                (sent, _) => sent,
            };
            (sent, progress)
        });
        let account = sent.map_err(|error| failure(error, context))?;
        // What the destination chose, and would do, is its own to say.
        for note in far_watch.notes(0).0 {
            if self.args.dry_run || matches!(note, Note::Chosen(_)) {
                let (Note::Skipped(text) | Note::Chosen(text)) = &note;
                if !self.args.is_for_programs() {
                    context::note(text);
                }
                watch.note(note);
            }
        }
        Ok(Done {
            account,
            watch,
            far: Some(told::spent(&far_watch, None)),
            watched_cpu_ns: None,
            hosts: [HostFacts::here(), HostFacts::here()],
            ssh_cpu_ns: None,
            progress,
            took: begun.elapsed(),
            is_source: true,
            reconnects: near.reconnects(),
            ways: near.carried(),
            cipher: near.cipher(),
            certificate: None,
            achievable: None,
        })
    }
}

fn of_list(file: &Path, why: &str) -> Failure {
    Failure::usage(anyhow::anyhow!("--files-from {}: {why}", file.display()))
}

/// Whose fault it is.
fn failure(error: CopyError, context: &Context) -> Failure {
    match error {
        CopyError::Stopped => Failure::interrupted(context.interrupted().unwrap_or(130)),
        CopyError::Here(text) => Failure::here(anyhow::anyhow!(
            "{text}; what arrived is kept, and the same command goes on from there"
        )),
        other => Failure::far(anyhow::anyhow!(
            "{other}; what arrived is kept, and the same command goes on from there"
        )),
    }
}
