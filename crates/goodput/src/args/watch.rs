//! `goodput watch` as it is typed: what limits every connection of this host.

use std::io::{self, IsTerminal as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use doctor::live::{self, Onlooker};
use fault::{Failure, Verdict};
use job::Context;
use serde_json::{Value, json};
use sys::clock;
use units::{Bytes, Duration, Instant};
use watch::names::Names;
use watch::row::{Document, Row, Sort, Summary, View};
use watch::{By, Connection, Filter, Options, Session, metrics, text};

use crate::args::serve::metrics_address;
use crate::print::{self, watch as say};

/// What `goodput watch` takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WatchArgs {
    /// Which connections, as in ss: dst, src, dport, sport, state, and/or/not; also limit=rwnd, pid=, proc=, uid=, cc=
    filter: Vec<String>,
    /// Time between two looks; 0s with --once: shares of each connection's whole life, at once
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Duration,
    /// Print once and end; where stdout is no terminal, lines are printed until Ctrl-C otherwise
    #[arg(long)]
    once: bool,
    /// Print one JSON document and end
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// text, json, or jsonl: an object for each connection at each look, until Ctrl-C
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Follow a process (number or name), port or peer for a while and say what limits its connections, as doctor does
    #[arg(long, value_name = "PID|PORT|PEER")]
    explain: Option<String>,
    /// With --explain: how long
    #[arg(
        long = "for",
        value_name = "TIME",
        default_value = "10s",
        requires = "explain"
    )]
    lasts: Duration,
    /// Keep what comes in this file: compressed, only added to
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Show a recording instead of this host
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all_namespaces", "explain"])]
    replay: Option<PathBuf>,
    /// OpenMetrics: a port or address to answer at, a file (with a slash or .prom) to keep, or - to print once
    #[arg(long, value_name = "PORT|FILE|-")]
    metrics: Option<String>,
    /// Look into every network namespace, such as containers; takes root
    #[arg(long)]
    all_namespaces: bool,
    /// Order of the rows
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = SortArg::Rate)]
    sort: SortArg,
    /// Order the other way round
    #[arg(long)]
    reverse: bool,
    /// Sums, of closed connections too, instead of connections
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<ByArg>,
    /// Rows at most [default: of text 20, of JSON all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
    Jsonl,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum SortArg {
    #[default]
    Rate,
    Out,
    In,
    Limit,
    Rtt,
    Retr,
    Age,
    Process,
    Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ByArg {
    Process,
    Peer,
    Port,
    Cgroup,
}

pub(crate) const WATCH_EXAMPLES: &str = "\
Examples:
  goodput watch                                    a screen; ? shows its keys
  goodput watch dst 10.0.0.0/8 and limit=rwnd      whose receiver holds them up
  goodput watch --explain nginx                    what limits nginx' connections, and the remedy
  goodput watch --once --by process                who carries what
  goodput watch --record day.gpw --format jsonl    keep all of it; --replay day.gpw shows it again
  goodput watch --metrics 9556                     for collectors of OpenMetrics";

/// Shows what limits connections, in the way that was asked for.
pub(crate) fn run(args: &WatchArgs, context: &Context) -> Verdict {
    let every = std::time::Duration::from_nanos(args.every.as_ns());
    let one = args.once || args.json || args.format == Some(Format::Json);
    if args.every < SHORTEST && !(args.once && args.every == Duration::ZERO) {
        return Err(Failure::usage(format!(
            "--every {}: at least {SHORTEST}",
            args.every
        )));
    }
    let view = args.view()?;
    let subject = args
        .explain
        .as_deref()
        .map(Filter::of_subject)
        .transpose()
        .map_err(Failure::usage)?;
    let publish = args.metrics.as_deref().map(Publish::to).transpose()?;
    let mut session = Session::open(&Options {
        all_namespaces: args.all_namespaces,
        record: args.record.clone(),
        replay: args.replay.clone(),
        processes: true,
    })?;
    session.tick()?;
    if one || subject.is_some() || args.metrics.as_deref() == Some("-") {
        session.find_owners(usize::MAX)?;
    }
    if let Some(subject) = subject {
        return explain(
            args,
            session,
            &View {
                filter: subject,
                ..view
            },
            context,
        );
    }
    let mut looks = Looks {
        session,
        every,
        publish,
        context,
    };
    if matches!(looks.publish, Some(Publish::Print)) {
        looks.next()?;
        print::print(&metrics::text(&looks.session))?;
        return Ok(fault::DONE);
    }
    if one {
        match args.replay {
            Some(_) => while looks.next()? {},
            None if args.every > Duration::ZERO => drop(looks.next()?),
            None => {}
        }
        args.print_once(&looks.session, &view)?;
        return Ok(fault::DONE);
    }
    match args.format {
        None if io::stdout().is_terminal() => say::screen(&mut looks, view),
        format => args.print_lines(&mut looks, &view, format == Some(Format::Jsonl)),
    }
}

impl WatchArgs {
    fn view(&self) -> Result<View, Failure> {
        let filter: Filter = self.filter.join(" ").parse().map_err(Failure::usage)?;
        Ok(View {
            filter,
            sort: self.sort.into(),
            reverse: self.reverse,
            by: self.by.map(By::from),
        })
    }

    fn print_once(&self, session: &Session, view: &View) -> Result<(), Failure> {
        if self.json || self.format == Some(Format::Json) {
            let top = self.top.unwrap_or(usize::MAX);
            return print::print_json(&Document::of(session, view, &Names::default(), top));
        }
        if self.format == Some(Format::Jsonl) {
            return print_objects(session, view, self.top.unwrap_or(usize::MAX));
        }
        print_text(session, view, self.top.unwrap_or(usize::MAX))
    }

    fn print_lines(&self, looks: &mut Looks<'_>, view: &View, objects: bool) -> Verdict {
        while looks.next()? {
            let session = &looks.session;
            match objects {
                true => print_objects(session, view, self.top.unwrap_or(usize::MAX))?,
                false => print_text(session, view, self.top.unwrap_or(ROWS))?,
            }
        }
        Ok(looks.context.interrupted().unwrap_or(fault::DONE))
    }
}

fn print_text(session: &Session, view: &View, top: usize) -> Result<(), Failure> {
    let width = sys::terminal::columns(io::stdout()).unwrap_or(PIPE_COLUMNS);
    let mut lines = vec![text::summary(session, width)];
    lines.extend(text::lines(session, view, &Names::default(), width, top));
    print::print(&(lines.join("\n") + "\n"))
}

fn print_objects(session: &Session, view: &View, top: usize) -> Result<(), Failure> {
    let document = Document::of(session, view, &Names::default(), top);
    document
        .connections
        .iter()
        .try_for_each(print::print_json_line)?;
    document
        .groups
        .iter()
        .try_for_each(print::print_json_line)?;
    print::print_json_line(&Summary::of(session))
}

/// A session that is looked at again and again.
#[derive(Debug)]
pub(crate) struct Looks<'a> {
    pub(crate) session: Session,
    pub(crate) every: std::time::Duration,
    publish: Option<Publish>,
    pub(crate) context: &'a Context,
}

impl Looks<'_> {
    /// Waits until the next look is due and takes it; false when there is none.
    fn next(&mut self) -> Result<bool, Failure> {
        if !self.session.is_replay() {
            let due = clock::monotonic()
                + Duration::from_ns(u64::try_from(self.every.as_nanos()).unwrap_or(u64::MAX));
            while clock::monotonic() < due {
                if self.context.stop.is_stopped() {
                    return Ok(false);
                }
                let left = due.saturating_since(clock::monotonic());
                std::thread::sleep(std::time::Duration::from_nanos(left.as_ns()).min(NAP));
                self.session.drain()?;
            }
        }
        self.look()
    }

    /// Takes a look now.
    pub(crate) fn look(&mut self) -> Result<bool, Failure> {
        let more = !self.context.stop.is_stopped() && self.session.tick()?;
        if let Some(publish) = &self.publish {
            publish.tell(&self.session)?;
        }
        Ok(more)
    }
}

/// Where metrics go.
#[derive(Debug)]
enum Publish {
    Print,
    File(PathBuf),
    Address(Arc<Mutex<String>>),
}

impl Publish {
    fn to(typed: &str) -> Result<Self, Failure> {
        if typed == "-" {
            return Ok(Self::Print);
        }
        if typed.contains('/') && !typed.starts_with('[') || typed.ends_with(".prom") {
            return Ok(Self::File(PathBuf::from(typed)));
        }
        let address = metrics_address(typed)?;
        let refused =
            |e: io::Error| Failure::here(format!("--metrics: cannot listen on {address}: {e}"));
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let text = Arc::new(Mutex::new("# EOF\n".to_owned()));
        let shown = Arc::clone(&text);
        let read = move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = move || measure::metrics::serve(&listener, &read, &measure::Stop::new());
        sys::threads::spawn("gp-metrics", answer).map_err(refused)?;
        Ok(Self::Address(text))
    }

    fn tell(&self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Print => {}
            Self::File(path) => metrics::write(path, &metrics::text(session))
                .map_err(|e| Failure::here(format!("--metrics {}: {e}", path.display())))?,
            Self::Address(text) => {
                *text.lock().unwrap_or_else(PoisonError::into_inner) = metrics::text(session);
            }
        }
        Ok(())
    }
}

/// Follows connections for a while, then says of each what the doctor's rules find.
fn explain(args: &WatchArgs, mut session: Session, view: &View, context: &Context) -> Verdict {
    let end = clock::monotonic() + args.lasts;
    while clock::monotonic() < end && !context.stop.is_stopped() {
        let ids: Vec<_> = view
            .select(&session, EXPLAINED)
            .iter()
            .map(|c| c.id)
            .collect();
        session.follow(ids.into_iter());
        std::thread::sleep(NAP);
        session.tick()?;
    }
    let found = view.select(&session, args.top.unwrap_or(EXPLAINED).min(EXPLAINED));
    if found.is_empty() {
        let subject = args.explain.as_deref().unwrap_or_default();
        return Err(Failure::check(format!(
            "--explain {subject}: no open connection is that; `goodput watch --once` lists all"
        )));
    }
    let onlooker = Onlooker::of_this_host(found.first().map(|c| c.local.ip()));
    let mut documents: Vec<Value> = Vec::new();
    for known in found {
        let diagnosis = diagnosis(&session, known, &onlooker);
        if args.json || args.format.is_some_and(|f| f != Format::Text) {
            let verdict = diagnosis
                .as_ref()
                .map(|d| job::record::verdict(&d.verdict, &d.findings));
            let findings = diagnosis.map(|d| job::record::findings("watched", &d.findings));
            documents.push(json!({
                "connection": Row::of(&session, known),
                "verdict": verdict,
                "findings": findings.unwrap_or_default(),
            }));
            continue;
        }
        let mut lines = text::details(&session, known, &Names::default());
        lines.extend(diagnosis.as_ref().map(live::lines).unwrap_or_default());
        let width = print::width();
        let lines = lines.iter().map(|line| print::wrapped(line, 4, width));
        print::print(&(lines.collect::<String>() + "\n"))?;
    }
    if args.format == Some(Format::Jsonl) {
        documents.iter().try_for_each(print::print_json_line)?;
    } else if !documents.is_empty() {
        print::print_json(&json!({ "explained": documents }))?;
    }
    Ok(context.interrupted().unwrap_or(fault::DONE))
}

/// What the rules say of a connection that is followed.
pub(crate) fn diagnosis(
    session: &Session,
    known: &Connection,
    onlooker: &Onlooker,
) -> Option<live::Diagnosis> {
    let mut readings: Vec<(Instant, _)> = session
        .table()
        .history(known.id)
        .take(READINGS)
        .copied()
        .collect();
    readings.reverse();
    let buffer = known
        .memory
        .map(|m| Bytes::new(u64::from(m.send_buffer_bytes)));
    onlooker.diagnose(&readings, known.congestion.as_str(), buffer)
}

impl From<SortArg> for Sort {
    fn from(arg: SortArg) -> Self {
        match arg {
            SortArg::Rate => Self::Rate,
            SortArg::Out => Self::Out,
            SortArg::In => Self::In,
            SortArg::Limit => Self::Limit,
            SortArg::Rtt => Self::Rtt,
            SortArg::Retr => Self::Retransmitted,
            SortArg::Age => Self::Age,
            SortArg::Process => Self::Process,
            SortArg::Peer => Self::Peer,
        }
    }
}

impl From<ByArg> for By {
    fn from(arg: ByArg) -> Self {
        match arg {
            ByArg::Process => Self::Process,
            ByArg::Peer => Self::Peer,
            ByArg::Port => Self::Port,
            ByArg::Cgroup => Self::Cgroup,
        }
    }
}

/// The clocks step by 4 ms: below this a share says little.
const SHORTEST: Duration = Duration::from_ms(100);
/// How often what closed is taken in.
const NAP: std::time::Duration = std::time::Duration::from_millis(200);
const ROWS: usize = 20;
const PIPE_COLUMNS: usize = 150;
/// Connections that --explain follows at most.
const EXPLAINED: usize = 16;
/// Readings that a diagnosis rests on: the newest.
const READINGS: usize = 150;
