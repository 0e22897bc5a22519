//! Which path is meant.

use std::fmt::Write as _;
use std::path::Path;

use lab::{PathError, PathFile};
use units::{Duration, Rate};

use super::PathFlags;
use fault::Failure;
use job::target::Target;

/// The path of that name: a file, or a built-in path.
pub(super) fn named(name: &str) -> Result<PathFile, Failure> {
    let name = name.strip_prefix("lab:").unwrap_or(name);
    match Target::parse(Some(&format!("lab:{name}")))? {
        Target::Lab(path) => Ok(*path),
        Target::Host(_) | Target::Iperf3(_) => {
            Err(Failure::usage(format!("'{name}' is not a path")))
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
        PathError::Refused { problem, .. } => Failure::usage(format!("--{problem}")),
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
