//! Which path is meant, and whether this machine can carry it.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use lab::{Certificate, LabError, PathError, PathFile};
use units::{Duration, Rate};

use super::args::PathFlags;
use crate::failure::Failure;
use crate::target::Target;

/// The path of that name: a file, or a built-in path.
pub(super) fn named(name: &str) -> Result<PathFile, Failure> {
    let name = name.strip_prefix("lab:").unwrap_or(name);
    match Target::parse(Some(&format!("lab:{name}")))? {
        Target::Lab(path) => Ok(*path),
        Target::Host(_) | Target::Iperf3(_) => {
            Err(Failure::usage(anyhow::anyhow!("'{name}' is not a path")))
        }
    }
}

/// Two hosts, `near` and `far`, with one link between them as flags have it.
pub(super) fn of_flags(flags: &PathFlags) -> Result<PathFile, Failure> {
    let mut host = String::new();
    if let Some(mtu) = flags.mtu {
        let _ = writeln!(host, "mtu = {mtu}");
    }
    let mut link = String::new();
    let mut key = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(link, "{name} = {value}");
        }
    };
    let time = |d: Duration| format!("\"{}ns\"", d.as_ns());
    key("rate", flags.rate.map(rate_toml));
    key("delay", flags.delay.map(time));
    // Printed with a point, infinities and all as TOML has them.
    key(
        "loss",
        flags
            .loss
            .map(|share| format!("{share:?}").replace("NaN", "nan")),
    );
    key("queue", flags.queue.map(|b| format!("\"{}B\"", b.as_u64())));
    let jitter = |d: Duration| format!("{{ amount = {} }}", time(d));
    key("jitter", flags.jitter.map(jitter));
    key("seed", flags.seed.map(|seed| seed.to_string()));
    let title = describe(flags);
    let text = format!(
        "title = \"{title}\"\n[hosts.near]\n{host}[hosts.far]\n{host}[links.wan]\n\
         between = [\"near\", \"far\"]\n{link}"
    );
    PathFile::parse(Path::new("flags"), &text).map_err(|e| match e {
        PathError::Refused { problem, .. } => Failure::usage(anyhow::anyhow!("--{problem}")),
        other => other.into(),
    })
}

fn rate_toml(rate: Rate) -> String {
    format!("\"{}b/s\"", rate.as_bits_per_second())
}

/// The path in words.
fn describe(flags: &PathFlags) -> String {
    let mut parts = Vec::new();
    parts.extend(flags.rate.map(|rate| rate.to_string()));
    parts.extend(flags.delay.map(|delay| format!("{delay} each way")));
    parts.extend(flags.jitter.map(|jitter| format!("up to {jitter} more")));
    parts.extend(flags.loss.map(|loss| format!("loss {loss}")));
    parts.extend(flags.queue.map(|queue| format!("queue {queue}")));
    if parts.is_empty() {
        "two hosts and a wire without rate, delay or loss".to_owned()
    } else {
        parts.join(", ")
    }
}

/// What to expect of a path that asks for more frames a second than this machine carries.
pub(super) fn overload(path: &PathFile) -> Option<String> {
    // The kernel passes super-packets whole.
    let by_engine = Some(path).filter(|path| !path.network.by_kernel)?;
    let rate = by_engine.forward.rate.max(by_engine.backward.rate)?;
    // Preamble, header, check sequence and gap: 1538 bytes at MTU 1500.
    let frame_bits = 8 * (u64::from(path.mtu_bytes()) + 38);
    let frames = rate.as_bits_per_second() / frame_bits;
    (frames > FRAMES_PER_SECOND).then(|| {
        format!(
            "this path needs {} frames/s each way, this machine's lab carries about {} without \
             segmentation off-loads; expect it to fall behind when it is filled",
            grouped(frames),
            grouped(FRAMES_PER_SECOND)
        )
    })
}

/// The lab's accuracy in one line.
pub(super) fn verdict(certificate: &Certificate) -> String {
    let c = certificate;
    let trust = if c.trusted() {
        "trusted".to_owned()
    } else {
        format!("NOT trusted: {}", c.problems.join("; "))
    };
    if let Some(run) = &c.kernel {
        let said = |of: fn(&lab::Pace) -> u64| grouped(run.paces.iter().map(of).sum());
        return format!(
            "lab: the kernel ran the links, and no delay was measured; {} windows of 100 ms in which something \
             waited, {} beyond the rate; {} packets met a full queue, {} were lost by the lab; {trust}",
            said(|p| p.windows_busy),
            said(|p| p.windows_over),
            said(|p| p.drops),
            said(|p| p.lost),
        );
    }
    let [p50, p99, p999] = [
        c.delay_error_p50_ns,
        c.delay_error_p99_ns,
        c.delay_error_p999_ns,
    ]
    .map(signed);
    format!(
        "lab: delay error p50 {p50}, p99 {p99}, p99.9 {p999} of {} probes; {} of {} frames lost by \
         the lab; {trust}",
        grouped(c.probes),
        grouped(c.frames_lost_by_lab()),
        grouped(c.frames())
    )
}

/// Why there is no certificate.
pub(super) fn not_certified(error: &LabError) -> String {
    let unreachable = |e: &io::Error| e.kind() == io::ErrorKind::NetworkUnreachable;
    match error {
        // A shell inside has the host's addresses for as long as it runs, and probes have none.
        LabError::Kernel { source, .. } if unreachable(source) => {
            "lab: not certified: another path was put in front of one of its hosts".to_owned()
        }
        _ => format!("lab: not certified: {error}"),
    }
}

/// What became of a log.
pub(super) fn log_verdict(end: &link::record::End) -> String {
    let lost = if end.lost_rows + end.lost_frames == 0 {
        "none lost".to_owned()
    } else {
        format!(
            "{} decisions and {} frames LOST: the disk was behind",
            grouped(end.lost_rows),
            grouped(end.lost_frames)
        )
    };
    format!(
        "log: {} frames, {} decisions; {lost}",
        grouped(end.frames),
        grouped(end.rows)
    )
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", Duration::from_ns(ns.unsigned_abs()))
}

/// `1,234,567`.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What one forwarding thread carries when every frame comes by itself: 155,000 to 196,000 were
/// measured on two CPUs of an AMD EPYC (bench/lab.json, UDP and TCP without off-loads). TCP with
/// off-loads comes in trains and is carried several times faster.
const FRAMES_PER_SECOND: u64 = 150_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(rate: &str) -> PathFlags {
        PathFlags {
            rate: Some(rate.parse().unwrap()),
            ..PathFlags::default()
        }
    }

    #[test]
    fn flags_make_a_path_and_are_refused_by_their_name() {
        let path = of_flags(&PathFlags {
            rate: Some("100Mb/s".parse().unwrap()),
            delay: Some("150ms".parse().unwrap()),
            loss: Some(0.001),
            queue: Some("1MB".parse().unwrap()),
            mtu: Some(9_000),
            jitter: Some("1ms".parse().unwrap()),
            seed: Some(7),
        })
        .unwrap();
        assert_eq!(path.rtt_configured().to_string(), "300 ms");
        assert_eq!(path.mtu_bytes(), 9_000);
        assert_eq!((path.forward.loss, path.forward.seed), (0.001, 7));
        assert_eq!(path.forward.queue.to_string(), "1 MB");
        assert!(path.title.starts_with("100 Mb/s, 150 ms each way"));
        for (loss, says) in [
            (1.5, "--loss"),
            (f64::NAN, "--loss"),
            (f64::INFINITY, "--loss"),
        ] {
            let wrong = PathFlags {
                loss: Some(loss),
                ..PathFlags::default()
            };
            let said = of_flags(&wrong).unwrap_err().to_string();
            assert!(said.starts_with(says), "{said}");
        }
        assert!(of_flags(&PathFlags::default()).is_ok());
    }

    #[test]
    fn a_path_of_more_frames_than_the_lab_carries_is_announced() {
        // 150,000 frames of 1538 bytes.
        assert!(overload(&of_flags(&flags("1845.6Mb/s")).unwrap()).is_none());
        let said = overload(&of_flags(&flags("10Gb/s")).unwrap()).unwrap();
        assert!(said.contains("812,743 frames/s each way"), "{said}");
        assert!(overload(&of_flags(&PathFlags::default()).unwrap()).is_none());
    }

    #[test]
    fn numbers_are_grouped() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
