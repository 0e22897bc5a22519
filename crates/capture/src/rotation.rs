//! Where packets are written: one file, standard output, or a row of files of which the oldest go.
//!
//! Files are made for their owner alone, since they hold what others said. Those of a row are named after
//! the file that was asked for, with their number and the UTC time of their making:
//! `cap.pcapng` is followed by `cap-00001-20261122T143000Z.pcapng` and so on. Only files that this capture
//! made are ever removed.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use units::{Bytes, Duration};

use crate::CaptureError;

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Standard output.
    Stdout,
    /// A file, or the name of a row of them.
    File(PathBuf),
}

/// When the next file of a row begins, and how many are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Size that a file does not exceed, unless its first packet does.
    pub file_bytes: Option<Bytes>,
    /// Time after which the next one begins.
    pub file_time: Option<Duration>,
    /// Files that are kept; all without a number.
    pub files: Option<u32>,
}

impl Rotation {
    /// True where there is to be more than one file.
    pub const fn is_asked(&self) -> bool {
        self.file_bytes.is_some() || self.file_time.is_some()
    }
}

/// The files of one capture.
#[derive(Debug)]
pub(crate) struct Files {
    place: Place,
    is_row: bool,
    keep: Option<u32>,
    force: bool,
    number: u64,
    kept: VecDeque<PathBuf>,
    removed: u64,
    /// Bytes written to files that are closed.
    bytes_before: u64,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    sink: Sink,
    bytes: u64,
}

#[derive(Debug)]
enum Sink {
    Stdout(io::Stdout),
    File(File),
}

impl Files {
    pub(crate) const fn new(place: Place, rotation: &Rotation, force: bool) -> Self {
        Self {
            place,
            is_row: rotation.is_asked(),
            keep: rotation.files,
            force,
            number: 0,
            kept: VecDeque::new(),
            removed: 0,
            bytes_before: 0,
            open: None,
        }
    }

    /// Makes the next file, and removes the oldest where there are more than are kept.
    pub(crate) fn next(&mut self, realtime_ns: u64) -> Result<(), CaptureError> {
        self.close();
        let path = match &self.place {
            Place::Stdout => {
                self.open = Some(OpenFile {
                    path: PathBuf::from("standard output"),
                    sink: Sink::Stdout(io::stdout()),
                    bytes: 0,
                });
                return Ok(());
            }
            Place::File(path) if self.is_row => numbered(path, self.number + 1, realtime_ns),
            Place::File(path) => path.clone(),
        };
        let file = create(&path, self.force, self.is_row)?;
        self.number += 1;
        self.kept.push_back(path.clone());
        self.open = Some(OpenFile {
            path,
            sink: Sink::File(file),
            bytes: 0,
        });
        while self
            .keep
            .is_some_and(|keep| self.kept.len() > keep as usize)
        {
            if let Some(oldest) = self.kept.pop_front() {
                // Who moved it away has what he wants.
                let _ = fs::remove_file(oldest);
                self.removed += 1;
            }
        }
        Ok(())
    }

    /// Writes whole records. After a failure the file ends with the record before.
    pub(crate) fn write(&mut self, records: &[u8]) -> Result<(), CaptureError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let result = match &mut open.sink {
            Sink::Stdout(out) => out.write_all(records).and_then(|()| out.flush()),
            Sink::File(file) => file.write_all(records),
        };
        match result {
            Ok(()) => {
                open.bytes += records.len() as u64;
                Ok(())
            }
            Err(error) => {
                let is_pipe = error.kind() == io::ErrorKind::BrokenPipe;
                if let Sink::File(file) = &open.sink {
                    let _ = file.set_len(open.bytes);
                }
                let path = open.path.clone();
                Err(match is_pipe {
                    true => CaptureError::NobodyReads,
                    false => CaptureError::Write { path, error },
                })
            }
        }
    }

    /// Bytes in the open file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.bytes)
    }

    /// Bytes written to all files, removed ones too.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.bytes_before + self.file_bytes()
    }

    /// The files that are there now, the oldest first; none for standard output.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &PathBuf> {
        self.kept.iter()
    }

    pub(crate) const fn removed(&self) -> u64 {
        self.removed
    }

    fn close(&mut self) {
        self.bytes_before += self.file_bytes();
        self.open = None;
    }
}

/// Opens a new file for its owner alone. With `force` a regular file that is there goes; pipes and devices
/// are written to as they are where the user named them. A name of a row was made here: others can guess it, and put a
/// pipe of theirs there.
fn create(path: &Path, force: bool, is_row: bool) -> Result<File, CaptureError> {
    let failed = |error| CaptureError::Write {
        path: path.to_owned(),
        error,
    };
    if let Ok(about) = fs::metadata(path) {
        let kind = about.file_type();
        if !is_row && (kind.is_fifo() || kind.is_char_device()) {
            return OpenOptions::new().write(true).open(path).map_err(failed);
        }
        if !kind.is_file() {
            return Err(failed(io::Error::other("it is no file")));
        }
        if force {
            fs::remove_file(path).map_err(failed)?;
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CaptureError::Exists(path.to_owned()),
        _ => failed(error),
    })
}

/// `dir/cap.pcapng` to `dir/cap-00003-20261122T143000Z.pcapng`.
fn numbered(path: &Path, number: u64, realtime_ns: u64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let seconds = i64::try_from(realtime_ns / 1_000_000_000).unwrap_or(0);
    let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    let time = time.strftime("%Y%m%dT%H%M%SZ");
    let mut name = format!("{stem}-{number:05}-{time}");
    if let Some(extension) = path.extension() {
        name.push('.');
        name.push_str(&extension.to_string_lossy());
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("goodput-rotation-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_row_has_numbers_and_times_and_loses_its_oldest() {
        let scratch = Scratch::new("row");
        let rotation = Rotation {
            file_bytes: Some(Bytes::new(1)),
            files: Some(2),
            ..Rotation::default()
        };
        let place = Place::File(scratch.0.join("a.b.pcapng"));
        let mut files = Files::new(place, &rotation, false);
        for second in 0..3 {
            files
                .next(1_795_357_800_000_000_000 + second * 1_000_000_000)
                .unwrap();
            files.write(b"12345").unwrap();
        }
        let kept: Vec<PathBuf> = files.kept().cloned().collect();
        let names = [
            "a.b-00002-20261122T143001Z.pcapng",
            "a.b-00003-20261122T143002Z.pcapng",
        ];
        assert_eq!(kept, names.map(|name| scratch.0.join(name)));
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 2);
        assert_eq!(
            (files.removed(), files.all_bytes(), files.file_bytes()),
            (1, 15, 5)
        );
        let mode = fs::metadata(&kept[0]).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_row_is_not_written_to_a_device_or_pipe_that_has_its_next_name() {
        let scratch = Scratch::new("prepared");
        let place = || Place::File(scratch.0.join("cap.pcapng"));
        let rotation = Rotation {
            file_bytes: Some(Bytes::new(1)),
            ..Rotation::default()
        };
        let next = numbered(&scratch.0.join("cap.pcapng"), 1, 0);
        std::os::unix::fs::symlink("/dev/null", &next).unwrap();
        for force in [false, true] {
            assert!(Files::new(place(), &rotation, force).next(0).is_err());
        }
        // Under the name that the user gave it is meant.
        fs::rename(&next, scratch.0.join("cap.pcapng")).unwrap();
        let mut one = Files::new(place(), &Rotation::default(), false);
        one.next(0).unwrap();
    }

    #[test]
    fn what_is_there_stays_unless_forced() {
        let scratch = Scratch::new("force");
        let path = scratch.0.join("cap.pcapng");
        fs::write(&path, "mine").unwrap();
        let files = |force| Files::new(Place::File(path.clone()), &Rotation::default(), force);
        let error = files(false).next(0).unwrap_err();
        assert!(matches!(error, CaptureError::Exists(_)), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        files(true).next(0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        // A folder is never removed, a device never replaced.
        let mut folder = Files::new(Place::File(scratch.0.clone()), &Rotation::default(), true);
        assert!(folder.next(0).is_err());
        let null = Place::File("/dev/null".into());
        let mut null = Files::new(null, &Rotation::default(), true);
        null.next(0).unwrap();
        null.write(b"x").unwrap();
        assert!(
            fs::metadata("/dev/null")
                .unwrap()
                .file_type()
                .is_char_device()
        );
    }

    #[test]
    fn a_full_disk_leaves_whole_records() {
        let mut files = Files::new(Place::File("/dev/full".into()), &Rotation::default(), false);
        files.next(0).unwrap();
        let error = files.write(b"record").unwrap_err();
        assert!(matches!(error, CaptureError::Write { .. }), "{error}");
        assert_eq!(files.all_bytes(), 0);
    }
}
