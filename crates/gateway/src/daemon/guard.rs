//! A process that waits for the gateway's end and takes its routing rule away.
//!
//! A gateway that is killed cannot; its table of nftables goes with it, and without that the rule is for
//! packets that there are no more. So this is tidiness, not safety.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use fault::Failure;
use sys::netlink::Netlink;
use sys::transparent::{ANY, Diversion};

use crate::config::{Config, Mode};
use crate::install::{self, Claim};

/// The guard, as the gateway has it. It ends when this is dropped, however that happens.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts it.
    pub(super) fn start(diversion: Diversion, links: usize) -> Result<Self, Failure> {
        let number = |n: u32| n.to_string();
        let started = Command::new("/proc/self/exe")
            .args(["gateway", "guard"])
            .args(["--mark", &number(diversion.mark)])
            .args(["--table", &number(diversion.table)])
            .args(["--priority", &number(diversion.priority)])
            .args(["--links", &links.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the gateway.
            .process_group(0)
            .spawn();
        let child =
            started.map_err(|e| Failure::here(format!("cannot start the gateway's guard: {e}")))?;
        Ok(Self { child })
    }

    /// There is nothing left to take away.
    pub(super) fn dismiss(mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.write_all(b"done");
        }
        let _ = self.child.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Is the guard: `goodput gateway guard`, which [`Guard::start`] runs. Waits until standard input ends and takes away a
/// rule and tables of so many links, unless that said that it is done.
///
/// # Errors
/// The kernel does not let it.
pub fn stand(diversion: Diversion, links: usize) -> Result<(), Failure> {
    sys::signal::block_interrupts().map_err(Failure::here)?;
    let mut said = Vec::new();
    let _ = std::io::stdin().take(16).read_to_end(&mut said);
    match said == b"done" {
        true => Ok(()),
        false => take_away(diversion, links),
    }
}

/// Takes away what a gateway that was killed with its guard left, as at a service's end.
///
/// # Errors
/// The kernel does not let it.
pub fn clean(config: &Config) -> Result<(), Failure> {
    if config.mode == Mode::Transparent {
        take_away(
            install::diversion(config),
            install::link_tables(config).len(),
        )?;
    }
    Ok(())
}

fn take_away(diversion: Diversion, links: usize) -> Result<(), Failure> {
    // Where somebody has it already, that is a gateway started since, with the same rule: it stays.
    let Ok(_claim) = Claim::take(diversion.table) else {
        return Ok(());
    };
    let mut netlink = Netlink::open().map_err(Failure::here)?;
    for number in 0..links {
        install::link_table(diversion, number).remove_all(&mut netlink);
    }
    for any in ANY {
        diversion.remove_all(&mut netlink, any);
    }
    Ok(())
}
