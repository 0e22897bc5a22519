//! How parallel streams fared at a lab's queue: what its packet log says, as a record.

use std::fs;
use std::path::{Path, PathBuf};

use lab::log::Streams;
use link::record::{End, Reader};
use run::model::{Balance, BalanceSections, BalancedStream};
use sys::map;
use units::{Bytes, Duration, Rate};

use fault::Failure;

/// A packet log that lasts as long as this.
///
/// ```no_run
/// use lab::{Lab, Options, PathFile};
///
/// let path = PathFile::read("four-streams.toml".as_ref())?;
/// let log = job::balance::Log::new()?;
/// let options = Options {
///     log: Some(log.file().to_owned()),
/// };
/// let lab = Lab::up_with(&path, options)?;
/// // ... streams ...
/// let balance = log.balance(lab.down()?, None)?;
/// println!("Jain's index {:.3}", balance.jain);
/// # Ok::<(), fault::Failure>(())
/// ```
#[derive(Debug)]
pub struct Log {
    file: PathBuf,
}

impl Log {
    /// A name for a log that nobody can guess, in memory where the system has such a place: a disk that is written to
    /// takes the time of frames. The lab makes the file.
    pub fn new() -> Result<Self, Failure> {
        let memory = Path::new(MEMORY);
        let folder = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let digits = sys::random::digits().map_err(Failure::here)?;
        Ok(Self {
            file: folder.join(format!("goodput-{digits}.gplog")),
        })
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What it says, once its lab is down.
    pub fn balance(&self, end: Option<End>, striped: Option<Bytes>) -> Result<Balance, Failure> {
        let name = self.file.display();
        let bytes = map::File::open(&self.file);
        let bytes = bytes.map_err(|e| Failure::here(format!("the packet log {name}: {e}")))?;
        let reader = Reader::new(&bytes)
            .map_err(|e| Failure::here(format!("the packet log {name}: {e}")))?;
        let balance = of(reader, striped).ok_or_else(|| {
            Failure::usage("--balance: no queue of this path served anything; give a link a rate")
        })?;
        Ok(Balance {
            log_missing: end.map_or(0, |end| end.lost_rows + end.lost_frames),
            ..balance
        })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Not there where the lab never came up.
        let _ = fs::remove_file(&self.file);
    }
}

/// Streams at the queue of a log; `None` where none served anything. `striped` is a file's size.
pub fn of(reader: Reader<'_>, striped: Option<Bytes>) -> Option<Balance> {
    let told = Streams::read(reader, &SECTIONS, striped.map(Bytes::as_u64))?;
    let ns = |at: Option<Duration>| at.map(Duration::as_ns);
    let last = |times: Vec<Option<Duration>>| times.into_iter().collect::<Option<Vec<_>>>();
    let losses = last(told.streams.iter().map(|s| s.first_lost).collect());
    let parts = last(told.streams.iter().map(|s| s.striped).collect());
    let apart = losses.and_then(|at| Some(*at.iter().max()? - *at.iter().min()?));
    let wire = told.streams.iter().map(|s| s.wire_bytes).sum();
    let reverse = told.burst_order.iter().rev().eq(&told.loss_order);
    Some(Balance {
        link: told.link,
        time_ns: told.time.as_ns(),
        burst_order: order(&told.burst_order),
        loss_order: order(&told.loss_order),
        reverse_loss_order: reverse && told.loss_order.len() == told.streams.len(),
        first_losses_apart_ns: ns(apart),
        wire_bits_per_second: Rate::average(Bytes::new(wire), told.time).as_bits_per_second(),
        min_to_mean: told.min_to_mean,
        jain: told.jain,
        sections: told
            .sections
            .iter()
            .map(|s| BalanceSections {
                length_ns: s.length.as_ns(),
                min_to_mean_median: s.min_to_mean,
                jain_median: s.jain,
            })
            .collect(),
        striped_bytes: striped.map(Bytes::as_u64),
        striped_ns: parts
            .and_then(|at| at.into_iter().max())
            .map(Duration::as_ns),
        to_queue_mean_ns: told.to_queue.0.as_ns(),
        to_queue_max_ns: told.to_queue.1.as_ns(),
        log_missing: 0,
        streams: told
            .streams
            .into_iter()
            .map(|s| BalancedStream {
                flow: s.flow,
                wire_bytes: s.wire_bytes,
                lost_segments: s.lost,
                first_lost_ns: ns(s.first_lost),
                striped_ns: ns(s.striped),
            })
            .collect(),
    })
}

/// Such as 0,2,1,3; a dash where there is none.
fn order(streams: &[usize]) -> String {
    let numbers: Vec<String> = streams.iter().map(usize::to_string).collect();
    if numbers.is_empty() {
        "-".to_owned()
    } else {
        numbers.join(",")
    }
}

/// Those of the seed's figures (001, Stream Harmonizer).
const SECTIONS: [Duration; 2] = [Duration::from_ms(300), Duration::from_ms(5)];
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
