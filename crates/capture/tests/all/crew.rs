//! Shards over threads: order, bounds, and what a panic does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capture::crew::{Crew, Shard};

/// Writes down what it takes.
#[derive(Debug, Default)]
struct Notes {
    taken: Vec<u32>,
    finished: usize,
    /// Panics at this number.
    hates: Option<u32>,
}

/// A number, and how many batches there are.
#[derive(Debug)]
struct Batch(
    u32,
    #[allow(dead_code, reason = "counted")] Arc<AtomicUsize>,
);

impl Shard for Notes {
    type Batch = Batch;

    fn take(&mut self, batch: &mut Batch) {
        assert_ne!(Some(batch.0), self.hates, "what it hates");
        self.taken.push(batch.0);
    }

    fn finish(&mut self) {
        self.finished += 1;
    }
}

fn notes(count: usize) -> Vec<Notes> {
    (0..count).map(|_| Notes::default()).collect()
}

/// Gives `total` numbers to shards, more of them to the first; batches that had to be made.
fn give(crew: &mut Crew<Notes>, shards: usize, total: u32) -> usize {
    let made = Arc::new(AtomicUsize::new(0));
    let mut spare = None;
    for n in 0..total {
        let number = (n as usize * n as usize) % shards;
        let mut batch = spare.take().unwrap_or_else(|| {
            made.fetch_add(1, Ordering::Relaxed);
            Batch(0, Arc::clone(&made))
        });
        batch.0 = n;
        spare = crew.give(number, batch);
    }
    made.load(Ordering::Relaxed)
}

#[test]
fn each_shard_takes_its_batches_in_their_order_on_any_number_of_threads() {
    for threads in [0, 1, 2, 3, 50] {
        let shards = 7;
        let mut crew = Crew::new(notes(shards), threads).unwrap();
        give(&mut crew, shards, 20_000);
        let done = crew.finish();
        assert_eq!(done.len(), shards);
        for (number, notes) in done.iter().enumerate() {
            let wanted = (0..20_000_u32).filter(|&n| (n as usize * n as usize) % shards == number);
            assert!(
                notes.taken.iter().copied().eq(wanted),
                "{threads}: {number}"
            );
            assert_eq!(notes.finished, 1);
        }
    }
}

#[test]
fn batches_are_used_again_and_their_number_is_bounded() {
    for threads in [1, 2, 3] {
        let mut crew = Crew::new(notes(4), threads).unwrap();
        let made = give(&mut crew, 4, 50_000);
        // As many may wait as there is room, and be in each thread's hands.
        assert!(made <= (threads + 1) * 20, "{threads}: {made}");
        crew.finish();
    }
}

#[test]
fn a_crew_without_work_or_shards_comes_to_its_end() {
    for (shards, threads) in [(0, 3), (1, 3), (3, 1), (3, 3)] {
        let crew = Crew::new(notes(shards), threads).unwrap();
        let done = crew.finish();
        assert!(done.len() == shards && done.iter().all(|n| n.finished == 1));
    }
}

#[test]
fn what_is_dropped_before_its_end_leaves_no_thread_behind() {
    let made = Arc::new(AtomicUsize::new(0));
    let mut crew = Crew::new(notes(3), 3).unwrap();
    for n in 0..100 {
        crew.give(n as usize % 3, Batch(n, Arc::clone(&made)));
    }
    drop(crew);
    assert_eq!(
        Arc::strong_count(&made),
        1,
        "all batches are gone, so is who held them"
    );
}

#[test]
fn a_panic_reaches_who_gives() {
    for threads in [1, 2, 3] {
        let hates = |n| Notes {
            hates: Some(n),
            ..Notes::default()
        };
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut crew = Crew::new(vec![hates(16), hates(1_000)], threads).unwrap();
            give(&mut crew, 2, 100_000);
            crew.finish()
        }));
        let panic = result.unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("what it hates"), "{threads}: {text}");
    }
}
