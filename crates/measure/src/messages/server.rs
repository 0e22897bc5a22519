//! The far end of messages: sends them back, counts them, or sends them.

use sys::clock;
use tracing::info;
use units::Duration;

use crate::End;
use crate::approach::{self, Dscp};
use crate::control::{Control, TICK, Trouble};
use crate::message::{self, Message, Refusal};
use crate::messages::{MessageSpec, Worker, start, sum};
use crate::server::{Leave, Session};
use crate::transfer::{in_time, unexpected};

impl Session {
    /// Serves one wish for messages. The session goes on afterwards, but for a broken control
    /// connection.
    pub(crate) fn messages(&self, control: &mut Control, spec: &MessageSpec) -> Result<(), Leave> {
        let limit = self.house.limits.duration;
        let problem = spec.problem().or_else(|| {
            let asked = Duration::from_ns(spec.duration_ns);
            (asked > limit).then(|| format!("it allows {limit}, not {asked}"))
        });
        let reserved = match problem {
            Some(text) => Err(Refusal::Limit { text }),
            None => self.reserve(),
        };
        let place = match reserved {
            Ok(place) => place,
            Err(refusal) => return self.send(control, &Message::Refused(refusal)),
        };
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let sockets = self.gather(control, &place, spec.connections())?;
        drop(place);
        if let Some(dscp) = spec.dscp.and_then(Dscp::new) {
            // A mark that this host refuses is no reason not to measure.
            let lines = sockets.iter().chain([control.stream()]);
            lines.for_each(|line| drop(approach::mark(line, dscp)));
        }
        self.send(control, &Message::Ready)?;
        match control.receive(in_time(self.house.limits.silence), &self.house.stop)? {
            Message::Go => {}
            Message::Stop => return self.messages_done(control, spec, Vec::new()),
            other => return Err(unexpected(&other).into()),
        }
        let workers = start(spec, sockets, End::Far)
            .map_err(|error| Leave::Host(format!("cannot start the messages: {error}")))?;
        self.accompany_messages(control, spec, &workers)?;
        self.messages_done(control, spec, workers)
    }

    /// Until all workers have ended, the client stops, or its time is over.
    fn accompany_messages(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
        workers: &[Worker],
    ) -> Result<(), Leave> {
        let duration = Duration::from_ns(spec.duration_ns);
        let over = in_time(duration);
        // Above the client's own limit, so that the client decides first.
        let gone = in_time(duration + self.house.limits.silence.saturating_mul(2));
        while !workers.iter().all(Worker::is_finished) {
            match control.try_receive(TICK)? {
                Some(Message::Stop) => return Ok(()),
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
        }
        Ok(())
    }

    fn messages_done(
        &self,
        control: &mut Control,
        spec: &MessageSpec,
        workers: Vec<Worker>,
    ) -> Result<(), Leave> {
        let count = sum(workers).count;
        let (pattern, bytes, messages) = (spec.pattern, spec.bytes, count.messages);
        info!(peer = %self.peer, "{pattern:?}: {messages} messages of {bytes} B received");
        self.send(control, &Message::MessagesDone(count))
    }
}
