//! Flows that cross the same links, where the way of each is known.

/// A link, in one direction, that carried several flows at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Crowd {
    /// Number of the directed link.
    pub link: usize,
    /// Most flows on it at once.
    pub flows_max: usize,
    /// Round in which that was first.
    pub round: usize,
    /// Rounds in which more than one flow crossed it.
    pub rounds: usize,
    /// What those flows got that it held back most, in the mean, of the rounds with most flows on it.
    pub each: f64,
    /// What flows lost that it held back most, compared to being alone, all rounds together.
    pub lost: f64,
}

/// What each flow gets where every link is shared fairly: of rates that can be had, the one in which nobody
/// can have more without one who has less having still less (max-min fairness, by filling all flows evenly
/// and fixing those whose link is full). A flow that crosses no link with a rate gets `f64::INFINITY`.
///
/// `routes` are the links of each flow by number, `capacity` what each can carry.
#[allow(clippy::cast_precision_loss, reason = "a number of flows")]
pub fn fair(routes: &[Vec<usize>], capacity: &[f64]) -> Vec<f64> {
    let mut got = vec![f64::INFINITY; routes.len()];
    let mut left = capacity.to_vec();
    let mut open: Vec<usize> = (0..routes.len()).collect();
    while !open.is_empty() {
        let mut on = vec![0_usize; capacity.len()];
        for &flow in &open {
            routes[flow].iter().for_each(|&link| on[link] += 1);
        }
        let share = |link: usize| left[link].max(0.0) / on[link] as f64;
        let busy = (0..capacity.len()).filter(|&link| on[link] > 0 && capacity[link].is_finite());
        let Some(full) = busy.min_by(|&a, &b| share(a).total_cmp(&share(b))) else {
            break;
        };
        let rate = share(full);
        let (fixed, rest): (Vec<usize>, Vec<usize>) =
            open.into_iter().partition(|&f| routes[f].contains(&full));
        for flow in fixed {
            got[flow] = rate;
            routes[flow].iter().for_each(|&link| left[link] -= rate);
        }
        open = rest;
    }
    got
}

/// Links that held flows back since others crossed them too, the one at which most was lost first.
/// `rounds` has for each flow its links and what it got; `alone` is what a flow gets by itself.
#[allow(clippy::cast_precision_loss, reason = "a number of flows")]
pub fn crowds(rounds: &[Vec<(Vec<usize>, f64)>], capacity: &[f64], alone: f64) -> Vec<Crowd> {
    let mut found: Vec<Crowd> = (0..capacity.len())
        .map(|link| Crowd {
            link,
            ..Crowd::default()
        })
        .collect();
    let mut sums = vec![(0.0, 0_usize); capacity.len()];
    for (number, round) in rounds.iter().enumerate() {
        let mut on = vec![0_usize; capacity.len()];
        for (route, _) in round {
            route.iter().for_each(|&link| on[link] += 1);
        }
        let mut held: Vec<(f64, usize)> = vec![(0.0, 0); capacity.len()];
        for (route, got) in round {
            let share = |link: usize| capacity[link] / on[link] as f64;
            let narrow = route.iter().copied().filter(|&l| capacity[l].is_finite());
            let narrow = narrow.min_by(|&a, &b| share(a).total_cmp(&share(b)));
            if let Some(link) = narrow.filter(|&link| on[link] > 1) {
                held[link].0 += got;
                held[link].1 += 1;
                found[link].lost += (alone - got).max(0.0);
            }
        }
        for link in 0..capacity.len() {
            let crowd = &mut found[link];
            crowd.rounds += usize::from(on[link] > 1);
            if on[link] > crowd.flows_max {
                (crowd.flows_max, crowd.round) = (on[link], number);
                sums[link] = (0.0, 0);
            }
            if on[link] == crowd.flows_max {
                sums[link].0 += held[link].0;
                sums[link].1 += held[link].1;
            }
        }
    }
    for (crowd, (sum, count)) in found.iter_mut().zip(sums) {
        crowd.each = if count > 0 { sum / count as f64 } else { 0.0 };
    }
    found.retain(|crowd| crowd.rounds > 0 && crowd.lost > 0.0);
    found.sort_by(|a, b| b.lost.total_cmp(&a.lost));
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shared_link_is_divided_and_what_one_cannot_use_the_others_get() {
        // Three flows over link 0 of 9; one of them can have 1 only, over link 1.
        let routes = [vec![0], vec![0, 1], vec![0]];
        assert_eq!(fair(&routes, &[9.0, 1.0]), [4.0, 1.0, 4.0]);
        assert_eq!(fair(&[vec![]], &[9.0]), [f64::INFINITY]);
        assert_eq!(fair(&[vec![0]], &[f64::INFINITY]), [f64::INFINITY]);
    }

    proptest! {
        #[test]
        fn no_link_carries_more_than_it_can_and_each_flow_has_a_full_one(
            routes in proptest::collection::vec(proptest::collection::btree_set(0_usize..6, 1..4), 1..12),
            capacity in proptest::collection::vec(1.0_f64..100.0, 6),
        ) {
            let routes: Vec<Vec<usize>> = routes.into_iter().map(|r| r.into_iter().collect()).collect();
            let got = fair(&routes, &capacity);
            let load = |link: usize| -> f64 {
                let on = routes.iter().zip(&got).filter(|(route, _)| route.contains(&link));
                on.map(|(_, rate)| rate).sum()
            };
            for (link, capacity) in capacity.iter().enumerate() {
                prop_assert!(load(link) <= capacity + 1e-6);
            }
            for route in &routes {
                prop_assert!(route.iter().any(|&link| load(link) >= capacity[link] - 1e-6));
            }
        }
    }

    #[test]
    fn the_link_at_which_most_is_lost_comes_first() {
        // Link 0 carries two flows in one round, link 1 three in another and one in the first.
        let rounds = vec![
            vec![(vec![0], 50.0), (vec![0, 2], 50.0), (vec![1], 100.0)],
            vec![(vec![1], 33.0), (vec![1], 33.0), (vec![1, 2], 34.0)],
        ];
        let found = crowds(&rounds, &[100.0, 100.0, f64::INFINITY], 100.0);
        let links: Vec<usize> = found.iter().map(|c| c.link).collect();
        assert_eq!(links, [1, 0]);
        assert_eq!(
            (found[0].flows_max, found[0].round, found[0].rounds),
            (3, 1, 1)
        );
        assert!((found[0].lost - 200.0).abs() < 1e-9 && (found[0].each - 33.333).abs() < 0.01);
        assert_eq!((found[1].flows_max, found[1].each), (2, 50.0));
    }
}
