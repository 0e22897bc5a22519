//! One thread that carries connections: it waits for sockets and does what the machines say.
//!
//! Workers share nothing but counts. Each has a queue of SYNs and accepting sockets of its own; the SYN's
//! mark leads the handshake back to the worker that held it.

mod accepting;
mod carrying;
mod decided;
mod gaps;
mod hand_over;
mod last_ack;
mod look;
mod memory;
mod one_way;
mod undelivered;

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};
use sys::netlink::Netlink;
use sys::nfqueue::{Fate, Queue};
use sys::nftables::{IpVersion, Unreachable};
use sys::{clock, transparent};
use units::{Bytes, Duration, Instant, LogLimit};

use crate::buffers::{Bounds, Buffers, Sizes};
use crate::config::{Config, Mode, Zone};
use crate::counters::Counters;
use crate::decisions::{self, Decisions, Event, Journal, Why};
use crate::deferral::{Deferral, Limits, OnSyn};
use crate::install::{Word, accepting, diversion};
use crate::links::{self, Links};
use crate::memory::Memory;
use crate::one_way::OneWay;
use crate::past::Past;
use crate::relay::{Relay, Side};
use crate::rules::{Action, Asked};
use crate::sampled::{self, Shared};
use crate::sockets::{self, Pipe};
use crate::syn::{Answer, Ends, Reset, Syn};
use accepting::Rest;
use carrying::{BUFFER_BYTES, Carrying, Delay, Outcome, Turn, give_back};
use decided::About;
use gaps::Gaps;
use last_ack::LastAcks;
use look::Pace;
pub(crate) use look::Question;
use memory::Growing;

/// What all workers are told.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    state: AtomicU8,
    /// Stand still where you are: another process may go on.
    paused: AtomicBool,
    /// New connections pass without asking: what still waits in a queue may have passed since.
    aside: AtomicBool,
    /// What to be from now on, and how often that was said.
    config: Mutex<Option<Arc<Config>>>,
    changes: AtomicU32,
    /// What has been learnt of ways, where buffers are set by it.
    buffers: Mutex<Option<Buffers>>,
    /// Some way needs more than the kernel's tuning gives: else nobody need ask.
    enlarged: AtomicBool,
    /// Connections that pass unsplit to be counted.
    samples: Shared,
    /// Where somebody wants to know what becomes of each connection.
    journal: OnceLock<Journal>,
    /// Connections that workers make on their own account (explicit mode), from where to where: one that is accepted comes in a
    /// circle, whoever accepts it. The address alone does not tell: the kernel gives one port to several sockets of this host
    /// that connect to different places.
    own: Mutex<HashSet<Ends>>,
}

/// How a worker is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Run = 0,
    /// No new connections; end when the last one has.
    Drain = 1,
    /// End now.
    Stop = 2,
}

impl Orders {
    pub(crate) fn give(&self, order: Order) {
        self.state.fetch_max(order as u8, Ordering::Relaxed);
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    pub(crate) fn step_aside(&self, aside: bool) {
        self.aside.store(aside, Ordering::Relaxed);
    }

    pub(crate) fn change(&self, config: Arc<Config>) {
        let mut place = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(config);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// What passed unsplit to be counted.
    pub(crate) fn samples(&self) -> Shared {
        Arc::clone(&self.samples)
    }

    /// From now on buffers are set by what is measured.
    pub(crate) fn learn(&self, bounds: Bounds) {
        let mut place = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        *place = (bounds.memory > Bytes::new(0)).then(|| Buffers::new(bounds));
    }

    /// Does something with what has been learnt, where anything is.
    pub(crate) fn with_buffers<T>(&self, work: impl FnOnce(&mut Buffers) -> T) -> Option<T> {
        let mut place = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        place.as_mut().map(work)
    }

    /// Where a log is wanted, what is to be written from now on.
    pub(crate) fn keep_journal(&self, config: &Config) -> Option<Decisions> {
        config.log.as_ref()?;
        let (journal, decisions) = decisions::journal();
        self.journal.set(journal).ok().map(|()| decisions)
    }

    fn own(&self) -> MutexGuard<'_, HashSet<Ends>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journal(&self) -> Option<&Journal> {
        self.journal.get()
    }

    /// Has all workers stand still at their next look at the clock, for as long as this is held.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> MutexGuard<'_, Option<Arc<Config>>> {
        let held = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, Ordering::Release);
        held
    }

    fn changed(&self) -> Option<Arc<Config>> {
        let place = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }

    fn current(&self) -> Order {
        match self.state.load(Ordering::Relaxed) {
            0 => Order::Run,
            1 => Order::Drain,
            _ => Order::Stop,
        }
    }
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    number: u8,
    config: Arc<Config>,
    changes_seen: u32,
    orders: Arc<Orders>,
    counters: Arc<Counters>,
    /// Where a side has several.
    links: Arc<Links>,
    /// Looks at the clock, for who watches it.
    beat: Arc<AtomicU64>,
    epoll: OwnedFd,
    wake: OwnedFd,
    /// `None` in explicit mode.
    queue: Option<Queue>,
    /// Where a side wants its last ACK held back.
    last_acks: Option<LastAcks>,
    listeners: Vec<(TcpListener, Zone)>,
    /// Asked whether anybody is there at all.
    netlink: Netlink,
    next_question: Instant,
    /// Which side an interface is on, by its index.
    zones: Vec<(u32, Zone)>,
    deferral: Deferral<usize>,
    one_way: OneWay,
    past: Past,
    gaps: Gaps,
    memory: Memory,
    growing: Growing,
    rest: Rest,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Connections that had more to do when their turn was over.
    busy: VecDeque<usize>,
    pipes: Vec<Pipe>,
    /// For what splice(2) does not carry.
    buffer: Vec<u8>,
    questions: Receiver<Question>,
    /// For who has questions.
    asks: Sender<Question>,
    next_paces: Instant,
    /// Accepted sockets have SO_LINGER from their listener; not known before the first.
    accepted_reset: Option<bool>,
    /// What the listeners of each side have been given.
    listening: [Sizes; 2],
    said: LogLimit,
    said_others: LogLimit,
    /// Of SYNs that anybody can forge.
    said_refusals: LogLimit,
    /// Ceilings of pace that another gateway set from moment to moment, and this one does not.
    left_ceilings: Vec<(usize, Side)>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    /// On its way to the server.
    Connecting(Box<Connecting>),
    Carrying(Box<Carrying>),
}

#[derive(Debug)]
struct Connecting {
    server: TcpStream,
    ends: Ends,
    /// The side that the client is on.
    zone: Zone,
    /// The largest segment that the client takes, where its SYN was seen.
    mss: Option<u16>,
    /// The rule that splits it.
    rule: Option<usize>,
    /// The link that it was placed on, where there was a choice.
    link: Option<usize>,
    begun: Instant,
    /// Class of service of the client's SYN, which the server's half has.
    dscp: u8,
    /// That of the server's answer, which the client's half has.
    answer_dscp: u8,
    /// The client's socket, where it was accepted first (explicit mode).
    client: Option<TcpStream>,
    answered: bool,
    /// What the kernel has said of the server's socket.
    seen: EventFlags,
    /// From where to where it goes on the gateway's own account (explicit mode).
    own: Option<Ends>,
}

impl Worker {
    /// Makes its sockets, in the namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel refused, with what it was for.
    pub(crate) fn new(
        number: u8,
        config: Arc<Config>,
        zones: Vec<(u32, Zone)>,
        links: Arc<Links>,
        orders: Arc<Orders>,
    ) -> Result<Self, (String, io::Error)> {
        let mut worker = Self::bare(number, config, zones, links, orders)?;
        match worker.config.mode.clone() {
            Mode::Transparent => worker.listen_for_the_diverted()?,
            Mode::Explicit { listen, .. } => {
                let config = worker.config.zone(Zone::Inside);
                let all = worker.config.workers;
                let listener = sockets::listen_openly(listen, config, number, all)
                    .map_err(|e| (format!("listening on {listen}"), e))?;
                worker.listeners.push((listener, Zone::Inside));
            }
        }
        worker.register().map_err(|e| ("epoll".to_owned(), e))?;
        Ok(worker)
    }

    /// One that nobody can reach.
    fn bare(
        number: u8,
        config: Arc<Config>,
        zones: Vec<(u32, Zone)>,
        links: Arc<Links>,
        orders: Arc<Orders>,
    ) -> Result<Self, (String, io::Error)> {
        let limits = share(config.limits, config.workers);
        let (asks, questions) = mpsc::channel();
        let made = |what: &str, e: io::Error| (what.to_owned(), e);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| made("epoll", e.into()))?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| made("eventfd", e.into()))?;
        Ok(Self {
            number,
            changes_seen: 0,
            orders,
            counters: Arc::default(),
            links,
            beat: Arc::default(),
            epoll,
            wake,
            queue: None,
            last_acks: None,
            listeners: Vec::new(),
            netlink: Netlink::open().map_err(|e| made("netlink", e))?,
            next_question: clock::monotonic(),
            zones,
            deferral: Deferral::new(limits),
            one_way: OneWay::default(),
            past: Past::default(),
            gaps: Gaps::default(),
            memory: Memory::default(),
            growing: Growing::of_this_machine(),
            rest: Rest::default(),
            slots: Vec::new(),
            free: Vec::new(),
            busy: VecDeque::new(),
            pipes: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            questions,
            asks,
            next_paces: clock::monotonic(),
            accepted_reset: None,
            listening: [Sizes::default(); 2],
            said: LogLimit::new(LINES_PER_SECOND),
            said_others: LogLimit::new(LINES_PER_SECOND),
            said_refusals: LogLimit::new(LINES_PER_SECOND),
            left_ceilings: Vec::new(),
            config,
        })
    }

    fn listen_for_the_diverted(&mut self) -> Result<(), (String, io::Error)> {
        for zone in Zone::BOTH {
            let mark = self.hold_mark(zone);
            for version in [IpVersion::V4, IpVersion::V6] {
                let addr = accepting(&self.config, self.number, zone, version);
                let made = transparent::listen(addr, |fd| {
                    let refused = sockets::prepare(fd, self.config.zone(zone));
                    self.counters.options_refused.add(refused);
                    // Accepted sockets inherit it before their first packet.
                    mark.map_or(Ok(()), |mark| transparent::set_mark(fd, mark))
                });
                match made {
                    Ok(listener) => self.listeners.push((listener, zone)),
                    // Where IPv6 is off, there is nothing of it to accept.
                    Err(e) if version == IpVersion::V6 && no_such_version(&e) => {}
                    Err(e) => return Err((format!("listening on {addr}"), e)),
                }
            }
        }
        let number = self.config.queue + u16::from(self.number);
        let queue = Queue::bind(number, QUEUED_SYNS, SYN_BYTES)
            .map_err(|e| (format!("queue {number} of netfilter"), e))?;
        self.queue = Some(queue);
        self.bind_last_acks()
            .map_err(|e| ("the queue of last ACKs".to_owned(), e))
    }

    fn register(&self) -> io::Result<()> {
        let level = EventFlags::IN;
        self.listen()?;
        if let Some(queue) = &self.queue {
            epoll::add(&self.epoll, queue.as_fd(), EventData::new_u64(QUEUE), level)?;
        }
        if let Some(acks) = &self.last_acks {
            let queue = acks.queue().as_fd();
            epoll::add(&self.epoll, queue, EventData::new_u64(LAST_ACKS), level)?;
        }
        epoll::add(&self.epoll, &self.wake, EventData::new_u64(WAKE), level)?;
        Ok(())
    }

    pub(crate) const fn number(&self) -> u8 {
        self.number
    }

    /// Its counts.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Whom to ask for its connections; its bell tells it to listen.
    pub(crate) fn asks(&self) -> Sender<Question> {
        self.asks.clone()
    }

    /// Grows while it lives.
    pub(crate) fn beat(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.beat)
    }

    /// What wakes it.
    ///
    /// # Errors
    /// As dup(2).
    pub(crate) fn bell(&self) -> io::Result<OwnedFd> {
        self.wake.try_clone()
    }

    /// Carries connections until told to end. Comes back whole when told to stand still.
    ///
    /// # Errors
    /// When the kernel no longer says what is ready.
    pub(crate) fn run(mut self) -> io::Result<Option<Self>> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut next_look = clock::monotonic();
        loop {
            let timeout = if self.busy.is_empty() {
                self.gaps.patience(TICK)
            } else {
                Duration::from_ns(0)
            };
            events.clear();
            let patience = Timespec {
                tv_sec: 0,
                tv_nsec: i64::try_from(timeout.as_ns()).unwrap_or(0),
            };
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&patience),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            for event in &events {
                self.handle(event.data.u64(), event.flags);
            }
            for _ in 0..self.busy.len() {
                if let Some(slot) = self.busy.pop_front() {
                    if let State::Carrying(carrying) = &mut self.slots[slot].state {
                        carrying.queued = false;
                    }
                    self.carry(slot);
                }
            }
            self.look_at_gaps();
            if self.orders.paused.load(Ordering::Relaxed) {
                self.drop_last_acks();
                // Whoever goes on knows nothing of it.
                self.let_windows_go(None);
                self.let_all_grow();
                return Ok(Some(self));
            }
            let now = clock::monotonic();
            if now >= next_look {
                next_look = now + TICK;
                self.look_at_the_clock(now);
                match self.orders.current() {
                    Order::Stop => {
                        self.note_all_undelivered(now);
                        return Ok(None);
                    }
                    // Whose SYN is held has been promised a word.
                    Order::Drain
                        if self.counters.live.get() == 0 && self.deferral.waiting() == 0 =>
                    {
                        return Ok(None);
                    }
                    _ => {}
                }
            }
        }
    }

    fn handle(&mut self, token: u64, flags: EventFlags) {
        match token {
            WAKE => {
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
                self.answer_questions(clock::monotonic());
            }
            QUEUE => self.take_syns(),
            LAST_ACKS => self.take_acks(),
            token if token > LISTENERS - MOST_LISTENERS => {
                self.accept(usize::try_from(LISTENERS - token).unwrap_or(0));
            }
            token => self.handle_socket(token, flags),
        }
    }

    // SYNs

    fn take_syns(&mut self) {
        let Some(mut queue) = self.queue.take() else {
            return;
        };
        let mut held = Vec::new();
        if let Err(e) = queue.receive(|h| held.push((h.id, h.interface, First::of(h.bytes)))) {
            self.warn(&format_args!(
                "the queue of SYNs overflowed: {e}; they will come again"
            ));
        }
        self.queue = Some(queue);
        let aside = self.orders.aside.load(Ordering::Relaxed);
        for (id, interface, first) in held {
            match first {
                // Its client has sent another one, which may be at the server: this one would be in its way.
                First::Syn(_) if aside => self.decide(id, Fate::Drop),
                First::Reset(_) if aside => self.say(id, Word::Pass),
                First::Syn(syn) => self.handle_syn(id, interface, syn),
                First::Reset(reset) => self.handle_reset(id, reset),
                First::Answer(answer) => self.handle_answer(id, answer),
                // Not ours to judge.
                First::Other => self.say(id, Word::Pass),
            }
        }
    }

    /// The server's answer goes on to our socket; its class is what the client's half will have.
    fn handle_answer(&mut self, id: u32, answer: Answer) {
        let slot = self.deferral.unanswered_socket(answer.ends);
        if let Some(slot) = slot
            && let State::Connecting(connecting) = &mut self.slots[slot].state
        {
            connecting.answer_dscp = answer.dscp;
        }
        let taken_up = diversion(&self.config).mark;
        self.decide(id, Fate::Go(taken_up));
    }

    fn handle_syn(&mut self, id: u32, interface: u32, syn: Syn) {
        let Ends { client, server } = syn.ends;
        let zone = self.zones.iter().find(|(index, _)| *index == interface);
        let Some(&(_, zone)) = zone else {
            return self.say(id, Word::Pass);
        };
        // What has been begun goes on, whatever the rules say by now: a copy of its SYN that passed unsplit
        // would reach the server beside our own.
        let known = self.deferral.knows(syn.ends);
        if !known && self.orders.current() != Order::Run {
            self.note(Event::Unsplit, Why::Draining, About::new(syn, zone, None));
            return self.say(id, Word::Pass);
        }
        let (action, rule) = self.config.rules.decide(Asked {
            client,
            server,
            side: zone,
            mss: Some(syn.mss),
        });
        let about = About::new(syn, zone, rule);
        match (action, rule) {
            _ if known => {}
            (Action::Split, _) if self.passes_as_sample(syn.ends) => {
                let samples = self.orders.samples();
                let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = samples.choose(syn.ends);
                drop(samples);
                if is_new {
                    self.counters.sampled.more();
                    self.note(Event::Unsplit, Why::Sample, about);
                }
                return self.say(id, Word::Pass);
            }
            (Action::Split, rule) if self.passes_as_small(rule, syn.ends) => {
                self.counters.bypassed.more();
                self.note(Event::Unsplit, Why::Small, about);
                return self.say(id, Word::Pass);
            }
            (Action::Split, _) => {}
            (Action::Bypass, rule) => {
                self.counters.bypassed.more();
                tracing::debug!("{client} to {server}: passes by rule {rule:?}");
                self.note(Event::Unsplit, Why::Rule, about);
                return self.say(id, Word::Pass);
            }
            (Action::Refuse, rule) => {
                self.counters.forbidden.more();
                self.inform(&format_args!(
                    "{client} to {server}: refused by rule {rule:?}"
                ));
                self.note(Event::Refused, Why::Rule, about);
                return self.say(id, Word::Reset);
            }
        }
        if !known && self.passes_one_way(id, about) {
            return;
        }
        match self.deferral.handle_syn(syn.ends) {
            OnSyn::Connect => self.connect(id, about, syn.dscp),
            OnSyn::Drop => self.decide(id, Fate::Drop),
            OnSyn::Release => self.say(id, Word::Split(zone, self.number)),
            OnSyn::Pass(why) => {
                self.counters.over_limit.more();
                self.inform(&format_args!(
                    "{client} to {server}: passes unsplit, {why:?}"
                ));
                self.note(Event::Unsplit, why.into(), about);
                self.say(id, Word::Pass);
            }
        }
    }

    fn passes_as_sample(&self, ends: Ends) -> bool {
        let every = self.config.unsplit_every;
        every.is_some_and(|every| sampled::is_one(links::hash(ends), every))
    }

    /// Begins to connect to the server in the client's name.
    fn connect(&mut self, id: u32, about: About, dscp: u8) {
        let About { ends, zone, .. } = about;
        let Ends { client, server } = ends;
        let config = Arc::clone(&self.config);
        let counters = Arc::clone(&self.counters);
        let spread = config.zone(zone.other()).spread;
        let link = self.links.choose(zone.other(), spread, ends);
        let mark = link.map(|at| self.links.all()[at].table.mark);
        let sizes = self.learnt(zone.other(), server.ip());
        let mark = mark.or_else(|| self.hold_mark(zone.other()));
        let attempt = |from: SocketAddr| {
            transparent::connect_from(from, server, |fd| {
                if let Some(mark) = mark {
                    transparent::set_mark(fd, mark)?;
                }
                counters
                    .options_refused
                    .add(sockets::prepare_to_connect(fd, config.zone(zone.other())));
                sockets::enlarge(fd, sizes);
                sockets::set_dscp(fd, dscp);
                Ok(())
            })
        };
        let connected = attempt(client).or_else(|e| match e.kind() {
            // The last connection of this port rests in TIME-WAIT at our side.
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => {
                counters.other_port.more();
                tracing::info!("{client} to {server}: goes on from another port: {e}");
                attempt((client.ip(), 0).into())
            }
            _ => Err(e),
        });
        let socket = match connected {
            Ok(socket) => socket,
            Err(e) => return self.refuse(id, about, &e),
        };
        let connecting = Connecting {
            server: socket,
            ends,
            zone,
            mss: about.mss,
            rule: about.rule,
            link,
            begun: clock::monotonic(),
            dscp,
            answer_dscp: 0,
            client: None,
            answered: false,
            seen: EventFlags::empty(),
            own: None,
        };
        match self.place(connecting) {
            Ok(slot) => {
                self.deferral.begin(clock::monotonic(), ends, id, slot);
                self.watch_last_acks(slot);
            }
            Err(e) => self.refuse(id, about, &e),
        }
    }

    fn place(&mut self, connecting: Connecting) -> io::Result<usize> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                state: State::Free,
            });
            self.slots.len() - 1
        });
        let token = token(slot, self.slots[slot].generation, Side::Server);
        let added = epoll::add(
            &self.epoll,
            &connecting.server,
            EventData::new_u64(token),
            interest(),
        );
        if let Err(e) = added {
            self.free.push(slot);
            return Err(e.into());
        }
        if let Some(link) = connecting.link {
            self.links.on_placed(link);
        }
        self.slots[slot].state = State::Connecting(Box::new(connecting));
        Ok(slot)
    }

    /// Answers a held SYN as the network answered ours.
    fn refuse(&mut self, id: u32, about: About, error: &io::Error) {
        let Ends { client, server } = about.ends;
        self.inform(&format_args!("{client} to {server}: {error}"));
        let counters = &self.counters;
        let mut why = Why::Unreachable;
        let word = match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                counters.refused.more();
                why = Why::Server;
                Word::Reset
            }
            io::ErrorKind::HostUnreachable => {
                counters.unreachable.more();
                Word::Unreachable(Unreachable::Host)
            }
            io::ErrorKind::NetworkUnreachable => {
                counters.unreachable.more();
                Word::Unreachable(Unreachable::NoRoute)
            }
            io::ErrorKind::PermissionDenied => {
                counters.unreachable.more();
                Word::Unreachable(Unreachable::Prohibited)
            }
            io::ErrorKind::TimedOut => {
                counters.silent.more();
                self.note(Event::Refused, Why::NoAnswer, about);
                return self.decide(id, Fate::Drop);
            }
            // Whatever is wrong is wrong here: the client shall not suffer from it.
            _ => {
                counters.failed.more();
                why = Why::Failure;
                Word::Pass
            }
        };
        let event = match word {
            Word::Pass if self.queue.is_some() => Event::Unsplit,
            _ => Event::Refused,
        };
        self.note(event, why, about);
        self.say(id, word);
    }

    fn say(&mut self, id: u32, word: Word) {
        let mark = word.mark(&self.config);
        self.decide(id, Fate::Go(mark));
    }

    fn decide(&mut self, id: u32, fate: Fate) {
        let told = self.queue.as_mut().map(|queue| queue.decide(id, fate));
        if let Some(Err(e)) = told {
            self.warn(&format_args!(
                "cannot tell the kernel what becomes of a SYN: {e}"
            ));
        }
    }

    /// Says what may happen as often as strangers like.
    fn warn(&mut self, what: &dyn Display) {
        if let Some(unsaid) = self.said_others.ending(clock::monotonic(), "lines") {
            tracing::warn!("{what}{unsaid}");
        }
    }

    /// The same of SYNs that are refused or passed on. The log of decisions has all of them within its own bounds.
    fn inform(&mut self, what: &dyn Display) {
        if let Some(unsaid) = self.said_refusals.ending(clock::monotonic(), "lines") {
            tracing::info!("{what}{unsaid}");
        }
    }

    // Handshakes

    /// The server's answer, or its end before the client's handshake was complete.
    fn handle_connecting(&mut self, slot: usize, flags: EventFlags) {
        let State::Connecting(connecting) = &mut self.slots[slot].state else {
            return;
        };
        let ends = connecting.ends;
        connecting.seen |= flags;
        // The kernel says so with the event; asking costs each handshake a system call.
        if flags.intersects(EventFlags::ERR | EventFlags::HUP)
            && let Ok(Some(e)) | Err(e) = transparent::pending_error(connecting.server.as_fd())
        {
            let (answered, about) = (connecting.answered, connecting.about());
            if let Some(link) = connecting.link.filter(|_| !answered) {
                match e.kind() {
                    io::ErrorKind::ConnectionRefused => {
                        let after = clock::monotonic().saturating_since(connecting.begun);
                        self.links.on_answer(link, after);
                    }
                    _ => self.links.on_silence(link),
                }
            }
            self.release(slot);
            if let Some((_, id)) = self.deferral.on_refused(ends) {
                if answered {
                    self.counters.abandoned.more();
                    self.note(Event::Abandoned, Why::NoHandshake, about);
                } else {
                    self.refuse(id, about, &e);
                }
            }
            return;
        }
        if connecting.answered || !flags.contains(EventFlags::OUT) {
            return;
        }
        connecting.answered = true;
        self.one_way.on_answered(ends);
        if let Some(link) = connecting.link {
            let after = clock::monotonic().saturating_since(connecting.begun);
            self.links.on_answer(link, after);
        }
        let (zone, client) = (connecting.zone, connecting.client.take());
        let Some(id) = self.deferral.on_answered(clock::monotonic(), ends) else {
            return;
        };
        match client {
            None => self.say(id, Word::Split(zone, self.number)),
            Some(client) => {
                let held = self.deferral.on_accepted(ends).map(|(_, held)| held);
                self.begin(slot, client, held.unwrap_or_default());
            }
        }
    }

    // Connections

    /// Both halves stand.
    fn begin(&mut self, slot: usize, client: TcpStream, held: Duration) {
        let generation = self.slots[slot].generation;
        let state = std::mem::replace(&mut self.slots[slot].state, State::Free);
        let State::Connecting(connecting) = state else {
            self.slots[slot].state = state;
            return;
        };
        let about = connecting.about();
        let Connecting {
            server,
            ends,
            zone,
            link,
            answer_dscp,
            seen,
            own,
            ..
        } = *connecting;
        let now = clock::monotonic();
        sockets::set_dscp(client.as_fd(), answer_dscp);
        // No page says so of SO_LINGER, so one is asked.
        let asked = || sockets::resets_on_close(client.as_fd());
        if !*self.accepted_reset.get_or_insert_with(asked) {
            let _ = sys::tcp::set_reset_on_close(client.as_fd());
        }
        let token = token(slot, generation, Side::Client);
        // Almost always there is room: who listens for it is told so at once, and woken in vain.
        let interest = interest() - EventFlags::OUT;
        let added = epoll::add(&self.epoll, &client, EventData::new_u64(token), interest);
        let mut relay = Relay::new();
        if let Err(e) = added {
            tracing::warn!("{} to {}: {e}", ends.client, ends.server);
            relay.on_failed();
        }
        tracing::debug!("{} to {}: split", ends.client, ends.server);
        self.note_split(about, held);
        // Who sees it among all sees it among the living.
        self.counters.live.more();
        self.counters.split.more();
        self.counters.on_held(held);
        let mut carrying = Box::new(Carrying {
            relay,
            sockets: [client, server],
            pipes: [None, None],
            corked: [false; 2],
            marked: [false; 2],
            fresh: [false; 2],
            hung_up: [false; 2],
            large: [false; 2],
            // Accepted sockets are like their listener.
            delay: [Delay::Never, Delay::Unwritten],
            room_told: false,
            kept_alive: false,
            own,
            ends,
            zone,
            link,
            queued: false,
            stays: false,
            pace: Pace::new(now, now, [0; 2]),
            bounded: [None; 2],
            windows: [None; 2],
        });
        self.begin_small(&mut carrying);
        // A server may speak first. Of the client the kernel tells what there is.
        carrying.on_event(Side::Server, seen);
        self.slots[slot].state = State::Carrying(carrying);
        self.watch_last_acks(slot);
        self.join_gaps(slot, now);
        self.carry(slot);
    }

    fn handle_socket(&mut self, token: u64, flags: EventFlags) {
        let slot = usize::try_from((token & 0xffff_ffff) >> 1).unwrap_or(usize::MAX);
        let side = Side::BOTH[usize::from(token & 1 == 1)];
        let known = self.slots.get_mut(slot);
        // Of a connection that ended earlier in this very round.
        let Some(known) = known.filter(|s| u64::from(s.generation) == token >> 32) else {
            return;
        };
        match &mut known.state {
            State::Free => {}
            State::Connecting(_) => self.handle_connecting(slot, flags),
            State::Carrying(carrying) => {
                carrying.on_event(side, flags);
                self.carry(slot);
                self.look_at_last_acks(slot);
            }
        }
    }

    /// Carries what can be carried, but no more than a turn's worth.
    fn carry(&mut self, slot: usize) {
        let Slot { generation, state } = &mut self.slots[slot];
        let State::Carrying(carrying) = state else {
            return;
        };
        let mut turn = Turn {
            pipes: &mut self.pipes,
            most_pipes: self.config.pipes / u64::from(self.config.workers),
            buffer: &mut self.buffer,
            counters: &self.counters,
            links: &self.links,
        };
        let outcome = carrying.carry(&mut turn);
        if let Some(window) = self.memory.window() {
            carrying.bound_windows(window);
        }
        if !carrying.room_told && carrying.relay.is_blocked(Side::Client) {
            let data = EventData::new_u64(token(slot, *generation, Side::Client));
            let client = &carrying.sockets[Side::Client.index()];
            match epoll::modify(&self.epoll, client, data, interest()) {
                Ok(()) => carrying.room_told = true,
                Err(e) => tracing::warn!("waiting for room: {e}"),
            }
        }
        match outcome {
            Outcome::Waits => {}
            Outcome::HasMore if carrying.queued => {}
            Outcome::HasMore => {
                carrying.queued = true;
                self.busy.push_back(slot);
            }
            Outcome::Closed if self.keeps_for_last_ack(slot) => {}
            Outcome::Closed => self.end(slot, true),
            Outcome::Reset => self.end(slot, false),
        }
    }

    fn end(&mut self, slot: usize, orderly: bool) {
        let State::Carrying(carrying) = &self.slots[slot].state else {
            return;
        };
        let ends = carrying.ends;
        let [out, back] = Side::BOTH.map(|s| carrying.relay.carried(s));
        tracing::debug!(
            "{} to {}: {}, {out} bytes there, {back} back",
            ends.client,
            ends.server,
            if orderly { "ended" } else { "reset" }
        );
        let now = clock::monotonic();
        let (why, undelivered) = match orderly {
            true => {
                self.look_at_last_acks(slot);
                (Why::Closed, [0; 2])
            }
            false => (Why::Reset, self.note_undelivered(slot, now)),
        };
        self.remember_size(ends, out + back, now);
        self.leave_gaps(slot, now);
        let State::Carrying(carrying) = &self.slots[slot].state else {
            return;
        };
        self.note_ended(carrying, why, undelivered, now);
        if orderly {
            for socket in &carrying.sockets {
                sockets::close_gently(socket.as_fd());
            }
            self.counters.ended.more();
        } else {
            self.counters.reset.more();
        }
        self.counters.live.less();
        self.deferral.on_closed(ends);
        self.release(slot);
    }

    /// Closes what a slot holds.
    fn release(&mut self, slot: usize) {
        self.forget_last_acks(slot);
        let place = &mut self.slots[slot];
        place.generation = place.generation.wrapping_add(1) & GENERATIONS;
        let state = std::mem::replace(&mut place.state, State::Free);
        let (link, own) = match &state {
            State::Connecting(connecting) => (connecting.link, connecting.own),
            State::Carrying(carrying) => (carrying.link, carrying.own),
            State::Free => (None, None),
        };
        if let Some(link) = link {
            self.links.on_gone(link);
        }
        if let Some(own) = own {
            self.orders.own().remove(&own);
        }
        if let State::Carrying(mut carrying) = state {
            for (side, pipe) in Side::BOTH.into_iter().zip(&mut carrying.pipes) {
                let left = carrying.relay.in_pipe(side);
                self.counters.in_pipes.take(left);
                match pipe.take() {
                    Some(pipe) if left == 0 => give_back(&mut self.pipes, pipe, &self.counters),
                    Some(_) => self.counters.pipes.less(),
                    None => {}
                }
            }
        }
        self.free.push(slot);
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        self.beat.fetch_add(1, Ordering::Relaxed);
        for expired in self.deferral.expire(now) {
            match expired.packet {
                Some(id) => {
                    self.counters.silent.more();
                    self.note_connecting(Event::Refused, Why::NoAnswer, expired.socket);
                    if let State::Connecting(connecting) = &self.slots[expired.socket].state
                        && let Some(link) = connecting.link
                    {
                        self.links.on_silence(link);
                    }
                    if self.queue.is_some() {
                        self.decide(id, Fate::Drop);
                    }
                }
                None => {
                    self.counters.abandoned.more();
                    self.note_connecting(Event::Abandoned, Why::NoHandshake, expired.socket);
                    if let State::Connecting(connecting) = &self.slots[expired.socket].state {
                        let zone = connecting.zone;
                        self.look_for_another_way(expired.ends, zone);
                    }
                }
            }
            // Dropping resets what the server holds.
            self.release(expired.socket);
        }
        let changes = self.orders.changes.load(Ordering::Acquire);
        if changes != self.changes_seen
            && let Some(config) = self.orders.changed()
        {
            self.changes_seen = changes;
            self.become_another(config);
        }
        self.look_at_memory();
        self.look_at_windows(now);
        self.look_at_rest(now);
        if now >= self.next_paces {
            self.next_paces = now + SECOND;
            self.look_at_paces(now);
            self.learn();
            // Fewer may wait by now.
            if let Some(share) = self.memory.window() {
                self.let_windows_go(Some(share));
            }
            self.past.expire(now);
        }
        if now >= self.next_question {
            self.next_question = now + QUESTIONS;
            self.look_for_the_absent(now);
            self.look_for_the_silent(now);
        }
        self.look_at_all_last_acks();
        self.counters.waiting.set(self.deferral.waiting() as u64);
    }
}

impl Worker {
    /// New connections follow other rules, limits and options; those that stand stay as they are.
    fn become_another(&mut self, config: Arc<Config>) {
        self.deferral
            .set_limits(share(config.limits, config.workers));
        for (listener, zone) in &self.listeners {
            // Accepted sockets are like their listener.
            let refused = sockets::prepare(listener.as_fd(), config.zone(*zone));
            self.counters.options_refused.add(refused);
        }
        self.config = config;
    }

    /// Where nobody answers for the server's address, the kernel tells the sender of the packet, and that
    /// is the client by its address: so it is asked.
    fn look_for_the_absent(&mut self, now: Instant) {
        let late = self.deferral.unanswered(now, QUESTIONS);
        let late: Vec<Ends> = late.take(QUESTIONS_AT_ONCE).collect();
        for ends in late {
            let asked = self.netlink.next_hop_has_failed(ends.server.ip());
            if asked.is_ok_and(|failed| failed)
                && let Some((slot, id)) = self.deferral.on_refused(ends)
            {
                let State::Connecting(connecting) = &self.slots[slot].state else {
                    continue;
                };
                let about = connecting.about();
                self.release(slot);
                let error = rustix::io::Errno::HOSTUNREACH.into();
                self.refuse(id, about, &error);
            }
        }
    }
}

/// What a queued packet is.
enum First {
    /// The first of a connection.
    Syn(Syn),
    Reset(Reset),
    Answer(Answer),
    Other,
}

impl First {
    fn of(bytes: &[u8]) -> Self {
        let syn = Syn::parse(bytes).map(Self::Syn);
        let first = syn.or_else(|_| Reset::parse(bytes).map(Self::Reset));
        let first = first.or_else(|_| Answer::parse(bytes).map(Self::Answer));
        first.unwrap_or(Self::Other)
    }
}

/// What of all bounds is one worker's.
fn share(limits: Limits, workers: u8) -> Limits {
    let part = |all: usize| all.div_ceil(usize::from(workers));
    Limits {
        waiting: part(limits.waiting),
        waiting_per_client: part(limits.waiting_per_client),
        connections: part(limits.connections),
        connections_per_client: part(limits.connections_per_client),
        ..limits
    }
}

fn no_such_version(error: &io::Error) -> bool {
    matches!(
        rustix::io::Errno::from_io_error(error),
        Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL)
    )
}

fn token(slot: usize, generation: u32, side: Side) -> u64 {
    u64::from(generation) << 32 | (slot as u64) << 1 | side.index() as u64
}

fn interest() -> EventFlags {
    EventFlags::IN | EventFlags::OUT | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET
}

const WAKE: u64 = u64::MAX;
const QUEUE: u64 = u64::MAX - 1;
const LAST_ACKS: u64 = u64::MAX - 2;
/// Listeners count down from here.
const LISTENERS: u64 = u64::MAX - 3;
const MOST_LISTENERS: u64 = 16;
/// Generations stay clear of the tokens above.
const GENERATIONS: u32 = 0x7fff_ffff;
const EVENTS: usize = 512;
/// How often it is asked whether there is anybody, and how many of those who wait: a question takes some
/// 10 us.
const QUESTIONS: Duration = Duration::from_ms(500);
const QUESTIONS_AT_ONCE: usize = 64;
const SECOND: Duration = Duration::from_s(1);
/// Of each worker and kind; who resets many connections does not fill the log.
const LINES_PER_SECOND: u32 = 10;
/// How often times are looked at.
const TICK: Duration = Duration::from_ms(100);
/// SYNs that the kernel keeps for a verdict, more than [`Limits::waiting`]; beyond, they pass.
const QUEUED_SYNS: u32 = 16_384;
/// Headers and options, and data that a TFO client sends with them.
const SYN_BYTES: u16 = 2048;
