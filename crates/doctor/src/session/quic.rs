//! Measurements over QUIC: what QUIC itself counts, and no verdict on what the kernel's TCP would do.

use measure::{Config, Outcome, Stop};
use units::Duration;

use super::udp::{forget_tcp, place, say_only};
use super::{Extras, Measured, Site, cipher_sentence, evidence};
use crate::watcher::Watcher;
use fault::Failure;

impl Site {
    /// Measures once over QUIC.
    pub(super) fn measure_quic(
        &self,
        name: &str,
        config: &Config,
        stop: &Stop,
        extras: Extras,
        watcher: &mut dyn Watcher,
    ) -> Result<Measured, Failure> {
        let before = self.before(config, extras);
        let (mut transfer, certificate) =
            self.shown((name, false), config, &before, stop, watcher)?;
        // The prediction is of TCP's buffers.
        transfer.prediction.rate = None;
        transfer.prediction.formula = "none: its buffers are QUIC's own".to_owned();
        let trusted = certificate.as_ref().map(lab::Certificate::trusted);
        forget_tcp(&mut transfer.outcome);
        let mut diagnosis = explain::diagnose(&evidence(&transfer, before.path, trusted));
        let said = cipher_sentence(&transfer.outcome);
        say_only(
            &mut diagnosis,
            said.unwrap_or_else(|| sentence(&transfer.outcome)),
        );
        Ok(Measured::of(transfer, certificate, diagnosis))
    }
}

/// What came and what was lost.
fn sentence(outcome: &Outcome) -> String {
    let goodput = outcome.goodput_after_ramp();
    let counts = outcome.sender.quic().unwrap_or_default();
    let lost = match (counts.packets_lost, counts.packets_sent) {
        (0, sent) => format!("none of {sent} packets lost"),
        (lost, sent) => {
            let place = place(lost, outcome.receiver.socket_dropped);
            format!("{lost} of {sent} packets lost, {place}")
        }
    };
    let rtt = Duration::from_us(counts.rtt_us);
    format!("{goodput} received over QUIC, {lost}, round trip {rtt} at the end")
}

#[cfg(test)]
mod tests {
    use measure::{EndResult, IdleRtt, QuicInfo, Sample};

    use super::*;

    #[test]
    fn losses_in_the_receivers_socket_are_told_from_those_on_the_path() {
        let said = |packets_lost, socket_dropped| {
            let quic = Some(QuicInfo {
                packets_sent: 100,
                packets_lost,
                ..QuicInfo::default()
            });
            let sender = EndResult {
                samples: vec![Sample {
                    quic,
                    ..Sample::default()
                }],
                ..EndResult::default()
            };
            sentence(&Outcome {
                config: Config::default(),
                idle_rtt: IdleRtt::default(),
                sender,
                receiver: EndResult {
                    socket_dropped,
                    ..EndResult::default()
                },
                interrupted: false,
                complete: true,
            })
        };
        for (lost, dropped, words) in [
            (0, Some(0), "none of 100 packets lost, round trip"),
            (5, Some(0), "5 of 100 packets lost, on the path, round"),
            (
                5,
                Some(4),
                "lost, at least 4 of them for want of room in the receiver's buffer",
            ),
            (
                5,
                Some(5),
                "lost, for want of room in the receiver's buffer, round",
            ),
            (
                5,
                None,
                "lost, on the path or for want of room in the receiver's buffer",
            ),
        ] {
            let text = said(lost, dropped);
            assert!(text.contains(words), "{text}");
        }
    }
}
