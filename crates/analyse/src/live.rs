//! An interface in place of a file: its headers go into the run folder and to the tracker at once.
//!
//! The file is what frame numbers and graphs refer to. Ctrl-C, the time, or a gibibyte of headers ends it,
//! and so does an interface that goes away: what was read until then is explained.

use std::path::{Path, PathBuf};

use capture::decoder::{Decoder, Raw};
use capture::live::Live;
use capture::{
    About, CaptureError, Format, Options, Output, Place, Progress, Record, Rotation, Tap,
};
use fault::Failure;
use job::{Context, record};
use report::RunFolder;
use report::model::{Trace, TraceFile};
use units::Bytes;
use wire::capture::LinkType;
use wire::segment::Segment;

use crate::feed::{self, Feed};
use crate::plan::Plan;
use crate::ranking::Ranking;
use crate::tables::Tables;

/// Receives the progress of an interface's capture; `()` ignores it.
pub trait Observer {
    /// It begins; the headers go to `file`.
    fn begins(&mut self, _interface: &str, _file: &Path) {}

    /// It goes on, about once a second.
    fn goes_on(&mut self, _so_far: &SoFar) {}

    /// It has ended.
    fn ended(&mut self) {}
}

impl Observer for () {}

/// How the capture of an interface goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoFar {
    /// Whole seconds since its begin.
    pub seconds: u64,
    /// Connections that were seen.
    pub connections: u64,
    /// Packets a second since the last time.
    pub packets_per_second: u64,
    /// Packets that the kernel dropped.
    pub dropped: u64,
}

/// Captures until it ends; the run folder that was begun, and the file in it.
pub(crate) fn explain(
    plan: &Plan,
    options: &Options,
    context: &Context,
    trace: &mut Trace,
    best: &mut Ranking,
    observer: &mut dyn Observer,
) -> Result<(RunFolder, PathBuf), Failure> {
    let name = options.interface.clone();
    let live = Live::open(options)?;
    let folder = plan.begin(context, &name)?;
    if plan.parquet {
        best.tables = Some(Tables::create(folder.path())?);
    }
    let file = folder.path().join(FILE);
    let mut out = output(options, file.clone());
    observer.begins(&name, &file);
    let mut ended = Ok(());
    let mut decoder = Decoder::default();
    let mut progress = Progress::default();
    let fed = feed::analyse(0, plan.threads, trace, best, |feed| {
        let mut watch = Watch::new(feed, &mut *observer);
        let stop = || context.stop.is_stopped();
        ended = live.run_tapped(&mut out, &stop, &mut watch).map(drop);
        watch.observer.ended();
        progress = watch.progress;
        decoder = watch.decoder;
    })?;
    let mut stopped = None;
    match ended {
        Ok(()) => {
            let in_time = options
                .limits
                .time
                .is_none_or(|time| progress.elapsed < time);
            if in_time && !context.stop.is_stopped() {
                stopped = Some(format!("its headers had come to {}", LIVE_BYTES));
            }
        }
        // What was read is worth a report, and the file is whole.
        Err(error @ (CaptureError::WentDown(_) | CaptureError::Socket { .. })) => {
            stopped = Some(error.to_string());
        }
        Err(error) => return Err(error.into()),
    }
    feed::count(trace, &decoder);
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
    observer: &'f mut dyn Observer,
    segment: Segment,
    decoder: Decoder,
    frame: u64,
    progress: Progress,
    /// Whole seconds and packets at the last line.
    told: (u64, u64),
}

impl<'f> Watch<'f> {
    fn new(feed: &'f mut Feed, observer: &'f mut dyn Observer) -> Self {
        Self {
            feed,
            observer,
            segment: Segment::default(),
            decoder: Decoder::default(),
            frame: 0,
            progress: Progress::default(),
            told: (0, 0),
        }
    }

    fn so_far(&mut self, seconds: u64) -> SoFar {
        self.feed.flush();
        let since = (seconds - self.told.0).max(1);
        let packets = self.progress.packets - self.told.1;
        self.told = (seconds, self.progress.packets);
        SoFar {
            seconds,
            connections: self.feed.connections(),
            packets_per_second: packets / since,
            dropped: self.progress.dropped,
        }
    }
}

impl Tap for Watch<'_> {
    fn packet(&mut self, packet: &Record<'_>) {
        self.frame += 1;
        let raw = Raw {
            link: LinkType::ETHERNET,
            interface: 0,
            time_ns: packet.time_ns,
            original_bytes: packet.original_bytes,
            captured: packet.captured,
        };
        let decoded = self.decoder.decode(raw, &mut self.segment);
        self.feed
            .take(packet.time_ns, self.frame, 0, decoded, &self.segment);
    }

    fn progress(&mut self, progress: &Progress) {
        self.progress = *progress;
        let seconds = progress.elapsed.as_ns() / 1_000_000_000;
        if seconds <= self.told.0 {
            return;
        }
        let so_far = self.so_far(seconds);
        self.observer.goes_on(&so_far);
    }
}

fn output(options: &Options, file: PathBuf) -> Output {
    let rotation = Rotation {
        file_bytes: None,
        file_time: None,
        files: None,
    };
    let about = About::of(options);
    Output::new(Place::File(file), Format::Pcapng, rotation, false, about)
}

/// What is kept of an interface's packets: some five million headers.
pub const LIVE_BYTES: Bytes = Bytes::new(1 << 30);
const FILE: &str = "capture.pcapng";
