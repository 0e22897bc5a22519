//! The board and its rows as JSON, for scripts.

use serde_json::{Value, json};

use crate::board::{Board, Status, status};
use crate::check::show_accepted;
use crate::experiment::Experiment;
use crate::state::State;

/// The whole board for scripts.
pub fn board_json(board: &Board, state: &State) -> Value {
    let of = |wanted: Status| {
        board
            .rows()
            .iter()
            .filter(|row| status(row, state).0 == wanted)
            .count()
    };
    let red = of(Status::Failed) + of(Status::NotRun) + of(Status::NotYet);
    json!({
        "schema_version": JSON_VERSION,
        "counts": {
            "green": of(Status::Green),
            "amber": of(Status::Amber),
            "red": red,
            "red_failed": of(Status::Failed),
            "red_not_run": of(Status::NotRun),
            "red_not_yet": of(Status::NotYet),
        },
        "rows": board.rows().iter().map(|row| row_json(row, state)).collect::<Vec<_>>(),
        "warning": state.warning,
    })
}

/// One row for scripts, with its last result.
pub fn row_json(row: &Experiment, state: &State) -> Value {
    let (status, why) = status(row, state);
    let tolerance: serde_json::Map<String, Value> = row
        .ours
        .tolerance
        .iter()
        .filter_map(|(name, tolerance)| {
            let accepts = show_accepted(row.number(name)?, tolerance);
            Some((
                name.clone(),
                json!({ "accepts": accepts, "because": tolerance.because }),
            ))
        })
        .collect();
    let steps = row
        .steps
        .iter()
        .map(|step| json!({ "name": step.name, "command": step.command(), "why": step.why }));
    json!({
        "id": row.id,
        "seed": row.seed,
        "title": row.title,
        "issue": row.issue,
        "status": status.name(),
        "reason": why,
        "document": {
            "value": row.document.value,
            "numbers": row.document.numbers,
            "quotes": row.document.quotes,
        },
        "ours": {
            "what": row.ours.what,
            "observer": row.ours.observer,
            "tolerance": tolerance,
            "accept": row.ours.accept,
        },
        "command": (row.not_yet.is_none()).then(|| format!("goodput reproduce {}", row.id)),
        "steps": steps.collect::<Vec<_>>(),
        "not_yet": row.not_yet,
        "result": state.latest(&row.id),
    })
}

/// Version of the JSON of `goodput reproduce --json`.
const JSON_VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::{Made, judge};

    fn sample(goodput: u64, observers: Value) -> (Experiment, State) {
        let row = Experiment::parse("N1.toml", include_str!("testdata/row.toml")).unwrap();
        let run = json!({"phases": [{
            "name": "before",
            "certificate": {"trusted": true},
            "goodput_bits_per_second": goodput,
            "observers": observers,
        }]});
        let made = Made {
            finished_utc: "2030-01-02T03:04:05Z".into(),
            run_folder: Some("runs/20300102T030405Z-reproduce-N1".into()),
            goodput_version: "0.1.0".into(),
        };
        let mut state = State::default();
        state.add(judge(&row, &[Ok(run)], made));
        (row, state)
    }

    #[test]
    fn json_counts_what_the_board_shows() {
        let board = Board::embedded().unwrap();
        let json = board_json(&board, &State::default());
        assert_eq!(json["rows"].as_array().unwrap().len(), 47);
        assert_eq!(
            json["counts"],
            json!({
                "green": 0, "amber": 0, "red": 47,
                "red_failed": 0, "red_not_run": 37, "red_not_yet": 10,
            })
        );
        let (row, state) = sample(
            3_080_000,
            json!([{"tool": "iperf 3.12",
            "goodput_bits_per_second": 3_080_000}]),
        );
        let json = row_json(&row, &state);
        assert_eq!(json["status"], "green");
        assert_eq!(json["document"]["numbers"][0]["value"], json!([2.0, 5.0]));
        assert_eq!(
            json["ours"]["tolerance"]["eight"]["accepts"],
            "231.3 to 282.7 Mb/s"
        );
        assert_eq!(json["result"]["checks"][1]["value"], 3_080_000);
        assert_eq!(json["result"]["checks"][1]["ours"], "3.08 Mb/s");
    }
}
