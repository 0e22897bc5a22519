//! A gateway that runs: its workers, what is in the kernel for it, and how both end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use sys::netlink::Netlink;

use crate::config::{Config, ConfigError, Mode, Zone};
use crate::counters::{Counters, Counts};
use crate::install::{InstallError, Installed, QueueBy};
use crate::links::{LinkStatus, Links};
use crate::watch::Watch;
use crate::worker::{Order, Orders, Worker};

/// Why a gateway cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// What it was told cannot be meant.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel cannot do it.
    #[error("{what}: {error}; `goodput gateway check` says what this machine lacks")]
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
    /// Packets cannot be led here.
    #[error(transparent)]
    Install(#[from] InstallError),
}

/// A gateway. Dropping ends it at once: connections are reset, nothing stays in the kernel.
#[derive(Debug)]
pub struct Gateway {
    config: Arc<Config>,
    orders: Arc<Orders>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    counters: Vec<Arc<Counters>>,
    bells: Vec<OwnedFd>,
    links: Arc<Links>,
    watch: Option<Watch>,
    installed: Option<Installed>,
}

impl Gateway {
    /// Starts one in the network namespace of the calling thread.
    ///
    /// # Errors
    /// What it lacks; nothing stays in the kernel then.
    pub fn start(config: Config) -> Result<Self, GatewayError> {
        config.check()?;
        let kernel = |what: &str| {
            let what = what.to_owned();
            move |error| GatewayError::Kernel { what, error }
        };
        let descriptors = make_room_for(config.limits.connections);
        let config = Arc::new(bounded(config, descriptors));
        let zones = zones(&config)?;
        let transparent = config.mode == Mode::Transparent;
        let queue = match transparent {
            true => Some(QueueBy::find().ok_or(GatewayError::NoQueue)?),
            false => None,
        };
        let orders: Arc<Orders> = Arc::default();
        let mut gateway = Self {
            config: Arc::clone(&config),
            orders: Arc::clone(&orders),
            workers: Vec::new(),
            counters: Vec::new(),
            bells: Vec::new(),
            links: Arc::new(Links::new(&config)),
            watch: None,
            installed: None,
        };
        // Open listeners cannot share an address between workers as they are made.
        let count = if transparent { config.workers } else { 1 };
        for number in 0..count {
            let made = Worker::new(
                number,
                Arc::clone(&config),
                zones.clone(),
                Arc::clone(&gateway.links),
                Arc::clone(&orders),
            );
            let worker = made.map_err(|(what, error)| GatewayError::Kernel { what, error })?;
            gateway.counters.push(worker.counters());
            gateway
                .bells
                .push(worker.bell().map_err(kernel("a worker's bell"))?);
            let thread = thread::Builder::new()
                .name(format!("gp-gateway-{number}"))
                .spawn(move || worker.run())
                .map_err(kernel("starting a worker"))?;
            gateway.workers.push(thread);
        }
        if let Some(queue) = queue {
            gateway.installed = Some(Installed::install(&config, queue)?);
            if !gateway.links.all().is_empty() {
                let watch = Watch::start(Arc::clone(&gateway.links));
                gateway.watch = Some(watch.map_err(kernel("the routing tables of links"))?);
            }
        }
        Ok(gateway)
    }

    /// Links of sides that have several, as they stand.
    pub fn links(&self) -> Vec<LinkStatus> {
        self.links.status()
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
            result = result.and(ended);
        }
        self.watch = None;
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
    let need = connections as u64 * DESCRIPTORS_EACH + SPARE_DESCRIPTORS;
    if sys::host::raise_descriptor_limit() < need {
        let wanted = Rlimit {
            current: Some(need),
            maximum: Some(need),
        };
        let _ = setrlimit(Resource::Nofile, wanted);
    }
    sys::host::descriptor_limit()
}

/// No more connections than there are descriptors for: two sockets and, while both ways are busy, two
/// pipes each; of what is beyond, none is lost, it passes unsplit.
fn bounded(mut config: Config, descriptors: u64) -> Config {
    let room = descriptors.saturating_sub(SPARE_DESCRIPTORS) / DESCRIPTORS_EACH;
    let room = usize::try_from(room).unwrap_or(usize::MAX).max(1);
    config.limits.connections = config.limits.connections.min(room);
    config
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

/// Of a connection at its busiest.
pub(crate) const DESCRIPTORS_EACH: u64 = 6;
/// Listeners, queues, logs, the control socket.
pub(crate) const SPARE_DESCRIPTORS: u64 = 512;
