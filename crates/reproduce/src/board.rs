//! All rows of the scoreboard, and how a row that ran is judged.
//!
//! The files are part of the binary. A folder `experiments` where the command is typed changes
//! nothing: a board that anyone's folder can recolour proves nothing.
//!
//! A row is green only when every check passed and everyone whom it names as observer passed one.
//! What could not be judged is amber, and so is a step for which this machine lacks something; what
//! failed or cannot be run yet is red.
//!
//! Left out: running anything ([`crate::run`] does) and telling the time.

use std::fmt;

use serde_json::Value;

use crate::check::{self, CheckOutcome};
use crate::embedded;
use crate::experiment::{Experiment, ExperimentError, RunStep};
use crate::runner::NoRun;
use crate::state::{Outcome, RowResult, State};

/// All rows, in the order of the documents.
#[derive(Clone, Debug)]
pub struct Board {
    rows: Vec<Experiment>,
}

/// Circumstances of a run that only the caller knows.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// When it ended, RFC 3339 UTC.
    pub finished_utc: String,
    /// Where the evidence lies.
    pub run_folder: Option<String>,
    /// The goodput that ran it.
    pub goodput_version: String,
}

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Every check passed, judged by everyone named.
    Green,
    /// Ran, but not everything could be judged, or the row has changed since.
    Amber,
    /// Ran, and a check failed or a step did not run.
    Failed,
    /// Can be run; has not been here.
    NotRun,
    /// Cannot be run yet.
    NotYet,
}

impl Status {
    /// The name on the board and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Amber => "amber",
            Self::Failed => "red: failed",
            Self::NotRun => "red: not run",
            Self::NotYet => "red: not yet",
        }
    }
}

/// The id that no row has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRow(String);

impl fmt::Display for UnknownRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no experiment '{}'; the rows are C1..C8, T1..T14, N1..N10, O1..O7 and S1..S8 \
             (goodput reproduce lists them)",
            self.0
        )
    }
}

impl std::error::Error for UnknownRow {}

impl Board {
    /// The board that this binary carries.
    pub fn embedded() -> Result<Self, ExperimentError> {
        Self::parse(embedded::FILES.iter().copied())
    }

    /// A board out of names and texts of files, in their order.
    pub fn parse<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ExperimentError> {
        let rows = files
            .into_iter()
            .map(|(file, text)| Experiment::parse(file, text));
        Ok(Self {
            rows: rows.collect::<Result<_, _>>()?,
        })
    }

    /// All rows.
    pub fn rows(&self) -> &[Experiment] {
        &self.rows
    }

    /// The row of that id, in either case.
    pub fn row(&self, id: &str) -> Result<&Experiment, UnknownRow> {
        let found = self
            .rows
            .iter()
            .find(|row| row.id.eq_ignore_ascii_case(id.trim()));
        found.ok_or_else(|| UnknownRow(id.to_owned()))
    }
}

/// Runs all steps of a row. A step that fails does not keep the next from running: each stands for
/// another statement of the document.
pub fn run_steps(
    row: &Experiment,
    run: &mut dyn FnMut(&RunStep) -> Result<Value, NoRun>,
) -> Vec<Result<Value, NoRun>> {
    row.steps.iter().map(run).collect()
}

/// Judges a row by what its steps gave, in their order.
pub fn judge(row: &Experiment, runs: &[Result<Value, NoRun>], made: Made) -> RowResult {
    let mut checks = Vec::new();
    let mut errors = Vec::new();
    for (index, step) in row.steps.iter().enumerate() {
        match runs.get(index) {
            Some(Err(NoRun::Failed(why))) => {
                errors.push(format!("{} ({}): {why}", step.name, step.command()));
            }
            None => errors.push(format!(
                "{} ({}): it was not started",
                step.name,
                step.command()
            )),
            _ => {}
        }
        checks.extend(check::judge_step(row, index, check::Runs::new(runs)));
    }
    let any = |outcome| checks.iter().any(|c| !c.premise && c.outcome == outcome);
    let all_passed = checks.iter().all(|c| c.outcome == CheckOutcome::Passed);
    let judged = row.ours.observer.iter().all(|name| {
        checks
            .iter()
            .any(|c| c.observer == *name && c.outcome == CheckOutcome::Passed)
    });
    let outcome = if !errors.is_empty() || any(CheckOutcome::Failed) {
        Outcome::Failed
    } else if all_passed && judged && !checks.is_empty() && row.lacks.is_none() {
        Outcome::Green
    } else {
        Outcome::Amber
    };
    RowResult {
        id: row.id.clone(),
        outcome,
        finished_utc: made.finished_utc,
        run_folder: made.run_folder,
        goodput_version: made.goodput_version,
        row_digest: row.digest.clone(),
        errors,
        checks,
    }
}

/// Where a row stands, and why where that needs saying.
pub fn status(row: &Experiment, state: &State) -> (Status, Option<String>) {
    if let Some(missing) = &row.not_yet {
        return (Status::NotYet, Some(missing.clone()));
    }
    let Some(result) = state.latest(&row.id) else {
        return (
            Status::NotRun,
            Some("has not been run on this machine".to_owned()),
        );
    };
    if result.row_digest != row.digest {
        let why = "the experiment file has changed since it was run; run it again";
        return (Status::Amber, Some(why.to_owned()));
    }
    match result.outcome {
        Outcome::Green => (Status::Green, None),
        Outcome::Amber => {
            let missing = result
                .checks
                .iter()
                .any(|c| c.outcome == CheckOutcome::Missing);
            let lacks = row.lacks.clone().filter(|_| !missing);
            let why = lacks.unwrap_or_else(|| first_note(result, CheckOutcome::Missing));
            (Status::Amber, Some(why))
        }
        Outcome::Failed => (
            Status::Failed,
            Some(first_note(result, CheckOutcome::Failed)),
        ),
    }
}

/// The first thing that kept a result from being green.
fn first_note(result: &RowResult, outcome: CheckOutcome) -> String {
    if let Some(error) = result.errors.first() {
        return error.clone();
    }
    let mut checks = result.checks.iter();
    let first = if outcome == CheckOutcome::Failed {
        checks.find(|c| !c.premise && c.outcome == outcome)
    } else {
        let premise = checks
            .clone()
            .find(|c| c.premise && c.outcome != CheckOutcome::Passed);
        premise.or_else(|| checks.find(|c| c.outcome == outcome))
    };
    let Some(check) = first else {
        return "an observer that the row names judged nothing".to_owned();
    };
    match &check.note {
        Some(note) => format!("{}, {}: {note}", check.step, check.name),
        None => format!(
            "{}, {}: {}, wanted {}",
            check.step, check.name, check.ours, check.wanted
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::experiment::{DocumentValue, Sure, seed_of};

    fn board() -> Board {
        Board::embedded().unwrap_or_else(|error| panic!("{error}"))
    }

    fn sample() -> Experiment {
        Experiment::parse("N1.toml", include_str!("testdata/row.toml")).unwrap()
    }

    fn sample_run(goodput: u64) -> Value {
        json!({"phases": [{
            "name": "before",
            "certificate": {"trusted": true},
            "goodput_bits_per_second": goodput,
            "observers": [{"tool": "iperf 3.12", "goodput_bits_per_second": goodput}],
        }]})
    }

    #[test]
    fn the_board_has_the_47_rows_in_their_order_each_once() {
        let expected: Vec<String> = [('C', 8), ('T', 14), ('N', 10), ('O', 7), ('S', 8)]
            .iter()
            .flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")))
            .collect();
        let ids: Vec<_> = board().rows().iter().map(|row| row.id.clone()).collect();
        assert_eq!(ids, expected);
        assert_eq!(ids.len(), 47);
    }

    #[test]
    fn the_folder_and_the_embedded_list_agree() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments"));
        let mut on_disk: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".toml"))
            .map(|name| format!("experiments/{name}"))
            .collect();
        on_disk.sort();
        let mut embedded: Vec<_> = embedded::FILES.iter().map(|(name, _)| *name).collect();
        embedded.sort_unstable();
        assert_eq!(on_disk, embedded);
    }

    #[test]
    fn rows_that_run_are_known_by_name() {
        let board = board();
        let running: Vec<_> = board
            .rows()
            .iter()
            .filter(|r| !r.steps.is_empty())
            .map(|r| r.id.as_str())
            .collect();
        assert_eq!(
            running,
            [
                "C1", "C2", "C3", "C4", "C6", "C7", "C8", "T1", "T2", "T3", "T4", "T5", "T6", "T7",
                "T9", "T10", "N1", "N4", "N5", "N6", "N7", "N9", "O1", "O2", "O3", "O4", "O5",
                "O6", "O7", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8"
            ]
        );
        assert!(
            board
                .rows()
                .iter()
                .all(|r| r.steps.is_empty() != r.not_yet.is_none())
        );
    }

    #[test]
    fn rows_of_one_seed_name_it_alike() {
        let mut titles: BTreeMap<String, String> = BTreeMap::new();
        for row in board().rows() {
            assert_eq!(seed_of(&row.id), Some(row.seed.file.as_str()));
            let title = titles
                .entry(row.seed.file.clone())
                .or_insert_with(|| row.seed.title.clone());
            assert_eq!(*title, row.seed.title, "{}", row.id);
        }
        assert_eq!(titles.len(), 5);
    }

    #[test]
    fn what_is_only_remembered_judges_nothing() {
        for row in board().rows() {
            for number in row
                .document
                .numbers
                .iter()
                .filter(|n| n.sure == Sure::FromMemory)
            {
                assert!(
                    !row.ours.tolerance.contains_key(&number.name),
                    "{} {}",
                    row.id,
                    number.name
                );
            }
        }
    }

    #[test]
    fn every_missing_part_is_said_in_one_sentence() {
        for row in board().rows() {
            if let Some(missing) = row.not_yet.as_ref().or(row.lacks.as_ref()) {
                assert!(
                    missing.ends_with('.') && missing.len() > 30,
                    "{}: {missing}",
                    row.id
                );
                assert!(!missing.contains('\n'), "{}", row.id);
            }
        }
    }

    #[test]
    fn files_stay_readable_at_one_glance() {
        for (name, text) in embedded::FILES {
            let lines = text.lines().count();
            assert!(
                (15..=45).contains(&lines) || (text.contains("[[run]]") && lines <= 110),
                "{name}: {lines}"
            );
            assert!(text.is_ascii(), "{name} holds other letters than ASCII");
            assert!(
                text.lines().all(|line| line.len() <= 180),
                "{name} has a longer line"
            );
        }
    }

    #[test]
    fn paths_of_runs_stand_in_the_folder_of_paths() {
        for row in board().rows() {
            for path in row
                .steps
                .iter()
                .flat_map(|s| &s.args)
                .filter_map(|a| a.strip_prefix("lab:"))
                // What a copy has behind it is a folder.
                .map(|a| a.split_once(':').map_or(a, |(path, _)| path))
            {
                assert!(
                    path.starts_with("paths/") && path.ends_with(".toml"),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn a_row_is_found_in_either_case_and_an_unknown_one_says_what_there_is() {
        let board = board();
        assert_eq!(board.row(" n1").unwrap().id, "N1");
        let error = board.row("N11").unwrap_err().to_string();
        assert!(
            error.contains("'N11'") && error.contains("T1..T14"),
            "{error}"
        );
    }

    #[test]
    fn every_step_runs_even_after_one_failed() {
        let board = board();
        let row = board.row("N1").unwrap();
        let mut answers = vec![Err("no tun".into()), Ok(json!({})), Ok(json!({}))];
        let mut commands = Vec::new();
        let runs = run_steps(row, &mut |step| {
            commands.push(step.command());
            answers.remove(0)
        });
        let result = judge(row, &runs, Made::default());
        assert_eq!(
            commands,
            [
                "goodput doctor lab:paths/columbia-untuned.toml --observer iperf3",
                "goodput doctor lab:paths/columbia-8-streams.toml --no-fix",
                "goodput doctor lab:paths/columbia-4-streams-tuned.toml",
            ]
        );
        assert_eq!(result.outcome, Outcome::Failed);
        assert!(
            result.errors[0].ends_with(": no tun"),
            "{:?}",
            result.errors
        );
    }

    #[test]
    fn green_wants_every_check_and_every_observer() {
        let row = sample();
        let outcome = |run| judge(&row, &[run], Made::default()).outcome;
        assert_eq!(outcome(Ok(sample_run(3_000_000))), Outcome::Green);
        assert_eq!(outcome(Ok(sample_run(9_000_000))), Outcome::Failed);
        assert_eq!(outcome(Err("no".into())), Outcome::Failed);
        let mut alone = sample_run(3_000_000);
        alone["phases"][0]["observers"] = json!([]);
        assert_eq!(outcome(Ok(alone)), Outcome::Amber);
        let mut late = sample_run(9_000_000);
        late["phases"][0]["certificate"]["trusted"] = json!(false);
        assert_eq!(outcome(Ok(late)), Outcome::Amber);
        assert_eq!(judge(&row, &[], Made::default()).outcome, Outcome::Failed);
    }

    #[test]
    fn a_status_says_why_it_is_not_green() {
        let row = sample();
        let stands = |run: Result<Value, NoRun>| {
            let mut state = State::default();
            state.add(judge(&row, &[run], Made::default()));
            status(&row, &state)
        };
        assert_eq!(stands(Ok(sample_run(3_000_000))), (Status::Green, None));
        let (failed, why) = stands(Ok(sample_run(9_000_000)));
        assert_eq!(failed, Status::Failed);
        assert_eq!(why.unwrap(), "untuned, before: 9 Mb/s, wanted 2 to 5 Mb/s");
        let mut late = sample_run(9_000_000);
        late["phases"][0]["certificate"]["trusted"] = json!(false);
        let (amber, why) = stands(Ok(late));
        assert_eq!(amber, Status::Amber);
        assert_eq!(why.unwrap(), "untuned, lab kept up: false, wanted true");
        let (amber, why) = stands(Err(NoRun::Lacking("no qemu".to_owned())));
        assert_eq!(amber, Status::Amber);
        assert_eq!(
            why.unwrap(),
            "untuned, lab kept up: cannot run here: no qemu"
        );
        assert_eq!(status(&row, &State::default()).0, Status::NotRun);
    }

    #[test]
    fn a_result_judged_by_another_text_of_the_row_is_not_green() {
        let mut row = sample();
        let mut state = State::default();
        state.add(judge(&row, &[Ok(sample_run(3_000_000))], Made::default()));
        row.digest = "another".into();
        assert_eq!(status(&row, &state).0, Status::Amber);
    }

    #[test]
    fn the_columbia_row_is_green_on_the_numbers_of_the_document() {
        let board = board();
        let row = board.row("N1").unwrap();
        let run = |streams: u32, before: u64, after: u64| {
            let phase = |name: &str, goodput: u64| {
                json!({
                    "name": name,
                    "streams": streams,
                    "rtt_idle_ns": 85_120_000,
                    "goodput_bits_per_second": goodput,
                    "predicted_bits_per_second": goodput,
                    "certificate": {"trusted": true},
                    "observers": [{"tool": "iperf 3.12", "goodput_bits_per_second": goodput}],
                })
            };
            Ok(json!({
                "path": {"achievable_bits_per_second": after},
                "phases": [phase("before", before), phase("after", after)],
                "verdict": {"cause": "receive_window", "conclusive": true, "healthy": false},
            }))
        };
        let outcome = |runs: &[_]| judge(row, runs, Made::default()).outcome;
        let scp = run(1, 3_080_000, 941_000_000);
        let eight = run(8, 257_000_000, 940_000_000);
        let four = run(4, 100_000, 4_700_000_000);
        assert_eq!(
            outcome(&[scp.clone(), eight.clone(), four.clone()]),
            Outcome::Green
        );
        let slow = run(1, 1_900_000, 941_000_000);
        assert_eq!(
            outcome(&[slow, eight.clone(), four.clone()]),
            Outcome::Failed
        );
        let fast = run(8, 283_000_000, 940_000_000);
        assert_eq!(outcome(&[scp.clone(), fast, four]), Outcome::Failed);
        let short = run(4, 100_000, 4_229_000_000);
        assert_eq!(outcome(&[scp, eight, short]), Outcome::Failed);
    }

    #[test]
    fn ranges_and_texts_are_used_where_the_document_uses_them() {
        let board = board();
        let of = |id: &str, name: &str| board.row(id).unwrap().number(name).unwrap().value.clone();
        assert_eq!(of("N1", "scp_untuned"), DocumentValue::Range([2.0, 5.0]));
        assert_eq!(
            of("T4", "loss_order"),
            DocumentValue::Text("3,1,2,0".into())
        );
    }
}
