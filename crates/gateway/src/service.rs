//! A gateway that runs: its workers, what is in the kernel for it, and how both end.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fault::Failure;
use sys::control::Connection;
use sys::netlink::Netlink;
use sys::threads;
use units::Instant;

use crate::aside::Aside;
use crate::buffers::Decision;
use crate::config::{Config, ConfigError, Mode, Zone};
use crate::counters::{Counters, Counts};
use crate::decisions::Decisions;
use crate::install::{InstallError, Installed, QueueBy};
use crate::links::{LinkStatus, Links};
use crate::sampled::{Sampled, Sampler};
use crate::sockets;
use crate::upgrade::{self, Hello, Identity};
use crate::view::Seen;
use crate::watch::Watch;
use crate::worker::{Order, Orders, Question, Worker};

/// Why a gateway cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// What it was told cannot be meant.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel cannot do it.
    #[error(
        "{what}: {error}{}; `goodput gateway check` says what this machine lacks",
        privilege(error)
    )]
    Kernel {
        /// What was tried.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel has no way to hold a SYN.
    #[error(
        "this kernel has neither nftables' queue nor iptables' NFQUEUE: a SYN cannot wait for its \
         server; load nft_queue or xt_NFQUEUE, or use the explicit mode"
    )]
    NoQueue,
    /// Another gateway does not give what it has.
    #[error("cannot go on for the gateway that runs: {0}")]
    TakeOver(io::Error),
    /// Packets cannot be led here.
    #[error(transparent)]
    Install(#[from] InstallError),
}

/// A gateway. Dropping ends it at once: connections are reset, nothing stays in the kernel.
#[derive(Debug)]
pub struct Gateway {
    config: Arc<Config>,
    orders: Arc<Orders>,
    workers: Vec<JoinHandle<io::Result<Option<Worker>>>>,
    counters: Vec<Arc<Counters>>,
    bells: Vec<OwnedFd>,
    links: Arc<Links>,
    watch: Option<Watch>,
    /// Of each worker, and what it was when last asked.
    beats: Vec<(Arc<AtomicU64>, u64)>,
    asks: Vec<Sender<Question>>,
    installed: Option<Installed>,
    sampler: Option<Sampler>,
    aside: Aside,
    decisions: Mutex<Option<Decisions>>,
}

impl Gateway {
    /// Starts one in the network namespace of the calling thread.
    ///
    /// # Errors
    /// What it lacks; nothing stays in the kernel then.
    pub fn start(config: Config) -> Result<Self, GatewayError> {
        config.check()?;
        sockets::check_congestion(&config)?;
        let kernel = |what: &str| {
            let what = what.to_owned();
            move |error| GatewayError::Kernel { what, error }
        };
        let descriptors = make_room_for(config.limits.connections);
        let config = Arc::new(bounded(config, descriptors));
        let zones = zones(&config)?;
        let transparent = config.mode == Mode::Transparent;
        let queue = match transparent {
            true => Some(
                QueueBy::find()
                    .map_err(kernel("asking nftables for a queue"))?
                    .ok_or(GatewayError::NoQueue)?,
            ),
            false => None,
        };
        let orders: Arc<Orders> = Arc::default();
        orders.learn(sockets::bounds(&config));
        let mut gateway = Self {
            config: Arc::clone(&config),
            orders: Arc::clone(&orders),
            workers: Vec::new(),
            counters: Vec::new(),
            bells: Vec::new(),
            links: Arc::new(Links::new(&config)),
            watch: None,
            beats: Vec::new(),
            asks: Vec::new(),
            installed: None,
            sampler: None,
            aside: Aside::default(),
            decisions: Mutex::new(orders.keep_journal(&config)),
        };
        for number in 0..config.workers {
            let made = Worker::new(
                number,
                Arc::clone(&config),
                zones.clone(),
                Arc::clone(&gateway.links),
                Arc::clone(&orders),
            );
            let worker = made.map_err(|(what, error)| GatewayError::Kernel { what, error })?;
            gateway.know(&worker).map_err(kernel("a worker's bell"))?;
            gateway.run(worker).map_err(kernel("starting a worker"))?;
        }
        if let Some(queue) = queue {
            gateway.installed = Some(Installed::install(&config, queue)?);
            if !gateway.links.all().is_empty() {
                let watch = Watch::start(Arc::clone(&gateway.links));
                gateway.watch = Some(watch.map_err(kernel("the routing tables of links"))?);
            }
            let sampler = gateway.start_sampling();
            sampler.map_err(kernel("counting what passes unsplit"))?;
        }
        Ok(gateway)
    }

    fn start_sampling(&mut self) -> io::Result<()> {
        if self.config.unsplit_every.is_some() {
            // By process: the one that another goes on for may not have ended.
            let name = format!("goodput-{}-{}", self.config.queue, std::process::id());
            self.sampler = Some(Sampler::start(name, self.orders.samples())?);
        }
        Ok(())
    }

    /// Connections that passed unsplit and were counted, the newest first.
    pub fn sampled(&self) -> Vec<Sampled> {
        let samples = self.orders.samples();
        let samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.all()
    }

    /// What becomes of each connection, where the configuration names a log: to be taken once, by who writes it.
    pub fn decisions(&self) -> Option<Decisions> {
        let mut place = self
            .decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        place.take()
    }

    /// Links of sides that have several, as they stand.
    pub fn links(&self) -> Vec<LinkStatus> {
        self.links.status()
    }

    /// Buffers that new connections get by what earlier ones have measured, those of the largest need first.
    pub fn buffers(&self) -> Vec<Decision> {
        let live = self.counts().live;
        let decisions = self.orders.with_buffers(|b| b.decisions(live));
        decisions.unwrap_or_default()
    }

    /// Goes on for a gateway that runs on this machine: its connections, what waits and what it put into the
    /// kernel come over `from`, which is connected to its control socket. Also returns that socket, which
    /// came with the rest.
    ///
    /// # Errors
    /// What is different here, what failed; then the other one goes on.
    pub fn take_over(
        config: Config,
        from: &mut Connection,
    ) -> Result<(Self, Option<OwnedFd>), GatewayError> {
        config.check()?;
        sockets::check_congestion(&config)?;
        let descriptors = make_room_for(config.limits.connections);
        let config = Arc::new(bounded(config, descriptors));
        let zones = zones(&config)?;
        let taken = Self::take(&config, &zones, from);
        taken.map_err(|e| {
            upgrade::refuse(from, &e.to_string());
            GatewayError::TakeOver(e)
        })
    }

    fn take(
        config: &Arc<Config>,
        zones: &[(u32, Zone)],
        from: &mut Connection,
    ) -> io::Result<(Self, Option<OwnedFd>)> {
        upgrade::say(from, upgrade::ASK)?;
        let (hello, mut fds): (Hello, _) = upgrade::hear(from)?;
        if hello.schema != upgrade::SCHEMA {
            return Err(io::Error::other("it is of another version"));
        }
        if hello.identity != Identity::of(config) {
            return Err(io::Error::other(
                "mode, interfaces, workers, port, queue, mark and table must be those of the one that runs",
            ));
        }
        let orders: Arc<Orders> = Arc::default();
        orders.learn(sockets::bounds(config));
        let mut gateway = Self {
            config: Arc::clone(config),
            orders: Arc::clone(&orders),
            workers: Vec::new(),
            counters: Vec::new(),
            bells: Vec::new(),
            links: Arc::new(Links::new(config)),
            watch: None,
            beats: Vec::new(),
            asks: Vec::new(),
            installed: None,
            sampler: None,
            aside: Aside::default(),
            decisions: Mutex::new(orders.keep_journal(config)),
        };
        gateway.links.go_on_from(&hello.links);
        let keepers = match hello.installed {
            Some(versions) => {
                let keepers = [upgrade::next(&mut fds)?, upgrade::next(&mut fds)?];
                Some((keepers, versions))
            }
            None => None,
        };
        let control = fds.next();
        upgrade::accept(from)?;
        let mut workers = Vec::new();
        for number in 0..hello.workers {
            let (config, zones) = (Arc::clone(config), zones.to_vec());
            let (links, orders) = (Arc::clone(&gateway.links), Arc::clone(&orders));
            let worker = Worker::take(number, config, zones, links, orders, from)?;
            gateway.know(&worker)?;
            workers.push(worker);
        }
        upgrade::expect(from, upgrade::END)?;
        upgrade::say(from, upgrade::READY)?;
        upgrade::expect(from, upgrade::GO)?;
        // From here on there is no other gateway.
        if let Some((keepers, versions)) = keepers {
            gateway.installed = Some(Installed::from_parts(config, keepers, versions)?);
            if !gateway.links.all().is_empty() {
                gateway.watch = Some(Watch::start(Arc::clone(&gateway.links))?);
            }
            gateway.start_sampling()?;
        }
        for mut worker in workers {
            worker.make_own();
            gateway.run(worker)?;
        }
        Ok((gateway, control))
    }

    /// Gives everything to another gateway, which has asked for it over `to`; with it goes the socket
    /// `control`. Then this one is over, and nothing is taken away or reset. To be called in the network namespace
    /// that it was started in.
    ///
    /// # Errors
    /// Why that one did not take it; then this one goes on.
    pub fn hand_over(
        &mut self,
        to: &mut Connection,
        control: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        if self.aside.is_aside() {
            return Err(io::Error::other("a worker stands still"));
        }
        self.orders.pause(true);
        self.ring();
        let mut workers = Vec::new();
        let mut whole = Ok(());
        for thread in self.workers.drain(..) {
            match thread.join() {
                Ok(Ok(Some(worker))) => workers.push(worker),
                // Without it the rest is not what was promised.
                _ => whole = Err(io::Error::other("a worker has ended")),
            }
        }
        let given = whole.and_then(|()| self.give(&workers, to, control));
        self.orders.pause(false);
        if let Err(e) = given {
            for worker in workers {
                self.run(worker)?;
            }
            return Err(e);
        }
        self.watch = None;
        self.sampler = None;
        if let Some(installed) = self.installed.take() {
            installed.leave();
        }
        Ok(())
    }

    fn give(
        &self,
        workers: &[Worker],
        to: &mut Connection,
        control: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let hello = Hello {
            schema: upgrade::SCHEMA,
            identity: Identity::of(&self.config),
            installed: self.installed.as_ref().map(|i| i.versions().to_vec()),
            workers: u8::try_from(workers.len()).unwrap_or(u8::MAX),
            links: self.links.health(),
        };
        let keepers = self.installed.as_ref().map(Installed::keepers);
        let mut fds = keepers.unwrap_or_default();
        fds.extend(control);
        upgrade::give(to, &hello, &fds)?;
        for worker in workers {
            worker.give(to)?;
        }
        upgrade::say(to, upgrade::END)?;
        upgrade::expect(to, upgrade::READY)?;
        upgrade::say(to, upgrade::GO)
    }

    fn know(&mut self, worker: &Worker) -> io::Result<()> {
        self.bells.push(worker.bell()?);
        self.counters.push(worker.counters());
        self.beats.push((worker.beat(), 0));
        self.asks.push(worker.asks());
        Ok(())
    }

    /// The busiest connections of the last second, at most so many, with what the kernel says of their halves.
    /// A worker that does not answer within a second is left out.
    pub fn look(&self, most: usize) -> Vec<Seen> {
        let mut answers = Vec::new();
        for ask in &self.asks {
            let (answer, seen) = mpsc::sync_channel(1);
            if ask.send(Question { most, answer }).is_ok() {
                answers.push(seen);
            }
        }
        self.ring();
        let mut all: Vec<Seen> = answers
            .into_iter()
            .filter_map(|seen| seen.recv_timeout(LOOK_PATIENCE).ok())
            .flatten()
            .collect();
        let rate = |seen: &Seen| seen.rate_bps.iter().max().copied();
        all.sort_by_key(|seen| std::cmp::Reverse(rate(seen)));
        all.truncate(most);
        all
    }

    /// True when each worker has looked at the clock, which it does ten times a second, since this was last
    /// true.
    pub fn is_well(&mut self) -> bool {
        let now = |beat: &AtomicU64| beat.load(Ordering::Relaxed);
        let well = self.beats.iter().all(|(beat, then)| now(beat) != *then);
        if well {
            for (beat, then) in &mut self.beats {
                *then = now(beat);
            }
        }
        well
    }

    /// Has new connections pass unsplit while a worker stands still, and takes them up again when it does not. To be
    /// called often, where nobody else looks whether it [is well](Self::is_well).
    pub fn watch_itself(&mut self, now: Instant) {
        let Some(installed) = &mut self.installed else {
            return;
        };
        let beats = self.beats.iter().map(|(b, _)| b.load(Ordering::Relaxed));
        let Some(aside) = self.aside.handle_beats(now, beats) else {
            return;
        };
        self.orders.step_aside(aside);
        match (installed.step_aside(&self.config, aside), aside) {
            (Ok(()), true) => {
                tracing::warn!("a worker stands still: new connections pass unsplit meanwhile");
            }
            (Ok(()), false) => tracing::warn!("all workers go on: new connections are split again"),
            (Err(e), _) => {
                // At the next look.
                tracing::warn!("a worker stands still, or goes on, and nftables refuses it: {e}");
                return;
            }
        }
        self.aside.on_done(aside);
    }

    /// New connections pass unsplit, because a worker stands still.
    pub const fn is_aside(&self) -> bool {
        self.aside.is_aside()
    }

    fn run(&mut self, worker: Worker) -> io::Result<()> {
        let thread = threads::spawn(format!("gp-gateway-{}", worker.number()), move || {
            worker.run()
        })?;
        self.workers.push(thread);
        Ok(())
    }

    /// What it has done, all workers together.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for counters in &self.counters {
            sum.add(&counters.read());
        }
        sum
    }

    /// Makes it follow another configuration: rules, limits and options of new connections.
    ///
    /// # Errors
    /// For what cannot be meant, and what cannot change while it runs; then all stays as it is.
    pub fn reload(&mut self, config: Config) -> Result<(), ConfigError> {
        config.check()?;
        sockets::check_congestion(&config)?;
        self.config.can_become(&config)?;
        let config = Arc::new(bounded(config, sys::host::descriptor_limit()));
        self.config = Arc::clone(&config);
        self.orders.change(config);
        Ok(())
    }

    /// No new connections from now on: they pass unsplit. It ends with the last that there is.
    pub fn drain(&self) {
        self.tell(Order::Drain);
    }

    /// True when no worker runs any more.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Ends it at once; the counts as they are then.
    ///
    /// # Errors
    /// What ended a worker before its time.
    pub fn stop(mut self) -> io::Result<Counts> {
        let ended = self.end();
        let counts = self.counts();
        ended.map(|()| counts)
    }

    fn tell(&self, order: Order) {
        self.orders.give(order);
        self.ring();
    }

    fn ring(&self) {
        for bell in &self.bells {
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.tell(Order::Stop);
        let mut result = Ok(());
        for worker in self.workers.drain(..) {
            let ended = worker
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            let ended = ended.map(drop);
            result = result.and(ended);
        }
        self.watch = None;
        self.sampler = None;
        // After the workers: until then packets of connections that stand have to find them.
        self.installed = None;
        result
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Raises the limit of descriptors for so many connections, as far as this process may: root beyond what it
/// was started with. Returns what it is then.
pub fn make_room_for(connections: usize) -> u64 {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let need = descriptors_for(connections);
    if sys::host::raise_descriptor_limit() < need {
        let wanted = Rlimit {
            current: Some(need),
            maximum: Some(need),
        };
        let _ = setrlimit(Resource::Nofile, wanted);
    }
    sys::host::descriptor_limit()
}

/// What so many connections take at their busiest: two sockets and two pipes each.
pub(crate) const fn descriptors_for(connections: usize) -> u64 {
    let each = SOCKETS_EACH + PIPES_EACH * PIPE;
    (connections as u64)
        .saturating_mul(each)
        .saturating_add(SPARE_DESCRIPTORS)
}

/// How many connections so many descriptors are for: each has two sockets, and pipes are for those that
/// are busy, while there are any.
pub(crate) fn room_in(descriptors: u64) -> usize {
    let room = descriptors.saturating_sub(SPARE_DESCRIPTORS);
    let room = (room - room / PIPES_PART) / SOCKETS_EACH;
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

/// No more connections than there are descriptors for: of what is beyond, none is lost, it passes unsplit.
/// Pipes have what is left.
fn bounded(mut config: Config, descriptors: u64) -> Config {
    config.limits.connections = config.limits.connections.min(room_in(descriptors));
    let sockets = config.limits.connections as u64 * SOCKETS_EACH;
    let left = descriptors.saturating_sub(SPARE_DESCRIPTORS + sockets);
    config.pipes = config.pipes.min(left / PIPE);
    config
}

/// What is missing where the kernel does not let us.
fn privilege(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ", it takes root or CAP_NET_ADMIN",
        _ => "",
    }
}

/// Which side each interface is on.
fn zones(config: &Config) -> Result<Vec<(u32, Zone)>, GatewayError> {
    let kernel = |what: String| |error| GatewayError::Kernel { what, error };
    let mut netlink = Netlink::open().map_err(kernel("netlink".into()))?;
    let mut zones = Vec::new();
    for zone in Zone::BOTH {
        for name in &config.zone(zone).interfaces {
            let index = netlink.index_of(name);
            zones.push((index.map_err(kernel(format!("interface {name}")))?, zone));
        }
    }
    Ok(zones)
}

const LOOK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
const SOCKETS_EACH: u64 = 2;
/// Of a connection whose both ways are busy.
const PIPES_EACH: u64 = 2;
/// Its two ends.
const PIPE: u64 = 2;
/// Of the descriptors, one of so many is for pipes where not all connections can have them.
const PIPES_PART: u64 = 16;
/// Listeners, queues, logs, the control socket.
pub(crate) const SPARE_DESCRIPTORS: u64 = 512;

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Config(_) => Self::usage(error),
            _ => Self::here(error),
        }
    }
}

#[cfg(test)]
mod tests;
