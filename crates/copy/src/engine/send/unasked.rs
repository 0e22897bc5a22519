//! Small files that are sent before the destination asks for them.
//!
//! Where nothing stands in their way it wants them all, and says so a round trip after it heard their names: a stream that
//! waits for that begins to grow so much later. The destination says at the beginning whether that is so, and then holds what
//! comes until it has decided upon its name. One that it does not want ends it: the others wait to be asked for.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::{Known, Sender, Work};
use crate::engine::Watch;
use crate::engine::basics::SMALL;
use crate::message::{NameId, Want};

impl Sender<'_> {
    /// Names were told, from one number up to another: their small files are for the streams.
    pub(super) fn send_unasked(&self, from: NameId, until: NameId) {
        let mut work = self.lock();
        if work.is_asked_only {
            return;
        }
        // Empty ones are made without being wanted.
        let is_small = |known: &Known| (1..=SMALL).contains(&known.fingerprint.size);
        let told = work.told.range(from..until);
        let ids: Vec<NameId> = told
            .filter(|(_, known)| is_small(known))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(known) = work.told.remove(&id).map(Arc::new) else {
                continue;
            };
            Watch::add(&self.watch.wanted, 1);
            Watch::add(&self.watch.wanted_bytes, known.expected());
            work.unasked.insert(id, Arc::clone(&known));
            work.small.push_back((id, known));
            work.open += 1;
        }
        drop(work);
        self.changed.notify_all();
    }

    /// A file that cannot be sent as it was told, if nobody asked for it yet: it waits for that.
    pub(super) fn take_back(&self, id: NameId) -> bool {
        let mut work = self.lock();
        let Some(known) = work.unasked.remove(&id) else {
            // Another copy of the same frame came here first.
            return work.told.contains_key(&id);
        };
        work.open = work.open.saturating_sub(1);
        self.wants_not(&known);
        work.told.insert(id, (*known).clone());
        true
    }

    /// What the destination does not want is sent no more, and no other that it did not ask for. What has left is confirmed as
    /// if it were wanted.
    pub(super) fn refused(&self, work: &mut Work, refused: &BTreeMap<NameId, Arc<Known>>) {
        if refused.is_empty() || std::mem::replace(&mut work.is_asked_only, true) {
            return;
        }
        for (id, known) in std::mem::take(&mut work.small) {
            if refused.contains_key(&id) {
                work.open = work.open.saturating_sub(1);
                self.wants_not(&known);
            } else if work.unasked.remove(&id).is_some() {
                work.open = work.open.saturating_sub(1);
                self.wants_not(&known);
                work.told.insert(id, (*known).clone());
            } else {
                work.small.push_back((id, known));
            }
        }
    }

    fn wants_not(&self, known: &Known) {
        Watch::less(&self.watch.wanted, 1);
        self.watch.comes_not(known.expected());
    }
}

/// The destination wants what is sent already, or about to be.
pub(super) fn confirm(want: &Want) -> io::Result<()> {
    match want.have.is_empty() && want.compare.is_empty() {
        true => Ok(()),
        false => {
            let text = "has blocks of a file that comes in one piece";
            Err(io::Error::new(ErrorKind::InvalidData, text))
        }
    }
}
