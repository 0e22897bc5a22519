//! Applying a plan and taking it back.
//!
//! Values first, one at a time, each read back, then the drop-in file; back in the other order, so that a power loss at any
//! moment leaves a boot that has all of the plan, or of its values none that the journal does not know.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use fault::Failure;
use settings::{Key, Step};
use sys::tunable::Tree;

use crate::host::{Values, same};
use crate::journal::{Event, Journal};
use crate::others::DROP_IN;

/// What became of an undo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Values that are as they were.
    pub restored: Vec<String>,
    /// Values that somebody else has changed since, with what they are now; they are left.
    pub foreign: Vec<(String, String)>,
    /// Values that are no longer there, or could not be written, and why.
    pub failed: Vec<(String, String)>,
}

/// Sets the values of the steps.
///
/// # Errors
/// A value is not what the plan saw, cannot be written or is not taken as it is. Then those before it are back as they were, and
/// the journal says so.
pub(crate) fn set(
    values: &dyn Values,
    journal: &mut Journal,
    steps: &[Step],
) -> Result<(), Failure> {
    for step in steps {
        if let Err(why) = one(values, journal, step)? {
            let segment = journal.last().to_vec();
            let undone = back(values, &segment);
            let mut text = format!("{}: {why}", step.key);
            if undone.failed.is_empty() {
                text.push_str("; nothing is changed");
                journal.add(Event::RolledBack { why: text.clone() })?;
            } else {
                for (key, why) in &undone.failed {
                    text.push_str(&format!("; {key} is not as it was: {why}"));
                }
                text.push_str("; try: goodput tune undo");
            }
            return Err(Failure::here(text));
        }
    }
    Ok(())
}

/// One step. The inner error is the host's, the outer the journal's.
fn one(
    values: &dyn Values,
    journal: &mut Journal,
    step: &Step,
) -> Result<Result<(), String>, Failure> {
    let now = match values.read(&step.key) {
        Ok(now) => now,
        Err(e) => return Ok(Err(format!("cannot be read: {e}"))),
    };
    if same(&step.key, &now, &step.new) {
        return Ok(Ok(()));
    }
    if !same(&step.key, &now, &step.old) {
        return Ok(Err(format!(
            "was {} when the plan was made and is {now} now",
            step.old
        )));
    }
    journal.add(Event::Write {
        key: step.key.to_string(),
        old: now,
        new: step.new.clone(),
    })?;
    if let Err(e) = values.write(&step.key, &step.new) {
        return Ok(Err(format!(
            "the kernel refuses {}: {}",
            step.new,
            in_words(&e)
        )));
    }
    Ok(match values.read(&step.key) {
        Ok(now) if same(&step.key, &now, &step.new) => Ok(()),
        Ok(now) => Err(format!("{} was written and it is {now}", step.new)),
        Err(e) => Err(format!("cannot be read back: {e}")),
    })
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{error}; it takes root (CAP_NET_ADMIN over the namespace)")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("{error}: a container's /proc; set it on the host or when the container starts")
        }
        io::ErrorKind::InvalidInput => format!("{error}: out of the range that this kernel takes"),
        _ => error.to_string(),
    }
}

/// All that was written to one key: what it was before, and every value that is ours.
struct Chain {
    first: String,
    ours: Vec<String>,
}

/// The keys in the order of their first write.
fn chains(events: &[Event]) -> Vec<(Key, Chain)> {
    let mut order: Vec<Key> = Vec::new();
    let mut chains: BTreeMap<Key, Chain> = BTreeMap::new();
    for event in events {
        let Event::Write { key, old, new } = event else {
            continue;
        };
        let Ok(key) = key.parse::<Key>() else {
            continue;
        };
        let chain = chains.entry(key.clone()).or_insert_with(|| {
            order.push(key);
            Chain {
                first: old.clone(),
                ours: Vec::new(),
            }
        });
        chain.ours.extend([old.clone(), new.clone()]);
    }
    order
        .into_iter()
        .filter_map(|key| Some((key.clone(), chains.remove(&key)?)))
        .collect()
}

/// Puts every value of the events back that is still ours, the last one first.
pub(crate) fn back(values: &dyn Values, events: &[Event]) -> Undone {
    let mut undone = Undone::default();
    for (key, chain) in chains(events).into_iter().rev() {
        let name = key.to_string();
        match values.read(&key) {
            Err(e) => undone.failed.push((name, format!("cannot be read: {e}"))),
            Ok(now) if same(&key, &now, &chain.first) => undone.restored.push(name),
            Ok(now) if chain.ours.iter().any(|one| same(&key, &now, one)) => {
                let written = values.write(&key, &chain.first);
                let read = written.and_then(|()| values.read(&key));
                match read {
                    Ok(now) if same(&key, &now, &chain.first) => undone.restored.push(name),
                    Ok(now) => undone
                        .failed
                        .push((name, format!("{} was written and it is {now}", chain.first))),
                    Err(e) => undone.failed.push((name, in_words(&e))),
                }
            }
            Ok(now) => undone.foreign.push((name, now)),
        }
    }
    undone
}

/// The values that the events set last, by key, in the order of their first write.
pub(crate) fn ours(events: &[Event]) -> Vec<(Key, String)> {
    let chains = chains(events).into_iter();
    chains
        .filter_map(|(key, chain)| Some((key, chain.ours.last()?.clone())))
        .collect()
}

/// Writes the drop-in file so that it is there whole or not at all.
///
/// # Errors
/// As open(2), write(2), fsync(2) and rename(2).
pub(crate) fn write_drop_in(tree: &Tree, journal: &mut Journal, text: &str) -> Result<(), Failure> {
    let path = tree.path(DROP_IN);
    let old = match fs::read_to_string(&path) {
        Ok(old) => Some(old),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(crate::journal::here(&path, &e)),
    };
    if old.as_deref() == Some(text) {
        return Ok(());
    }
    journal.add(Event::File {
        path: DROP_IN.to_owned(),
        old,
        new: text.to_owned(),
    })?;
    put(&path, Some(text)).map_err(|e| crate::journal::here(&path, &e))
}

/// Takes the drop-in file back, if it is ours.
pub(crate) fn drop_in_back(tree: &Tree, events: &[Event], undone: &mut Undone) {
    let mut first: Option<&Option<String>> = None;
    let mut ours: Vec<Option<&str>> = Vec::new();
    for event in events {
        if let Event::File { path, old, new } = event
            && path == DROP_IN
        {
            first.get_or_insert(old);
            ours.extend([old.as_deref(), Some(new.as_str())]);
        }
    }
    let Some(first) = first else {
        return;
    };
    let path = tree.path(DROP_IN);
    let name = DROP_IN.to_owned();
    let now = fs::read_to_string(&path).ok();
    if now == *first {
        undone.restored.push(name);
    } else if ours.contains(&now.as_deref()) {
        match put(&path, first.as_deref()) {
            Ok(()) => undone.restored.push(name),
            Err(e) => undone.failed.push((name, e.to_string())),
        }
    } else {
        undone.foreign.push((name, "edited".to_owned()));
    }
}

/// A file's whole content, or none, on the disk before this returns.
fn put(path: &Path, text: Option<&str>) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    match text {
        Some(text) => {
            fs::create_dir_all(folder)?;
            // Not `.conf`: what a crash leaves of it is not read at boot.
            let beside = path.with_extension("new");
            let mut file = File::create(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
        }
        None => fs::remove_file(path)?,
    }
    File::open(folder)?.sync_all()
}
