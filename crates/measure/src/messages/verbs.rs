//! Messages by RDMA verbs: queue pairs instead of TCP connections, and what the two ends must know of
//! each other's.
//!
//! A sender keeps a window of sends under way and has every sixty-fourth of them, or each half window,
//! tell its end; a receiver has up to 512 receives ready and puts each back as it is used, as
//! `ib_send_bw` does. Nothing marks the end of what was sent, so the sender's end says on the control
//! connection how many messages it handed over. UC and UD lose what finds no receive ready: what was
//! sent and did not come is told, not sent again; only a ping-pong goes on with another message after
//! half a second. Queues are polled, a CPU each; completion events are left out.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use sys::clock;
use sys::verbs::{Choice, Done, Missing, POLLED, Port, Queue, QueueSpec, Remote, Service, Work};
use units::{Duration, Instant};

use super::{MessageCount, MessageSpec, Pattern, Task, Worked};
use crate::secret;

/// What a queue pair promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verbs {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram: messages of up to the path's MTU.
    Ud,
}

/// Where an end's queues are; it travels as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerbsEnds {
    /// Largest payload of a packet at this end's port, 256 to 4096.
    pub mtu_bytes: u32,
    /// The port's number in an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// The port's address, 32 hexadecimal digits.
    pub gid: String,
    /// One of each data connection that there would be over TCP, in the order of their numbers.
    pub queues: Vec<VerbsQueue>,
}

/// A queue pair as the other end must know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerbsQueue {
    /// Its number, 24 bits.
    pub number: u32,
    /// Number of its first packet, 24 bits.
    pub first_packet: u32,
    /// What datagrams to it must know.
    pub key: u32,
}

/// The port that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsPort {
    /// Its device.
    pub device: String,
    /// Its number.
    pub number: u8,
    /// The address' place in its table, and its kind, such as `RoCE v2`.
    pub gid_index: u8,
    /// The kind of address.
    pub gid_type: String,
    /// Largest payload of a packet between the two ends.
    pub mtu_bytes: u32,
}

impl Verbs {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    /// Its name in flags and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "verbs-rc",
            Self::Uc => "verbs-uc",
            Self::Ud => "verbs-ud",
        }
    }

    const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud => Service::Ud,
        }
    }

    /// Opens a port and closes it again: what messages by verbs would lack on this host.
    ///
    /// # Errors
    ///
    /// What is missing, and how to get it.
    pub fn probe(choice: &Choice, local: Option<IpAddr>) -> Result<(), Missing> {
        Port::open(choice, local).map(drop)
    }
}

/// Why an end has no queues.
#[derive(Debug)]
pub(crate) enum NoQueues {
    /// Something is missing there.
    Missing(Missing),
    /// The kernel refuses.
    Refused(io::Error),
    /// Not for this path.
    Limit(String),
    /// What the other end told of its own.
    Nonsense(String),
}

/// One end's queues, made but not joined with others.
#[derive(Debug)]
pub(crate) struct Queues {
    port: Port,
    verbs: Verbs,
    bytes: u32,
    queues: Vec<(Queue, VerbsQueue)>,
}

impl Queues {
    /// Opens a port and makes the queues that messages take, receives ready.
    pub(crate) fn open(
        verbs: Verbs,
        spec: &MessageSpec,
        local: Option<IpAddr>,
    ) -> Result<Self, NoQueues> {
        let port = Port::open(&spec.rdma, local).map_err(NoQueues::Missing)?;
        let mtu = port.mtu_bytes();
        if let Some(problem) = too_large(verbs, spec.bytes, mtu) {
            return Err(NoQueues::Limit(problem));
        }
        let connections = 0..spec.connections();
        let queues = connections.map(|_| queue(&port, verbs, spec));
        let queues: io::Result<_> = queues.collect();
        Ok(Self {
            port,
            verbs,
            bytes: spec.bytes,
            queues: queues.map_err(NoQueues::Refused)?,
        })
    }

    /// What the other end must know.
    pub(crate) fn ends(&self) -> VerbsEnds {
        VerbsEnds {
            mtu_bytes: self.port.mtu_bytes(),
            lid: self.port.lid(),
            gid: to_hex(self.port.gid()),
            queues: self.queues.iter().map(|(_, told)| told.clone()).collect(),
        }
    }

    /// Joins them with the other end's.
    ///
    /// # Errors
    ///
    /// What is wrong with what the other end told, or what the kernel says.
    pub(crate) fn connect(&mut self, far: &VerbsEnds) -> Result<(), NoQueues> {
        let remotes = far.check(self.queues.len()).map_err(NoQueues::Nonsense)?;
        if let Some(problem) = too_large(self.verbs, self.bytes, far.mtu_bytes) {
            return Err(NoQueues::Limit(problem));
        }
        for ((queue, told), remote) in self.queues.iter_mut().zip(remotes) {
            let joined = queue.connect(told.first_packet, remote);
            joined.map_err(NoQueues::Refused)?;
        }
        Ok(())
    }

    /// The port, for the record; `far` is the other end.
    pub(crate) fn port(&self, far: &VerbsEnds) -> VerbsPort {
        VerbsPort {
            device: self.port.device().to_owned(),
            number: self.port.number(),
            gid_index: self.port.gid_index(),
            gid_type: self.port.gid_type().to_owned(),
            mtu_bytes: self.port.mtu_bytes().min(far.mtu_bytes),
        }
    }

    /// The queues, in the order of their numbers.
    pub(crate) fn into_queues(self) -> Vec<Queue> {
        self.queues.into_iter().map(|(queue, _)| queue).collect()
    }
}

impl NoQueues {
    /// In words.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Missing(missing) => missing.to_string(),
            Self::Limit(text) => text.clone(),
            Self::Nonsense(what) => format!("the other end's RDMA queues: {what}"),
            Self::Refused(error) if error.kind() == ErrorKind::OutOfMemory => format!(
                "the RDMA device refuses: {error}; allow more locked memory (ulimit -l unlimited), or \
                 fewer --outstanding"
            ),
            Self::Refused(error) => format!("the RDMA device refuses: {error}"),
        }
    }
}

impl VerbsEnds {
    /// The port's address as IP; an InfiniBand port's is none that anybody has.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let gid = Ipv6Addr::from(from_hex(&self.gid)?);
        Some(IpAddr::V6(gid).to_canonical())
    }

    /// The queues that it tells of, if all of it makes sense.
    fn check(&self, count: usize) -> Result<Vec<Remote>, String> {
        let gid = from_hex(&self.gid).ok_or("a broken GID")?;
        if !(256..=4096).contains(&self.mtu_bytes) {
            return Err(format!("an MTU of {} B", self.mtu_bytes));
        }
        if self.queues.len() != count {
            return Err(format!("{} queues, not {count}", self.queues.len()));
        }
        let narrow = |n: u32| n < 1 << 24;
        let remote = |queue: &VerbsQueue| {
            (narrow(queue.number) && narrow(queue.first_packet)).then_some(Remote {
                number: queue.number,
                first_packet: queue.first_packet,
                key: queue.key,
                lid: self.lid,
                gid,
                mtu_bytes: self.mtu_bytes,
            })
        };
        let remotes: Option<Vec<Remote>> = self.queues.iter().map(remote).collect();
        remotes.ok_or_else(|| "a queue with a number of more than 24 bits".to_owned())
    }
}

fn queue(port: &Port, verbs: Verbs, spec: &MessageSpec) -> io::Result<(Queue, VerbsQueue)> {
    let random = secret::nonce()?;
    let random: [u32; 2] = [0, 4].map(|at| {
        let bytes = random[at..at + 4].try_into().unwrap_or_default();
        u32::from_be_bytes(bytes)
    });
    let to_and_fro = spec.pattern == Pattern::PingPong;
    let wish = QueueSpec {
        service: verbs.service(),
        message_bytes: spec.bytes,
        // One more, which tells the end of the last ones.
        sends: if to_and_fro { PONGS } else { spec.window + 1 },
        receives: RECEIVES,
        inline_bytes: match (to_and_fro, verbs) {
            (false, _) => 0,
            (true, Verbs::Ud) => INLINE_DATAGRAM_BYTES,
            (true, _) => INLINE_BYTES,
        },
        // The highest bit marks keys that are not the sender's to choose (IBTA 10.2.5).
        key: random[1] >> 1,
    };
    let queue = Queue::new(port, wish)?;
    let told = VerbsQueue {
        number: queue.number(),
        first_packet: random[0] & 0xff_ffff,
        key: wish.key,
    };
    Ok((queue, told))
}

/// Sends that may be under way: fewer of large messages, since all of them have to arrive after the
/// time is over.
fn window(spec: &MessageSpec) -> u64 {
    let most = UNDER_WAY_BYTES / u64::from(spec.bytes.max(1));
    u64::from(spec.window).min(most.max(2))
}

/// What is wrong with a size, if anything: a datagram is one packet.
fn too_large(verbs: Verbs, bytes: u32, mtu_bytes: u32) -> Option<String> {
    (verbs == Verbs::Ud && bytes > mtu_bytes).then(|| {
        format!(
            "messages of {bytes} B; over {} they are packets, of up to {mtu_bytes} B here",
            verbs.name()
        )
    })
}

fn to_hex(gid: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(gid))
}

fn from_hex(text: &str) -> Option<[u8; 16]> {
    let whole = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok()?;
    whole.then(|| number.to_be_bytes())
}

/// What a worker hears and says while it works.
#[derive(Debug)]
pub(super) struct Word {
    /// Raised to end it at once.
    pub(super) abort: AtomicBool,
    /// How many messages the other end handed over; [`UNKNOWN`] while it still sends.
    pub(super) due: AtomicU64,
    /// How many this worker handed over, told when all of them have left; until then [`UNKNOWN`].
    pub(super) sent: AtomicU64,
}

impl Default for Word {
    fn default() -> Self {
        Self {
            abort: AtomicBool::new(false),
            due: AtomicU64::new(UNKNOWN),
            sent: AtomicU64::new(UNKNOWN),
        }
    }
}

/// A queue as the measuring thread sees it.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) queue: &'a mut Queue,
    pub(super) word: &'a Word,
    pub(super) done: &'a AtomicBool,
    pub(super) spec: &'a MessageSpec,
}

/// What one poll brought.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    sends: u64,
    receives: u64,
}

impl Lane<'_> {
    pub(super) fn work(&mut self, task: Task) -> Worked {
        let cpu = clock::thread_cpu();
        let mut worked = Worked::default();
        let ended = match task {
            Task::Ping => self.ping(&mut worked),
            Task::Echo => self.echo(&mut worked.count),
            Task::Send => self.send(&mut worked.count),
            Task::Receive => self.receive(&mut worked.count),
        };
        self.word.sent.store(worked.count.sent, Ordering::Relaxed);
        worked.count.cpu_ns = (clock::thread_cpu() - cpu).as_ns();
        worked.count.error = ended.err().map(|error| error.to_string());
        worked
    }

    /// As over TCP: the first tenth of the time does not count.
    fn ping(&mut self, worked: &mut Worked) -> io::Result<()> {
        let spec = self.spec;
        let times = worked.round_trips.insert(units::Histogram::new());
        let enough = match spec.count {
            0 => u64::MAX,
            n => n,
        };
        let mut span: Option<(Instant, Instant)> = None;
        let mut open = 0;
        let mut last = clock::monotonic();
        let end = last + Duration::from_ns(spec.duration_ns);
        let counted = last + Duration::from_ns(spec.duration_ns / 10);
        while !self.done.load(Ordering::Relaxed) {
            self.queue.send(true)?;
            (open, worked.count.sent) = (open + 1, worked.count.sent + 1);
            let back = self.wait_for_reply(&mut open)?;
            let now = clock::monotonic();
            worked.count.messages += u64::from(back);
            if let (Some((_, until)), true) = (&mut span, back) {
                times.record(now.saturating_since(last));
                *until = now;
            } else if now >= counted && back {
                span = Some((now, now));
            }
            last = now;
            let (some, over) = (times.count() > 0, now >= end);
            if times.count() >= enough || over && (some || !back) {
                break;
            }
        }
        worked.elapsed = span.map_or(Duration::ZERO, |(begun, last)| last.saturating_since(begun));
        Ok(())
    }

    /// Until a message is there; false when it seems to be lost.
    fn wait_for_reply(&mut self, open: &mut u64) -> io::Result<bool> {
        let reliable = self.spec.verbs == Some(Verbs::Rc);
        let (mut idle, mut since) = (0_u32, None);
        let mut back = false;
        // A send whose end was not told keeps its place in the queue.
        while !back || *open >= u64::from(PONGS) {
            let ended = self.poll(&mut idle)?;
            *open = open.saturating_sub(ended.sends);
            back |= ended.receives > 0;
            if idle == 0 || !idle.is_multiple_of(PAUSE) {
                continue;
            }
            let now = clock::monotonic();
            let since = *since.get_or_insert(now);
            if !reliable && now.saturating_since(since) >= REPLY_WAIT {
                return Ok(back);
            }
        }
        Ok(back)
    }

    fn echo(&mut self, count: &mut MessageCount) -> io::Result<()> {
        let (mut open, mut idle) = (0_u64, 0);
        loop {
            let ended = self.poll(&mut idle)?;
            open = open.saturating_sub(ended.sends);
            for _ in 0..ended.receives {
                if open >= u64::from(PONGS) {
                    return Err(io::Error::other("more messages than a ping-pong has"));
                }
                self.queue.send(true)?;
                (open, count.sent) = (open + 1, count.sent + 1);
                count.messages += 1;
            }
            // The client says how many when it wants no more of them back.
            if idle > 0 && idle.is_multiple_of(PAUSE) && self.due().is_some() {
                return Ok(());
            }
        }
    }

    fn send(&mut self, count: &mut MessageCount) -> io::Result<()> {
        let window = window(self.spec);
        let every = (window / 2).clamp(1, EVERY);
        let (mut told, mut idle) = (0_u64, 0);
        while !self.done.load(Ordering::Relaxed) {
            while count.sent - told * every < window && !self.done.load(Ordering::Relaxed) {
                let next = count.sent + 1;
                self.queue.send(next.is_multiple_of(every))?;
                count.sent = next;
            }
            told += self.poll(&mut idle)?.sends;
        }
        let mut all = count.sent / every;
        if !count.sent.is_multiple_of(every) {
            self.queue.send(true)?;
            count.sent += 1;
            all += 1;
        }
        while told < all {
            told += self.poll(&mut idle)?.sends;
        }
        Ok(())
    }

    /// Counts as over TCP; without a ramp the first message only starts the clock, being one whose own
    /// time is not known, unless there is no other.
    fn receive(&mut self, count: &mut MessageCount) -> io::Result<()> {
        let spec = self.spec;
        let begun = clock::monotonic();
        let (mut first, mut last) = (None, begun);
        let mut idle = 0;
        loop {
            let came = self.poll(&mut idle)?.receives;
            if came == 0 {
                if idle.is_multiple_of(PAUSE)
                    && let Some(due) = self.due()
                    && (count.messages >= due || clock::monotonic().saturating_since(last) >= DRAIN)
                {
                    break;
                }
                continue;
            }
            last = clock::monotonic();
            let start = *first.get_or_insert(last);
            count.messages += came;
            let bytes = |messages: u64| messages.saturating_mul(spec.bytes.into());
            let since_ns = last.saturating_since(start).as_ns();
            match spec.ramp_ns {
                0 => (count.bytes, count.duration_ns) = (bytes(count.messages - 1), since_ns),
                ramp_ns if (ramp_ns..spec.duration_ns).contains(&since_ns) => {
                    count.bytes += bytes(came);
                    count.duration_ns = spec.duration_ns - ramp_ns;
                }
                _ => {}
            }
            // All that came came at once.
            if spec.ramp_ns == 0 && since_ns == 0 {
                let took = last.saturating_since(begun).as_ns();
                (count.bytes, count.duration_ns) = (bytes(count.messages), took);
            }
        }
        Ok(())
    }

    /// Takes what has ended and puts receives back; `idle` counts the calls in a row that brought
    /// nothing. Now and then such a call looks whether all is over, and lets others have the CPU.
    fn poll(&mut self, idle: &mut u32) -> io::Result<Ended> {
        let mut done = [Done::default(); POLLED];
        let count = self.queue.poll(&mut done)?;
        let mut ended = Ended::default();
        for one in done.iter().take(count) {
            match one.work {
                Work::Sent => ended.sends += 1,
                Work::Received if one.bytes == self.spec.bytes => {
                    ended.receives += 1;
                    self.queue.receive()?;
                }
                Work::Received => {
                    let (came, due) = (one.bytes, self.spec.bytes);
                    return Err(io::Error::other(format!(
                        "a message of {came} B came where {due} B were due"
                    )));
                }
            }
        }
        if count > 0 {
            *idle = 0;
            return Ok(ended);
        }
        *idle = idle.wrapping_add(1);
        if idle.is_multiple_of(PAUSE) {
            if self.word.abort.load(Ordering::Relaxed) {
                return Err(io::Error::other("the other end gave up"));
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
        Ok(ended)
    }

    fn due(&self) -> Option<u64> {
        Some(self.word.due.load(Ordering::Relaxed)).filter(|&due| due != UNKNOWN)
    }
}

/// Stands for a number that is not known yet.
pub(super) const UNKNOWN: u64 = u64::MAX;
/// As perftest's receive depth.
const RECEIVES: u32 = 512;
/// Sends of a ping-pong whose end was not told yet.
const PONGS: u32 = 32;
/// As perftest's: what common cards take within a wish.
const INLINE_BYTES: u32 = 236;
const INLINE_DATAGRAM_BYTES: u32 = 188;
/// A path of 100 Gb/s and 5 ms holds as much, and one of 100 Mb/s delivers it within a client's patience.
const UNDER_WAY_BYTES: u64 = 64 << 20;
/// Sends of which one tells the end of all.
const EVERY: u64 = 64;
/// Polls that bring nothing between two looks at anything else: some tens of microseconds.
const PAUSE: u32 = 1024;
/// What was sent and has not come after this is lost.
const DRAIN: Duration = Duration::from_ms(500);
const REPLY_WAIT: Duration = Duration::from_ms(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> VerbsEnds {
        VerbsEnds {
            mtu_bytes: 1024,
            lid: 7,
            gid: to_hex([0xab; 16]),
            queues: vec![VerbsQueue {
                number: 0xff_ffff,
                first_packet: 5,
                key: 9,
            }],
        }
    }

    #[test]
    fn a_roce_gid_is_an_ip_address_and_an_infiniband_one_is_nobodys() {
        let address = |gid: &str| {
            let ends = VerbsEnds {
                gid: gid.to_owned(),
                ..VerbsEnds::default()
            };
            ends.address()
        };
        let mapped = address("00000000000000000000ffffc0000201");
        assert_eq!(mapped, Some("192.0.2.1".parse().unwrap()));
        let six = address("20010db8000000000000000000000001");
        assert_eq!(six, Some("2001:db8::1".parse().unwrap()));
        let port = address("fe800000000000000002c90300001234");
        assert_eq!(port, Some("fe80::2:c903:0:1234".parse().unwrap()));
        assert_eq!(address("nonsense"), None);
    }

    #[test]
    fn what_an_end_tells_of_its_queues_is_read_back() {
        let text = serde_json::to_string(&ends()).unwrap();
        let read: VerbsEnds = serde_json::from_str(&text).unwrap();
        let remotes = read.check(1).unwrap();
        assert_eq!(
            remotes,
            [Remote {
                number: 0xff_ffff,
                first_packet: 5,
                key: 9,
                lid: 7,
                gid: [0xab; 16],
                mtu_bytes: 1024,
            }]
        );
    }

    #[test]
    fn an_end_that_makes_no_sense_is_refused() {
        assert!(ends().check(0).is_err());
        assert!(ends().check(2).is_err());
        assert!(VerbsEnds::default().check(0).is_err());
        for gid in ["", "+bababababababababababababababab", &"a".repeat(33)] {
            let gid = gid.to_owned();
            assert!(VerbsEnds { gid, ..ends() }.check(1).is_err());
        }
        for (mtu_bytes, good) in [(255, false), (256, true), (4096, true), (4097, false)] {
            let ends = VerbsEnds {
                mtu_bytes,
                ..ends()
            };
            assert_eq!(ends.check(1).is_ok(), good, "{mtu_bytes}");
        }
        for (number, first_packet) in [(1 << 24, 0), (0, 1 << 24)] {
            let queue = VerbsQueue {
                number,
                first_packet,
                key: 0,
            };
            let queues = vec![queue];
            assert!(VerbsEnds { queues, ..ends() }.check(1).is_err());
        }
    }

    #[test]
    fn few_large_messages_are_under_way_and_no_more_than_were_asked_for() {
        for (bytes, asked, may) in [
            (1, 4096, 4096),
            (512 << 10, 128, 128),
            ((512 << 10) + 1, 128, 127),
            (1 << 23, 128, 8),
            (1 << 23, 1, 1),
        ] {
            let spec = MessageSpec {
                bytes,
                window: asked,
                ..MessageSpec::default()
            };
            assert_eq!(window(&spec), may, "{bytes}");
        }
    }

    #[test]
    fn datagrams_are_packets_and_others_are_not() {
        assert_eq!(too_large(Verbs::Ud, 1024, 1024), None);
        let said = too_large(Verbs::Ud, 1025, 1024).unwrap();
        assert!(said.contains("up to 1024 B"), "{said}");
        assert_eq!(too_large(Verbs::Rc, 1 << 23, 1024), None);
    }

    #[test]
    fn a_wish_for_tcp_is_what_it_was_before_there_were_verbs() {
        let text = serde_json::to_string(&MessageSpec::default()).unwrap();
        assert!(!text.contains("verbs") && !text.contains("rdma"), "{text}");
        let spec = MessageSpec {
            verbs: Some(Verbs::Uc),
            ..MessageSpec::default()
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.contains(r#""verbs":"uc""#), "{text}");
        assert_eq!(serde_json::from_str::<MessageSpec>(&text).unwrap(), spec);
        let text = serde_json::to_string(&MessageCount::default()).unwrap();
        assert!(!text.contains("sent"), "{text}");
    }

    #[test]
    fn what_the_kernel_refuses_for_want_of_memory_names_the_limit() {
        let refused = NoQueues::Refused(io::Error::from_raw_os_error(12));
        assert!(refused.text().contains("ulimit -l"), "{}", refused.text());
        let refused = NoQueues::Refused(io::Error::from_raw_os_error(22));
        assert!(!refused.text().contains("ulimit"), "{}", refused.text());
        assert!(NoQueues::Missing(Missing::Device).text().contains("rxe"));
    }
}
