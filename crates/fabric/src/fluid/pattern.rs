//! Who sends to whom at the same time.

use units::Rng;

use crate::route::shuffle;

/// Rotation r of CBench's rotate: of an even number of ranks, i of the lower half sends to h + (i + r) mod h of
/// the upper; an odd one's last stays idle.
pub fn rotation(ranks: u32, r: u32) -> Vec<(u32, u32)> {
    let half = ranks / 2;
    let to = |i: u32| u64::from(half) + (u64::from(i) + u64::from(r)) % u64::from(half.max(1));
    (0..half)
        .map(|i| (i, u32::try_from(to(i)).unwrap_or(u32::MAX)))
        .collect()
}

/// A random half of the ranks sends to the other; an odd one's last drawn stays idle.
pub fn bisection(ranks: u32, rng: &mut Rng) -> Vec<(u32, u32)> {
    let mut all: Vec<u32> = (0..ranks).collect();
    shuffle(&mut all, rng);
    let half = all.len() / 2;
    let (from, to) = all.split_at(half);
    from.iter().copied().zip(to.iter().copied()).collect()
}

/// Each sends to one and receives from one, never itself; nobody where there are fewer than two ranks.
pub fn permutation(ranks: u32, rng: &mut Rng) -> Vec<(u32, u32)> {
    if ranks < 2 {
        return Vec::new();
    }
    // Drawn again until nobody is left to itself: one try in e.
    loop {
        let mut to: Vec<u32> = (0..ranks).collect();
        shuffle(&mut to, rng);
        let flows: Vec<_> = (0..ranks).zip(to).collect();
        if flows.iter().all(|(from, to)| from != to) {
            return flows;
        }
    }
}

/// Everybody but one sends to it.
pub fn incast(ranks: u32, to: u32) -> Vec<(u32, u32)> {
    let others = (0..ranks).filter(|from| *from != to);
    others.map(|from| (from, to)).collect()
}

/// Step s of mpiGraph and of a ring all-to-all: each sends to the one s further on.
pub fn shift(ranks: u32, s: u32) -> Vec<(u32, u32)> {
    let to = |i: u32| (u64::from(i) + u64::from(s)) % u64::from(ranks.max(1));
    (0..ranks)
        .map(|i| (i, u32::try_from(to(i)).unwrap_or(u32::MAX)))
        .collect()
}
