//! Conversations of known kinds, drawn with other numbers, addresses, families and capture points: what
//! took their time must be named, whatever else differs.

use std::net::Ipv6Addr;

use explain::passive::{self, Passive};
use explain::trace::{Captured, Connection, Limits, Tracker};
use throughput::Cause;
use units::Instant;
use wire::segment::{FlowKey, Segment, SynOptions};
use wire::tcp::{Flags, SackBlocks};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Numbers that only the seed decides (splitmix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).unwrap()
    }

    /// One of `from..=to`.
    fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.next() % of.len() as u64;
        of[usize::try_from(at).unwrap()]
    }
}

/// A conversation that is written down as a capture point sees it.
struct Talk {
    draws: Draws,
    rtt: u64,
    /// Of 2: 0 at the client, 2 at the server.
    point: u64,
    mss: u64,
    flow: [([u8; 16], u16); 2],
    v6: bool,
    timestamps: bool,
    /// Next sequence number of each side, and what it has received.
    next: [u32; 2],
    got: [u32; 2],
    /// What each offers, before its scale.
    window: [u16; 2],
    scale: [Option<u8>; 2],
    ip_id: [u16; 2],
    list: Vec<(u64, Segment)>,
}

impl Talk {
    fn new(seed: u64) -> Self {
        let mut draws = Draws(seed);
        let v6 = draws.next().is_multiple_of(2);
        let host = |draws: &mut Draws| {
            let low = u16::try_from(draws.within(1, 65_000)).unwrap();
            match v6 {
                true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, low).octets(),
                false => std::net::Ipv4Addr::from(0xc612_0000 | u32::from(low))
                    .to_ipv6_mapped()
                    .octets(),
            }
        };
        let (client, server) = (host(&mut draws), host(&mut draws));
        let client_port = u16::try_from(draws.within(20_000, 60_000)).unwrap();
        let server_port = u16::try_from(draws.within(1, 9_000)).unwrap();
        let first = |draws: &mut Draws| draws.word();
        let next = [first(&mut draws), first(&mut draws)];
        Self {
            rtt: draws.within(2, 120) * MS,
            point: draws.within(0, 2),
            mss: draws.one(&[1448, 1460, 1388, 8948]),
            flow: [(client, client_port), (server, server_port)],
            v6,
            timestamps: draws.next().is_multiple_of(2),
            next,
            got: [0, 0],
            window: [60_000; 2],
            scale: [Some(7); 2],
            ip_id: [1_000; 2],
            list: Vec::new(),
            draws,
        }
    }

    /// Time from a side to the capture point.
    fn until_seen(&self, from: usize) -> u64 {
        let to_point = self.rtt / 2 * self.point / 2;
        if from == CLIENT {
            to_point
        } else {
            self.rtt / 2 - to_point
        }
    }

    fn segment(
        &mut self,
        from: usize,
        at: u64,
        flags: Flags,
        sequence: u32,
        bytes: u64,
    ) -> Segment {
        let (flow, order) = FlowKey::of(self.flow[from], self.flow[1 - from]);
        self.ip_id[from] = self.ip_id[from].wrapping_add(1);
        let clock = |t: u64| u32::try_from(t / MS % (1 << 31)).unwrap();
        Segment {
            flow,
            from: order,
            sequence,
            acknowledgment: self.got[from],
            flags,
            window: self.window[from],
            payload_bytes: u32::try_from(bytes).unwrap(),
            ip_bytes: u32::try_from(bytes).unwrap() + 52,
            ttl: 60,
            ip_id: if self.v6 { 0 } else { self.ip_id[from] },
            timestamps: self
                .timestamps
                .then(|| (clock(at), clock(at.saturating_sub(self.rtt / 2)))),
            sack: SackBlocks::default(),
            ..Segment::default()
        }
    }

    fn put(&mut self, from: usize, at: u64, segment: Segment) {
        self.list.push((at + self.until_seen(from), segment));
    }

    fn syn(&mut self, from: usize, at: u64, flags: Flags) {
        let mut syn = self.segment(from, at, flags, self.next[from], 0);
        syn.syn = SynOptions {
            mss: Some(u16::try_from(self.mss).unwrap() + if self.timestamps { 12 } else { 0 }),
            window_scale: self.scale[from],
            sack_permitted: true,
        };
        self.put(from, at, syn);
    }

    /// Makes the connection with the SYN sent at `at`; when the client knows.
    fn handshake(&mut self, at: u64) -> u64 {
        self.syn(CLIENT, at, Flags::SYN);
        let there = at + self.rtt / 2;
        self.got[SERVER] = self.next[CLIENT].wrapping_add(1);
        self.syn(SERVER, there, Flags::SYN.with(Flags::ACK));
        let back = at + self.rtt;
        self.next = self.next.map(|n| n.wrapping_add(1));
        self.got[CLIENT] = self.next[SERVER];
        self.ack(CLIENT, back);
        back
    }

    fn ack(&mut self, from: usize, at: u64) {
        let ack = self.segment(from, at, Flags::ACK, self.next[from], 0);
        self.put(from, at, ack);
    }

    /// Sends one segment that arrives.
    fn data(&mut self, from: usize, at: u64, bytes: u64) {
        let data = self.segment(
            from,
            at,
            Flags::ACK.with(Flags::PSH),
            self.next[from],
            bytes,
        );
        self.put(from, at, data);
        self.next[from] = self.next[from].wrapping_add(u32::try_from(bytes).unwrap());
    }

    /// The peer of `from` has all that was sent.
    fn arrived(&mut self, from: usize) {
        self.got[1 - from] = self.next[from];
    }

    /// Sends `bytes` with up to `window` in each round trip, each second segment acknowledged at once;
    /// when the last has arrived.
    fn transfer(&mut self, from: usize, mut at: u64, mut bytes: u64, window: u64) -> u64 {
        loop {
            let mut round = window.min(bytes);
            bytes -= round;
            let mut count = 0;
            let mut last = at;
            while round > 0 {
                let size = round.min(self.mss);
                round -= size;
                self.data(from, last, size);
                count += 1;
                if count % 2 == 0 || round == 0 {
                    self.arrived(from);
                    self.ack(1 - from, last + self.rtt / 2);
                }
                last += 12 * US;
            }
            if bytes == 0 {
                return last + self.rtt / 2;
            }
            at = last.max(at) + self.rtt;
        }
    }

    /// A message that is answered, so that nobody acknowledges it without data; when it has arrived.
    fn message(&mut self, from: usize, mut at: u64, mut bytes: u64) -> u64 {
        while bytes > 0 {
            let size = bytes.min(self.mss);
            bytes -= size;
            self.data(from, at, size);
            at += 12 * US;
        }
        self.arrived(from);
        at + self.rtt / 2
    }

    /// What the capture point has, in the order of time.
    fn seen(mut self) -> Vec<(u64, Segment)> {
        self.list.sort_by_key(|(at, _)| *at);
        self.list
    }
}

fn connections(list: &[(u64, Segment)]) -> Vec<Connection> {
    let mut all = Vec::new();
    let mut tracker = Tracker::new(Limits::default(), |connection| all.push(connection));
    let packets: Vec<Captured> = (1..)
        .zip(list)
        .map(|(frame, (at, segment))| Captured {
            time: Instant::from_ns(1_700_000_000 * S + at),
            frame,
            interface: 0,
            segment: *segment,
        })
        .collect();
    tracker.take_all(&packets);
    tracker.finish();
    drop(tracker);
    all
}

fn judged(list: &[(u64, Segment)]) -> (Connection, Passive) {
    let mut all = connections(list);
    assert_eq!(all.len(), 1);
    let connection = all.remove(0);
    let found = passive::judge(&connection).unwrap_or_else(|| panic!("{connection:#?}"));
    assert_possible(&connection, &found);
    (connection, found)
}

/// Figures that contradict each other are wrong whatever happened.
fn assert_possible(connection: &Connection, found: &Passive) {
    let all: f64 = found.shares.iter().map(|(_, share)| share).sum();
    assert!(found.shares.is_empty() || (all - 1.0).abs() < 1e-9, "{all}");
    if let Some(best) = found.best {
        assert!(best >= found.goodput, "{best} {}", found.goodput);
    }
    for side in &connection.sides {
        let rtt = &side.rtt_ack_ns;
        assert!(rtt.min <= rtt.median && rtt.median <= rtt.max);
        assert!(side.flight_bytes_mean <= side.flight_bytes_max);
        assert!(side.passed_bytes_max <= side.tried_bytes_max);
    }
    for finding in &found.findings {
        assert!((0.0..=1.0).contains(&finding.confidence), "{finding:?}");
        assert!((0.0..=1.0 + 1e-9).contains(&finding.share), "{finding:?}");
    }
}

/// Ten draws of a kind; each must be found to be that.
fn each(
    kind: &str,
    causes: &[Cause],
    says: &str,
    prepare: impl Fn(&mut Talk),
    make: impl Fn(&mut Talk, u64),
) -> Vec<Passive> {
    let mut all = Vec::new();
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 7_919 + kind.len() as u64);
        prepare(&mut talk);
        let begin = talk.handshake(S);
        make(&mut talk, begin);
        let point = talk.point;
        let (_, found) = judged(&talk.seen());
        let cause = found.verdict.cause.unwrap_or(Cause::NetworkUnknown);
        assert!(
            causes.contains(&cause) && found.verdict.sentence.contains(says),
            "{kind} {seed}, seen at {point}: {:?} {:#?}",
            found.verdict,
            found.shares
        );
        assert!(
            found.verdict.conclusive,
            "{kind} {seed}: {:?}",
            found.findings
        );
        all.push(found);
    }
    all
}

/// Requests and answers with these times of thinking.
fn exchanges(talk: &mut Talk, mut at: u64, server: u64, client: u64) {
    let (request, answer) = (talk.draws.within(40, 900), talk.draws.within(200, 5_000));
    let separately = talk.draws.next().is_multiple_of(2);
    for _ in 0..talk.draws.within(10, 60) {
        let vary = |draws: &mut Draws, of: u64| of / 10 * draws.within(9, 11);
        at += vary(&mut talk.draws, client);
        at = talk.message(CLIENT, at, request);
        if separately {
            talk.ack(SERVER, at);
        }
        at += vary(&mut talk.draws, server);
        at = talk.message(SERVER, at, answer);
        talk.ack(CLIENT, at);
    }
}

#[test]
fn a_server_that_thinks_is_waited_for() {
    each(
        "server think",
        &[Cause::ServerThink],
        "The server took",
        |_| {},
        |talk, begin| {
            let think = talk.rtt * talk.draws.within(2, 20);
            exchanges(talk, begin, think, talk.rtt / 20);
        },
    );
}

#[test]
fn a_client_that_thinks_is_waited_for() {
    each(
        "client think",
        &[Cause::ClientThink],
        "The client waited",
        |_| {},
        |talk, begin| {
            let think = talk.rtt * talk.draws.within(2, 20);
            exchanges(talk, begin, talk.rtt / 20, think);
        },
    );
}

#[test]
fn requests_one_after_the_other_wait_for_round_trips() {
    each(
        "sequential",
        &[Cause::RoundTrips],
        "one after the other",
        |_| {},
        |talk, begin| {
            let think = talk.rtt / talk.draws.within(20, 100);
            exchanges(talk, begin, think, think);
        },
    );
}

#[test]
fn one_block_at_a_time_is_named_with_its_size() {
    let found = each(
        "blocks",
        &[Cause::RoundTrips],
        "at a time",
        |talk| talk.rtt = talk.rtt.max(8 * MS),
        |talk, begin| {
            let block = talk.draws.one(&[32_768, 65_536, 131_072]);
            let mut at = begin;
            for _ in 0..talk.draws.within(10, 40) {
                at = talk.message(CLIENT, at, 80);
                at = talk.message(SERVER, at, block);
            }
        },
    );
    for one in found {
        let sizes = ["32 KiB", "64 KiB", "128 KiB"];
        let sentence = &one.verdict.sentence;
        assert!(
            sizes.iter().any(|size| sentence.contains(size)),
            "{sentence}"
        );
    }
}

#[test]
fn short_segments_that_wait_for_delayed_acks_are_nagles() {
    each(
        "nagle",
        &[Cause::Nagle],
        "Nagle",
        |talk| talk.rtt = talk.draws.within(50, 2_000) * US,
        |talk, begin| {
            let delay = talk.draws.one(&[40, 100, 200]) * MS;
            let mut at = begin;
            for _ in 0..talk.draws.within(5, 40) {
                talk.data(CLIENT, at, talk.draws.0 % 300 + 20);
                talk.arrived(CLIENT);
                at += talk.rtt / 2 + delay;
                talk.ack(SERVER, at);
                at += talk.rtt / 2 + 30 * US;
                at = talk.message(CLIENT, at, 200);
                at += 300 * US;
                at = talk.message(SERVER, at, 50) + 200 * US;
            }
        },
    );
}

#[test]
fn nagles_wait_is_a_round_trip_where_acks_are_not_delayed() {
    each(
        "nagle without delay",
        &[Cause::Nagle],
        "Nagle",
        |talk| talk.rtt = talk.draws.within(20, 150) * MS,
        |talk, begin| {
            let mut at = begin;
            for _ in 0..talk.draws.within(12, 40) {
                for _ in 0..2 {
                    talk.data(CLIENT, at, talk.draws.0 % 300 + 20);
                    talk.arrived(CLIENT);
                    talk.ack(SERVER, at + talk.rtt / 2 + 20 * US);
                    at += talk.rtt + 60 * US;
                }
                at = talk.message(CLIENT, at, 200) + 300 * US;
                at = talk.message(SERVER, at, 50) + 200 * US;
            }
        },
    );
}

#[test]
fn segments_that_a_window_cuts_short_do_not_wait_for_nagle() {
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 217_645_177);
        talk.point = 2;
        let mut at = talk.handshake(S);
        for _ in 0..60 {
            let bytes = talk.draws.within(talk.mss / 4, talk.mss - 1);
            let part = talk.segment(CLIENT, at, Flags::ACK, talk.next[CLIENT], bytes);
            talk.put(CLIENT, at, part);
            talk.next[CLIENT] = talk.next[CLIENT].wrapping_add(u32::try_from(bytes).unwrap());
            talk.arrived(CLIENT);
            talk.ack(SERVER, at + talk.rtt / 2);
            at += talk.rtt;
        }
        let (connection, found) = judged(&talk.seen());
        assert_ne!(found.verdict.cause, Some(Cause::Nagle), "{found:#?}");
        assert_eq!([0, 1].map(|s| connection.turns(s).nagle_times), [0, 0]);
    }
}

#[test]
fn an_upload_into_a_slow_reader_is_what_took_the_time() {
    each(
        "upload, download",
        &[Cause::Application],
        "read",
        |talk| {
            talk.mss = 1448;
            talk.scale = [Some(0); 2];
        },
        |talk, begin| {
            let window = talk.draws.within(6, 30) * 1448;
            talk.window[SERVER] = u16::try_from(window).unwrap();
            let reads_each = talk.rtt * talk.draws.within(3, 6);
            let mut at = begin;
            for _ in 0..60 {
                for k in 0..window / 1448 {
                    talk.data(CLIENT, at + k * 12 * US, 1448);
                }
                talk.arrived(CLIENT);
                // The window is acknowledged as full, and opens when it is read.
                talk.window[SERVER] = 0;
                talk.ack(SERVER, at + talk.rtt / 2 + 400 * US);
                talk.window[SERVER] = u16::try_from(window).unwrap();
                at += reads_each;
                talk.ack(SERVER, at - talk.rtt / 2);
            }
            talk.transfer(SERVER, at, 2_000_000, 400_000);
        },
    );
}

#[test]
fn lost_syns_are_counted_and_their_time_is_the_setups() {
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 104_729);
        // Seen where they were sent.
        talk.point = 0;
        let lost = talk.draws.within(1, 4);
        let mut at = S;
        for n in 0..lost {
            talk.syn(CLIENT, at, Flags::SYN);
            at += S << n;
        }
        let begin = talk.handshake(at);
        talk.transfer(CLIENT, begin, 300_000, 200_000);
        let (connection, found) = judged(&talk.seen());
        assert_eq!(
            found.verdict.cause,
            Some(Cause::ConnectionSetup),
            "{found:#?}"
        );
        let client = usize::from(connection.client());
        assert_eq!(connection.sides[client].syns_repeated, lost);
        assert!(
            found.verdict.sentence.contains("lost"),
            "{}",
            found.verdict.sentence
        );
        assert!(found.verdict.conclusive);
    }
}

#[test]
fn a_half_open_predecessor_is_no_connection_of_its_own() {
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 15_485_863);
        talk.syn(CLIENT, S, Flags::SYN);
        let old = talk.draws.word();
        talk.got[SERVER] = old;
        let sequence = talk.draws.word();
        let challenge = talk.segment(SERVER, S, Flags::ACK, sequence, 0);
        talk.put(SERVER, S + talk.rtt / 2, challenge);
        let reset = talk.segment(CLIENT, S, Flags::RST, old, 0);
        talk.put(CLIENT, S + talk.rtt, reset);
        let begin = talk.handshake(2 * S);
        talk.transfer(SERVER, begin, 290_000, 100_000);
        let (connection, found) = judged(&talk.seen());
        let server = usize::from(1 - connection.client());
        assert_eq!(connection.sides[server].unique_bytes, 290_000);
        assert_eq!(connection.setup.challenges, 1);
        assert!(connection.setup.time.unwrap().as_ns() >= S);
        if S > talk_time(290_000, 100_000, connection.setup.last_try.unwrap().as_ns()) {
            assert_eq!(
                found.verdict.cause,
                Some(Cause::ConnectionSetup),
                "{found:#?}"
            );
        }
    }
}

/// Round trips of a transfer by [`Talk::transfer`], in ns.
fn talk_time(bytes: u64, window: u64, rtt: u64) -> u64 {
    bytes.div_ceil(window) * rtt
}

#[test]
fn silence_with_data_unacknowledged_is_an_outage() {
    let found = each(
        "outage",
        &[Cause::Outage],
        "was interrupted for",
        |talk| {
            talk.rtt = talk.draws.within(2, 60) * MS;
            talk.point = talk.draws.one(&[0, 2]);
        },
        |talk, begin| {
            let sender = talk.draws.one(&[CLIENT, SERVER]);
            let at = talk.transfer(sender, begin, 200_000, 50_000) + talk.rtt;
            // What is sent now is lost beyond both capture points.
            let lost = talk.next[sender];
            let length = talk.draws.within(4, 60) * S;
            let mut tried = at;
            let mut wait = 300 * MS;
            while tried < at + length {
                let data = talk.segment(sender, tried, Flags::ACK, lost, talk.mss);
                if talk.point == 2 * sender as u64 {
                    talk.put(sender, tried, data);
                }
                tried += wait;
                wait *= 2;
            }
            // At the receiver the data before the hole shows that something is missing.
            if talk.point != 2 * sender as u64 {
                let behind = lost.wrapping_add(u32::try_from(talk.mss).unwrap());
                let data = talk.segment(sender, at, Flags::ACK, behind, talk.mss);
                talk.put(sender, at, data);
                talk.ack(1 - sender, at + talk.rtt / 2);
                talk.next[sender] = behind;
            }
            talk.next[sender] = lost;
            talk.transfer(sender, tried, 200_000, 50_000);
        },
    );
    for one in found {
        let finding = &one.findings[0];
        assert!(
            finding.evidence[0].contains("between frames"),
            "{finding:?}"
        );
    }
}

/// Changes what is known of a silence until a time.
type Shows = dyn Fn(&mut Talk, u64);

/// A transfer to a capture point beside the receiver, silence of so many seconds, and its rest; `shows` changes what is
/// known of the silence.
fn interrupted(seed: u64, shows: impl Fn(&mut Talk, u64)) -> Passive {
    let mut talk = Talk::new(seed * 179_424_673);
    (talk.point, talk.v6) = (2, false);
    let begin = talk.handshake(S);
    let at = talk.transfer(CLIENT, begin, 200_000, 50_000);
    let length = talk.draws.within(4, 30) * S;
    shows(&mut talk, at + length);
    talk.transfer(CLIENT, at + length + talk.rtt, 200_000, 50_000);
    judged(&talk.seen()).1
}

#[test]
fn a_sender_that_had_more_was_cut_off_and_one_that_had_not_was_idle() {
    // The last data before the silence had no PSH.
    let unfinished = |talk: &mut Talk, _| {
        let data = talk
            .list
            .iter_mut()
            .rev()
            .find(|(_, s)| s.payload_bytes > 0);
        data.unwrap().1.flags = Flags::ACK;
    };
    // Packets were sent meanwhile.
    let missing = |talk: &mut Talk, _| talk.ip_id[CLIENT] += 6;
    // Its ACKs were lost: it repeats what has come.
    let repeated = |talk: &mut Talk, at| {
        let mss = u32::try_from(talk.mss).unwrap();
        let old = talk.next[CLIENT].wrapping_sub(mss);
        let data = talk.segment(CLIENT, at, Flags::ACK.with(Flags::PSH), old, mss.into());
        talk.put(CLIENT, at, data);
        talk.ack(SERVER, at + talk.rtt / 2);
    };
    let proofs: [&Shows; 3] = [&unfinished, &missing, &repeated];
    for seed in 0..10 {
        for shows in proofs {
            let found = interrupted(seed, shows);
            let sentence = &found.verdict.sentence;
            assert!(
                sentence.contains("came from the sender, which had more"),
                "{sentence}"
            );
            assert!(found.verdict.conclusive && found.verdict.cause == Some(Cause::Outage));
        }
        let idle = interrupted(seed, |_, _| {});
        assert_eq!(idle.verdict.cause, Some(Cause::Application), "{idle:#?}");
        // One identification more is another packet of its own, such as a keep-alive that was lost; a jump by half
        // of all says that they are not counted.
        let random = interrupted(seed, |talk, _| talk.ip_id[CLIENT] ^= 0x8000);
        assert_eq!(random.verdict.cause, Some(Cause::Application));
    }
}

#[test]
fn a_black_hole_that_swallows_even_the_first_segment_is_named_whoever_closes() {
    for seed in 0..10 {
        for closes in [false, true] {
            let mut talk = Talk::new(seed * 198_491_317);
            talk.point = 0;
            let mut at = talk.handshake(S);
            let lost = talk.next[CLIENT];
            let mut wait = 250 * MS;
            for _ in 0..talk.draws.within(4, 8) {
                let data = talk.segment(CLIENT, at, Flags::ACK, lost, talk.mss);
                talk.put(CLIENT, at, data);
                at += wait;
                wait *= 2;
            }
            if closes {
                let fin = Flags::FIN.with(Flags::ACK);
                let fin = talk.segment(SERVER, at, fin, talk.next[SERVER], 0);
                talk.put(SERVER, at, fin);
                talk.ack(CLIENT, at + talk.rtt);
            }
            let (_, found) = judged(&talk.seen());
            assert_eq!(found.verdict.cause, Some(Cause::PathMtu), "{found:#?}");
            assert!(found.verdict.conclusive);
            // It may be a filter.
            assert!(found.findings[0].confidence < 0.8);
        }
    }
}

#[test]
fn a_device_that_stops_delivering_is_named_and_a_black_hole_by_its_size() {
    for seed in 0..10 {
        for by_size in [false, true] {
            let mut talk = Talk::new(seed * 32_452_843);
            // Beside the sender, whose packets are lost behind it.
            let sender = talk.draws.one(&[CLIENT, SERVER]);
            talk.point = 2 * sender as u64;
            let mut at = talk.handshake(S);
            if by_size {
                let small = talk.draws.within(100, 1_000);
                for _ in 0..talk.draws.within(3, 10) {
                    talk.data(sender, at, small);
                    talk.arrived(sender);
                    talk.ack(1 - sender, at + talk.rtt / 2);
                    at += talk.rtt + MS;
                }
            } else {
                at = talk.transfer(sender, at, 110_000, 40_000) + talk.rtt;
            }
            let lost = talk.next[sender];
            for k in 0..talk.draws.within(2, 10) {
                let size = u32::try_from(talk.mss * k).unwrap();
                let data = talk.segment(sender, at, Flags::ACK, lost.wrapping_add(size), talk.mss);
                talk.put(sender, at + k * 10 * US, data);
            }
            let mut wait = 250 * MS;
            for _ in 0..talk.draws.within(4, 8) {
                at += wait;
                wait *= 2;
                let data = talk.segment(sender, at, Flags::ACK, lost, talk.mss);
                talk.put(sender, at, data);
            }
            let mss = talk.mss;
            let (_, found) = judged(&talk.seen());
            let cause = if by_size {
                Cause::PathMtu
            } else {
                Cause::StoppedDelivery
            };
            assert_eq!(found.verdict.cause, Some(cause), "{seed}: {found:#?}");
            assert!(found.verdict.conclusive);
            if by_size {
                let sentence = &found.verdict.sentence;
                assert!(
                    sentence.contains(&format!("of {mss} B never")),
                    "{sentence}"
                );
            }
        }
    }
}

#[test]
fn scaling_lost_on_one_side_is_told_from_a_small_buffer() {
    each(
        "scaling",
        &[Cause::WindowScaling],
        "scaling was lost",
        |talk| talk.scale[SERVER] = None,
        |talk, begin| {
            // The receiver scales and the sender does not know.
            let real = talk.draws.within(20, 60) * 128;
            let mut at = begin;
            talk.window[SERVER] = u16::try_from(real / 128).unwrap();
            for _ in 0..40 {
                talk.data(CLIENT, at, real / 128);
                talk.arrived(CLIENT);
                talk.ack(SERVER, at + talk.rtt / 2);
                at += talk.rtt;
            }
        },
    );
}

#[test]
fn a_small_buffer_without_scaling_is_a_small_buffer() {
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 49_979_687);
        talk.scale[SERVER] = None;
        talk.mss = 1448;
        let window = talk.draws.within(8, 28) * 1448;
        talk.window[SERVER] = u16::try_from(window).unwrap();
        let begin = talk.handshake(S);
        talk.transfer(CLIENT, begin, window * 40, window);
        let (_, found) = judged(&talk.seen());
        assert_eq!(
            found.verdict.cause,
            Some(Cause::ReceiveWindow),
            "{found:#?}"
        );
    }
}

/// A transfer with a flight that stays far below the window.
fn plain(seed: u64) -> Talk {
    let mut talk = Talk::new(seed);
    talk.mss = 1448;
    let begin = talk.handshake(S);
    let flight = talk.draws.within(10, 40) * 1448;
    talk.transfer(CLIENT, begin, flight * 40, flight);
    talk
}

#[test]
fn second_copies_of_packets_change_nothing_but_their_count() {
    for seed in 0..10 {
        let mut talk = plain(seed * 86_028_121);
        let apart = talk.draws.within(2, 2_000) * US;
        let once = talk.seen();
        let mut twice = once.clone();
        twice.extend(once.iter().map(|(at, segment)| (at + apart, *segment)));
        twice.sort_by_key(|(at, _)| *at);
        let ((_, one), (connection, two)) = (judged(&once), judged(&twice));
        let copies: u64 = connection.sides.iter().map(|side| side.duplicates).sum();
        assert_eq!(copies, once.len() as u64, "{seed}: {apart} ns apart");
        assert_eq!(one.verdict, two.verdict, "{seed}");
        assert_eq!(one.goodput, two.goodput);
        assert!(two.notes[0].contains("second copies"), "{:?}", two.notes);
        let resent: u64 = connection
            .sides
            .iter()
            .map(|s| s.retransmissions.segments())
            .sum();
        assert_eq!(resent, 0);
    }
}

#[test]
fn what_the_capture_lacks_is_said_and_nothing_is_concluded() {
    for seed in 0..10 {
        let mut talk = plain(seed * 67_867_979);
        let part = talk.draws.within(12, 30);
        let mut all = talk.seen();
        let (_, whole) = judged(&all);
        let mut lost = Draws(seed);
        // Never the last ACKs, which say that all arrived.
        let last = all.len() - 4;
        let mut place = 0;
        all.retain(|(_, segment)| {
            place += 1;
            let keeps = segment.payload_bytes == 0 || place > last || place < 5;
            keeps || lost.within(1, part) > 1
        });
        let (connection, found) = judged(&all);
        let unseen: u64 = connection.sides.iter().map(|side| side.unseen_bytes).sum();
        assert!(unseen > 0 && found.notes.iter().any(|note| note.contains("incomplete")));
        let same = found.verdict.cause == whole.verdict.cause;
        assert!(same || !found.verdict.conclusive, "{found:#?}");
        let resent: u64 = connection
            .sides
            .iter()
            .map(|s| s.retransmissions.segments())
            .sum();
        assert_eq!(resent, 0, "what the capture lacks is no loss");
    }
}

#[test]
fn without_the_receivers_syn_its_window_proves_nothing() {
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 236_887_691);
        (talk.mss, talk.point) = (1448, 0);
        let window = talk.draws.within(8, 28) * 1448;
        talk.window[SERVER] = u16::try_from(window / 128).unwrap();
        let begin = talk.handshake(S);
        talk.transfer(CLIENT, begin, window * 40, window / 128 * 128);
        let mut all = talk.seen();
        let (_, whole) = judged(&all);
        all.remove(1);
        let (_, found) = judged(&all);
        assert!(whole.verdict.conclusive, "{whole:#?}");
        let mut windows = found
            .findings
            .iter()
            .filter(|f| matches!(f.cause, Cause::ReceiveWindow | Cause::SendBuffer));
        assert!(windows.all(|f| f.confidence <= 0.5), "{found:#?}");
        let says = |note: &String| note.contains("SYN of one side");
        assert!(found.notes.iter().any(says) && !whole.notes.iter().any(says));
    }
}

#[test]
fn one_direction_says_so_first_and_concludes_nothing() {
    for seed in 0..10 {
        let talk = plain(seed * 122_949_823);
        let (client, _) = FlowKey::of(talk.flow[CLIENT], talk.flow[SERVER]);
        let order = u8::from(client.addresses[0] != talk.flow[CLIENT].0);
        let mut all = talk.seen();
        all.retain(|(_, segment)| segment.from == order);
        let (_, found) = judged(&all);
        assert!(
            found.notes[0].contains("only one direction"),
            "{:?}",
            found.notes
        );
        assert!(!found.verdict.conclusive && found.verdict.cause.is_none());
        assert!(found.shares.is_empty() && found.findings.is_empty());
    }
}

#[test]
fn a_window_that_was_closed_before_the_first_data_is_the_receivers() {
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 141_650_939);
        talk.mss = 1448;
        talk.point = 2;
        // The receiver's first words: it takes what came before, and closes.
        talk.got = [talk.next[SERVER], talk.next[CLIENT]];
        let mut at = S;
        for _ in 0..4 {
            talk.next[CLIENT] = talk.next[CLIENT].wrapping_add(2896);
            talk.arrived(CLIENT);
            talk.window[SERVER] = talk.window[SERVER].saturating_sub(2896);
            talk.ack(SERVER, at);
            at += 200 * US;
        }
        talk.window[SERVER] = 0;
        talk.ack(SERVER, at);
        at += talk.draws.within(200, 900) * MS;
        talk.window[SERVER] = 60_000;
        talk.ack(SERVER, at);
        for k in 0..4 {
            talk.data(CLIENT, at + talk.rtt / 2 + k * 20 * US, 1448);
        }
        let (connection, found) = judged(&talk.seen());
        let sender = &connection.sides[usize::from(found.sender)];
        assert!(sender.flight_bytes_mean <= sender.flight_bytes_max);
        assert_eq!(found.verdict.cause, Some(Cause::Application), "{found:#?}");
        assert!(found.verdict.sentence.contains("window was closed"));
    }
}

#[test]
fn a_handful_of_packets_is_too_little_to_tell() {
    for seed in 0..10 {
        let mut talk = Talk::new(seed * 160_481_183);
        talk.mss = 65_483;
        talk.window = [512; 2];
        talk.rtt = 20 * US;
        let mut at = talk.handshake(S);
        for _ in 0..talk.draws.within(1, 3) {
            at += 400 * US;
            talk.data(CLIENT, at, talk.draws.0 % 60 + 10);
            talk.arrived(CLIENT);
        }
        talk.ack(SERVER, at + 30 * US);
        let (_, found) = judged(&talk.seen());
        assert!(
            !found.verdict.conclusive && found.verdict.cause.is_none(),
            "{found:#?}"
        );
        assert!(found.verdict.sentence.starts_with("Too little to tell"));
    }
}
