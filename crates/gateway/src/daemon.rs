//! A gateway as a process: its control socket, run folder, log and metrics, and how it ends.
//!
//! What takes privileges comes first ([`Prepared::new`]); then the process has those of a gateway
//! and no others. The table of nftables belongs to the process and goes with it; the routing rule
//! is taken away by the process, or, when that is killed, by a [`guard`] that waits for its end.

pub(crate) mod control;
mod decision_log;
mod event;
pub mod guard;
mod published;
mod successor;
mod watchdog;

use std::net::SocketAddr;
use std::path::PathBuf;

use fault::Failure;
use run::FolderError;
use sys::clock;
use sys::control::Connection;
use units::{Duration, Instant};

pub use self::event::Event;
pub use self::published::Serve;

use self::control::{Asked, Asker, Control};
use self::decision_log::DecisionLog;
use self::guard::Guard;
use self::published::Published;
use self::successor::Successor;
use self::watchdog::Watchdog;
use crate::config::{Config, Mode, Zone};
use crate::counters::Counts;
use crate::install::{self, QueueBy};
use crate::recorded::{Keep, Kept, Recorder};
use crate::service::{Gateway, make_room_for};
use crate::settings::Settings;

/// What a gateway's process is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the gateway is to be; read again when it is told to.
    pub settings: Settings,
    /// Its control socket, if not the one of this network namespace.
    pub control: Option<PathBuf>,
    /// Where its counts can be read, and what answers there.
    pub metrics: Option<(SocketAddr, Serve)>,
    /// Go on for the gateway that runs.
    pub take_over: bool,
    /// Where its run folder is, and what stands in it from the beginning.
    pub keep: Keep,
}

/// A process that has done what takes privileges, and has those of a gateway only.
///
/// ```no_run
/// use gateway::daemon::{Plan, Prepared};
///
/// # fn plan() -> Plan { unimplemented!() }
/// let mut tell = |event| println!("{event:?}");
/// let prepared = Prepared::new(plan(), &mut tell)?;
/// // Threads that are started before have more privileges than the gateway.
/// let ended = prepared.run(&|| false, &mut tell)?;
/// println!("{} connections were split", ended.counts.split);
/// # Ok::<(), fault::Failure>(())
/// ```
#[derive(Debug)]
pub struct Prepared {
    settings: Settings,
    config: Config,
    control: Option<PathBuf>,
    metrics: Option<(SocketAddr, Serve)>,
    take_over: bool,
    folder: Option<Kept>,
}

/// How a gateway ended.
#[derive(Debug)]
pub struct Ended {
    /// What it had done.
    pub counts: Counts,
    /// Another process goes on.
    pub handed_over: bool,
    /// Its run folder, where it had one until then.
    pub folder: Option<Result<PathBuf, FolderError>>,
}

impl Prepared {
    /// Reads the settings, begins the run folder while that may be anywhere, and gives privileges
    /// up.
    ///
    /// # Errors
    /// What cannot be meant, or what the kernel refuses.
    pub fn new(plan: Plan, tell: &mut dyn FnMut(Event)) -> Result<Self, Failure> {
        let config = plan.settings.read()?;
        make_room_for(config.limits.connections);
        let folder = plan.keep.begin(&config);
        let prepared = Self {
            settings: plan.settings,
            config,
            control: plan.control,
            metrics: plan.metrics,
            take_over: plan.take_over,
            folder: folder.map_err(|e| tell(Event::NoRunFolder(e))).ok(),
        };
        sys::privilege::keep_network_only().map_err(Failure::here)?;
        Ok(prepared)
    }

    /// Runs the gateway until it has drained, was asked to stop (as `stopped` says) and has, or has
    /// given all away.
    ///
    /// # Errors
    /// Why it cannot run, or did not end in order.
    pub fn run(
        self,
        stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Ended, Failure> {
        let mut running = Running::start(self, tell)?;
        while running.turn(stopped, tell) {}
        running.end(tell)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(unused) = self.folder.take() {
            unused.discard();
        }
    }
}

/// A gateway with all that belongs to its process.
#[derive(Debug)]
struct Running {
    gateway: Gateway,
    control: Option<Control>,
    guard: Option<Guard>,
    log: Option<DecisionLog>,
    published: Option<Published>,
    recorder: Option<Recorder>,
    watchdog: Watchdog,
    successor: Option<Successor>,
    settings: Settings,
    drain: Duration,
    /// Somebody has asked by the control socket.
    asked_to_drain: bool,
    draining_until: Option<Instant>,
    handed_over: bool,
}

impl Running {
    fn start(mut prepared: Prepared, tell: &mut dyn FnMut(Event)) -> Result<Self, Failure> {
        let config = prepared.config.clone();
        let transparent = config.mode == Mode::Transparent;
        let log = config.log.as_ref().map(DecisionLog::open);
        let mut log = log.transpose()?;
        let publish = |(address, serve)| Published::at(address, serve, prepared.take_over);
        let published = prepared.metrics.map(publish).transpose()?;
        if transparent
            && !prepared.take_over
            && let Ok(Some(queue)) = QueueBy::find()
        {
            tell(Event::Changes(install::text(&config, queue)));
        }
        // Before anything that it is to take away.
        let guard = transparent
            .then(|| {
                let links = install::link_tables(&config).len();
                Guard::start(install::diversion(&config), links)
            })
            .transpose()?;
        let (gateway, control) = match begin(&prepared, tell) {
            Ok(started) => started,
            Err(e) => {
                // What is there may be another one's.
                if let Some(guard) = guard {
                    guard.dismiss();
                }
                return Err(e);
            }
        };
        if let Some(log) = &mut log {
            log.listen(gateway.decisions());
        }
        if prepared.take_over {
            let live = gateway.counts().live;
            tell(Event::TookOver { live });
        }
        let [inside, outside] = Zone::BOTH.map(|z| config.zone(z).interfaces.join(","));
        tell(match transparent {
            true => Event::Splitting { inside, outside },
            false => Event::Accepting,
        });
        // Who was started by another gateway is another process than the one that systemd knows.
        watchdog::notify(&format!("MAINPID={}\nREADY=1", std::process::id()));
        let folder = prepared.folder.take();
        Ok(Self {
            recorder: folder.map(|folder| Recorder::begin(folder, &gateway, &config)),
            gateway,
            control,
            guard,
            log,
            published,
            watchdog: Watchdog::new(),
            successor: None,
            settings: std::mem::take(&mut prepared.settings),
            drain: config.drain,
            asked_to_drain: false,
            draining_until: None,
            handed_over: false,
        })
    }

    /// Looks once at all that may want something; false when the gateway is to end.
    fn turn(&mut self, stopped: &dyn Fn() -> bool, tell: &mut dyn FnMut(Event)) -> bool {
        if self.gateway.is_over() {
            return false;
        }
        self.serve(stopped, tell);
        if let Some(started) = self.successor.take() {
            self.successor = started.look(self.handed_over).unwrap_or_else(|why| {
                tell(Event::UpgradeFailed(why));
                None
            });
        }
        if self.handed_over {
            if let Some(control) = &mut self.control {
                control.leave();
            }
            return false;
        }
        if let Some(event) = self.log.as_mut().and_then(DecisionLog::look) {
            tell(event);
        }
        self.watchdog.look(&mut self.gateway);
        if let Some(recorder) = self.recorder.take() {
            let looked = recorder.look(&self.gateway);
            self.recorder = looked.map_err(|e| tell(Event::RunFolderEnded(e))).ok();
        }
        if let Some(published) = &mut self.published
            && let Some(event) = published.look(&self.gateway, self.recorder.as_ref())
        {
            tell(event);
        }
        self.goes_on(self.is_ending(stopped), tell)
    }

    /// Somebody has asked it to end.
    fn is_ending(&self, stopped: &dyn Fn() -> bool) -> bool {
        self.asked_to_drain || stopped()
    }

    /// Answers who asks by the control socket, or waits a moment where there is none.
    fn serve(&mut self, stopped: &dyn Fn() -> bool, tell: &mut dyn FnMut(Event)) {
        let Some(control) = &self.control else {
            return std::thread::sleep(std::time::Duration::from_millis(50));
        };
        let ending = || self.is_ending(stopped);
        let sums = || self.recorder.as_ref().map(Recorder::sums);
        match control.serve(&self.gateway, ending, sums, || self.settings.read()) {
            Some(Asked::Reload(config, asker)) => self.reload(*config, &asker),
            Some(Asked::Drain) => self.asked_to_drain = true,
            Some(Asked::Report(asker)) => asker.answer_with(self.draw()),
            Some(Asked::Upgrade(asker)) => match self.successor {
                Some(_) => asker.answer(Err("that is under way".to_owned())),
                None => self.successor = Successor::start(asker),
            },
            Some(Asked::HandOver(to)) => self.hand_over(to, tell),
            None => {}
        }
    }

    fn reload(&mut self, config: Config, asker: &Asker) {
        let (bounds, new) = (config.log.clone(), config.drain);
        let result = self.gateway.reload(config);
        if result.is_ok() {
            self.drain = new;
            if let Some(log) = &mut self.log {
                log.become_another(bounds.as_ref());
            }
        }
        asker.answer(result.map_err(|e| self.settings.told(&e)));
    }

    /// Has the report drawn; where it is, or why it is not.
    fn draw(&mut self) -> Result<String, String> {
        let recorder = self.recorder.as_mut().ok_or("it has no run folder")?;
        let file = recorder.draw(&self.gateway).map_err(|e| e.to_string())?;
        Ok(file.display().to_string())
    }

    fn hand_over(&mut self, mut to: Connection, tell: &mut dyn FnMut(Event)) {
        let socket = self.control.as_ref().map(Control::socket);
        match self.gateway.hand_over(&mut to, socket) {
            Ok(()) => {
                self.handed_over = true;
                // Before this process ends: with its main process systemd ends all others of the
                // unit.
                if let Ok(peer) = to.peer() {
                    watchdog::notify(&format!("MAINPID={}", peer.pid));
                }
            }
            Err(e) => tell(Event::HandOverFailed(e)),
        }
    }

    /// Begins to drain where somebody has asked for the end; false when the time for that is over.
    fn goes_on(&mut self, ending: bool, tell: &mut dyn FnMut(Event)) -> bool {
        let now = clock::monotonic();
        match self.draining_until {
            None if ending => {
                watchdog::notify("STOPPING=1");
                self.gateway.drain();
                self.draining_until = Some(now + self.drain);
                let (live, time) = (self.gateway.counts().live, self.drain);
                if live > 0 {
                    tell(Event::Draining { live, time });
                }
                true
            }
            Some(until) => now < until,
            None => true,
        }
    }

    fn end(self, tell: &mut dyn FnMut(Event)) -> Result<Ended, Failure> {
        let counts = self.gateway.stop();
        if let Some(event) = self.log.and_then(DecisionLog::end) {
            tell(event);
        }
        let counts = counts.map_err(Failure::here)?;
        if let Some(guard) = self.guard {
            guard.dismiss();
        }
        Ok(Ended {
            folder: self.recorder.map(|r| r.end(counts)),
            handed_over: self.handed_over,
            counts,
        })
    }
}

/// The gateway, new or gone on with, and its control socket.
fn begin(
    prepared: &Prepared,
    tell: &mut dyn FnMut(Event),
) -> Result<(Gateway, Option<Control>), Failure> {
    let (file, config) = (prepared.control.as_deref(), prepared.config.clone());
    if prepared.take_over {
        return Control::take_over(file, config);
    }
    let control = Control::open(file).map_err(tell).ok();
    Ok((Gateway::start(config)?, control))
}

/// The unit's file for systemd.
pub const UNIT: &str = include_str!("daemon/goodput-gateway.service");
