//! The verbs that talk to labs in the background: `ps`, `exec`, `set`, `rules`, `down`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use report::table::{Column, Table};
use sys::netns::NetNs;
use sys::userns::UserNs;

use super::args::{DownArgs, ExecArgs, PsArgs, RulesArgs, SetArgs};
use super::build::grouped;
use super::place::{self, Found};
use super::protocol::{
    Answer, Counts, Direction, PATIENCE, REQUEST_BYTES_MAX, Request, Status, ask,
};
use crate::context;
use crate::failure::{self, Failure, Verdict};

/// `goodput lab ps`.
pub(super) fn ps(args: &PsArgs) -> Verdict {
    let mut labs = Vec::new();
    for found in place::sweep() {
        match ask(&found, &Request::Status, PATIENCE) {
            Ok((Answer::Status(status), ..)) => labs.push(status),
            Ok(_) => {}
            // One that is going down, or hangs, does not hide the others.
            Err(failure) => context::note(format_args!("goodput: {failure}")),
        }
    }
    if args.json {
        context::print_json(&labs)?;
    } else if labs.is_empty() {
        context::note("no lab is up; start one: goodput lab up PATH");
    } else {
        let shown: Vec<String> = labs.iter().map(shown).collect();
        context::print(&shown.join("\n"))?;
    }
    Ok(failure::DONE)
}

/// A lab as people read it.
fn shown(status: &Status) -> String {
    let mut text = format!(
        "{}: {}\n  process {}, up since {}\n",
        status.name, status.title, status.pid, status.up_since
    );
    text += &hosts(status);
    let counts = [12, 12, 12, 8, 12].map(Column::numbers);
    let mut table = Table::new([Column::words(36)].into_iter().chain(counts));
    table.row([
        "link",
        "frames",
        "queue drops",
        "lost",
        "late",
        "lost by lab",
    ]);
    let mut below = vec![None];
    for link in &status.links {
        for (from, to, counts) in [
            (&link.from, &link.to, &link.forward),
            (&link.to, &link.from, &link.backward),
        ] {
            let Counts {
                frames,
                dropped_queue,
                lost,
                late,
                lost_by_lab,
                ..
            } = *counts;
            let way = format!("{}: {from} -> {to}", link.name);
            let numbers = [frames, dropped_queue, lost, late, lost_by_lab].map(grouped);
            table.row([way].into_iter().chain(numbers));
            below.push(collisions(counts));
        }
    }
    for (line, below) in table.lines().into_iter().zip(below) {
        let _ = writeln!(text, "  {line}");
        text.extend(below);
    }
    text
}

/// A line for each host: its name and where it is.
pub(super) fn hosts(status: &Status) -> String {
    let mut table = Table::new([Column::words(12), Column::words(15), Column::words(0)]);
    for host in &status.hosts {
        match &host.interface {
            None => table.row([&host.name, &host.address, &host.address6]),
            Some(interface) => table.row([&host.name, &format!("behind {interface}")]),
        }
    }
    for gateway in &status.gateways {
        table.row([&gateway.name, &gateway.address, "gateway"]);
    }
    let lines = table.lines().into_iter();
    lines.map(|l| format!("  {}\n", l.trim_end())).collect()
}

/// A line on what became of frames that collided, where any did.
fn collisions(counts: &Counts) -> Option<String> {
    let numbers = [
        counts.collisions,
        counts.late_collisions,
        counts.excessive_collisions,
        counts.collision_fcs,
    ];
    if numbers == [0; 4] {
        return None;
    }
    let [all, late, excessive, fcs] = numbers.map(grouped);
    Some(format!(
        "    {all} collisions; lost to them: {late} late, {excessive} after 16 attempts, {fcs} on \
         arrival (FCS)\n"
    ))
}

/// `goodput lab exec`. Returns only when the program cannot be started.
pub(super) fn exec(args: &ExecArgs) -> Verdict {
    let found = place::find(args.lab.name.as_deref())?;
    let request = Request::Enter {
        host: args.host.clone(),
    };
    let (answer, fds, _) = ask(&found, &request, PATIENCE)?;
    let Answer::Entrance(entrance) = answer else {
        return Err(unexpected(&found));
    };
    enter(fds).map_err(|e| {
        Failure::here(anyhow::anyhow!(
            "cannot enter {} of the lab '{}': {e}",
            args.host,
            found.name
        ))
    })?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).envs(entrance.environment);
    Ok(not_started(
        &args.command[0].to_string_lossy(),
        &command.exec(),
    ))
}

/// Moves this process, which has one thread, to where the descriptors lead.
fn enter(fds: Vec<OwnedFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let (Some(net), user) = (fds.next(), fds.next()) else {
        return Err(io::Error::other("the lab sent no way in"));
    };
    if let Some(user) = user.map(UserNs::from)
        && !user.is_current()?
    {
        user.enter()?;
    }
    NetNs::from(net).enter()
}

/// Says why a program did not start; the exit code is that of shells (POSIX 2.8.2).
pub(super) fn not_started(program: &str, error: &io::Error) -> u8 {
    context::note(format_args!("goodput: cannot run '{program}': {error}"));
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// `goodput lab set`.
pub(super) fn set(args: &SetArgs) -> Verdict {
    let (link, direction) = with_direction(&args.link)?;
    let mut settings = BTreeMap::new();
    for typed in &args.settings {
        let Some((key, value)) = typed.split_once('=') else {
            return Err(Failure::usage(anyhow::anyhow!(
                "'{typed}': expected KEY=VALUE such as delay=10ms"
            )));
        };
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(anyhow::anyhow!("{key} is there twice")));
        }
    }
    let request = Request::Set {
        link: link.to_owned(),
        direction,
        settings,
    };
    told(&place::find(args.lab.name.as_deref())?, &request, PATIENCE)
}

/// `wan` or `wan:backward`.
pub(super) fn with_direction(typed: &str) -> Result<(&str, Option<Direction>), Failure> {
    match typed.split_once(':') {
        None => Ok((typed, None)),
        Some((link, "forward")) => Ok((link, Some(Direction::Forward))),
        Some((link, "backward")) => Ok((link, Some(Direction::Backward))),
        Some((link, way)) => Err(Failure::usage(anyhow::anyhow!(
            "'{way}' is no direction; expected {link}:forward or {link}:backward"
        ))),
    }
}

/// `goodput lab rules`.
pub(super) fn rules(args: &RulesArgs) -> Verdict {
    let node = args.node.clone();
    let toml = match args.action.as_str() {
        "show" => {
            let found = place::find(args.lab.name.as_deref())?;
            return show_rules(&found, node);
        }
        "clear" => None,
        file => Some(read_rules(Path::new(file))?),
    };
    let found = place::find(args.lab.name.as_deref())?;
    told(&found, &Request::SetRules { node, toml }, PATIENCE)
}

fn show_rules(found: &Found, node: String) -> Verdict {
    let (answer, ..) = ask(found, &Request::Rules { node }, PATIENCE)?;
    let Answer::Rules(rules) = answer else {
        return Err(unexpected(found));
    };
    if rules.is_empty() {
        context::note("no rules: everything is forwarded");
    }
    let mut text = String::new();
    for state in rules {
        let _ = writeln!(text, "{:>12}  {}", grouped(state.hits), state.rule);
    }
    context::print(&text)?;
    Ok(failure::DONE)
}

/// The text of a file, as much as fits a request with room for its quotes.
fn read_rules(file: &Path) -> Result<String, Failure> {
    let wrong = |problem: String| {
        Failure::usage(anyhow::anyhow!(
            "cannot read rules from {}: {problem}",
            file.display()
        ))
    };
    let bytes_max = REQUEST_BYTES_MAX as u64;
    let mut text = String::new();
    let mut limited = File::open(file)
        .map_err(|e| wrong(e.to_string()))?
        .take(bytes_max);
    limited
        .read_to_string(&mut text)
        .map_err(|e| wrong(e.to_string()))?;
    if text.len() as u64 == bytes_max {
        return Err(wrong(format!("it is larger than {} KiB", bytes_max / 1024)));
    }
    Ok(text)
}

/// `goodput lab down`.
pub(super) fn down(args: &DownArgs) -> Verdict {
    if !args.all {
        return end(&place::find(args.name.as_deref())?);
    }
    let labs = place::sweep();
    if labs.is_empty() {
        context::note("no lab is up");
    }
    let mut worst = Ok(failure::DONE);
    for found in labs {
        let ended = end(&found);
        if let (Err(_), Err(first)) = (&ended, &worst) {
            context::note(format_args!("goodput: {first}"));
        }
        if ended.is_err() {
            worst = ended;
        }
    }
    worst
}

/// Ends a lab and waits until its process is gone.
fn end(found: &Found) -> Verdict {
    let (answer, _, connection) = ask(found, &Request::Down, DOWN_PATIENCE)?;
    let Answer::Lines(lines) = answer else {
        return Err(unexpected(found));
    };
    connection.wait_closed(Instant::now() + DOWN_PATIENCE);
    let mut text = format!("lab '{}' is down\n", found.name);
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    context::print(&text)?;
    Ok(failure::DONE)
}

/// Asks for something and prints what the lab says of it.
fn told(found: &Found, request: &Request, patience: Duration) -> Verdict {
    let (answer, ..) = ask(found, request, patience)?;
    let Answer::Lines(lines) = answer else {
        return Err(unexpected(found));
    };
    for line in lines {
        context::note(line);
    }
    Ok(failure::DONE)
}

fn unexpected(found: &Found) -> Failure {
    Failure::here(anyhow::anyhow!(
        "the lab '{}' answered something else than was asked",
        found.name
    ))
}

/// The last probes cross the path before the certificate, up to 20 s; a log is written to its end.
const DOWN_PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::super::protocol::{HostState, LinkState};
    use super::*;

    #[test]
    fn columns_of_a_lab_do_not_touch_and_collisions_stand_below_their_link() {
        let host = |name: &str, interface: Option<&str>| HostState {
            name: name.to_owned(),
            address: "198.18.0.1".to_owned(),
            address6: "fd00::1".to_owned(),
            interface: interface.map(str::to_owned),
        };
        let counts = |frames, collisions| Counts {
            frames,
            collisions,
            ..Counts::default()
        };
        let status = Status {
            hosts: vec![
                host("a-host-of-a-long-name", None),
                host("b", Some("enp1s0")),
            ],
            gateways: Vec::new(),
            links: vec![LinkState {
                name: "a".repeat(30),
                from: "near".to_owned(),
                to: "far".to_owned(),
                forward: counts(1_234_567_890_123, 1),
                backward: counts(0, 0),
            }],
            name: "x".to_owned(),
            title: "y".to_owned(),
            pid: 1,
            up_since: "z".to_owned(),
        };
        let text = shown(&status);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines[0],
            "  a-host-of-a-long-name  198.18.0.1       fd00::1"
        );
        assert_eq!(lines[1], "  b                      behind enp1s0");
        assert!(
            lines[3].contains("near -> far  1,234,567,890,123  "),
            "{text}"
        );
        assert!(lines[4].starts_with("    1 collisions"), "{text}");
        assert!(lines[5].contains("far -> near  "), "{text}");
    }

    #[test]
    fn collisions_have_a_line_only_where_there_are_any() {
        assert_eq!(collisions(&Counts::default()), None);
        let counts = Counts {
            collisions: 3_115,
            late_collisions: 2_802,
            ..Counts::default()
        };
        assert_eq!(
            collisions(&counts).unwrap(),
            "    3,115 collisions; lost to them: 2,802 late, 0 after 16 attempts, 0 on arrival (FCS)\n"
        );
        let damaged = Counts {
            collision_fcs: 1,
            ..Counts::default()
        };
        assert!(collisions(&damaged).unwrap().contains("1 on arrival"));
    }
}
