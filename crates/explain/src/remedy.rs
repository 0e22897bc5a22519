//! What remedies are made of: buffer sizes, numbers of streams, and the goodput to expect.

use throughput::models::{self, LARGEST_BUFFER_BYTES};
use throughput::{Host, RemedyHost, Setting};
use units::{Bytes, Duration, Rate};

use crate::case::Case;
use crate::declared::Bill;
use crate::evidence::{Direction, HostConfig};
use crate::facts::ENOUGH_LOSSES;
use crate::predict::{self, Prediction, Setup};

/// One of the two socket buffers that bound a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    Send,
    Receive,
}

/// The hosts as they would be after a change, and the change in words and as data.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) sender: HostConfig,
    pub(crate) receiver: HostConfig,
    pub(crate) streams: u32,
    pub(crate) sysctl: Vec<String>,
    pub(crate) settings: Vec<Setting>,
    /// Each step as the end of a sentence that begins with nothing.
    pub(crate) steps: Vec<String>,
}

impl Buffer {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Send => Self::Receive,
            Self::Receive => Self::Send,
        }
    }

    pub(crate) const fn host(self) -> Host {
        match self {
            Self::Send => Host::Sender,
            Self::Receive => Host::Receiver,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Send => "send buffer",
            Self::Receive => "receive window",
        }
    }

    pub(crate) const fn sysctl(self) -> &'static str {
        match self {
            Self::Send => "net.ipv4.tcp_wmem",
            Self::Receive => "net.ipv4.tcp_rmem",
        }
    }

    const fn core_sysctl(self) -> &'static str {
        match self {
            Self::Send => "net.core.wmem_max",
            Self::Receive => "net.core.rmem_max",
        }
    }

    const fn socket_option(self) -> &'static str {
        match self {
            Self::Send => "SO_SNDBUF",
            Self::Receive => "SO_RCVBUF",
        }
    }

    /// Linux defaults of the sysctl on a host with ample memory (net/ipv4/tcp.c, `tcp_init`).
    const fn kernel_default(self) -> [u64; 3] {
        match self {
            Self::Send => [4_096, 16_384, 4 << 20],
            Self::Receive => [4_096, 131_072, 6 << 20],
        }
    }

    /// What the application fixed, if it did.
    pub(crate) const fn fixed(self, host: &HostConfig) -> Option<Bytes> {
        match self {
            Self::Send => host.sndbuf_fixed,
            Self::Receive => host.rcvbuf_fixed,
        }
    }

    /// The sysctl's three values.
    pub(crate) const fn configured(self, host: &HostConfig) -> Option<[u64; 3]> {
        match self {
            Self::Send => host.tcp_wmem_bytes,
            Self::Receive => host.tcp_rmem_bytes,
        }
    }
}

impl Change {
    /// No change yet.
    pub(crate) fn of(case: &Case<'_>) -> Self {
        Self {
            sender: case.evidence.sender.clone(),
            receiver: case.evidence.receiver.clone(),
            streams: case.stream_count(),
            sysctl: Vec::new(),
            settings: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Makes room for the path in a buffer: lets the kernel size it, up to a maximum that fits.
    pub(crate) fn raise(&mut self, case: &Case<'_>, buffer: Buffer) {
        let place = case.host_name(buffer.host());
        let host = match buffer {
            Buffer::Send => &mut self.sender,
            Buffer::Receive => &mut self.receiver,
        };
        let current = buffer.configured(host);
        let was_fixed = buffer.fixed(host).is_some();
        if was_fixed {
            host.sndbuf_fixed = host.sndbuf_fixed.filter(|_| buffer != Buffer::Send);
            host.rcvbuf_fixed = host.rcvbuf_fixed.filter(|_| buffer != Buffer::Receive);
            self.settings.push(Setting::AutotuneBuffer(buffer.host()));
            self.steps
                .push(format!("leave {} unset on {place}", buffer.socket_option()));
        }
        let needed = buffer_size(case, buffer);
        let enough = current.is_some_and(|sizes| sizes[2] >= needed.as_u64());
        if was_fixed && enough {
            return;
        }
        let [min, default, _] = buffer.kernel_default();
        let [min_now, default_now, max_now] = current.unwrap_or([min, default, 0]);
        // The kernel says it is large enough and the clocks say it is not: go one size up.
        let max = if enough {
            max_now.saturating_mul(2)
        } else {
            needed.as_u64()
        };
        let sizes = [
            min_now.max(min),
            default_now.max(default),
            max.min(LARGEST_BUFFER_BYTES),
        ];
        match buffer {
            Buffer::Send => host.tcp_wmem_bytes = Some(sizes),
            Buffer::Receive => host.tcp_rmem_bytes = Some(sizes),
        }
        self.note_sizes(buffer, place, sizes);
    }

    /// Adds streams until the prediction reaches what the path carries, if one cannot.
    pub(crate) fn add_streams_if_needed(&mut self, case: &Case<'_>) {
        let (Some(wanted), Some(rate)) = (case.facts.achievable, self.predict(case).rate) else {
            return;
        };
        if rate.as_bits_per_second() >= wanted.as_bits_per_second() / 10 * 9 {
            return;
        }
        let each = rate.as_bits_per_second() / u64::from(self.streams.max(1));
        let needed = streams_for(wanted, Rate::from_bits_per_second(each));
        if u32::from(needed) > self.streams {
            self.streams = u32::from(needed);
            self.settings.push(Setting::Streams(needed));
            self.steps.push(format!("use {needed} streams"));
        }
    }

    /// Goodput to expect afterwards.
    pub(crate) fn predict(&self, case: &Case<'_>) -> Prediction {
        let mut path = case.evidence.path;
        if path.achievable_rate().is_none() {
            path.bottleneck = case.evidence.target;
        }
        predict::predict(&Setup {
            sender: &self.sender,
            receiver: &self.receiver,
            path: &path,
            idle_rtt: case.facts.idle_rtt,
            streams: self.streams,
            buffers: case.evidence.buffers,
            loss_rate: case.random_loss(),
        })
    }

    /// Where the changed sysctls and sockets are.
    pub(crate) fn place(&self, case: &Case<'_>) -> Option<RemedyHost> {
        let touched = |host: Host| {
            self.settings.iter().any(|s| match s {
                Setting::Sysctl { host: at, .. } | Setting::AutotuneBuffer(at) => *at == host,
                Setting::CongestionControl(_) | Setting::Streams(_) => false,
            })
        };
        match (touched(Host::Sender), touched(Host::Receiver)) {
            (true, true) => Some(RemedyHost::Both),
            (true, false) => Some(case.remedy_host(Host::Sender)),
            (false, true) => Some(case.remedy_host(Host::Receiver)),
            (false, false) => None,
        }
    }

    fn note_sizes(&mut self, buffer: Buffer, place: &str, sizes: [u64; 3]) {
        let [min, default, max] = sizes;
        let (name, value) = (buffer.sysctl(), format!("{min} {default} {max}"));
        self.sysctl.push(format!(
            "# on {place}; the second line is for applications that set {}",
            buffer.socket_option()
        ));
        self.sysctl.push(format!("{name} = {value}"));
        self.sysctl
            .push(format!("{} = {max}", buffer.core_sysctl()));
        self.steps
            .push(format!("raise {name} on {place} to {}", Bytes::new(max)));
        let name = name.to_owned();
        self.settings.push(Setting::Sysctl {
            host: buffer.host(),
            name,
            value,
        });
    }
}

impl Case<'_> {
    /// Connections of the transfer, at least one.
    pub(crate) fn stream_count(&self) -> u32 {
        u32::try_from(self.facts.streams).unwrap_or(u32::MAX).max(1)
    }

    /// `the near host` or `the far host`.
    pub(crate) const fn host_name(&self, host: Host) -> &'static str {
        match self.remedy_host(host) {
            RemedyHost::Near => "the near host",
            _ => "the far host",
        }
    }

    /// Near or far, by the direction of the transfer.
    pub(crate) const fn remedy_host(&self, host: Host) -> RemedyHost {
        match (self.evidence.direction, host) {
            (Direction::Up, Host::Sender) | (Direction::Down, Host::Receiver) => RemedyHost::Near,
            (Direction::Up, Host::Receiver) | (Direction::Down, Host::Sender) => RemedyHost::Far,
        }
    }

    /// The windows that buffers allow now, and the round trip they divide by.
    pub(crate) fn setup(&self) -> Setup<'_> {
        Setup {
            sender: &self.evidence.sender,
            receiver: &self.evidence.receiver,
            path: &self.evidence.path,
            idle_rtt: self.facts.idle_rtt,
            streams: self.stream_count(),
            buffers: self.evidence.buffers,
            loss_rate: None,
        }
    }

    /// What a write costs the sender by declaration.
    pub(crate) fn write_bill(&self) -> Option<Bill> {
        let cost = self.evidence.sender.write_cost.as_ref()?;
        cost.bill(self.evidence.path.mss_bytes())
    }

    /// Payload in flight that a buffer allows one connection now.
    pub(crate) fn window(&self, buffer: Buffer) -> Option<Bytes> {
        let windows = self.setup().windows();
        match buffer {
            Buffer::Send => windows.send,
            Buffer::Receive => windows.receive,
        }
    }

    /// Rate of all connections with that window each.
    pub(crate) fn window_rate(&self, window: Bytes) -> Option<Rate> {
        let one = models::window_limit(window, self.facts.idle_rtt)?.as_bits_per_second();
        Some(Rate::from_bits_per_second(
            one.saturating_mul(u64::from(self.stream_count())),
        ))
    }

    /// Loss rate that is not the transfer's own queue, where there were losses enough to tell.
    pub(crate) fn random_loss(&self) -> Option<f64> {
        let random = self.facts.lost_at_full_queue < 0.5;
        (self.facts.lost_segments() >= ENOUGH_LOSSES && random).then_some(self.facts.loss_rate)
    }

    /// ` of 941.5 Mb/s possible`, where that is known.
    pub(crate) fn of_possible(&self) -> String {
        match (self.facts.achievable, self.facts.bottleneck_known) {
            (Some(rate), true) => format!(" of {rate} possible"),
            (Some(rate), false) => format!(" of {rate} aimed at"),
            (None, _) => String::new(),
        }
    }
}

/// Streams that reach `wanted` when each gets `each`: 2 to [`STREAMS_MAX`].
pub(crate) fn streams_for(wanted: Rate, each: Rate) -> u16 {
    let each = each.as_bits_per_second().max(1);
    let needed = wanted.as_bits_per_second().div_ceil(each);
    u16::try_from(needed)
        .unwrap_or(STREAMS_MAX)
        .clamp(2, STREAMS_MAX)
}

/// `n` streams of `each`, but no more than the path carries.
pub(crate) fn streams_rate(n: u16, each: Rate, path: Option<Rate>) -> Rate {
    let sum = each.as_bits_per_second().saturating_mul(u64::from(n));
    let path = path.map_or(u64::MAX, Rate::as_bits_per_second);
    Rate::from_bits_per_second(sum.min(path))
}

/// Size for a buffer's maximum: the window that fills the path, doubled so that a loss can be
/// repaired while new data flows, divided by the payload's share of the buffer, rounded up to
/// four MiB, and at least the kernel's default. No coarser: a window far above path and queue
/// only lets slow start overrun the queue.
fn buffer_size(case: &Case<'_>, buffer: Buffer) -> Bytes {
    let fraction = match buffer {
        Buffer::Send => case.evidence.buffers.send_payload_fraction,
        Buffer::Receive => case.evidence.buffers.receive_window_fraction,
    };
    let [.., default] = buffer.kernel_default();
    let size = match case.facts.wire_rate {
        Some(rate) if case.facts.idle_rtt > Duration::ZERO => {
            models::buffer_for(rate, case.facts.idle_rtt, fraction).as_u64()
        }
        _ => SIZE_WITHOUT_RATE_BYTES,
    };
    Bytes::new(size.clamp(default, LARGEST_BUFFER_BYTES))
}

/// More streams than this cost more (memory, fairness, the slowest of them) than they bring; chosen.
pub(crate) const STREAMS_MAX: u16 = 128;

/// Streams to try where the path's rate is not known: NASA NREN needed 8 to 12 with small MTUs
/// (Foster, CENIC '07, "initial investigations").
pub(crate) const STREAMS_WITHOUT_RATE: u16 = 8;

/// What perfSONAR's installer and ESnet give a host without asking for its path (64 MiB).
const SIZE_WITHOUT_RATE_BYTES: u64 = 64 << 20;
