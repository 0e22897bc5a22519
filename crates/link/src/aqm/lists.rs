//! Waiting runs in one slab, and the lists through it: as many queues as there are flows, and no
//! allocation once the slab has grown to the most that ever waited.

use crate::queue::Backlog;
use crate::train::Train;

/// The runs of all lists.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    nodes: Vec<Node>,
    /// First of the unused nodes, linked as a list is.
    free: u32,
    backlog: Backlog,
    largest_bytes: u32,
}

/// One queue: head, tail, and what waits in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    backlog: Backlog,
}

#[derive(Clone, Debug)]
struct Node {
    run: Train,
    next: u32,
}

impl Slab {
    /// With room for `runs` before it must grow.
    pub(super) fn with_capacity(runs: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(runs),
            free: NONE,
            backlog: Backlog::default(),
            largest_bytes: 0,
        }
    }

    /// Adds a run at the end of `list`. Segments of one frame that came at one time share a node.
    pub(super) fn push(&mut self, list: &mut List, run: Train) {
        self.largest_bytes = self.largest_bytes.max(run.wire_bytes);
        self.backlog = self.backlog.plus(&run);
        list.backlog = list.backlog.plus(&run);
        if self.extend_tail(list, &run) {
            return;
        }
        let node = Node { run, next: NONE };
        let index = self.store(node);
        if list.tail == NONE {
            list.head = index;
        } else {
            self.nodes[list.tail as usize].next = index;
        }
        list.tail = index;
    }

    /// Takes up to `segments` (at least 1) of the first run of `list`.
    pub(super) fn pop(&mut self, list: &mut List, segments: u16) -> Option<Train> {
        let head = list.head;
        let node = self.nodes.get_mut(head as usize)?;
        let whole = node.run;
        let taken = if whole.count > segments {
            node.run = whole.part(segments, whole.count - segments);
            whole.part(0, segments)
        } else {
            list.head = node.next;
            node.next = self.free;
            self.free = head;
            if list.head == NONE {
                list.tail = NONE;
            }
            whole
        };
        self.backlog = self.backlog.minus(&taken);
        list.backlog = list.backlog.minus(&taken);
        Some(taken)
    }

    /// What waits in all lists together.
    pub(super) const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Largest segment that ever came, wire bytes.
    pub(super) const fn largest_bytes(&self) -> u32 {
        self.largest_bytes
    }

    fn extend_tail(&mut self, list: &List, run: &Train) -> bool {
        let Some(tail) = self.nodes.get_mut(list.tail as usize) else {
            return false;
        };
        let alike = tail.run.at == run.at && tail.run.is_followed_by(run);
        match tail.run.count.checked_add(run.count).filter(|_| alike) {
            Some(count) => tail.run.count = count,
            None => return false,
        }
        true
    }

    fn store(&mut self, node: Node) -> u32 {
        let index = self.free;
        if let Some(unused) = self.nodes.get_mut(index as usize) {
            self.free = unused.next;
            *unused = node;
            return index;
        }
        self.nodes.push(node);
        // A node is tens of bytes: memory ends long before the index does.
        u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
    }
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        backlog: Backlog {
            bytes: 0,
            packets: 0,
        },
    };

    pub(super) const fn backlog(&self) -> Backlog {
        self.backlog
    }
}

/// No node; past the end of every slab.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::testing::train;

    #[test]
    fn lists_keep_their_own_order_and_their_nodes_are_used_again() {
        let mut slab = Slab::with_capacity(4);
        let mut lists = [List::EMPTY; 2];
        for round in 0..100 {
            for (handle, list) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
                slab.push(&mut lists[list], train(handle, 3, round));
            }
            for (handle, list) in [(1, 1), (3, 1), (0, 0), (2, 0)] {
                let two = slab.pop(&mut lists[list], 2).unwrap();
                assert_eq!((two.handle, two.first, two.count), (handle, 0, 2));
                let last = slab.pop(&mut lists[list], 2).unwrap();
                assert_eq!((last.handle, last.first, last.count), (handle, 2, 1));
            }
            assert!(lists.iter_mut().all(|list| slab.pop(list, 1).is_none()));
        }
        assert_eq!((slab.nodes.len(), slab.backlog()), (4, Backlog::default()));
    }

    #[test]
    fn runs_of_one_frame_share_a_node_only_when_they_came_together() {
        for (second_at, runs) in [(7, 1), (8, 2)] {
            let mut slab = Slab::with_capacity(4);
            let mut list = List::EMPTY;
            slab.push(&mut list, train(1, 4, 7).part(0, 2));
            slab.push(&mut list, train(1, 4, second_at).part(2, 2));
            assert_eq!(slab.nodes.len(), runs);
            assert_eq!(list.backlog().packets, 4);
        }
    }
}
