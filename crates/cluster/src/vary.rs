//! Every combination of values of some keys of a fabric file.

mod exact;
mod mpi;

use run::model::{FabricRun, FabricSetting, FabricStudy, Verdict};
use serde::{Deserialize, Serialize};

use crate::simulate::Found;
use crate::{FabricFile, Study, Tier, built_in, study};
use fault::Failure;
use measure::Stop;

pub use mpi::{Led, over_mpi};

/// A file, and what is varied in it.
///
/// ```no_run
/// let axes = ["topology.routing=minhop,ftree".to_owned()];
/// let sweep = cluster::vary::Sweep::read("talon-ib", None, &axes, &[])?;
/// let (run, _) = sweep.run(&measure::Stop::new())?;
/// assert_eq!(run.settings.len(), 2);
/// # Ok::<(), fault::Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The file as it stands.
    pub file: FabricFile,
    axes: Vec<Axis>,
    /// Names of the cases that are run; all if empty.
    cases: Vec<String>,
}

impl Sweep {
    /// Of the file of that name; each axis is `key=value,value` or `key=from..to`.
    ///
    /// # Errors
    /// The file is refused, or an axis.
    pub fn read(
        name: &str,
        tier: Option<Tier>,
        axes: &[String],
        cases: &[String],
    ) -> Result<Self, Failure> {
        let file = built_in::find(name, tier)?;
        Ok(Self {
            axes: self::axes(&file, axes)?,
            file,
            cases: cases.to_vec(),
        })
    }

    /// Runs every combination on all cores.
    ///
    /// # Errors
    /// A case is unknown, a combination is refused, or one never ends.
    pub fn run(&self, stop: &Stop) -> Result<Found, Failure> {
        run(self, None, stop)
    }
}

/// A dotted key and its values as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    key: String,
    values: Vec<String>,
}

/// Axes as they were typed; a file without patterns has none.
fn axes(file: &FabricFile, typed: &[String]) -> Result<Vec<Axis>, Failure> {
    let usage = |problem: String| Failure::usage(problem);
    if !typed.is_empty() && file.studies.is_empty() {
        return Err(usage(format!(
            "{} has traffic between two hosts; a sweep wants [traffic] pattern = \"…\"",
            file.file.display()
        )));
    }
    let mut all = Vec::new();
    let mut combinations = 1_usize;
    for text in typed {
        let axis = axis(text).ok_or_else(|| {
            usage(format!(
                "'{text}': expected key=value,value or key=from..to, such as topology.seed=1..5"
            ))
        })?;
        combinations = combinations.saturating_mul(axis.values.len());
        all.push(axis);
    }
    if combinations > COMBINATIONS_MAX {
        return Err(usage(format!(
            "{combinations} combinations; expected at most {COMBINATIONS_MAX}"
        )));
    }
    Ok(all)
}

fn axis(text: &str) -> Option<Axis> {
    let (key, values) = text.split_once('=')?;
    let range = values.split_once("..").and_then(|(from, to)| {
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        (from <= to && to - from < COMBINATIONS_MAX as u64).then_some(from..=to)
    });
    let values: Vec<String> = match range {
        Some(range) => range.map(|n| n.to_string()).collect(),
        None => values.split(',').map(as_toml).collect(),
    };
    let fine = !key.is_empty() && values.iter().all(|v| v != "\"\"");
    fine.then(|| Axis {
        key: key.trim().to_owned(),
        values,
    })
}

/// Numbers and truth values as they are, all else as text.
fn as_toml(value: &str) -> String {
    let value = value.trim();
    let bare = value.parse::<i64>().is_ok() || matches!(value, "true" | "false");
    match bare {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace(['"', '\\', '\n'], "")),
    }
}

/// Every combination, the last axis changing fastest.
fn combinations(axes: &[Axis]) -> Vec<Vec<(String, String)>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        all = all
            .into_iter()
            .flat_map(|before: Vec<(String, String)>| {
                axis.values.iter().map(move |value| {
                    let mut with = before.clone();
                    with.push((axis.key.clone(), value.clone()));
                    with
                })
            })
            .collect();
    }
    all
}

/// Processes that share the combinations out among them.
trait Crew {
    /// Number of this process, and of all.
    fn place(&self) -> (usize, usize);
    /// What each process has to say, at the first one; nothing at others.
    fn gather(&self, own: &str) -> Vec<String>;
}

/// What a process found.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Share {
    studies: Vec<FabricStudy>,
    events: u64,
    packet_hops: u64,
    fluid_flows: u64,
    /// Why there is nothing.
    failed: Option<String>,
}

/// Runs studies in turn on the processes, the n-th on process n modulo their number; all of what was found at the first
/// process, nothing at others.
fn crewed(
    studies: &[Study],
    fabric: &mut FabricRun,
    crew: &dyn Crew,
    stop: &Stop,
) -> Result<Vec<FabricStudy>, Failure> {
    let (own, all) = crew.place();
    let mine = studies.iter().skip(own).step_by(all);
    let mine: Vec<Study> = mine.cloned().collect();
    let mut counts = FabricRun::default();
    let found = study::run(&mine, &mut counts, stop);
    let stopped = stop.is_stopped().then(|| "stopped by the user".to_owned());
    let failed = found.as_ref().err().map(ToString::to_string).or(stopped);
    let share = Share {
        studies: found.unwrap_or_default(),
        events: counts.events,
        packet_hops: counts.packet_hops,
        fluid_flows: counts.fluid_flows,
        failed,
    };
    // The others wait for it in any case.
    let text = exact::text(&share).unwrap_or_default();
    let mut shares = Vec::new();
    for (process, text) in crew.gather(&text).iter().enumerate() {
        let wrong = |problem: String| Failure::check(format!("process {process}: {problem}"));
        let share: Share = exact::read(text).map_err(wrong)?;
        if let Some(problem) = share.failed {
            return Err(wrong(problem));
        }
        fabric.events += share.events;
        fabric.packet_hops += share.packet_hops;
        fabric.fluid_flows += share.fluid_flows;
        shares.push(share.studies.into_iter());
    }
    if shares.is_empty() {
        return Ok(Vec::new());
    }
    let next = |n: usize| shares[n % all].next();
    let found: Option<Vec<FabricStudy>> = (0..studies.len()).map(next).collect();
    found.ok_or_else(|| {
        Failure::check("a process ran other studies: have all the same file?".to_owned())
    })
}

/// Runs them all, on all cores at once, or on those of a crew: then what was found is the first process' alone.
fn run(sweep: &Sweep, crew: Option<&dyn Crew>, stop: &Stop) -> Result<Found, Failure> {
    let Sweep { file, axes, cases } = sweep;
    let mut fabric = FabricRun::default();
    if let Some(case) = cases
        .iter()
        .find(|c| file.studies.iter().all(|s| s.name != **c))
    {
        let names: Vec<&str> = file.studies.iter().map(|s| s.name.as_str()).collect();
        return Err(Failure::usage(format!(
            "there is no case '{case}'; this file has: {}",
            names.join(", ")
        )));
    }
    let combinations = combinations(axes);
    let mut studies: Vec<Study> = Vec::new();
    let mut lengths = Vec::new();
    for values in &combinations {
        let changed = file.with(values).map_err(|e| {
            let said: Vec<String> = values.iter().map(|(k, v)| format!("{k} = {v}")).collect();
            Failure::usage(format!("with {}: {e}", said.join(", ")))
        })?;
        let before = studies.len();
        let chosen = |s: &Study| cases.is_empty() || cases.contains(&s.name);
        studies.extend(changed.studies.into_iter().filter(chosen));
        lengths.push(studies.len() - before);
    }
    let found = match crew {
        Some(crew) => crewed(&studies, &mut fabric, crew, stop)?,
        None => study::run(&studies, &mut fabric, stop)?,
    };
    let mut found = found.into_iter();
    for (values, length) in combinations.into_iter().zip(lengths) {
        let of_it = found.by_ref().take(length);
        // Pictures of each would make a large page.
        let of_it = of_it.map(|mut study| {
            study.map = None;
            study.worst_step = None;
            study
        });
        fabric.settings.push(FabricSetting {
            values: values
                .into_iter()
                .map(|(key, value)| [key, value.trim_matches('"').to_owned()])
                .collect(),
            studies: of_it.collect(),
        });
    }
    Ok((fabric, Vec::new()))
}

/// The last part of a dotted key.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Best and worst combination.
pub(crate) fn verdict(fabric: &FabricRun) -> Verdict {
    // Rates are not compared with latencies: what the first case counts.
    let first = fabric.settings.first().and_then(|s| s.studies.first());
    let counts = first.map_or("", |s| s.counts.as_str());
    let mut all: Vec<(f64, String, String)> = Vec::new();
    for setting in &fabric.settings {
        for study in setting.studies.iter().filter(|s| s.counts == counts) {
            let Some(last) = study.points.last() else {
                continue;
            };
            let values: Vec<String> = setting
                .values
                .iter()
                .map(|[k, v]| format!("{} {v}", short(k)))
                .collect();
            let (score, said) = match (study.counts.as_str(), last.latency_ns, last.lost_shares) {
                ("latency", Some([_, ns, _]), _) => (-ns, format!("{:.2} us", ns / 1e3)),
                (_, _, Some([lost, _])) => (-lost, format!("{:.0} % lost", lost * 100.0)),
                _ => {
                    let share = last.average_share_of_peak;
                    (
                        share,
                        format!("{:.0} % of the best on the average", share * 100.0),
                    )
                }
            };
            let name = match setting.studies.len() {
                1 => values.join(", "),
                _ => format!("{}, {}", values.join(", "), study.name),
            };
            all.push((score, name, said));
        }
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (Some(best), Some(worst)) = (all.first(), all.last()) else {
        return Verdict::default();
    };
    Verdict {
        sentence: format!(
            "In the model, of {} combinations the best is {}: {}; the worst is {}: {}.",
            all.len(),
            best.1,
            best.2,
            worst.1,
            worst.2
        ),
        conclusive: true,
        healthy: true,
        ..Verdict::default()
    }
}

const COMBINATIONS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_lists_and_ranges() {
        let seeds = axis("topology.seed=1..3").unwrap();
        assert_eq!(seeds.values, ["1", "2", "3"]);
        let sizes = axis("traffic.message=64KiB,1MiB").unwrap();
        assert_eq!(sizes.values, ["\"64KiB\"", "\"1MiB\""]);
        let all = combinations(&[seeds, sizes]);
        assert_eq!(all.len(), 6);
        assert_eq!(all[1][1].1, "\"1MiB\"");
        assert_eq!(all[2][0].1, "2");
        for bad in ["", "a", "=1", "a=", "a=1,,2"] {
            assert_eq!(axis(bad), None, "{bad}");
        }
    }
}
