//! What systemd is told: that the gateway is ready, and, where it asked for it, that its workers still turn.
//!
//! A worker that stands still is worse than none: SYNs wait for it. Where nothing is said for the unit's
//! WatchdogSec, systemd ends the process, what comes then passes unsplit, and another one is started. Without systemd the
//! main thread has new connections pass unsplit meanwhile; a process that is stopped as a whole cannot.

use sys::clock;
use units::{Duration, Instant};

use crate::service::Gateway;

/// Says that all is well, as often as systemd wants to hear it.
#[derive(Debug)]
pub(super) struct Watchdog {
    every: Option<Duration>,
    next: Instant,
}

impl Watchdog {
    /// By the environment (sd_watchdog_enabled(3)); a child has it from its parent, whose number it may bear.
    pub(super) fn new() -> Self {
        let limit = std::env::var("WATCHDOG_USEC").ok();
        let limit: Option<u64> = limit.and_then(|text| text.parse().ok());
        Self {
            // Half of it, as sd_watchdog_enabled(3) advises.
            every: limit.map(|us| Duration::from_us(us / 2)),
            next: clock::monotonic(),
        }
    }

    /// To be called often. Where systemd does not look, the gateway looks after itself.
    pub(super) fn look(&mut self, gateway: &mut Gateway) {
        let now = clock::monotonic();
        let Some(every) = self.every else {
            return gateway.watch_itself(now);
        };
        if now >= self.next && gateway.is_well() {
            notify("WATCHDOG=1");
            self.next = now + every;
        }
    }
}

/// Tells systemd, where it waits for it (sd_notify(3)).
pub(super) fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str());
    let addr = match bytes.strip_prefix(b"@") {
        Some(rest) => SocketAddr::from_abstract_name(rest),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(addr), Ok(socket)) = (addr, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &addr);
    }
}
