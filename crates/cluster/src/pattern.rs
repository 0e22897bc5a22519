//! Traffic of many hosts: who sends what to whom, step by step.
//!
//! **Measurements** (`rotate`, `rotate-latency`, `bisection`, `permutation`, `incast`) have steps that stand for themselves:
//! each begins on an empty fabric, and what counts is the rate or latency of each pair. **Programs** (`all-to-all`,
//! `all-reduce`, `halo`, `jobs`) have steps that follow each other with a barrier between them, and what counts is when all
//! are done. Ranks are 0 to n - 1; where they sit is the order of the study.
//!
//! `replay` is a program of a single step: the messages of a [trace](crate::trace), each in its time or after another.
//!
//! `rotate` is CBench's: h = n/2, and in rotation r rank i < h sends to h + (i + r) mod h (J. Naegle, Sandia, 2004).
//! `bisection` is Netgauge's `ebb`: a random half exchanges with the other half, both ways at once.

use std::sync::Arc;

use fabric::{Ordering, Transport};
use spans::Spanned;
use units::{Rate, Rng};

use crate::Tier;
use crate::check::{Checked, How, between, bytes32, refuse};
use crate::raw::{RawJob, RawTraffic, RawTransport};
use crate::topology::{Order, shuffle};
use crate::trace::Record;

/// Traffic of a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What is done.
    pub kind: Kind,
    /// With how many ranks; the last is the largest.
    pub nodes: Vec<u32>,
    /// Payload of a message, or of a rank's vector in an all-reduce.
    pub message_bytes: u32,
    /// Messages of each pair and step.
    pub messages: u32,
    /// Payload of a packet.
    pub mtu_bytes: u32,
    /// Messages posted and not completed.
    pub depth: u32,
    /// Service.
    pub transport: Transport,
    /// What receivers do with packets that overtook others.
    pub ordering: Ordering,
    /// Most bytes of an iWARP connection that are sent and not acknowledged.
    pub window_bytes: u32,
    /// Peers whose short messages MPI takes from memory that it polls: those that a rank meets first.
    pub polled_peers: u32,
    /// What a short message of any other one takes longer, by its completion.
    pub unpolled_ps: u64,
    /// What MPI does with messages; `None`: they are the service's own.
    pub mpi: Option<Mpi>,
    /// Steps that are run, drawn from all where there are more.
    pub steps: u32,
    /// How ranks are given to hosts.
    pub ranks: Order,
    /// First of the seeds.
    pub seed: u64,
    /// How often all is repeated with the next seed.
    pub seeds: u32,
    /// Jobs that run at once, of `jobs` only.
    pub jobs: Vec<Job>,
    /// File traffic beside them.
    pub files: Option<Files>,
    /// Messages of `replay`; empty for others.
    pub trace: Arc<Vec<Record>>,
}

/// MPI on top of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// Longest message that is sent at once and copied from MPI's own memory where it arrives; longer ones are asked for
    /// first and go straight to their place.
    pub eager_bytes: u32,
    /// How fast memory copies; `None`: in no time.
    pub copy: Option<Rate>,
}

impl Mpi {
    /// Time of the copy of a message that was not asked for.
    pub fn copy_ps(&self, message_bytes: u32) -> u64 {
        let of_eager = self.copy.filter(|_| message_bytes <= self.eager_bytes);
        of_eager.map_or(0, |rate| {
            let bits = u128::from(message_bytes) * 8 * 1_000_000_000_000;
            let took = bits / u128::from(rate.as_bits_per_second().max(1));
            u64::try_from(took).unwrap_or(u64::MAX)
        })
    }
}

/// What ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pairs, by CBench's rotation.
    Rotate,
    /// The same, as ping-pong of the shortest message.
    RotateLatency,
    /// Random halves, both ways.
    Bisection,
    /// Each sends to one other, drawn.
    Permutation,
    /// All send to the last.
    Incast,
    /// Each sends to each.
    AllToAll(AllToAll),
    /// A sum over all that all have.
    AllReduce(AllReduce),
    /// Neighbours exchange, all ways at once.
    Halo(Halo),
    /// Several at once.
    Jobs,
    /// A trace's messages.
    Replay,
}

/// Order of an all-to-all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllToAll {
    /// In step s to the rank s further.
    Shift,
    /// In step s to rank xor s.
    Xor,
    /// By powers of two, with what is for others on the way (J. Bruck et al., 1997).
    Bruck,
}

/// Order of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllReduce {
    /// Parts go round twice.
    Ring,
    /// Recursive doubling.
    Doubling,
    /// A binomial tree up and down.
    Tree,
}

/// Who is a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halo {
    /// Before and after in the order of ranks, round: slabs.
    Slabs,
    /// On all four sides of a grid that is closed to a torus.
    Grid,
    /// The same; twelve ranks in a row are a block of 4 by 3, as where a leaf's hosts are neighbours.
    Blocks,
    /// The same, with ranks drawn anew in each step.
    Changing,
}

/// One of the jobs that share a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Ranks.
    pub nodes: u32,
    /// As [`Pattern::message_bytes`].
    pub message_bytes: u32,
    /// As [`Pattern::steps`].
    pub steps: u32,
}

/// Clients that write to servers throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// Ranks after those of the jobs.
    pub servers: u32,
    /// Ranks of the jobs that write, spread evenly over them.
    pub clients: u32,
    /// What each writes in a step.
    pub message_bytes: u32,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Rate of each pair.
    Rate,
    /// Half of each pair's round trip.
    Latency,
    /// Time until a step's last message.
    Time,
}

/// One pair's messages in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sends {
    /// Rank that sends.
    pub from: u32,
    /// Rank that receives.
    pub to: u32,
    /// Payload of a message.
    pub message_bytes: u32,
    /// Job; [`FILES`] for file traffic.
    pub job: u16,
}

/// Job number of file traffic.
pub const FILES: u16 = u16::MAX;

impl Kind {
    fn parse(
        name: &Spanned<String>,
        algorithm: Option<&Spanned<String>>,
        nodes: &[u32],
    ) -> Checked<Self> {
        let chosen = algorithm.map(|a| a.get_ref().as_str());
        let kind = match (name.get_ref().as_str(), chosen) {
            ("rotate", None) => Self::Rotate,
            ("rotate-latency", None) => Self::RotateLatency,
            ("bisection", None) => Self::Bisection,
            ("permutation", None) => Self::Permutation,
            ("incast", None) => Self::Incast,
            ("all-to-all", None | Some("shift")) => Self::AllToAll(AllToAll::Shift),
            ("all-to-all", Some("xor")) => Self::AllToAll(AllToAll::Xor),
            ("all-to-all", Some("bruck")) => Self::AllToAll(AllToAll::Bruck),
            ("all-reduce", None | Some("ring")) => Self::AllReduce(AllReduce::Ring),
            ("all-reduce", Some("doubling")) => Self::AllReduce(AllReduce::Doubling),
            ("all-reduce", Some("tree")) => Self::AllReduce(AllReduce::Tree),
            ("halo", None | Some("grid")) => Self::Halo(Halo::Grid),
            ("halo", Some("blocks")) => Self::Halo(Halo::Blocks),
            ("halo", Some("slabs")) => Self::Halo(Halo::Slabs),
            ("halo", Some("changing")) => Self::Halo(Halo::Changing),
            ("jobs", None) => Self::Jobs,
            ("replay", None) => Self::Replay,
            (
                "rotate" | "rotate-latency" | "bisection" | "permutation" | "incast" | "jobs"
                | "replay",
                _,
            ) => {
                return refuse(
                    algorithm.unwrap_or(name),
                    format!("'{}' has no algorithms", name.get_ref()),
                );
            }
            ("all-to-all" | "all-reduce" | "halo", _) => {
                return refuse(
                    algorithm.unwrap_or(name),
                    "there is no such algorithm; all-to-all has shift, xor and bruck, all-reduce has ring, doubling and tree, halo \
                     has grid, blocks, slabs and changing",
                );
            }
            (other, _) => {
                let problem = format!(
                    "there is no pattern '{other}'; expected rotate, rotate-latency, bisection, permutation, incast, all-to-all, \
                     all-reduce, halo, jobs or replay"
                );
                return refuse(name, problem);
            }
        };
        let uneven =
            |n: &&u32| matches!(kind, Self::Halo(Halo::Blocks)) && !n.is_multiple_of(BLOCK);
        if let Some(n) = nodes.iter().find(uneven) {
            return refuse(
                algorithm.unwrap_or(name),
                format!("{n} ranks; blocks are of {BLOCK}"),
            );
        }
        let powers = matches!(
            kind,
            Self::AllToAll(AllToAll::Xor) | Self::AllReduce(AllReduce::Doubling)
        );
        if let Some(n) = nodes.iter().find(|n| powers && !n.is_power_of_two()) {
            return refuse(
                algorithm.unwrap_or(name),
                format!("{n} ranks; this algorithm is for powers of two"),
            );
        }
        Ok(kind)
    }

    /// As it is typed, with its algorithm.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::RotateLatency => "rotate-latency",
            Self::Bisection => "bisection",
            Self::Permutation => "permutation",
            Self::Incast => "incast",
            Self::AllToAll(AllToAll::Shift) => "all-to-all shift",
            Self::AllToAll(AllToAll::Xor) => "all-to-all xor",
            Self::AllToAll(AllToAll::Bruck) => "all-to-all bruck",
            Self::AllReduce(AllReduce::Ring) => "all-reduce ring",
            Self::AllReduce(AllReduce::Doubling) => "all-reduce doubling",
            Self::AllReduce(AllReduce::Tree) => "all-reduce tree",
            Self::Halo(Halo::Slabs) => "halo slabs",
            Self::Halo(Halo::Grid) => "halo grid",
            Self::Halo(Halo::Blocks) => "halo blocks",
            Self::Halo(Halo::Changing) => "halo changing",
            Self::Jobs => "jobs",
            Self::Replay => "replay",
        }
    }

    /// What it counts.
    pub const fn counts(self) -> Counts {
        match self {
            Self::Rotate | Self::Bisection | Self::Permutation | Self::Incast => Counts::Rate,
            Self::RotateLatency => Counts::Latency,
            Self::AllToAll(_) | Self::AllReduce(_) | Self::Halo(_) | Self::Jobs | Self::Replay => {
                Counts::Time
            }
        }
    }

    /// Steps of all, where these are as many as there are; `None` where they are drawn without end.
    fn all_steps(self, nodes: u32) -> Option<u32> {
        let rounds = nodes.next_power_of_two().trailing_zeros();
        match self {
            Self::Rotate | Self::RotateLatency => Some((nodes / 2).max(1)),
            Self::Incast | Self::Replay => Some(1),
            Self::AllToAll(AllToAll::Bruck) | Self::AllReduce(AllReduce::Doubling) => Some(rounds),
            Self::AllToAll(_) => Some(nodes - 1),
            Self::AllReduce(AllReduce::Ring) => Some(2 * (nodes - 1)),
            Self::AllReduce(AllReduce::Tree) => Some(2 * rounds),
            Self::Bisection | Self::Permutation | Self::Halo(_) | Self::Jobs => None,
        }
    }

    /// Pairs that send in step `step`, with the payload of each.
    fn pairs(self, nodes: u32, step: u32, bytes: u32, seed: u64) -> Vec<(u32, u32, u32)> {
        let n = nodes;
        let mut rng = Rng::new(seed ^ (u64::from(step) << 32).wrapping_mul(STEP_MIX));
        match self {
            Self::Rotate | Self::RotateLatency => {
                let half = n / 2;
                (0..half)
                    .map(|i| (i, half + (i + step) % half, bytes))
                    .collect()
            }
            Self::Bisection => {
                let all = drawn(n, &mut rng);
                let (one, other) = all.split_at(n as usize / 2);
                let both = |(a, b): (&u32, &u32)| [(*a, *b, bytes), (*b, *a, bytes)];
                one.iter().zip(other).flat_map(both).collect()
            }
            Self::Permutation => {
                let to = drawn(n, &mut rng);
                let pairs = (0..).zip(to).filter(|(a, b)| a != b);
                pairs.map(|(a, b)| (a, b, bytes)).collect()
            }
            Self::Incast => (0..n - 1).map(|i| (i, n - 1, bytes)).collect(),
            Self::AllToAll(AllToAll::Shift) => {
                (0..n).map(|i| (i, (i + step + 1) % n, bytes)).collect()
            }
            Self::AllToAll(AllToAll::Xor) => (0..n).map(|i| (i, i ^ (step + 1), bytes)).collect(),
            Self::AllToAll(AllToAll::Bruck) => {
                let far = 1 << step;
                let blocks = (0..n).filter(|block| block & far != 0).count();
                let all = bytes.saturating_mul(u32::try_from(blocks).unwrap_or(u32::MAX));
                (0..n)
                    .map(|i| (i, (i + far) % n, all.min(MESSAGE_MAX)))
                    .collect()
            }
            Self::AllReduce(AllReduce::Ring) => {
                let part = bytes.div_ceil(n);
                (0..n).map(|i| (i, (i + 1) % n, part)).collect()
            }
            Self::AllReduce(AllReduce::Doubling) => {
                (0..n).map(|i| (i, i ^ (1 << step), bytes)).collect()
            }
            Self::AllReduce(AllReduce::Tree) => {
                let rounds = n.next_power_of_two().trailing_zeros();
                let (far, up) = match step < rounds {
                    true => (1 << step, true),
                    false => (1 << (2 * rounds - 1 - step), false),
                };
                let ends = (0..n).filter(|i| i % (2 * far) == far);
                ends.map(|i| match up {
                    true => (i, i - far, bytes),
                    false => (i - far, i, bytes),
                })
                .collect()
            }
            Self::Halo(how) => {
                // The most even one.
                let even = |n: u32| {
                    let a = (1..=n).rfind(|a| n.is_multiple_of(*a) && a * a <= n);
                    a.unwrap_or(1)
                };
                let down = match how {
                    Halo::Slabs => 1,
                    Halo::Grid | Halo::Changing => even(n),
                    Halo::Blocks => even(n / BLOCK) * BLOCK_DOWN,
                };
                let across = n / down;
                let at: Vec<u32> = match how {
                    Halo::Changing => drawn(n, &mut rng),
                    Halo::Grid | Halo::Slabs => (0..n).collect(),
                    Halo::Blocks => (0..n)
                        .map(|i| {
                            let (x, y) = (i % across, i / across);
                            let block = x / BLOCK_ACROSS + y / BLOCK_DOWN * (across / BLOCK_ACROSS);
                            let (x, y) = (x % BLOCK_ACROSS, y % BLOCK_DOWN);
                            block * BLOCK + x + y * BLOCK_ACROSS
                        })
                        .collect(),
                };
                let mut pairs = Vec::new();
                for i in 0..n {
                    let (x, y) = (i % across, i / across);
                    let mut near = vec![
                        (x + 1) % across + y * across,
                        (x + across - 1) % across + y * across,
                        x + (y + 1) % down * across,
                        x + (y + down - 1) % down * across,
                    ];
                    near.sort_unstable();
                    near.dedup();
                    let near = near.into_iter().filter(|j| *j != i);
                    pairs.extend(near.map(|j| (at[i as usize], at[j as usize], bytes)));
                }
                pairs
            }
            Self::Jobs | Self::Replay => Vec::new(),
        }
    }
}

impl Pattern {
    /// Numbers of the steps that are run with so many ranks and the `n`-th seed.
    pub fn steps(&self, nodes: u32, n: u64) -> Vec<u32> {
        let wanted = match self.kind {
            Kind::Jobs => {
                let steps = self.jobs.iter().map(|j| self.job_steps(j));
                return (0..steps.max().unwrap_or(0)).collect();
            }
            _ => self.steps,
        };
        let Some(all) = self.kind.all_steps(nodes) else {
            return (0..wanted).collect();
        };
        let mut steps: Vec<u32> = (0..all).collect();
        if wanted < all {
            let mut rng = Rng::new(self.seed.wrapping_add(n) ^ SAMPLE_MIX);
            shuffle(&mut steps, &mut rng);
            steps.truncate(wanted as usize);
            steps.sort_unstable();
        }
        steps
    }

    /// Steps that there are with so many ranks, where that is bounded.
    pub fn all_steps(&self, nodes: u32) -> Option<u32> {
        self.kind.all_steps(nodes)
    }

    fn job_steps(&self, job: &Job) -> u32 {
        let all = job.kind.all_steps(job.nodes).unwrap_or(job.steps);
        all.min(job.steps)
    }

    /// What is sent in a step.
    pub fn sends(&self, nodes: u32, step: u32, n: u64) -> Vec<Sends> {
        let seed = self.seed.wrapping_add(n);
        if self.kind == Kind::Replay {
            let all = self.trace.iter().map(|r| (r.from, r.to, r.bytes));
            return all.map(|p| send(p, 0, 0)).collect();
        }
        if self.kind != Kind::Jobs {
            let pairs = self.kind.pairs(nodes, step, self.message_bytes, seed);
            return pairs.into_iter().map(|p| send(p, 0, 0)).collect();
        }
        let mut all = Vec::new();
        let mut first = 0;
        for (number, job) in (0_u16..).zip(&self.jobs) {
            if step < self.job_steps(job) {
                let seed = seed ^ (u64::from(number) + 1).wrapping_mul(STEP_MIX);
                let pairs = job.kind.pairs(job.nodes, step, job.message_bytes, seed);
                all.extend(pairs.into_iter().map(|p| send(p, first, number)));
            }
            first += job.nodes;
        }
        if let Some(files) = &self.files {
            all.extend((0..files.clients).map(|client| {
                let from = client * first / files.clients.max(1);
                let to = first + client % files.servers;
                send((from, to, files.message_bytes), 0, FILES)
            }));
        }
        all
    }

    /// Host of each rank with the `n`-th seed, of so many hosts.
    pub fn order(&self, hosts: u32, n: u64) -> Vec<u32> {
        match self.ranks {
            Order::Random => {
                let mut rng = Rng::new(self.seed.wrapping_add(n) ^ RANKS_MIX);
                drawn(hosts, &mut rng)
            }
            Order::Packed => (0..hosts).collect(),
        }
    }

    /// Packets of all steps, nodes and seeds, at most.
    fn packets(&self) -> u64 {
        let of = |bytes: u32| u64::from(bytes.div_ceil(self.mtu_bytes));
        self.sum(|bytes, blocks| {
            let each = of(bytes) * u64::from(self.messages);
            each.saturating_mul(blocks)
        })
    }

    /// Pairs of all steps, nodes and seeds, at most.
    fn flows(&self) -> u64 {
        self.sum(|_, _| 1)
    }

    /// Of all steps, nodes and seeds: a pair's share by its message and how many of it a message has at most.
    fn sum(&self, each: impl Fn(u32, u64) -> u64) -> u64 {
        let fan = |kind: Kind, nodes: u32, bytes: u32| {
            let (pairs, blocks) = match kind {
                Kind::Halo(_) => (4, 1),
                Kind::AllToAll(AllToAll::Bruck) => (1, u64::from(nodes) / 2 + 1),
                _ => (1, 1),
            };
            (pairs * u64::from(nodes)).saturating_mul(each(bytes, blocks))
        };
        let mut sum = 0_u64;
        for nodes in &self.nodes {
            let own = match self.kind {
                Kind::Jobs => {
                    let steps = |j: &Job| u64::from(self.job_steps(j));
                    let jobs = self.jobs.iter();
                    let jobs = jobs
                        .map(|j| fan(j.kind, j.nodes, j.message_bytes).saturating_mul(steps(j)));
                    let jobs = jobs.fold(0, u64::saturating_add);
                    let files = self.files.map_or(0, |f| {
                        let steps = self.jobs.iter().map(steps).max();
                        (u64::from(f.clients) * steps.unwrap_or(0))
                            .saturating_mul(each(f.message_bytes, 1))
                    });
                    jobs.saturating_add(files)
                }
                Kind::Replay => {
                    let all = self.trace.iter().map(|r| each(r.bytes, 1));
                    all.fold(0, u64::saturating_add)
                }
                kind => {
                    let all = self.all_steps(*nodes).unwrap_or(u32::MAX);
                    fan(kind, *nodes, self.message_bytes).saturating_mul(self.steps.min(all).into())
                }
            };
            sum = sum.saturating_add(own);
        }
        sum.saturating_mul(u64::from(self.seeds))
    }
}

const fn send((from, to, message_bytes): (u32, u32, u32), first: u32, job: u16) -> Sends {
    let message_bytes = if message_bytes == 0 { 1 } else { message_bytes };
    Sends {
        from: from + first,
        to: to + first,
        message_bytes,
        job,
    }
}

fn drawn(n: u32, rng: &mut Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..n).collect();
    shuffle(&mut all, rng);
    all
}

/// The traffic of a file that names a pattern, on a fabric of so many hosts.
pub(crate) fn check(
    raw: &Spanned<RawTraffic>,
    hosts: u32,
    tier: Tier,
    how: &How<'_>,
) -> Checked<Pattern> {
    let place = raw;
    let raw = raw.get_ref();
    let Some(name) = &raw.pattern else {
        return refuse(place, "traffic: expected a pattern");
    };
    no_other_keys(raw)?;
    let trace = trace(raw, name, hosts, tier, how)?;
    let nodes = nodes(raw, &trace, hosts)?;
    let kind = Kind::parse(name, raw.algorithm.as_ref(), &nodes)?;
    let ranks = ranks(raw, name)?;
    let transport = transport(raw)?;
    let ordering = ordering(raw, name)?;
    let latency = kind.counts() == Counts::Latency;
    let message_bytes = match (&raw.message, latency) {
        (Some(given), _) => message(given)?,
        (None, true) => 1,
        (None, false) => 1 << 20,
    };
    let all = u32::try_from(STEPS_MAX).unwrap_or(u32::MAX);
    let steps_default = match kind.all_steps(hosts) {
        Some(_) => all,
        None => 10,
    };
    let mut pattern = Pattern {
        kind,
        nodes,
        message_bytes,
        messages: between(raw.messages.as_ref(), 1, 100_000, "messages")?,
        mtu_bytes: raw.mtu.as_ref().map_or(2_048, |m| *m.get_ref()),
        depth: between(raw.depth.as_ref(), 4, 65_536, "depth")?,
        transport,
        ordering,
        window_bytes: window(raw)?,
        polled_peers: between(
            raw.polled_peers.as_ref(),
            u32::MAX,
            u32::MAX,
            "polled_peers",
        )?,
        unpolled_ps: raw
            .unpolled
            .as_ref()
            .map_or(0, |t| crate::check::ps(Some(t))),
        mpi: mpi(raw, kind, message_bytes, tier)?,
        steps: between(raw.steps.as_ref(), steps_default, all, "steps")?,
        ranks,
        seed: raw.seed.as_ref().map_or(1, |s| *s.get_ref()),
        seeds: between(raw.seeds.as_ref(), 1, SEEDS_MAX, "seeds")?,
        jobs: Vec::new(),
        files: None,
        trace: Arc::new(trace),
    };
    check_mtu(raw, name, &pattern)?;
    jobs(raw, name, hosts, &mut pattern)?;
    check_size(name, tier, &pattern)?;
    Ok(pattern)
}

/// Refuses keys of traffic between two hosts.
fn no_other_keys(raw: &RawTraffic) -> Checked<()> {
    for (key, given) in [
        ("from", raw.from.as_ref().map(|k| k.span())),
        ("to", raw.to.as_ref().map(|k| k.span())),
        ("sizes", raw.sizes.as_ref().map(|k| k.span())),
        ("latency_to", raw.latency_to.as_ref().map(|k| k.span())),
        ("cores", raw.cores.as_ref().map(|k| k.span())),
    ] {
        if let Some(span) = given {
            return Err(crate::check::Refusal {
                at: span.start,
                problem: format!("'{key}' is of traffic between two hosts, not of a pattern"),
            });
        }
    }
    Ok(())
}

/// Numbers of ranks: the trace's, those that are given, or all hosts.
fn nodes(raw: &RawTraffic, trace: &[Record], hosts: u32) -> Checked<Vec<u32>> {
    let nodes = match &raw.nodes {
        None if !trace.is_empty() => {
            let ranks = trace.iter().map(|r| r.from.max(r.to) + 1).max();
            vec![ranks.unwrap_or(hosts).max(2)]
        }
        Some(nodes) => nodes.get_ref().clone(),
        None => vec![hosts],
    };
    if let Some(given) = &raw.nodes {
        let fine = |n: &u32| (2..=hosts).contains(n);
        let rising = nodes.windows(2).all(|two| two[0] < two[1]);
        if nodes.is_empty() || nodes.len() > NODES_MAX || !rising || !nodes.iter().all(fine) {
            let problem =
                format!("nodes: expected 1 to {NODES_MAX} rising numbers of 2 to {hosts}");
            return refuse(given, problem);
        }
    }
    Ok(nodes)
}

fn ranks(raw: &RawTraffic, name: &Spanned<String>) -> Checked<Order> {
    Ok(match raw.ranks.as_ref().map(|r| r.get_ref().as_str()) {
        None | Some("packed") => Order::Packed,
        Some("random") => Order::Random,
        Some(other) => {
            let problem = format!("ranks '{other}': expected packed or random");
            return refuse(raw.ranks.as_ref().unwrap_or(name), problem);
        }
    })
}

fn transport(raw: &RawTraffic) -> Checked<Transport> {
    Ok(match &raw.transport {
        None => Transport::Rc,
        Some(given) => match given.get_ref() {
            RawTransport::Rc => Transport::Rc,
            RawTransport::Uc => Transport::Uc,
            RawTransport::Iwarp => Transport::Iwarp,
            RawTransport::Ud => {
                return refuse(
                    given,
                    "datagrams carry no patterns: expected rc, uc or iwarp",
                );
            }
        },
    })
}

fn ordering(raw: &RawTraffic, name: &Spanned<String>) -> Checked<Ordering> {
    Ok(match raw.ordering.as_ref().map(|o| o.get_ref().as_str()) {
        None | Some("strict") => Ordering::Strict,
        Some("relaxed") => Ordering::Relaxed,
        Some(other) => {
            let problem = format!("ordering '{other}': expected strict or relaxed");
            return refuse(raw.ordering.as_ref().unwrap_or(name), problem);
        }
    })
}

fn window(raw: &RawTraffic) -> Checked<u32> {
    Ok(match &raw.window {
        None => WINDOW_BYTES,
        Some(given) => match bytes32(given)? {
            bytes @ 4_096..=WINDOW_MAX => bytes,
            _ => return refuse(given, "window: expected 4 KiB to 64 MiB"),
        },
    })
}

fn check_mtu(raw: &RawTraffic, name: &Spanned<String>, pattern: &Pattern) -> Checked<()> {
    let fits = match pattern.transport {
        Transport::Iwarp => (64..=9_156).contains(&pattern.mtu_bytes),
        _ => matches!(pattern.mtu_bytes, 256 | 512 | 1024 | 2048 | 4096),
    };
    if !fits {
        let problem = "mtu: expected 256, 512, 1024, 2048 or 4096; 64 to 9156 of iwarp";
        return match &raw.mtu {
            Some(mtu) => refuse(mtu, problem),
            None => refuse(name, problem),
        };
    }
    Ok(())
}

/// Refuses what would take too long.
fn check_size(name: &Spanned<String>, tier: Tier, pattern: &Pattern) -> Checked<()> {
    match tier {
        Tier::Packets if pattern.packets() > PACKETS_MAX => {
            let problem = format!(
                "{} packets; expected at most {PACKETS_MAX}: fewer steps, seeds, nodes or shorter messages, or tier = \"flows\"",
                pattern.packets()
            );
            return refuse(name, problem);
        }
        Tier::Flows if pattern.flows() > FLOWS_MAX => {
            let problem = format!(
                "{} flows; expected at most {FLOWS_MAX}: fewer steps, seeds or nodes",
                pattern.flows()
            );
            return refuse(name, problem);
        }
        _ => {}
    }
    Ok(())
}

/// What MPI does, where the file says so.
fn mpi(raw: &RawTraffic, kind: Kind, message_bytes: u32, tier: Tier) -> Checked<Option<Mpi>> {
    let Some(given) = &raw.mpi else {
        return Ok(None);
    };
    let eager_bytes = bytes32(&given.get_ref().eager)?;
    let asked = message_bytes > eager_bytes;
    if kind == Kind::Replay {
        return refuse(
            given,
            "a trace's messages are what they are: its own lines may be requests, and answers with 'after'",
        );
    }
    if kind.counts() == Counts::Latency && asked {
        return refuse(
            given,
            "round trips are of messages that are sent at once: a longer 'eager', or a shorter 'message'",
        );
    }
    if tier == Tier::Flows {
        return refuse(
            given,
            "fluids have no requests and no copies: tier 'packets', or no 'mpi'",
        );
    }
    Ok(Some(Mpi {
        eager_bytes,
        copy: given.get_ref().copy.as_ref().map(|rate| rate.get_ref().0),
    }))
}

/// The messages of a replay; none of other patterns.
fn trace(
    raw: &RawTraffic,
    name: &Spanned<String>,
    hosts: u32,
    tier: Tier,
    how: &How<'_>,
) -> Checked<Vec<Record>> {
    let replay = name.get_ref() == "replay";
    let file = match &raw.trace {
        Some(file) if replay => file,
        Some(file) => return refuse(file, "a trace is of the pattern 'replay'"),
        None if replay => return refuse(name, "replay wants a file of messages: trace = \"...\""),
        None => return Ok(Vec::new()),
    };
    if tier == Tier::Flows {
        return refuse(
            name,
            "fluids begin all at once: a replay's tier must be packets",
        );
    }
    for (key, given) in [
        ("message", raw.message.as_ref().map(|k| k.span())),
        ("messages", raw.messages.as_ref().map(|k| k.span())),
        ("nodes", raw.nodes.as_ref().map(|k| k.span())),
        ("steps", raw.steps.as_ref().map(|k| k.span())),
        ("depth", raw.depth.as_ref().map(|k| k.span())),
    ] {
        if let Some(span) = given {
            return Err(crate::check::Refusal {
                at: span.start,
                problem: format!("'{key}' is the trace's, not the file's"),
            });
        }
    }
    let text = (how.read)(file.get_ref());
    let text = text.or_else(|problem| refuse(file, format!("{}: {problem}", file.get_ref())))?;
    let found = crate::trace::parse(&text);
    let found = found.or_else(|error| refuse(file, format!("{}, {error}", file.get_ref())))?;
    if let Some(record) = found.iter().find(|r| r.from.max(r.to) >= hosts) {
        let rank = record.from.max(record.to);
        let problem = format!(
            "{}: rank {rank}; this fabric has {hosts} hosts",
            file.get_ref()
        );
        return refuse(file, problem);
    }
    Ok(found)
}

fn jobs(
    raw: &RawTraffic,
    name: &Spanned<String>,
    hosts: u32,
    pattern: &mut Pattern,
) -> Checked<()> {
    if pattern.kind != Kind::Jobs {
        if let Some(job) = raw.jobs.first() {
            return refuse(job, "jobs are of the pattern 'jobs'");
        }
        if let Some(files) = &raw.files {
            return refuse(files, "file traffic goes beside the pattern 'jobs'");
        }
        return Ok(());
    }
    if raw.jobs.is_empty() || raw.jobs.len() > JOBS_MAX {
        return refuse(
            name,
            format!("expected 1 to {JOBS_MAX} entries [[traffic.jobs]]"),
        );
    }
    let mut sum = 0_u32;
    for entry in &raw.jobs {
        let job = job(entry.get_ref())?;
        sum = sum.saturating_add(job.nodes);
        if pattern.jobs.iter().any(|j| j.name == job.name) {
            let problem = format!("there is a job '{}' already", job.name);
            return refuse(&entry.get_ref().name, problem);
        }
        pattern.jobs.push(job);
    }
    if let Some(raw) = &raw.files {
        let raw = raw.get_ref();
        let files = Files {
            servers: between(Some(&raw.servers), 1, hosts, "servers")?,
            clients: between(Some(&raw.clients), 1, sum.max(1), "clients")?,
            message_bytes: message(&raw.message)?,
        };
        sum = sum.saturating_add(files.servers);
        pattern.files = Some(files);
    }
    if sum > hosts {
        return refuse(
            name,
            format!("jobs and file servers need {sum} hosts; there are {hosts}"),
        );
    }
    pattern.nodes = vec![sum];
    Ok(())
}

fn job(raw: &RawJob) -> Checked<Job> {
    crate::check::check_name(&raw.name)?;
    let nodes = between(Some(&raw.nodes), 2, crate::topology::HOSTS_MAX, "nodes")?;
    if nodes < 2 {
        return refuse(&raw.nodes, "nodes: a job has 2 ranks at least");
    }
    let kind = Kind::parse(&raw.pattern, raw.algorithm.as_ref(), &[nodes])?;
    if matches!(kind, Kind::Jobs | Kind::RotateLatency | Kind::Replay) {
        return refuse(&raw.pattern, "a job is one pattern that moves data");
    }
    let all = u32::try_from(STEPS_MAX).unwrap_or(u32::MAX);
    let default = kind.all_steps(nodes).map_or(10, |_| all);
    Ok(Job {
        name: raw.name.get_ref().clone(),
        kind,
        nodes,
        message_bytes: message(&raw.message)?,
        steps: between(raw.steps.as_ref(), default, all, "steps")?,
    })
}

fn message(raw: &crate::raw::Of<units::Bytes>) -> Checked<u32> {
    let bytes = bytes32(raw)?;
    if bytes > MESSAGE_MAX {
        return refuse(raw, "message: expected 1 B to 64 MiB");
    }
    Ok(bytes)
}

const NODES_MAX: usize = 64;
const STEPS_MAX: usize = 65_536;
const SEEDS_MAX: u32 = 1_000;
const JOBS_MAX: usize = 64;
const MESSAGE_MAX: u32 = 64 << 20;
/// Hosts of a leaf of 24 ports, and how they stand in a grid.
const BLOCK: u32 = BLOCK_ACROSS * BLOCK_DOWN;
const BLOCK_ACROSS: u32 = 4;
const BLOCK_DOWN: u32 = 3;
const WINDOW_BYTES: u32 = 256 << 10;
const WINDOW_MAX: u32 = 64 << 20;
/// About an hour on one core.
const PACKETS_MAX: u64 = 4_000_000_000;
/// The same of fluids.
const FLOWS_MAX: u64 = 1_000_000_000;
/// Apart from each other: what is drawn for steps, for the sample of them and for ranks.
const STEP_MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const SAMPLE_MIX: u64 = 0x5bf0_3635_d1a4_86b7;
const RANKS_MIX: u64 = 0x2545_f491_4f6c_dd1d;
