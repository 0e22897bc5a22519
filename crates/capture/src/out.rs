//! Packets to bytes of a capture file, and when the next file begins.
//!
//! Records are gathered and written whole, some hundred kilobytes at a time and whenever the live side has
//! nothing more at hand. Each file is a capture by itself: head, packets and, in pcapng, how many the
//! kernel dropped meanwhile.

use units::{Bytes, Instant};
use wire::pcapng::{Direction, Interface, Packet, Statistics, Writer};
use wire::{pcap, pcapng};

use crate::CaptureError;
use crate::rotation::{Files, Place, Rotation};

/// The layout of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcapng.
    Pcapng,
    /// The classic format, with nanoseconds.
    Pcap,
}

/// What the head of each file says.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the interface.
    pub interface: String,
    /// More about it.
    pub description: String,
    /// Bytes kept of each packet.
    pub kept_bytes: u32,
    /// The filter.
    pub filter: String,
    /// Processor of this machine.
    pub hardware: String,
    /// Kernel of this machine.
    pub os: String,
    /// Program and version.
    pub application: String,
}

/// Writes packets to files.
#[derive(Debug)]
pub struct Output {
    about: About,
    format: Format,
    rotation: Rotation,
    files: Files,
    buffer: Vec<u8>,
    /// Of the open file.
    packets: u64,
    opened: Instant,
    opened_realtime_ns: u64,
}

/// A packet as it is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'p> {
    /// Nanoseconds of the realtime clock, or of the interface's.
    pub time_ns: u64,
    /// The frame's first bytes.
    pub captured: &'p [u8],
    /// Bytes of the frame.
    pub original_bytes: u32,
    /// It went out by the interface.
    pub outgoing: bool,
}

impl Output {
    /// Files in a place; nothing is opened yet.
    pub fn new(
        place: Place,
        format: Format,
        rotation: Rotation,
        force: bool,
        about: About,
    ) -> Self {
        Self {
            about,
            format,
            rotation,
            files: Files::new(place, &rotation, force),
            buffer: Vec::with_capacity(BUFFER_BYTES + LARGEST_RECORD_BYTES),
            packets: 0,
            opened: Instant::ZERO,
            opened_realtime_ns: 0,
        }
    }

    /// Opens the next file and writes its head.
    pub(crate) fn open(&mut self, now: Instant, realtime_ns: u64) -> Result<(), CaptureError> {
        self.files.next(realtime_ns)?;
        self.packets = 0;
        (self.opened, self.opened_realtime_ns) = (now, realtime_ns);
        let about = &self.about;
        match self.format {
            Format::Pcap => pcap::header(about.kept_bytes, &mut self.buffer),
            Format::Pcapng => {
                let writer = Writer {
                    hardware: &about.hardware,
                    os: &about.os,
                    application: &about.application,
                };
                pcapng::section_header_of(&writer, &mut self.buffer);
                let interface = Interface {
                    name: &about.interface,
                    description: &about.description,
                    captured_bytes_max: about.kept_bytes,
                    filter: &about.filter,
                    os: &about.os,
                };
                pcapng::interface_of(&interface, &mut self.buffer);
            }
        }
        self.flush()
    }

    /// True where the next packet, of so many captured bytes, belongs into the next file.
    pub(crate) fn is_full(&self, captured_bytes: usize) -> bool {
        self.rotation.file_bytes.is_some_and(|limit| {
            let then = self.file_bytes() + (captured_bytes + RECORD_BYTES + END_BYTES) as u64;
            self.packets > 0 && then > limit.as_u64()
        })
    }

    /// True where it is time for the next file.
    pub(crate) fn is_old(&self, now: Instant) -> bool {
        let limit = self.rotation.file_time;
        limit.is_some_and(|limit| now.saturating_since(self.opened) >= limit)
    }

    pub(crate) fn write(&mut self, record: &Record<'_>) -> Result<(), CaptureError> {
        match self.format {
            Format::Pcap => pcap::packet(
                record.time_ns,
                record.captured,
                record.original_bytes,
                &mut self.buffer,
            ),
            Format::Pcapng => {
                let packet = Packet {
                    interface: 0,
                    time_ns: record.time_ns,
                    captured: record.captured,
                    original_bytes: record.original_bytes,
                    direction: match record.outgoing {
                        true => Direction::Outbound,
                        false => Direction::Inbound,
                    },
                    comment: "",
                };
                pcapng::packet(&packet, &mut self.buffer);
            }
        }
        self.packets += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Ends the open file; `dropped` packets were lost while it was open.
    pub(crate) fn end(&mut self, dropped: u64, realtime_ns: u64) -> Result<(), CaptureError> {
        if self.format == Format::Pcapng {
            let statistics = Statistics {
                interface: 0,
                start_ns: self.opened_realtime_ns,
                end_ns: realtime_ns,
                accepted: self.packets + dropped,
                dropped,
                captured: self.packets,
            };
            pcapng::statistics(&statistics, &mut self.buffer);
        }
        self.flush()
    }

    /// Hands over what was gathered.
    pub(crate) fn flush(&mut self) -> Result<(), CaptureError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.files.write(&self.buffer);
        // What could not be written is not tried again.
        self.buffer.clear();
        written
    }

    /// Bytes of all files so far, and of what is about to be written.
    pub(crate) fn all_bytes(&self) -> Bytes {
        Bytes::new(self.files.all_bytes() + self.buffer.len() as u64)
    }

    pub(crate) fn files(&self) -> (Vec<std::path::PathBuf>, u64) {
        (self.files.kept().cloned().collect(), self.files.removed())
    }

    fn file_bytes(&self) -> u64 {
        self.files.file_bytes() + self.buffer.len() as u64
    }
}

/// Large enough that a write costs little for each packet, small enough to stay in the processor's cache.
const BUFFER_BYTES: usize = 256 * 1024;
const LARGEST_RECORD_BYTES: usize = 64 * 1024;
/// A record beside its packet: an enhanced packet block with its flags and padding.
const RECORD_BYTES: usize = 48;
/// What a file ends with: an interface statistics block.
const END_BYTES: usize = 112;
