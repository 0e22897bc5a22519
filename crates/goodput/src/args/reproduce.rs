//! `goodput reproduce`: the scoreboard, and running its rows as if their steps had been typed.

use std::path::{Path, PathBuf};

use clap::Args;
use fault::{Failure, Verdict};
use job::Context;
use reproduce::{Board, Done, NoRun, RunStep, Runner, STATE_FILE, State, Status};
use serde::Serialize;

use crate::args::copy::{self, CopyArgs};
use crate::args::explain::{self, ExplainArgs};
use crate::args::fabric::{self, FabricArgs};
use crate::args::gateway::{self, GatewayArgs};
use crate::args::lab::{self, LabArgs};
use crate::args::measure;
use crate::args::rotate::{self, RotateArgs};
use crate::args::sim::{self, SimArgs};
use crate::args::tune::{self, TuneArgs};
use crate::print;

#[derive(Clone, Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// Row to run, such as N1
    pub(crate) id: Option<String>,
    /// Show the row instead of running it
    #[arg(long, requires = "id")]
    pub(crate) show: bool,
    /// Folder with the runs and the board's state
    #[arg(long, value_name = "DIR", default_value = "runs", env = "GOODPUT_RUNS")]
    pub(crate) runs: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const REPRODUCE_EXAMPLES: &str = "\
Examples:
  goodput reproduce                           where all 47 rows stand
  goodput reproduce N1 --show                 what a row compares
  goodput reproduce N1                        run it";

/// Shows the board or a row, or runs a row.
pub(crate) fn run(args: &ReproduceArgs, context: &Context) -> Verdict {
    let board = Board::embedded().map_err(Failure::here)?;
    let file = args.runs.join(STATE_FILE);
    let Some(id) = &args.id else {
        print::reproduce::board(&board, &read(&file), args.json)?;
        return Ok(fault::DONE);
    };
    let row = board.row(id).map_err(Failure::usage)?;
    let mut code = fault::DONE;
    let mut state = read(&file);
    if !args.show {
        let mut runner = Typed {
            runs: &args.runs,
            context,
        };
        let ran = reproduce::run(row, &args.runs, context, &mut runner)?;
        state = ran.state;
        code = match ran.status {
            Status::Green => fault::DONE,
            _ => fault::CHECK_FAILED,
        };
    }
    print::reproduce::row(row, &state, args.json)?;
    Ok(code)
}

fn read(file: &Path) -> State {
    let state = State::read(file);
    if let Some(warning) = &state.warning {
        print::note(warning);
    }
    state
}

/// Runs steps as if their commands had been typed.
struct Typed<'a> {
    runs: &'a Path,
    context: &'a Context,
}

impl Runner for Typed<'_> {
    fn begins(&mut self, step: &RunStep) {
        print::note(format_args!("{}: {}", step.name, step.command()));
    }

    fn run(&mut self, step: &RunStep) -> Result<Done, NoRun> {
        let (runs, words, context) = (self.runs, &step.args, self.context);
        match step.verb.as_str() {
            "lab" => {
                let args: LabArgs = parse(words)?;
                kept(lab::check(&args, runs, &context.stop).map(|c| (c.found, c.folder)))
            }
            "gateway" => {
                let args: GatewayArgs = parse(words)?;
                kept(gateway::step(&args, runs, context))
            }
            "fabric" => {
                let args: FabricArgs = parse(words)?;
                done(fabric::step(&args, runs, context))
            }
            "copy" => {
                let args: CopyArgs = parse(words)?;
                done(copy::step(&args, runs, context))
            }
            "rotate" => {
                let args: RotateArgs = parse(words)?;
                done(rotate::step(&args, runs, context))
            }
            "explain" => {
                let mut args: ExplainArgs = parse(words)?;
                args.runs = runs.to_owned();
                kept(explain::perform(&args, context).map(|e| (e.run, e.folder)))
            }
            "tune" => {
                let args: TuneArgs = parse(words)?;
                done(tune::step(&args, runs, context))
            }
            "sim" => {
                let mut args: SimArgs = parse(words)?;
                args.runs = runs.to_owned();
                kept(sim::perform(&args, context).map(|s| (s.run, s.folder)))
            }
            verb @ ("doctor" | "measure") => {
                let finished = measure::step(verb, words, runs, context)?;
                kept(Ok((finished.run, finished.folder)))
            }
            verb => Err(format!("the verb {verb} cannot be run by reproduce yet").into()),
        }
    }
}

/// What a verb found and where it has kept it, if it has.
fn done(ended: Result<(impl Serialize, Option<PathBuf>), Failure>) -> Result<Done, NoRun> {
    let (run, folder) = ended.map_err(|failure| failure.to_string())?;
    let run = serde_json::to_value(run).map_err(|e| e.to_string())?;
    Ok(Done { run, folder })
}

/// [`done`] of a verb that always keeps it.
fn kept(ended: Result<(impl Serialize, PathBuf), Failure>) -> Result<Done, NoRun> {
    done(ended.map(|(run, folder)| (run, Some(folder))))
}

/// Reads the words of a verb's step.
pub(crate) fn parse<A: Args>(words: &[String]) -> Result<A, String> {
    let command = A::augment_args(clap::Command::new("step").no_binary_name(true));
    let matches = command
        .try_get_matches_from(words)
        .map_err(|e| e.to_string())?;
    A::from_arg_matches(&matches).map_err(|e| e.to_string())
}
