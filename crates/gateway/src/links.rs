//! Several links of one side: which of them a connection goes on by, and which of them are alive.
//!
//! [`pick`] is the choice, without sockets or clock. Workers share the counts that it looks at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sys::uplink::LinkTable;
use units::Duration;

use crate::config::{Config, Spread, Zone};
use crate::install::link_tables;
use crate::syn::Ends;

/// Links of both sides; none of a side that has one only, where there is nothing to choose.
#[derive(Debug)]
pub struct Links {
    links: Vec<Link>,
    turns: AtomicU64,
}

/// One link.
#[derive(Debug)]
pub struct Link {
    /// The side that it is on.
    pub zone: Zone,
    /// Its interface.
    pub name: String,
    /// Its routing table, and the mark that leads there.
    pub table: LinkTable,
    alive: AtomicBool,
    /// Its next hop has answered pings, so that its silence says something.
    answers: AtomicBool,
    connections: AtomicU64,
    placed: AtomicU64,
    /// Carried of late: what was carried longer ago counts less.
    recent: AtomicU64,
    /// When it was last chosen, in turns.
    chosen: AtomicU64,
    /// How long servers took to answer by it, smoothed; 0 before the first.
    answer_ns: AtomicU64,
}

/// What is known of a link when one is to be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// New connections may go by it.
    pub alive: bool,
    /// How much it carried of late, by powers of two.
    pub busy: u32,
    /// That go by it now.
    pub connections: u64,
    /// Turn at which it was last chosen.
    pub chosen: u64,
    /// How long servers took to answer by it; zero: nobody was asked.
    pub answer: Duration,
}

/// A link as it stands, for whoever asks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LinkStatus {
    /// "inside" or "outside".
    pub side: String,
    /// Its interface.
    pub interface: String,
    /// It has a carrier, and its next hop answers if it ever did.
    pub alive: bool,
    /// Its next hop has answered pings, so that its silence would say something.
    #[serde(default)]
    pub answers: bool,
    /// That were placed on it and have not ended.
    pub connections: u64,
    /// That were ever placed on it.
    pub placed: u64,
    /// How long servers took to answer by it, smoothed.
    pub answer_ns: u64,
}

/// Chooses a link: its place, or `None` where none is alive. `turn` counts choices.
pub fn pick(spread: Spread, hash: u64, links: &[Known], turn: u64) -> Option<usize> {
    let alive = || links.iter().enumerate().filter(|(_, link)| link.alive);
    // Connections that rest are no load. Of equals, who was chosen longest ago.
    let least = |(at, link): &(usize, &Known)| (link.busy, link.connections, link.chosen, *at);
    let found = match spread {
        Spread::LeastLoad => alive().min_by_key(least),
        // Each link has a score for each connection (rendezvous): one that dies moves its own only.
        Spread::Hash => alive().max_by_key(|(at, _)| mix(hash ^ mix(*at as u64 + 1))),
        Spread::Measured if turn.is_multiple_of(TRY_OTHERS_EVERY) => {
            alive().min_by_key(|(at, link)| (link.chosen, *at))
        }
        Spread::Measured => alive().min_by_key(|one| (one.1.answer, least(one))),
    };
    found.map(|(at, _)| at)
}

/// Mixes all bits into all bits (the finalizer of MurmurHash3, public domain).
const fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// Of a connection's ends, each bit by all of theirs.
pub(crate) fn hash(ends: Ends) -> u64 {
    let of = |addr: std::net::SocketAddr| {
        let bits = match addr.ip() {
            std::net::IpAddr::V4(a) => u64::from(u32::from(a)),
            std::net::IpAddr::V6(a) => {
                let parts = a.segments().into_iter();
                parts.fold(0, |hash, part| mix(hash ^ u64::from(part)))
            }
        };
        mix(bits << 16 ^ bits >> 48 ^ u64::from(addr.port()))
    };
    of(ends.client) ^ of(ends.server).rotate_left(17)
}

impl Links {
    /// Those that a gateway has a choice of, all alive.
    pub fn new(config: &Config) -> Self {
        let link = |(zone, _, name, table)| Link {
            zone,
            name,
            table,
            alive: AtomicBool::new(true),
            answers: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            placed: AtomicU64::new(0),
            recent: AtomicU64::new(0),
            chosen: AtomicU64::new(0),
            answer_ns: AtomicU64::new(0),
        };
        Self {
            links: link_tables(config).into_iter().map(link).collect(),
            turns: AtomicU64::new(0),
        }
    }

    /// What is known of each: that it lives, and that its next hop answers pings.
    pub(crate) fn health(&self) -> Vec<[bool; 2]> {
        let known = |link: &Link| [link.is_alive(), link.answers()];
        self.links.iter().map(known).collect()
    }

    /// What another gateway knew of the same links.
    pub(crate) fn go_on_from(&self, health: &[[bool; 2]]) {
        for (link, [alive, answers]) in self.links.iter().zip(health) {
            link.set_alive(*alive);
            link.set_answers(*answers);
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Link] {
        &self.links
    }

    /// The link by which a connection is to leave on one side; `None` where there is no choice, or none
    /// is alive and the machine's own routes may know better.
    pub fn choose(&self, zone: Zone, spread: Spread, ends: Ends) -> Option<usize> {
        let of_side = self
            .links
            .iter()
            .enumerate()
            .filter(|(_, l)| l.zone == zone);
        let (places, known): (Vec<usize>, Vec<Known>) = of_side
            .map(|(at, link)| {
                let known = Known {
                    alive: link.is_alive(),
                    busy: u64::BITS
                        - (link.recent.load(Ordering::Relaxed) >> IDLE_BITS).leading_zeros(),
                    connections: link.connections.load(Ordering::Relaxed),
                    chosen: link.chosen.load(Ordering::Relaxed),
                    answer: Duration::from_ns(link.answer_ns.load(Ordering::Relaxed)),
                };
                (at, known)
            })
            .unzip();
        if places.is_empty() {
            return None;
        }
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        let place = places[pick(spread, hash(ends), &known, turn)?];
        self.links[place].chosen.store(turn, Ordering::Relaxed);
        Some(place)
    }

    /// A connection goes by this link from now on.
    pub fn on_placed(&self, place: usize) {
        self.links[place]
            .connections
            .fetch_add(1, Ordering::Relaxed);
        self.links[place].placed.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes went by it, either way.
    pub fn on_carried(&self, place: usize, bytes: u64) {
        self.links[place].recent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A tenth of a second has passed: what was carried before counts three quarters as much.
    pub fn on_tick(&self) {
        for link in &self.links {
            let recent = link.recent.load(Ordering::Relaxed);
            link.recent.fetch_sub(recent.div_ceil(4), Ordering::Relaxed);
        }
    }

    /// One has ended.
    pub fn on_gone(&self, place: usize) {
        self.links[place]
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }

    /// A server answered by it after so long.
    pub fn on_answer(&self, place: usize, after: Duration) {
        let known = &self.links[place].answer_ns;
        let old = known.load(Ordering::Relaxed);
        // As a round trip is smoothed (RFC 6298 section 2.3).
        let new = match old {
            0 => after.as_ns(),
            old => old - old / 8 + after.as_ns() / 8,
        };
        known.store(new.max(1), Ordering::Relaxed);
    }

    /// No server answered by it: as if one had, late. What leads nowhere would else be the soonest.
    pub fn on_silence(&self, place: usize) {
        self.on_answer(place, NO_ANSWER);
    }

    /// As they stand.
    pub fn status(&self) -> Vec<LinkStatus> {
        let status = self.links.iter().map(|link| LinkStatus {
            side: link.zone.name().to_owned(),
            interface: link.name.clone(),
            alive: link.is_alive(),
            answers: link.answers(),
            connections: link.connections.load(Ordering::Relaxed),
            placed: link.placed.load(Ordering::Relaxed),
            answer_ns: link.answer_ns.load(Ordering::Relaxed),
        });
        status.collect()
    }
}

impl Link {
    /// New connections may go by it.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Sets it; true when that is news.
    pub fn set_alive(&self, alive: bool) -> bool {
        self.alive.swap(alive, Ordering::Relaxed) != alive
    }

    /// Its next hop has answered pings.
    pub(crate) fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    pub(crate) fn set_answers(&self, answers: bool) {
        self.answers.store(answers, Ordering::Relaxed);
    }
}

/// Less than 64 KiB of late is a link at rest.
const IDLE_BITS: u32 = 16;
const TRY_OTHERS_EVERY: u64 = 16;
/// A SYN that was lost twice is answered so late.
const NO_ANSWER: Duration = Duration::from_s(3);

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Known = Known {
        alive: true,
        busy: 0,
        connections: 0,
        chosen: 0,
        answer: Duration::ZERO,
    };

    /// Places of so many connections that stay, one after the other.
    fn place(spread: Spread, links: &mut [Known], count: u64) -> Vec<usize> {
        (1..=count)
            .map(|turn| {
                let at = pick(spread, mix(turn), links, turn).unwrap();
                links[at].connections += 1;
                links[at].chosen = turn;
                at
            })
            .collect()
    }

    #[test]
    fn four_connections_on_four_links_are_one_on_each() {
        let mut links = [FREE; 4];
        place(Spread::LeastLoad, &mut links, 4);
        assert!(links.iter().all(|l| l.connections == 1));
        // The next goes where one has ended.
        links[2].connections = 0;
        assert_eq!(place(Spread::LeastLoad, &mut links, 1), [2]);
    }

    #[test]
    fn connections_that_rest_are_no_load() {
        let mut links = [FREE; 3];
        links[0].connections = 9;
        links[1].busy = 4;
        links[2].busy = 5;
        assert_eq!(pick(Spread::LeastLoad, 0, &links, 1), Some(0));
    }

    #[test]
    fn short_connections_one_after_the_other_take_turns() {
        let mut links = [FREE; 3];
        let mut places = Vec::new();
        for turn in 1..=6 {
            let at = pick(Spread::LeastLoad, 0, &links, turn).unwrap();
            links[at].chosen = turn;
            places.push(at);
        }
        assert_eq!(places, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_dead_link_is_not_chosen_and_its_death_moves_nobody_elses_hash() {
        let links = [FREE; 4];
        let mut fewer = links;
        fewer[1].alive = false;
        for hash in 0..1000 {
            let before = pick(Spread::Hash, hash, &links, 1).unwrap();
            let after = pick(Spread::Hash, hash, &fewer, 1).unwrap();
            assert!(after != 1 && (before == 1 || before == after));
        }
        assert_ne!(pick(Spread::LeastLoad, 0, &fewer, 1), Some(1));
        assert_eq!(pick(Spread::Hash, 0, &[Known::default(); 2], 1), None);
    }

    #[test]
    fn a_hash_spreads_and_the_soonest_link_gets_most() {
        let mut links = [FREE; 4];
        place(Spread::Hash, &mut links, 4000);
        assert!(links.iter().all(|l| l.connections > 800), "{links:?}");
        let mut links = [FREE; 2];
        links[0].answer = Duration::from_ms(50);
        links[1].answer = Duration::from_ms(5);
        place(Spread::Measured, &mut links, 160);
        assert!(
            links[1].connections >= 145 && links[0].connections >= 5,
            "{links:?}"
        );
    }
    #[test]
    fn a_link_that_leads_nowhere_is_not_the_soonest() {
        let text =
            "[inside]\ninterfaces = ['a']\n[outside]\ninterfaces = ['b', 'c']\nspread = 'measured'";
        let links = Links::new(&Config::parse(text).unwrap());
        let ends = Ends {
            client: ([198, 18, 1, 2], 5000).into(),
            server: ([198, 18, 2, 2], 80).into(),
        };
        let mut placed = [0; 2];
        for _ in 0..160 {
            let at = links.choose(Zone::Outside, Spread::Measured, ends).unwrap();
            placed[at] += 1;
            match at {
                0 => links.on_silence(0),
                _ => links.on_answer(1, Duration::from_ms(50)),
            }
        }
        assert!(placed[0] <= 12, "{placed:?}");
    }
}
