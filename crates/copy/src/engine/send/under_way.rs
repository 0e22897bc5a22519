//! What a stream has sent and nobody has confirmed, and who sends it again.
//!
//! Where a connection is gone, all of it is sent by others once the stream is met again and it is known what had arrived.
//! That may take seconds: a way that answers no more is found out after 6, and dialled for 3. So a stream that has nothing
//! else to send takes over what another one is late with, and leaves it there: the destination takes what comes first, and
//! the second is dropped, there by its number and here by [`Twin`].

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Sender, Task};
use crate::engine::Watch;
use crate::engine::fetch::Ahead;

/// Shared by all copies of a frame: whether one of them was confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Twin(Option<Arc<AtomicBool>>);

impl Twin {
    /// Whether a copy arrived.
    pub(super) fn is_confirmed(&self) -> bool {
        let is_confirmed = |twin: &Arc<AtomicBool>| twin.load(Ordering::Acquire);
        self.0.as_ref().is_some_and(is_confirmed)
    }

    /// Whether it was never copied.
    pub(super) fn is_alone(&self) -> bool {
        self.0.is_none()
    }

    /// A copy arrived; whether it is the first to.
    fn confirm(&self) -> bool {
        let confirm = |twin: &Arc<AtomicBool>| !twin.swap(true, Ordering::AcqRel);
        self.0.as_ref().is_none_or(confirm)
    }

    /// The same of one copy more.
    fn copied(&mut self) -> Self {
        Self(Some(Arc::clone(self.0.get_or_insert_default())))
    }
}

/// What is sent again, or for the first time.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) task: Task,
    pub(super) twin: Twin,
}

impl From<Task> for Due {
    fn from(task: Task) -> Self {
        let twin = Twin::default();
        Self { task, twin }
    }
}

#[derive(Debug)]
struct Frame {
    due: Due,
    bytes: u64,
    /// When it was given to the connection, or last taken over.
    since: Instant,
}

/// What was sent on a stream and is not confirmed.
#[derive(Debug)]
pub(super) struct Sent {
    /// Frames confirmed.
    base: u64,
    frames: VecDeque<Frame>,
    pub(super) ahead: Ahead,
    /// How long the frame took that was confirmed last.
    took: Option<Duration>,
    /// Its connection is gone, and there is no other yet.
    is_cut: bool,
}

/// A frame that was confirmed.
#[derive(Debug)]
pub(super) struct Confirmed {
    pub(super) task: Task,
    pub(super) bytes: u64,
    /// No copy of it was before.
    pub(super) is_first: bool,
}

/// A stream is late with a frame that takes so many times what the last one of another took, and at least so long: as
/// confirmations come every 50 ms, this is more than one that was missed.
const LATE: u32 = 2;
const LATE_LEAST: Duration = Duration::from_millis(250);
/// The same where a stream had nothing confirmed yet.
const LATE_UNKNOWN: Duration = Duration::from_secs(1);

impl Default for Sent {
    fn default() -> Self {
        Self {
            base: 0,
            frames: VecDeque::new(),
            ahead: Ahead::new(Instant::now()),
            took: None,
            is_cut: false,
        }
    }
}

impl Sent {
    /// Nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Frames that were sent since the stream began.
    pub(super) fn count(&self) -> u64 {
        self.base + self.frames.len() as u64
    }

    /// A frame is about to leave.
    pub(super) fn push(&mut self, due: Due, bytes: u64, now: Instant) {
        self.frames.push_back(Frame {
            due,
            bytes,
            since: now,
        });
        self.ahead.sent(bytes);
    }

    /// The next frame, if fewer than `count` are confirmed.
    pub(super) fn confirm(&mut self, count: u64, now: Instant) -> Option<Confirmed> {
        if self.base >= count {
            return None;
        }
        let Frame { due, bytes, since } = self.frames.pop_front()?;
        self.base += 1;
        self.ahead.confirmed(bytes, now);
        // What is heard of by the next connection took no usual time.
        if !self.is_cut {
            self.took = Some(now.saturating_duration_since(since));
        }
        Some(Confirmed {
            task: due.task,
            bytes,
            is_first: due.twin.confirm(),
        })
    }

    /// Its connection is gone.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// It has a connection again: what was under way is to be sent again, but for what arrived otherwise.
    pub(super) fn take_lost(&mut self) -> Vec<Due> {
        self.is_cut = false;
        if !self.frames.is_empty() {
            self.ahead.lost();
        }
        let all = self.frames.drain(..).map(|frame| frame.due);
        all.filter(|due| !due.twin.is_confirmed()).collect()
    }

    /// From when on others are late for this stream, which has nothing else to send; `None` where it is none to take over from
    /// them, since it is late itself.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let patience = match self.took {
            Some(took) => LATE_LEAST.max(took.saturating_mul(LATE)),
            None => LATE_UNKNOWN,
        };
        let is_late = |frame: &Frame| now.saturating_duration_since(frame.since) >= patience;
        let is_late = self.frames.front().is_some_and(is_late);
        (!self.is_cut && !is_late).then_some(patience)
    }

    /// A copy of the first frame that this stream has had for longer than `patience`, or that waits for a connection, and of
    /// which none arrived.
    pub(super) fn take_over(&mut self, patience: Duration, now: Instant) -> Option<Due> {
        let is_cut = self.is_cut;
        let is_due = |frame: &&mut Frame| {
            let is_waiting = is_cut && frame.due.twin.is_alone();
            let is_late = now.saturating_duration_since(frame.since) >= patience;
            (is_waiting || is_late) && !frame.due.twin.is_confirmed()
        };
        let frame = self.frames.iter_mut().find(is_due)?;
        // Whoever takes it has as long.
        frame.since = now;
        Some(Due {
            task: frame.due.task.clone(),
            twin: frame.due.twin.copied(),
        })
    }
}

impl Sender<'_> {
    /// Frames up to `count` of a stream were handled.
    pub(super) fn confirmed(&self, sent: &mut Sent, count: u64) -> io::Result<()> {
        if count > sent.count() {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "confirmed what was not sent",
            ));
        }
        let (mut closed, mut arrived, mut is_any) = (0, 0, false);
        while let Some(Confirmed {
            task,
            bytes,
            is_first,
        }) = sent.confirm(count, Instant::now())
        {
            is_any = true;
            if !is_first {
                continue;
            }
            arrived += bytes;
            if let Task::Pack(files) = task {
                closed += files.len();
            }
        }
        // Files that were held open may have been let go.
        if is_any {
            let mut work = self.lock();
            work.open = work.open.saturating_sub(closed);
            if !work.is_finished {
                Watch::add(&self.watch.confirmed_bytes, arrived);
            }
            drop(work);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// What was sent and not confirmed is for anyone to send again.
    pub(super) fn requeue(&self, sent: &Mutex<Sent>) {
        let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = sent.take_lost();
        if lost.is_empty() {
            return;
        }
        let mut work = self.lock();
        work.redo.extend(lost.into_iter().map(again));
        drop(work);
        self.changed.notify_all();
    }

    /// A frame that another stream is late with, for one that has nothing else to send.
    pub(super) fn take_over(&self, own: &Mutex<Sent>) -> Option<Due> {
        // A host that sees the files could write its copy into one that has its name and time already.
        if self.options.has_helpers || self.meeting.has_hosts() {
            return None;
        }
        let now = Instant::now();
        let patience = own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .patience(now)?;
        let others: Vec<_> = self.lock_streams().values().cloned().collect();
        let due = others
            .iter()
            .filter(|sent| !std::ptr::eq(&***sent, own))
            .find_map(|sent| {
                sent.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take_over(patience, now)
            })?;
        Some(again(due))
    }
}

/// As it is sent once more.
fn again(mut due: Due) -> Due {
    if let Task::Block { is_again, .. } = &mut due.task {
        *is_again = true;
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pack() -> Due {
        Task::Pack(Vec::new()).into()
    }

    /// A stream of which a frame took 200 ms.
    fn living(now: Instant) -> Sent {
        let mut sent = Sent::default();
        sent.push(pack(), 1, now);
        assert!(sent.confirm(1, now + 200 * MS).unwrap().is_first);
        sent
    }

    #[test]
    fn what_a_stream_is_late_with_is_taken_over_once_and_counts_once() {
        let now = Instant::now();
        let mut late = Sent::default();
        late.push(pack(), 7, now);
        late.push(pack(), 8, now + 300 * MS);
        let mut living = living(now);
        let patience = living.patience(now).unwrap();
        assert_eq!(patience, 400 * MS);
        assert!(late.take_over(patience, now + 399 * MS).is_none());
        let taken = late.take_over(patience, now + 400 * MS).unwrap();
        assert!(late.take_over(patience, now + 400 * MS).is_none());
        living.push(taken, 7, now + 400 * MS);
        // Whichever comes first.
        assert!(living.confirm(2, now + 500 * MS).unwrap().is_first);
        assert!(late.take_over(100 * MS, now + 600 * MS).is_some());
        let first = late.confirm(2, now + 600 * MS).unwrap();
        assert!(!first.is_first && first.bytes == 7);
        assert!(late.confirm(2, now + 600 * MS).unwrap().is_first);
        assert!(late.confirm(2, now + 600 * MS).is_none() && late.is_empty());
    }

    #[test]
    fn what_waits_for_a_connection_is_taken_over_at_once() {
        let now = Instant::now();
        let mut cut = living(now);
        for _ in 0..3 {
            cut.push(pack(), 1, now);
        }
        cut.cut();
        assert_eq!(cut.patience(now), None);
        let mut living = living(now);
        for _ in 0..2 {
            let taken = cut.take_over(400 * MS, now).unwrap();
            living.push(taken, 1, now);
        }
        assert!(living.confirm(2, now).unwrap().is_first);
        // One arrived; the other's copy may be lost as well.
        assert_eq!(cut.take_lost().len(), 2);
        assert!(cut.is_empty() && cut.take_over(MS, now).is_none());
    }

    #[test]
    fn who_is_late_takes_nothing_over() {
        let now = Instant::now();
        let mut sent = living(now);
        sent.push(pack(), 1, now);
        assert!(sent.patience(now + 399 * MS).is_some());
        assert!(sent.patience(now + 400 * MS).is_none());
        assert_eq!(Sent::default().patience(now), Some(LATE_UNKNOWN));
    }

    #[test]
    fn what_was_taken_over_and_is_late_again_is_taken_over_again() {
        let now = Instant::now();
        let mut late = Sent::default();
        late.push(pack(), 1, now);
        for n in 1..4 {
            assert!(late.take_over(400 * MS, now + n * 400 * MS).is_some());
            assert!(
                late.take_over(400 * MS, now + n * 400 * MS + 399 * MS)
                    .is_none()
            );
        }
    }
}
