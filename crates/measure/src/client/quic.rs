//! A transfer over QUIC, at the client: streams open as over UDP, and then shake hands.

use std::io::ErrorKind;

use super::{Client, Progress};
use crate::control::Control;
use crate::crew::Role;
use crate::outcome::{IdleRtt, Kept};
use crate::protocol::TOKEN_BYTES;
use crate::quic::engine::QuicEngine;
use crate::tls::Side;
use crate::transfer::in_time;
use crate::{Config, MeasureError, Stop};

impl Client {
    /// From the token to the outcome.
    pub(super) fn transfer_quic(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        token: [u8; TOKEN_BYTES],
        about: (IdleRtt, &Stop, &mut dyn FnMut(Progress)),
    ) -> Result<Kept, MeasureError> {
        let stop = about.1;
        let sockets = self.open_datagrams(control, config, role, token, stop)?;
        let silence = self.patience();
        let engine = QuicEngine::prepare(role, config, sockets, Side::Client, token, silence);
        let engine = engine.map_err(|source| MeasureError::Local {
            what: "start the data threads",
            source,
        })?;
        let connected = engine.await_connected(in_time(silence), stop);
        connected.map_err(|error| match error.kind() {
            ErrorKind::Interrupted => MeasureError::Interrupted,
            _ => MeasureError::StreamBroken(format!("the QUIC handshake: {error}")),
        })?;
        self.see_through(control, config, engine, role, about)
    }
}
