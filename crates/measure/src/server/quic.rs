//! A transfer over QUIC, at the server.
//!
//! Streams open as over UDP ([`super::datagrams`]): by a datagram with the token, whose sender the
//! stream's socket is connected to. So QUIC sees nothing of whoever does not know the token, and a
//! connection's packets come to the same port.

use super::{Leave, Place, Session};
use crate::Config;
use crate::control::Control;
use crate::crew::Role;
use crate::quic::engine::QuicEngine;
use crate::tls::Side;

impl Session {
    /// From the token to the result.
    pub(super) fn transfer_quic(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        place: &Place<'_>,
    ) -> Result<(), Leave> {
        let Some(sockets) = self.gather_datagrams(control, config, role, place)? else {
            return Ok(());
        };
        let (token, silence) = (place.token, self.house.limits.silence);
        let engine = QuicEngine::prepare(role, config, sockets, Side::Server, token, silence)
            .map_err(|error| Leave::Host(format!("cannot prepare the streams: {error}")))?;
        self.see_through(control, config, role, engine)
    }
}
