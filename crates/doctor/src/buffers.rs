//! Socket buffers of fixed sizes: what was asked for and what the kernels granted, which cut a request at
//! `net.core.wmem_max` and `rmem_max` without a word (socket(7)).

use measure::{Outcome, Transport};
use report::model::SocketBufferFacts;
use units::Bytes;

/// What a kernel granted of a buffer that was asked for. It keeps twice that (socket(7)); zero where an end reported nothing.
pub(crate) fn granted(asked: Option<Bytes>, kept: Bytes) -> Option<Bytes> {
    match (asked, kept.as_u64() / 2) {
        (Some(_), 0) | (None, _) => asked,
        (Some(_), bytes) => Some(Bytes::new(bytes)),
    }
}

/// Asked for and granted, where the kernels' buffers were asked for: QUIC has windows of its own.
pub(crate) fn facts(outcome: &Outcome) -> Option<SocketBufferFacts> {
    let config = &outcome.config;
    let (send, receive) = (config.send_buffer, config.receive_buffer);
    if send.or(receive).is_none() || config.transport == Transport::Quic {
        return None;
    }
    let bytes = |size: Option<Bytes>| size.map(Bytes::as_u64);
    Some(SocketBufferFacts {
        sender_asked_bytes: bytes(send),
        sender_granted_bytes: bytes(granted(send, outcome.sender.send_buffer)),
        receiver_asked_bytes: bytes(receive),
        receiver_granted_bytes: bytes(granted(receive, outcome.receiver.receive_buffer)),
    })
}

/// What was granted, where that is not what was asked for.
pub(crate) fn note(outcome: &Outcome) -> Option<String> {
    let facts = facts(outcome)?;
    let end = |end: &str, limit: &str, asked: Option<u64>, granted: Option<u64>| {
        let (asked, granted) = (asked?, granted?);
        (asked != granted).then(|| {
            let (asked, granted) = (Bytes::new(asked), Bytes::new(granted));
            format!("{granted} of {asked} at the {end} (net.core.{limit})")
        })
    };
    let ends = [
        end(
            "sender",
            "wmem_max",
            facts.sender_asked_bytes,
            facts.sender_granted_bytes,
        ),
        end(
            "receiver",
            "rmem_max",
            facts.receiver_asked_bytes,
            facts.receiver_granted_bytes,
        ),
    ];
    let ends: Vec<String> = ends.into_iter().flatten().collect();
    (!ends.is_empty()).then(|| format!("socket buffers granted: {}", ends.join(", ")))
}

#[cfg(test)]
mod tests {
    use measure::{Config, EndResult, IdleRtt};

    use super::*;

    /// A transfer that asked for so much, and what the kernels kept at its ends.
    fn outcome(asked: u64, kept: [u64; 2], transport: Transport) -> Outcome {
        let [send, receive] = kept.map(Bytes::new);
        Outcome {
            config: Config {
                transport,
                send_buffer: Some(Bytes::new(asked)),
                receive_buffer: Some(Bytes::new(asked)),
                ..Config::default()
            },
            idle_rtt: IdleRtt::default(),
            sender: EndResult {
                send_buffer: send,
                ..EndResult::default()
            },
            receiver: EndResult {
                receive_buffer: receive,
                ..EndResult::default()
            },
            interrupted: false,
            complete: true,
        }
    }

    #[test]
    fn what_the_kernel_cut_is_reported_and_what_it_granted_is_no_note() {
        let cut = outcome(1 << 26, [425_984, 1 << 27], Transport::Tcp);
        assert_eq!(
            note(&cut).as_deref(),
            Some("socket buffers granted: 208 KiB of 64 MiB at the sender (net.core.wmem_max)")
        );
        let facts = facts(&cut).unwrap();
        assert_eq!(facts.sender_granted_bytes, Some(212_992));
        assert_eq!(facts.receiver_granted_bytes, Some(1 << 26));
        let whole = outcome(1 << 16, [1 << 17, 1 << 17], Transport::Tcp);
        assert_eq!(note(&whole), None);
    }

    #[test]
    fn an_end_that_reports_nothing_and_quic_are_not_said_to_have_cut_anything() {
        assert_eq!(note(&outcome(1 << 16, [0, 0], Transport::Tcp)), None);
        assert_eq!(facts(&outcome(1 << 16, [7, 7], Transport::Quic)), None);
    }
}
