//! Sockets of the two sides, made as the configuration says, and pipes between them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::pipe::PipeFlags;
use sys::{host, privilege, tcp, transparent};
use units::{Bytes, Duration};

use crate::buffers::{Bounds, MOST, Sizes};
use crate::config::{Config, ConfigError, Pacing, Zone, ZoneConfig, wrong};

/// A pipe for splice(2).
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) out: OwnedFd,
    pub(crate) into: OwnedFd,
    /// What it may hold, as counted among all of this process.
    bytes: u64,
}

impl Pipe {
    /// One that holds as much as there is left for it.
    ///
    /// # Errors
    /// As pipe(2).
    pub(crate) fn new() -> io::Result<Self> {
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let size = size_of_another(ALL_PIPES_BYTES.load(Ordering::Relaxed), pipes_allowance());
        let _ = rustix::pipe::fcntl_setpipe_size(&into, size);
        Ok(Self::from_parts(out, into))
    }

    /// False where another one would hold two pages: copying is better.
    pub(crate) fn has_room() -> bool {
        ALL_PIPES_BYTES.load(Ordering::Relaxed) < pipes_allowance()
    }

    /// As another process made it.
    pub(crate) fn from_parts(out: OwnedFd, into: OwnedFd) -> Self {
        let bytes = rustix::pipe::fcntl_getpipe_size(&into).unwrap_or(0) as u64;
        ALL_PIPES_BYTES.fetch_add(bytes, Ordering::Relaxed);
        Self { out, into, bytes }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        ALL_PIPES_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What the next pipe is to hold where all together may hold so much. Large pipes carry best, but many need some: the first
/// half is for large ones, a quarter for middle ones, the rest for small ones.
fn size_of_another(all: u64, allowance: u64) -> usize {
    if all < allowance / 2 {
        PIPE_BYTES
    } else if all < allowance - allowance / 4 {
        PIPE_BYTES / 4
    } else {
        LEAST_PIPE_BYTES
    }
}

/// What the pipes of one user may hold (`fs.pipe-user-pages-soft`, pipe(7)); beyond that the kernel gives new ones two
/// pages.
fn pipes_allowance() -> u64 {
    static ALLOWANCE: OnceLock<u64> = OnceLock::new();
    *ALLOWANCE.get_or_init(|| {
        let text = host::read_sysctl("fs.pipe-user-pages-soft").ok();
        let pages: u64 = text.and_then(|t| t.trim().parse().ok()).unwrap_or(0);
        match pages == 0 || privilege::is_beyond_user_limits() {
            true => u64::MAX,
            false => pages.saturating_mul(PAGE_BYTES),
        }
    })
}

/// Sets all that a listening socket hands down to those that are accepted; returns how much of it the kernel
/// refused.
pub(crate) fn prepare(fd: BorrowedFd<'_>, config: &ZoneConfig) -> u64 {
    let refused = prepare_to_connect(fd, config);
    be_prompt(fd);
    refused + keep_alive(fd, config)
}

/// Sets what must be set before a connection's first packet; returns how much of it the kernel refused. The
/// rest is set when a connection needs it, so that a short one does not pay for it: [`be_prompt`],
/// [`keep_alive`].
pub(crate) fn prepare_to_connect(fd: BorrowedFd<'_>, config: &ZoneConfig) -> u64 {
    let mut refused = 0;
    let mut attempt = |what: &str, result: io::Result<()>| {
        refused += u64::from(refuses(what, result));
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
    // Whoever ends without saying so, as by being killed, ends with a reset: an end of stream would tell
    // the other side that it has everything. Taken back when all is said.
    attempt("linger", tcp::set_reset_on_close(fd));
    refused
}

/// A peer that says nothing for long is asked whether it lives: one that vanished would keep its connection
/// and its descriptors for ever. Returns how much of it the kernel refused.
pub(crate) fn keep_alive(fd: BorrowedFd<'_>, config: &ZoneConfig) -> u64 {
    let silence = config.keepalive.unwrap_or(KEEPALIVE);
    let seconds = std::time::Duration::from_nanos(silence.as_ns());
    let on = sockopt::set_socket_keepalive(fd, true)
        .and_then(|()| sockopt::set_tcp_keepidle(fd, seconds))
        .and_then(|()| sockopt::set_tcp_keepintvl(fd, KEEPALIVE_EVERY))
        .and_then(|()| sockopt::set_tcp_keepcnt(fd, KEEPALIVE_COUNT));
    u64::from(refuses("keepalive", on.map_err(Into::into)))
}

fn refuses(what: &str, result: io::Result<()>) -> bool {
    if let Err(e) = &result {
        tracing::debug!("{what}: {e}");
    }
    result.is_err()
}

/// Sets the buffers that earlier connections of the way asked for; where the kernel refuses, its tuning goes on.
pub(crate) fn enlarge(fd: BorrowedFd<'_>, sizes: Sizes) {
    if let Some(size) = sizes.send {
        let forced = transparent::force_send_buffer(fd, size);
        let _ = forced.or_else(|_| tcp::set_send_buffer(fd, size));
    }
    if let Some(size) = sizes.receive {
        let forced = tcp::force_receive_buffer(fd, size);
        let _ = forced.or_else(|_| tcp::set_receive_buffer(fd, size));
    }
}

/// Sets a listener's buffers by what its side needs by now; `had` is what it was given before. What it needs no more is
/// the kernel's again, where the kernel can (Linux 5.14).
pub(crate) fn refit(fd: BorrowedFd<'_>, had: Sizes, sizes: Sizes) {
    let gone = |had: Option<Bytes>, now: Option<Bytes>| had.is_some() && now.is_none();
    if gone(had.send, sizes.send) || gone(had.receive, sizes.receive) {
        let _ = tcp::tune_buffers(fd);
    }
    enlarge(fd, sizes);
}

/// Makes a listener that another gateway made what this configuration says. What that one set and this one does not
/// name is the kernel's again. Returns how much the kernel refused.
pub(crate) fn prepare_anew(fd: BorrowedFd<'_>, config: &ZoneConfig) -> u64 {
    if config.congestion.is_none()
        && let Some(own) = host::congestion_default()
    {
        let _ = tcp::set_congestion(fd, &own);
    }
    if config.max_segment.is_none() {
        let _ = tcp::set_max_segment(fd, 0);
    }
    if config.buffer.is_none() {
        let _ = tcp::tune_buffers(fd);
    }
    // With `even`, ceilings come later.
    let _ = tcp::lift_max_pacing(fd);
    if config.notsent_lowat.is_none() {
        // Zero is the kernel's own (tcp_notsent_lowat, include/net/tcp.h).
        let _ = tcp::set_notsent_lowat(fd, Bytes::new(0));
    }
    if config.user_timeout.is_none() {
        let _ = tcp::set_user_timeout(fd, Duration::ZERO);
    }
    prepare(fd, config)
}

/// What this machine and this network namespace allow.
pub(crate) fn bounds(config: &Config) -> Bounds {
    let memory = config.buffer_memory.unwrap_or_else(|| {
        let free = host::memory_available().map_or(0, Bytes::as_u64);
        Bytes::new(free / 8)
    });
    let tuned = ["tcp_wmem", "tcp_rmem"].map(|name| {
        // The kernel accounts for what packets take, and for twice what is set (socket(7)): half of its limit is
        // what setting as much would give. Unknown: nothing is set.
        let all = host::tcp_mem_triplet(name);
        all.map_or(MOST, |[_, _, most]| Bytes::new(most / 2))
    });
    let may = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
        .map_err(io::Error::from)
        .and_then(|s| transparent::force_send_buffer(s.as_fd(), Bytes::new(64 << 10)));
    let most = ["net.core.wmem_max", "net.core.rmem_max"].map(|name| {
        let text = host::read_sysctl(name).ok();
        let bytes = text.and_then(|t| t.trim().parse().ok()).unwrap_or(0);
        if may.is_ok() { MOST } else { Bytes::new(bytes) }
    });
    Bounds {
        tuned,
        most,
        memory,
    }
}

/// Asks the kernel for each side's congestion control, as its sockets will; what it has as a module it loads for who
/// may.
///
/// # Errors
/// The first that a socket of this process cannot have, with what it can.
pub(crate) fn check_congestion(config: &Config) -> Result<(), ConfigError> {
    for zone in Zone::BOTH {
        if let Some(name) = &config.zone(zone).congestion {
            check_congestion_of(zone, name)?;
        }
    }
    Ok(())
}

/// The same of one side.
pub(crate) fn check_congestion_of(zone: Zone, name: &str) -> Result<(), ConfigError> {
    let asked = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
        .map_err(io::Error::from)
        .and_then(|socket| tcp::set_congestion(socket.as_fd(), name));
    let Err(e) = asked else {
        return Ok(());
    };
    let what = match e.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "'{name}' takes CAP_NET_ADMIN, or a place in net.ipv4.tcp_allowed_congestion_control"
        ),
        _ => format!("this kernel has no '{name}', nor a module tcp_{name}"),
    };
    let have = host::congestion_choosable().join(", ");
    wrong(
        &format!("{}.congestion", zone.name()),
        format!("{what}; there is {have}"),
    )
}

/// Sets the class of service that the first packet from the other end had.
pub(crate) fn set_dscp(fd: BorrowedFd<'_>, dscp: u8) {
    if dscp != 0 {
        let _ = tcp::set_tos(fd, dscp << 2);
    }
}

/// What is written goes out now, however little it is; so does what was written.
pub(crate) fn be_prompt(fd: BorrowedFd<'_>) {
    // Setting it again sends what waits (tcp_sock_set_nodelay, net/ipv4/tcp.c).
    let _ = sockopt::set_tcp_nodelay(fd, true);
}

/// True when a socket resets as it is closed.
pub(crate) fn resets_on_close(fd: BorrowedFd<'_>) -> bool {
    matches!(
        sockopt::socket_linger(fd),
        Ok(Some(std::time::Duration::ZERO))
    )
}

/// From now on closing is an end like any other: what is queued is still delivered.
pub(crate) fn close_gently(fd: BorrowedFd<'_>) {
    let _ = sockopt::set_socket_linger(fd, None);
}

/// A listening socket as anybody has it, for clients that know of the gateway: the one of that number among `all` at one
/// address, of which each gets a part of those who connect.
pub(crate) fn listen_openly(
    addr: SocketAddr,
    config: &ZoneConfig,
    number: u8,
    all: u8,
) -> io::Result<TcpListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(tcp::family(addr), SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    // The first shares the address only once it has it: so it finds out that it is another's. What counts is that all
    // share when they begin to listen (inet_reuseport_add_sock, Linux net/ipv4/inet_hashtables.c).
    if number == 0 {
        rustix::net::bind(&fd, &addr)?;
    }
    sockopt::set_socket_reuseport(&fd, all > 1)?;
    if number > 0 {
        rustix::net::bind(&fd, &addr)?;
    }
    prepare(fd.as_fd(), config);
    // The kernel cuts it at net.core.somaxconn.
    rustix::net::listen(&fd, i32::MAX)?;
    Ok(TcpListener::from(fd))
}

/// Begins to connect from an address of ours.
pub(crate) fn connect_openly(to: SocketAddr, config: &ZoneConfig) -> io::Result<TcpStream> {
    let socket = tcp::unconnected(to)?;
    prepare_to_connect(socket.as_fd(), config);
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
/// What a pipe has unless something is said (pipe(7)), and as much as is copied at a time.
const LEAST_PIPE_BYTES: usize = 64 << 10;
/// The least that a page has: where pages are larger, pipes are fewer than they might be.
const PAGE_BYTES: u64 = 4096;
/// What all pipes of this process may hold.
static ALL_PIPES_BYTES: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_pipes_have_a_bound_the_first_are_large_and_hundreds_have_some() {
        let sizes = |allowance: u64| {
            let (mut all, mut sizes) = (0, Vec::new());
            while all < allowance && sizes.len() < 1_000 {
                sizes.push(size_of_another(all, allowance));
                all += *sizes.last().unwrap() as u64;
            }
            let of = |size: usize| sizes.iter().filter(|s| **s == size).count();
            [of(1 << 20), of(256 << 10), of(64 << 10)]
        };
        // As Linux comes: 64 MiB for each user.
        assert_eq!(sizes(64 << 20), [32, 64, 256]);
        assert_eq!(sizes(u64::MAX), [1_000, 0, 0]);
    }

    /// What a connection would pay for if it were set on each.
    #[test]
    fn who_is_accepted_is_like_its_listener() {
        let config = ZoneConfig {
            congestion: Some("reno".into()),
            user_timeout: Some(Duration::from_s(7)),
            notsent_lowat: Some(Bytes::new(12_345)),
            buffer: Some(Bytes::new(100_000)),
            pacing: Some(Pacing::Rate(units::Rate::from_bits_per_second(80_000_000))),
            ..ZoneConfig::default()
        };
        let listener = listen_openly(([127, 0, 0, 1], 0).into(), &config, 0, 1).unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
        assert_eq!(sockopt::tcp_congestion(&accepted).unwrap(), "reno");
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 7_000);
        let [ours, its] = [listener.as_fd(), accepted.as_fd()];
        assert_eq!(
            sockopt::socket_linger(its).unwrap(),
            Some(std::time::Duration::ZERO)
        );
        for of in [tcp::send_buffer, tcp::receive_buffer] {
            assert_eq!(of(its).unwrap(), of(ours).unwrap());
        }
    }

    #[test]
    fn a_congestion_control_that_no_socket_can_have_is_refused_with_those_that_there_are() {
        let with = |name: &str| {
            let mut config = Config::default();
            config.zones[1].congestion = Some(name.to_owned());
            check_congestion(&config)
        };
        assert_eq!(with("reno"), Ok(()));
        let error = with("bogus").unwrap_err().to_string();
        assert!(error.starts_with("outside.congestion: "), "{error}");
        assert!(
            error.contains("'bogus'") && error.contains("reno"),
            "{error}"
        );
        // As long as the kernel's own names may be, and longer.
        with("a-name-that-no-kernel-can-have").unwrap_err();
    }

    /// Before, nothing was ever set: the names of what bounds the kernel's tuning were wrong.
    #[test]
    fn the_kernels_tuning_is_known() {
        let Bounds { tuned, .. } = bounds(&Config::default());
        for (name, tuned) in ["wmem", "rmem"].into_iter().zip(tuned) {
            let text = host::read_sysctl(&format!("net.ipv4.tcp_{name}")).unwrap();
            let most: u64 = text.split_whitespace().nth(2).unwrap().parse().unwrap();
            assert_eq!(tuned, Bytes::new(most / 2), "{name}");
        }
    }

    #[test]
    fn a_listener_of_another_gateway_becomes_ours_and_keeps_nothing_of_the_other() {
        let full = ZoneConfig {
            congestion: Some("reno".into()),
            max_segment: Some(1_000),
            buffer: Some(Bytes::new(100_000)),
            pacing: Some(Pacing::Rate(units::Rate::from_bits_per_second(80_000_000))),
            notsent_lowat: Some(Bytes::new(12_345)),
            user_timeout: Some(Duration::from_s(7)),
            ..ZoneConfig::default()
        };
        let listen = |config| listen_openly(([127, 0, 0, 1], 0).into(), config, 0, 1).unwrap();
        let (own, other) = (listen(&ZoneConfig::default()), listen(&full));
        prepare_anew(other.as_fd(), &ZoneConfig::default());
        let shown = |listener: &TcpListener| {
            let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            listener.set_nonblocking(false).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            let fd = accepted.as_fd();
            let info = tcp::tcp_info(fd).unwrap();
            (
                tcp::congestion(fd).unwrap(),
                info.snd_mss_bytes,
                info.max_pacing_rate_bytes_per_second,
                [tcp::send_buffer, tcp::receive_buffer].map(|of| of(fd).unwrap()),
                sockopt::tcp_user_timeout(&accepted).unwrap(),
            )
        };
        assert_eq!(shown(&other), shown(&own));
        prepare_anew(other.as_fd(), &full);
        let (congestion, segment, pace, [send, _], timeout) = shown(&other);
        assert_eq!(
            (congestion.as_str(), pace, timeout),
            ("reno", 10_000_000, 7_000)
        );
        assert!(segment <= 1_000, "{segment}");
        assert_eq!(send, Bytes::new(200_000));
    }

    #[test]
    fn a_listener_gets_what_its_side_needs_and_gives_it_back() {
        let listener =
            listen_openly(([127, 0, 0, 1], 0).into(), &ZoneConfig::default(), 0, 1).unwrap();
        let fd = listener.as_fd();
        let now = || [tcp::send_buffer, tcp::receive_buffer].map(|of| of(fd).unwrap());
        let before = now();
        let size = |bytes| Some(Bytes::new(bytes));
        let both = Sizes {
            send: size(100_000),
            receive: size(150_000),
        };
        refit(fd, Sizes::default(), both);
        assert_eq!(now(), [200_000, 300_000].map(Bytes::new));
        let one = Sizes {
            send: size(50_000),
            receive: None,
        };
        refit(fd, both, one);
        assert_eq!(now(), [Bytes::new(100_000), before[1]]);
        refit(fd, one, Sizes::default());
        assert_eq!(now(), before);
    }

    #[test]
    fn a_peer_that_vanished_is_asked_for_whatever_is_configured() {
        let configured = ZoneConfig {
            keepalive: Some(Duration::from_s(30)),
            ..ZoneConfig::default()
        };
        for (config, seconds) in [(ZoneConfig::default(), 600), (configured, 30)] {
            let listener = listen_openly(([127, 0, 0, 1], 0).into(), &config, 0, 1).unwrap();
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
