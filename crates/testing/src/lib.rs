//! What the tests of all crates share: how a test says that it cannot run here, and ports that nobody else takes.
//!
//! Where `CI` is set, everything that a test needs is there by contract (`.ci/run` installs it), so a test that is skipped
//! tests nothing and fails.

#![forbid(unsafe_code)]

use std::env;
use std::fmt::Display;
use std::net::{TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Says that the calling test does not run here, and why. The caller returns.
///
/// # Panics
///
/// Where `CI` is set.
pub fn skipped(why: impl Display) {
    assert!(
        env::var_os("CI").is_none(),
        "skipped although CI is set: {why}"
    );
    unneeded(why);
}

/// Says that the calling test has nothing to test for this user or kernel, whatever is installed: what root may do or what a
/// newer kernel has, a test cannot be without. It passes in CI, too.
pub fn unneeded(why: impl Display) {
    eprintln!("skipped: {why}");
}

/// A port of TCP and UDP that nobody has and that the kernel gives to nobody: it is below those that connections and port 0 get
/// (`net.ipv4.ip_local_port_range`, from 32,768 on). Another one for each call, and mostly for each process.
///
/// # Panics
///
/// Where all are taken.
pub fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time have numbers near each other.
    let begin = process::id().wrapping_mul(97) % u32::from(COUNT);
    (0..COUNT)
        .map(|_| {
            let nth = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            FIRST + u16::try_from((begin + nth) % u32::from(COUNT)).unwrap_or(0)
        })
        .find(|&port| {
            TcpListener::bind(("0.0.0.0", port)).is_ok()
                && UdpSocket::bind(("0.0.0.0", port)).is_ok()
        })
        .expect("a free port")
}
