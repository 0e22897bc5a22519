//! A token bucket as an interface's queueing discipline, and what the kernel counts of it.
//!
//! What a packet counts in the bucket comes from a table by its length (`tc stab`), so that preamble, check
//! sequence and gap can be counted, and of a super-packet those of each of its frames.
//!
//! Sources: tc-tbf(8), tc-stab(8); Linux include/uapi/linux/pkt_sched.h, net/sched/sch_tbf.c (tbf_change,
//! tbf_segment), net/sched/sch_api.c (qdisc_get_stab, __qdisc_calculate_pkt_len).

use std::io;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};

use crate::netlink::Netlink;

/// What packets count, by their length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeTable {
    size_log: u8,
    data: Vec<u16>,
}

impl SizeTable {
    /// `counts` of each length up to `longest` bytes, Ethernet header included, in steps of 4 bytes from 2: that is
    /// where the header and words end. A count is rounded up to a power of two of bytes, 2 where it is up to 128 KiB.
    pub fn new(longest: u32, counts: impl Fn(u32) -> u32) -> Self {
        let slots = (longest >> CELL_LOG) + 1;
        let counted: Vec<u32> = (0..slots)
            .map(|slot| counts((slot << CELL_LOG) + 2))
            .collect();
        let most = counted.iter().copied().max().unwrap_or(0);
        let mut size_log = 0_u8;
        while most.div_ceil(1 << size_log) > u32::from(u16::MAX) {
            size_log += 1;
        }
        let scaled = |count: &u32| u16::try_from(count.div_ceil(1 << size_log)).unwrap_or(u16::MAX);
        Self {
            size_log,
            data: counted.iter().map(scaled).collect(),
        }
    }

    /// What a packet of `length` bytes counts.
    pub fn counts(&self, length: u32) -> u32 {
        let slot = usize::try_from(length >> CELL_LOG).unwrap_or(usize::MAX);
        let last = self.data.last().copied().unwrap_or(0);
        let scaled = self.data.get(slot).copied().unwrap_or(last);
        u32::from(scaled) << self.size_log
    }

    /// `TCA_STAB`: struct tc_sizespec and the table.
    fn to_bytes(&self) -> Vec<u8> {
        let entries = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        let mut spec = vec![CELL_LOG, self.size_log, 0, 0];
        // Overhead, link layer (Ethernet), smallest, MTU, entries.
        for word in [0, 1, 0, 0, entries] {
            spec.extend(word.to_ne_bytes());
        }
        let data: Vec<u8> = self.data.iter().flat_map(|n| n.to_ne_bytes()).collect();
        let mut bytes = Vec::with_capacity(spec.len() + data.len() + 8);
        attribute(&mut bytes, TCA_STAB_BASE, &spec);
        attribute(&mut bytes, TCA_STAB_DATA, &data);
        bytes
    }
}

/// A rate, and a queue before it.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket<'t> {
    /// Counted bytes a second.
    pub bytes_per_second: u64,
    /// What may pass at once after a pause, in counted bytes. A packet that counts more is cut into its frames,
    /// or dropped where it has none.
    pub burst_bytes: u32,
    /// What may wait, in counted bytes.
    pub limit_bytes: u32,
    /// What packets count.
    pub sizes: &'t SizeTable,
}

/// What the kernel counted at a token bucket since it was made. Numbers of packets and drops wrap at 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCounters {
    /// Index of its interface.
    pub interface: u32,
    /// Counted bytes that passed.
    pub bytes: u64,
    /// Frames that passed, those of a super-packet one by one.
    pub frames: u32,
    /// Counted bytes that wait now.
    pub backlog_bytes: u32,
    /// Packets that found the queue full, super-packets as one.
    pub drops: u32,
    /// How often a packet had to wait for tokens.
    pub overlimits: u32,
}

impl Netlink {
    /// Makes a token bucket the queueing discipline of the interface `name`.
    ///
    /// # Errors
    /// `ENODEV` when there is no such interface, `EPERM` without CAP_NET_ADMIN, `ENOENT` in a kernel without
    /// CONFIG_NET_SCH_TBF.
    pub fn set_token_bucket(&mut self, name: &str, bucket: TokenBucket<'_>) -> io::Result<()> {
        let index = i32::try_from(self.index_of(name)?).map_err(io::Error::other)?;
        let mut message = TcMessage::with_index(index);
        message.header.parent = TcHandle::from(TC_H_ROOT);
        message.header.handle = TcHandle::from(HANDLE);
        let rate = u32::try_from(bucket.bytes_per_second).unwrap_or(u32::MAX);
        // struct tc_tbf_qopt: two struct tc_ratespec (the second is the peak rate: none), limit, buffer, mtu.
        let mut parameters = vec![0, LINKLAYER_ETHERNET];
        parameters.extend([0; 6]);
        parameters.extend(rate.to_ne_bytes());
        parameters.extend([0; RATESPEC_BYTES]);
        for word in [bucket.limit_bytes, 0, 0] {
            parameters.extend(word.to_ne_bytes());
        }
        let mut options = Vec::new();
        attribute(&mut options, TCA_TBF_PARMS, &parameters);
        let rate64 = bucket.bytes_per_second.to_ne_bytes();
        attribute(&mut options, TCA_TBF_RATE64, &rate64);
        let burst = bucket.burst_bytes.to_ne_bytes();
        attribute(&mut options, TCA_TBF_BURST, &burst);
        message.attributes = vec![
            TcAttribute::Kind(TBF.to_owned()),
            TcAttribute::Stab(bucket.sizes.to_bytes()),
            TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)),
        ];
        let new = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.request(new, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Has nothing pass the token bucket of the interface `name`, as over a cable that is cut: what waits is gone, and
    /// who sends is told nothing. Or has it pass again, with room for `limit_bytes` before the rate.
    ///
    /// # Errors
    /// `ENODEV` when there is no such interface, `ENOENT` without a token bucket, and in a kernel before 4.19, which has no
    /// `blackhole`.
    pub fn set_open(&mut self, name: &str, is_open: bool, limit_bytes: u32) -> io::Result<()> {
        let index = i32::try_from(self.index_of(name)?).map_err(io::Error::other)?;
        let mut message = TcMessage::with_index(index);
        message.header.parent = TcHandle::from(HANDLE | 1);
        // struct tc_fifo_qopt.
        let limit = limit_bytes.to_ne_bytes().to_vec();
        message.attributes = match is_open {
            true => vec![
                TcAttribute::Kind("bfifo".to_owned()),
                TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, limit)),
            ],
            false => vec![TcAttribute::Kind("blackhole".to_owned())],
        };
        let new = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.request(new, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Kind of the root queueing discipline of the interface `name`, and whether the kernel chose it: those that it makes by
    /// itself have no handle (net/sched/sch_generic.c, `attach_one_default_qdisc`).
    ///
    /// # Errors
    /// `ENODEV` when there is no such interface.
    pub fn root_qdisc(&mut self, name: &str) -> io::Result<Option<(String, bool)>> {
        let index = i32::try_from(self.index_of(name)?).map_err(io::Error::other)?;
        let ask = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
        let answers = self.request(ask, NLM_F_DUMP)?;
        Ok(answers.iter().find_map(|answer| {
            let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = answer else {
                return None;
            };
            let root = qdisc.header.index == index && u32::from(qdisc.header.parent) == TC_H_ROOT;
            let kind = qdisc.attributes.iter().find_map(|a| match a {
                TcAttribute::Kind(kind) => Some(kind.clone()),
                _ => None,
            })?;
            root.then(|| (kind, u32::from(qdisc.header.handle) == 0))
        }))
    }

    /// Makes a discipline without parameters the root of the interface `name`, or takes the root away, for which the kernel puts
    /// its own (`None`).
    ///
    /// # Errors
    /// `ENODEV` when there is no such interface, `EPERM` without CAP_NET_ADMIN, `ENOENT` where the kernel lacks the discipline or
    /// there is nothing to take away.
    pub fn set_root_qdisc(&mut self, name: &str, kind: Option<&str>) -> io::Result<()> {
        let index = i32::try_from(self.index_of(name)?).map_err(io::Error::other)?;
        let mut message = TcMessage::with_index(index);
        message.header.parent = TcHandle::from(TC_H_ROOT);
        let Some(kind) = kind else {
            let gone = RouteNetlinkMessage::DelQueueDiscipline(message);
            return self.request(gone, 0).map(drop);
        };
        message.attributes = vec![TcAttribute::Kind(kind.to_owned())];
        let new = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.request(new, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Counters of all token buckets of the namespace.
    ///
    /// # Errors
    /// As rtnetlink(7).
    pub fn token_buckets(&mut self) -> io::Result<Vec<BucketCounters>> {
        let ask = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answers = self.request(ask, NLM_F_DUMP)?;
        let buckets = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc) => counters(qdisc),
            _ => None,
        });
        Ok(buckets.collect())
    }

    /// Makes the interface `name` take super-packets of at most `bytes`, IP header included.
    ///
    /// # Errors
    /// `EINVAL` for more than the driver takes.
    pub fn set_gso_max(&mut self, name: &str, bytes: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = self.index_of(name)?;
        link.attributes = vec![LinkAttribute::GsoMaxSize(bytes)];
        self.request(RouteNetlinkMessage::SetLink(link), 0)
            .map(drop)
    }
}

fn counters(qdisc: &TcMessage) -> Option<BucketCounters> {
    let is_bucket = |a: &TcAttribute| matches!(a, TcAttribute::Kind(kind) if kind == TBF);
    if !qdisc.attributes.iter().any(is_bucket) {
        return None;
    }
    let mut counters = BucketCounters {
        interface: u32::try_from(qdisc.header.index).ok()?,
        ..BucketCounters::default()
    };
    for attribute in &qdisc.attributes {
        let TcAttribute::Stats2(stats) = attribute else {
            continue;
        };
        for stat in stats {
            match stat {
                TcStats2::Basic(basic) => {
                    (counters.bytes, counters.frames) = (basic.bytes, basic.packets);
                }
                TcStats2::Queue(queue) => {
                    counters.backlog_bytes = queue.backlog;
                    counters.drops = queue.drops;
                    counters.overlimits = queue.overlimits;
                }
                _ => {}
            }
        }
    }
    Some(counters)
}

/// struct nlattr, the value, and what aligns the next.
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

const TBF: &str = "tbf";
/// Lengths that differ by less count alike.
const CELL_LOG: u8 = 2;
const TCA_OPTIONS: u16 = 2;
const TCA_STAB_BASE: u16 = 1;
const TCA_STAB_DATA: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_H_ROOT: u32 = u32::MAX;
/// `1:`.
const HANDLE: u32 = 1 << 16;
const LINKLAYER_ETHERNET: u8 = 1;
const RATESPEC_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;
    use crate::netlink::VethEnd;
    use crate::netns::NetNs;

    #[test]
    fn lengths_count_what_the_table_says_and_long_ones_within_two_bytes() {
        let table = SizeTable::new(65_550, |length| length + 24);
        assert_eq!(table.size_log, 1);
        for length in [66, 1514, 65_550] {
            assert!((0..2).contains(&(table.counts(length) - length - 24)));
        }
        assert_eq!(SizeTable::new(1514, |_| 90).counts(1514), 90);
    }

    #[test]
    fn a_root_is_replaced_and_the_kernels_own_comes_back() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let end = |name, mac| VethEnd {
            name,
            mac: [2, 0, 0, 0, 0, mac],
            netns: ns.as_fd(),
        };
        let roots = ns.run(|| -> io::Result<_> {
            let mut netlink = Netlink::open()?;
            netlink.add_veth(end("left", 1), end("right", 2))?;
            let before = netlink.root_qdisc("left")?;
            netlink.set_root_qdisc("left", Some("pfifo"))?;
            let ours = netlink.root_qdisc("left")?;
            netlink.set_root_qdisc("left", None)?;
            Ok((before, ours, netlink.root_qdisc("left")?))
        });
        let (before, ours, after) = roots.unwrap().unwrap();
        assert_eq!(ours, Some(("pfifo".to_owned(), false)));
        assert_eq!(before, after);
        assert!(before.is_none_or(|(_, by_kernel)| by_kernel));
    }

    #[test]
    fn a_bucket_counts_what_the_table_says() {
        let (Ok(a), Ok(b)) = (NetNs::create(), NetNs::create()) else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let sizes = SizeTable::new(2_000, |length| length + 24);
        let counted = a.run(|| -> io::Result<BucketCounters> {
            // Nobody but this test sends: IPv6 would announce itself.
            if let Err(error) = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1") {
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
            }
            let mut netlink = Netlink::open()?;
            let end = |name, last, ns: &'_ NetNs| {
                (name, [2, 0, 0, 0, 0, last], ns.as_fd().try_clone_to_owned())
            };
            let (left, right) = (end("left", 1, &a), end("right", 2, &b));
            let (left_ns, right_ns) = (left.2?, right.2?);
            netlink.add_veth(
                VethEnd {
                    name: left.0,
                    mac: left.1,
                    netns: left_ns.as_fd(),
                },
                VethEnd {
                    name: right.0,
                    mac: right.1,
                    netns: right_ns.as_fd(),
                },
            )?;
            let there = Ipv4Addr::new(198, 18, 0, 2);
            netlink.add_address("left", Ipv4Addr::new(198, 18, 0, 1), 30)?;
            let bucket = TokenBucket {
                bytes_per_second: 5_000_000_000,
                burst_bytes: 10_000,
                limit_bytes: 100_000,
                sizes: &sizes,
            };
            netlink.set_token_bucket("left", bucket)?;
            netlink.set_gso_max("left", 20_000)?;
            b.run(|| {
                let mut netlink = Netlink::open()?;
                netlink.add_address("right", there, 30)?;
                netlink.set_up("right", None)
            })??;
            netlink.set_up("left", None)?;
            netlink.add_neighbour("left", there, [2, 0, 0, 0, 0, 2])?;
            // Somebody listens, or else an ICMP error would make the other end ask for addresses.
            let heard = b.run(|| UdpSocket::bind((there, 9)))??;
            heard.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
            let before = netlink.token_buckets()?;
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.send_to(&[0; 1000], (there, 9))?;
            let mut word = [0; 1000];
            assert_eq!(heard.recv(&mut word)?, 1000);
            let after = netlink.token_buckets()?;
            assert_eq!((before.len(), after.len()), (1, 1));
            // Cut, and mended.
            netlink.set_open("left", false, 0)?;
            socket.send_to(b"cut", (there, 9))?;
            let cut = netlink.token_buckets()?;
            assert_eq!((cut.len(), cut[0].bytes), (1, after[0].bytes));
            netlink.set_open("left", true, 100_000)?;
            socket.send_to(b"mended", (there, 9))?;
            assert_eq!(heard.recv(&mut word)?, 6);
            Ok(BucketCounters {
                bytes: after[0].bytes - before[0].bytes,
                frames: after[0].frames - before[0].frames,
                ..after[0]
            })
        });
        let counted = match counted.unwrap() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                testing::skipped("a kernel without token buckets");
                return;
            }
            counted => counted.unwrap(),
        };
        // 1000 bytes, 8 of UDP, 20 of IP, 14 of Ethernet.
        assert_eq!((counted.frames, counted.bytes), (1, 1042 + 24));
        assert_eq!(counted.drops, 0);
    }
}
