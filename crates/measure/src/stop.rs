//! A flag that ends whatever is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a server or a run from another thread. Clones share one flag; it is looked at every 50 ms
/// by everything that waits, and never falls back to "go on".
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the flag.
    pub fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True once the flag was raised.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
