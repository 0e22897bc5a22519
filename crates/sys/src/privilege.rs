//! Giving up capabilities that a network service does not need.
//!
//! Capabilities are each thread's own and those of threads that it starts, so this is for a process that has one thread.
//! The bounding set stays: without new privileges nothing in it can be had again (`cap_bprm_creds_from_file`, Linux
//! security/commoncap.c), not by starting a program either, also for root.
//!
//! Sources: capabilities(7), capset(2), PR_SET_NO_NEW_PRIVS(2const).

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Keeps, of what the calling thread has, CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE, and sees to it that
/// neither it nor what it starts gets others. Ambient ones go with those that are gone.
///
/// # Errors
/// As capset(2), which refuses nobody to have less.
pub fn keep_network_only() -> io::Result<()> {
    set_no_new_privs(true)?;
    let had = capabilities(None)?;
    let kept = CapabilitySets {
        effective: had.effective & KEPT,
        permitted: had.permitted & KEPT,
        inheritable: had.inheritable & KEPT,
    };
    // A service whose unit leaves it no others need not be allowed to set them.
    if kept != had {
        set_capabilities(None, kept)?;
    }
    Ok(())
}

/// True when the calling thread may go beyond limits that are for users (CAP_SYS_RESOURCE, or CAP_SYS_ADMIN where the
/// kernel takes that for it: `pipe_is_unprivileged_user`, Linux fs/pipe.c).
pub fn is_beyond_user_limits() -> bool {
    let any = CapabilitySet::SYS_RESOURCE | CapabilitySet::SYS_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.intersects(any))
}

/// Routes, nftables and socket options; pings; others' ports below 1024.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BIND_SERVICE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_and_what_it_starts_keep_the_networks_capabilities_and_no_others() {
        let inside = || {
            keep_network_only().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let child = std::process::Command::new("cat")
                .arg("/proc/self/status")
                .output();
            [status, String::from_utf8(child.unwrap().stdout).unwrap()]
        };
        for status in std::thread::spawn(inside).join().unwrap() {
            for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
                let line = status.lines().find_map(|line| line.strip_prefix(set));
                let bits = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
                assert_eq!(bits & !KEPT.bits(), 0, "{set} {bits:x}");
            }
        }
        // Others are as they were.
        let own = capabilities(None).unwrap();
        let other = std::thread::spawn(|| capabilities(None).unwrap());
        assert_eq!(other.join().unwrap(), own);
    }
}
