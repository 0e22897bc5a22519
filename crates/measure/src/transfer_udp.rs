//! A transfer over UDP of our own protocol while it runs, the same for client and server.
//!
//! The receiver's end says `Progress` and `Received` as over TCP. Datagrams have no end of file, so the
//! sender says `Sent` with their numbers, over TCP. The receiver ends when it has them all, or when
//! nothing has come since for half a second.

use std::io;
use std::os::fd::BorrowedFd;

use sys::{clock, tcp};
use units::{Bytes, Duration};

use crate::control::{Control, Trouble};
use crate::crew::Role;
use crate::datagram::KEY_BYTES;
use crate::message::{
    self, ADDRESS_NONCE_BYTES, DATA_OPENING_BYTES, Heard, Kind, Message, MessageError,
};
use crate::protocol::TOKEN_BYTES;
use crate::transfer::{Ending, PROGRESS_INTERVAL, Patience, unexpected};
use crate::udp::Framing;
use crate::udp::UdpEngine;
use crate::wait::TICK;
use crate::{Config, Stop, Transport};

/// Accompanies a transfer from the start mark to its end, as [`crate::transfer::accompany`] does. The
/// engine is to be finished afterwards.
pub(crate) fn accompany(
    control: &mut Control,
    engine: &UdpEngine,
    patience: Patience,
    stop: &Stop,
    report: &mut dyn FnMut(Duration, u64),
) -> Result<Ending, Trouble> {
    match engine.role() {
        Role::Sender => accompany_sender(control, engine, patience, stop, report),
        Role::Receiver => accompany_receiver(control, engine, patience, stop, report),
    }
}

fn accompany_sender(
    control: &mut Control,
    engine: &UdpEngine,
    patience: Patience,
    stop: &Stop,
    report: &mut dyn FnMut(Duration, u64),
) -> Result<Ending, Trouble> {
    let mut heard = clock::monotonic();
    let mut told = false;
    loop {
        match control.try_receive(TICK)? {
            Some(Message::Progress { bytes, t_ns }) => {
                heard = clock::monotonic();
                report(Duration::from_ns(t_ns), bytes);
            }
            Some(Message::Received { bytes }) => {
                report(engine.elapsed(), bytes);
                return Ok(Ending::Complete);
            }
            Some(Message::Stop) => return Ok(interrupt(engine)),
            Some(other) => return Err(unexpected(&other)),
            None => {}
        }
        if stop.is_stopped() {
            return Ok(interrupt(engine));
        }
        if clock::monotonic() >= heard + patience.silence {
            return Err(Trouble::Silent);
        }
        if !told && engine.is_finished() {
            let packets = engine.packets();
            let deadline = clock::monotonic() + patience.silence;
            control.send(&Message::Sent { packets }, deadline, stop)?;
            told = true;
        }
    }
}

fn accompany_receiver(
    control: &mut Control,
    engine: &UdpEngine,
    patience: Patience,
    stop: &Stop,
    report: &mut dyn FnMut(Duration, u64),
) -> Result<Ending, Trouble> {
    // Above the sender's own limit, so that the sender decides first.
    let patience_max = patience.duration + patience.drain + patience.silence;
    let mut due = PROGRESS_INTERVAL;
    let mut sent: Option<Vec<u64>> = None;
    let (mut bytes, mut changed) = (0, clock::monotonic());
    loop {
        let wait = if sent.is_some() { SETTLE_STEP } else { TICK };
        match control.try_receive(wait)? {
            Some(Message::Sent { packets }) if packets.len() == engine.packets().len() => {
                sent = Some(packets);
                changed = clock::monotonic();
            }
            Some(Message::Sent { .. }) => {
                let text = "the datagrams of other streams than there are".to_owned();
                return Err(Trouble::Malformed(MessageError::Malformed(text)));
            }
            Some(Message::Stop) => return Ok(interrupt(engine)),
            Some(other) => return Err(unexpected(&other)),
            None => {}
        }
        if stop.is_stopped() {
            return Ok(interrupt(engine));
        }
        let (elapsed, now) = (engine.elapsed(), clock::monotonic());
        if engine.bytes() > bytes {
            (bytes, changed) = (engine.bytes(), now);
        }
        if let Some(sent) = &sent {
            let all = engine.packets().iter().zip(sent).all(|(got, of)| got >= of);
            if all || now >= changed + QUIET || engine.is_finished() {
                break;
            }
        }
        if elapsed >= patience_max {
            return Err(Trouble::Silent);
        }
        let deadline = now + patience.silence;
        if elapsed >= due {
            due = elapsed + PROGRESS_INTERVAL;
            report(elapsed, bytes);
            let t_ns = elapsed.as_ns();
            control.send(&Message::Progress { bytes, t_ns }, deadline, stop)?;
        }
    }
    let bytes = engine.bytes();
    report(engine.elapsed(), bytes);
    let deadline = clock::monotonic() + patience.silence;
    control.send(&Message::Received { bytes }, deadline, stop)?;
    Ok(Ending::Complete)
}

fn interrupt(engine: &UdpEngine) -> Ending {
    engine.end();
    Ending::Interrupted
}

/// How the datagrams of a transfer begin: the key is a half of its token.
pub(crate) fn framing(token: [u8; TOKEN_BYTES]) -> Framing {
    Framing {
        wide: true,
        key: token.first_chunk::<KEY_BYTES>().copied(),
    }
}

/// What opens a stream: its number, and the nonce that its client was sent at its address, if it has it yet.
pub(crate) type Opening = (u16, Option<[u8; ADDRESS_NONCE_BYTES]>);

/// The stream that a datagram opens with this token, if it does.
pub(crate) fn opened(datagram: &[u8], token: [u8; TOKEN_BYTES]) -> Option<Opening> {
    let (opening, rest) = datagram.split_first_chunk::<DATA_OPENING_BYTES>()?;
    if message::hear(opening) != Heard::Greeting(Kind::Data) {
        return None;
    }
    let nonce = match rest {
        [] => None,
        rest => Some(rest.try_into().ok()?),
    };
    let (named, stream) = message::parse_data_opening(opening);
    (named == token).then_some((stream, nonce))
}

/// The datagram that opens a stream.
pub(crate) fn opening(token: [u8; TOKEN_BYTES], (stream, nonce): Opening) -> Vec<u8> {
    let mut datagram = message::data_opening(token, stream).to_vec();
    datagram.extend(nonce.into_iter().flatten());
    datagram
}

/// Bytes of the longest opening.
pub(crate) const OPENING_BYTES_MAX: usize = DATA_OPENING_BYTES + ADDRESS_NONCE_BYTES;

/// Sets a datagram socket's mark, and its buffer for its role.
pub(crate) fn set_options(fd: BorrowedFd<'_>, role: Role, config: &Config) -> io::Result<()> {
    if let Some(dscp) = config.dscp {
        tcp::set_tos(fd, dscp.class())?;
    }
    if config.transport == Transport::Quic {
        // What the user chose are QUIC's own windows. Packets go both ways.
        tcp::set_send_buffer(fd, RECEIVE_BUFFER)?;
        return tcp::force_receive_buffer(fd, RECEIVE_BUFFER)
            .or_else(|_| tcp::set_receive_buffer(fd, RECEIVE_BUFFER));
    }
    match role {
        Role::Sender => match config.send_buffer {
            Some(size) => tcp::set_send_buffer(fd, size),
            None => Ok(()),
        },
        Role::Receiver => {
            tcp::set_receive_buffer(fd, config.receive_buffer.unwrap_or(RECEIVE_BUFFER))
        }
    }
}

/// Asked for at the receiver, and at both ends of QUIC: 30 ms at 1 Gb/s. The kernel cuts it at net.core.rmem_max.
const RECEIVE_BUFFER: Bytes = Bytes::new(4 << 20);
/// Datagrams come by another way than the word that they were sent, and may be later by a queue.
const QUIET: Duration = Duration::from_ms(500);
/// While the last datagrams come in.
const SETTLE_STEP: Duration = Duration::from_ms(5);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_whole_opening_with_the_token_opens_a_stream() {
        let token = [7; TOKEN_BYTES];
        let nonce = [9; ADDRESS_NONCE_BYTES];
        for of_stream in [(5, None), (5, Some(nonce))] {
            let opening = opening(token, of_stream);
            assert_eq!(opened(&opening, token), Some(of_stream));
            assert_eq!(opened(&opening, [8; TOKEN_BYTES]), None);
            assert_eq!(opened(&opening[1..], token), None);
            let longer = [&opening[..], &[0]].concat();
            assert_eq!(opened(&longer, token), None);
        }
        let mut control = message::data_opening(token, 5);
        control[..24].copy_from_slice(&message::greeting(Kind::Control));
        assert_eq!(opened(&control, token), None);
    }

    proptest! {
        #[test]
        fn any_datagram_opens_a_stream_or_does_not(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            prop_assert_eq!(opened(&bytes, [0; TOKEN_BYTES]), None);
        }
    }
}
