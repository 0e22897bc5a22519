//! Running a row: its steps, their judgement, and the board's state afterwards.

use std::path::Path;

use fault::Failure;
use job::Context;
use serde_json::Value;

use crate::board::{Made, Status, judge, run_steps, status};
use crate::experiment::{Experiment, GUEST, RunStep};
use crate::runner::{NoRun, Runner};
use crate::state::State;

/// A row that was run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The board's state with the row's result.
    pub state: State,
    /// Where the row stands now.
    pub status: Status,
}

/// The board's state, in the folder of the runs.
pub const STATE_FILE: &str = "board.json";

/// Runs the steps of `row`, judges them and keeps the result in [`STATE_FILE`] below `runs`.
///
/// # Errors
/// The row cannot be run yet, the user stopped it, or the state cannot be written.
///
/// # Examples
///
/// ```no_run
/// use reproduce::{Board, Done, NoRun, RunStep, Runner, Status};
///
/// struct Nobody;
///
/// impl Runner for Nobody {
///     fn run(&mut self, step: &RunStep) -> Result<Done, NoRun> {
///         Err(NoRun::Lacking(format!("nobody who can {}", step.command())))
///     }
/// }
///
/// let board = Board::embedded()?;
/// let context = job::Context::start(|| ())?;
/// let ran = reproduce::run(board.row("N1")?, "runs".as_ref(), &context, &mut Nobody)?;
/// assert_eq!(ran.status, Status::Amber);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(
    row: &Experiment,
    runs: &Path,
    context: &Context,
    runner: &mut dyn Runner,
) -> Result<Ran, Failure> {
    if row.steps.is_empty() {
        let missing = row.not_yet.as_deref();
        let missing = missing.unwrap_or("nothing can be run for it yet");
        let id = &row.id;
        return Err(Failure::check(format!("{id} cannot be run yet: {missing}")));
    }
    let mut folders = Vec::new();
    let results = run_steps(row, &mut |step| {
        if context.interrupted().is_some() {
            return Err("stopped by the user".into());
        }
        runner.begins(step);
        if step.verb == GUEST {
            return in_guest(step, runs, &mut folders);
        }
        let done = runner.run(step)?;
        folders.extend(done.folder.map(|f| f.display().to_string()));
        Ok(done.run)
    });
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    let made = Made {
        finished_utc: job::record::now_utc(),
        run_folder: Some(folders.join(" ")),
        goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let file = runs.join(STATE_FILE);
    let state = State::record(&file, judge(row, &results, made))
        .map_err(|e| Failure::here(format!("cannot write {}: {e}", file.display())))?;
    let (status, _) = status(row, &state);
    Ok(Ran { state, status })
}

/// Runs a step of the virtual machine, whose folder is kept whatever comes of it.
#[cfg(feature = "guest")]
fn in_guest(step: &RunStep, runs: &Path, folders: &mut Vec<String>) -> Result<Value, NoRun> {
    let folder = crate::guest::folder(runs, &step.name)?;
    folders.push(folder.display().to_string());
    crate::guest::run(&step.args, &folder)
}

#[cfg(not(feature = "guest"))]
fn in_guest(_: &RunStep, _: &Path, _: &mut Vec<String>) -> Result<Value, NoRun> {
    let why = "this goodput was built without the feature guest";
    Err(NoRun::Lacking(why.to_owned()))
}
