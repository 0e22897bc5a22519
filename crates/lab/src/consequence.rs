//! What the lab's own lateness and losses did to what was measured over it.
//!
//! Two answers, the smaller of which counts, with what the ends waited for CPUs, and at most what the path can carry. A bound, by arithmetic: a delay that the path does not have lengthens round
//! trips, a lump that the queue cannot hold and a frame that the lab lost cost a window each. And the path itself in
//! virtual time ([`crate::model`]), once as it is and once with the lateness and losses that were measured, where the
//! model has all of it.

#![allow(
    clippy::cast_precision_loss,
    reason = "estimates of times far below 2^53 ns"
)]

use sim::{Hop, World};
use tcp::{Algorithm, Hystart};
use units::{Duration, Instant, Rate};

use crate::lateness::Lateness;
use crate::model::{self, PacingWish, Wishes};
use crate::path::PathFile;

/// What was sent during a phase.
#[derive(Clone, Debug, Default)]
pub enum Traffic {
    /// Anything: no model knows it.
    #[default]
    Other,
    /// Datagrams that nobody sends again, and nobody sends slower for.
    Datagrams,
    /// Bytes over TCP, as fast as they go, between the two hosts of the transfer.
    Bulk(Bulk),
}

/// A transfer over TCP.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// Connections, at least 1.
    pub streams: u16,
    /// Congestion control by its kernel's name.
    pub congestion: String,
    /// From the near host to the far one, or back.
    pub up: bool,
    /// How long it sends.
    pub duration: Duration,
    /// Of that, what the goodput leaves out.
    pub ramp: Duration,
    /// Least, default and most of the sender's buffer, as the kernel has them.
    pub send_buffer: [u64; 3],
    /// The same of the receiver's.
    pub receive_buffer: [u64; 3],
    /// Share of the time that the ends' threads could have run and waited for a CPU: both ends are on this machine.
    pub ends_waited: f64,
    /// What the path can carry beyond the goodput, as a share of it, where that is known: nothing could have added more.
    pub headroom: Option<f64>,
}

/// At most so far from what the path alone gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncertainty {
    /// Goodput, parts in a million: without the lab it would be so much higher.
    pub goodput_ppm: u64,
    /// Round trips in the mean, parts in a million of the path's: without the lab they would be so much shorter.
    pub round_trip_ppm: u64,
    /// The path was simulated with and without what the lab added.
    pub simulated: bool,
}

/// What the lab added to the path between two hosts, each way: there and back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Added {
    pub(crate) ways: [Lateness; 2],
    /// What probes were late in the mean each way, in nanoseconds, the hosts' own part included.
    pub(crate) probes_ns: [u64; 2],
    /// Frames lost at times that are not known.
    pub(crate) lost_sometime: u64,
    /// Frames both ways.
    pub(crate) frames: u64,
    /// When the phase began and ended.
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl Added {
    fn lost(&self) -> u64 {
        let known = self.ways.iter().flat_map(Lateness::losses);
        known.map(|(_, n)| n).sum::<u64>() + self.lost_sometime
    }

    /// Losses that a sender takes for one.
    fn loss_events(&self) -> u64 {
        let known: usize = self.ways.iter().map(|w| w.losses().len()).sum();
        known as u64 + self.lost_sometime
    }
}

/// How far what was measured may be from what the path alone gives.
pub(crate) fn error(path: &PathFile, traffic: &Traffic, added: &Added) -> Uncertainty {
    let ways = added.ways.iter().zip(added.probes_ns);
    let late: u64 = ways.map(|(w, probes)| w.mean().as_ns().max(probes)).sum();
    let rtt = path.rtt_configured().max(SHORTEST);
    let round_trip_ppm = ppm(late as f64 / rtt.as_ns() as f64);
    let bound = match traffic {
        Traffic::Datagrams => ppm(added.lost() as f64 / added.frames.max(1) as f64),
        _ => round_trip_ppm.saturating_add(ppm(Pipe::of(path).lost_time(added))),
    };
    let bound = Uncertainty {
        goodput_ppm: bound.min(MILLION),
        round_trip_ppm,
        simulated: false,
    };
    let Traffic::Bulk(bulk) = traffic else {
        return bound;
    };
    let worth = bound.goodput_ppm > WORTH_A_MODEL_PPM;
    let model = worth.then(|| simulated(path, bulk, added)).flatten();
    let lab = model.map_or(bound.goodput_ppm, |ppm| ppm.min(bound.goodput_ppm));
    let most = bulk.headroom.map_or(MILLION, |share| ppm(share.max(0.0)));
    Uncertainty {
        goodput_ppm: lab.saturating_add(ppm(bulk.ends_waited)).min(most),
        simulated: model.is_some(),
        ..bound
    }
}

/// The narrowest place of a path, for the bound.
#[derive(Clone, Copy, Debug)]
struct Pipe {
    rate: Option<Rate>,
    /// Time that its queue holds.
    queue: Duration,
    rtt: Duration,
    segment_bytes: u64,
}

impl Pipe {
    fn of(path: &PathFile) -> Self {
        let rate = path.forward.rate;
        let rtt = path.rtt_configured().max(SHORTEST);
        Self {
            rate,
            queue: match rate.map(Rate::as_bits_per_second) {
                Some(bits) if bits > 0 => {
                    seconds(path.forward.queue.as_u64() as f64 * 8.0 / bits as f64)
                }
                _ => rtt,
            },
            rtt,
            segment_bytes: path.mtu_bytes().into(),
        }
    }

    /// Share of a phase in which a sender had less than the path gave it: lumps that the queue cannot hold are losses,
    /// and every loss costs a window's cut.
    fn lost_time(&self, added: &Added) -> f64 {
        let phase = added.ended.saturating_since(added.began);
        let phase = (phase.as_ns() as f64).max(1.0);
        let least = self.queue.max(LUMP_LEAST);
        let (mut cuts, mut stood) = (added.loss_events(), Duration::ZERO);
        for way in &added.ways {
            let (times, sum) = way.stood_still(least);
            cuts += times;
            stood = stood + sum;
        }
        (stood.as_ns() as f64 + cuts as f64 * self.cut_ns()) / phase
    }

    /// What one cut costs a CUBIC sender, as time without sending: three tenths of the window at first, on the
    /// average a quarter of that until it is back (RFC 9438, section 4.2), and nothing where the queue holds as much.
    fn cut_ns(&self) -> f64 {
        let Some(rate) = self.rate else {
            return self.rtt.as_ns() as f64;
        };
        let segments = rate.bytes_in(self.rtt).as_u64() / self.segment_bytes.max(1);
        let back_s = (0.3 * segments as f64 / 0.4).cbrt();
        let hidden = self.queue.as_ns() as f64 / (0.43 * self.rtt.as_ns() as f64);
        (0.3 / 4.0) * back_s * 1e9 * (1.0 - hidden).max(0.0)
    }
}

/// By how much what was added changes the goodput of the path in virtual time, parts in a million; `None` where the model has not
/// all that the path has.
fn simulated(path: &PathFile, bulk: &Bulk, added: &Added) -> Option<u64> {
    let transfer = &path.transfer;
    let (from, to) = match bulk.up {
        true => (transfer.from, transfer.to),
        false => (transfer.to, transfer.from),
    };
    let mut path = path.between(from, to).ok()?;
    path.network.hosts[from].tcp_wmem_bytes = bulk.send_buffer;
    path.network.hosts[to].tcp_rmem_bytes = bulk.receive_buffer;
    let wishes = Wishes {
        streams: bulk.streams,
        algorithm: Algorithm::named(&bulk.congestion)?,
        hystart: Hystart::Linux,
        pacing: PacingWish::Off,
        apart: Duration::ZERO,
        mtu_bytes: None,
        seed: None,
        burst_bytes: BURST_BYTES,
        lone_segments: false,
        queue: None,
        counts_acks: false,
    };
    let planned = model::plan(&path, &wishes).ok()?;
    let rate = path.forward.rate?;
    let packets = rate.bytes_in(bulk.duration).as_u64() / u64::from(planned.segment_bytes.max(1));
    if packets > PACKETS_MAX {
        return None;
    }
    let goodput = |disturbed: Option<Duration>| -> Option<u64> {
        let mut world = World::new(planned.world.clone()).ok()?;
        if let Some(shift) = disturbed {
            disturb(&mut world, &planned.world.flows[0], bulk, added, shift);
        }
        let received = |world: &World| -> u64 {
            let flows = 0..world.flows();
            flows.map(|n| world.flow(n).received_bytes).sum()
        };
        world.run_until(Instant::ZERO + bulk.ramp);
        let at_ramp = received(&world);
        world.run_until(Instant::ZERO + bulk.duration);
        Some(received(&world) - at_ramp)
    };
    let alone = goodput(None)?.max(1);
    let mut most = 0;
    // When the transfer began within the phase is known to some round trips only.
    for shift in [Duration::ZERO, half(path.rtt_configured())] {
        let changed = alone.abs_diff(goodput(Some(shift))?);
        most = most.max(ppm(changed as f64 / alone as f64));
    }
    Some(most)
}

/// Puts what was added at the ends of the flows' ways. The transfer is taken to end with the phase.
fn disturb(world: &mut World, flow: &sim::FlowSpec, bulk: &Bulk, added: &Added, shift: Duration) {
    let phase = added.ended.saturating_since(added.began);
    let start = added.began + less(phase, bulk.duration) + shift;
    let mut place = |hops: &[Hop], way: usize| {
        let mut plan = added.ways[way].disturbance(start);
        if way == usize::from(!bulk.up) && added.lost_sometime > 0 {
            let middle = Instant::ZERO + bulk.ramp + half(less(bulk.duration, bulk.ramp));
            let at = plan.losses.partition_point(|(at, _)| *at < middle);
            plan.losses.insert(at, (middle, added.lost_sometime));
        }
        if let Some(&last) = hops.last() {
            world.disturb(last, plan);
        }
    };
    place(&flow.forward, usize::from(!bulk.up));
    place(&flow.backward, usize::from(bulk.up));
}

fn half(time: Duration) -> Duration {
    Duration::from_ns(time.as_ns() / 2)
}

fn less(time: Duration, part: Duration) -> Duration {
    Duration::from_ns(time.as_ns().saturating_sub(part.as_ns()))
}

fn seconds(s: f64) -> Duration {
    Duration::from_ns(ppm(s * 1e3))
}

fn ppm(share: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and a share is not negative"
    )]
    let ppm = (share * 1e6).ceil() as u64;
    ppm
}

/// Of a shorter path the round trip is what hosts take rather than what the path does.
const SHORTEST: Duration = Duration::from_ms(4);
/// A shorter stall is shorter than those of a host's own interrupts and wake-ups.
const LUMP_LEAST: Duration = Duration::from_ms(1);
/// Below half a per cent the bound will do.
const WORTH_A_MODEL_PPM: u64 = 5_000;
/// Takes a second or two.
const PACKETS_MAX: u64 = 4_000_000;
/// What an interface takes from TCP at once.
const BURST_BYTES: u32 = 65_536;
const MILLION: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use link::{Marks, Release};

    use super::*;

    const SMALL: [u64; 3] = [4_096, 65_536, 65_536];
    const LARGE: [u64; 3] = [4_096, 131_072, 37_748_736];

    fn path(queue: &str) -> PathFile {
        let text = format!(
            "title = \"t\"\n[hosts.a]\n[hosts.b]\n[links.l]\nbetween = [\"a\", \"b\"]\nrate = \"100Mb/s\"\n\
             delay = \"42.5ms\"\nqueue = \"{queue}\"\n"
        );
        PathFile::parse("t.toml".as_ref(), &text).unwrap()
    }

    fn bulk(buffers: [u64; 3]) -> Bulk {
        Bulk {
            streams: 1,
            congestion: "cubic".to_owned(),
            up: true,
            duration: Duration::from_s(10),
            ramp: Duration::from_s(3),
            send_buffer: buffers,
            receive_buffer: buffers,
            ends_waited: 0.0,
            headroom: None,
        }
    }

    /// Ten seconds in which all that leaves is so late, and frames are lost at so many times.
    fn added(late: Duration, losses: u64) -> Added {
        let mut way = Lateness::default();
        for slot in 0..40_000 {
            let at = Instant::ZERO + Duration::from_us(250).saturating_mul(slot);
            let release = Release {
                handle: 0,
                first: 0,
                count: 1,
                wire_bytes: 1538,
                marks: Marks::NONE,
                damage: 0,
                at,
                last_at: at,
            };
            way.account(&release, at + late);
        }
        let mut there = way.clone();
        for n in 0..losses {
            there.lose(
                1,
                Instant::ZERO + Duration::from_ms(200).saturating_mul(n + 1),
            );
        }
        Added {
            ways: [there, way],
            frames: 80_000,
            ended: Instant::ZERO + Duration::from_s(10),
            ..Added::default()
        }
    }

    fn of(queue: &str, buffers: [u64; 3], added: &Added) -> Uncertainty {
        error(&path(queue), &Traffic::Bulk(bulk(buffers)), added)
    }

    #[test]
    fn lateness_slows_a_window_and_not_a_full_link() {
        let late = added(Duration::from_us(4_250), 0);
        let window = of("2MB", SMALL, &late);
        // A round trip of 93.5 ms in place of 85 ms; the bound says a tenth.
        assert_eq!(window.round_trip_ppm, 100_000);
        assert!(
            (85_000..=100_000).contains(&window.goodput_ppm),
            "{window:?}"
        );
        assert!(window.simulated);
        let full = of("2MB", LARGE, &late);
        assert!(full.goodput_ppm < 50_000, "{full:?}");
    }

    #[test]
    fn a_little_lateness_needs_no_model() {
        let e = of("2MB", SMALL, &added(Duration::from_us(200), 0));
        assert_eq!((e.goodput_ppm, e.simulated), (4_706, false));
    }

    #[test]
    fn losses_of_the_lab_count_where_the_queue_does_not_hide_them() {
        let shallow = of("50kB", LARGE, &added(Duration::ZERO, 40));
        assert!(shallow.goodput_ppm > 20_000, "{shallow:?}");
        let window = of("50kB", SMALL, &added(Duration::ZERO, 1));
        // Three round trips of seven seconds.
        assert!(window.goodput_ppm < 36_429, "{window:?}");
    }

    #[test]
    fn nothing_is_slowed_by_more_than_the_path_had_left() {
        let lossy = added(Duration::ZERO, 40);
        let left = |headroom| {
            let bulk = Bulk {
                headroom: Some(headroom),
                ends_waited: 0.5,
                ..bulk(LARGE)
            };
            error(&path("50kB"), &Traffic::Bulk(bulk), &lossy).goodput_ppm
        };
        assert_eq!((left(0.0), left(-0.1), left(0.02)), (0, 0, 20_000));
    }

    #[test]
    fn a_datagram_that_the_lab_lost_is_one_datagram() {
        let e = error(
            &path("50kB"),
            &Traffic::Datagrams,
            &added(Duration::ZERO, 8),
        );
        assert_eq!(e.goodput_ppm, 100);
    }
}
