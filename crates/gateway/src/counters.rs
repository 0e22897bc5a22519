//! What a gateway has done: counts that every worker adds to and anybody may read.

use std::sync::atomic::{AtomicU64, Ordering};

use units::Duration;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one worker since it began.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Count,)*
        }

        /// The same at one moment, of one worker or of several.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize,
        )]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// As they stand.
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }

            /// Goes on from another's, who did the same work before.
            pub fn go_on_from(&self, counts: &Counts) {
                $(self.$name.set(counts.$name);)*
            }
        }

        impl Counts {
            /// Adds another worker's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Connections that were split.
    split,
    /// Of these, those that have not ended.
    live,
    /// Ended by both ends, all bytes delivered to the kernel.
    ended,
    /// Ended by a reset, of either end or ours.
    reset,
    /// SYNs that were passed on unsplit, by a rule.
    bypassed,
    /// SYNs that were passed on unsplit as samples.
    sampled,
    /// SYNs that were answered with a reset, by a rule.
    forbidden,
    /// SYNs that were passed on unsplit since a bound was reached.
    over_limit,
    /// Pairs of hosts that were found whose answers take another way.
    one_way,
    /// SYNs that were passed on unsplit since answers take another way.
    passed_one_way,
    /// SYNs that were passed on unsplit since another one to the same server waits in vain.
    passed_silent,
    /// SYNs that were passed on unsplit since the gateway itself failed: no socket, no memory.
    failed,
    /// How often nothing was accepted for a moment since there was no descriptor or no memory.
    accept_rests,
    /// SYNs whose server refused.
    refused,
    /// SYNs whose server cannot be reached.
    unreachable,
    /// SYNs whose server did not answer in time.
    silent,
    /// Servers that had accepted when the client was gone.
    abandoned,
    /// SYNs that wait.
    waiting,
    /// Connections that were reset with bytes acknowledged to one peer and not by the other.
    undelivered,
    /// Those bytes.
    bytes_undelivered,
    /// Connections whose last ACK waits for the other side's.
    acks_held,
    /// Times that SYNs were held, in all, in nanoseconds.
    held_ns,
    /// Of these times, those of 1 ms at most.
    held_1ms,
    /// Beyond that, 10 ms at most.
    held_10ms,
    /// Beyond that, 100 ms at most.
    held_100ms,
    /// Beyond that, 1 s at most.
    held_1s,
    /// Beyond that, 10 s at most.
    held_10s,
    /// How often bytes went by copying since no pipe was left.
    copies,
    /// Connections whose source port could not be kept.
    other_port,
    /// Socket options that the kernel refused.
    options_refused,
    /// Bytes from inside to outside.
    bytes_outward,
    /// Bytes from outside to inside.
    bytes_inward,
    /// Urgent bytes carried.
    urgent,
    /// Connections that came from the gateway itself: its target leads back to it.
    looped,
    /// Bytes in pipes: taken from one socket, not yet in the other.
    in_pipes,
    /// Pipes that exist, in use or kept for the next connection.
    pipes,
}

impl Counters {
    /// A SYN was held for so long and became a connection.
    pub fn on_held(&self, held: Duration) {
        self.held_ns.add(held.as_ns());
        let buckets = [
            &self.held_1ms,
            &self.held_10ms,
            &self.held_100ms,
            &self.held_1s,
            &self.held_10s,
        ];
        let fits = |(_, most_ms): &(_, u64)| held <= Duration::from_ms(*most_ms);
        if let Some((bucket, _)) = buckets.into_iter().zip(HELD_MS).find(fits) {
            bucket.more();
        }
    }
}

impl Counts {
    /// How many SYNs that became connections were held no longer than each of [`HELD_MS`].
    pub fn held_within(&self) -> [u64; 5] {
        let mut all = [
            self.held_1ms,
            self.held_10ms,
            self.held_100ms,
            self.held_1s,
            self.held_10s,
        ];
        for at in 1..all.len() {
            all[at] += all[at - 1];
        }
        all
    }
}

/// What times of held SYNs are counted by: a machine beside, a city, a continent, an ocean with a SYN lost, more.
pub const HELD_MS: [u64; 5] = [1, 10, 100, 1_000, 10_000];

/// A count that one thread changes and others read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn more(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// One less.
    pub fn less(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// So many less.
    pub fn take(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// This many.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_syn_is_counted_with_those_of_its_bucket_and_of_all_above() {
        let counters = Counters::default();
        for us in [0, 1_000, 1_001, 99_000, 10_000_000, 10_000_001] {
            counters.on_held(Duration::from_us(us));
        }
        let counts = counters.read();
        assert_eq!(counts.held_within(), [2, 3, 4, 4, 5]);
        assert_eq!(counts.held_ns, 20_101_002_000);
    }
}
