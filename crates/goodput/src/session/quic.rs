//! Measurements over QUIC: what QUIC itself counts, and no verdict on what the kernel's TCP would do.

use measure::{Config, Outcome, Stop};
use units::Duration;

use super::udp::{forget_tcp, say_only};
use super::{Extras, Measured, Site, cipher_sentence, evidence};
use crate::failure::Failure;

impl Site {
    /// Measures once over QUIC.
    pub(super) fn measure_quic(
        &self,
        name: &str,
        config: &Config,
        stop: &Stop,
        extras: Extras,
    ) -> Result<Measured, Failure> {
        let before = self.before(config, extras);
        let (mut transfer, certificate) = self.shown(name, config, &before, stop, extras.live)?;
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
        (lost, sent) => format!("{lost} of {sent} packets lost"),
    };
    let rtt = Duration::from_us(counts.rtt_us);
    format!("{goodput} received over QUIC, {lost}, round trip {rtt} at the end")
}
