//! From an interface to files: the loop of a capture.
//!
//! One thread takes blocks of frames from the kernel's ring and writes them. While it writes, the kernel goes
//! on filling the ring; what finds no room there is counted, never silently missed. A request to stop takes
//! what had arrived until then.
//!
//! Tags that the kernel took out of a frame are put back, so that files hold what the wire carried.
//!
//! Left out: several interfaces at once, more than one thread, waiting for an interface to come back.

use std::io;
use std::path::PathBuf;

use sys::ring::{ReceiveRing, RingFrame, RingOptions, StampSource};
use sys::{clock, ethtool, host, netlink};
use units::{Bytes, Duration, Instant};
use wire::filter::{Filter, Way};

use crate::CaptureError;
use crate::out::{About, Output, Record};

/// What is to be captured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the interface, in the calling thread's network namespace.
    pub interface: String,
    /// Which packets.
    pub filter: Filter,
    /// Bytes kept of each.
    pub kept_bytes: u32,
    /// Those that come in, go out, or both.
    pub way: Way,
    /// Also what is not addressed to this host.
    pub promiscuous: bool,
    /// Memory for packets that wait to be written.
    pub ring: Bytes,
    /// Whose stamps.
    pub stamps: Stamps,
    /// When to stop by itself.
    pub limits: Limits,
}

impl About {
    /// What a file of a capture on this machine says.
    pub fn of(options: &Options) -> Self {
        let name = &options.interface;
        let facts = host::interfaces();
        let driver = facts.into_iter().find(|i| i.name == *name);
        let driver = driver.and_then(|i| i.driver);
        Self {
            interface: name.clone(),
            kept_bytes: options.kept_bytes,
            filter: options.filter.text().to_owned(),
            hardware: host::cpu_model(),
            os: format!("Linux {}", host::kernel_release()),
            application: format!("goodput {}", env!("CARGO_PKG_VERSION")),
            description: driver.map_or_else(String::new, |driver| {
                format!("{driver} on {}", host::hostname())
            }),
        }
    }
}

/// Whose stamps are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// The hardware's where it stamps all that is captured: its stamps are on, and nothing that goes out
    /// is captured, which only the kernel stamps, by another clock.
    #[default]
    Auto,
    /// The hardware's wherever a packet has one.
    Hardware,
    /// The kernel's.
    Kernel,
}

/// Ends of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// After this time.
    pub time: Option<Duration>,
    /// After so many packets.
    pub packets: Option<u64>,
    /// Before the files have more than so many bytes.
    pub bytes: Option<Bytes>,
}

/// How it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since the begin.
    pub elapsed: Duration,
    /// Packets captured.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Packets that passed the filter and found no room.
    pub dropped: u64,
}

/// What was captured.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Counts of the whole capture.
    pub total: Progress,
    /// Bytes of all files, removed ones included.
    pub file_bytes: u64,
    /// The files that are there, the oldest first.
    pub files: Vec<PathBuf>,
    /// Files that were removed to keep no more than asked for.
    pub files_removed: u64,
    /// Packets larger than the interface's MTU: put together or not yet cut by this host's off-loads.
    pub super_frames: u64,
    /// Packets by who stamped them.
    pub stamped_by_hardware: u64,
    /// By the kernel when it took or gave the packet.
    pub stamped_by_kernel: u64,
    /// By the kernel when it wrote the packet into the ring, some microseconds later.
    pub stamped_by_ring: u64,
    /// Longest that the driver lets packets wait before the kernel sees and stamps them, in
    /// microseconds, if it tells.
    pub hold_off_us: Option<u32>,
    /// Whether the interface could stamp, and whether that is on for all packets.
    pub hardware: ethtool::HardwareStamps,
}

/// Who looks on while packets are written.
pub trait Tap {
    /// A packet was written.
    fn packet(&mut self, packet: &Record<'_>) {
        let _ = packet;
    }

    /// How it goes: once the first file is open, some times a second, and at the end.
    fn progress(&mut self, progress: &Progress);
}

/// Asks for progress only.
struct Told<'t>(&'t mut dyn FnMut(&Progress));

impl Tap for Told<'_> {
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress);
    }
}

/// A capture that is set up: the socket is there, and no packet passes it by.
#[derive(Debug)]
pub struct Live {
    name: String,
    ring: ReceiveRing,
    kept_bytes: usize,
    limits: Limits,
    largest_plain_bytes: u32,
    captured: Captured,
    /// Drops that earlier files have told.
    dropped_before: u64,
    /// A frame with its tag back in place.
    whole: Vec<u8>,
}

impl Live {
    /// Opens the socket. From here on packets wait in the ring.
    ///
    /// # Errors
    /// Where there is no such interface, no privilege, or no memory.
    pub fn open(options: &Options) -> Result<Self, CaptureError> {
        let name = &options.interface;
        let failed = |step| {
            move |error: io::Error| match error.raw_os_error() {
                Some(EPERM) => CaptureError::NotPermitted(name.clone()),
                Some(ENETDOWN) => CaptureError::Socket {
                    name: name.clone(),
                    step,
                    error: io::Error::other("it is down; bring it up first (ip link set … up)"),
                },
                _ => CaptureError::Socket {
                    name: name.clone(),
                    step,
                    error,
                },
            }
        };
        let interfaces = host::interfaces();
        let Some(facts) = interfaces.iter().find(|i| i.name == *name) else {
            let there = interfaces.into_iter().map(|i| i.name).collect();
            return Err(CaptureError::NoInterface {
                name: name.clone(),
                there,
            });
        };
        let index = netlink::Netlink::open()
            .and_then(|mut n| n.index_of(name))
            .map_err(failed("asking the kernel"))?;
        let hardware = ethtool::hardware_stamps(name);
        // Loopback shows every packet twice, as it goes and as it comes.
        let way = match (name.as_str(), options.way) {
            ("lo", Way::Both) => Way::In,
            (_, way) => way,
        };
        let hardware_stamps = match options.stamps {
            Stamps::Auto => hardware.is_on && way == Way::In,
            Stamps::Hardware => true,
            Stamps::Kernel => false,
        };
        let filter = options.filter.for_socket(options.kept_bytes, way)?;
        let ring = ReceiveRing::open(&RingOptions {
            interface: index,
            filter: &filter,
            bytes: usize::try_from(options.ring.as_u64()).unwrap_or(usize::MAX),
            retire: RETIRE,
            hardware_stamps,
            promiscuous: options.promiscuous,
        })
        .map_err(failed("opening a packet socket"))?;
        let kind = ring.hardware_type().map_err(failed("asking the socket"))?;
        if ![ARP_ETHERNET, ARP_LOOPBACK].contains(&kind) {
            return Err(CaptureError::NotEthernet {
                name: name.clone(),
                hardware: kind,
            });
        }
        Ok(Self {
            name: name.clone(),
            ring,
            kept_bytes: usize::try_from(options.kept_bytes).unwrap_or(usize::MAX),
            limits: options.limits,
            // A frame's head and two tags.
            largest_plain_bytes: facts.mtu_bytes.saturating_add(14 + 8),
            captured: Captured {
                hold_off_us: ethtool::nic_work(name).receive_hold_off_us,
                hardware,
                ..Captured::default()
            },
            dropped_before: 0,
            whole: Vec::new(),
        })
    }

    /// Writes packets until a limit is reached or `stop` says so; `progress` is shown how it goes once the
    /// first file is open, some times a second, and at the end.
    ///
    /// # Errors
    /// Where writing fails or the interface goes away. What was captured before is in the files, which
    /// are whole.
    pub fn run(
        self,
        out: &mut Output,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Captured, CaptureError> {
        self.run_tapped(out, stop, &mut Told(progress))
    }

    /// As [`Self::run`]; `tap` is shown each packet as well.
    ///
    /// # Errors
    /// As there.
    pub fn run_tapped(
        mut self,
        out: &mut Output,
        stop: &dyn Fn() -> bool,
        tap: &mut dyn Tap,
    ) -> Result<Captured, CaptureError> {
        let begun = clock::monotonic();
        out.open(begun, clock::realtime_ns())?;
        tap.progress(&self.captured.total);
        let ended = self.take_all(begun, out, stop, tap);
        let ended = match ended {
            // An unwritable file takes no end either.
            Err(error @ (CaptureError::Write { .. } | CaptureError::NobodyReads)) => Err(error),
            ended => {
                self.count_drops()?;
                self.end_file(out).and(ended)
            }
        };
        self.captured.total.elapsed = clock::monotonic().saturating_since(begun);
        tap.progress(&self.captured.total);
        self.captured.file_bytes = out.all_bytes().as_u64();
        (self.captured.files, self.captured.files_removed) = out.files();
        ended.map(|()| self.captured)
    }

    fn take_all(
        &mut self,
        begun: Instant,
        out: &mut Output,
        stop: &dyn Fn() -> bool,
        tap: &mut dyn Tap,
    ) -> Result<(), CaptureError> {
        let mut ending: Option<Ending> = None;
        let mut gone: Option<CaptureError> = None;
        let mut shown = begun;
        loop {
            let now = clock::monotonic();
            let elapsed = now.saturating_since(begun);
            if ending.is_none() && (stop() || self.limits.time.is_some_and(|t| elapsed >= t)) {
                ending = Some(Ending {
                    realtime_ns: clock::realtime_ns(),
                    latest: now + LINGER,
                });
            }
            if ending.is_some_and(|ending| now >= ending.latest) {
                return gone.map_or(Ok(()), Err);
            }
            if out.is_old(now) {
                self.next_file(out)?;
            }
            if now.saturating_since(shown) >= SHOW_EACH {
                shown = now;
                self.count_drops()?;
                self.captured.total.elapsed = elapsed;
                tap.progress(&self.captured.total);
            }
            match self.take_block(out, ending, tap) {
                Ok(false) => {}
                Ok(true) => return gone.map_or(Ok(()), Err),
                // The kernel says so once, and hands over the block under way when its time is up.
                Err(error @ CaptureError::WentDown(_)) => {
                    gone.get_or_insert(error);
                    ending.get_or_insert_with(|| Ending {
                        realtime_ns: clock::realtime_ns(),
                        latest: now + LINGER,
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes one block's frames. True when that was the last.
    fn take_block(
        &mut self,
        out: &mut Output,
        ending: Option<Ending>,
        tap: &mut dyn Tap,
    ) -> Result<bool, CaptureError> {
        // Borrowed apart from the ring, whose block is open meanwhile.
        let Self {
            name,
            ring,
            captured,
            limits,
            whole,
            ..
        } = self;
        let block = ring
            .next_block(WAIT)
            .map_err(|error| match error.raw_os_error() {
                Some(ENETDOWN) => CaptureError::WentDown(name.clone()),
                _ => CaptureError::Socket {
                    name: name.clone(),
                    step: "reading",
                    error,
                },
            })?;
        let Some(block) = block else {
            return Ok(false);
        };
        for frame in block.frames() {
            let is_late = |ending: Ending| frame.time_ns > ending.realtime_ns;
            if frame.stamp != StampSource::Hardware && ending.is_some_and(is_late) {
                return Ok(true);
            }
            let record = record(&frame, self.kept_bytes, whole);
            if out.is_full(record.captured.len()) {
                // The ring cannot be asked for drops while a block of it is open: they are told by the file
                // that is open when they are counted next.
                let dropped = captured.total.dropped - self.dropped_before;
                self.dropped_before = captured.total.dropped;
                out.end(dropped, clock::realtime_ns())?;
                out.open(clock::monotonic(), clock::realtime_ns())?;
            }
            let limit = limits.bytes.map_or(u64::MAX, Bytes::as_u64);
            if out.all_bytes().as_u64() + (record.captured.len() + MARGIN_BYTES) as u64 > limit {
                return Ok(true);
            }
            out.write(&record)?;
            tap.packet(&record);
            count(
                captured,
                &frame,
                record.original_bytes > self.largest_plain_bytes,
            );
            captured.total.wire_bytes += u64::from(record.original_bytes);
            if limits.packets == Some(captured.total.packets) {
                return Ok(true);
            }
        }
        drop(block);
        out.flush()?;
        Ok(false)
    }

    fn next_file(&mut self, out: &mut Output) -> Result<(), CaptureError> {
        self.count_drops()?;
        self.end_file(out)?;
        out.open(clock::monotonic(), clock::realtime_ns())
    }

    fn end_file(&mut self, out: &mut Output) -> Result<(), CaptureError> {
        let dropped = self.captured.total.dropped - self.dropped_before;
        self.dropped_before = self.captured.total.dropped;
        out.end(dropped, clock::realtime_ns())
    }

    fn count_drops(&mut self) -> Result<(), CaptureError> {
        let counted = self
            .ring
            .statistics()
            .map_err(|error| CaptureError::Socket {
                name: self.name.clone(),
                step: "asking for drops",
                error,
            })?;
        self.captured.total.dropped += counted.drops;
        Ok(())
    }
}

/// The end that was asked for.
#[derive(Clone, Copy)]
struct Ending {
    realtime_ns: u64,
    /// The blocks of that moment are handed over by then.
    latest: Instant,
}

fn count(captured: &mut Captured, frame: &RingFrame<'_>, is_super_frame: bool) {
    captured.total.packets += 1;
    captured.super_frames += u64::from(is_super_frame);
    match frame.stamp {
        StampSource::Hardware => captured.stamped_by_hardware += 1,
        StampSource::Kernel => captured.stamped_by_kernel += 1,
        StampSource::Ring => captured.stamped_by_ring += 1,
    }
}

/// The frame as the wire has it, cut to what is kept.
fn record<'p>(frame: &RingFrame<'p>, kept_bytes: usize, whole: &'p mut Vec<u8>) -> Record<'p> {
    let (bytes, original_bytes) = match frame.tag {
        None => (frame.bytes, frame.length),
        Some((kind, control)) => {
            let (addresses, rest) = frame.bytes.split_at(frame.bytes.len().min(12));
            whole.clear();
            whole.extend_from_slice(addresses);
            whole.extend(kind.to_be_bytes());
            whole.extend(control.to_be_bytes());
            whole.extend_from_slice(rest);
            (&whole[..], frame.length.saturating_add(4))
        }
    };
    Record {
        time_ns: frame.time_ns,
        captured: &bytes[..bytes.len().min(kept_bytes)],
        original_bytes,
        outgoing: frame.outgoing,
    }
}

/// Headers of all that is not tunnelled: Ethernet with two tags (22 bytes), IPv6 (40), TCP with all its
/// options (60) are 122. Little of the payload is kept, which is others' secret, and a file of it is a
/// tenth of the traffic.
pub const HEADERS_BYTES: u32 = 128;
/// More than any packet has, super-frames included; tcpdump's number.
pub const WHOLE_BYTES: u32 = 262_144;
/// Room for 150,000 packets of 128 bytes: 150 ms of a million a second, longer than a busy machine keeps a
/// thread from its CPU.
pub const RING: Bytes = Bytes::new(32 << 20);

/// Longest that a packet waits in a block before it is seen.
const RETIRE: Duration = Duration::from_ms(50);
/// From a request to stop: the kernel retires blocks by a timer of that period, and ticks count.
const LINGER: Duration = Duration::from_ms(150);
const WAIT: Duration = Duration::from_ms(50);
const SHOW_EACH: Duration = Duration::from_ms(500);
/// What a record and the end of a file have beside the packet.
const MARGIN_BYTES: usize = 160;

/// include/uapi/linux/if_arp.h.
const ARP_ETHERNET: u16 = 1;
const ARP_LOOPBACK: u16 = 772;
/// include/uapi/asm-generic/errno.h.
const EPERM: i32 = 1;
const ENETDOWN: i32 = 100;
