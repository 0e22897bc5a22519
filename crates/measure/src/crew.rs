//! What the engines of all transports have in common: data threads and a sampler thread, the board on
//! which these tell each other how far they are, readings in rounds, and the sum of what was used.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sys::clock;
use sys::cpu::thread_waited;
use sys::threads;
use units::{Duration, Instant};

use crate::config::{SAMPLES_MAX, SAMPLES_PER_STREAM_MAX};
use crate::outcome::{EndResult, Sample};
use crate::{Config, HostCost, Reading};

/// Which end of the payload this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

/// How far an engine's threads are, under a lock, and a way to wait for more.
#[derive(Debug)]
pub(crate) struct Board<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

/// What stands on a board.
#[derive(Debug)]
pub(crate) struct State<T> {
    /// The start mark.
    pub(crate) started: Option<Instant>,
    /// Streams that have not ended.
    pub(crate) live: usize,
    /// Nobody is to wait for anything any more.
    pub(crate) over: bool,
    /// What the sampler read last.
    pub(crate) latest: Option<Reading>,
    /// What this engine has beside it.
    pub(crate) more: T,
}

impl<T> Board<T> {
    /// Before the start of so many streams.
    pub(crate) fn new(streams: usize, more: T) -> Self {
        Self {
            state: Mutex::new(State {
                started: None,
                live: streams,
                over: false,
                latest: None,
                more,
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<T>> {
        // The state is plain data, whole after every statement: a panic elsewhere does not hurt it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the start mark, unless it is set.
    pub(crate) fn start(&self) {
        let now = clock::monotonic();
        self.state().started.get_or_insert(now);
        self.changed.notify_all();
    }

    /// Changes the engine's own part and wakes all that wait here.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.state().more);
        self.changed.notify_all();
    }

    /// Wakes all that wait here, for good.
    pub(crate) fn end(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }

    /// Counts a stream out when it is dropped, even by a panic of its thread.
    pub(crate) const fn leave(&self) -> Leave<'_, T> {
        Leave(self)
    }

    /// Time since the start mark.
    pub(crate) fn elapsed(&self) -> Duration {
        let started = self.state().started;
        started.map_or(Duration::ZERO, |at| clock::monotonic().saturating_since(at))
    }

    /// True when no stream is left.
    pub(crate) fn is_finished(&self) -> bool {
        self.state().live == 0
    }

    /// Waits for the start mark; `None` when all was over before.
    pub(crate) fn await_start(&self) -> Option<Instant> {
        let waiting = |state: &mut State<T>| state.started.is_none() && !state.is_over();
        let guard = self.changed.wait_while(self.state(), waiting);
        guard.unwrap_or_else(PoisonError::into_inner).started
    }

    /// Waits for a change, `most` at the longest.
    pub(crate) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        most: Duration,
    ) -> MutexGuard<'a, State<T>> {
        let waited = self.changed.wait_timeout(state, most.to_std());
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sleeps until `wake`; true when all was over before.
    fn sleep_until(&self, wake: Instant) -> bool {
        let mut state = self.state();
        loop {
            if state.is_over() {
                return true;
            }
            let left = wake.saturating_since(clock::monotonic());
            if left == Duration::ZERO {
                return false;
            }
            state = self.wait(state, left);
        }
    }

    /// Has a round read each interval and at the end of the ramp, until all is over; at a sender until
    /// the nominal end, which it has to tell its data threads.
    pub(crate) fn sample<S: Clone>(
        &self,
        role: Role,
        config: &Config,
        streams: usize,
        started: Instant,
        mut read: impl FnMut(&mut Rounds<S>),
    ) -> Vec<S> {
        let mut rounds = Rounds::new(streams, config.sample_interval);
        let end = started + config.duration;
        let mut now = started;
        loop {
            let marks = [started + config.ramp, end];
            let over = self.sleep_until(rounds.next_reading(started, now, marks));
            now = clock::monotonic();
            if over || (role == Role::Sender && now >= end) {
                return rounds.samples;
            }
            read(&mut rounds);
        }
    }
}

impl<T> State<T> {
    const fn is_over(&self) -> bool {
        self.over || self.live == 0
    }
}

/// A stream that has not ended.
#[derive(Debug)]
pub(crate) struct Leave<'a, T>(&'a Board<T>);

impl<T> Drop for Leave<'_, T> {
    fn drop(&mut self) {
        self.0.state().live -= 1;
        self.0.changed.notify_all();
    }
}

/// The threads of an engine: `E` is what a data thread ends with beside what all do, `S` what the
/// sampler found.
#[derive(Debug)]
pub(crate) struct Crew<E, S> {
    data: Vec<JoinHandle<Ended<E>>>,
    sampler: Option<JoinHandle<S>>,
    assistant: Option<JoinHandle<()>>,
}

/// How a data thread ended.
#[derive(Debug)]
pub(crate) struct Ended<E> {
    pub(crate) used: Used,
    pub(crate) at: Instant,
    pub(crate) error: Option<String>,
    pub(crate) more: E,
}

/// What a thread used, by its own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    cpu: Duration,
    user: Duration,
    /// Able to run, without a CPU.
    waited: Duration,
}

/// What the sampler of connections found.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    pub(crate) samples: Vec<Sample>,
    /// The machine's account.
    pub(crate) cost: Option<HostCost>,
}

impl<E: Send + 'static, S: Send + 'static> Crew<E, S> {
    /// Nobody yet.
    pub(crate) const fn new() -> Self {
        Self {
            data: Vec::new(),
            sampler: None,
            assistant: None,
        }
    }

    /// Starts a thread that helps and finds nothing.
    pub(crate) fn assist(
        &mut self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.assistant = Some(threads::spawn(name, body)?);
        Ok(())
    }

    /// Starts the next stream's data thread.
    pub(crate) fn carry(
        &mut self,
        body: impl FnOnce() -> Ended<E> + Send + 'static,
    ) -> io::Result<()> {
        let name = format!("gp-data-{}", self.data.len());
        self.data.push(threads::spawn(name, body)?);
        Ok(())
    }

    /// Starts the sampler.
    pub(crate) fn sample(&mut self, body: impl FnOnce() -> S + Send + 'static) -> io::Result<()> {
        self.sampler = Some(threads::spawn("gp-sampler", body)?);
        Ok(())
    }

    /// True while there are threads that nobody has waited for.
    pub(crate) const fn is_there(&self) -> bool {
        !self.data.is_empty() || self.sampler.is_some()
    }

    /// Waits for all and adds up how the data threads ended; `more` takes the engine's own part. Returns
    /// what the busiest of them used, and what the sampler found.
    pub(crate) fn collect(
        &mut self,
        result: &mut EndResult,
        mut more: impl FnMut(&mut EndResult, E),
    ) -> (Used, Option<S>) {
        let mut busiest = Used::default();
        for thread in self.data.drain(..) {
            let Ok(ended) = thread.join() else {
                result.error = Some("a data thread panicked".to_owned());
                continue;
            };
            let Used { cpu, user, .. } = ended.used;
            result.cpu = result.cpu + cpu;
            result.cpu_user = result.cpu_user + user;
            if ended.used.wanted() > busiest.wanted() {
                busiest = ended.used;
            }
            let took = ended.at.saturating_since(result.start);
            result.duration = result.duration.max(took);
            result.error = result.error.take().or(ended.error);
            more(result, ended.more);
        }
        if let Some(assistant) = self.assistant.take() {
            drop(assistant.join());
        }
        let sampled = self.sampler.take().and_then(|thread| thread.join().ok());
        (busiest, sampled)
    }

    /// Waits for all.
    pub(crate) fn dismiss(&mut self) {
        for thread in self.data.drain(..) {
            drop(thread.join());
        }
        if let Some(sampler) = self.sampler.take() {
            drop(sampler.join());
        }
        if let Some(assistant) = self.assistant.take() {
            drop(assistant.join());
        }
    }
}

impl Used {
    /// By the calling thread, since it began.
    pub(crate) fn now() -> Self {
        Self {
            cpu: clock::thread_cpu(),
            user: clock::thread_cpu_user(),
            waited: thread_waited(),
        }
    }

    /// By the calling thread, since then.
    pub(crate) fn since(then: Self) -> Self {
        let now = Self::now();
        Self {
            cpu: now.cpu - then.cpu,
            user: now.user - then.user,
            waited: now.waited - then.waited,
        }
    }

    /// Of a CPU's time.
    fn wanted(self) -> Duration {
        self.cpu + self.waited
    }
}

impl Sampled {
    /// Adds the readings to a result that has its threads' times, and what all cost the host.
    pub(crate) fn join(self, busiest: Used, result: &mut EndResult) {
        result.samples.extend(self.samples);
        result.cost = self.cost.map(|machine| HostCost {
            user_ns: result.cpu_user.as_ns(),
            system_ns: (result.cpu - result.cpu_user).as_ns(),
            busiest_thread_ns: busiest.cpu.as_ns(),
            busiest_thread_wait_ns: busiest.waited.as_ns(),
            ..machine
        });
    }
}

/// Samples in rounds, thinned by halves when there are too many: every second round is dropped and
/// the interval doubled, so that a run of any length keeps an even picture.
#[derive(Debug)]
pub(crate) struct Rounds<T> {
    pub(crate) samples: Vec<T>,
    streams: usize,
    rounds_max: usize,
    interval: Duration,
}

impl<T: Clone> Rounds<T> {
    pub(crate) fn new(streams: usize, interval: Duration) -> Self {
        let streams = streams.max(1);
        let rounds_max = SAMPLES_PER_STREAM_MAX.min(SAMPLES_MAX / streams);
        Self {
            samples: Vec::new(),
            streams,
            rounds_max,
            interval,
        }
    }

    pub(crate) fn push(&mut self, round: &[T]) {
        self.samples.extend_from_slice(round);
        if self.samples.len() >= self.rounds_max * self.streams {
            let mut index = 0;
            let streams = self.streams;
            self.samples.retain(|_| {
                index += 1;
                ((index - 1) / streams) % 2 == 1
            });
            self.interval = self.interval.saturating_mul(2);
        }
    }

    /// The first multiple of the interval after `now`, or a mark that comes before; a late round is not
    /// made up for.
    pub(crate) fn next_reading(
        &self,
        started: Instant,
        now: Instant,
        marks: [Instant; 2],
    ) -> Instant {
        let interval = self.interval.as_ns();
        let passed = now.saturating_since(started).as_ns() / interval;
        let tick = started + self.interval.saturating_mul(passed + 1);
        marks
            .into_iter()
            .filter(|&m| m > now)
            .fold(tick, Instant::min)
    }
}
