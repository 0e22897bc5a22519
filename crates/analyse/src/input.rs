//! What is read as one capture: a file, or files of a ring one after the other.
//!
//! Capture tools that begin a new file now and then (`goodput capture --files`, tcpdump -C and -G,
//! dumpcap's ring buffer) cut connections in two. Files whose names differ in digits only, of which each
//! begins where another ends, at interfaces of the same names and link types, are read as one; frames
//! are numbered over all of them. Time alone would not do: clocks of two ends differ by any amount.

use std::path::{Path, PathBuf};

use capture::file::{self, Capture};
use fault::Failure;
use wire::capture::LinkType;

use crate::logs;
use crate::names::name_of;

/// One capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    /// Its files in their order of time, one at least.
    parts: Vec<PathBuf>,
}

/// When a file's packets were captured and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    begin: u64,
    end: u64,
    /// Its path without digits.
    name: String,
    interfaces: Vec<(String, LinkType)>,
}

impl Input {
    pub(crate) fn file(path: PathBuf) -> Self {
        Self { parts: vec![path] }
    }

    /// The first of its files.
    pub(crate) fn path(&self) -> &Path {
        self.parts
            .first()
            .map_or_else(|| Path::new(""), PathBuf::as_path)
    }

    /// Its only file; `None` where there are several.
    pub(crate) fn one(&self) -> Option<&Path> {
        match self.parts.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Names of its files, without folders.
    pub(crate) fn name(&self) -> String {
        let named = self.parts.iter().take(NAMED_MAX).map(|path| name_of(path));
        let named = named.collect::<Vec<_>>().join(", ");
        match self.parts.len().saturating_sub(NAMED_MAX) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    pub(crate) fn open(&self) -> Result<Capture, Failure> {
        let cannot = |path: &Path, e: std::io::Error| {
            Failure::usage(format!("cannot read {}: {e}", path.display()))
        };
        let (first, others) = self.parts.split_first().unwrap_or_else(|| unreachable!());
        let mut capture = file::open(first).map_err(|e| cannot(first, e))?;
        capture.goes_on_with(others.to_vec());
        Ok(capture)
    }
}

/// The files themselves, and of folders all files in them, by name.
pub(crate) fn expand(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let cannot =
            |e: std::io::Error| Failure::usage(format!("cannot read {}: {e}", path.display()));
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(cannot)? {
            let entry = entry.map_err(cannot)?.path();
            if entry.is_file() {
                inside.push(entry);
            }
        }
        if inside.is_empty() {
            let name = path.display();
            return Err(Failure::usage(format!("{name} is a folder without files")));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Files as captures, those of a ring joined, in the order of the first of each. With `apart` none
/// are joined.
pub(crate) fn join(files: &[PathBuf], apart: bool) -> Vec<Input> {
    let alone = || files.iter().cloned().map(Input::file).collect();
    if apart || files.len() < 2 || files.iter().any(|path| path.as_os_str() == "-") {
        return alone();
    }
    let mut begins: Vec<(usize, u64)> = Vec::new();
    for (n, path) in files.iter().enumerate() {
        if !logs::is_log(path)
            && let Some(span) = span(path, 0)
        {
            begins.push((n, span.begin));
        }
    }
    let Some(latest) = begins.iter().map(|(_, begin)| *begin).max() else {
        return alone();
    };
    begins.sort_by_key(|&(n, begin)| (begin, n));
    let mut groups: Vec<(Span, Vec<usize>)> = Vec::new();
    for (n, _) in begins {
        let Some(span) = span(&files[n], latest) else {
            continue;
        };
        let follows = |group: &Span| {
            let gap = span.begin.checked_sub(group.end);
            let same = group.interfaces == span.interfaces && group.name == span.name;
            same && gap.is_some_and(|gap| gap <= GAP_NS_MAX)
        };
        let before = groups.iter_mut().filter(|(group, _)| follows(group));
        match before.max_by_key(|(group, _)| group.end) {
            Some((group, members)) => {
                group.end = span.end.max(group.end);
                members.push(n);
            }
            None => groups.push((span, vec![n])),
        }
    }
    let mut inputs: Vec<(usize, Input)> = Vec::new();
    for (n, path) in files.iter().enumerate() {
        match groups.iter().find(|(_, members)| members.contains(&n)) {
            Some((_, members)) if members.iter().min() == Some(&n) => {
                let parts = members
                    .iter()
                    .map(|&member| files[member].clone())
                    .collect();
                inputs.push((n, Input { parts }));
            }
            Some(_) => {}
            None => inputs.push((n, Input::file(path.clone()))),
        }
    }
    inputs.into_iter().map(|(_, input)| input).collect()
}

/// When a file's packets were captured, read up to the first one later than `enough`; `None` of what
/// cannot be read or has no packet with a time.
fn span(path: &Path, enough: u64) -> Option<Span> {
    // A pipe would be empty afterwards.
    if !path.metadata().is_ok_and(|m| m.is_file()) {
        return None;
    }
    let mut capture = file::open(path).ok()?;
    let mut times: Option<(u64, u64)> = None;
    while let Some(packet) = capture.next_packet() {
        let time = packet.time_ns;
        if time == 0 {
            continue;
        }
        let (begin, end) = times.unwrap_or((time, time));
        times = Some((begin, end.max(time)));
        if time > enough {
            break;
        }
    }
    let (begin, end) = times?;
    let interfaces = capture.interfaces().iter();
    Some(Span {
        begin,
        end,
        name: path
            .to_string_lossy()
            .replace(|c: char| c.is_ascii_digit(), ""),
        interfaces: interfaces.map(|i| (i.name.clone(), i.link)).collect(),
    })
}

/// Files that are named.
const NAMED_MAX: usize = 3;
/// Longest time between two files of a ring.
const GAP_NS_MAX: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("goodput-input-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A capture of packets at these times.
    fn written(folder: &Path, name: &str, times: &[u64]) -> PathBuf {
        let mut bytes = Vec::new();
        wire::pcapng::section_header("test", &mut bytes);
        wire::pcapng::interface("eth0", 0, &mut bytes);
        for &time_ns in times {
            let packet = wire::pcapng::Packet {
                time_ns,
                captured: &[0; 60],
                original_bytes: 60,
                ..wire::pcapng::Packet::default()
            };
            wire::pcapng::packet(&packet, &mut bytes);
        }
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn files_that_follow_each_other_are_one_and_others_are_not() {
        let folder = Folder::new("ring");
        let at = |name: &str, times: &[u64]| written(&folder.0, name, times);
        let s = 1_000_000_000;
        let a = at("ring_1", &[s, 10 * s]);
        let b = at("ring_2", &[10 * s, 20 * s]);
        let c = at("ring_3", &[20 * s + 1, 21 * s]);
        assert_eq!(join(&[a.clone(), b.clone()], true).len(), 2);
        let all = join(&[c.clone(), a.clone(), b.clone()], false);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].parts, [a.clone(), b.clone(), c]);
        assert_eq!(all[0].name(), "ring_1, ring_2, ring_3");
        // At the same time, or a minute later, it is another.
        let beside = at("ring_7", &[9 * s, 19 * s]);
        let later = at("ring_8", &[81 * s + 1]);
        let all = join(&[a.clone(), beside, later, b.clone()], false);
        let parts: Vec<usize> = all.iter().map(|input| input.parts.len()).collect();
        assert_eq!(parts, [2, 1, 1]);
        assert_eq!(all[0].parts, [a.clone(), b]);
        // Two of two ends, each in two files.
        let ends = join(
            &[
                at("near0", &[s, 5 * s]),
                at("far0", &[2 * s, 6 * s]),
                at("near1", &[5 * s, 9 * s]),
                at("far1", &[6 * s, 9 * s]),
            ],
            false,
        );
        let names: Vec<String> = ends.iter().map(Input::name).collect();
        assert_eq!(names, ["near0, near1", "far0, far1"]);
    }

    #[test]
    fn two_ends_whose_clocks_differ_are_two() {
        let folder = Folder::new("ends");
        let s = 1_000_000_000;
        let near = written(&folder.0, "near", &[s, 2 * s]);
        let far = written(&folder.0, "far", &[3 * s, 4 * s]);
        assert_eq!(join(&[near, far], false).len(), 2);
    }

    #[test]
    fn what_is_no_capture_stays_alone() {
        let folder = Folder::new("none");
        let text = folder.0.join("text");
        std::fs::write(&text, "no capture").unwrap();
        let empty = written(&folder.0, "empty", &[]);
        let both = expand(std::slice::from_ref(&folder.0)).unwrap();
        assert_eq!(both, [empty.clone(), text.clone()]);
        let inputs = join(&[text.clone(), empty.clone()], false);
        assert_eq!(inputs, [Input::file(text), Input::file(empty)]);
    }
}
