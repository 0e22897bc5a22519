//! An interface in place of a file: its headers go into the run folder and to the tracker at once.
//!
//! The file is what frame numbers and graphs refer to. Ctrl-C, the time, or a gibibyte of headers ends it,
//! and so does an interface that goes away: what was read until then is explained.

use std::path::PathBuf;

use capture::file::Kinds;
use capture::live::Live;
use capture::{CaptureError, Format, Options, Output, Place, Progress, Record, Rotation, Tap};
use indicatif::ProgressBar;
use report::RunFolder;
use report::model::{Trace, TraceFile};
use units::text::plain;
use wire::capture::LinkType;
use wire::segment::{Segment, decode};

use super::feed::{self, Feed};
use super::{Ranking, begin, source};
use crate::capture_verb;
use crate::cli::ExplainArgs;
use crate::context::{self, Context};
use crate::failure::Failure;
use crate::record;

/// Captures until it ends; the run folder that was begun, and the file in it.
pub(super) fn explain(
    args: &ExplainArgs,
    options: Options,
    context: &Context,
    trace: &mut Trace,
    best: &mut Ranking,
) -> Result<(RunFolder, PathBuf), Failure> {
    let name = options.interface.clone();
    let live = Live::open(&options)?;
    let folder = begin(args, context, &name)?;
    if args.parquet {
        best.tables = Some(super::tables::Tables::create(folder.path())?);
    }
    let file = folder.path().join(FILE);
    let mut out = output(&options, file.clone());
    context::note(format_args!(
        "explaining {name} until Ctrl-C; its headers are kept in {}",
        file.display()
    ));
    let mut ended = Ok(());
    let mut kinds = Kinds::default();
    let mut progress = Progress::default();
    let fed = feed::analyse(0, super::threads::count(args), trace, best, |feed| {
        let mut watch = Watch::new(feed);
        let stop = || context.stop.is_stopped();
        ended = live.run_tapped(&mut out, &stop, &mut watch).map(drop);
        watch.bar.finish_and_clear();
        (kinds, progress) = (watch.kinds, watch.progress);
    })?;
    let mut stopped = None;
    match ended {
        Ok(()) => {
            let in_time = args.time.is_none_or(|time| progress.elapsed < time);
            if in_time && !context.stop.is_stopped() {
                stopped = Some(format!("its headers had come to {}", source::LIVE_BYTES));
            }
        }
        // What was read is worth a report, and the file is whole.
        Err(error @ (CaptureError::WentDown(_) | CaptureError::Socket { .. })) => {
            stopped = Some(error.to_string());
        }
        Err(error) => return Err(error.into()),
    }
    trace.unreadable_packets += feed::unreadable(&kinds);
    trace.files.push(TraceFile {
        name: FILE.to_owned(),
        packets: fed.frames,
        begins_utc: fed.begins.map(record::utc_of_ns),
        span_ns: fed.last.saturating_sub(fed.begins.unwrap_or(fed.last)),
        interfaces: vec![name],
        dropped: Some(progress.dropped),
        stopped,
        stopped_at_byte: None,
    });
    Ok((folder, file))
}

/// What is done with each packet, and what is said meanwhile.
struct Watch<'f> {
    feed: &'f mut Feed,
    segment: Segment,
    kinds: Kinds,
    frame: u64,
    progress: Progress,
    /// Whole seconds and packets at the last line.
    told: (u64, u64),
    bar: ProgressBar,
}

impl<'f> Watch<'f> {
    fn new(feed: &'f mut Feed) -> Self {
        Self {
            feed,
            segment: Segment::default(),
            kinds: Kinds::default(),
            frame: 0,
            progress: Progress::default(),
            told: (0, 0),
            // Hidden by indicatif itself when stderr is not a terminal.
            bar: ProgressBar::new_spinner(),
        }
    }

    /// `12 s: 34 connections, 5600 packets/s, 0 dropped`.
    fn line(&mut self, seconds: u64) -> String {
        self.feed.flush();
        let since = (seconds - self.told.0).max(1);
        let packets = self.progress.packets - self.told.1;
        self.told = (seconds, self.progress.packets);
        format!(
            "{seconds} s: {} connections, {} packets/s, {} dropped",
            self.feed.connections(),
            packets / since,
            self.progress.dropped
        )
    }
}

impl Tap for Watch<'_> {
    fn packet(&mut self, packet: &Record<'_>) {
        self.frame += 1;
        let (captured, original) = (packet.captured, packet.original_bytes);
        let decoded = decode(LinkType::ETHERNET, captured, original, &mut self.segment);
        self.kinds.add(decoded);
        self.feed
            .take(packet.time_ns, self.frame, 0, decoded, &self.segment);
    }

    fn progress(&mut self, progress: &Progress) {
        self.progress = *progress;
        let seconds = progress.elapsed.as_ns() / 1_000_000_000;
        if seconds <= self.told.0 {
            return;
        }
        let line = self.line(seconds);
        match self.bar.is_hidden() {
            true => context::note(line),
            false => {
                self.bar.set_message(plain(&line).into_owned());
                self.bar.tick();
            }
        }
    }
}

fn output(options: &Options, file: PathBuf) -> Output {
    let rotation = Rotation {
        file_bytes: None,
        file_time: None,
        files: None,
    };
    let about = capture_verb::about(options);
    Output::new(Place::File(file), Format::Pcapng, rotation, false, about)
}

const FILE: &str = "capture.pcapng";
