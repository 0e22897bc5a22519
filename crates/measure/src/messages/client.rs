//! The near end of messages: asks for them, takes the times.

use std::io::Write;

use sys::clock;
use units::Duration;

use crate::approach::Dscp;
use crate::client::{expect, lost};
use crate::control::{Control, TICK};
use crate::facts::clean;
use crate::message::{self, Message, Refusal, TOKEN_BYTES};
use crate::messages::{MessageCount, MessageOutcome, MessageSpec, Worker, start, sum};
use crate::transfer::{in_time, unexpected};
use crate::{Client, End, MeasureError, Stop};

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
        control.send(&wish, deadline, stop).map_err(before)?;
        let token = token_of(control.receive(deadline, stop).map_err(before)?)?;
        let sockets = self.open_lines(spec, token, stop)?;
        expect(
            control.receive(deadline, stop).map_err(before)?,
            &Message::Ready,
        )?;
        control.send(&Message::Go, deadline, stop).map_err(before)?;
        let workers = start(spec, sockets, End::Near).map_err(|source| MeasureError::Local {
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
        if let Some(error) = near.error.as_ref().or(far.error.as_ref())
            && !interrupted
        {
            return Err(MeasureError::StreamBroken(clean(error)));
        }
        Ok(MessageOutcome {
            spec: spec.clone(),
            round_trips: worked.round_trips.unwrap_or_default(),
            elapsed: worked.elapsed,
            near,
            far,
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
        let mut told = None;
        let during = |t| lost(t, "during the messages");
        let duration = Duration::from_ns(spec.duration_ns);
        let over = in_time(duration);
        let gone = in_time(duration + self.patience());
        while !workers.iter().all(Worker::is_finished) {
            match control.try_receive(TICK).map_err(during)? {
                None => {}
                // Its workers are done, and with them the connections of ours.
                Some(Message::MessagesDone(count)) if told.is_none() => told = Some(count),
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
        }
        Ok((false, told))
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
        let told = control.receive(in_time(limit), stop);
        match told.map_err(|t| lost(t, "before it told its result"))? {
            Message::MessagesDone(count) => Ok(count),
            other => Err(lost(unexpected(&other), "before it told its result")),
        }
    }
}

fn token_of(answer: Message) -> Result<[u8; TOKEN_BYTES], MeasureError> {
    match answer {
        Message::Accept { token } => message::token_from_hex(&token)
            .ok_or_else(|| MeasureError::Protocol("a broken token".to_owned())),
        Message::Refused(Refusal::Limit { text }) => Err(MeasureError::FarLimit(clean(&text))),
        // What an end of before this message says to it, and then it hangs up.
        Message::Failed { text } if text.contains("unknown variant") => Err(
            MeasureError::FarFailed("it knows no messages: update the far goodput".to_owned()),
        ),
        Message::Refused(Refusal::Host { text }) | Message::Failed { text } => {
            Err(MeasureError::FarFailed(clean(&text)))
        }
        other => Err(lost(unexpected(&other), "before the messages")),
    }
}

/// How long a stopped client waits until its wish to stop is on its way.
const GRACE: Duration = Duration::from_s(1);
