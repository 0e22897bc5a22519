//! A gateway of a lab run by its unit, under a systemd of its own, and killed in a trial.
//!
//! `systemd.sh` beside this file makes process and file system namespaces in the gateway's network namespace and
//! has systemd be process 1 there. It runs on the unit as `goodput gateway unit` prints it, but for where its lines go.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use fault::{Cause, Failure};
use lab::{Host, Lab, LabGateway};
use serde_json::{Value, json};
use sys::clock;
use sys::folder::replace;
use sys::threads;

use super::exact;
use super::renew;

/// Where the gateway of a trial is the unit's.
pub(super) enum Unit {
    Runs(Box<Systemd>),
    /// Why this machine cannot have it.
    Lacking(String),
}

/// Has the first gateway leave, and its unit run in its place. What systemd wrote stays in `folder`.
pub(super) fn start(lab: &Lab, folder: &Path) -> Result<Unit, Failure> {
    let Some(gateway) = lab.gateways().first() else {
        return Err(Failure::usage("the path has no gateway"));
    };
    let booted = Systemd::boot(gateway, folder).map_err(Failure::here)?;
    let Booted::Runs(mut systemd) = booted else {
        return Ok(Unit::Lacking(booted.why()));
    };
    gateway.leave()?;
    systemd
        .ask(&format!("systemctl start {UNIT}"))
        .map_err(Failure::here)?;
    Ok(Unit::Runs(systemd))
}

/// Reloads, upgrades and kills it while others connect, ends it, and says what systemd, the kernel and the ends saw.
pub(super) fn tried(unit: Unit, lab: &Lab, to: &[&Host]) -> Result<Value, Failure> {
    match unit {
        Unit::Lacking(why) => Ok(json!({ "lacking": why })),
        Unit::Runs(mut systemd) => {
            let found = all(&mut systemd, lab, to).map_err(Failure::here);
            let log = systemd.ask("cat /run/gateway.log");
            let _ = replace(&systemd.folder.join("gateway.log"), log.unwrap_or_default());
            systemd.end();
            found
        }
    }
}

fn all(systemd: &mut Systemd, lab: &Lab, to: &[&Host]) -> Result<Value, Cause> {
    let version = systemd.ask("systemctl --version")?;
    let before = systemd.status()?;
    let rules = systemd.rules()?;
    let process = systemd.process()?;
    let exposure = systemd.ask(&format!("systemd-analyze security --no-pager {UNIT}"))?;
    systemd.ask(&format!("systemctl reload {UNIT}"))?;
    let first = kill(systemd, lab, to)?;
    let again = systemd.rules()?;
    let old = systemd.main()?;
    systemd.ask("goodput gateway upgrade")?;
    let upgraded = systemd.main_other_than(&old)?;
    // Its parent was the one that it went on for, not systemd.
    let second = kill(systemd, lab, to)?;
    let after = systemd.status()?;
    let begun = Instant::now();
    systemd.ask(&format!("systemctl stop {UNIT}"))?;
    let took = begun.elapsed();
    let left = systemd.rules()?;
    let stopped = systemd.shown()?;
    Ok(json!({
        "version": version.lines().next(),
        "exposure": exposure_of(&exposure),
        "user": process.user,
        "capabilities": process.capabilities,
        "no_new_privileges": process.no_new_privileges,
        "filters_system_calls": process.filters_system_calls,
        "split_before": before["split"],
        "rules": rules,
        "upgraded_to_another_process": upgraded != old,
        "kills": [first, second],
        "rules_after": again,
        "rules_twice": again > rules,
        "split_after": after["split"],
        "stop": {
            "took_ns": nanoseconds(took),
            "state": stopped.get("ActiveState"),
            "result": stopped.get("Result"),
            "rules_left": left,
        },
    }))
}

/// Kills the gateway while one connection after the other is made from near to the others by turns.
fn kill(systemd: &mut Systemd, lab: &Lab, to: &[&Host]) -> Result<Value, Cause> {
    let refusals = || -> Result<u64, Cause> {
        let hosts = to.iter().copied().chain([lab.near()]);
        hosts.map(|host| Ok(renew::troubles(host)?[1])).sum()
    };
    let (before, refused) = (systemd.shown()?, refusals()?);
    let over = AtomicBool::new(false);
    let (seen, greets) = thread::scope(|scope| {
        let greets = threads::scoped(scope, "gp-greets", || greet_on(lab.near(), to, &over));
        let seen = killed(systemd, &before);
        over.store(true, Ordering::Relaxed);
        (seen, greets.map(ScopedJoinHandle::join))
    });
    let (seen, greets) = (seen?, greets?.map_err(|_| "a thread panicked")?);
    let meanwhile: Vec<&Greeting> = greets
        .iter()
        .filter(|g| g.begun_us >= seen.ended_us && g.begun_us < seen.ready_us)
        .collect();
    let later = greets.iter().filter(|g| g.begun_us >= seen.ready_us);
    let longest = meanwhile.iter().map(|g| g.took).max().unwrap_or_default();
    Ok(json!({
        "restarts": seen.restarts,
        "restarted_after_ns": (seen.ready_us - seen.ended_us) * 1_000,
        "rules_meanwhile": seen.rules,
        "new_connections": meanwhile.len(),
        "new_connections_failed": meanwhile.iter().filter(|g| !g.well).count(),
        "new_connections_longest_ns": nanoseconds(longest),
        "later_connections": later.clone().count(),
        "later_connections_failed": later.filter(|g| !g.well).count(),
        "refusals": refusals()? - refused,
    }))
}

/// What systemd and the kernel had of a kill.
struct Killed {
    restarts: u64,
    /// When systemd saw it end, and heard that another is ready: its clock is the monotonic one.
    ended_us: u64,
    ready_us: u64,
    rules: Option<u64>,
}

fn killed(systemd: &mut Systemd, before: &BTreeMap<String, String>) -> Result<Killed, Cause> {
    let number = |from: &BTreeMap<String, String>, name: &str| -> Result<u64, Cause> {
        let text = from
            .get(name)
            .ok_or_else(|| format!("systemd told no {name}"))?;
        Ok(text.parse()?)
    };
    thread::sleep(BESIDE);
    systemd.ask(&format!(
        "systemctl kill --kill-who=main --signal=KILL {UNIT}"
    ))?;
    // The guard takes the routing rule away when it sees the end; another gateway has rules again.
    let (mut rules, mut ended_us) = (None, 0);
    let end = Instant::now() + PATIENCE;
    let after = loop {
        let now = systemd.shown()?;
        let (state, restarts) = (
            now.get("SubState").map(String::as_str),
            number(&now, "NRestarts")?,
        );
        if state == Some("auto-restart") {
            ended_us = number(&now, "InactiveEnterTimestampMonotonic")?;
            let seen = systemd.rules()?;
            // Looked at again: was nobody started meanwhile?
            if systemd.shown()?.get("SubState").map(String::as_str) == state {
                rules = Some(rules.map_or(seen, |least: u64| least.min(seen)));
            }
        }
        if state == Some("running") && restarts > number(before, "NRestarts")? {
            break now;
        }
        if state == Some("failed") || Instant::now() > end {
            return Err(format!("systemd did not start it again: {now:?}").into());
        }
        thread::sleep(PAUSE);
    };
    thread::sleep(BESIDE);
    Ok(Killed {
        restarts: number(&after, "NRestarts")? - number(before, "NRestarts")?,
        ended_us: match ended_us {
            0 => return Err("systemd was not seen to wait".into()),
            seen => seen,
        },
        ready_us: number(&after, "ActiveEnterTimestampMonotonic")?,
        rules,
    })
}

/// A short connection that was made beside.
struct Greeting {
    begun_us: u64,
    took: Duration,
    well: bool,
}

fn greet_on(near: &Host, to: &[&Host], over: &AtomicBool) -> Vec<Greeting> {
    let mut all = Vec::new();
    while !over.load(Ordering::Relaxed) {
        // Never the port of the one before: that rests at this end.
        let port = PORT + all.len() % PORTS;
        let (begun_us, begun) = (clock::monotonic().as_ns() / 1_000, Instant::now());
        let well = exact::greet(near, to[all.len() % to.len()], port).is_ok();
        all.push(Greeting {
            begun_us,
            took: begun.elapsed(),
            well,
        });
    }
    all
}

/// systemd, and whom to ask to have something said or done beside it.
pub(super) struct Systemd {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    folder: PathBuf,
}

enum Booted {
    Runs(Box<Systemd>),
    Lacking(String),
}

impl Booted {
    fn why(self) -> String {
        match self {
            Self::Runs(_) => String::new(),
            Self::Lacking(why) => why,
        }
    }
}

/// What the kernel says of the gateway's process.
struct Process {
    user: u32,
    capabilities: String,
    no_new_privileges: bool,
    filters_system_calls: bool,
}

impl Systemd {
    /// Boots it in a gateway's network namespace.
    fn boot(gateway: &LabGateway, folder: &Path) -> Result<Booted, Cause> {
        let folder = folder.canonicalize()?;
        replace(&folder.join("gateway.toml"), configuration(gateway))?;
        let script = folder.join("systemd.sh");
        replace(&script, SCRIPT)?;
        let mut unshare = gateway.host().program("unshare")?;
        unshare
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
            ])
            .args([&script, &folder, &std::env::current_exe()?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = match unshare.spawn() {
            Ok(child) => child,
            Err(e) => return Ok(Booted::Lacking(format!("unshare cannot be started: {e}"))),
        };
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut systemd = Box::new(Self {
            child,
            stdin,
            lines: BufReader::new(stdout.ok_or("it has no standard output")?),
            folder,
        });
        match systemd.answer() {
            Ok(_) => Ok(Booted::Runs(systemd)),
            Err(why) => Ok(Booted::Lacking(why.to_string())),
        }
    }

    /// Has a line of shell run beside it; what that said.
    fn ask(&mut self, line: &str) -> Result<String, Cause> {
        let stdin = self.stdin.as_mut().ok_or("it has ended")?;
        writeln!(stdin, "{line}")?;
        self.answer()
            .map_err(|_| format!("under systemd: {line}").into())
    }

    fn answer(&mut self) -> Result<String, Cause> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Err("systemd cannot run here".into());
            }
            match said(&line) {
                Said::More => text += &line,
                Said::End(0) => return Ok(text),
                Said::End(status) => {
                    return Err(format!("ended with {status}: {}", text.trim()).into());
                }
                Said::Lacking(why) => return Err(why.into()),
            }
        }
    }

    /// What it says of the unit.
    fn shown(&mut self) -> Result<BTreeMap<String, String>, Cause> {
        let text = self.ask(&format!("systemctl show {UNIT}"))?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Ok(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    fn main(&mut self) -> Result<String, Cause> {
        let shown = self.shown()?;
        shown
            .get("MainPID")
            .cloned()
            .ok_or_else(|| "systemd told no MainPID".into())
    }

    /// Another process than `old`, which it hears of from that one.
    fn main_other_than(&mut self, old: &str) -> Result<String, Cause> {
        let end = Instant::now() + PATIENCE;
        loop {
            let main = self.main()?;
            if main != old || Instant::now() > end {
                return Ok(main);
            }
            thread::sleep(PAUSE);
        }
    }

    fn status(&mut self) -> Result<Value, Cause> {
        let text = self.ask("goodput gateway status --json")?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Routing rules and tables of nftables that are a gateway's, by iproute2 and nft.
    fn rules(&mut self) -> Result<u64, Cause> {
        // nft speaks of what iptables has as well.
        let text = self.ask("ip -4 rule && ip -6 rule && nft list tables 2> /dev/null")?;
        Ok(rules_in(&text))
    }

    fn process(&mut self) -> Result<Process, Cause> {
        let main = self.main()?;
        let text = self.ask(&format!("cat /proc/{main}/status"))?;
        process_in(&text).ok_or_else(|| "the kernel told no capabilities".into())
    }

    /// Ends it and all that runs below it.
    fn end(mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

enum Said<'a> {
    More,
    End(u32),
    Lacking(&'a str),
}

fn said(line: &str) -> Said<'_> {
    let line = line.trim_end();
    if let Some(why) = line.strip_prefix("LACKING ") {
        return Said::Lacking(why);
    }
    match line.strip_prefix("END ").map(str::parse) {
        Some(Ok(status)) => Said::End(status),
        _ => Said::More,
    }
}

/// A file that has the unit's gateway do what the lab's did.
fn configuration(gateway: &LabGateway) -> String {
    let [inside, outside] = &gateway.config().zones;
    format!(
        "drain = \"2s\"\n[inside]\ninterfaces = {:?}\n[outside]\ninterfaces = {:?}\n",
        inside.interfaces, outside.interfaces
    )
}

fn rules_in(text: &str) -> u64 {
    let own = text.lines().filter(|line| {
        line.starts_with("table inet goodput-")
            || (line.contains("fwmark") && line.contains("lookup 4710"))
    });
    own.count() as u64
}

/// "-> Overall exposure level for goodput-gateway.service: 2.4 OK".
fn exposure_of(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.contains("Overall exposure level"))?;
    line.rsplit_once(": ")?.1.split(' ').next()?.parse().ok()
}

/// Of /proc/PID/status (proc_pid_status(5)).
fn process_in(text: &str) -> Option<Process> {
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    };
    let has = u64::from_str_radix(field("CapPrm")?, 16).ok()?;
    let may = u64::from_str_radix(field("CapBnd")?, 16).ok()?;
    let all = (0..64).filter(|bit| (has | may) >> bit & 1 == 1);
    let names = all.map(|bit| match bit {
        10 => "net_bind_service".to_owned(),
        12 => "net_admin".to_owned(),
        13 => "net_raw".to_owned(),
        24 => "sys_resource".to_owned(),
        other => format!("number {other}"),
    });
    Some(Process {
        // The second of four is the effective one.
        user: field("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
        capabilities: names.collect::<Vec<_>>().join(", "),
        no_new_privileges: field("NoNewPrivs")? == "1",
        filters_system_calls: field("Seccomp")? == "2",
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const SCRIPT: &str = include_str!("systemd.sh");
const UNIT: &str = "goodput-gateway";
/// Before a kill and behind the restart, for others to connect.
const BESIDE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(50);
/// For a restart; systemd waits a second.
const PATIENCE: Duration = Duration::from_secs(30);
const PORT: usize = 5600;
const PORTS: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_say_is_read() {
        let told = "\u{2192} Overall exposure level for goodput-gateway.service: 2.4 OK :-)\n";
        assert_eq!(exposure_of(told), Some(2.4));
        assert_eq!(exposure_of("no such unit\n"), None);
        let text = "0:\tfrom all lookup local\n4710:\tfrom all fwmark 0x47504000 lookup 4710\n\
                    table inet goodput-claim-4710\ntable inet filter\n32766:\tfrom all lookup main\n";
        assert_eq!(rules_in(text), 2);
    }

    #[test]
    fn the_unit_leaves_a_gateway_what_the_gateway_keeps() {
        for key in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
            let line = ::gateway::daemon::UNIT
                .lines()
                .find_map(|l| l.strip_prefix(key));
            assert_eq!(line, Some("CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE"));
        }
    }

    #[test]
    fn the_unit_has_a_user_of_its_own_and_writes_below_its_own_folders_only() {
        let has = |line: &str| ::gateway::daemon::UNIT.lines().any(|l| l == line);
        assert!(has("DynamicUser=yes") && has("RuntimeDirectory=goodput-gateway"));
        assert!(has("RuntimeDirectoryMode=0700") && has("NoNewPrivileges=yes"));
        assert!(
            has("ProtectSystem=strict") && !::gateway::daemon::UNIT.contains("ReadWritePaths=")
        );
    }

    #[test]
    fn capabilities_are_those_that_it_has_or_may_have() {
        let status = "Name:\tgoodput\nUid:\t0\t61184\t0\t0\nCapPrm:\t0000000000003400\nCapBnd:\t0000000001003400\nNoNewPrivs:\t1\nSeccomp:\t0\n";
        let process = process_in(status).unwrap();
        assert_eq!(
            process.capabilities,
            "net_bind_service, net_admin, net_raw, sys_resource"
        );
        assert_eq!(process.user, 61_184);
        assert!(process.no_new_privileges && !process.filters_system_calls);
        assert!(process_in("Name:\tgoodput\n").is_none());
    }

    #[test]
    fn an_answer_ends_with_its_status() {
        assert!(matches!(said("END 3\n"), Said::End(3)));
        assert!(matches!(said("END of it\n"), Said::More));
        assert!(matches!(
            said("LACKING systemd is not installed\n"),
            Said::Lacking("systemd is not installed")
        ));
    }
}
