//! A rank: a server's session that connects to other ranks and takes times with them.

use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;

use sys::clock;
use tracing::info;
use units::{Duration, Instant};

use super::line::{Line, Watch};
use super::{RankPeer, RankSpec, RankStep, RankTest, RankTimes};
use crate::approach::{Approach, Dscp};
use crate::control::{Control, TICK, Trouble};
use crate::message::{self, Message, Refusal};
use crate::server::{Leave, Place, Session};
use crate::transfer::{in_time, probe_congestion, unexpected};

/// The connections of a step.
#[derive(Debug, Default)]
struct Lines {
    send: Option<Line>,
    receive: Option<Line>,
}

/// Looks at the control connection: a client that has gone or wants no more ends a test.
struct ByControl<'a> {
    session: &'a Session,
    control: &'a mut Control,
    /// What else it says to the other thread of this rank.
    over: &'a AtomicBool,
    until: Instant,
}

impl Watch for ByControl<'_> {
    fn gone(&mut self) -> Option<&'static str> {
        let why = if self.session.house.stop.is_stopped() {
            Some("goodput serve is being stopped there")
        } else if clock::monotonic() >= self.until {
            Some("it took longer than this server allows")
        } else {
            match self.control.try_receive(Duration::ZERO) {
                Ok(None | Some(Message::Ping { .. })) => None,
                Ok(Some(_)) => Some("stopped"),
                Err(_) => Some("its client has gone"),
            }
        };
        if why.is_some() {
            self.over.store(true, Ordering::Relaxed);
        }
        why
    }
}

impl Session {
    /// Serves a client as one of its ranks, until it wants no more. The session goes on afterwards.
    pub(crate) fn rank(&self, control: &mut Control, spec: &RankSpec) -> Result<(), Leave> {
        let place = match self.admit_rank(control, spec) {
            Ok(place) => place,
            Err(refusal) => {
                info!(peer = %self.peer, ?refusal, "refused to be a rank");
                return self.send(control, &Message::Refused(refusal));
            }
        };
        info!(peer = %self.peer, "rank {}", spec.number);
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let mut lines = Lines::default();
        loop {
            // Its client has others to wait for, and pings meanwhile.
            match control.receive(in_time(self.house.limits.silence), &self.house.stop)? {
                Message::RankStep(step) => {
                    lines = Lines::default();
                    match self.connect(control, spec, &step, &place) {
                        Ok(made) => {
                            lines = made;
                            self.send(control, &Message::Ready)?;
                        }
                        Err(error) => self.give_up(control, error)?,
                    }
                }
                Message::RankTest(test) => match self.test(control, &test, &mut lines) {
                    Ok(times) => self.send(control, &Message::RankTimes(times))?,
                    Err(error) => {
                        lines = Lines::default();
                        self.give_up(control, error)?;
                    }
                },
                Message::Ping { n, .. } => self.send(control, &Message::Pong { n })?,
                Message::Stop => return Ok(()),
                other => return Err(unexpected(&other).into()),
            }
        }
    }

    /// Says why a step or test came to nothing.
    fn give_up(&self, control: &mut Control, error: io::Error) -> Result<(), Leave> {
        let text = error.to_string();
        self.send(control, &Message::Refused(Refusal::Host { text }))
    }

    fn admit_rank(&self, control: &Control, spec: &RankSpec) -> Result<Place<'_>, Refusal> {
        if !self.house.limits.ranks {
            let text =
                "it takes no part in tests among hosts; start it with `goodput serve --ranks`";
            return Err(Refusal::Limit {
                text: text.to_owned(),
            });
        }
        let host = |error: io::Error| Refusal::Host {
            text: error.to_string(),
        };
        if let Some(name) = &spec.congestion
            && let Some(no) = probe_congestion(control.stream(), name).map_err(host)?
        {
            return Err(Refusal::Congestion {
                permitted: no.permitted,
                available: no.available,
            });
        }
        self.reserve()
    }

    /// Connects to whom the step names, and waits for who is to come. Each rank connects before it waits,
    /// so that a ring of them does not wait for itself.
    fn connect(
        &self,
        control: &mut Control,
        spec: &RankSpec,
        step: &RankStep,
        place: &Place<'_>,
    ) -> io::Result<Lines> {
        let silence = self.house.limits.silence;
        let over = AtomicBool::new(false);
        let mut lines = Lines::default();
        if let Some(peer) = &step.send {
            lines.send = Some(self.call(spec, peer)?);
        }
        if let Some(from) = step.receive {
            let deadline = in_time(silence);
            let socket = loop {
                match place.arrivals.recv_timeout(TICK.to_std()) {
                    Ok((number, socket)) if number == from => break socket,
                    // Left over from a step that failed.
                    Ok(_) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(io::Error::other("this server is ending"));
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        let mut watch = self.watch(control, &over, deadline);
                        if let Some(why) = watch.gone() {
                            let text = match clock::monotonic() >= deadline {
                                true => format!("rank {from} did not come within {silence}"),
                                false => why.to_owned(),
                            };
                            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                        }
                    }
                }
            };
            let mut line = Line::new(socket, silence)?;
            line.welcome(self.watch(control, &over, deadline))?;
            lines.receive = Some(line);
        }
        if let Some(line) = &mut lines.send {
            line.await_welcome(self.watch(control, &over, in_time(silence)))?;
        }
        Ok(lines)
    }

    fn watch<'a>(
        &'a self,
        control: &'a mut Control,
        over: &'a AtomicBool,
        until: Instant,
    ) -> ByControl<'a> {
        ByControl {
            session: self,
            control,
            over,
            until,
        }
    }

    /// A connection to another rank, opened and not yet answered.
    fn call(&self, spec: &RankSpec, peer: &RankPeer) -> io::Result<Line> {
        let token = message::token_from_hex(&peer.token)
            .ok_or_else(|| io::Error::other("a broken token"))?;
        let silence = self.house.limits.silence;
        let approach = Approach {
            dscp: spec.dscp.and_then(Dscp::new),
            ..Approach::default()
        };
        let set = |fd: std::os::fd::BorrowedFd<'_>| match &spec.congestion {
            Some(name) => sys::tcp::set_congestion(fd, name),
            None => Ok(()),
        };
        let stop = &self.house.stop;
        let connected = approach.connect(peer.addr, 1, silence, set, stop);
        let mut socket = connected
            .map_err(|error| io::Error::other(error.to_string()))?
            .remove(0);
        sys::tcp::set_user_timeout(socket.as_fd(), silence)?;
        socket.write_all(&message::data_opening(token, spec.number))?;
        Line::new(socket, silence)
    }

    /// What this rank does in a test, in both roles at once where it has both.
    fn test(
        &self,
        control: &mut Control,
        test: &RankTest,
        lines: &mut Lines,
    ) -> io::Result<RankTimes> {
        if let Some(problem) = test.problem() {
            return Err(io::Error::other(problem));
        }
        let over = AtomicBool::new(false);
        let watch = self.watch(control, &over, in_time(self.house.limits.duration));
        let (send, receive) = match (&mut lines.send, &mut lines.receive) {
            (None, None) => (None, None),
            (Some(line), None) => (Some(line.send(test, watch)?), None),
            (None, Some(line)) => (None, Some(line.receive(test, watch)?)),
            (Some(out), Some(into)) => thread::scope(|scope| {
                let sending = thread::Builder::new().name("gp-rank".to_owned());
                let sending = sending.spawn_scoped(scope, || out.send(test, &over))?;
                let received = into.receive(test, watch);
                if received.is_err() {
                    over.store(true, Ordering::Relaxed);
                }
                let sent = sending.join();
                let sent = sent.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
                // The reason of whichever was not only told to end.
                let received = received?;
                Ok::<_, io::Error>((Some(sent?), Some(received)))
            })?,
        };
        Ok(RankTimes {
            send_ns: send.map(Duration::as_ns),
            receive_ns: receive.map(Duration::as_ns),
        })
    }
}

impl From<Trouble> for io::Error {
    fn from(trouble: Trouble) -> Self {
        Self::other(trouble.text())
    }
}
