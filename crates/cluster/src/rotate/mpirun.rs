//! Ranks that are processes of MPI which `mpirun` starts from here, as often as wanted, and another's program in
//! turns with them.
//!
//! Each time is a run of its own by processes that know nothing of the others ([`super::mpi`]); its output, its
//! `run.json` and what the other program printed stay in the run folder. Each pair's best of all turns counts, of
//! either program: as with the tests of one run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration as StdDuration, Instant};

use fault::Failure;
use measure::{MeasureError, Stop};
use run::RunFolder;
use run::model::{Rotate, RotateCount, RotateFlow, RotateObserved};
use sys::child::ChildHandle;
use sys::signal::Interrupt;

use super::cbench::Cbench;
use super::counts::{count_of, counts};
use super::drive::{Event, Measured, Observer};
use super::plan::{self, Setup};
use super::{mpi, programs};
use crate::pairs;

/// What is told `mpirun` beside what the program wants.
#[derive(Clone, Debug)]
pub struct Mpirun {
    /// Processes to start.
    pub processes: u32,
    /// Options of its own, with blanks between.
    pub with: Option<String>,
    /// How often; each pair's best counts.
    pub turns: Option<u32>,
    /// Who measures the same in turns with ours.
    pub beside: Beside,
    /// What each process of this program is told; where its run folder goes is added.
    pub words: Vec<OsString>,
}

/// Who runs beside ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nobody.
    Nobody,
    /// CBench's own, from a folder, else from where PATH has it.
    Cbench(Option<PathBuf>),
}

/// Everything that the turns need.
#[derive(Debug)]
pub struct Turns {
    launcher: Launcher,
    cbench: Option<Cbench>,
    turns: u32,
}

impl Turns {
    /// Looks for the programs.
    ///
    /// # Errors
    /// One is not there, or this build has no MPI.
    pub fn prepare(plan: Mpirun, latency: bool) -> Result<Self, Failure> {
        if !cfg!(feature = "mpi") {
            return Err(mpi::missing());
        }
        let cbench = match &plan.beside {
            Beside::Cbench(folder) => Some(Cbench::find(folder.as_deref(), latency)?),
            Beside::Nobody => None,
        };
        let default = if cbench.is_some() { TURNS_BESIDE } else { 1 };
        Ok(Self {
            turns: plan.turns.unwrap_or(default),
            launcher: Launcher::find(plan)?,
            cbench,
        })
    }

    /// All turns, whose outputs go into the folder `turns` of `place`; then the rounds of each pair's best.
    ///
    /// # Errors
    /// A program fails, or a file cannot be written. What was measured until then stays.
    pub fn run(
        &self,
        setup: &Setup,
        place: &Path,
        found: &mut Measured,
        observer: &Observer<'_>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        self.measure(place, found, observer, stop)?;
        tell(setup, &found.rotate, observer)
    }

    fn measure(
        &self,
        place: &Path,
        found: &mut Measured,
        observer: &Observer<'_>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let place = place.join("turns");
        fs::create_dir(&place).map_err(|e| unwritable(&place, &e))?;
        let mut theirs = self.cbench.as_ref().map(|cbench| Theirs {
            cbench,
            best: Vec::new(),
            found: RotateObserved {
                tool: cbench.tool().to_owned(),
                program: cbench.program.display().to_string(),
                parser: cbench.parser(),
                ..RotateObserved::default()
            },
        });
        for turn in 1..=self.turns {
            // Who comes first takes turns as well.
            for ours in [turn % 2 == 1, turn % 2 == 0] {
                match (ours, &mut theirs) {
                    (true, theirs) => {
                        let output = place.join(format!("{turn:02}-goodput.txt"));
                        let turned = self.launcher.goodput(&output, stop)?;
                        if let Some(theirs) = theirs {
                            theirs.reads(&output, &turned)?;
                        }
                        merge(&mut found.rotate, turned)?;
                        found.rotate.turns = Some(turn);
                    }
                    (false, Some(theirs)) => {
                        let output = place.join(format!("{turn:02}-cbench.txt"));
                        self.launcher
                            .run(&theirs.cbench.program, &[], &output, stop)?;
                        theirs.add(&output, self.launcher.processes)?;
                    }
                    (false, None) => {}
                }
            }
            if let Some(theirs) = &theirs {
                found.rotate.observed = Some(theirs.beside(&found.rotate));
            }
            if self.turns > 1 {
                observer(Event::Turn {
                    turn,
                    turns: self.turns,
                    rotate: &found.rotate,
                })?;
            }
        }
        Ok(())
    }
}

/// The rounds of each pair's best.
fn tell(setup: &Setup, rotate: &Rotate, observer: &Observer<'_>) -> Result<(), Failure> {
    let plan = &plan::of(setup, &rotate.ranks)?;
    let mut begun = 0;
    for (n, (planned, round)) in plan.rounds.iter().zip(&rotate.rounds).enumerate() {
        observer(Event::Round {
            plan,
            planned,
            round,
        })?;
        let next = plan.rounds.get(n + 1);
        if next.is_none_or(|next| plan::closes(plan, planned, next)) {
            observer(Event::Closed {
                plan,
                last: planned,
                rounds: &rotate.rounds[begun..=n],
            })?;
            begun = n + 1;
        }
    }
    Ok(())
}

/// Each flow's better one of what there is and another turn.
fn merge(all: &mut Rotate, turn: Rotate) -> Result<(), Failure> {
    if all.rounds.is_empty() {
        all.mpi_library = turn.mpi_library;
        all.ranks = turn.ranks;
        all.tests = turn.tests;
        all.rounds = turn.rounds;
        return Ok(());
    }
    let pairs = |r: &Rotate| -> Vec<(u32, u32, u32)> {
        let each = r
            .rounds
            .iter()
            .flat_map(|r| r.flows.iter().map(|f| (r.number, f.from, f.to)));
        each.collect()
    };
    if all.ranks != turn.ranks || pairs(all) != pairs(&turn) {
        return Err(Failure::here(
            "mpirun put the processes elsewhere this time, so that pairs are others'; have it place them by \
             --mpirun-with, as \"--map-by node\"",
        ));
    }
    let flows = |r: Rotate| r.rounds.into_iter().flat_map(|r| r.flows);
    let best = all.rounds.iter_mut().flat_map(|r| &mut r.flows);
    for (best, flow) in best.zip(flows(turn)) {
        better(best, &flow);
    }
    Ok(())
}

fn better(best: &mut RotateFlow, other: &RotateFlow) {
    let most = |a: Option<u64>, b: Option<u64>| a.max(b);
    best.bits_per_second = most(best.bits_per_second, other.bits_per_second);
    best.received_bits_per_second = most(
        best.received_bits_per_second,
        other.received_bits_per_second,
    );
    best.latency_ns = match (best.latency_ns, other.latency_ns) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}

/// The other program, and each pair's best of its turns: MB/s, or microseconds.
struct Theirs<'a> {
    cbench: &'a Cbench,
    best: Vec<Vec<f64>>,
    found: RotateObserved,
}

impl Theirs<'_> {
    /// Has its parser read a turn of ours.
    fn reads(&mut self, output: &Path, turn: &Rotate) -> Result<(), Failure> {
        let Some(parser) = &mut self.found.parser else {
            return Ok(());
        };
        parser.outputs += 1;
        let counts = counts(turn);
        if let Some(count) = counts.last()
            && self.cbench.reads(output, count)?
        {
            parser.read += 1;
        }
        Ok(())
    }

    /// Takes a turn of its own.
    fn add(&mut self, output: &Path, processes: u32) -> Result<(), Failure> {
        let bytes = fs::read(output).map_err(Failure::here)?;
        let text = String::from_utf8_lossy(&bytes);
        let half = usize::try_from(processes / 2).unwrap_or(usize::MAX);
        let Some(turn) = pairs::rotations(&text).filter(|t| t.len() == half) else {
            return Err(Failure::here(format!(
                "{} printed no {half} rotations of {half} pairs: it is not CBench's, or was built with another MPI than \
                 mpirun's; what it printed: {}",
                self.found.program,
                output.display()
            )));
        };
        if self.best.is_empty() {
            self.best = turn;
            return Ok(());
        }
        let of_times = self.cbench.of_times;
        let all = self
            .best
            .iter_mut()
            .flatten()
            .zip(turn.into_iter().flatten());
        for (best, value) in all {
            *best = if of_times {
                best.min(value)
            } else {
                best.max(value)
            };
        }
        Ok(())
    }

    /// Held against ours.
    fn beside(&self, ours: &Rotate) -> RotateObserved {
        let of_times = self.cbench.of_times;
        let counts = counts(ours);
        let Some(own) = counts.last().filter(|_| !self.best.is_empty()) else {
            return self.found.clone();
        };
        // 10^6 bytes a second, or microseconds, as printed.
        let unit = if of_times { 1e3 } else { 8e6 };
        let rounds: Vec<Vec<f64>> = self
            .best
            .iter()
            .map(|r| r.iter().map(|v| v * unit).collect())
            .collect();
        let best = rounds.iter().flatten().copied().fold(0.0, f64::max);
        let blank = RotateCount {
            ranks: own.ranks,
            message_bytes: own.message_bytes,
            ..RotateCount::default()
        };
        let count = count_of(blank, &rounds, of_times, best);
        let rate = |bits: Option<u64>| bits.map(|bits| bits as f64);
        let ratio =
            |ours: Option<f64>, theirs: Option<f64>| Some(ours? / theirs.filter(|t| *t > 0.0)?);
        let [worst, average, best] = match of_times {
            true => [
                (own.worst_latency_ns, count.worst_latency_ns),
                (own.average_latency_ns, count.average_latency_ns),
                (own.best_latency_ns, count.best_latency_ns),
            ],
            false => [
                (
                    rate(own.worst_bits_per_second),
                    rate(count.worst_bits_per_second),
                ),
                (
                    rate(own.average_bits_per_second),
                    rate(count.average_bits_per_second),
                ),
                (
                    rate(own.best_bits_per_second),
                    rate(count.best_bits_per_second),
                ),
            ],
        };
        RotateObserved {
            worst_ratio: ratio(worst.0, worst.1),
            average_ratio: ratio(average.0, average.1),
            best_ratio: ratio(best.0, best.1),
            count,
            ..self.found.clone()
        }
    }
}

/// `mpirun`, and what it is told each time.
#[derive(Debug)]
struct Launcher {
    program: PathBuf,
    /// Of its own.
    words: Vec<OsString>,
    /// Of this program.
    own_words: Vec<OsString>,
    processes: u32,
}

impl Launcher {
    fn find(plan: Mpirun) -> Result<Self, Failure> {
        let processes = plan.processes;
        let missing = || {
            Failure::here(
                "there is no mpirun in PATH: install it (Debian: apt-get install openmpi-bin), or start goodput \
                 rotate --mpi by what your cluster has instead, such as srun",
            )
        };
        let program = programs::in_path("mpirun").ok_or_else(missing)?;
        let version = Command::new(&program)
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        let version = version.map_err(|_| missing())?;
        let mut words: Vec<OsString> = vec!["-np".into(), processes.to_string().into()];
        if String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
            // It asks twice before it starts anything for root, whose this process is already.
            if sys::userns::user_id() == 0 {
                words.push("--allow-run-as-root".into());
            }
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            let beyond = usize::try_from(processes).unwrap_or(usize::MAX) > cpus;
            if beyond && plan.with.is_none() {
                words.push("--oversubscribe".into());
            }
        }
        let own = plan.with.as_deref().unwrap_or_default();
        words.extend(own.split_whitespace().map(OsString::from));
        Ok(Self {
            program,
            words,
            own_words: plan.words,
            processes,
        })
    }

    /// A turn of ours; its text goes to `output`, its `run.json` beside that.
    fn goodput(&self, output: &Path, stop: &Stop) -> Result<Rotate, Failure> {
        let own = std::env::current_exe().map_err(Failure::here)?;
        let runs = output.with_extension("run");
        let mut words = self.own_words.clone();
        words.extend(["--runs".into(), runs.clone().into()]);
        self.run(&own, &words, output, stop)?;
        let elsewhere = || {
            Failure::here(format!(
                "the first process left no run in {}: it was started on another machine, or with another MPI than this \
                 program's; begin the list of hosts with this one",
                runs.display()
            ))
        };
        let mut entries = fs::read_dir(&runs).map_err(|_| elsewhere())?;
        let folder = entries
            .next()
            .ok_or_else(elsewhere)?
            .map_err(Failure::here)?
            .path();
        let run = RunFolder::load(&folder)?.run;
        let kept = output.with_extension("json");
        fs::rename(folder.join("run.json"), &kept).map_err(|e| unwritable(&kept, &e))?;
        // Its page and its empty lists say no more than this run's.
        fs::remove_dir_all(&runs).map_err(|e| unwritable(&runs, &e))?;
        run.rotate.ok_or_else(elsewhere)
    }

    /// Runs a program to its end, or ends it when `stop` is raised.
    fn run(
        &self,
        program: &Path,
        words: &[OsString],
        output: &Path,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let errors = output.with_extension("err");
        let file = |path: &Path| File::create_new(path).map_err(|e| unwritable(path, &e));
        let mut command = Command::new(&self.program);
        command.args(&self.words).arg(program).args(words);
        command
            .stdin(Stdio::null())
            .stdout(file(output)?)
            .stderr(file(&errors)?);
        let mut child = command
            .spawn()
            .map_err(|e| Failure::here(format!("cannot start {}: {e}", self.program.display())))?;
        let handle = ChildHandle::of(&child).map_err(|e| {
            let _ = child.kill();
            Failure::here(e)
        })?;
        let mut told: Option<Instant> = None;
        while !handle.wait(POLL_PAUSE).map_err(Failure::here)? {
            match told {
                None if stop.is_stopped() => {
                    // It ends those that it started.
                    handle.interrupt(Interrupt::Term);
                    told = Some(Instant::now());
                }
                Some(when) if when.elapsed() > PATIENCE => handle.kill(),
                _ => {}
            }
        }
        let status = child.wait().map_err(Failure::here)?;
        if stop.is_stopped() {
            return Err(MeasureError::Interrupted.into());
        }
        if status.success() {
            if fs::metadata(&errors).is_ok_and(|m| m.len() == 0) {
                let _ = fs::remove_file(&errors);
            }
            return Ok(());
        }
        let said = fs::read(&errors).unwrap_or_default();
        let why = reason(&String::from_utf8_lossy(&said));
        let text = format!(
            "mpirun: {status}: {why}; all that it said: {}",
            errors.display()
        );
        Err(match status.code().map(u8::try_from) {
            Some(Ok(fault::USAGE)) => Failure::usage(text),
            _ => Failure::here(text),
        })
    }
}

/// What says most in the errors of `mpirun` and those that it started: ours, else the first sentence.
fn reason(said: &str) -> String {
    let ours = said.lines().find_map(|l| l.strip_prefix("goodput: "));
    let is_frame = |l: &&str| l.trim_matches('-').trim().is_empty();
    let first = || said.lines().find(|l| !is_frame(l));
    ours.or_else(first)
        .unwrap_or("it gave no reason")
        .trim()
        .to_owned()
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::here(format!("cannot write {}: {error}", path.display()))
}

/// On a machine that others use as well, of fewer one program's best may be a disturbed one.
const TURNS_BESIDE: u32 = 10;
const POLL_PAUSE: StdDuration = StdDuration::from_millis(100);
/// For ending what it started.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use run::model::RotateRound;

    fn turn(flows: &[(u32, u32, u64)]) -> Rotate {
        let flow = |&(from, to, bits): &(u32, u32, u64)| RotateFlow {
            from,
            to,
            bits_per_second: Some(bits),
            ..RotateFlow::default()
        };
        Rotate {
            measure: "bandwidth".to_owned(),
            ranks: vec!["n01:0".to_owned(), "n01:1".to_owned()],
            tests: 3,
            rounds: vec![RotateRound {
                ranks: 2,
                message_bytes: 8 << 20,
                flows: flows.iter().map(flow).collect(),
                ..RotateRound::default()
            }],
            ..Rotate::default()
        }
    }

    #[test]
    fn each_pair_keeps_its_best_turn() {
        let mut all = Rotate::default();
        for rates in [[50, 90], [70, 80]] {
            merge(&mut all, turn(&[(0, 2, rates[0]), (1, 3, rates[1])])).unwrap();
        }
        let bits: Vec<_> = all.rounds[0]
            .flows
            .iter()
            .map(|f| f.bits_per_second)
            .collect();
        assert_eq!((bits, all.tests), (vec![Some(70), Some(90)], 3));
        // A pair of others is no better turn of this one.
        let error = merge(&mut all, turn(&[(0, 3, 1), (1, 2, 1)])).unwrap_err();
        assert!(error.to_string().contains("elsewhere"), "{error}");
        let mut time = RotateFlow {
            latency_ns: Some(2e3),
            ..RotateFlow::default()
        };
        for ns in [3e3, 1e3] {
            let other = RotateFlow {
                latency_ns: Some(ns),
                ..RotateFlow::default()
            };
            better(&mut time, &other);
        }
        assert_eq!(time.latency_ns, Some(1e3));
    }

    #[test]
    fn ours_is_held_against_theirs_by_each_pairs_best() {
        let cbench = Cbench::of("/opt/cbench/rotate", None, false);
        let mut theirs = Theirs {
            cbench: &cbench,
            best: Vec::new(),
            found: RotateObserved::default(),
        };
        let folder = std::env::temp_dir().join(format!("goodput-theirs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let output = folder.join("01.txt");
        for rate in ["400.00", "500.00", "450.00"] {
            fs::write(
                &output,
                format!("process 1 on a\r\nrotate 0 ** {rate} , ** min=1\r\n"),
            )
            .unwrap();
            theirs.add(&output, 2).unwrap();
        }
        let found = theirs.beside(&turn(&[(0, 1, 3_800_000_000)]));
        assert_eq!(found.count.best_bits_per_second, Some(4_000_000_000));
        assert_eq!((found.count.pairs, found.best_ratio), (1, Some(0.95)));
        assert_eq!(
            (found.average_ratio, found.worst_ratio),
            (Some(0.95), Some(0.95))
        );
        // Four processes have two rotations of two pairs.
        let error = theirs.add(&output, 4).unwrap_err().to_string();
        assert!(error.contains("no 2 rotations of 2 pairs"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_reason_is_ours_or_the_first_sentence() {
        let frame = "--------------------------\n";
        let other = format!("{frame}There are not enough slots available.\n{frame}");
        assert_eq!(reason(&other), "There are not enough slots available.");
        let ours =
            format!("{frame}Primary job terminated.\n{frame}goodput: --list: cannot read x\n");
        assert_eq!(reason(&ours), "--list: cannot read x");
        assert_eq!(reason("\n"), "it gave no reason");
    }
}
