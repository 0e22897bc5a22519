//! A fabric file through all its cases: curves between two hosts, patterns of many, and what bounds each.

use fault::Failure;
use measure::Stop;
use run::model::{FabricRun, FindingRecord, Verdict};

use crate::numbers::{megabytes, share};
use crate::{FabricFile, bound, curves, shared, study, vary};

/// Another simulator that runs some of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulator {
    /// ns-3; needs g++ and its headers.
    Ns3,
}

/// What came of a file, and what was found in it.
pub type Found = (FabricRun, Vec<FindingRecord>);

/// Runs every case until `stop` is raised; `observer` runs what it can of the same.
///
/// # Errors
/// A case cannot be built or never ends, or the other simulator fails.
///
/// ```no_run
/// let file = cluster::built_in::find("ornl-ddr-switch", None)?;
/// let (run, findings) = cluster::simulate::run(&file, None, &measure::Stop::new())?;
/// println!("{}", cluster::simulate::verdict(&run, &findings).sentence);
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn run(file: &FabricFile, observer: Option<Simulator>, stop: &Stop) -> Result<Found, Failure> {
    let mut fabric = FabricRun::default();
    let mut findings = Vec::new();
    fabric.studies = study::run(&file.studies, &mut fabric, stop)?;
    if let Some(Simulator::Ns3) = observer
        && !stop.is_stopped()
    {
        study::observed::ns3(&file.studies, &mut fabric.studies)?;
    }
    for (study, found) in file.studies.iter().zip(&fabric.studies.clone()) {
        findings.extend(shared::failed(found));
        findings.extend(shared::of(study, found, &mut fabric, stop)?);
    }
    for case in &file.cases {
        for transport in &case.traffic.transports {
            if stop.is_stopped() {
                return Ok((fabric, findings));
            }
            let mut curve = curves::curve(case, *transport, &mut fabric, stop)?;
            let first = fabric
                .curves
                .iter()
                .find(|c| c.transport == curve.transport);
            let first = first.map_or(curve.peak_bits_per_second, |c| c.peak_bits_per_second);
            curve.below_first_bits_per_second = first.saturating_sub(curve.peak_bits_per_second);
            curve.share_of_first = share(curve.peak_bits_per_second, first);
            findings.extend(bound::of(case, *transport, &curve));
            fabric.names_off_scheme += u32::from(curve.scheme.is_empty());
            fabric.curves.push(curve);
        }
    }
    Ok((fabric, findings))
}

/// What came of a run, in a sentence.
pub fn verdict(fabric: &FabricRun, findings: &[FindingRecord]) -> Verdict {
    if !fabric.settings.is_empty() {
        return vary::verdict(fabric);
    }
    if !fabric.studies.is_empty() {
        return shared::verdict(fabric, findings);
    }
    let curves = fabric.curves.iter();
    let slowest = curves.min_by(|a, b| a.share_of_first.total_cmp(&b.share_of_first));
    let Some(curve) = slowest.filter(|c| c.share_of_first < bound::SHARE_MAX) else {
        let least = slowest.map_or(1.0, |c| c.share_of_first);
        return Verdict {
            sentence: format!(
                "In the model every case carries what the first of its transport does, within {:.1} %.",
                (1.0 - least) * 100.0
            ),
            conclusive: true,
            healthy: true,
            ..Verdict::default()
        };
    };
    let finding = findings.iter().find(|f| f.phase == curve.name);
    let why = finding.map_or_else(|| curve.limit.clone(), |f| f.title.clone());
    Verdict {
        sentence: format!(
            "In the model {} carries {:.0} MB/s, {:.0} less than the first: {why}",
            curve.name,
            megabytes(curve.peak_bits_per_second),
            megabytes(curve.below_first_bits_per_second),
        ),
        cause: finding.map(|f| f.cause.clone()),
        conclusive: true,
        ..Verdict::default()
    }
}
