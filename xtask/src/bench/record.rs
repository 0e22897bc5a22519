//! Rows, and the record that keeps them: `bench/lab.json`.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// Changes when a field changes its meaning or goes away.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// One run of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// [`SCHEMA_VERSION`].
    pub(crate) schema_version: u32,
    /// End of the run, UTC.
    pub(crate) date: String,
    /// Where.
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// Times that every cell was measured.
    pub(crate) rounds: u32,
    /// Short cells: the numbers say that it works, not how well.
    pub(crate) quick: bool,
    /// What is missing or went wrong.
    pub(crate) notes: Vec<String>,
    /// Every number measured.
    pub(crate) rows: Vec<Row>,
}

/// The machine and the tools.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    /// Kernel release.
    pub(crate) kernel: String,
    /// CPU model.
    pub(crate) cpu: String,
    /// CPUs online.
    pub(crate) cpus: u32,
    /// What was measured; none outside a git checkout. `-dirty` where files differ from it.
    pub(crate) commit: Option<String>,
    /// First line of `iperf3 --version`.
    pub(crate) iperf3: Option<String>,
    /// `nuttcp -V`.
    pub(crate) nuttcp: Option<String>,
    /// `ip -V`.
    pub(crate) ip: Option<String>,
}

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// From 1.
    pub(crate) round: u32,
    /// What was measured where, such as `tcp/lab/1500/on`.
    pub(crate) cell: String,
    /// Which number, such as `iperf3.goodput`.
    pub(crate) metric: String,
    /// The number.
    pub(crate) value: f64,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// Load average over a minute just before the cell. The benchmark's own earlier cells are in it.
    pub(crate) load: f64,
}

/// Takes down what one cell measures in one round.
#[derive(Debug)]
pub(crate) struct Recorder {
    round: u32,
    cell: String,
    load: f64,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Recorder {
    pub(crate) const fn new(round: u32, cell: String, load: f64) -> Self {
        Self {
            round,
            cell,
            load,
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Keeps a number.
    pub(crate) fn put(&mut self, metric: impl Into<String>, value: f64, unit: &'static str) {
        self.rows.push(Row {
            round: self.round,
            cell: self.cell.clone(),
            metric: metric.into(),
            value,
            unit,
            load: self.load,
        });
    }

    /// Keeps a remark.
    pub(crate) fn note(&mut self, text: &str) {
        self.notes
            .push(format!("{}, round {}: {text}", self.cell, self.round));
    }

    /// Rows and remarks.
    pub(crate) fn into_parts(self) -> (Vec<Row>, Vec<String>) {
        (self.rows, self.notes)
    }
}

impl Record {
    /// What was just measured on `machine`, in so many rounds.
    pub(crate) fn of(
        machine: Machine,
        rounds: u32,
        quick: bool,
        notes: Vec<String>,
        rows: Vec<Row>,
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            date: jiff::Timestamp::now().to_string(),
            machine,
            rounds,
            quick,
            notes,
            rows,
        }
    }

    /// The record as JSON, a row a line, so that two runs can be compared line by line.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        let mut rows = Vec::new();
        for row in &self.rows {
            rows.push(serde_json::to_string(row)?);
        }
        let head = Self {
            rows: Vec::new(),
            ..self.clone()
        };
        let head = serde_json::to_string_pretty(&head)?;
        let rows = format!("\"rows\": [\n    {}\n  ]", rows.join(",\n    "));
        Ok(head.replace("\"rows\": []", &rows) + "\n")
    }

    /// Median over the rounds; `None` when nothing was measured.
    pub(crate) fn median(&self, cell: &str, metric: &str) -> Option<f64> {
        median(self.values(cell, metric).map(|(_, value)| value).collect())
    }

    /// Median of the rounds' ratios: both numbers of a ratio come from the same minute.
    pub(crate) fn median_ratio(&self, over: (&str, &str), under: (&str, &str)) -> Option<f64> {
        median(self.ratios(over, under))
    }

    /// The rounds' ratios.
    pub(crate) fn ratios(&self, over: (&str, &str), under: (&str, &str)) -> Vec<f64> {
        let under: Vec<_> = self.values(under.0, under.1).collect();
        let ratios = self.values(over.0, over.1).filter_map(|(round, value)| {
            let (_, base) = under.iter().find(|(other, _)| *other == round)?;
            (*base > 0.0).then(|| value / base)
        });
        ratios.collect()
    }

    /// Median over the rounds of a sum of metrics, over rounds that have all of them.
    pub(crate) fn median_sum(&self, cell: &str, metrics: &[&str]) -> Option<f64> {
        let sums = (1..=self.rounds).filter_map(|round| {
            metrics.iter().try_fold(0.0, |sum, metric| {
                let mut values = self.values(cell, metric);
                let (_, value) = values.find(|(other, _)| *other == round)?;
                Some(sum + value)
            })
        });
        median(sums.collect())
    }

    /// True when anything was measured there.
    pub(crate) fn has(&self, cell: &str) -> bool {
        self.rows.iter().any(|row| row.cell == cell)
    }

    /// The largest over the rounds.
    pub(crate) fn largest(&self, cell: &str, metric: &str) -> Option<f64> {
        self.values(cell, metric)
            .map(|(_, value)| value)
            .max_by(f64::total_cmp)
    }

    fn values<'a>(
        &'a self,
        cell: &'a str,
        metric: &'a str,
    ) -> impl Iterator<Item = (u32, f64)> + 'a {
        let rows = self.rows.iter();
        rows.filter(move |r| r.cell == cell && r.metric == metric)
            .map(|r| (r.round, r.value))
    }
}

impl Machine {
    /// Looks around. `root` is the checkout.
    pub(crate) fn read(root: &Path) -> Self {
        Self {
            kernel: sys::host::kernel_release(),
            cpu: sys::host::cpu_model(),
            cpus: sys::host::cpus_online(),
            commit: first_line(Command::new("git").arg("-C").arg(root).args([
                "describe",
                "--always",
                "--dirty",
                "--abbrev=12",
                "--exclude=*",
            ])),
            iperf3: first_line(Command::new("iperf3").arg("--version")),
            nuttcp: first_line(Command::new("nuttcp").arg("-V")),
            ip: first_line(Command::new("ip").arg("-V")),
        }
    }

    pub(crate) const fn has_iperf3(&self) -> bool {
        self.iperf3.is_some()
    }

    pub(crate) const fn has_ip(&self) -> bool {
        self.ip.is_some()
    }
}

/// What a program says in its first line; `None` when it is not there or fails.
fn first_line(program: &mut Command) -> Option<String> {
    let output = program.output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(values[middle - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rows: &[(u32, &str, &str, f64)]) -> Record {
        let rows = rows.iter().map(|&(round, cell, metric, value)| Row {
            round,
            cell: cell.to_owned(),
            metric: metric.to_owned(),
            value,
            unit: "1",
            load: 0.5,
        });
        Record {
            schema_version: SCHEMA_VERSION,
            date: "2026-01-01T00:00:00Z".to_owned(),
            machine: Machine::default(),
            rounds: 3,
            quick: false,
            notes: vec!["a note".to_owned()],
            rows: rows.collect(),
        }
    }

    #[test]
    fn the_median_is_the_middle_one_or_between_the_middle_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![7.0]), Some(7.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn ratios_pair_numbers_of_one_round() {
        let made = record(&[
            (1, "a", "m", 10.0),
            (1, "b", "m", 20.0),
            (2, "a", "m", 30.0),
            (3, "a", "m", 9.0),
            (3, "b", "m", 10.0),
        ]);
        let ratio = made.median_ratio(("a", "m"), ("b", "m")).unwrap();
        assert!((ratio - 0.7).abs() < 1e-9, "of 0.5 and 0.9: {ratio}");
        assert_eq!(made.median_ratio(("a", "m"), ("c", "m")), None);
        assert_eq!(made.largest("a", "m"), Some(30.0));
    }

    #[test]
    fn sums_leave_out_rounds_that_lack_a_part() {
        let made = record(&[(1, "a", "x", 1.0), (1, "a", "y", 2.0), (2, "a", "x", 50.0)]);
        assert_eq!(made.median_sum("a", &["x", "y"]), Some(3.0));
    }

    #[test]
    fn json_has_a_row_a_line_and_everything_in_it() {
        let made = record(&[(1, "a", "m", 1.5), (2, "a", "m", 2.5)]);
        let text = made.to_json().unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["rows"].as_array().unwrap().len(), 2);
        assert_eq!(value["rows"][1]["value"], 2.5);
        assert_eq!(value["notes"][0], "a note");
        assert_eq!(text.lines().filter(|l| l.contains("\"round\":")).count(), 2);
    }
}
