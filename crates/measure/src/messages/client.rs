//! The near end of messages: asks for them, takes the times.

use std::io::Write;

use sys::clock;
use units::{Duration, Instant};

use crate::approach::Dscp;
use crate::client::lost;
use crate::control::Control;
use crate::facts::clean;
use crate::message::{self, Message, Refusal};
use crate::messages::{
    Means, MessageCount, MessageOutcome, MessageSpec, NoQueues, Queues, Tidings, VerbsEnds,
    VerbsPort, Worker, start, sum,
};
use crate::protocol::TOKEN_BYTES;
use crate::transfer::{in_time, unexpected};
use crate::wait::TICK;
use crate::{Client, End, MeasureError, Stop, facts};

impl Client {
    /// Exchanges messages with the far end. When `stop` is raised, what was measured so far comes
    /// back as an interrupted outcome.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Config`] for what cannot be had anywhere, [`MeasureError::FarLimit`] when the
    /// far end allows less or is too old to know messages, and whatever else may befall a transfer.
    pub fn messages(
        &mut self,
        spec: &MessageSpec,
        stop: &Stop,
    ) -> Result<MessageOutcome, MeasureError> {
        if let Some(problem) = spec.problem() {
            return Err(MeasureError::Config(problem));
        }
        if let Some(verbs) = spec.verbs {
            facts::check_name(self.far(), verbs.name())?;
        }
        let mut control = self.take_control()?;
        let outcome = self.exchange(&mut control, spec, stop);
        // Only after these is the connection between two messages for certain.
        if matches!(outcome, Ok(_) | Err(MeasureError::FarLimit(_))) {
            self.control = Some(control);
        }
        outcome
    }

    fn exchange(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
        stop: &Stop,
    ) -> Result<MessageOutcome, MeasureError> {
        let before = |t| lost(t, "before the messages");
        let deadline = in_time(self.patience());
        let wish = Message::StartMessages(MessageSpec {
            dscp: self.approach().dscp.map(Dscp::number),
            ..spec.clone()
        });
        let (means, verbs) = match spec.verbs {
            None => {
                control.send(&wish, deadline, stop).map_err(before)?;
                let token = token_of(control.receive(deadline, stop).map_err(before)?)?;
                let sockets = self.open_lines(spec, token, stop)?;
                (sockets.into_iter().map(Means::Socket).collect(), None)
            }
            Some(verbs) => {
                let local = control.stream().local_addr().ok().map(|addr| addr.ip());
                // What is missing here is said without troubling the far end.
                let queues = Queues::open(verbs, spec, local).map_err(no_queues)?;
                control.send(&wish, deadline, stop).map_err(before)?;
                let far = ends_of(control.receive(deadline, stop).map_err(before)?)?;
                let (means, port) = join(control, queues, &far, deadline, stop)?;
                (means, Some(port))
            }
        };
        ready(control.receive(deadline, stop).map_err(before)?)?;
        control.send(&Message::Go, deadline, stop).map_err(before)?;
        let workers = start(spec, means, End::Near).map_err(|source| MeasureError::Local {
            what: "start the measuring threads",
            source,
        })?;
        let (interrupted, told) = self.accompany(control, spec, &workers, stop)?;
        let worked = sum(workers);
        let far = match told {
            Some(count) => count,
            None => self.account(control, interrupted, stop)?,
        };
        let near = worked.count;
        // The first to fail has the reason: over TCP the other end's is a closed connection, over verbs
        // ours is that the other end gave up.
        let errors = match spec.verbs {
            None => [&near.error, &far.error],
            Some(_) => [&far.error, &near.error],
        };
        if let Some(error) = errors.into_iter().flatten().next()
            && !interrupted
        {
            return Err(MeasureError::StreamBroken(clean(error)));
        }
        Ok(MessageOutcome {
            spec: spec.clone(),
            round_trips: worked.round_trips.unwrap_or_default(),
            elapsed: worked.elapsed,
            stamped: worked.stamped,
            near,
            far,
            verbs,
            interrupted,
        })
    }

    fn open_lines(
        &self,
        spec: &MessageSpec,
        token: [u8; TOKEN_BYTES],
        stop: &Stop,
    ) -> Result<Vec<std::net::TcpStream>, MeasureError> {
        let count = usize::from(spec.connections());
        let timeout = self.patience();
        let mut sockets = self
            .approach()
            .connect(self.addr(), count, timeout, |_| Ok(()), stop)?;
        for (socket, number) in sockets.iter_mut().zip(0..) {
            // Some 40 bytes into an empty buffer: this does not block.
            let written = socket.write_all(&message::data_opening(token, number));
            written.map_err(|error| MeasureError::StreamBroken(error.to_string()))?;
        }
        Ok(sockets)
    }

    /// Until all workers have ended: whether the user stopped them, and the far end's account if it
    /// came that early.
    fn accompany(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
        workers: &[Worker],
        stop: &Stop,
    ) -> Result<(bool, Option<MessageCount>), MeasureError> {
        let (mut told, mut tidings) = (None, Tidings::default());
        let during = |t| lost(t, "during the messages");
        let duration = Duration::from_ns(spec.duration_ns);
        let over = in_time(duration);
        let gone = in_time(duration + self.patience());
        while !workers.iter().all(Worker::is_finished) {
            match control.try_receive(TICK).map_err(during)? {
                None => {}
                // Its workers are done, and with them the connections of ours.
                Some(Message::MessagesDone(count)) if told.is_none() => {
                    // Over verbs nothing else says so to a worker that waits for a message.
                    if spec.verbs.is_some() && count.error.is_some() {
                        workers.iter().for_each(Worker::abort);
                    }
                    told = Some(count);
                }
                Some(Message::Sent { packets }) => Tidings::heard(&packets, workers),
                Some(other) => return Err(during(unexpected(&other))),
            }
            if stop.is_stopped() {
                let asked = control.send(&Message::Stop, in_time(GRACE), &Stop::new());
                asked.map_err(|_| MeasureError::Interrupted)?;
                return Ok((true, told));
            }
            let now = clock::monotonic();
            if now >= gone {
                return Err(lost(crate::control::Trouble::Silent, "during the messages"));
            }
            if now >= over {
                workers.iter().for_each(Worker::finish_sending);
            }
            self.tell(control, tidings.news(workers), stop)?;
        }
        self.tell(control, tidings.news(workers), stop)?;
        Ok((false, told))
    }

    /// Says what there is to say.
    fn tell(
        &self,
        control: &mut Control,
        news: Option<u64>,
        stop: &Stop,
    ) -> Result<(), MeasureError> {
        let said = news.map_or(Ok(()), |sent| {
            let packets = vec![sent];
            control.send(&Message::Sent { packets }, in_time(self.patience()), stop)
        });
        said.map_err(|t| lost(t, "during the messages"))
    }

    /// What the far end counted.
    fn account(
        &self,
        control: &mut Control,
        interrupted: bool,
        stop: &Stop,
    ) -> Result<MessageCount, MeasureError> {
        let (limit, unstoppable) = (self.patience(), Stop::new());
        let stop = if interrupted { &unstoppable } else { stop };
        let deadline = in_time(limit);
        loop {
            let told = control.receive(deadline, stop);
            match told.map_err(|t| lost(t, "before it told its result"))? {
                Message::MessagesDone(count) => return Ok(count),
                // It crossed the end of what waited for it.
                Message::Sent { .. } => {}
                other => return Err(lost(unexpected(&other), "before it told its result")),
            }
        }
    }
}

fn token_of(answer: Message) -> Result<[u8; TOKEN_BYTES], MeasureError> {
    match answer {
        Message::Accept { token } => message::token_from_hex(&token)
            .ok_or_else(|| MeasureError::Protocol("a broken token".to_owned())),
        other => Err(refused(other)),
    }
}

fn ends_of(answer: Message) -> Result<VerbsEnds, MeasureError> {
    match answer {
        Message::VerbsEnds(ends) => Ok(ends),
        other => Err(refused(other)),
    }
}

fn ready(answer: Message) -> Result<(), MeasureError> {
    match answer {
        Message::Ready => Ok(()),
        other => Err(refused(other)),
    }
}

/// Joins our queues with the far end's and tells it of ours.
fn join(
    control: &mut Control,
    mut queues: Queues,
    far: &VerbsEnds,
    deadline: Instant,
    stop: &Stop,
) -> Result<(Vec<Means>, VerbsPort), MeasureError> {
    queues.connect(far).map_err(no_queues)?;
    let told = control.send(&Message::VerbsEnds(queues.ends()), deadline, stop);
    told.map_err(|t| lost(t, "before the messages"))?;
    let port = queues.port(far);
    let queues = queues.into_queues().into_iter();
    let means = queues.map(|queue| Means::Queue(Box::new(queue)));
    Ok((means.collect(), port))
}

fn no_queues(why: NoQueues) -> MeasureError {
    match why {
        NoQueues::Limit(text) => MeasureError::Config(text),
        NoQueues::Nonsense(_) => MeasureError::Protocol(why.text()),
        why => MeasureError::Local {
            what: "exchange messages by RDMA verbs",
            source: std::io::Error::other(why.text()),
        },
    }
}

/// Why the far end does not go on.
fn refused(answer: Message) -> MeasureError {
    match answer {
        Message::Refused(Refusal::Limit { text }) => MeasureError::FarLimit(clean(&text)),
        // What an end of before this message says to it, and then it hangs up.
        Message::Failed { text } if text.contains("unknown variant") => {
            MeasureError::FarFailed("it knows no messages: update the far goodput".to_owned())
        }
        Message::Refused(Refusal::Host { text }) | Message::Failed { text } => {
            MeasureError::FarFailed(clean(&text))
        }
        other => lost(unexpected(&other), "before the messages"),
    }
}

/// How long a stopped client waits until its wish to stop is on its way.
const GRACE: Duration = Duration::from_s(1);
