//! The far end of messages: sends them back, counts them, or sends them.

use sys::clock;
use tracing::info;
use units::Duration;

use crate::End;
use crate::approach::{self, Dscp};
use crate::control::{Control, Trouble};
use crate::message::{self, Message, Refusal};
use crate::messages::{
    Means, MessageSpec, NoQueues, Pattern, Queues, Tidings, Verbs, VerbsEnds, Worker, start, sum,
};
use crate::server::{Leave, Session};
use crate::transfer::{in_time, unexpected};
use crate::wait::TICK;

impl Session {
    /// Serves one wish for messages. The session goes on afterwards, but for a broken control
    /// connection.
    pub(crate) fn messages(&self, control: &mut Control, spec: &MessageSpec) -> Result<(), Leave> {
        let limit = self.house.limits.duration;
        let problem = spec.problem().or_else(|| {
            let asked = Duration::from_ns(spec.duration_ns);
            (asked > limit).then(|| format!("it allows {limit}, not {asked}"))
        });
        // A ping-pong sends what came.
        let sends = matches!(spec.pattern, Pattern::Down | Pattern::Both);
        let limited = (sends && self.house.ceiling().is_some()).then(|| {
            "the server sends messages only to clients with its token, since its rate is limited (--rate-max)"
                .to_owned()
        });
        let problem = problem.or(limited);
        if let Some(text) = problem {
            return self.send(control, &Message::Refused(Refusal::Limit { text }));
        }
        let means = match spec.verbs {
            None => self.lines(control, spec)?,
            Some(verbs) => self.queues(control, spec, verbs)?,
        };
        let Some(means) = means else {
            return Ok(());
        };
        self.send(control, &Message::Ready)?;
        match control.receive(in_time(self.house.limits.silence), &self.house.stop)? {
            Message::Go => {}
            Message::Stop => return self.messages_done(control, spec, Vec::new()),
            other => return Err(unexpected(&other).into()),
        }
        let workers = start(spec, means, End::Far)
            .map_err(|error| Leave::Host(format!("cannot start the messages: {error}")))?;
        self.accompany_messages(control, spec, &workers)?;
        self.messages_done(control, spec, workers)
    }

    /// The client's connections; `None` when it was refused.
    fn lines(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
    ) -> Result<Option<Vec<Means>>, Leave> {
        let place = match self.reserve() {
            Ok(place) => place,
            Err(refusal) => {
                self.send(control, &Message::Refused(refusal))?;
                return Ok(None);
            }
        };
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let sockets = self.gather(control, &place, spec.connections())?;
        if let Some(dscp) = spec.dscp.and_then(Dscp::new) {
            // A mark that this host refuses is no reason not to measure.
            let lines = sockets.iter().chain([control.stream()]);
            lines.for_each(|line| drop(approach::mark(line, dscp)));
        }
        Ok(Some(sockets.into_iter().map(Means::Socket).collect()))
    }

    /// Queues that are joined with the client's; `None` when it was refused, as where there is no
    /// device. What a session takes of locked memory is two queues of one message each way.
    fn queues(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
        verbs: Verbs,
    ) -> Result<Option<Vec<Means>>, Leave> {
        let refusal = |why: &NoQueues| match why {
            NoQueues::Limit(text) => Refusal::Limit { text: text.clone() },
            why => Refusal::Host { text: why.text() },
        };
        let local = control.stream().local_addr().ok().map(|addr| addr.ip());
        let mut queues = match Queues::open(verbs, spec, local) {
            Ok(queues) => queues,
            Err(why) => {
                info!(peer = %self.peer, "refused {}: {}", verbs.name(), why.text());
                self.send(control, &Message::Refused(refusal(&why)))?;
                return Ok(None);
            }
        };
        self.send(control, &Message::VerbsEnds(queues.ends()))?;
        let far = match control.receive(in_time(self.house.limits.silence), &self.house.stop)? {
            Message::VerbsEnds(far) => far,
            other => return Err(unexpected(&other).into()),
        };
        if let Some(text) = self.unproved_queues(spec, &queues.ends(), &far) {
            info!(peer = %self.peer, "refused {}: {text}", verbs.name());
            self.send(control, &Message::Refused(Refusal::Limit { text }))?;
            return Ok(None);
        }
        if let Err(why) = queues.connect(&far) {
            self.send(control, &Message::Refused(refusal(&why)))?;
            return Ok(None);
        }
        let queues = queues.into_queues().into_iter();
        let means = queues.map(|queue| Means::Queue(Box::new(queue)));
        Ok(Some(means.collect()))
    }

    /// Why this host does not send to a client's queues, if so: a client without a token may name
    /// anybody's. A RoCE v2 GID is an IP address (IBTA annex A17), and the control connection has proved the client's.
    fn unproved_queues(
        &self,
        spec: &MessageSpec,
        near: &VerbsEnds,
        far: &VerbsEnds,
    ) -> Option<String> {
        if !self.house.is_open() || spec.pattern == Pattern::Up {
            return None;
        }
        let peer = self.peer.ip().to_canonical();
        // InfiniBand routes by LID, which is nobody's address.
        let roce = near.lid == 0 && far.address() == Some(peer);
        let own = far.gid == near.gid && far.lid == near.lid;
        let proved = roce || own;
        (!proved).then(|| {
            format!(
                "without a shared token the server sends over RDMA only to the address of the control \
                 connection, and the client's GID is not {peer}: give both ends the same --token-file"
            )
        })
    }

    /// Until all workers have ended, the client stops, or its time is over.
    fn accompany_messages(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
        workers: &[Worker],
    ) -> Result<(), Leave> {
        let duration = Duration::from_ns(spec.duration_ns);
        let mut tidings = Tidings::default();
        let over = in_time(duration);
        // Above the client's own limit, so that the client decides first.
        let gone = in_time(duration + self.house.limits.silence.saturating_mul(2));
        while !workers.iter().all(Worker::is_finished) {
            match control.try_receive(TICK)? {
                Some(Message::Stop) => return Ok(()),
                Some(Message::Sent { packets }) => Tidings::heard(&packets, workers),
                Some(other) => return Err(unexpected(&other).into()),
                None => {}
            }
            if self.house.stop.is_stopped() {
                return Err(Trouble::Stopped.into());
            }
            let now = clock::monotonic();
            if now >= gone {
                return Err(Trouble::Silent.into());
            }
            if now >= over {
                workers.iter().for_each(Worker::finish_sending);
            }
            self.hand_over(control, tidings.news(workers))?;
        }
        self.hand_over(control, tidings.news(workers))
    }

    /// Says what was handed over, where that is news.
    fn hand_over(&self, control: &mut Control, news: Option<u64>) -> Result<(), Leave> {
        news.map_or(Ok(()), |sent| {
            let packets = vec![sent];
            self.send(control, &Message::Sent { packets })
        })
    }

    fn messages_done(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
        workers: Vec<Worker>,
    ) -> Result<(), Leave> {
        let worked = sum(workers);
        let count = worked.count;
        let (pattern, bytes, messages) = (spec.pattern, spec.bytes, count.messages);
        info!(peer = %self.peer, "{pattern:?}: {messages} messages of {bytes} B received");
        self.send(control, &Message::MessagesDone(count))
    }
}
