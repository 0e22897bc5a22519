//! A path file in virtual time.
//!
//! The same file as the lab runs, through the same link machines, with TCP endpoints of our own in
//! place of kernels. It leaves a run folder like `measure`'s, so that `goodput report` lays both side by side.

mod capture;
mod cells;
mod course;
mod facts;
mod judge;
mod plan;
mod words;

use std::path::PathBuf;

use fault::Failure;
use job::{Context, Target, record};
use lab::PathFile;
use report::RunFolder;
use report::model::{FindingRecord, Phase, Run};
use report::settling;
use units::Duration;

use self::cells::Cell;
use self::course::{Course, Outcome};
pub use self::plan::Plan;
pub use self::words::pacing;
pub use lab::model::PacingWish;
use lab::model::{self, Planned};
pub use tcp::Hystart;

/// A finished run.
#[derive(Debug)]
pub struct Simulated {
    /// The run as the folder has it, with a phase for each simulation.
    pub run: Run,
    /// What limited each, where that was asked.
    pub findings: Vec<FindingRecord>,
    /// The run folder.
    pub folder: PathBuf,
    /// Packets of all its simulations.
    pub packets: u64,
    /// Time that they took.
    pub wall: std::time::Duration,
    /// Virtual time of all of them.
    pub time: Duration,
}

/// Simulates a path file, once for each combination of what the plan varies, and keeps the run.
///
/// ```no_run
/// use analyse::sim::{self, Plan};
/// use job::Target;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// if let Target::Lab(path) = Target::parse(Some("lab:healthy-1g-20ms"))? {
///     let context = job::Context::start(|| ())?;
///     let done = sim::simulate(&Plan::of(path, "runs".into()), &context)?;
///     println!("{} packets", done.packets);
/// }
/// # Ok(())
/// # }
/// ```
pub fn simulate(plan: &Plan, context: &Context) -> Result<Simulated, Failure> {
    let path = &between(plan)?;
    let cells = cells::cells(plan, path)?;
    // All are looked at before the first one runs.
    for cell in &cells {
        model::plan(path, &cell.wishes)?;
    }
    let planned = model::plan(path, &cells[0].wishes)?;
    let (time, ramp) = times(plan, path)?;
    let target = Target::Lab(plan.path.clone());
    let mut run = record::begin("sim", &target, context);
    run.seed = plan.seed.or(run.seed);
    run.path = Some(facts::path_facts(path, &planned, plan.queue.len() <= 1));
    let mut all = Simulations {
        plan,
        path,
        context,
        time,
        ramp,
        folder: RunFolder::create(&plan.runs, "sim", &target.name(), run.clone())?,
        run,
        findings: Vec::new(),
        packets: 0,
        wall: std::time::Duration::ZERO,
    };
    let result = all.of_all(&cells);
    all.end(result, cells.len() as u64)
}

/// The path with the ends that were asked for.
fn between(plan: &Plan) -> Result<PathFile, Failure> {
    let path = &plan.path;
    let named = |name: &str| {
        let place = path.network.hosts.iter().position(|h| h.name == name);
        place.ok_or_else(|| Failure::usage(format!("the path file has no host '{name}'")))
    };
    let from = plan.from.as_deref().map(named).transpose()?;
    let to = plan.to.as_deref().map(named).transpose()?;
    let (from, to) = (
        from.unwrap_or(path.transfer.from),
        to.unwrap_or(path.transfer.to),
    );
    path.between(from, to).map_err(Failure::usage)
}

/// How long data is sent, and how much of that is left out of the headline number.
fn times(plan: &Plan, path: &PathFile) -> Result<(Duration, Duration), Failure> {
    let time = plan.time.unwrap_or(path.transfer.duration);
    let ramp = match (plan.ramp, plan.time) {
        (Some(ramp), _) => ramp,
        (None, None) => path.transfer.ramp,
        (None, Some(time)) => path.transfer.ramp.min(Duration::from_ns(time.as_ns() / 5)),
    };
    if ramp >= time || plan.every == Duration::ZERO {
        return Err(Failure::usage(
            "the ramp must be shorter than the time, and samples some time apart",
        ));
    }
    Ok((time, ramp))
}

/// The simulations of a run, one after the other.
struct Simulations<'a> {
    plan: &'a Plan,
    path: &'a PathFile,
    context: &'a Context,
    time: Duration,
    ramp: Duration,
    folder: RunFolder,
    run: Run,
    findings: Vec<FindingRecord>,
    packets: u64,
    wall: std::time::Duration,
}

impl Simulations<'_> {
    fn of_all(&mut self, cells: &[Cell]) -> Result<(), Failure> {
        let mut lasts = None;
        for cell in cells {
            let planned = model::plan(self.path, &cell.wishes)?;
            let Some(outcome) = self.of_one(cell, &planned)? else {
                break;
            };
            self.run.gap_threshold = facts::threshold(&self.run.phases, &planned);
            self.packets += outcome.packets;
            self.wall += outcome.wall;
            lasts = Some(outcome);
        }
        if !self.plan.explain {
            self.run.verdict = lasts.map(|last| facts::verdict(&self.run, &last));
        }
        Ok(())
    }

    /// Adds one to the run; none where the user asked to stop.
    fn of_one(&mut self, cell: &Cell, planned: &Planned) -> Result<Option<Outcome>, Failure> {
        let course = Course {
            name: &cell.name,
            time: self.time,
            ramp: self.ramp,
            every: self.plan.every,
            capture: self.plan.capture,
            finds: (cell.wishes.pacing == PacingWish::Auto).then(|| self.plan.seed.unwrap_or(1)),
            settles: cell.wishes.pacing != PacingWish::Off,
            explains: self.plan.explain,
        };
        let outcome = course.run(planned, self.context, Some(&mut self.folder))?;
        if self.context.interrupted().is_some() {
            return Ok(None);
        }
        let mut phase = facts::phase(self.path, cell, planned, &outcome, self.time, self.ramp);
        phase.settling = match (&outcome.kept, &self.run.path) {
            (Some(kept), Some(path)) => settling::of(kept, &cell.name, record::known(path)),
            _ => None,
        };
        self.write_capture(cell, planned, &outcome, &mut phase)?;
        if self.plan.explain {
            self.judge(cell, planned, &outcome, &course, &mut phase)?;
        }
        self.run.phases.push(phase);
        Ok(Some(outcome))
    }

    /// The capture, if one was asked for, and how its packets are spaced.
    fn write_capture(
        &self,
        cell: &Cell,
        planned: &Planned,
        outcome: &Outcome,
        phase: &mut Phase,
    ) -> Result<(), Failure> {
        let (Some(model), Some(passed)) = (&mut phase.model, &outcome.passed) else {
            return Ok(());
        };
        let name = cell.name.replace([' ', ',', '/'], "-");
        if passed.len() >= course::PASSED_MAX {
            phase.notes.push(format!(
                "The capture ends after {} packets, before the time that was asked for",
                course::PASSED_MAX
            ));
        }
        let file = self.folder.path().join(format!("{name}.pcapng"));
        capture::write(&file, passed, planned)?;
        let asked = model.gap_octets;
        let spacing = capture::spacing(passed, planned, asked);
        model.spacing.push(spacing);
        if self.plan.tshark {
            let theirs = capture::by_tshark(&file, planned, asked)?;
            model.spacing.push(theirs);
        }
        Ok(())
    }

    /// What limited it, by the rules of `doctor`.
    fn judge(
        &mut self,
        cell: &Cell,
        planned: &Planned,
        outcome: &Outcome,
        course: &Course<'_>,
        phase: &mut Phase,
    ) -> Result<(), Failure> {
        let (diagnosis, probes) =
            judge::diagnose(self.path, cell, planned, outcome, course, self.context)?;
        self.findings
            .extend(record::findings(&cell.name, &diagnosis.findings));
        phase.probes = probes.iter().map(record::probe).collect();
        if let (Some(model), Some(opening)) = (&mut phase.model, diagnosis.facts.opening) {
            model.segments_per_ack = Some(opening.segments_per_ack);
            model.window_growth = Some(opening.growth);
            model.window_growth_by_acks = Some(opening.growth_by_acks);
        }
        self.run.verdict = Some(record::verdict(&diagnosis.verdict, &diagnosis.findings));
        Ok(())
    }

    /// Ends the run and its folder.
    fn end(mut self, result: Result<(), Failure>, cells: u64) -> Result<Simulated, Failure> {
        record::end_as(&mut self.run, &result, self.context);
        let folder = self.folder.path().to_owned();
        let kept = self.folder.finish(&self.run, &self.findings);
        if let Some(code) = self.context.interrupted() {
            return Err(Failure::interrupted(code));
        }
        result?;
        kept?;
        Ok(Simulated {
            run: self.run,
            findings: self.findings,
            folder,
            packets: self.packets,
            wall: self.wall,
            time: self.time.saturating_mul(cells),
        })
    }
}
