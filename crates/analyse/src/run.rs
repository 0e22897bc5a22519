//! The whole of it: from a plan to a run folder.
//!
//! A file is read twice: once for the facts of all connections, and once more for the time-sequence graphs
//! of those that lost most. Standard input is read once, and has no graphs. An interface is captured into
//! the run folder while its packets are analysed; then that file is read for the graphs. A path is filled,
//! and captured, first.
//!
//! Two captures of one path are also matched with each other ([`pair`]); a lab's packet log stands for a
//! capture at each port, and says why segments were lost ([`logs`]).

use std::path::PathBuf;

use fault::Failure;
use job::{Context, record};
use report::RunFolder;
use report::model::{FindingRecord, Run, Trace, TraceFile, TraceTables, Verdict};

use crate::connection::{connection, finding_records};
use crate::graphs::graphs;
use crate::input::{self, Input};
use crate::live::{self, Observer};
use crate::logs::{self, LogFacts};
use crate::names::name_of;
use crate::plan::{Match, Plan, Source};
use crate::ranking::{Judged, Ranking};
use crate::reading::read;
use crate::spacing::{self, Question};
use crate::tables::Tables;
use crate::{observed, pair, planted};

/// What was found, and where it is kept.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The run as the folder has it; [`Run::trace`] holds the connections.
    pub run: Run,
    /// What limited them, and what to change.
    pub findings: Vec<FindingRecord>,
    /// The run folder.
    pub folder: PathBuf,
}

/// Says of every TCP connection in a plan's packets why it was no faster, and keeps it in a run folder.
///
/// ```no_run
/// use analyse::{Plan, explain};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = Plan::of_files(vec!["slow.pcap".into()], "runs".into());
/// let context = job::Context::start(|| ())?;
/// let explained = explain(&plan, &context, &mut ())?;
/// println!("{}", explained.run.verdict.unwrap_or_default().sentence);
/// # Ok(())
/// # }
/// ```
pub fn explain(
    plan: &Plan,
    context: &Context,
    observer: &mut dyn Observer,
) -> Result<Explained, Failure> {
    let mut gathered = Gathered::gather(plan, context, observer)?;
    gathered.end_tables()?;
    let Gathered {
        files,
        folder,
        question,
        is_live,
        mut trace,
        mut best,
        told,
    } = gathered;
    let is_stopped = || !is_live && context.stop.is_stopped();
    trace.unmade = std::mem::take(&mut best.unmade).into_records();
    let mut kept = best.into_sorted();
    logs::tell(&mut kept, &told);
    let graphs = graphs(&files, &kept, &is_stopped)?;
    let mut findings = Vec::new();
    for (n, (judged, graphs)) in kept.iter_mut().zip(graphs).enumerate() {
        let number = u32::try_from(n + 1).unwrap_or(u32::MAX);
        findings.extend(finding_records(judged, number));
        trace.connections.push(connection(judged, number, graphs));
    }
    if !is_live && let Some((pair, of_pair)) = pair::run(plan.matching, &files, &told, context)? {
        trace.pair = Some(pair);
        findings.extend(of_pair);
    }
    trace.logs = told.into_iter().map(|log| log.facts).collect();
    if let Some(question) = &question {
        let (counted, streams) = spacing::count(&files, &kept, question, &is_stopped)?;
        for one in &counted {
            if let Some(connection) = trace.connections.get_mut(one.of) {
                connection.spacing = Some(one.found(question));
            }
        }
        trace.streams = streams;
        if plan.tshark {
            trace.observer = Some(observed::tshark(&files, &counted, question)?);
        }
    }
    if is_stopped() {
        return Err(Failure::interrupted(context.interrupted().unwrap_or(130)));
    }
    finish(plan, context, folder, trace, &kept, findings)
}

/// What was read once.
struct Gathered {
    files: Vec<Input>,
    /// The run folder, where one was begun.
    folder: Option<RunFolder>,
    /// What is asked of the packets' spacing.
    question: Option<Question>,
    /// Ctrl-C has ended the capture, not the analysis.
    is_live: bool,
    trace: Trace,
    best: Ranking,
    /// What packet logs say.
    told: Vec<LogFacts>,
}

impl Gathered {
    fn gather(
        plan: &Plan,
        context: &Context,
        observer: &mut dyn Observer,
    ) -> Result<Self, Failure> {
        let mut all = Self {
            files: Vec::new(),
            folder: None,
            question: plan.question.clone(),
            is_live: false,
            trace: Trace::default(),
            best: Ranking::default(),
            told: Vec::new(),
        };
        match &plan.source {
            Source::Files(files) => all.of_files(files, plan, context)?,
            Source::Interface(options) => {
                let (trace, best) = (&mut all.trace, &mut all.best);
                let (own, file) = live::explain(plan, options, context, trace, best, observer)?;
                all.folder = Some(own);
                all.is_live = true;
                all.files = vec![Input::file(file)];
            }
            Source::Path(filled) => {
                let own = plan.begin(context, &filled.title())?;
                let (file, line) = planted::capture(filled, own.path(), &context.stop)?;
                all.question = all.question.map(|q| q.with_line(line));
                if plan.parquet {
                    all.best.tables = Some(Tables::create(own.path())?);
                }
                all.folder = Some(own);
                all.files = vec![Input::file(file)];
                all.read_all(plan, context)?;
            }
        }
        Ok(all)
    }

    fn of_files(
        &mut self,
        files: &[PathBuf],
        plan: &Plan,
        context: &Context,
    ) -> Result<(), Failure> {
        self.files = input::join(&input::expand(files)?, plan.matching == Match::Always);
        if plan.parquet {
            let name = files.first().map(|path| name_of(path));
            let own = plan.begin(context, &name.unwrap_or_default())?;
            self.best.tables = Some(Tables::create(own.path())?);
            self.folder = Some(own);
        }
        let tables = self.best.tables.clone();
        let read = self.read_all(plan, context);
        if read.is_err()
            && let Some((own, tables)) = self.folder.take().zip(tables)
        {
            // As without tables, a capture that cannot be read leaves no folder.
            tables.discard();
            own.discard();
        }
        read
    }

    fn read_all(&mut self, plan: &Plan, context: &Context) -> Result<(), Failure> {
        let (trace, best) = (&mut self.trace, &mut self.best);
        let mut unreadable = Vec::new();
        for (number, input) in (0_u32..).zip(&self.files) {
            let path = input.path();
            let read = if logs::is_log(path) {
                logs::read(path, number, trace, best, context).map(|(file, log)| {
                    self.told.push(log);
                    file
                })
            } else {
                read(input, number, plan.threads, trace, best, context)
            };
            match read {
                Ok(file) => trace.files.push(file),
                Err(failure) if self.files.len() > 1 && !context.stop.is_stopped() => {
                    // Of several files one that is none does not take the others away.
                    trace.notes.push(failure.to_string());
                    trace.files.push(TraceFile {
                        name: input.name(),
                        stopped: Some(failure.to_string()),
                        ..TraceFile::default()
                    });
                    unreadable.push(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        match unreadable.len() == self.files.len() {
            true => unreadable.into_iter().next().map_or(Ok(()), Err),
            false => Ok(()),
        }
    }

    fn end_tables(&mut self) -> Result<(), Failure> {
        if let Some(tables) = self.best.tables.take() {
            let written = tables.finish()?;
            self.trace.table_rows = Some(TraceTables {
                connections: written.connections,
                intervals: written.intervals,
            });
        }
        Ok(())
    }
}

/// Writes the run folder, the one that was begun if there is one.
fn finish(
    plan: &Plan,
    context: &Context,
    folder: Option<RunFolder>,
    trace: Trace,
    kept: &[Judged],
    findings: Vec<FindingRecord>,
) -> Result<Explained, Failure> {
    let name = trace
        .files
        .first()
        .map_or("", |f| f.name.as_str())
        .to_owned();
    let mut folder = match folder {
        Some(folder) => folder,
        None => plan.begin(context, &name)?,
    };
    let mut run = Run {
        verdict: Some(verdict(&trace, kept)),
        trace: Some(trace),
        ..folder.run().clone()
    };
    record::end(&mut run);
    folder.finish(&run, &findings).map_err(Failure::here)?;
    Ok(Explained {
        run: folder.run().clone(),
        findings,
        folder: folder.path().to_owned(),
    })
}

/// The connection that lost most, or that there is none.
fn verdict(trace: &Trace, kept: &[Judged]) -> Verdict {
    let Some(first) = kept.first() else {
        return Verdict {
            sentence: match (trace.tcp_packets, trace.unreadable_packets) {
                (0, unread @ 1..) => format!(
                    "No TCP in what can be read; {unread} of {} packets cannot be",
                    trace.packets
                ),
                (0, ..) => "No TCP packets".to_owned(),
                _ => "No TCP connection with data".to_owned(),
            },
            ..Verdict::default()
        };
    };
    let v = &first.passive.verdict;
    let side = &first.connection.sides[usize::from(first.passive.sender)];
    let nearly_all = side.unique_bytes >= trace.payload_bytes - trace.payload_bytes / 20;
    let sentence = match trace.connections_with_data {
        _ if nearly_all || trace.connections_with_data == 1 => v.sentence.clone(),
        n => format!("{n} connections; the one that lost most: {}", v.sentence),
    };
    Verdict {
        sentence,
        cause: v.cause.map(|c| c.name().to_owned()),
        healthy: v.healthy,
        conclusive: v.conclusive,
        ..Verdict::default()
    }
}
