//! The running transfer, the same for client and server: who receives reports progress, who sends
//! waits until everything has arrived.
//!
//! The receiver's end says `Progress` every 200 ms and `Received` once, when every stream has
//! ended. A sender that hears neither for the silence limit counts its peer as gone; a receiver
//! learns the same from the kernel, which gives the control connection up when `Progress` stays
//! unacknowledged (TCP_USER_TIMEOUT).

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use sys::{clock, tcp};
use units::{Duration, Instant};

use crate::control::{Control, Trouble};
use crate::crew::Role;
use crate::engine::Engine;
use crate::message::Message;
use crate::outcome::EndResult;
use crate::wait::TICK;
use crate::{Config, Direction, Reading, Stop};

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything that was sent has arrived.
    Complete,
    /// The queues took longer than [`Config::drain`] after the sender stopped; the rest was dropped.
    CutShort,
    /// The peer or this end's stop flag ended it.
    Interrupted,
}

/// The data path of one end, as far as whoever accompanies it has to know it.
pub(crate) trait Flow {
    /// Payload bytes so far.
    fn bytes(&self) -> u64;
    /// Time since the start mark.
    fn elapsed(&self) -> Duration;
    /// True when no stream is left.
    fn is_finished(&self) -> bool;
    /// Ends all streams at once.
    fn abort(&self);
    /// The same, so that the peer learns it.
    fn reset(&self);
    /// The start mark.
    fn go(&self);
    /// The latest round of samples, once there is one.
    fn reading(&self) -> Option<Reading>;
    /// Collects what the streams found, once they are finished or aborted.
    fn finish(self) -> EndResult;
}

impl Flow for Engine {
    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn elapsed(&self) -> Duration {
        self.elapsed()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }

    fn abort(&self) {
        self.abort();
    }

    fn reset(&self) {
        self.reset();
    }

    fn go(&self) {
        self.go();
    }

    fn reading(&self) -> Option<Reading> {
        self.reading()
    }

    fn finish(self) -> EndResult {
        self.finish()
    }
}

/// What both ends need to know of each other's patience.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Longest silence of a peer that owes a message.
    pub(crate) silence: Duration,
    /// How long the transfer is to last.
    pub(crate) duration: Duration,
    /// How long its queues may take to drain.
    pub(crate) drain: Duration,
}

/// Accompanies a transfer from the start mark to its end. `report` gets time and bytes of the
/// receiving end. The engine is finished or aborted afterwards, except after an error.
pub(crate) fn accompany(
    control: &mut Control,
    engine: &impl Flow,
    role: Role,
    patience: Patience,
    stop: &Stop,
    report: &mut dyn FnMut(Duration, u64),
) -> Result<Ending, Trouble> {
    match role {
        Role::Sender => accompany_sender(control, engine, patience, stop, report),
        Role::Receiver => accompany_receiver(control, engine, patience, stop, report),
    }
}

fn accompany_sender(
    control: &mut Control,
    engine: &impl Flow,
    patience: Patience,
    stop: &Stop,
    report: &mut dyn FnMut(Duration, u64),
) -> Result<Ending, Trouble> {
    let mut heard = clock::monotonic();
    // When, at what time of the receiver's, and of how many bytes was told last.
    let (mut told, mut elapsed, mut arrived) = (heard, Duration::ZERO, 0);
    let mut ending = Ending::Complete;
    loop {
        match control.try_receive(TICK)? {
            Some(Message::Progress { bytes, t_ns }) => {
                heard = clock::monotonic();
                elapsed = elapsed.max(Duration::from_ns(t_ns));
                (told, arrived) = (heard, bytes);
                report(elapsed, bytes);
            }
            Some(Message::Received { bytes }) => {
                report(elapsed.max(engine.elapsed()), bytes);
                break;
            }
            Some(Message::Stop) => {
                ending = Ending::Interrupted;
                break;
            }
            Some(other) => return Err(unexpected(&other)),
            // A stalled path is worth seeing: nothing more is known to have arrived.
            None if clock::monotonic() >= told + STALL_INTERVAL => {
                let now = clock::monotonic();
                elapsed = elapsed + now.saturating_since(told);
                told = now;
                report(elapsed, arrived);
            }
            None => {}
        }
        if stop.is_stopped() {
            ending = Ending::Interrupted;
            break;
        }
        if clock::monotonic() >= heard + patience.silence {
            return Err(Trouble::Silent);
        }
        if ending == Ending::Complete && engine.elapsed() >= patience.duration + patience.drain {
            engine.reset();
            ending = Ending::CutShort;
        }
    }
    // The last data thread may still be on its way out when `Received` is here already.
    let leaving = clock::monotonic() + LEAVE_MAX;
    while ending == Ending::Complete && !engine.is_finished() && clock::monotonic() < leaving {
        std::thread::sleep(LEAVE_STEP);
    }
    if ending == Ending::Interrupted || !engine.is_finished() {
        engine.abort();
    }
    Ok(ending)
}

fn accompany_receiver(
    control: &mut Control,
    engine: &impl Flow,
    patience: Patience,
    stop: &Stop,
    report: &mut dyn FnMut(Duration, u64),
) -> Result<Ending, Trouble> {
    // Above the sender's own limit, so that the sender decides first.
    let patience_max = patience.duration + patience.drain + patience.silence;
    let mut due = PROGRESS_INTERVAL;
    while !engine.is_finished() {
        match control.try_receive(TICK)? {
            Some(Message::Stop) => return Ok(interrupt(engine)),
            Some(other) => return Err(unexpected(&other)),
            None => {}
        }
        if stop.is_stopped() {
            return Ok(interrupt(engine));
        }
        let elapsed = engine.elapsed();
        if elapsed >= patience_max {
            return Err(Trouble::Silent);
        }
        if elapsed >= due {
            due = elapsed + PROGRESS_INTERVAL;
            let bytes = engine.bytes();
            report(elapsed, bytes);
            let progress = Message::Progress {
                bytes,
                t_ns: elapsed.as_ns(),
            };
            control.send(&progress, clock::monotonic() + patience.silence, stop)?;
        }
    }
    let bytes = engine.bytes();
    report(engine.elapsed(), bytes);
    control.send(
        &Message::Received { bytes },
        clock::monotonic() + patience.silence,
        stop,
    )?;
    Ok(Ending::Complete)
}

fn interrupt(engine: &impl Flow) -> Ending {
    engine.abort();
    Ending::Interrupted
}

/// A message that has no place here; `Failed` has one everywhere.
pub(crate) fn unexpected(message: &Message) -> Trouble {
    if let Message::Failed { text } = message {
        return Trouble::Failed(text.clone());
    }
    let name = serde_json::to_value(message).ok().and_then(|value| {
        let object_key = value
            .as_object()
            .and_then(|object| object.keys().next().cloned());
        object_key.or_else(|| value.as_str().map(str::to_owned))
    });
    let text = format!("'{}' at the wrong time", name.unwrap_or_default());
    Trouble::Malformed(crate::message::MessageError::Malformed(text))
}

/// The role of the client in a direction; the server has the other.
pub(crate) fn client_role(direction: Direction) -> Role {
    match direction {
        Direction::Up => Role::Sender,
        Direction::Down => Role::Receiver,
    }
}

/// The role of the server in a direction.
pub(crate) fn server_role(direction: Direction) -> Role {
    match direction {
        Direction::Up => Role::Receiver,
        Direction::Down => Role::Sender,
    }
}

/// Sets a data socket's options for its role.
pub(crate) fn set_options(fd: BorrowedFd<'_>, role: Role, config: &Config) -> io::Result<()> {
    if let Some(bytes) = config.segment_bytes {
        tcp::set_max_segment(fd, bytes)?;
    }
    if let Some(dscp) = config.dscp {
        tcp::set_tos(fd, dscp.class())?;
    }
    if role == Role::Receiver {
        // A buffer that the kernel tunes takes the clamp along (tcp_rcv_space_adjust,
        // net/ipv4/tcp_input.c): one of a fixed size does not.
        if let Some(size) = config.receive_buffer.or(config.window_clamp) {
            tcp::set_receive_buffer(fd, size)?;
        }
        return config
            .window_clamp
            .map_or(Ok(()), |bytes| tcp::set_window_clamp(fd, bytes));
    }
    if let Some(name) = &config.congestion {
        tcp::set_congestion(fd, name)?;
    }
    if let Some(size) = config.send_buffer {
        tcp::set_send_buffer(fd, size)?;
    }
    if let Some(rate) = config.max_pacing {
        tcp::set_max_pacing(fd, rate)?;
    }
    Ok(())
}

/// Why a congestion control cannot be had on this host, for sockets like `like`.
#[derive(Debug)]
pub(crate) struct NoCongestion {
    pub(crate) permitted: bool,
    pub(crate) available: Vec<String>,
}

/// Asks the kernel whether a congestion control can be had, on a socket made for the question.
pub(crate) fn probe_congestion(like: &TcpStream, name: &str) -> io::Result<Option<NoCongestion>> {
    let socket = tcp::unconnected(like.local_addr()?)?;
    let Err(error) = tcp::set_congestion(socket.as_fd(), name) else {
        return Ok(None);
    };
    let permitted = error.kind() != io::ErrorKind::PermissionDenied;
    let available = if permitted {
        sys::host::congestion_available()
    } else {
        sys::host::congestion_allowed()
    };
    Ok(Some(NoCongestion {
        permitted,
        available,
    }))
}

/// The instant `limit` from now.
pub(crate) fn in_time(limit: Duration) -> Instant {
    clock::monotonic() + limit
}
/// Data threads leave at once or after one tick.
const LEAVE_MAX: Duration = Duration::from_ms(500);
const LEAVE_STEP: std::time::Duration = std::time::Duration::from_millis(1);
/// Fine enough for a progress line, too rare to be seen on a 1 Mb/s path.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_ms(200);
/// Beyond a progress message and the round trip of a long path.
const STALL_INTERVAL: Duration = Duration::from_ms(500);
