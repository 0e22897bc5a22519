//! `goodput reproduce`: the scoreboard, and running its rows.

use serde_json::Value;

use crate::board::{self, Board, Made, NoRun, Runner, State};
use crate::cli::{DoctorArgs, ExplainArgs, MeasureArgs, ReproduceArgs, TestArgs};
use crate::context::{self, Context};
use crate::copy_verb::{self, CopyArgs};
use crate::doctor::{self, Plan};
use crate::explain_verb;
use crate::fabric_verb::{self, FabricArgs};
use crate::failure::{self, Failure, Verdict};
use crate::gateway_verb::{self, GatewayArgs};
use crate::guest;
use crate::lab_verb::{self, LabArgs};
use crate::record;
use crate::rotate_verb::{self, RotateArgs};
use crate::sim_verb::{self, SimArgs};
use crate::sweep;

/// Shows the board or a row, or runs a row.
pub(crate) fn command(args: &ReproduceArgs, context: &Context) -> Verdict {
    let board = Board::embedded().map_err(Failure::here)?;
    let file = args.runs.join("board.json");
    let (color, width) = (context::color(), context::width());
    let Some(id) = &args.id else {
        let state = read(&file);
        if args.json {
            context::print_json(&board::board_json(&board, &state))?;
        } else {
            context::print_colored(&board::render(&board, &state, color, width))?;
        }
        return Ok(failure::DONE);
    };
    let row = board
        .row(id)
        .map_err(|e| Failure::usage(anyhow::anyhow!("{e}")))?;
    let mut code = failure::DONE;
    let mut state = read(&file);
    if !args.show {
        if row.steps.is_empty() {
            let missing = row
                .not_yet
                .as_deref()
                .unwrap_or("nothing can be run for it yet");
            return Err(Failure::check(format!(
                "{} cannot be run yet: {missing}",
                row.id
            )));
        }
        let mut runner = Steps {
            args,
            context,
            folders: Vec::new(),
        };
        let runs = board::run_steps(row, &mut runner);
        if let Some(code) = context.interrupted() {
            return Err(Failure::interrupted(code));
        }
        let made = Made {
            finished_utc: record::now_utc(),
            run_folder: Some(runner.folders.join(" ")),
            goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        state = State::record(&file, board::judge(row, &runs, made))
            .map_err(|e| Failure::here(anyhow::anyhow!("cannot write {}: {e}", file.display())))?;
        let (status, _) = board::status(row, &state);
        code = if status == board::Status::Green {
            failure::DONE
        } else {
            failure::CHECK_FAILED
        };
    }
    if args.json {
        context::print_json(&board::row_json(row, &state))?;
    } else {
        context::print_colored(&board::render_row(row, &state, color, width))?;
    }
    Ok(code)
}

fn read(file: &std::path::Path) -> State {
    let state = State::read(file);
    if let Some(warning) = &state.warning {
        context::note(warning);
    }
    state
}

/// Runs steps as if their commands had been typed.
struct Steps<'a> {
    args: &'a ReproduceArgs,
    context: &'a Context,
    folders: Vec<String>,
}

impl Runner for Steps<'_> {
    fn run(&mut self, step: &board::RunStep) -> Result<Value, NoRun> {
        if self.context.interrupted().is_some() {
            return Err("stopped by the user".into());
        }
        context::note(format_args!("{}: {}", step.name, step.command()));
        if step.verb == board::GUEST {
            let folder = guest::folder(&self.args.runs, &step.name)?;
            self.folders.push(folder.display().to_string());
            return guest::run(&step.args, &folder);
        }
        if step.verb == "lab" {
            let args: LabArgs = parse(&step.args)?;
            let done = lab_verb::check(&args, &self.args.runs, &self.context.stop);
            let (found, folder) = done.map_err(|f| f.to_string())?;
            self.folders.push(folder.display().to_string());
            return Ok(found);
        }
        if step.verb == "gateway" {
            let args: GatewayArgs = parse(&step.args)?;
            let done = gateway_verb::step(&args, &self.args.runs, self.context);
            let (found, folder) = done.map_err(|f| f.to_string())?;
            self.folders.push(folder.display().to_string());
            return Ok(found);
        }
        if step.verb == "explain" {
            let args = ExplainArgs {
                runs: self.args.runs.clone(),
                ..parse(&step.args)?
            };
            let done = explain_verb::perform(&args, self.context);
            let explained = done.map_err(|f| f.to_string())?;
            self.folders.push(explained.folder.display().to_string());
            return serde_json::to_value(&explained.run).map_err(|e| e.to_string().into());
        }
        if step.verb == "sim" {
            let args = SimArgs {
                runs: self.args.runs.clone(),
                ..parse(&step.args)?
            };
            let done = sim_verb::perform(&args, self.context).map_err(|f| f.to_string())?;
            self.folders.push(done.folder.display().to_string());
            return serde_json::to_value(&done.run).map_err(|e| e.to_string().into());
        }
        if step.verb == "fabric" {
            let args: FabricArgs = parse(&step.args)?;
            let done = fabric_verb::step(&args, &self.args.runs, self.context);
            let (found, folder) = done.map_err(|f| f.to_string())?;
            self.folders.extend(folder.map(|f| f.display().to_string()));
            return Ok(found);
        }
        if step.verb == "copy" {
            let args: CopyArgs = parse(&step.args)?;
            let done = copy_verb::step(&args, &self.args.runs, self.context);
            let (found, folder) = done.map_err(|f| f.to_string())?;
            self.folders.extend(folder.map(|f| f.display().to_string()));
            return Ok(found);
        }
        if step.verb == "rotate" {
            let args: RotateArgs = parse(&step.args)?;
            let done = rotate_verb::step(&args, &self.args.runs, self.context);
            let (found, folder) = done.map_err(|f| f.to_string())?;
            self.folders.extend(folder.map(|f| f.display().to_string()));
            return Ok(found);
        }
        let (fix, mut transfer, test) = match step.verb.as_str() {
            "doctor" => {
                let args: DoctorArgs = parse(&step.args)?;
                (!args.no_fix, args.transfer, TestArgs::default())
            }
            "measure" => {
                let mut args: MeasureArgs = parse(&step.args)?;
                if !args.sweep.is_empty() {
                    args.transfer.runs.clone_from(&self.args.runs);
                    let done = sweep::perform(&args, self.context);
                    let (run, folder) = done.map_err(|f| f.to_string())?;
                    self.folders.push(folder.display().to_string());
                    return serde_json::to_value(&run).map_err(|e| e.to_string().into());
                }
                (false, args.transfer, args.test)
            }
            verb => return Err(format!("the verb {verb} cannot be run by reproduce yet").into()),
        };
        transfer.runs.clone_from(&self.args.runs);
        let plan = Plan {
            verb: &step.verb,
            args: &transfer,
            test: &test,
            fix,
            latency: false,
        };
        let finished = doctor::perform(plan, self.context).map_err(|f| f.to_string())?;
        self.folders.push(finished.folder.display().to_string());
        serde_json::to_value(&finished.run).map_err(|e| e.to_string().into())
    }
}

pub(crate) fn parse<A: clap::Args>(words: &[String]) -> Result<A, String> {
    let command = A::augment_args(clap::Command::new("step").no_binary_name(true));
    let matches = command
        .try_get_matches_from(words)
        .map_err(|e| e.to_string())?;
    A::from_arg_matches(&matches).map_err(|e| e.to_string())
}
