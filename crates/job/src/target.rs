//! What a target means: a lab path or a far host.

use std::io;
use std::path::Path;

use lab::PathFile;
use lab::path::hint;

use fault::Failure;

/// The far end of a measurement.
#[derive(Clone, Debug)]
pub enum Target {
    /// A path in a lab on this machine.
    Lab(Box<PathFile>),
    /// `host` or `host:port`, where `goodput serve` runs.
    Host(String),
    /// The same, where an iperf3 server runs.
    Iperf3(String),
}

impl Target {
    /// Reads what was typed; nothing typed is the Columbia path.
    pub fn parse(typed: Option<&str>) -> Result<Self, Failure> {
        let Some(typed) = typed else {
            return Self::lab(DEFAULT);
        };
        if let Some(name) = typed.strip_prefix("lab:") {
            return Self::lab(name);
        }
        if let Some(host) = typed.strip_prefix("iperf3://") {
            return Ok(Self::Iperf3(host.trim_end_matches('/').to_owned()));
        }
        if typed.contains('@') {
            return Err(Failure::usage(format!(
                "'{typed}': starting the far end over ssh is not built yet; run `goodput serve \
                 --listen 0.0.0.0` there and name the host alone"
            )));
        }
        let looks_like_file = Path::new(typed).extension().is_some_and(|e| e == "toml");
        if looks_like_file || BUILT_IN.iter().any(|(name, _)| *name == typed) {
            return Err(Failure::usage(format!(
                "'{typed}' looks like a path file, not like a host; say lab:{typed}"
            )));
        }
        Ok(Self::Host(typed.to_owned()))
    }

    /// A name for run folders.
    pub fn name(&self) -> String {
        match self {
            Self::Host(host) | Self::Iperf3(host) => host.clone(),
            Self::Lab(path) => path
                .file
                .file_stem()
                .map_or_else(|| "lab".to_owned(), |s| s.to_string_lossy().into_owned()),
        }
    }

    fn lab(name: &str) -> Result<Self, Failure> {
        match without_routed(name) {
            None => Ok(Self::Lab(Box::new(Self::path(name)?))),
            Some(name) => {
                let path = Self::path(name)?;
                if !path.network.has_gateways() {
                    return Err(Failure::usage(format!(
                        "{name} has no gateway that {ROUTED} could leave out"
                    )));
                }
                Ok(Self::Lab(Box::new(path.routed())))
            }
        }
    }

    fn path(name: &str) -> Result<PathFile, Failure> {
        // A file that cannot be looked at is not a file that is not there: reading it says why.
        if Path::new(name).try_exists().unwrap_or(true) {
            return Ok(PathFile::read(Path::new(name))?);
        }
        let stem = name.strip_prefix("paths/").unwrap_or(name);
        let stem = stem.strip_suffix(".toml").unwrap_or(stem);
        let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == stem) else {
            let names: Vec<&str> = BUILT_IN.iter().map(|(n, _)| *n).collect();
            let mut rest = hint::did_you_mean(stem, names.iter().copied());
            // Who typed a file's name wants no list of names.
            if rest.is_empty() && !name.contains(['/', '.']) {
                rest = hint::one_of(stem, &names);
            }
            return Err(Failure::usage(format!(
                "there is no path file '{name}' and no built-in path of that name{rest}"
            )));
        };
        let file = format!("paths/{stem}.toml");
        Ok(PathFile::parse_with(
            Path::new(&file),
            text,
            &built_in_trace,
        )?)
    }
}

/// The name of a path whose gateways are to be left out: routers are in their places.
pub fn without_routed(name: &str) -> Option<&str> {
    name.strip_suffix(ROUTED)
}

const ROUTED: &str = ":routed";

macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        /// The paths that come with the program.
        pub const BUILT_IN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../paths/", $name, ".toml"))),)+
        ];
    };
}

built_in!(
    "columbia-untuned",
    "columbia-send-buffer",
    "columbia-8-streams",
    "columbia-4-streams-tuned",
    "columbia-loss",
    "columbia-copies",
    "columbia-copies-jumbo",
    "copies-clean",
    "copies-shallow",
    "columbia-firewall-before",
    "columbia-firewall-after",
    "columbia-firewall-jumbo",
    "healthy-1g-20ms",
    "gigabit-metro",
    "dtn-100ms",
    "dtn-100ms-loss",
    "dtn-100ms-open",
    "dtn-300ms",
    "lossy-100ms",
    "master-1-five-ports",
    "master-1-10g",
    "master-1-port-memory",
    "master-1-lfn-400ms",
    "switch-fifty-ports",
    "two-into-one",
    "switch-shared-buffer",
    "tokyo-lfn-300ms",
    "lfn-four-streams",
    "lfn-four-streams-shuffle",
    "lfn-four-streams-lengthen",
    "lfn-four-streams-2007",
    "wan-phy-behind-lan-phy",
    "lsr-522ms",
    "lsr-522ms-10g",
    "master-1-mysteries",
    "master-1-wan-phy",
    "wan-phy-100ms",
    "pspacer-62mb",
    "cosmogrid-277ms",
    "cray-cns",
    "cray-cns-100",
    "cray-cns-slow",
    "cray-cns-long",
    "four-uplinks",
    "four-uplinks-100",
    "nine-uplinks",
    "two-host-links",
    "four-host-links",
    "nine-host-links",
    "cray-mainframe",
    "cray-writes",
    "cray-buffers",
    "window-scale-stripped",
    "options-stripped",
    "seq-check-firewall",
    "flow-cap",
    "policer",
    "mtu-black-hole",
    "mss-clamped",
    "half-duplex",
    "duplex-mismatch",
    "asymmetric-route",
    "bursty-loss",
    "periodic-loss",
    "reordering",
    "jitter",
    "duplicates",
    "corruption",
    "bufferbloat",
    "fq-codel",
    "ecn-marking",
    "outage",
    "trace-driven",
    "multi-hop",
    "dual-stack",
    "static-routes",
    "tree-128",
);

/// The traces that built-in paths name.
const TRACES: &[(&str, &str)] = &[(
    "paths/cellular.trace",
    include_str!("../../../paths/cellular.trace"),
)];

fn built_in_trace(file: &Path) -> io::Result<String> {
    let built_in = TRACES.iter().find(|(name, _)| Path::new(name) == file);
    built_in
        .map(|(_, text)| (*text).to_owned())
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

const DEFAULT: &str = "columbia-untuned";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_gateway_can_be_had_without_it() {
        let lab = |name: &str| Target::parse(Some(name));
        for (name, gateways) in [("lab:cray-cns", true), ("lab:cray-cns:routed", false)] {
            let Ok(Target::Lab(path)) = lab(name) else {
                panic!("{name} is no path");
            };
            assert_eq!(path.network.has_gateways(), gateways, "{name}");
        }
        assert!(lab("lab:healthy-1g-20ms:routed").is_err());
    }

    #[test]
    fn every_path_file_of_the_project_is_built_in_and_sound() {
        for (name, _) in BUILT_IN {
            assert!(
                Target::parse(Some(&format!("lab:{name}"))).is_ok(),
                "{name}"
            );
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paths");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Some(stem) = name.strip_suffix(".toml") else {
                continue;
            };
            assert!(
                BUILT_IN.iter().any(|(n, _)| *n == stem),
                "{name} is not built in"
            );
        }
    }

    #[test]
    fn a_typed_target_is_a_lab_or_a_host() {
        assert!(matches!(Target::parse(None), Ok(Target::Lab(_))));
        assert!(matches!(
            Target::parse(Some("lab:healthy-1g-20ms")),
            Ok(Target::Lab(_))
        ));
        assert!(matches!(
            Target::parse(Some("far.example:5210")),
            Ok(Target::Host(_))
        ));
        for typed in ["iperf3://far.example:99", "iperf3://far.example:99/"] {
            let target = Target::parse(Some(typed)).unwrap();
            assert!(matches!(target, Target::Iperf3(host) if host == "far.example:99"));
        }
        let refused = |typed| Target::parse(Some(typed)).unwrap_err().to_string();
        let near = refused("lab:tokyo");
        assert!(near.contains(" names: tokyo-lfn-300ms, "), "{near}");
        // Three of many.
        assert_eq!(near.matches(", ").count(), 2, "{near}");
        assert!(refused("columbia-untuned").contains("say lab:columbia-untuned"));
        assert!(refused("me@far:x").contains("goodput serve"));
    }
}
