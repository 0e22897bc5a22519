//! Watches the links of sides that have several: carrier, and whether the next hop answers.
//!
//! A link counts as dead without a carrier, and when a next hop that has answered answers no more for
//! [`SILENCE`]. Then new connections avoid it, and its routing table gets the ways of a link that lives: what
//! is under way on it goes on there with the next retransmission.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use sys::clock;
use sys::netlink::Netlink;
use sys::uplink::Pinger;
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
        let thread = thread::Builder::new()
            .name("gp-links".into())
            .spawn(move || {
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
    /// `None`: it has never answered, and its silence says nothing.
    answered: Option<Instant>,
}

impl Watcher {
    fn new(links: Arc<Links>) -> io::Result<Self> {
        let mut watcher = Self {
            seen: links.all().iter().map(|_| Seen::default()).collect(),
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
            if let Some(pinger) = &mut seen.pinger {
                if pinger.answered() {
                    seen.answered = Some(now);
                }
                // A link that is down says so; its answers fail to come.
                let _ = pinger.ask();
            }
            let silent = seen
                .answered
                .is_some_and(|at| now.saturating_since(at) > SILENCE);
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

    /// Each table gets its link's ways, or where that is dead those of the next that lives.
    fn fill(&mut self) -> io::Result<()> {
        let links = Arc::clone(&self.links);
        let all = links.all();
        for (place, link) in all.iter().enumerate() {
            let after = (1..=all.len()).map(|n| &all[(place + n) % all.len()]);
            let mut living = after.filter(|l| l.zone == link.zone && l.is_alive());
            let by = match link.is_alive() {
                true => Some(link),
                false => living.next(),
            };
            // Where none lives, nothing is better than what was.
            let Some(by) = by else { continue };
            let index = self.netlink.index_of(&by.name)?;
            let hops = link.table.fill(&mut self.netlink, index)?;
            let seen = &mut self.seen[place];
            if std::ptr::eq(by, link)
                && seen.pinger.is_none()
                && let Some(hop) = hops.into_iter().next()
            {
                let id = u16::try_from(place).unwrap_or(0);
                match Pinger::new(hop, &link.name, id) {
                    Ok(pinger) => seen.pinger = Some(pinger),
                    Err(e) => tracing::debug!("{}: cannot ask {hop}: {e}", link.name),
                }
            }
        }
        Ok(())
    }
}

/// How often carriers are looked at and neighbours asked.
const LOOK: Duration = Duration::from_ms(100);
/// Six questions without an answer; with a look and what it takes to tell, well within a second.
const SILENCE: Duration = Duration::from_ms(600);
/// Routes change: how often the tables follow.
const REFILL: Duration = Duration::from_s(5);
