//! From what was asked for to a plan, with what had to be assumed.

use std::fs;
use std::path::PathBuf;

use fault::Failure;
use serde_json::Value;
use settings::{Facts, Judged, Plan, Request, Role};
use units::{Duration, Rate};

use crate::host::Host;
use crate::others::{self, Program};

/// What was asked for; whatever is absent is assumed.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Rate and round trip of the path.
    pub path: Option<(Rate, Duration)>,
    /// A run folder to take them from.
    pub run: Option<PathBuf>,
    /// Connections at a time.
    pub connections: Option<u32>,
    /// What the host is.
    pub role: Option<Role>,
    /// The interface of the path.
    pub device: Option<String>,
    /// A list of sysctls to judge.
    pub judge: Option<String>,
}

/// A plan with what it came from.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The plan.
    pub plan: Plan,
    /// What it follows from.
    pub facts: Facts,
    /// What was not said and had to be assumed, a sentence each.
    pub assumed: Vec<String>,
    /// Programs that set values of this host.
    pub programs: Vec<Program>,
    /// The list that was to be judged.
    pub judged: Vec<Judged>,
}

/// Where nobody says: the other side of a continent.
const RTT: Duration = Duration::from_ms(100);
/// Where no driver says.
const RATE: Rate = Rate::from_bits_per_second(10_000_000_000);
/// A run.json of many phases has some megabytes.
const RUN_BYTES_MAX: u64 = 256 << 20;

impl Asked {
    /// Reads the host and derives the plan.
    ///
    /// # Errors
    /// A run that cannot be read or does not say rate and round trip, or a device that is not there.
    pub fn new(host: &Host, wanted: &Wanted) -> Result<Self, Failure> {
        let mut facts = host
            .facts(wanted.device.as_deref())
            .map_err(Failure::usage)?;
        others::note(&host.tree, &mut facts);
        let mut assumed = Vec::new();
        let mut request = Request::new(RATE, RTT, wanted.role.unwrap_or(Role::Dtn));
        if let Some(run) = &wanted.run {
            from_run(run, &mut request)?;
        } else if let Some((rate, rtt)) = wanted.path {
            (request.rate, request.rtt) = (rate, rtt);
        } else {
            guess(&facts, &mut request, &mut assumed);
        }
        if wanted.role.is_none() {
            assumed.push("a data-transfer node (--role)".to_owned());
        }
        if let Some(connections) = wanted.connections {
            request.connections = connections;
        }
        let plan = settings::derive(&request, &facts);
        let judged = wanted
            .judge
            .as_deref()
            .map_or_else(Vec::new, |list| settings::judge(list, &plan, &facts));
        Ok(Self {
            programs: others::programs(&host.tree),
            plan,
            facts,
            assumed,
            judged,
        })
    }
}

fn guess(facts: &Facts, request: &mut Request, assumed: &mut Vec<String>) {
    let device = facts.device.as_ref();
    match device.and_then(|one| Some((one.name.as_str(), one.speed?))) {
        Some((name, speed)) => {
            request.rate = speed;
            assumed.push(format!("{speed}, the speed of {name}"));
        }
        None => assumed.push(format!("{RATE}, as no interface tells its speed")),
    }
    assumed.push(format!("a round trip of {RTT} (--for RATE,RTT)"));
}

/// Rate, round trip, connections and random loss of a run's first phase.
fn from_run(folder: &std::path::Path, request: &mut Request) -> Result<(), Failure> {
    let file = match folder.is_dir() {
        true => folder.join("run.json"),
        false => folder.to_owned(),
    };
    let refused = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let facts = fs::metadata(&file).map_err(|e| refused(e.to_string()))?;
    if facts.len() > RUN_BYTES_MAX {
        return Err(refused("is larger than any run".to_owned()));
    }
    let text = fs::read_to_string(&file).map_err(|e| refused(e.to_string()))?;
    let run: Value = serde_json::from_str(&text).map_err(|e| refused(e.to_string()))?;
    let number = |at: &str| run.pointer(at).and_then(Value::as_u64).filter(|n| *n > 0);
    let rate = [
        "/path/rate_bits_per_second",
        "/path/achievable_bits_per_second",
    ]
    .iter()
    .chain(&["/phases/0/goodput_bits_per_second"])
    .find_map(|at| number(at));
    let rtt = ["/path/rtt_idle_ns", "/phases/0/rtt_idle_ns"]
        .iter()
        .find_map(|at| number(at));
    let (Some(rate), Some(rtt)) = (rate, rtt) else {
        return Err(refused(
            "says no rate or no idle round trip; give them with --for RATE,RTT".to_owned(),
        ));
    };
    request.rate = Rate::from_bits_per_second(rate);
    request.rtt = Duration::from_ns(rtt);
    if let Some(streams) = number("/phases/0/streams") {
        request.connections = u32::try_from(streams).unwrap_or(u32::MAX);
    }
    let loss = ["/path/loss_forward", "/path/loss_backward"]
        .iter()
        .filter_map(|at| run.pointer(at).and_then(Value::as_f64))
        .fold(0.0, f64::max);
    request.loss_rate = (loss > 0.0).then_some(loss);
    Ok(())
}
