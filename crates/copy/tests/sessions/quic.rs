//! Sessions whose blocks QUIC carries: whole, disturbed, and where no datagram gets through.

use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use copy::Cipher;
use copy::engine::CopyError;
use copy::engine::tune::Streams;
use copy::link::{Socket, Which};
use copy::quic::Transport;

use crate::common::{Place, Session, at_once, bytes, cut_again_and_again, left_over, plant, tree};

fn session() -> Session {
    Session {
        transport: Transport::Quic,
        ..Session::default()
    }
}

fn is_over_quic(session: &Session) -> bool {
    session.over_quic.load(Ordering::Relaxed)
}

#[test]
fn a_tree_arrives_whole_whoever_connects_and_by_every_cipher() {
    let cases = [
        (Cipher::Aes128Gcm, false),
        (Cipher::Aes128Gcm, true),
        (Cipher::Aes256Gcm, false),
        (Cipher::Chacha20Poly1305, true),
    ];
    at_once(cases, |(cipher, is_reverse)| {
        let place = Place::new();
        plant(&place.from());
        fs::write(place.from().join("large"), bytes(20 << 20, 5)).unwrap();
        let session = Session {
            cipher,
            is_reverse,
            ..session()
        };
        let (sent, received) = session.run(&place.from(), &place.to());
        assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
        assert!(is_over_quic(&session), "{cipher:?} {is_reverse}");
        let counts = session.counts.into_inner().unwrap();
        assert_eq!(counts.len(), 2, "{counts:?}");
        // What was sent in the thread's last turn may not be counted yet.
        let all: u64 = counts.iter().map(|one| one.bytes_sent).sum();
        assert!(all > 10 << 20, "{counts:?}");
        for one in counts {
            let of = (one.packets_sent > 0, one.rtt_us > 0, one.packet_bytes);
            assert!(matches!(of, (true, true, 1_200..=1_472)), "{one:?}");
            assert!(one.packets_lost < one.packets_sent && one.made_ns < one.at_ns);
            assert!(one.congestion_window_bytes > 0);
        }
        for cpu_ns in session.quic_cpu_ns {
            assert!(cpu_ns.into_inner() > 0);
        }
        assert_eq!(tree(&place.from()), tree(&place.to()));
        assert!(left_over(&place.to()).is_empty());
    });
}

#[test]
fn a_random_connection_is_cut_every_quarter_of_a_second() {
    at_once([false, true], |is_reverse| {
        let place = Place::new();
        plant(&place.from());
        fs::write(place.from().join("large"), bytes(12 << 20, 5)).unwrap();
        let session = Session {
            streams: Streams::Fixed(3),
            block: Some(1 << 18),
            limit: Some(units::Rate::from_bits_per_second(60_000_000)),
            is_reverse,
            ..session()
        };
        let (mut cuts, mut over_quic) = (0, 0);
        let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, _| {
            (cuts, over_quic) = cut_again_and_again(meeting);
        });
        assert!(
            cuts > 3 && over_quic > 0,
            "{cuts} cuts, {over_quic} of QUIC"
        );
        assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
        assert_eq!(tree(&place.from()), tree(&place.to()));
    });
}

#[test]
fn what_was_stopped_goes_on_whatever_carried_it() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(16 << 20, 5)).unwrap();
    let mut stops = 0;
    loop {
        let session = Session {
            block: Some(1 << 16),
            patience: Duration::from_secs(1),
            limit: Some(units::Rate::from_bits_per_second(100_000_000)),
            transport: match stops % 2 {
                0 => Transport::Quic,
                _ => Transport::Tcp,
            },
            ..Session::default()
        };
        let (sent, _) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
            while watch.confirmed_bytes.load(Ordering::Relaxed) < 3 << 20 && !meeting.is_over() {
                thread::sleep(Duration::from_millis(1));
            }
            if stops < 3 {
                let open = meeting.open_links().into_iter();
                let blocks = open.filter(|link| matches!(link, Which::Blocks(_)));
                for link in blocks {
                    if let Some(is_quic) = meeting.of_socket(link, Socket::is_quic) {
                        assert_eq!(is_quic, stops % 2 == 0);
                    }
                }
                watch.stop();
            }
        });
        match sent {
            Ok(account) => {
                assert!(account.resumed_bytes > 0, "{account:?}");
                break;
            }
            Err(error) => assert!(matches!(error, CopyError::Stopped), "{error}"),
        }
        stops += 1;
        assert!(stops < 20, "does not get further");
    }
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn where_no_datagram_gets_through_it_is_tcp() {
    at_once([false, true], |is_reverse| {
        let place = Place::new();
        plant(&place.from());
        let session = Session {
            is_reverse,
            is_udp_closed: true,
            // Nobody answers, however long that is waited for.
            answers_within: Some(Duration::from_millis(300)),
            ..session()
        };
        let (sent, received) = session.run(&place.from(), &place.to());
        assert_eq!((sent.unwrap().failed, received.unwrap().failed), (0, 0));
        assert!(!is_over_quic(&session));
        assert!(session.counts.into_inner().unwrap().is_empty());
        assert_eq!(tree(&place.from()), tree(&place.to()));
    });
}
