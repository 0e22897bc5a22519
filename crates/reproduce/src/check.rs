//! The evaluator: what a run says, held against what a row asks of it.
//!
//! A reading has three ends. It passed; it failed; or it is missing, because the run does not hold
//! it (no iperf3 on this machine), or because the step's premise does not hold (the lab fell behind
//! and its numbers say nothing about the path). Missing never counts as passed, and never as failed.
//!
//! Comparisons are inclusive at both ends. Bounds computed as shares get a billionth of slack, since
//! 257 times 1.1 is not exact in binary and a bound must not move with the rounding.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use units::{Bytes, Duration, Rate};

use crate::experiment::{
    Bound, Check, Dimension, DocumentNumber, DocumentValue, Experiment, Op, Reference, RunStep,
    Scalar, Tolerance, unit_scale,
};
use crate::runner::NoRun;

/// How a reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckOutcome {
    /// It is what it must be.
    Passed,
    /// It is not.
    Failed,
    /// There was nothing to judge, or no ground to judge it on.
    Missing,
}

/// One reading, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Name of the step.
    pub step: String,
    /// Name of the check.
    pub name: String,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// Whose reading it is.
    pub observer: String,
    /// True for a condition for judging at all.
    #[serde(default)]
    pub premise: bool,
    /// The document number that it stands beside.
    #[serde(default)]
    pub beside: Option<String>,
    /// That number, ready to read.
    #[serde(default)]
    pub theirs: Option<String>,
    /// The reading, in the unit of its key.
    #[serde(default)]
    pub value: Option<Value>,
    /// The reading, ready to read; empty when missing.
    #[serde(default)]
    pub ours: String,
    /// What it must be, ready to read.
    #[serde(default)]
    pub wanted: String,
    /// Why it is missing.
    #[serde(default)]
    pub note: Option<String>,
}

/// What a row's steps gave: a check may hold one step's reading against another's.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// In the order of the row's steps; short when not all were started.
    given: &'a [Result<Value, NoRun>],
}

impl<'a> Runs<'a> {
    /// What the steps gave, in their order.
    pub const fn new(given: &'a [Result<Value, NoRun>]) -> Self {
        Self { given }
    }

    /// What the step at `index` gave.
    fn of(self, index: usize) -> Result<&'a Value, String> {
        match self.given.get(index) {
            Some(Ok(run)) => Ok(run),
            Some(Err(why)) => Err(why.to_string()),
            None => Err("it was not started".to_owned()),
        }
    }

    /// The run of the step of that name, if its premises hold.
    fn sound(self, row: &Experiment, name: &str) -> Result<&'a Value, String> {
        let index = row.steps.iter().position(|step| step.name == name);
        let Some(index) = index else {
            return Err(format!("no step is named {name}"));
        };
        let run = self.of(index).map_err(|why| format!("{name}: {why}"))?;
        let step = &row.steps[index];
        let broken = step.checks.iter().find(|check| {
            check.premise && judge(row, step, check, run, self).outcome != CheckOutcome::Passed
        });
        match broken {
            Some(check) => Err(format!("not judged: {name} has no \"{}\"", check.name)),
            None => Ok(run),
        }
    }
}

/// Judges all checks of the step at `index` on what its run said, or on why it did not run.
pub fn judge_step(row: &Experiment, index: usize, runs: Runs<'_>) -> Vec<CheckResult> {
    let step = &row.steps[index];
    let mut results: Vec<_> = step
        .checks
        .iter()
        .map(|check| match runs.of(index) {
            Ok(run) => judge(row, step, check, run, runs),
            Err(why) => missing(row, step, check, why),
        })
        .collect();
    let broken = results
        .iter()
        .find(|r| r.premise && r.outcome != CheckOutcome::Passed)
        .map(|r| r.name.clone());
    if let Some(name) = broken {
        for result in results.iter_mut().filter(|r| !r.premise) {
            result.outcome = CheckOutcome::Missing;
            result
                .note
                .get_or_insert_with(|| format!("not judged: no \"{name}\""));
        }
    }
    results
}

/// Judges one check on a run.
fn judge(
    row: &Experiment,
    step: &RunStep,
    check: &Check,
    run: &Value,
    runs: Runs<'_>,
) -> CheckResult {
    let Some(found) = lookup(run, &check.at).filter(|value| !value.is_null()) else {
        return missing(
            row,
            step,
            check,
            format!("the run does not hold {}", check.at),
        );
    };
    let mut result = missing(row, step, check, String::new());
    result.value = Some(found.clone());
    result.ours = show(found, &check.at);
    match compare(row, check, found, run, runs) {
        Ok((holds, wanted)) => {
            result.outcome = if holds {
                CheckOutcome::Passed
            } else {
                CheckOutcome::Failed
            };
            result.wanted = wanted;
            result.note = None;
        }
        Err(note) => result.note = Some(note),
    }
    result
}

fn missing(row: &Experiment, step: &RunStep, check: &Check, note: String) -> CheckResult {
    let number = check.beside.as_ref().and_then(|name| row.number(name));
    CheckResult {
        step: step.name.clone(),
        name: check.name.clone(),
        outcome: CheckOutcome::Missing,
        observer: check.observer.clone(),
        premise: check.premise,
        beside: check.beside.clone(),
        theirs: number.map(show_number),
        value: None,
        ours: String::new(),
        wanted: wanted(row, check, None),
        note: Some(note),
    }
}

/// Whether the reading is what it must be, and that in words; or why that cannot be said.
fn compare(
    row: &Experiment,
    check: &Check,
    found: &Value,
    run: &Value,
    runs: Runs<'_>,
) -> Result<(bool, String), String> {
    let number = || {
        found
            .as_f64()
            .ok_or_else(|| format!("{} is {found}, not a number", check.at))
    };
    let reference = |of: &Reference| match of {
        Reference::Constant(x) => Ok(*x),
        Reference::Pointer(at) => lookup(run, at)
            .and_then(Value::as_f64)
            .ok_or_else(|| format!("the run holds no number at {at}")),
        Reference::Other { step, at } => lookup(runs.sound(row, step)?, at)
            .and_then(Value::as_f64)
            .ok_or_else(|| format!("the run of {step} holds no number at {at}")),
    };
    match &check.op {
        Op::Tolerance => Ok((
            within_tolerance(row, check, found),
            wanted(row, check, None),
        )),
        Op::Between(low, high) => {
            let x = number()?;
            Ok((*low <= x && x <= *high, wanted(row, check, None)))
        }
        Op::AtLeast(least) => Ok((number()? >= *least, wanted(row, check, None))),
        Op::AtMost(most) => Ok((number()? <= *most, wanted(row, check, None))),
        Op::WithinPercentOf(percent, of) => {
            let (x, reference) = (number()?, reference(of)?);
            let room = reference.abs() * percent / 100.0;
            let holds = (x - reference).abs() <= room * (1.0 + SLACK);
            Ok((holds, wanted(row, check, Some(reference))))
        }
        Op::AtLeastShareOf(share, of) => {
            let (x, reference) = (number()?, reference(of)?);
            let holds = x >= reference * share * (1.0 - SLACK);
            Ok((holds, wanted(row, check, Some(reference))))
        }
        Op::AtMostShareOf(share, of) => {
            let (x, reference) = (number()?, reference(of)?);
            let holds = x <= reference * share * (1.0 + SLACK);
            Ok((holds, wanted(row, check, Some(reference))))
        }
        Op::Equals(value) => Ok((is(found, value), wanted(row, check, None))),
        Op::OneOf(values) => Ok((
            values.iter().any(|v| is(found, v)),
            wanted(row, check, None),
        )),
    }
}

fn within_tolerance(row: &Experiment, check: &Check, found: &Value) -> bool {
    let tolerance = check
        .beside
        .as_ref()
        .and_then(|name| row.ours.tolerance.get(name));
    let number = check.beside.as_ref().and_then(|name| row.number(name));
    let (Some(tolerance), Some(number)) = (tolerance, number) else {
        return false;
    };
    if let DocumentValue::Text(text) = &number.value {
        return found.as_str() == Some(text.as_str());
    }
    let (low, high) = accepted(number, tolerance);
    let (scale, _) = unit_scale(&number.unit);
    found.as_f64().is_some_and(|x| {
        let slack = SLACK * (x.abs() + scale);
        low * scale - slack <= x && x <= high * scale + slack
    })
}

/// The ends of what a tolerance accepts around a number, in the number's own unit.
pub fn accepted(number: &DocumentNumber, tolerance: &Tolerance) -> (f64, f64) {
    let (low, high) = match number.value {
        DocumentValue::Number(x) => (x, x),
        DocumentValue::Range([low, high]) => (low, high),
        DocumentValue::Text(_) => return (f64::NAN, f64::NAN),
    };
    match tolerance.bound {
        Bound::Rel(r) => (low - low.abs() * r, high + high.abs() * r),
        Bound::Abs(a) => (low - a, high + a),
        Bound::AtLeast(x) => (x, f64::INFINITY),
        Bound::AtMost(x) => (f64::NEG_INFINITY, x),
        Bound::Between(low, high) => (low, high),
        Bound::Exact => (low, high),
    }
}

/// What a check asks for, in words; `reference` is the value that a pointer of it led to.
fn wanted(row: &Experiment, check: &Check, reference: Option<f64>) -> String {
    let show = |x: f64| show_scaled(x, Dimension::of_key(&check.at));
    let against = |of: &Reference| match (of, reference) {
        (Reference::Constant(x), _) => show(*x),
        (Reference::Pointer(at), Some(x)) => format!("{} ({at})", show(x)),
        (Reference::Pointer(at), None) => at.clone(),
        (Reference::Other { step, at }, Some(x)) => format!("{} ({step}: {at})", show(x)),
        (Reference::Other { step, at }, None) => format!("{step}: {at}"),
    };
    match &check.op {
        Op::Tolerance => {
            let name = check.beside.as_deref().unwrap_or_default();
            match (row.number(name), row.ours.tolerance.get(name)) {
                (Some(number), Some(tolerance)) => show_accepted(number, tolerance),
                _ => String::new(),
            }
        }
        Op::Between(low, high) => format!("{} to {}", show(*low), show(*high)),
        Op::WithinPercentOf(percent, of) => format!("within {percent} % of {}", against(of)),
        Op::AtLeast(least) => format!("at least {}", show(*least)),
        Op::AtMost(most) => format!("at most {}", show(*most)),
        Op::AtLeastShareOf(share, of) => {
            format!("at least {} % of {}", round(share * 100.0), against(of))
        }
        Op::AtMostShareOf(share, of) => {
            format!("at most {} % of {}", round(share * 100.0), against(of))
        }
        Op::Equals(value) => show_scalar(value),
        Op::OneOf(values) => values
            .iter()
            .map(show_scalar)
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

/// What a tolerance accepts, in words.
pub fn show_accepted(number: &DocumentNumber, tolerance: &Tolerance) -> String {
    let unit = if number.unit.is_empty() {
        String::new()
    } else {
        format!(" {}", number.unit)
    };
    if let DocumentValue::Text(text) = &number.value {
        return text.clone();
    }
    let (low, high) = accepted(number, tolerance);
    match (low.is_finite(), high.is_finite()) {
        (true, false) => format!("at least {}{unit}", round(low)),
        (false, true) => format!("at most {}{unit}", round(high)),
        _ if low == high => format!("exactly {}{unit}", round(low)),
        _ => format!("{} to {}{unit}", round(low), round(high)),
    }
}

/// A document's number with its unit.
pub fn show_number(number: &DocumentNumber) -> String {
    let value = match &number.value {
        DocumentValue::Number(x) => round(*x),
        DocumentValue::Range([low, high]) => format!("{}..{}", round(*low), round(*high)),
        DocumentValue::Text(text) => text.clone(),
    };
    if number.unit.is_empty() {
        value
    } else {
        format!("{value} {}", number.unit)
    }
}

/// Finds a place in a run: an RFC 6901 JSON pointer, in which a step into a list may also be `last`,
/// or `key=text` for the first entry whose `key` is that text (`key=text*`: begins with it), as in
/// `/phases/name=before/observers/tool=iperf*/goodput_bits_per_second`; a whole number matches as it is written.
pub fn lookup<'a>(run: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut here = run;
    for step in pointer.strip_prefix('/')?.split('/') {
        let step = step.replace("~1", "/").replace("~0", "~");
        here = match here {
            Value::Object(map) => map.get(&step)?,
            Value::Array(list) => entry(list, &step)?,
            _ => return None,
        };
    }
    Some(here)
}

fn entry<'a>(list: &'a [Value], step: &str) -> Option<&'a Value> {
    if step == "last" {
        return list.last();
    }
    let Some((key, text)) = step.split_once('=') else {
        return list.get(step.parse::<usize>().ok()?);
    };
    list.iter().find(|item| {
        let found = match item.get(key) {
            Some(Value::String(found)) => found.clone(),
            Some(Value::Number(found)) => found.to_string(),
            _ => String::new(),
        };
        match text.strip_suffix('*') {
            Some(start) => found.starts_with(start),
            None => found == text,
        }
    })
}

fn is(found: &Value, wanted: &Scalar) -> bool {
    match wanted {
        Scalar::Bool(b) => found.as_bool() == Some(*b),
        Scalar::Number(x) => found.as_f64() == Some(*x),
        Scalar::Text(text) => found.as_str() == Some(text.as_str()),
    }
}

/// A reading with the unit that its key names.
fn show(value: &Value, pointer: &str) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => show_scaled(
            number.as_f64().unwrap_or_default(),
            Dimension::of_key(pointer),
        ),
        other => other.to_string(),
    }
}

fn show_scaled(x: f64, dimension: Dimension) -> String {
    match dimension {
        Dimension::Plain => round(x),
        _ if x < 0.0 => format!("-{}", show_scaled(-x, dimension)),
        Dimension::Rate => Rate::from_bits_per_second(whole(x)).to_string(),
        Dimension::Time => Duration::from_ns(whole(x)).to_string(),
        Dimension::Size => Bytes::new(whole(x)).to_string(),
    }
}

fn show_scalar(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Bool(b) => b.to_string(),
        Scalar::Number(x) => round(*x),
        Scalar::Text(text) => text.clone(),
    }
}

/// At most four decimals, without trailing zeros.
fn round(x: f64) -> String {
    let text = format!("{x:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float-to-int cast saturates, and the value is only shown"
)]
fn whole(x: f64) -> u64 {
    x.round() as u64
}

/// Room for rounding in computed bounds, as a share; far below any tolerance a row states.
const SLACK: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row() -> Experiment {
        Experiment::parse("N1.toml", include_str!("testdata/row.toml")).unwrap()
    }

    fn check(at: &str, op: Op) -> Check {
        Check {
            name: "x".into(),
            at: at.into(),
            op,
            beside: Some("eight".into()),
            observer: "goodput".into(),
            premise: false,
        }
    }

    fn outcome(at: &str, op: Op, run: &Value) -> CheckOutcome {
        let row = row();
        judge(&row, &row.steps[0], &check(at, op), run, Runs::new(&[])).outcome
    }

    /// Outcomes of one operation for several values of `/x`.
    fn outcomes(op: &Op, values: &[Value]) -> Vec<CheckOutcome> {
        values
            .iter()
            .map(|x| outcome("/x", op.clone(), &json!({"x": x, "reference": 1_000})))
            .collect()
    }

    use CheckOutcome::{Failed, Missing, Passed};

    #[test]
    fn between_includes_both_ends() {
        let values = [json!(1.999), json!(2), json!(5), json!(5.001)];
        assert_eq!(
            outcomes(&Op::Between(2.0, 5.0), &values),
            [Failed, Passed, Passed, Failed]
        );
    }

    #[test]
    fn at_least_includes_the_bound() {
        assert_eq!(
            outcomes(&Op::AtLeast(10.0), &[json!(9), json!(10)]),
            [Failed, Passed]
        );
    }

    #[test]
    fn within_percent_of_holds_on_both_sides_of_the_reference() {
        let values = [json!(849), json!(850), json!(1_150), json!(1_151)];
        let pointer = Op::WithinPercentOf(15.0, Reference::Pointer("/reference".into()));
        assert_eq!(
            outcomes(&pointer, &values),
            [Failed, Passed, Passed, Failed]
        );
        let constant = Op::WithinPercentOf(15.0, Reference::Constant(1_000.0));
        assert_eq!(
            outcomes(&constant, &values),
            [Failed, Passed, Passed, Failed]
        );
    }

    #[test]
    fn a_share_of_another_reading_is_a_lower_bound() {
        let op = Op::AtLeastShareOf(0.9, Reference::Pointer("/reference".into()));
        assert_eq!(
            outcomes(&op, &[json!(899), json!(900), json!(2_000)]),
            [Failed, Passed, Passed]
        );
    }

    #[test]
    fn upper_bounds_include_the_bound() {
        let most = Op::AtMost(10.0);
        assert_eq!(outcomes(&most, &[json!(10), json!(10.1)]), [Passed, Failed]);
        let share = Op::AtMostShareOf(0.5, Reference::Pointer("/reference".into()));
        assert_eq!(
            outcomes(&share, &[json!(500), json!(501)]),
            [Passed, Failed]
        );
    }

    #[test]
    fn a_reading_is_held_against_another_steps() {
        let mut row = row();
        let mut on = row.steps[0].clone();
        on.name = "on".into();
        let of = Reference::Other {
            step: "untuned".into(),
            at: "/x".into(),
        };
        on.checks = vec![check("/x", Op::AtLeastShareOf(2.0, of))];
        row.steps.push(on);
        let off = |trusted| json!({"x": 5, "phases": [{"certificate": {"trusted": trusted}}]});
        let ends = |off: Result<Value, NoRun>, x| {
            let runs = [off, Ok(json!({"x": x}))];
            let result = judge_step(&row, 1, Runs::new(&runs)).remove(0);
            (result.outcome, result.note.unwrap_or(result.wanted))
        };
        assert_eq!(
            ends(Ok(off(true)), 10),
            (Passed, "at least 200 % of 5 (untuned: /x)".to_owned())
        );
        assert_eq!(ends(Ok(off(true)), 9).0, Failed);
        assert_eq!(
            ends(Ok(off(false)), 10),
            (
                Missing,
                "not judged: untuned has no \"lab kept up\"".to_owned()
            )
        );
        assert_eq!(
            ends(Err("no veth".into()), 10),
            (Missing, "untuned: did not run: no veth".to_owned())
        );
    }

    #[test]
    fn equality_is_by_type_and_value() {
        let yes = Op::Equals(Scalar::Bool(true));
        assert_eq!(
            outcomes(&yes, &[json!(true), json!(false), json!("true")]),
            [Passed, Failed, Failed]
        );
        let four = Op::Equals(Scalar::Number(4.0));
        assert_eq!(outcomes(&four, &[json!(4), json!(4.5)]), [Passed, Failed]);
        let names = Op::OneOf(vec![Scalar::Text("a".into()), Scalar::Text("b".into())]);
        assert_eq!(
            outcomes(&names, &[json!("b"), json!("c")]),
            [Passed, Failed]
        );
    }

    #[test]
    fn a_tolerance_converts_the_documents_unit() {
        let at = "/x_bits_per_second";
        for (rate, expected) in [
            (231_299_999, Failed),
            (231_300_000, Passed),
            (282_700_000, Passed),
            (282_700_001, Failed),
        ] {
            let run = json!({"x_bits_per_second": rate});
            assert_eq!(outcome(at, Op::Tolerance, &run), expected, "{rate}");
        }
    }

    #[test]
    fn every_kind_of_bound_accepts_its_ends() {
        let number = |value| DocumentNumber {
            value,
            ..row().document.numbers[1].clone()
        };
        let range = number(DocumentValue::Range([2.0, 5.0]));
        let one = number(DocumentValue::Number(4.0));
        let bound = |bound| Tolerance {
            bound,
            because: "x".into(),
        };
        assert_eq!(accepted(&range, &bound(Bound::Rel(0.5))), (1.0, 7.5));
        assert_eq!(accepted(&range, &bound(Bound::Exact)), (2.0, 5.0));
        assert_eq!(accepted(&one, &bound(Bound::Abs(1.0))), (3.0, 5.0));
        assert_eq!(accepted(&one, &bound(Bound::Between(1.0, 9.0))), (1.0, 9.0));
        assert_eq!(
            show_accepted(&one, &bound(Bound::AtLeast(3.6))),
            "at least 3.6 Mb/s"
        );
        assert_eq!(
            show_accepted(&one, &bound(Bound::AtMost(4.4))),
            "at most 4.4 Mb/s"
        );
        assert_eq!(show_accepted(&one, &bound(Bound::Exact)), "exactly 4 Mb/s");
    }

    #[test]
    fn what_the_run_does_not_hold_is_missing_not_failed() {
        let run = json!({"x": null, "text": "fast"});
        assert_eq!(outcome("/y", Op::AtLeast(1.0), &run), Missing);
        assert_eq!(outcome("/x", Op::AtLeast(1.0), &run), Missing);
        assert_eq!(outcome("/text", Op::AtLeast(1.0), &run), Missing);
        let of = Reference::Pointer("/none".into());
        assert_eq!(
            outcome("/z", Op::WithinPercentOf(5.0, of), &json!({"z": 1})),
            Missing
        );
    }

    #[test]
    fn pointers_walk_lists_by_index_name_and_from_the_end() {
        let run = json!({"phases": [
            {"name": "before", "observers": [{"tool": "nuttcp 8"}, {"tool": "iperf 3.12", "rate": 7}]},
            {"name": "after", "a/b": 1},
        ], "points": [{"nodes": 6}, {"nodes": 64, "rate": 5}]});
        let at = |pointer| lookup(&run, pointer);
        assert_eq!(at("/phases/0/name"), Some(&json!("before")));
        assert_eq!(at("/phases/last/name"), Some(&json!("after")));
        assert_eq!(at("/phases/name=after/a~1b"), Some(&json!(1)));
        assert_eq!(at("/points/nodes=64/rate"), Some(&json!(5)));
        assert_eq!(
            at("/phases/name=before/observers/tool=iperf*/rate"),
            Some(&json!(7))
        );
        for nowhere in [
            "",
            "phases",
            "/phases/2",
            "/phases/-1",
            "/phases/name=x",
            "/phases/0/name/x",
        ] {
            assert_eq!(at(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn a_broken_premise_leaves_the_step_unjudged() {
        let row = row();
        let run = |trusted| {
            json!({"phases": [{
                "name": "before",
                "certificate": {"trusted": trusted},
                "goodput_bits_per_second": 3_080_000,
                "observers": [{"tool": "iperf 3.12", "goodput_bits_per_second": 3_050_000}],
            }]})
        };
        let ends = |run| -> Vec<_> {
            judge_step(&row, 0, Runs::new(&[run]))
                .into_iter()
                .map(|r| r.outcome)
                .collect()
        };
        assert_eq!(ends(Ok(run(true))), [Passed, Passed, Passed]);
        assert_eq!(ends(Ok(run(false))), [Failed, Missing, Missing]);
        assert_eq!(
            ends(Err("no user namespaces".into())),
            [Missing, Missing, Missing]
        );
    }

    #[test]
    fn a_result_reads_without_the_row() {
        let row = row();
        let run = json!({"phases": [{
            "name": "before", "certificate": {"trusted": true}, "goodput_bits_per_second": 3_080_000,
        }]});
        let result = &judge_step(&row, 0, Runs::new(&[Ok(run)]))[1];
        assert_eq!(result.theirs.as_deref(), Some("2..5 Mb/s"));
        assert_eq!(result.ours, "3.08 Mb/s");
        assert_eq!(result.wanted, "2 to 5 Mb/s");
    }
}
