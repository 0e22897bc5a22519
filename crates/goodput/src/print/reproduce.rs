//! The board as a human reads it: one line a row, and one row in full.
//!
//! Columns take the width of their widest cell and the title takes the rest. Where that is too
//! little, the observer and the time are left out: `goodput reproduce ID` shows them.
//! Colour is on top of marks that differ in shape, never the only difference.
//!
//! Left out: characters wider than one column; the experiment files hold ASCII only.

use std::fmt::Write as _;

use fault::Failure;
use reproduce::check::{CheckOutcome, CheckResult, show_accepted, show_number};
use reproduce::experiment::{DocumentNumber, Experiment, OURSELVES, Sure};
use reproduce::state::RowResult;
use reproduce::{Board, State, Status, status};

const fn mark(status: Status) -> &'static str {
    match status {
        Status::Green => "●",
        Status::Amber => "◐",
        Status::Failed => "✗",
        Status::NotRun => "▷",
        Status::NotYet => "○",
    }
}

/// SGR parameters of ECMA-48: the eight colours every terminal has.
const fn sgr(status: Status) -> &'static str {
    match status {
        Status::Green => "32",
        Status::Amber => "33",
        Status::Failed => "1;31",
        Status::NotRun | Status::NotYet => "31",
    }
}

/// Shows the board.
pub(crate) fn board(board: &Board, state: &State, json: bool) -> Result<(), Failure> {
    match json {
        true => super::print_json(&reproduce::board_json(board, state)),
        false => super::print_colored(&render(board, state, super::color(), super::width())),
    }
}

/// Shows a row.
pub(crate) fn row(row: &Experiment, state: &State, json: bool) -> Result<(), Failure> {
    match json {
        true => super::print_json(&reproduce::row_json(row, state)),
        false => super::print_colored(&render_row(row, state, super::color(), super::width())),
    }
}

/// The board: grouped by document, one line a row, a legend and the count.
fn render(board: &Board, state: &State, color: bool, width: usize) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let lines: Vec<Line> = board
        .rows()
        .iter()
        .map(|row| Line::of(row, state))
        .collect();
    let columns = Columns::fit(&lines, width);
    let paint = Paint(color);
    let mut out = String::new();
    columns.head(&mut out, &paint);
    let mut seed = "";
    for (row, line) in board.rows().iter().zip(&lines) {
        if row.seed.file != seed {
            seed = &row.seed.file;
            let title = format!("{seed}  {}", row.seed.title);
            let _ = write!(out, "\n{}\n", paint.with("1", &cut(&title, width)));
        }
        columns.row(&mut out, line, &paint);
    }
    legend(&mut out, &paint, width);
    out.push('\n');
    wrap(&mut out, &count_line(&lines), "", width);
    if let Some(warning) = &state.warning {
        out.push('\n');
        wrap(&mut out, warning, "", width);
    }
    out
}

/// One row in full: the document's numbers and ours, the tolerance and its reason, the observers,
/// the command, what is missing.
fn render_row(row: &Experiment, state: &State, color: bool, width: usize) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let paint = Paint(color);
    let (status, why) = status(row, state);
    let mut out = String::new();
    let mark = paint.with(sgr(status), &format!("{} {}", mark(status), status.name()));
    let _ = writeln!(out, "{}  {mark}", paint.with("1", &row.id));
    wrap(&mut out, &row.title, "", width);
    let seed = format!("document {}: {}", row.seed.file, row.seed.title);
    wrap(&mut out, &seed, "", width);
    if let Some(why) = why.filter(|_| row.not_yet.is_none()) {
        section(&mut out, "why", &why, &paint, width);
    }
    section(&mut out, "theirs", &row.document.value, &paint, width);
    for number in &row.document.numbers {
        number_lines(&mut out, row, number, &paint, width);
    }
    section(&mut out, "ours", &row.ours.what, &paint, width);
    for accept in &row.ours.accept {
        wrap_item(&mut out, &format!("must hold: {accept}"), width);
    }
    section(
        &mut out,
        "observer",
        &row.ours.observer.join(", "),
        &paint,
        width,
    );
    match &row.not_yet {
        Some(missing) => section(&mut out, "missing", missing, &paint, width),
        None => steps(&mut out, row, &paint, width),
    }
    if let Some(lacks) = &row.lacks {
        section(&mut out, "lacks", lacks, &paint, width);
    }
    if let Some(result) = state.latest(&row.id) {
        result_lines(&mut out, result, &paint, width);
    }
    out
}

/// The cells of one line.
struct Line {
    status: Status,
    id: String,
    title: String,
    document: String,
    ours: String,
    observer: String,
    when: String,
}

impl Line {
    fn of(row: &Experiment, state: &State) -> Self {
        let (status, _) = status(row, state);
        let result = state.latest(&row.id).filter(|_| row.not_yet.is_none());
        Self {
            status,
            id: row.id.clone(),
            title: row.title.clone(),
            document: row.document.value.clone(),
            ours: result.map(summary).unwrap_or_default(),
            observer: observers(row),
            when: result.map(|r| minute(&r.finished_utc)).unwrap_or_default(),
        }
    }
}

/// Our own readings of the document's numbers, one for each number, in the row's order.
fn summary(result: &RowResult) -> String {
    let mut beside: Vec<&str> = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    for check in result
        .checks
        .iter()
        .filter(|c| c.observer == OURSELVES && !c.ours.is_empty())
    {
        let Some(name) = check.beside.as_deref() else {
            continue;
        };
        if !beside.contains(&name) {
            beside.push(name);
            words.push(&check.ours);
        }
    }
    words.join("; ")
}

/// The first observer and how many more there are.
fn observers(row: &Experiment) -> String {
    match row.ours.observer.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [one, more @ ..] => format!("{one} +{}", more.len()),
    }
}

/// `2026-08-27T14:03:11Z` without the seconds.
fn minute(utc: &str) -> String {
    utc.chars()
        .take(16)
        .map(|c| if c == 'T' { ' ' } else { c })
        .collect()
}

/// Widths of the columns.
struct Columns {
    title: usize,
    document: usize,
    ours: usize,
    observer: Option<usize>,
    when: Option<usize>,
}

impl Columns {
    /// The widest layout that leaves the titles room: with observer and time, with the time's date,
    /// with the date alone, with neither.
    fn fit(lines: &[Line], width: usize) -> Self {
        let widest = |head: &str, cell: fn(&Line) -> &str| {
            lines
                .iter()
                .map(|l| cell(l).chars().count())
                .chain([head.len()])
                .max()
                .unwrap_or(0)
        };
        let share = width.saturating_sub(ID + MARK);
        let titles = widest("row", |l| &l.title);
        let document = widest("theirs", |l| &l.document).min(share * 2 / 5);
        let ours = widest("ours", |l| &l.ours).min(share / 4);
        let observer = widest("observer", |l| &l.observer);
        let when = widest("when", |l| &l.when);
        let layouts = [
            (Some(observer), Some(when)),
            (Some(observer), Some(when.min(DATE))),
            (None, Some(when.min(DATE))),
            (None, None),
        ];
        let with = |(observer, when): (Option<usize>, Option<usize>)| {
            let taken = [Some(document), Some(ours), observer, when];
            let taken: usize = taken.iter().flatten().map(|column| column + GAP).sum();
            let title = share.saturating_sub(taken).min(titles);
            Self {
                title,
                document,
                ours,
                observer,
                when,
            }
        };
        let good = titles.min(TITLE_GOOD);
        let mut fitting = layouts
            .into_iter()
            .map(with)
            .filter(|columns| columns.title >= good);
        fitting.next().unwrap_or_else(|| with((None, None)))
    }

    fn head(&self, out: &mut String, paint: &Paint) {
        let mut text = format!("{:1$}", "", ID + MARK);
        self.cells(&mut text, ["row", "theirs", "ours", "observer", "when"]);
        let _ = writeln!(out, "{}", paint.with("2", text.trim_end()));
    }

    fn row(&self, out: &mut String, line: &Line, paint: &Paint) {
        let mark = paint.with(sgr(line.status), mark(line.status));
        let mut text = String::new();
        let when: String = line.when.chars().take(self.when.unwrap_or(0)).collect();
        let cells = [
            &line.title,
            &line.document,
            &line.ours,
            &line.observer,
            &when,
        ];
        self.cells(&mut text, cells.map(String::as_str));
        let _ = writeln!(out, "{mark} {:<ID$}{}", line.id, text.trim_end());
    }

    fn cells(&self, text: &mut String, cells: [&str; 5]) {
        let widths = [
            Some(self.title),
            Some(self.document),
            Some(self.ours),
            self.observer,
            self.when,
        ];
        for (cell, width) in cells.iter().zip(widths) {
            if let Some(width) = width {
                let _ = write!(text, "{:width$}{:GAP$}", cut(cell, width), "");
            }
        }
    }
}

fn legend(out: &mut String, paint: &Paint, width: usize) {
    let entries = [
        (
            Status::Green,
            "every check passed, every named observer judged",
        ),
        (Status::Amber, "ran, something could not be judged"),
        (Status::Failed, "ran, a check failed or a step did not run"),
        (Status::NotRun, "can be run here: goodput reproduce ID"),
        (Status::NotYet, "goodput reproduce ID says what is missing"),
    ];
    out.push('\n');
    for (status, meaning) in entries {
        let mark = paint.with(sgr(status), mark(status));
        let text = format!("{:<12}  {meaning}", status.name());
        let _ = writeln!(out, "{mark} {}", cut(&text, width - MARK));
    }
}

fn count_line(lines: &[Line]) -> String {
    let of = |status: Status| lines.iter().filter(|line| line.status == status).count();
    let (failed, not_run, not_yet) = (of(Status::Failed), of(Status::NotRun), of(Status::NotYet));
    format!(
        "{} rows: green {} / amber {} / red {} (failed {failed}, not run {not_run}, not yet {not_yet})",
        lines.len(),
        of(Status::Green),
        of(Status::Amber),
        failed + not_run + not_yet,
    )
}

fn number_lines(
    out: &mut String,
    row: &Experiment,
    number: &DocumentNumber,
    paint: &Paint,
    width: usize,
) {
    let label = number.name.replace('_', " ");
    let _ = writeln!(
        out,
        "{:INDENT$}{label}: {}",
        "",
        paint.with("1", &show_number(number))
    );
    let sure = match number.sure {
        Sure::Seed => "in the document",
        Sure::Published => "published elsewhere",
        Sure::Computed => "computed",
        Sure::FromMemory => "from memory, to be verified",
    };
    let source = match row.document.quotes.get(&number.name) {
        Some(quote) => format!("{sure}, {}: \"{quote}\"", number.place),
        None => format!("{sure}: {}", number.place),
    };
    wrap_item(out, &source, width);
    match row.ours.tolerance.get(&number.name) {
        Some(tolerance) => {
            let accepts = show_accepted(number, tolerance);
            wrap_item(
                out,
                &format!("accepted: {accepts} ({})", tolerance.because),
                width,
            );
        }
        None => wrap_item(out, "context: shown, not judged", width),
    }
}

fn steps(out: &mut String, row: &Experiment, paint: &Paint, width: usize) {
    let command = format!("goodput reproduce {}", row.id);
    section(out, "command", &command, paint, width);
    for step in &row.steps {
        wrap_item(out, &format!("{}: {}", step.name, step.why), width);
        wrap_item(out, &format!("  {}", step.command()), width);
    }
}

fn result_lines(out: &mut String, result: &RowResult, paint: &Paint, width: usize) {
    let mut ran = format!(
        "{} UTC, goodput {}",
        minute(&result.finished_utc),
        result.goodput_version
    );
    if let Some(folder) = &result.run_folder {
        let _ = write!(ran, ", {folder}");
    }
    section(out, "last run", &ran, paint, width);
    for error in &result.errors {
        wrap_item(out, &format!("did not run: {error}"), width);
    }
    let mut step = "";
    for check in &result.checks {
        if check.step != step {
            step = &check.step;
            let _ = writeln!(out, "{:INDENT$}{step}", "");
        }
        check_line(out, check, paint, width);
    }
}

fn check_line(out: &mut String, check: &CheckResult, paint: &Paint, width: usize) {
    let (sgr, mark) = match check.outcome {
        CheckOutcome::Passed => ("32", "●"),
        CheckOutcome::Failed => ("1;31", "✗"),
        CheckOutcome::Missing => ("33", "◐"),
    };
    let mut text = format!("{}: ", check.name);
    text.push_str(if check.ours.is_empty() {
        "no reading"
    } else {
        &check.ours
    });
    let _ = write!(text, "; wanted {}", check.wanted);
    if let Some(theirs) = &check.theirs {
        let _ = write!(text, "; theirs {theirs}");
    }
    let _ = write!(text, " [{}]", check.observer);
    if let Some(note) = check.note.as_ref().filter(|note| !note.is_empty()) {
        let _ = write!(text, " {note}");
    }
    let body = wrapped(&text, width.saturating_sub(INDENT + 2 + MARK));
    for (index, line) in body.iter().enumerate() {
        let lead = if index == 0 {
            paint.with(sgr, mark)
        } else {
            " ".to_owned()
        };
        let _ = writeln!(out, "{:1$}{lead} {line}", "", INDENT + 2);
    }
}

fn section(out: &mut String, name: &str, text: &str, paint: &Paint, width: usize) {
    out.push('\n');
    for (index, line) in wrapped(text, width.saturating_sub(INDENT))
        .iter()
        .enumerate()
    {
        let name = if index == 0 { name } else { "" };
        let label = format!("{name:<INDENT$}");
        let label = if name.is_empty() {
            label
        } else {
            paint.with("2", &label)
        };
        let _ = writeln!(out, "{label}{line}");
    }
}

fn wrap_item(out: &mut String, text: &str, width: usize) {
    let indent = format!("{:1$}", "", INDENT + 2);
    wrap(out, text, &indent, width);
}

fn wrap(out: &mut String, text: &str, indent: &str, width: usize) {
    for line in wrapped(text, width.saturating_sub(indent.len())) {
        let _ = writeln!(out, "{indent}{line}");
    }
}

/// Breaks at blanks; a word longer than the line stands alone and runs over, so that a command or
/// path can still be copied. Leading blanks of the text are kept.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let lead: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut lines = Vec::new();
    let mut line = lead.clone();
    for word in text.split_whitespace() {
        let blank = usize::from(line.len() > lead.len());
        if blank == 1 && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, lead.clone()));
        } else if blank == 1 {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// The text, or as much of it as fits with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end_matches([' ', ',', ';', ':']))
}

struct Paint(bool);

impl Paint {
    fn with(&self, sgr: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{sgr}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Narrower terminals get the layout of this width and wrap it themselves.
const WIDTH_MIN: usize = 60;

/// Longer lines are hard to follow across.
const WIDTH_MAX: usize = 160;

/// Chosen: a title cut to less says too little; observer and time give way before that.
const TITLE_GOOD: usize = 30;

/// Length of a date without its time.
const DATE: usize = 10;

const GAP: usize = 2;
const MARK: usize = 2;
const ID: usize = 5;
const INDENT: usize = 10;

#[cfg(test)]
mod tests {
    use reproduce::board::{Made, judge};
    use serde_json::{Value, json};

    use super::*;

    fn sample(goodput: u64, observers: Value) -> (Experiment, State) {
        let row = Experiment::parse(
            "N1.toml",
            include_str!("../../../reproduce/src/testdata/row.toml"),
        )
        .unwrap();
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

    fn longest(text: &str) -> usize {
        text.lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn the_board_of_a_fresh_machine_at_100_columns() {
        let board = Board::embedded().unwrap();
        insta::assert_snapshot!(render(&board, &State::default(), false, 100), @r#"
               row                              theirs                      ours  observer              when

        000  Cray Networking on Product Line Systems (J. Blakeborough, CUG 2003)
        ▷ C1   Gateway that ends TCP, 64 KB i…  90, 350 Mb/s; 2 x 50 MB/s         iperf3 +3
        ▷ C2   What it replaced: routed, 1500…  11..15 Mb/s; 30 of 100            iperf3 +2
        ▷ C3   Goodput against write size       500, 5,000 and 3,500 B            iperf3 +1
        ▷ C4   Goodput against socket buffer    knees at 135 and 330 KB           iperf3 +2
        ○ C5   Checksum and interrupt off-load  up to 80,000 interrupts/s         kernel counters +2
        ▷ C6   Bonding: never beyond one link   4 x GigE, 1 Gb/s each             iperf3 +1
        ▷ C7   Plans: resilient paths, easy u…  several links                     iperf3 +2
        ▷ C8   The vision: 8 times one stream   at least 8 x                      iperf3 +3

        001  MaSTER-1, TCP/IP performance, GRAPE-DR (University of Tokyo and NICT, SC08)
        ▷ T1   MaSTER-1: five ports, all to a…  5 x 10 Gb/s, 512 MiB each         iperf3 +1
        ▷ T2   Switch, filter, logger, pseudo…  up to 400 ms                      kernel timestamps +1
        ▷ T3   How switches drop and merge pa…  shown, no number                  tshark
        ▷ T4   Stream Harmonizer: balanced st…  loss order 3,1,2,0                kernel tcp_info
        ▷ T5   TAPEE: packets at fine time      100 ns                            tshark +1
        ▷ T6   Pacing: only the gap does it     700 loses, 720 octets not         formula +1
        ▷ T7   Adjusted gap finds the bottlen…  with no limit specified           kernel tcp_info +1
        ○ T8   Pseudo against real LFN          side by side                      tshark +1
        ▷ T9   Land speed record                99 %, 5 h, 522 ms                 formula +2
        ▷ T10  Mysteries: bus and off-load      below 8 Gb/s                      formula +1
        ○ T11  CosmoGrid: N-body on two conti…  256^3 in 60 Mpc, 30 + 30          Ewald sum +2
        ○ T12  GRAPE-DR chip                    512 / 256 Gflops                  formula +1
        ○ T13  GRAPE-DR compilers               flat-C, optimising C              scalar reference +1
        ○ T14  GRAPE-DR applications            N-body, MD, SPH, Linpack          formula +1

        002  Improving End2End Performance for the Columbia Supercomputer (M. Foster, CENIC 07)
        ▷ N1   Long transfers at low rates      2..5, 257 Mb/s; 4.7 Gb/s          kernel tcp_info +1
        ○ N2   Path characterisation            ndt, npad, nuttcp, iperf          iperf3 +2
        ○ N3   Obvious issues first             duplex, MTU, route                kernel tcp_info +2
        ▷ N4   TCP settings for 85 ms           100 MB windows                    kernel sysctl +1
        ▷ N5   The firewall in the path         199..644 -> 792..980 Mb/s         iperf3 +2
        ▷ N6   Ciphers: the CPU as the limit    by openssl speed                  openssl speed +2
        ▷ N7   How many streams                 8..12 streams                     iperf3 +1
        ○ N8   Flow monitoring                  NetFlow, flow-tools               nfdump +1
        ▷ N9   Bulk transfer                    few Mb/s -> few Gb/s              sha256sum +2
        ○ N10  The users: scientists; policy…   "just say no"                     unprivileged user +1

        003  Infiniband Based Cable Comparison (M. Minich, ORNL, June 2007)
        ▷ O1   Bandwidth, latency by message…   2..2^23 B, 2..2^8 B               iperf3 +2
        ▷ O2   SDR: the same over any cable     about 950 MB/s                    formula
        ▷ O3   DDR: an SDR converter halves it  rated for SDR only                formula
        ▷ O4   100 m of DDR: credits run out    -500 MB/s; cured by a lane        formula
        ▷ O5   The host bus setting             850 -> 950 MB/s                   formula +1
        ▷ O6   Cable reach by rate              7..20 m                           formula
        ▷ O7   Names of the graphs              <type>-<speed>-<cable>            formula

        004  10 Gigabit Ethernet Fabric at Sandia National Labs (Fortinet white paper)
        ▷ S1   CBench rotate and rotate_laten…  best, average, worst pair         CBench rotate +1
        ▷ S2   Static InfiniBand in a 288-por…  above 12 nodes; 55 %              formula +1
        ▷ S3   Dynamic Congestion Avoidance     near best to 124 nodes            formula +1
        ▷ S4   iWARP: strict and relaxed orde…  worst falls from 40               formula +1
        ▷ S5   Latency from 2 to 124 nodes      8.0 -> 9.2, 3.5 -> 4.75 us        formula
        ▷ S6   Switch latency                   1.6 us; 6.4 us                    formula
        ▷ S7   The same at a larger scale       600 -> 300 MB/s                   formula +1
        ▷ S8   Which applications suffer        all-to-all, phases                formula +1

        ● green         every check passed, every named observer judged
        ◐ amber         ran, something could not be judged
        ✗ red: failed   ran, a check failed or a step did not run
        ▷ red: not run  can be run here: goodput reproduce ID
        ○ red: not yet  goodput reproduce ID says what is missing

        47 rows: green 0 / amber 0 / red 47 (failed 0, not run 37, not yet 10)
        "#);
    }

    #[test]
    fn a_row_in_full_has_their_numbers_and_ours_and_what_is_missing() {
        let (row, state) = sample(3_080_000, json!([]));
        insta::assert_snapshot!(render_row(&row, &state, false, 80), @r#"
        N1  ◐ amber
        A row
        document 002: Test

        why       untuned, iperf3 agrees: the run does not hold
                  /phases/0/observers/tool=iperf*/goodput_bits_per_second

        theirs    2..5 Mb/s; 257 Mb/s
                  scp: 2..5 Mb/s
                    in the document, slide 11: "scp 2-5 Mbps"
                    accepted: 2 to 5 Mb/s (their range)
                  eight: 257 Mb/s
                    computed: slide 16
                    accepted: 231.3 to 282.7 Mb/s (as they)

        ours      doctor on a path

        observer  iperf3

        command   goodput reproduce N1
                    untuned: the untuned host
                      goodput doctor lab:paths/x.toml

        last run  2030-01-02 03:04 UTC, goodput 0.1.0,
                  runs/20300102T030405Z-reproduce-N1
                  untuned
                    ● lab kept up: true; wanted true [goodput]
                    ● before: 3.08 Mb/s; wanted 2 to 5 Mb/s; theirs 2..5 Mb/s [goodput]
                    ◐ iperf3 agrees: no reading; wanted within 5 % of
                      /phases/0/goodput_bits_per_second [iperf3] the run does not hold
                      /phases/0/observers/tool=iperf*/goodput_bits_per_second
        "#);
    }

    #[test]
    fn a_board_and_a_row_at_80_and_120_columns() {
        let row_file = include_str!("../../../reproduce/src/testdata/row.toml");
        let other = |id: &str, title: &str| {
            let file = row_file.replace("id = \"N1\"", &format!("id = \"{id}\""));
            file.replace("A row", title)
        };
        let long = other("N2", "A row with a title that a narrow terminal cuts");
        let third = other("N3", "Another row");
        let files = [
            ("N1.toml", row_file),
            ("N2.toml", long.as_str()),
            ("N3.toml", third.as_str()),
        ];
        let board = Board::parse(files).unwrap();
        let (row, mut state) = sample(3_080_000, json!([]));
        state.warning = Some("runs/board.json: 1 result of an unknown row was skipped".into());
        crate::print::golden!("reproduce_board", |width| render(
            &board, &state, false, width
        ));
        crate::print::golden!("reproduce_row", |width| render_row(
            &row, &state, false, width
        ));
    }

    #[test]
    fn a_row_that_cannot_run_says_what_is_missing() {
        let board = Board::embedded().unwrap();
        let row = board.row("T8").unwrap();
        insta::assert_snapshot!(render_row(row, &State::default(), false, 100), @r#"
        T8  ○ red: not yet
        Pseudo against real LFN
        document 001: MaSTER-1, TCP/IP performance, GRAPE-DR (University of Tokyo and NICT, SC08)

        theirs    side by side

        ours      one transfer on a real long path, its measured rate, delay and loss as a path file, the
                  same transfer in lab and in sim
                    must hold: lab against sim: goodput within 5 %, number of loss events equal for equal
                    seeds, window over time within 10 % outside recovery
                    must hold: lab against the capture of the real path: goodput within 10 %; where
                    distributions of gaps differ, the report shows which part

        observer  tshark, iperf3

        missing   capture and sim are there; a real path, and a step that sets the three beside each other,
                  are missing.
        "#);
    }

    #[test]
    fn no_line_of_the_board_is_wider_than_the_terminal() {
        let board = Board::embedded().unwrap();
        let (_, mut state) = sample(3_080_000, json!([]));
        for when in ["", "2030-01-02T03:04:05Z"] {
            let mut result = state.latest("N1").unwrap().clone();
            result.finished_utc = when.into();
            result.checks.iter_mut().for_each(|check| {
                check.ours = "1234.5 Mb/s".into();
                check.beside = Some(check.name.clone());
            });
            state.add(result);
            for width in WIDTH_MIN..=200 {
                let text = render(&board, &state, false, width);
                assert!(longest(&text) <= width, "{width}: {}", longest(&text));
            }
        }
    }

    #[test]
    fn titles_and_numbers_fit_an_ordinary_terminal() {
        let board = Board::embedded().unwrap();
        for row in board.rows() {
            assert!(row.title.len() <= 36, "{}: {}", row.id, row.title);
            assert!(
                row.document.value.len() <= 26,
                "{}: {}",
                row.id,
                row.document.value
            );
        }
    }

    #[test]
    fn columns_give_way_in_order_when_the_terminal_is_narrow() {
        let board = Board::embedded().unwrap();
        let head = |width| {
            let text = render(&board, &State::default(), false, width);
            text.lines()
                .next()
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(head(100), "row theirs ours observer when");
        assert_eq!(head(80), "row theirs ours when");
        assert_eq!(head(60), "row theirs ours");
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        let board = Board::embedded().unwrap();
        let painted = render(&board, &State::default(), true, 100);
        let mut plain = String::new();
        let mut rest = painted.as_str();
        while let Some((before, after)) = rest.split_once("\x1b[") {
            plain.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert!(painted.contains("\x1b[31m○\x1b[0m"));
        assert_eq!(plain, render(&board, &State::default(), false, 100));
    }

    #[test]
    fn a_broken_state_file_is_named_below_the_board() {
        let mut state = State::default();
        state.warning = Some("runs/board.json cannot be read".into());
        let text = render(&Board::embedded().unwrap(), &state, false, 80);
        assert!(text.ends_with("runs/board.json cannot be read\n"));
    }
}
