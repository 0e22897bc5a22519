//! Sockets of the two sides, made as the configuration says, and pipes between them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use rustix::pipe::PipeFlags;
use sys::{tcp, transparent};
use units::Duration;

use crate::config::{Pacing, ZoneConfig};

/// A pipe for splice(2).
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) out: OwnedFd,
    pub(crate) into: OwnedFd,
}

impl Pipe {
    pub(crate) fn new() -> io::Result<Self> {
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Without privilege only a part of the processes' pipes may be large (pipe(7)); then 64 KiB.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES);
        Ok(Self { out, into })
    }
}

/// Sets what must be set before the handshake; returns how much of it the kernel refused.
pub(crate) fn prepare(fd: BorrowedFd<'_>, config: &ZoneConfig) -> u64 {
    let mut refused = 0;
    let mut attempt = |what: &str, result: io::Result<()>| {
        if let Err(e) = result {
            refused += 1;
            tracing::debug!("{what}: {e}");
        }
    };
    if let Some(name) = &config.congestion {
        attempt("congestion", tcp::set_congestion(fd, name));
    }
    if let Some(bytes) = config.max_segment {
        attempt("max-segment", tcp::set_max_segment(fd, bytes));
    }
    if let Some(size) = config.buffer {
        let send = transparent::force_send_buffer(fd, size);
        attempt("buffer", send.or_else(|_| tcp::set_send_buffer(fd, size)));
        let receive = tcp::force_receive_buffer(fd, size);
        attempt(
            "buffer",
            receive.or_else(|_| tcp::set_receive_buffer(fd, size)),
        );
    }
    if let Some(Pacing::Rate(rate)) = config.pacing {
        attempt("pacing", tcp::set_max_pacing(fd, rate));
    }
    if let Some(size) = config.notsent_lowat {
        attempt("notsent-lowat", tcp::set_notsent_lowat(fd, size));
    }
    if let Some(limit) = config.user_timeout {
        attempt("user-timeout", tcp::set_user_timeout(fd, limit));
    }
    // What is written goes out; accepted sockets have it from their listener.
    attempt(
        "nodelay",
        sockopt::set_tcp_nodelay(fd, true).map_err(Into::into),
    );
    // Always: a peer that vanished would keep its connection and six descriptors for ever.
    let silence = config.keepalive.unwrap_or(KEEPALIVE);
    let seconds = std::time::Duration::from_nanos(silence.as_ns());
    let on = sockopt::set_socket_keepalive(fd, true)
        .and_then(|()| sockopt::set_tcp_keepidle(fd, seconds))
        .and_then(|()| sockopt::set_tcp_keepintvl(fd, KEEPALIVE_EVERY))
        .and_then(|()| sockopt::set_tcp_keepcnt(fd, KEEPALIVE_COUNT));
    attempt("keepalive", on.map_err(Into::into));
    // Whoever ends without saying so, as by being killed, ends with a reset: an end of stream would tell
    // the other side that it has everything. Taken back when all is said.
    attempt("linger", tcp::set_reset_on_close(fd));
    refused
}

/// Sets the class of service that the connection's first packet had.
pub(crate) fn set_dscp(fd: BorrowedFd<'_>, dscp: u8) {
    if dscp != 0 {
        let _ = tcp::set_tos(fd, dscp << 2);
    }
}

/// What was written goes out now, however little it is.
pub(crate) fn push(fd: BorrowedFd<'_>) {
    // Setting it again sends what waits (tcp_sock_set_nodelay, net/ipv4/tcp.c).
    let _ = sockopt::set_tcp_nodelay(fd, true);
}

/// From now on closing is an end like any other: what is queued is still delivered.
pub(crate) fn close_gently(fd: BorrowedFd<'_>) {
    let _ = sockopt::set_socket_linger(fd, None);
}

/// A listening socket as anybody has it, for clients that know of the gateway.
pub(crate) fn listen_openly(addr: SocketAddr, config: &ZoneConfig) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(addr)?;
    prepare(listener.as_fd(), config);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Begins to connect from an address of ours.
pub(crate) fn connect_openly(to: SocketAddr, config: &ZoneConfig) -> io::Result<TcpStream> {
    let socket = tcp::unconnected(to)?;
    prepare(socket.as_fd(), config);
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(e) => Err(e.into()),
    }
}

/// Silence after which a peer is asked whether it lives, where nothing else is said.
const KEEPALIVE: Duration = Duration::from_s(600);
/// Then so often, so many times (tcp(7)'s own defaults): with the silence 21 minutes and a quarter.
const KEEPALIVE_EVERY: std::time::Duration = std::time::Duration::from_secs(75);
const KEEPALIVE_COUNT: u32 = 9;

/// The most that a pipe holds without a change of `fs.pipe-max-size`.
const PIPE_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_vanished_is_asked_for_whatever_is_configured() {
        let configured = ZoneConfig {
            keepalive: Some(Duration::from_s(30)),
            ..ZoneConfig::default()
        };
        for (config, seconds) in [(ZoneConfig::default(), 600), (configured, 30)] {
            let listener = listen_openly(([127, 0, 0, 1], 0).into(), &config).unwrap();
            let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            listener.set_nonblocking(false).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert!(sockopt::socket_keepalive(&accepted).unwrap());
            let silence = sockopt::tcp_keepidle(&accepted).unwrap();
            assert_eq!(silence.as_secs(), seconds);
            assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap().as_secs(), 75);
            assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), 9);
        }
    }
}
