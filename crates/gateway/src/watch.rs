//! Watches the links of sides that have several: carrier, and whether the next hop answers.
//!
//! A link counts as dead without a carrier, and when a next hop that has answered leaves [`UNANSWERED`] questions
//! in a row without an answer. It is questions that count and not time: a machine that was paused has asked
//! nothing meanwhile. Then new connections avoid it, and its routing table gets the ways of a link that lives: what
//! is under way on it goes on there with the next retransmission. What leads by no link of the side, or nowhere, is the
//! same in each table.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use sys::clock;
use sys::netlink::Netlink;
use sys::threads;
use sys::uplink::{Pinger, Tables};
use units::{Duration, Instant};

use crate::links::Links;

/// The thread that watches; dropping ends it.
#[derive(Debug)]
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Fills the links' tables, in the namespace of the calling thread, and watches from then on.
    ///
    /// # Errors
    /// When the kernel refuses routes, or a thread cannot be had.
    pub(crate) fn start(links: Arc<Links>) -> io::Result<Self> {
        let mut watcher = Watcher::new(links)?;
        watcher.look(clock::monotonic());
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let thread = threads::spawn("gp-links", move || {
            while !flag.load(Ordering::Relaxed) {
                thread::sleep(std::time::Duration::from_nanos(LOOK.as_ns()));
                watcher.look(clock::monotonic());
            }
        })?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Watcher {
    links: Arc<Links>,
    netlink: Netlink,
    seen: Vec<Seen>,
    filled_at: Instant,
}

/// What is known of a link's neighbour.
#[derive(Debug, Default)]
struct Seen {
    pinger: Option<Pinger>,
    /// The interface's index when the pinger was made.
    index: u32,
    /// A question could not be sent, by an address that is gone or an interface that was made anew.
    failed: bool,
    /// Questions since the last answer.
    unanswered: u32,
}

impl Watcher {
    fn new(links: Arc<Links>) -> io::Result<Self> {
        let seen = links.all().iter().map(|link| Seen {
            // Who takes over from another gateway knows what that one knew.
            unanswered: if link.is_alive() { 0 } else { UNANSWERED },
            ..Seen::default()
        });
        let mut watcher = Self {
            seen: seen.collect(),
            links,
            netlink: Netlink::open()?,
            filled_at: clock::monotonic(),
        };
        watcher.fill()?;
        Ok(watcher)
    }

    fn look(&mut self, now: Instant) {
        self.links.on_tick();
        let mut news = false;
        for (link, seen) in self.links.all().iter().zip(&mut self.seen) {
            let carrier = self.netlink.has_carrier(&link.name).unwrap_or(false);
            if seen.pinger.as_mut().is_some_and(Pinger::answered) {
                link.set_answers(true);
                seen.unanswered = 0;
            }
            let silent = link.answers() && seen.unanswered >= UNANSWERED;
            if let Some(pinger) = &mut seen.pinger {
                seen.failed |= pinger.ask().is_err();
                seen.unanswered = seen.unanswered.saturating_add(1);
            }
            let alive = carrier && !silent;
            if link.set_alive(alive) {
                news = true;
                let (zone, name) = (link.zone.name(), &link.name);
                match (alive, carrier) {
                    (true, _) => tracing::warn!("{zone}: link {name} is back"),
                    (false, false) => tracing::warn!("{zone}: link {name} has no carrier"),
                    (false, true) => {
                        tracing::warn!("{zone}: the next hop on {name} does not answer any more");
                    }
                }
            }
        }
        if news || now.saturating_since(self.filled_at) > REFILL {
            self.filled_at = now;
            if let Err(e) = self.fill() {
                tracing::warn!("the routing tables of links: {e}");
            }
        }
    }

    /// Each table gets all that the main one has but for ways by other links of the side: by its own link, or where
    /// that is dead by the next that lives. One that cannot be filled keeps no other from being filled.
    fn fill(&mut self) -> io::Result<()> {
        let links = Arc::clone(&self.links);
        let all = links.all();
        let tables = Tables::read(&mut self.netlink)?;
        let indices: Vec<io::Result<u32>> = all
            .iter()
            .map(|link| self.netlink.index_of(&link.name))
            .collect();
        let mut result = Ok(());
        for (place, link) in all.iter().enumerate() {
            let of_side = |at: &usize| all[*at].zone == link.zone;
            let after = (0..all.len()).map(|n| (place + n) % all.len());
            let by = after.filter(of_side).find(|at| all[*at].is_alive());
            self.ask_whom(place, &tables);
            // Where none lives, nothing is better than what was.
            let Some(by) = by else { continue };
            let others = (0..all.len()).filter(|at| of_side(at) && *at != by);
            let others: Vec<u32> = others
                .filter_map(|at| indices[at].as_ref().ok().copied())
                .collect();
            let filled = match &indices[by] {
                Ok(index) => link.table.fill(&mut self.netlink, &tables, *index, &others),
                Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
            };
            result = result.and(filled);
        }
        result
    }

    /// Has the next hop asked that the link has by now: another one need not answer.
    fn ask_whom(&mut self, place: usize, tables: &Tables) {
        let link = &self.links.all()[place];
        let seen = &mut self.seen[place];
        let Ok(index) = self.netlink.index_of(&link.name) else {
            return;
        };
        // Routes go with a link that is down, and come back with it.
        let Some(hop) = tables.next_hop(index) else {
            return;
        };
        let before = seen.pinger.as_ref().map(Pinger::to);
        if before == Some(hop) && seen.index == index && !seen.failed {
            return;
        }
        if before.is_some_and(|asked| asked != hop) {
            link.set_answers(false);
            seen.unanswered = 0;
        }
        seen.failed = false;
        seen.index = index;
        seen.pinger = Pinger::new(hop, &link.name, u16::try_from(place).unwrap_or(0))
            .inspect_err(|e| {
                // Who cannot be asked is not silent.
                link.set_answers(false);
                tracing::debug!("{}: cannot ask {hop}: {e}", link.name);
            })
            .ok();
    }
}

/// How often carriers are looked at and neighbours asked.
const LOOK: Duration = Duration::from_ms(100);
/// In a row without an answer: 0.6 s; with a look and what it takes to tell, well within a second.
const UNANSWERED: u32 = 6;
/// Routes change: how often the tables follow.
const REFILL: Duration = Duration::from_s(5);
