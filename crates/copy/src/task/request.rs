//! What a user asks of a copy, and what it means for the engine.

use std::ffi::OsString;
use std::path::PathBuf;

use fault::Failure;
use units::Bytes;

use crate::digest::Cut;
use crate::engine::disk::Io;
use crate::engine::gaps::Pacing;
use crate::engine::receive::ReceiveOptions;
use crate::engine::send::SendOptions;
use crate::engine::tune::Streams;
use crate::filter::Filter;
use crate::quic::Transport;
use crate::schedule::Schedule;
use crate::source::Keep;
use crate::{Cipher, Key};

use super::observed::Tool;
use super::rules::Rules;

/// What is asked for. [`Request::default`] has what is usual, and no operands.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to copy, and last where to, as [`Operand`](super::operand::Operand) reads them.
    pub operands: Vec<OsString>,
    /// Nothing is changed, and what would be copied is said.
    pub dry_run: bool,
    /// What the source has not is removed.
    pub delete: bool,
    /// Files of the same length and time are compared by their hashes.
    pub checksum: bool,
    /// What is left out.
    pub rules: Rules,
    /// A file that lists what is copied out of the one source folder; `-` for standard input.
    pub files_from: Option<PathBuf>,
    /// What is kept beside bytes.
    pub keep: Keep,
    /// Files are on the destination's disk when the copy ends.
    pub fsync: bool,
    /// Connections that carry bytes; as many as help where none is said.
    pub streams: Option<u16>,
    /// What bytes are encrypted with; the faster of two where none is said.
    pub cipher: Option<Cipher>,
    /// Bytes in a block.
    pub block: Option<Bytes>,
    /// The most that is sent, by time of day.
    pub limit: Option<Schedule>,
    /// The same from a file, which may change while the copy runs.
    pub limit_from: Option<PathBuf>,
    /// What was written is read back before it gets its name.
    pub verify: bool,
    /// Where hashes of all files are written to.
    pub manifest: Option<PathBuf>,
    /// The manifest of an earlier copy, by which the destination is repaired ([`super::repair`]).
    pub repair: Option<PathBuf>,
    /// Congestion control of the connections.
    pub congestion: Option<String>,
    /// What carries bytes.
    pub transport: Transport,
    /// How files are read and written: one for both ends, or the source's and the destination's.
    pub io: Vec<Io>,
    /// Whether streams are held just under what the path takes.
    pub pacing: Pacing,
    /// Set-user-ID bits and the like are kept of files that come from another host.
    pub set_id: bool,
    /// The token of a daemon.
    pub token: Option<Key>,
    /// A certificate to show to a daemon, in PEM.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Authorities of which one must have signed a daemon's certificate.
    pub ca: Option<PathBuf>,
    /// The far side connects to this one.
    pub reverse: bool,
    /// Everything goes inside ssh connections.
    pub through_ssh: bool,
    /// The port of the side that listens; 0 for any.
    pub port: u16,
    /// Addresses of the far host, or `all`.
    pub addresses: Vec<String>,
    /// Addresses of this host.
    pub from_addresses: Vec<String>,
    /// So many bytes that no file has stand for the source.
    pub null_source: Option<Bytes>,
    /// What arrives is checked and not written.
    pub null_sink: bool,
    /// What starts a shell on the far host.
    pub rsh: String,
    /// What goodput is called there.
    pub far_goodput: String,
    /// This program is brought there first.
    pub push: bool,
    /// Other tools that are asked as well.
    pub observers: Vec<Tool>,
    /// Notes are in the result and for the [`Observer`](super::Observer) alone: a program reads
    /// along.
    pub is_for_programs: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            operands: Vec::new(),
            dry_run: false,
            delete: false,
            checksum: false,
            rules: Rules::default(),
            files_from: None,
            keep: Keep::default(),
            fsync: true,
            streams: None,
            cipher: None,
            block: None,
            limit: None,
            limit_from: None,
            verify: false,
            manifest: None,
            repair: None,
            congestion: None,
            transport: Transport::Auto,
            io: Vec::new(),
            pacing: Pacing::Chosen,
            set_id: false,
            token: None,
            certificate: None,
            key: None,
            ca: None,
            reverse: false,
            through_ssh: false,
            port: 0,
            addresses: Vec::new(),
            from_addresses: Vec::new(),
            null_source: None,
            null_sink: false,
            rsh: "ssh".to_owned(),
            far_goodput: "goodput".to_owned(),
            push: false,
            observers: Vec::new(),
            is_for_programs: false,
        }
    }
}

impl Request {
    pub(super) fn filter(&self) -> Result<Filter, Failure> {
        self.rules.filter()
    }

    /// What may carry blocks: QUIC always encrypts, not inside ssh, and by a congestion control of its own.
    pub fn transport(&self) -> Transport {
        let is_open = self.cipher.is_some_and(Cipher::is_open);
        match self.transport {
            Transport::Auto if is_open || self.through_ssh => Transport::Tcp,
            // QUIC has one of its own, and would put what was asked for aside.
            Transport::Auto if self.congestion.is_some() => Transport::Tcp,
            asked => asked,
        }
    }

    /// How an end reads or writes its files.
    pub(super) fn io(&self, is_source: bool) -> Io {
        let asked = match is_source {
            true => self.io.first(),
            false => self.io.last(),
        };
        asked.copied().unwrap_or_default()
    }

    pub(super) fn check_transport(&self) -> Result<(), Failure> {
        if self.transport != Transport::Quic {
            return Ok(());
        }
        let why = if self.through_ssh {
            "--transport quic and --through-ssh: ssh carries no datagrams"
        } else if self.cipher.is_some_and(Cipher::is_open) {
            "--transport quic always encrypts: take a --cipher of TLS"
        } else if self.congestion.is_some() {
            "--transport quic has a congestion control of its own, --congestion is TCP's"
        } else {
            return Ok(());
        };
        Err(Failure::usage(why))
    }

    pub(super) fn send_options(&self) -> Result<SendOptions, Failure> {
        let block = match self.block {
            None => None,
            Some(size) => {
                let block = u32::try_from(size.as_u64()).ok();
                let cut = block.and_then(|block| Cut::new(0, block));
                Some(cut.map(|cut| cut.block()).ok_or_else(|| {
                    Failure::usage(format!(
                        "--block {size}: a power of two from 64KiB to 16MiB"
                    ))
                })?)
            }
        };
        Ok(SendOptions {
            keep: self.keep,
            streams: match self.streams {
                Some(n) => Streams::Fixed(n),
                None => Streams::Chosen { most: 32 },
            },
            block,
            limit: None,
            null: self.null_source.is_some(),
            congestion: self.congestion.clone(),
            pacing: self.pacing,
            has_helpers: false,
            io: self.io(true),
            // Another host's version is asked.
            tells_all_attributes: true,
            leaves_out_zeros: true,
            // A far destination says whether it takes them.
            unasked: false,
        })
    }

    /// Nothing at the destination is made, nor written.
    pub(super) const fn makes_nothing(&self) -> bool {
        self.dry_run || self.null_sink
    }

    pub(super) fn receive_options(&self, identity: [u8; 16]) -> Result<ReceiveOptions, Failure> {
        Ok(ReceiveOptions {
            only: None,
            name: None,
            delete: self.delete,
            dry: self.dry_run,
            fsync: self.fsync,
            checksum: self.checksum,
            null: self.null_sink,
            has_helpers: false,
            filter: self.filter()?,
            identity,
            io: self.io(false),
        })
    }
}
