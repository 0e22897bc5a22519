//! Who leads the ranks: makes sessions ranks, joins them in pairs, has all begin at once.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::event::{PollFd, PollFlags, poll};
use sys::clock;
use units::{Duration, Instant};

use super::{FlowTimes, RankPeer, RankSpec, RankStep, RankTest};
use crate::approach::Dscp;
use crate::client::lost;
use crate::control::{Control, Trouble};
use crate::facts::{HostFacts, clean};
use crate::message::{Message, Refusal};
use crate::transfer::{in_time, unexpected};
use crate::wait::{TICK, timespec};
use crate::{Client, End, MeasureError, Stop};

/// A host that is to be a rank.
#[derive(Debug)]
pub struct Member {
    /// What it is called.
    pub name: String,
    /// A session with its server.
    pub client: Client,
    /// Where the other ranks reach its server, where that is not where the client did.
    pub addr: Option<SocketAddr>,
    /// Congestion control of what it sends; its host's if absent.
    pub congestion: Option<String>,
}

/// Hosts that send to each other. Dropped, they are ranks no more.
#[derive(Debug)]
pub struct Ranks {
    ranks: Vec<Rank>,
    patience: Duration,
    skew: Duration,
}

#[derive(Debug)]
struct Rank {
    name: String,
    control: Control,
    addr: SocketAddr,
    token: String,
    host: HostFacts,
}

impl Ranks {
    /// Makes each session a rank's, numbered in their order.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Rank`] with the host that refuses; [`MeasureError::Config`] for more than 65,535.
    pub fn enlist(members: Vec<Member>, stop: &Stop) -> Result<Self, MeasureError> {
        let mut these = Self {
            ranks: Vec::with_capacity(members.len()),
            patience: Duration::ZERO,
            skew: Duration::ZERO,
        };
        let mut awake = clock::monotonic();
        let mut members = VecDeque::from(members);
        while let Some(member) = members.pop_front() {
            let number = u16::try_from(these.ranks.len())
                .map_err(|_| MeasureError::Config("more than 65,535 ranks".to_owned()))?;
            these.patience = these.patience.max(member.client.patience());
            let name = member.name.clone();
            let rank = enlist(member, number, stop).map_err(|error| of_rank(&name, error))?;
            these.ranks.push(rank);
            if clock::monotonic().saturating_since(awake) >= PING_EVERY {
                these.keep_awake(&mut awake, stop)?;
                for member in &mut members {
                    member.keep_awake(stop)?;
                }
            }
        }
        Ok(these)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// What each host said of itself.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, &HostFacts)> {
        self.ranks.iter().map(|r| (r.name.as_str(), &r.host))
    }

    /// The longest time so far from the first rank's word to begin to the last one's.
    pub const fn skew(&self) -> Duration {
        self.skew
    }

    /// Joins ranks: each flow's first number connects to its second. A rank sends in one flow at most and
    /// receives in one at most.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Config`] for other flows; [`MeasureError::Rank`] with who could not.
    pub fn step(&mut self, flows: &[(usize, usize)], stop: &Stop) -> Result<(), MeasureError> {
        let mut steps: Vec<Option<RankStep>> = vec![None; self.ranks.len()];
        let wrong = || MeasureError::Config("a rank twice in a step, or none".to_owned());
        for &(from, to) in flows {
            let peer = self.ranks.get(to).ok_or_else(wrong)?;
            let peer = RankPeer {
                addr: peer.addr,
                token: peer.token.clone(),
            };
            let sender = steps.get_mut(from).ok_or_else(wrong)?;
            let was = sender.get_or_insert_default().send.replace(peer);
            let number = u16::try_from(from).map_err(|_| wrong())?;
            let before = steps[to].get_or_insert_default().receive.replace(number);
            if was.is_some() || before.is_some() || from == to {
                return Err(wrong());
            }
        }
        let skew = self.skew;
        let words = steps.into_iter().map(|step| step.map(Message::RankStep));
        self.each(words.collect(), stop, |message| match message {
            Message::Ready => Some(()),
            _ => None,
        })?;
        // Nothing began yet.
        self.skew = skew;
        Ok(())
    }

    /// Has the flows of the last step do a test, all at once: what each took, in the order given.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Config`] for an impossible test or a rank that there is not; [`MeasureError::Rank`] with who could not.
    pub fn test(
        &mut self,
        flows: &[(usize, usize)],
        test: &RankTest,
        stop: &Stop,
    ) -> Result<Vec<FlowTimes>, MeasureError> {
        if let Some(problem) = test.problem() {
            return Err(MeasureError::Config(problem));
        }
        let mut words: Vec<Option<Message>> = vec![None; self.ranks.len()];
        let none = || MeasureError::Config("a test of a rank that there is not".to_owned());
        for rank in flows.iter().flat_map(|&(from, to)| [from, to]) {
            *words.get_mut(rank).ok_or_else(none)? = Some(Message::RankTest(*test));
        }
        let times = self.each(words, stop, |message| match message {
            Message::RankTimes(times) => Some(*times),
            _ => None,
        })?;
        let of = |rank: usize| times.get(rank).copied().flatten().unwrap_or_default();
        let time = |ns: Option<u64>| Duration::from_ns(ns.unwrap_or(0));
        let each = flows.iter().map(|&(from, to)| FlowTimes {
            send: time(of(from).send_ns),
            receive: time(of(to).receive_ns),
        });
        Ok(each.collect())
    }

    /// Says its word to each rank that has one, then takes their answers as they come. All are pinged
    /// meanwhile: those that wait for others stay awake, and a host that has died is noticed.
    fn each<T: Copy>(
        &mut self,
        words: Vec<Option<Message>>,
        stop: &Stop,
        take: impl Fn(&Message) -> Option<T>,
    ) -> Result<Vec<Option<T>>, MeasureError> {
        let patience = self.patience;
        let begun = clock::monotonic();
        for (rank, word) in self.ranks.iter_mut().zip(&words) {
            let Some(word) = word else { continue };
            let sent = rank.control.send(word, in_time(patience), stop);
            sent.map_err(|t| of_rank(&rank.name, lost(t, WHEN)))?;
        }
        let mut awake = clock::monotonic();
        self.skew = self.skew.max(awake.saturating_since(begun));
        let mut taken: Vec<Option<T>> = vec![None; self.ranks.len()];
        let mut heard = vec![awake; self.ranks.len()];
        loop {
            let mut missing = false;
            for (at, rank) in self.ranks.iter_mut().enumerate() {
                let lost = |t| of_rank(&rank.name, lost(t, WHEN));
                while let Some(message) = rank.control.try_receive(Duration::ZERO).map_err(lost)? {
                    heard[at] = clock::monotonic();
                    if matches!(message, Message::Pong { .. }) {
                        continue;
                    }
                    let answer = take(&message).filter(|_| words[at].is_some());
                    if answer.is_none() {
                        return Err(of_rank(&rank.name, refused(message)));
                    }
                    taken[at] = answer;
                }
                if clock::monotonic().saturating_since(heard[at]) >= patience {
                    return Err(lost(Trouble::Silent));
                }
                missing |= words[at].is_some() && taken[at].is_none();
            }
            if !missing {
                return Ok(taken);
            }
            if stop.is_stopped() {
                return Err(MeasureError::Interrupted);
            }
            self.keep_awake(&mut awake, stop)?;
            self.wait()?;
        }
    }

    /// Until a rank says something, a tick at most.
    fn wait(&self) -> Result<(), MeasureError> {
        let each = self.ranks.iter().map(|rank| rank.control.stream());
        let mut polled: Vec<PollFd<'_>> = each.map(|s| PollFd::new(s, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&timespec(TICK))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(MeasureError::Local {
                what: "wait for ranks",
                source: error.into(),
            }),
        }
    }

    /// Pings all ranks, some times in the least silence that a server may allow.
    fn keep_awake(&mut self, awake: &mut Instant, stop: &Stop) -> Result<(), MeasureError> {
        let now = clock::monotonic();
        if now.saturating_since(*awake) < PING_EVERY {
            return Ok(());
        }
        *awake = now;
        for rank in &mut self.ranks {
            let sent = rank.control.send(&PING, in_time(self.patience), stop);
            sent.map_err(|t| of_rank(&rank.name, lost(t, WHEN)))?;
        }
        Ok(())
    }
}

impl Member {
    /// Pings its server and does not wait for the answer: to be called some times a second while there is
    /// something else to wait for.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Rank`] when it has gone.
    pub fn keep_awake(&mut self, stop: &Stop) -> Result<(), MeasureError> {
        let pinged = self.client.take_control().and_then(|mut control| {
            let sent = control.send(&PING, in_time(self.client.patience()), stop);
            self.client.put_control(control);
            sent.map_err(|t| lost(t, WHEN))
        });
        pinged.map_err(|error| of_rank(&self.name, error))
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            rank.control.send_last(&Message::Stop);
        }
    }
}

fn enlist(member: Member, number: u16, stop: &Stop) -> Result<Rank, MeasureError> {
    let Member {
        name,
        mut client,
        addr,
        congestion,
    } = member;
    let deadline = in_time(client.patience());
    let spec = RankSpec {
        number,
        congestion: congestion.clone(),
        dscp: client.approach().dscp.map(Dscp::number),
    };
    let mut control = client.take_control()?;
    let said = control.send(&Message::StartRank(spec), deadline, stop);
    let answer = said.and_then(|()| {
        loop {
            match control.receive(deadline, stop)? {
                // To what kept it awake.
                Message::Pong { .. } => {}
                answer => return Ok(answer),
            }
        }
    });
    let token = match answer.map_err(|t| outdated(lost(t, WHEN)))? {
        Message::Accept { token } => token,
        Message::Refused(Refusal::Congestion {
            permitted,
            available,
        }) => {
            return Err(MeasureError::Congestion {
                end: End::Far,
                name: congestion.unwrap_or_default(),
                permitted,
                available: available.iter().take(32).map(|n| clean(n)).collect(),
            });
        }
        other => return Err(refused(other)),
    };
    Ok(Rank {
        addr: addr.unwrap_or_else(|| client.addr()),
        host: client.far().host.clone(),
        name,
        control,
        token,
    })
}

/// Why a rank does not go on.
fn refused(answer: Message) -> MeasureError {
    match answer {
        Message::Refused(Refusal::Limit { text }) => MeasureError::FarLimit(clean(&text)),
        Message::Refused(Refusal::Host { text }) | Message::Failed { text } => {
            outdated(MeasureError::FarFailed(clean(&text)))
        }
        other => lost(unexpected(&other), WHEN),
    }
}

/// What an end from before there were ranks says, and then it hangs up.
fn outdated(error: MeasureError) -> MeasureError {
    match error {
        MeasureError::FarFailed(text) if text.contains("unknown variant") => {
            MeasureError::FarFailed("it knows no ranks: update the far goodput".to_owned())
        }
        error => error,
    }
}

fn of_rank(name: &str, error: MeasureError) -> MeasureError {
    match error {
        MeasureError::Interrupted => MeasureError::Interrupted,
        error => MeasureError::Rank {
            name: clean(name),
            error: Box::new(error),
        },
    }
}

const WHEN: &str = "as a rank";
const PING: Message = Message::Ping { n: 0, dscp: None };
/// Three times in the least silence that `goodput serve` allows, 1 s.
const PING_EVERY: Duration = Duration::from_ms(300);
