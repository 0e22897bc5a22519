//! What of a gateway is kept in a run folder: sums over all it did and over its busiest connections, looked at
//! once a second.
//!
//! A gateway may run for years: who talked is kept of a bounded number, and readings get twice as far apart
//! with each [`READINGS`], so `samples.jsonl` grows by the logarithm of time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use run::model::{
    FindingRecord, GAINED, GatewayBuffer, GatewayHalf, GatewayLink, GatewayPassed, GatewayRefused,
    GatewayRun, GatewaySampled, GatewayTalker, HostFacts, Run, RunState, SCHEMA_VERSION,
    SampleRecord, Verdict,
};
use run::{FolderError, RunFolder};
use sys::clock;
use units::{Duration, Instant, Rate};

use crate::buffers::Decision;
use crate::config::{Config, Mode, Zone};
use crate::counters::Counts;
use crate::links::LinkStatus;
use crate::sampled::Sampled;
use crate::service::Gateway;
use crate::status::{self, Sums};
use crate::view::{HalfSeen, Seen};

/// Sums over one gateway's doings.
#[derive(Debug)]
pub struct Record {
    /// Among those of the run.
    number: u32,
    begun: Instant,
    looked: Instant,
    counts: Counts,
    /// As the last reading had them.
    read: Counts,
    live_max: u64,
    waiting_max: u64,
    in_pipes_max: u64,
    pipes_max: u64,
    held_slowest: Option<u64>,
    /// Of seconds in which anything moved.
    moving: Duration,
    carried_bits: f64,
    unsplit_bits: f64,
    /// Of any connection a bound was known.
    bound: bool,
    known: HashMap<(SocketAddr, SocketAddr), Known>,
    sides: [SideSum; 2],
    /// Towards outside, towards inside: round trip now.
    rtt_us: [Option<u64>; 2],
    /// Outward, inward: what the busiest carried in the last second.
    rates_bps: [u64; 2],
    links: Vec<LinkStatus>,
    buffers: Vec<Decision>,
    sampled: Vec<Sampled>,
}

/// What is known of a connection.
#[derive(Clone, Debug)]
struct Known {
    seen: Seen,
    /// Of the way that carries most, while it did.
    bits: f64,
    moving: Duration,
    unsplit: Option<Rate>,
    held_by: String,
}

/// What the halves on one side did.
#[derive(Clone, Copy, Debug, Default)]
struct SideSum {
    acknowledged: u64,
    moving: Duration,
    /// Round trips by the bytes that they were seen with.
    rtt_us_bytes: f64,
    bytes: f64,
    min_rtt_us: Option<u64>,
    busy_us: u64,
    window_us: u64,
    buffer_us: u64,
    segments: u64,
    again: u64,
}

impl Record {
    /// Nothing yet, of the gateway that has this number among those of a run.
    pub fn new(number: u32, now: Instant, counts: Counts) -> Self {
        Self {
            number,
            begun: now,
            looked: now,
            counts,
            read: counts,
            live_max: counts.live,
            waiting_max: 0,
            in_pipes_max: 0,
            pipes_max: 0,
            held_slowest: None,
            moving: Duration::ZERO,
            carried_bits: 0.0,
            unsplit_bits: 0.0,
            bound: false,
            known: HashMap::new(),
            sides: [SideSum::default(); 2],
            rtt_us: [None; 2],
            rates_bps: [0; 2],
            links: Vec::new(),
            buffers: Vec::new(),
            sampled: Vec::new(),
        }
    }

    /// What buffers new connections get by now, and what passed unsplit.
    pub fn set_others(&mut self, buffers: Vec<Decision>, sampled: Vec<Sampled>) {
        (self.buffers, self.sampled) = (buffers, sampled);
    }

    /// Takes in what the gateway says now; `seen` are its busiest connections.
    pub fn look(&mut self, now: Instant, counts: Counts, seen: &[Seen], links: Vec<LinkStatus>) {
        let time = now.saturating_since(self.looked);
        self.live_max = self.live_max.max(counts.live);
        self.waiting_max = self.waiting_max.max(counts.waiting);
        self.in_pipes_max = self.in_pipes_max.max(counts.in_pipes);
        self.pipes_max = self.pipes_max.max(counts.pipes);
        self.held_slowest = self.held_slowest.max(held(&self.counts, &counts));
        (self.looked, self.counts, self.links) = (now, counts, links);
        let seconds = time.as_s_f64();
        let (mut carried, mut unsplit) = (0.0, 0.0);
        let mut trips = [(0.0, 0.0); 2];
        self.rates_bps = [0; 2];
        let mut acknowledged = [0_u64; 2];
        for seen in seen {
            let there = seen.rate_bps[0] >= seen.rate_bps[1];
            let to = usize::from(there);
            let rate = as_f64(seen.rate_bps[1 - to]);
            let bound = status::unsplit(seen, to);
            self.bound |= bound.is_some() && rate > 0.0;
            carried += rate;
            unsplit += bound.map_or(rate, |b| as_f64(b.as_bits_per_second()).min(rate));
            let before = self.known.get(&(seen.client, seen.server));
            for half in 0..2 {
                let side = side_of(seen, half);
                // What an end inside sends goes outward.
                self.rates_bps[side] += seen.rate_bps[half];
                let rate = as_f64(seen.rate_bps[1 - half]);
                let new = &seen.halves[half];
                trips[side].0 += rate * as_f64(new.rtt_us);
                trips[side].1 += rate;
                let fresh = HalfSeen::default();
                let old = match before {
                    Some(known) => &known.seen.halves[half],
                    // What it did before anybody looked cannot be placed in time.
                    None if seen.age_ms > FRESH_MS => new,
                    None => &fresh,
                };
                acknowledged[side] += self.sides[side].add(old, new);
            }
            let known = self
                .known
                .entry((seen.client, seen.server))
                .or_insert_with(|| Known {
                    seen: seen.clone(),
                    bits: 0.0,
                    moving: Duration::ZERO,
                    unsplit: None,
                    held_by: String::new(),
                });
            if rate > 0.0 {
                known.bits += rate * seconds;
                known.moving = known.moving + time;
                known.held_by = status::held_by(&seen.halves[to]);
                known.unsplit = bound.or(known.unsplit);
            }
            known.seen = seen.clone();
        }
        for side in 0..2 {
            if acknowledged[side] > 0 {
                self.sides[side].moving = self.sides[side].moving + time;
            }
            let (sum, rates) = trips[side];
            self.rtt_us[side] = (rates > 0.0).then(|| whole(sum / rates));
        }
        if carried > 0.0 {
            self.carried_bits += carried * seconds;
            self.unsplit_bits += unsplit * seconds;
            self.moving = self.moving + time;
        }
        self.forget();
    }

    /// Who carried least is forgotten where there are too many.
    fn forget(&mut self) {
        if self.known.len() <= KNOWN {
            return;
        }
        let sum = |k: &Known| k.seen.carried.iter().sum::<u64>();
        let mut sums: Vec<u64> = self.known.values().map(sum).collect();
        sums.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
        let least = sums[KNOWN / 2];
        self.known.retain(|_, known| sum(known) > least);
    }

    /// A reading of each way, with what has been since the last.
    pub fn readings(&mut self) -> [SampleRecord; 2] {
        let c = &self.counts;
        let held = held(&self.read, c);
        let t_ns = self.looked.saturating_since(self.begun).as_ns();
        let reading = |end: &str, app_bytes: u64, rtt_us: Option<u64>| SampleRecord {
            phase: "gateway".to_owned(),
            end: end.to_owned(),
            stream: self.number,
            t_ns,
            app_bytes,
            tcp_info: rtt_us
                .map(|us| ("rtt_us".to_owned(), us))
                .into_iter()
                .collect(),
        };
        let [inside, outside] = self.rtt_us;
        let mut both = [
            reading("outward", c.bytes_outward, outside),
            reading("inward", c.bytes_inward, inside),
        ];
        let more = [
            ("gateway_connections", Some(c.live)),
            ("gateway_in_pipes_bytes", Some(c.in_pipes)),
            ("gateway_syns_waiting", Some(c.waiting)),
            ("gateway_held_ns", held),
        ];
        let more = more
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        both[0].tcp_info.extend(more);
        self.read = self.counts;
        both
    }

    /// All of it, of a gateway of that name and configuration.
    pub fn result(&self, name: &str, config: &Config) -> GatewayRun {
        let c = &self.counts;
        let [inside, outside] = Zone::BOTH.map(|z| config.zone(z).interfaces.clone());
        let sums = self.sums();
        GatewayRun {
            name: name.to_owned(),
            inside,
            outside,
            transparent: config.mode == Mode::Transparent,
            watched_ns: self.looked.saturating_since(self.begun).as_ns(),
            split: c.split,
            live: c.live,
            live_max: self.live_max,
            ended: c.ended,
            reset: c.reset,
            undelivered: c.undelivered,
            undelivered_bytes: c.bytes_undelivered,
            abandoned: c.abandoned,
            passed: GatewayPassed {
                by_rule: c.bypassed,
                at_limit: c.over_limit,
                for_lack: c.failed,
                sampled: c.sampled,
                one_way: c.passed_one_way,
                beside_silence: c.passed_silent,
            },
            refused: GatewayRefused {
                by_rule: c.forbidden,
                by_server: c.refused,
                unreachable: c.unreachable,
                silent: c.silent,
            },
            outward_bytes: c.bytes_outward,
            inward_bytes: c.bytes_inward,
            held_mean_ns: c.held_ns.checked_div(c.split),
            held_slowest_ns: self.held_slowest,
            waiting_max: self.waiting_max,
            in_pipes_max_bytes: self.in_pipes_max,
            pipes_max: self.pipes_max,
            carried_bits_per_second: sums.carried_bps,
            unsplit_bits_per_second: sums.unsplit_bps,
            gain: sums.gain,
            halves: sums.halves,
            talkers: self.talkers(),
            links: self.links.iter().map(link).collect(),
            buffers: self.buffers.iter().map(buffer).collect(),
            sampled: self.sampled.iter().map(|s| self.sample(s)).collect(),
            certificate: None,
        }
    }

    /// What it comes to by now.
    fn sums(&self) -> Sums {
        let carried = self.mean(self.carried_bits);
        let unsplit = self.mean(self.unsplit_bits).filter(|_| self.bound);
        let gain = || Some(as_f64(carried?) / as_f64(unsplit.filter(|n| *n > 0)?));
        Sums {
            rates_bps: self.rates_bps,
            carried_bps: carried,
            unsplit_bps: unsplit,
            gain: gain(),
            halves: Zone::BOTH
                .map(|z| self.sides[z.index()].result(z.name()))
                .to_vec(),
        }
    }

    fn mean(&self, bits: f64) -> Option<u64> {
        let seconds = self.moving.as_s_f64();
        (seconds > 0.0).then(|| whole(bits / seconds))
    }

    /// One that passed unsplit, beside what the model says of those that were split to the same server.
    fn sample(&self, sampled: &Sampled) -> GatewaySampled {
        let alike = self.known.values();
        let alike = alike.filter(|k| k.seen.server.ip() == sampled.server.ip());
        let model = alike.filter_map(|k| k.unsplit).max();
        GatewaySampled {
            client: sampled.client.to_string(),
            server: sampled.server.to_string(),
            there_bytes: sampled.carried[0],
            back_bytes: sampled.carried[1],
            bits_per_second: sampled.rate_bps,
            moving_ns: sampled.moving_ms.saturating_mul(1_000_000),
            model_bits_per_second: model.map(Rate::as_bits_per_second),
        }
    }

    fn talkers(&self) -> Vec<GatewayTalker> {
        let sum = |k: &Known| k.seen.carried.iter().sum::<u64>();
        let mut all: Vec<&Known> = self.known.values().filter(|k| sum(k) > 0).collect();
        all.sort_by_key(|k| (std::cmp::Reverse(sum(k)), k.seen.client));
        all.truncate(TALKERS);
        all.into_iter().map(Known::result).collect()
    }
}

impl Known {
    fn result(&self) -> GatewayTalker {
        let seconds = self.moving.as_s_f64();
        let seen = &self.seen;
        GatewayTalker {
            client: seen.client.to_string(),
            server: seen.server.to_string(),
            there_bytes: seen.carried[0],
            back_bytes: seen.carried[1],
            bits_per_second: match seconds > 0.0 {
                true => whole(self.bits / seconds),
                false => 0,
            },
            rtt_client_ns: seen.halves[0].min_rtt_us.saturating_mul(1_000),
            rtt_server_ns: seen.halves[1].min_rtt_us.saturating_mul(1_000),
            held_by: self.held_by.clone(),
            unsplit_bits_per_second: self.unsplit.map(Rate::as_bits_per_second),
        }
    }
}

impl SideSum {
    /// What a half has done since `old`; returns the bytes that were acknowledged.
    fn add(&mut self, old: &HalfSeen, new: &HalfSeen) -> u64 {
        let more = |field: fn(&HalfSeen) -> u64| field(new).saturating_sub(field(old));
        let bytes = more(|h| h.acknowledged);
        self.busy_us += more(|h| h.busy_us);
        self.window_us += more(|h| h.window_limited_us);
        self.buffer_us += more(|h| h.buffer_limited_us);
        self.segments += more(|h| h.segments);
        self.again += more(|h| h.retransmissions);
        if bytes > 0 {
            self.acknowledged += bytes;
            self.bytes += as_f64(bytes);
            self.rtt_us_bytes += as_f64(bytes) * as_f64(new.rtt_us);
            let least = self
                .min_rtt_us
                .map_or(new.min_rtt_us, |us| us.min(new.min_rtt_us));
            self.min_rtt_us = Some(least);
        }
        bytes
    }

    fn result(&self, side: &str) -> GatewayHalf {
        let seconds = self.moving.as_s_f64();
        let share = |part: u64, all: u64| as_f64(part) / as_f64(all.max(1));
        let ns = |us: f64| whole(us * 1e3);
        GatewayHalf {
            side: side.to_owned(),
            rtt_ns: (self.bytes > 0.0).then(|| ns(self.rtt_us_bytes / self.bytes)),
            min_rtt_ns: self.min_rtt_us.map(|us| us.saturating_mul(1_000)),
            acknowledged_bits_per_second: (seconds > 0.0)
                .then(|| whole(8.0 * as_f64(self.acknowledged) / seconds)),
            receiver_share: share(self.window_us, self.busy_us),
            buffer_share: share(self.buffer_us, self.busy_us),
            retransmitted_share: share(self.again, self.segments),
        }
    }
}

fn link(link: &LinkStatus) -> GatewayLink {
    GatewayLink {
        side: link.side.clone(),
        interface: link.interface.clone(),
        alive: link.alive,
        answers: link.answers,
        connections: link.connections,
        placed: link.placed,
    }
}

fn buffer(decision: &Decision) -> GatewayBuffer {
    GatewayBuffer {
        side: decision.side.clone(),
        hosts: decision.hosts.clone(),
        min_rtt_ns: decision.rtt_us.saturating_mul(1_000),
        sent_bits_per_second: decision.sent_bps,
        received_bits_per_second: decision.received_bps,
        send_bytes: decision.send_bytes,
        receive_bytes: decision.receive_bytes,
        why: decision.why.clone(),
    }
}

/// The side that a half is on, by the index of [`Zone`].
fn side_of(seen: &Seen, half: usize) -> usize {
    usize::from(seen.outside == (half == 0))
}

/// How long SYNs were held between two looks, mean of those that became connections.
fn held(before: &Counts, after: &Counts) -> Option<u64> {
    let time = after.held_ns.saturating_sub(before.held_ns);
    time.checked_div(after.split.saturating_sub(before.split))
}

#[allow(clippy::cast_precision_loss, reason = "sums of rates and times")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and nothing here is negative"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// What all gateways of a run come to, in a sentence.
pub fn verdict(gateways: &[GatewayRun]) -> Verdict {
    let split: u64 = gateways.iter().map(|g| g.split).sum();
    let best = gateways
        .iter()
        .max_by(|a, b| a.gain.unwrap_or(0.0).total_cmp(&b.gain.unwrap_or(0.0)));
    let rate = |bits: u64| Rate::from_bits_per_second(bits);
    let said = best.and_then(|g| {
        let carried = rate(g.carried_bits_per_second?);
        Some(match (g.gain, g.unsplit_bits_per_second) {
            (Some(gain), Some(unsplit)) if gain >= GAINED => format!(
                "The gateway carried {carried} where the same connections would have had about {} unsplit, by the \
                 model: {gain:.1} times.",
                rate(unsplit)
            ),
            (Some(_), _) => format!(
                "The gateway carried {carried}; nothing that it sees would have held the same connections unsplit."
            ),
            _ => format!("The gateway carried {carried}."),
        })
    });
    let sentence = said.unwrap_or_else(|| match split {
        0 => "Nothing was split.".to_owned(),
        1 => "1 connection was split; none carried much when it was looked at.".to_owned(),
        n => format!("{n} connections were split; none carried much when they were looked at."),
    });
    Verdict {
        sentence,
        conclusive: true,
        healthy: true,
        ..Verdict::default()
    }
}

/// A run of the gateway's on `host`, begun now.
pub fn run(name: &str, command_line: Vec<String>, host: HostFacts) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        verb: "gateway".to_owned(),
        name: name.to_owned(),
        state: RunState::Running,
        command_line,
        goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_utc: run::now_utc(),
        hosts: vec![host],
        ..Run::default()
    }
}

/// Where a service keeps its run folder, and what stands in it from the beginning.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Folder of run folders.
    pub runs: PathBuf,
    /// What was typed.
    pub command_line: Vec<String>,
    /// This machine.
    pub host: HostFacts,
    /// Draws its page.
    pub page: DrawPage,
}

/// Draws a run with its samples and findings as a page.
pub type DrawPage = fn(&Run, &[SampleRecord], &[FindingRecord]) -> String;

/// A run folder that was begun, and what draws its page.
#[derive(Debug)]
pub struct Kept {
    folder: RunFolder,
    page: DrawPage,
}

impl Kept {
    /// Removes a folder that was not used.
    pub fn discard(self) {
        self.folder.discard();
    }
}

impl Keep {
    /// Begins a service's run folder while the process may write wherever root may, and holds it:
    /// later it might not even reach it by its name.
    ///
    /// # Errors
    /// Why there is none; the gateway runs without.
    pub fn begin(self, config: &Config) -> Result<Kept, FolderError> {
        let interfaces = config.zones.iter().flat_map(|z| &z.interfaces);
        let name = interfaces.cloned().collect::<Vec<_>>().join("-");
        let run = run(&name, self.command_line, self.host);
        let folder = RunFolder::create(&self.runs, "gateway", &name, run)?;
        let page = self.page;
        Ok(Kept { folder, page })
    }
}

/// A service's record.
#[derive(Debug)]
pub struct Recorder {
    record: Record,
    config: Config,
    kept: Kept,
    run: Run,
    next_look: Instant,
    next_reading: Instant,
    every: Duration,
    readings: u32,
    next_write: Instant,
}

impl Recorder {
    /// Goes on with a folder.
    pub fn begin(kept: Kept, gateway: &Gateway, config: &Config) -> Self {
        let now = clock::monotonic();
        Self {
            record: Record::new(0, now, gateway.counts()),
            config: config.clone(),
            run: kept.folder.run().clone(),
            kept,
            next_look: now,
            next_reading: now,
            every: LOOK,
            readings: 0,
            next_write: now + WRITE,
        }
    }

    /// To be called often.
    ///
    /// # Errors
    /// The folder cannot be written any more: the gateway goes on without.
    pub fn look(mut self, gateway: &Gateway) -> Result<Self, FolderError> {
        let now = clock::monotonic();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.see(gateway, now);
            self.keep(now)?;
        }
        Ok(self)
    }

    /// What it comes to by now, a second old at most.
    pub fn sums(&self) -> Sums {
        self.record.sums()
    }

    fn see(&mut self, gateway: &Gateway, now: Instant) {
        let (counts, seen) = (gateway.counts(), gateway.look(BUSIEST));
        self.record.look(now, counts, &seen, gateway.links());
        self.record.set_others(gateway.buffers(), gateway.sampled());
    }

    fn keep(&mut self, now: Instant) -> Result<(), FolderError> {
        if now >= self.next_reading {
            self.next_reading = now + self.every;
            self.readings += 1;
            if self.readings.is_multiple_of(READINGS) && self.every < FARTHEST {
                self.every = self.every + self.every;
            }
            for reading in self.record.readings() {
                self.kept.folder.append_sample(&reading)?;
            }
        }
        if now >= self.next_write {
            self.next_write = now + WRITE;
            self.sum_up();
            self.kept.folder.write(&self.run, &[])?;
        }
        Ok(())
    }

    fn sum_up(&mut self) {
        self.run.gateways = vec![self.record.result("", &self.config)];
        self.run.verdict = Some(verdict(&self.run.gateways));
    }

    /// Draws what there is so far; the page's file.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn draw(&mut self, gateway: &Gateway) -> Result<PathBuf, FolderError> {
        self.see(gateway, clock::monotonic());
        self.sum_up();
        let file = self.kept.folder.draw(&self.run, &[], &self.kept.page)?;
        // Who asks is elsewhere.
        Ok(file.canonicalize().unwrap_or(file))
    }

    /// Ends it, with the counts that were last; its folder.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn end(mut self, counts: Counts) -> Result<PathBuf, FolderError> {
        let links = std::mem::take(&mut self.record.links);
        self.record.look(clock::monotonic(), counts, &[], links);
        for reading in self.record.readings() {
            self.kept.folder.append_sample(&reading)?;
        }
        self.sum_up();
        self.kept.folder.finish(&self.run, &[], &self.kept.page)?;
        Ok(self.kept.folder.path().to_owned())
    }
}

/// The busiest of a second that are looked at: two questions to the kernel for each half.
pub const BUSIEST: usize = 20;
const LOOK: Duration = Duration::from_s(1);
/// After so many they get twice as far apart, up to [`FARTHEST`].
const READINGS: u32 = 600;
const FARTHEST: Duration = Duration::from_s(3600);
/// A gateway that is killed loses no more than that of its sums.
const WRITE: Duration = Duration::from_s(600);
/// Connections that are remembered.
const KNOWN: usize = 256;
const TALKERS: usize = 20;
/// What is younger has been seen from its beginning.
const FRESH_MS: u64 = 2_500;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_s(1);

    fn seen(client: u16, age_s: u64, carried: u64, rate_bps: u64) -> Seen {
        let half = HalfSeen {
            rtt_us: 1_200,
            min_rtt_us: 1_000,
            mss_bytes: 1_448,
            window_bytes: 458_752,
            acknowledged: carried,
            segments: carried / 1_448,
            busy_us: age_s * 1_000_000,
            ..HalfSeen::default()
        };
        Seen {
            client: ([10, 0, 0, 1], client).into(),
            server: ([10, 0, 0, 2], 80).into(),
            outside: false,
            age_ms: age_s * 1_000,
            carried: [carried, 0],
            rate_bps: [rate_bps, 0],
            in_pipe: [0; 2],
            halves: [
                HalfSeen {
                    acknowledged: 0,
                    ..half.clone()
                },
                HalfSeen {
                    rtt_us: 60_000,
                    min_rtt_us: 49_000,
                    window_limited_us: age_s * 250_000,
                    ..half
                },
            ],
        }
    }

    fn counts(split: u64, held_ms: u64, outward: u64) -> Counts {
        Counts {
            split,
            live: split,
            held_ns: held_ms * 1_000_000,
            bytes_outward: outward,
            ..Counts::default()
        }
    }

    #[test]
    fn the_gain_is_what_was_carried_over_what_one_connection_would_have_had() {
        let start = clock::monotonic();
        let mut record = Record::new(0, start, Counts::default());
        let bytes = 100_000_000;
        for second in 1..=4_u64 {
            let now = start + SECOND.saturating_mul(second);
            let carried = bytes * second;
            // The second is held by nothing that the model knows: its window would carry more.
            let all = [
                seen(1, second, carried, 8 * bytes),
                seen(2, second, second, 8),
            ];
            record.look(now, counts(2, 100, carried + second), &all, Vec::new());
        }
        // Nothing moves in the fifth: it is no part of the mean.
        record.look(
            start + SECOND.saturating_mul(5),
            counts(2, 100, 4 * bytes + 4),
            &[],
            Vec::new(),
        );
        let sums = record.sums();
        assert_eq!((sums.rates_bps, sums.halves.len()), ([0; 2], 2));
        let run = record.result("cns", &Config::default());
        assert_eq!((sums.gain, &sums.halves), (run.gain, &run.halves));
        assert_eq!(run.carried_bits_per_second, Some(800_000_008));
        // 458,752 bytes in 50 ms, and the few bits of the other.
        assert_eq!(run.unsplit_bits_per_second, Some(73_400_328));
        assert!((run.gain.unwrap() - 10.9).abs() < 0.01, "{:?}", run.gain);
        let [inside, outside] = run.halves.as_slice() else {
            panic!("{:?}", run.halves);
        };
        assert_eq!(inside.acknowledged_bits_per_second, None);
        assert_eq!(outside.rtt_ns, Some(60_000_000));
        assert_eq!(outside.acknowledged_bits_per_second, Some(800_000_008));
        assert!((outside.receiver_share - 0.25).abs() < 1e-9);
        assert_eq!(run.talkers.len(), 2);
        assert_eq!(run.talkers[0].bits_per_second, 800_000_000);
        assert_eq!(run.talkers[0].held_by, "receiver 25 %");
        assert_eq!(
            (run.held_mean_ns, run.held_slowest_ns),
            (Some(50_000_000), Some(50_000_000))
        );
        let said = verdict(&[run]).sentence;
        assert!(
            said.contains("about 73.4 Mb/s unsplit, by the model: 10.9 times"),
            "{said}"
        );
    }

    #[test]
    fn what_passed_unsplit_stands_beside_the_model_of_its_server() {
        let start = clock::monotonic();
        let mut record = Record::new(0, start, Counts::default());
        let all = [seen(1, 1, 100_000_000, 800_000_000)];
        record.look(start + SECOND, Counts::default(), &all, Vec::new());
        let sampled = |server: [u8; 4]| Sampled {
            client: ([10, 0, 0, 1], 9).into(),
            server: (server, 80).into(),
            carried: [9_000_000, 0],
            rate_bps: 72_000_000,
            moving_ms: 1_000,
        };
        record.set_others(
            Vec::new(),
            vec![sampled([10, 0, 0, 2]), sampled([10, 0, 0, 3])],
        );
        let sampled = record.result("", &Config::default()).sampled;
        assert_eq!(sampled[0].bits_per_second, 72_000_000);
        assert_eq!(sampled[0].model_bits_per_second, Some(73_400_320));
        assert_eq!(sampled[1].model_bits_per_second, None);
    }

    #[test]
    fn a_reading_is_of_each_way_with_its_round_trip() {
        let start = clock::monotonic();
        let mut record = Record::new(3, start, Counts::default());
        let all = [seen(1, 1, 1_000, 8_000)];
        record.look(start + SECOND, counts(1, 20, 1_000), &all, Vec::new());
        let [outward, inward] = record.readings();
        assert_eq!((outward.end.as_str(), outward.stream), ("outward", 3));
        assert_eq!((outward.t_ns, outward.app_bytes), (1_000_000_000, 1_000));
        assert_eq!(outward.tcp_info["rtt_us"], 60_000);
        assert_eq!(outward.tcp_info["gateway_held_ns"], 20_000_000);
        assert_eq!(inward.tcp_info.get("rtt_us"), None);
        // Nobody came since.
        let [outward, _] = record.readings();
        assert_eq!(outward.tcp_info.get("gateway_held_ns"), None);
        let known = run::model::GATEWAY_FIELDS;
        let own = |name: &&String| name.starts_with("gateway_");
        assert!(
            outward
                .tcp_info
                .keys()
                .filter(own)
                .all(|k| known.contains(&k.as_str()))
        );
    }

    #[test]
    fn a_clients_side_is_that_of_its_half() {
        let inside = seen(1, 1, 0, 0);
        let outside = Seen {
            outside: true,
            ..inside.clone()
        };
        assert_eq!([side_of(&inside, 0), side_of(&inside, 1)], [0, 1]);
        assert_eq!([side_of(&outside, 0), side_of(&outside, 1)], [1, 0]);
    }

    #[test]
    fn who_talked_is_remembered_of_a_bounded_number_and_the_largest_stay() {
        let start = clock::monotonic();
        let mut record = Record::new(0, start, Counts::default());
        for round in 0..100_u16 {
            let all: Vec<Seen> = (0..20)
                .map(|n| {
                    let client = round * 20 + n;
                    seen(client, 1, u64::from(client) + 1, 8)
                })
                .collect();
            record.look(
                start + SECOND.saturating_mul(u64::from(round)),
                Counts::default(),
                &all,
                Vec::new(),
            );
            assert!(record.known.len() <= KNOWN);
        }
        let talkers = record.result("", &Config::default()).talkers;
        assert_eq!(talkers.len(), TALKERS);
        assert_eq!(talkers[0].there_bytes, 2_000);
        assert_eq!(talkers[19].there_bytes, 1_981);
    }
}
