//! What `goodput copy` must hold, judged by what was measured: each clause with what is wanted of it, and what there is.
//!
//! Medians over the rounds count, of memory the most. What a path can carry is its rate times the payload's part of the wire, not what
//! another program reached. A peer that copied less than ours has ssh's start taken off its time, ours never but where it
//! says so. What was not measured whole is not judged.

use lab::PathFile;
use throughput::IpVersion;
use throughput::models::achievable;

use super::super::record::Record;
use super::super::table::Table;
use super::{FILE, LARGE, MANY, Who, workspace};

/// One thing that must hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clause {
    cell: &'static str,
    what: &'static str,
    wanted: Wanted,
    /// Any one of them is enough. `None` where something was not measured.
    measured: Vec<Option<f64>>,
}

/// Where a clause's boundary is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wanted {
    /// A share or a multiple, reached or passed.
    AtLeast(f64),
    /// Bytes that must not be reached.
    Under(f64),
}

impl Wanted {
    fn is_met(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(least) => measured >= least,
            Self::Under(bytes) => measured < bytes,
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Self::AtLeast(_) => format!("{value:.3}"),
            Self::Under(_) => format!("{:.0} MB", value / 1e6),
        }
    }
}

impl Clause {
    /// `None` where it takes a measurement that there is not.
    pub(super) fn holds(&self) -> Option<bool> {
        let mut known = self.measured.iter().flatten();
        if known.any(|value| self.wanted.is_met(*value)) {
            return Some(true);
        }
        self.measured.iter().all(Option::is_some).then_some(false)
    }

    fn row(&self) -> Vec<String> {
        let wanted = match self.wanted {
            Wanted::AtLeast(least) => format!("at least {least:.2}"),
            Wanted::Under(_) => format!("under {}", self.wanted.shown(GIGABYTE)),
        };
        let shown = |value: &Option<f64>| {
            value.map_or_else(|| "not measured".to_owned(), |v| self.wanted.shown(v))
        };
        let measured: Vec<String> = self.measured.iter().map(shown).collect();
        let verdict = match self.holds() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        };
        vec![
            self.cell.to_owned(),
            self.what.to_owned(),
            wanted,
            measured.join(" or "),
            verdict.to_owned(),
        ]
    }
}

/// The table.
pub(super) fn table(record: &Record) -> String {
    let mut table = Table::new(&["cell", "what", "wanted", "measured", "holds"]);
    for clause in judge(record, &payload_rate) {
        table.row(clause.row());
    }
    table.finish()
}

/// All clauses; `payload_rate` says what a built-in path can carry, in bits a second.
pub(super) fn judge(record: &Record, payload_rate: &dyn Fn(&str) -> Option<f64>) -> Vec<Clause> {
    let numbers = Numbers(record);
    let mut all = Vec::new();
    for (cell, path) in PATHS {
        let most = payload_rate(path);
        let of_path = |rate: Option<f64>| ratio(rate, most);
        let is_lossy = path == LOSSY;
        let (middle, whole) = if is_lossy { (0.7, 0.7) } else { (0.95, 0.9) };
        let bytes = if is_lossy { LARGE / 2 } else { LARGE };
        for (what, wanted, rate) in [
            (MIDDLE, middle, numbers.of(cell, Who::Goodput, "steady")),
            (WHOLE, whole, numbers.pace(cell, Who::Goodput, bytes, false)),
            (
                WITHOUT_SSH,
                whole,
                numbers.pace(cell, Who::Goodput, bytes, true),
            ),
        ] {
            all.push(Clause {
                cell,
                what,
                wanted: Wanted::AtLeast(wanted),
                measured: vec![of_path(rate)],
            });
        }
    }
    all.push(Clause {
        cell: "large/dtn-100ms",
        what: "of the best of rsync and scp",
        wanted: Wanted::AtLeast(5.0),
        measured: vec![numbers.of_best("large/dtn-100ms", &[Who::Rsync, Who::Scp], LARGE)],
    });
    all.extend(numbers.no_path());
    all.extend(numbers.small_files());
    for (what, metric) in [("memory near", "memory_near"), ("memory far", "memory_far")] {
        let whole = numbers.pace(MILLION, Who::Goodput, 10 * MANY * FILE, false);
        let name = format!("{}.{metric}", Who::Goodput.name());
        all.push(Clause {
            cell: MILLION,
            what,
            wanted: Wanted::Under(GIGABYTE),
            measured: vec![whole.and_then(|_| record.largest(MILLION, &name))],
        });
    }
    all
}

/// The record's medians.
struct Numbers<'a>(&'a Record);

impl Numbers<'_> {
    /// One large file over a veth pair.
    fn no_path(&self) -> Vec<Clause> {
        let mut all = vec![Clause {
            cell: VETH,
            what: "of scp",
            wanted: Wanted::AtLeast(2.0),
            measured: vec![self.of_best(VETH, &[Who::Scp], LARGE)],
        }];
        let encrypted = (
            "of iperf3, or of the parts alone",
            "the same, in the middle",
        );
        let open = (
            "--cipher none, of iperf3, or of the parts alone",
            "--cipher none, the same, in the middle",
        );
        for (who, (what, middle), least, names) in [
            (Who::Goodput, encrypted, 0.8, ["iperf3", "limit"]),
            (Who::GoodputOpen, open, 0.9, ["iperf3_open", "limit_open"]),
        ] {
            let whole = self.pace(VETH, who, LARGE, false);
            let steady = self.of(VETH, who, "steady");
            for (what, rate) in [(what, whole), (middle, steady)] {
                let of = |name| ratio(rate, self.0.median(VETH, &format!("{name}.rate")));
                all.push(Clause {
                    cell: VETH,
                    what,
                    wanted: Wanted::AtLeast(least),
                    measured: names.map(of).to_vec(),
                });
            }
        }
        all
    }

    fn small_files(&self) -> Vec<Clause> {
        let of = |(cell, what, who, least)| Clause {
            cell,
            what,
            wanted: Wanted::AtLeast(least),
            measured: vec![self.of_best(cell, &[who], MANY * FILE)],
        };
        let clauses = [
            ("many/dtn-100ms", "of scp", Who::Scp, 20.0),
            ("many/dtn-100ms", "of rsync", Who::Rsync, 5.0),
            ("many/dtn-100ms-open", "of scp", Who::Scp, 20.0),
            ("many/dtn-100ms-open", "of rsync", Who::Rsync, 5.0),
            ("many/loopback", "of rsync", Who::Rsync, 1.0),
        ];
        clauses.into_iter().map(of).collect()
    }

    fn of(&self, cell: &str, who: Who, metric: &str) -> Option<f64> {
        self.0.median(cell, &format!("{}.{metric}", who.name()))
    }

    /// Bits a second of a copy of `bytes` or more, ssh's start in its time or not.
    fn pace(&self, cell: &str, who: Who, bytes: u64, without_ssh: bool) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let whole = self
            .of(cell, who, "bytes")
            .filter(|copied| *copied >= bytes as f64)?;
        let started = match without_ssh {
            true => self.0.median(cell, "ssh.took")?,
            false => 0.0,
        };
        ratio(
            Some(whole * 8.0),
            Some(self.of(cell, who, "took")? - started),
        )
    }

    /// Ours of the fastest of them, all of which must have been measured.
    fn of_best(&self, cell: &str, peers: &[Who], bytes: u64) -> Option<f64> {
        let ours = self.pace(cell, Who::Goodput, bytes, false)?;
        let copied = self.of(cell, Who::Goodput, "bytes")?;
        let mut best = 0.0_f64;
        for peer in peers {
            let is_less = self.of(cell, *peer, "bytes")? < copied;
            best = best.max(self.pace(cell, *peer, 1, is_less)?);
        }
        ratio(Some(ours), Some(best))
    }
}

fn ratio(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    over.zip(under.filter(|under| *under > 0.0))
        .map(|(over, under)| over / under)
}

/// Payload bits a second that a built-in path carries, in full packets with time stamps.
fn payload_rate(path: &str) -> Option<f64> {
    let path = PathFile::read(&workspace().join(format!("paths/{path}.toml"))).ok()?;
    let rate = achievable(path.forward.rate?, path.mtu_bytes(), IpVersion::V4, true);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    Some(rate.as_bits_per_second() as f64)
}

const PATHS: [(&str, &str); 3] = [
    ("large/dtn-100ms", "dtn-100ms"),
    ("large/dtn-300ms", "dtn-300ms"),
    ("large/dtn-100ms-loss", LOSSY),
];
const LOSSY: &str = "dtn-100ms-loss";
const VETH: &str = "large/veth";
const MILLION: &str = "million/loopback";
const MIDDLE: &str = "of what the path carries, in the middle";
const WHOLE: &str = "of what the path carries, over the whole file";
const WITHOUT_SSH: &str = "the same, without ssh's start";
const GIGABYTE: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::super::super::record::{Machine, Recorder};
    use super::*;

    /// What was measured: cell, metric, value.
    type Measured<'a> = (&'a str, &'a str, f64);

    fn record(measured: &[Measured<'_>]) -> Record {
        let mut rows = Vec::new();
        for (cell, metric, value) in measured {
            let mut recorder = Recorder::new(1, (*cell).to_owned(), 0.0);
            recorder.put(*metric, *value, "1");
            rows.extend(recorder.into_parts().0);
        }
        Record::of(Machine::default(), 1, false, Vec::new(), rows)
    }

    /// What is said of one clause where a path carries 1 Gb/s.
    fn verdict(cell: &str, what: &str, measured: &[Measured<'_>]) -> Option<bool> {
        let all = judge(&record(measured), &|_| Some(1e9));
        let mut those = all.iter().filter(|c| c.cell == cell && c.what == what);
        let clause = those.next().expect("a clause of that name");
        assert!(those.next().is_none(), "{what} is there twice");
        clause.holds()
    }

    #[test]
    fn a_boundary_is_part_of_at_least_and_not_of_under() {
        let clause = |wanted, value| Clause {
            cell: "x",
            what: "x",
            wanted,
            measured: vec![Some(value)],
        };
        let least = Wanted::AtLeast(0.95);
        assert_eq!(clause(least, 0.95).holds(), Some(true));
        assert_eq!(clause(least, 0.949_999).holds(), Some(false));
        let under = Wanted::Under(1e9);
        assert_eq!(clause(under, 999_999_999.0).holds(), Some(true));
        assert_eq!(clause(under, 1e9).holds(), Some(false));
    }

    #[test]
    fn one_of_two_limits_is_enough_and_both_must_be_missed_for_a_no() {
        let clause = |measured| Clause {
            cell: "x",
            what: "x",
            wanted: Wanted::AtLeast(0.8),
            measured,
        };
        assert_eq!(clause(vec![Some(0.3), Some(0.8)]).holds(), Some(true));
        assert_eq!(clause(vec![Some(0.8), None]).holds(), Some(true));
        assert_eq!(clause(vec![Some(0.3), Some(0.79)]).holds(), Some(false));
        assert_eq!(clause(vec![Some(0.3), None]).holds(), None);
    }

    #[test]
    fn a_path_is_judged_in_the_middle_and_over_the_whole_file() {
        for (cell, bytes, middle, whole) in [
            ("large/dtn-100ms", 2e9, 0.95, 0.9),
            ("large/dtn-300ms", 2e9, 0.95, 0.9),
            ("large/dtn-100ms-loss", 1e9, 0.7, 0.7),
        ] {
            for (by, expected) in [(1.001, true), (0.999, false)] {
                let steady = [(cell, "goodput copy.steady", middle * by * 1e9)];
                assert_eq!(verdict(cell, MIDDLE, &steady), Some(expected), "{cell}");
                let took = bytes * 8.0 / (whole * by * 1e9);
                let made = [
                    (cell, "goodput copy.bytes", bytes),
                    (cell, "goodput copy.took", took),
                ];
                assert_eq!(verdict(cell, WHOLE, &made), Some(expected), "{cell}");
                let made = [
                    (cell, "goodput copy.bytes", bytes),
                    (cell, "goodput copy.took", took + 1.5),
                    (cell, "ssh.took", 1.5),
                ];
                assert_eq!(verdict(cell, WHOLE, &made), Some(false), "{cell}");
                assert_eq!(verdict(cell, WITHOUT_SSH, &made), Some(expected), "{cell}");
            }
        }
    }

    #[test]
    fn half_a_file_is_not_judged_as_a_whole_one() {
        let cell = "large/dtn-300ms";
        let made = [
            (cell, "goodput copy.bytes", 1e9),
            (cell, "goodput copy.took", 8.0),
        ];
        assert_eq!(verdict(cell, WHOLE, &made), None);
    }

    #[test]
    fn peers_that_copy_less_are_spared_sshs_start() {
        let cell = "large/dtn-100ms";
        // A second of 10 is ssh's: the best of them does 100 MB in 9 s.
        let of = |took| {
            [
                (cell, "goodput copy.bytes", 2e9),
                (cell, "goodput copy.took", took),
                (cell, "rsync -a.bytes", 1e8),
                (cell, "rsync -a.took", 11.0),
                (cell, "scp -r.bytes", 1e8),
                (cell, "scp -r.took", 10.0),
                (cell, "ssh.took", 1.0),
            ]
        };
        let what = "of the best of rsync and scp";
        assert_eq!(verdict(cell, what, &of(35.9)), Some(true));
        assert_eq!(verdict(cell, what, &of(36.1)), Some(false));
        assert_eq!(verdict(cell, what, &of(35.9)[..4]), None, "scp is missing");
    }

    #[test]
    fn without_a_path_scp_iperf3_and_the_parts_are_the_measure() {
        let of = |who: &'static str, took| {
            [
                (VETH, "scp -r.bytes", 2e9),
                (VETH, "scp -r.took", 20.0),
                (VETH, "iperf3.rate", 8e9),
                (VETH, "limit.rate", 4e9),
                (VETH, "iperf3_open.rate", 8e9),
                (VETH, "limit_open.rate", 4e9),
                (VETH, who, took),
            ]
        };
        let with = |who: &str, bytes: &'static str, took: &'static str, seconds, what| {
            let mut made = of(took, seconds).to_vec();
            made.push((VETH, bytes, 2e9));
            assert!(bytes.starts_with(who));
            verdict(VETH, what, &made)
        };
        let ours = |seconds, what| {
            let (bytes, took) = ("goodput copy.bytes", "goodput copy.took");
            with("goodput copy", bytes, took, seconds, what)
        };
        let open = |seconds, what| {
            let bytes = "goodput copy --cipher none.bytes";
            let took = "goodput copy --cipher none.took";
            with("goodput copy --cipher none", bytes, took, seconds, what)
        };
        assert_eq!(ours(9.99, "of scp"), Some(true));
        assert_eq!(ours(10.01, "of scp"), Some(false));
        // 0.8 of what the parts alone come to are 3.2 Gb/s, 5 s.
        let what = "of iperf3, or of the parts alone";
        assert_eq!(ours(4.99, what), Some(true));
        assert_eq!(ours(5.01, what), Some(false));
        let what = "--cipher none, of iperf3, or of the parts alone";
        assert_eq!(open(4.44, what), Some(true));
        assert_eq!(open(4.45, what), Some(false));
        for (who, what, least) in [
            ("goodput copy", "the same, in the middle", 3.2e9),
            (
                "goodput copy --cipher none",
                "--cipher none, the same, in the middle",
                3.6e9,
            ),
        ] {
            let name = format!("{who}.steady");
            for (rate, expected) in [(least * 1.001, true), (least * 0.999, false)] {
                let mut made = of("goodput copy.took", 9.0).to_vec();
                made.push((VETH, &name, rate));
                assert_eq!(verdict(VETH, what, &made), Some(expected), "{who}");
            }
        }
    }

    #[test]
    fn small_files_are_judged_at_100_ms_and_on_this_host() {
        let all = 4_096e5;
        for (cell, what, peer, times) in [
            ("many/dtn-100ms", "of scp", "scp -r", 20.0),
            ("many/dtn-100ms-open", "of scp", "scp -r", 20.0),
            ("many/dtn-100ms", "of rsync", "rsync -a", 5.0),
            ("many/dtn-100ms-open", "of rsync", "rsync -a", 5.0),
            ("many/loopback", "of rsync", "rsync -a", 1.0),
        ] {
            let (bytes, took) = (format!("{peer}.bytes"), format!("{peer}.took"));
            for (by, expected) in [(0.999, true), (1.0, true), (1.001, false)] {
                let made = [
                    (cell, "goodput copy.bytes", all),
                    (cell, "goodput copy.took", 8.0 * by),
                    (cell, bytes.as_str(), all),
                    (cell, took.as_str(), 8.0 * times),
                ];
                assert_eq!(verdict(cell, what, &made), Some(expected), "{cell} {what}");
            }
        }
    }

    #[test]
    fn a_million_files_take_less_than_a_gigabyte_at_either_side() {
        let of = |metric, bytes| {
            [
                (MILLION, "goodput copy.bytes", 4_096e6),
                (MILLION, "goodput copy.took", 30.0),
                (MILLION, metric, bytes),
            ]
        };
        for (what, metric) in [
            ("memory near", "goodput copy.memory_near"),
            ("memory far", "goodput copy.memory_far"),
        ] {
            let judged = |bytes| verdict(MILLION, what, &of(metric, bytes));
            assert_eq!(judged(999_999_999.0), Some(true));
            assert_eq!(judged(1e9), Some(false));
            assert_eq!(verdict(MILLION, what, &of(metric, 1.0)[2..]), None);
        }
    }

    #[test]
    fn what_paths_carry_comes_from_their_files() {
        let shown = |path| payload_rate(path).map(|rate| format!("{:.2}", rate / 1e6));
        assert_eq!(shown("dtn-100ms").as_deref(), Some("941.48"));
        assert_eq!(shown("dtn-300ms").as_deref(), Some("470.74"));
        assert_eq!(shown("dtn-100ms-open"), None, "it has no rate");
    }

    #[test]
    fn nothing_measured_is_not_known_everywhere() {
        let record = record(&[]);
        assert!(
            judge(&record, &payload_rate)
                .iter()
                .all(|c| c.holds().is_none())
        );
        let text = table(&record);
        assert!(
            text.contains("not measured") && !text.contains("NaN"),
            "{text}"
        );
    }
}
