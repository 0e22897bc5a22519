//! Two accounts of the same frames, held against each other: what hosts' captures say left and came,
//! and what the lab's log says was dropped.
//!
//! A frame is known by what no link changes and no sender repeats soon: addresses, ports, IP
//! identification, length, TCP sequence number and timestamp. Frames that are alike are counted, not
//! told apart. Left out: networks whose nodes rewrite or duplicate, which have no such account.

use std::collections::HashMap;

use serde::Serialize;

/// What a frame is known by: the fields of [`super::capture::FIELDS`] from the third on, as text.
pub(super) type Key = String;

/// A frame in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Kernel's stamp, nanoseconds of the realtime clock.
    pub(super) time_ns: u64,
    pub(super) key: Key,
}

/// Frames between hosts, by the captures and by the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Account {
    /// Frames that left a host, by its capture.
    pub(super) captured_sent: u64,
    /// Frames that came to the host that they were for, by its capture.
    pub(super) captured_received: u64,
    /// Left and never came, by the captures.
    pub(super) captured_missing: u64,
    /// Came and never left: 0 unless something on the way makes or changes frames.
    pub(super) captured_surplus: u64,
    /// Frames that the log has.
    pub(super) logged: u64,
    /// Frames that the log calls dropped.
    pub(super) logged_dropped: u64,
    /// In a sender's capture and not in the log, or the other way round.
    pub(super) not_in_both: u64,
    /// Called dropped by the log and not missing in the captures.
    pub(super) dropped_but_came: u64,
    /// Missing in the captures and not called dropped by the log.
    pub(super) missing_but_not_dropped: u64,
    /// True when the two accounts are one.
    pub(super) agree: bool,
}

/// Holds the captures against the log.
pub(super) fn settle(
    sent: &[Seen],
    received: &[Seen],
    logged: &[Key],
    dropped: &[Seen],
) -> Account {
    let (left, came) = (
        count(sent.iter().map(|s| s.key.as_str())),
        count(received.iter().map(|s| s.key.as_str())),
    );
    let (logged_keys, dropped_keys) = (
        count(logged.iter().map(String::as_str)),
        count(dropped.iter().map(|s| s.key.as_str())),
    );
    let missing = minus(&left, &came);
    let surplus = minus(&came, &left);
    let total = |counts: &HashMap<&str, u64>| counts.values().sum::<u64>();
    let not_in_both = total(&minus(&left, &logged_keys)) + total(&minus(&logged_keys, &left));
    let dropped_but_came = total(&minus(&dropped_keys, &missing));
    let missing_but_not_dropped = total(&minus(&missing, &dropped_keys));
    let captured_surplus = total(&surplus);
    Account {
        captured_sent: sent.len() as u64,
        captured_received: received.len() as u64,
        captured_missing: total(&missing),
        captured_surplus,
        logged: logged.len() as u64,
        logged_dropped: dropped.len() as u64,
        not_in_both,
        dropped_but_came,
        missing_but_not_dropped,
        agree: !sent.is_empty()
            && not_in_both + dropped_but_came + missing_but_not_dropped + captured_surplus == 0,
    }
}

/// One-way times of the frames that came, nanoseconds, in the order in which they left. Of frames
/// that are alike the first to leave is the first to come, once those that the log has dropped are
/// taken away: identifications of IP repeat after 65,536 packets.
pub(super) fn delays<'s>(
    sent: &'s [Seen],
    received: &[Seen],
    dropped: &[Seen],
) -> Vec<(&'s Seen, i64)> {
    let mut left: HashMap<&str, Vec<usize>> = HashMap::new();
    for (n, seen) in sent.iter().enumerate() {
        left.entry(&seen.key).or_default().push(n);
    }
    for lost in dropped {
        if let Some(alike) = left.get_mut(lost.key.as_str()) {
            let apart = |n: &usize| sent[*n].time_ns.abs_diff(lost.time_ns);
            let nearest = (0..alike.len()).min_by_key(|&place| apart(&alike[place]));
            nearest.map(|place| alike.remove(place));
        }
    }
    let mut next: HashMap<&str, usize> = HashMap::new();
    let mut came: Vec<Option<u64>> = vec![None; sent.len()];
    for seen in received {
        let place = next.entry(&seen.key).or_default();
        let alike = left.get(seen.key.as_str());
        if let Some(&n) = alike.and_then(|alike| alike.get(*place)) {
            came[n] = Some(seen.time_ns);
        }
        *place += 1;
    }
    let one_way = |(seen, at): (&'s Seen, Option<u64>)| {
        Some((seen, at?.cast_signed() - seen.time_ns.cast_signed()))
    };
    sent.iter().zip(came).filter_map(one_way).collect()
}

fn count<'k>(keys: impl Iterator<Item = &'k str>) -> HashMap<&'k str, u64> {
    let mut counts = HashMap::new();
    for key in keys {
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

/// What `a` has more of than `b`.
fn minus<'k>(a: &HashMap<&'k str, u64>, b: &HashMap<&'k str, u64>) -> HashMap<&'k str, u64> {
    let more = |(&key, &n): (&&'k str, &u64)| {
        let more = n.saturating_sub(b.get(key).copied().unwrap_or(0));
        (more > 0).then_some((key, more))
    };
    a.iter().filter_map(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(list: &[(u64, &str)]) -> Vec<Seen> {
        let one = |&(time_ns, key): &(u64, &str)| Seen {
            time_ns,
            key: key.to_owned(),
        };
        list.iter().map(one).collect()
    }

    fn keys(list: &[&str]) -> Vec<Key> {
        list.iter().map(|&k| k.to_owned()).collect()
    }

    #[test]
    fn the_same_losses_in_both_accounts_agree() {
        let sent = seen(&[(1, "a"), (2, "b"), (3, "b"), (4, "c")]);
        let received = seen(&[(11, "a"), (12, "b"), (14, "c")]);
        let account = settle(
            &sent,
            &received,
            &keys(&["a", "b", "b", "c"]),
            &seen(&[(3, "b")]),
        );
        assert!(account.agree, "{account:?}");
        assert_eq!((account.captured_sent, account.captured_received), (4, 3));
        assert_eq!((account.captured_missing, account.logged_dropped), (1, 1));
    }

    #[test]
    fn each_kind_of_disagreement_is_counted_by_itself() {
        let sent = seen(&[(1, "a"), (2, "b")]);
        let all = keys(&["a", "b"]);
        let none = seen(&[]);
        let came = seen(&[(11, "a")]);
        let account = settle(&sent, &came, &all, &none);
        assert_eq!((account.agree, account.missing_but_not_dropped), (false, 1));
        let account = settle(&sent, &sent, &all, &seen(&[(2, "b")]));
        assert_eq!((account.agree, account.dropped_but_came), (false, 1));
        let account = settle(&sent, &sent, &keys(&["a"]), &none);
        assert_eq!((account.agree, account.not_in_both), (false, 1));
        let twice = seen(&[(11, "a"), (12, "b"), (13, "b")]);
        let account = settle(&sent, &twice, &all, &none);
        assert_eq!((account.agree, account.captured_surplus), (false, 1));
        // Two accounts of nothing prove nothing.
        assert!(!settle(&[], &[], &[], &none).agree);
    }

    #[test]
    fn of_frames_alike_the_first_to_leave_is_the_first_to_come() {
        let sent = seen(&[(100, "a"), (110, "b"), (120, "a"), (130, "lost")]);
        let received = seen(&[(305, "b"), (300, "a"), (321, "a")]);
        let took = |dropped: &[Seen]| -> Vec<i64> {
            let delays = delays(&sent, &received, dropped);
            delays.iter().map(|d| d.1).collect()
        };
        assert_eq!(took(&[]), [200, 195, 201]);
        // The second of those alike was dropped: only the first can have come.
        assert_eq!(took(&seen(&[(121, "a")])), [200, 195]);
        assert_eq!(took(&seen(&[(101, "a")])), [195, 180]);
    }
}
