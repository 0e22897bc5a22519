//! Why a copy was no faster, out of what is known when it is over, and what an administrator could do about it.
//!
//! A cause is named only by what shows it: a limit that was reached, CPUs that were busy, a disk that threads waited for, clocks
//! of the sending kernel. Where nothing shows, this is said. Each test stands before those that its cause would deceive.

use std::thread;

use crate::Cipher;
use run::model::Copy;
use throughput::BufferModel;
use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

use super::job::Ready;
use super::told::bytes;

/// What is said where it was over before anything could be told.
pub(super) const TOO_SHORT: &str = "too short to tell";

/// A beginning that took no longer is none to speak of.
const LATE_NS: u64 = 1_000_000_000;
/// In less, what begins and ends a copy is most of it.
const SHORT_NS: u64 = 300_000_000;
/// Of fewer bytes, in fewer files, the same; one block.
const FEW_BYTES: u64 = 1 << 20;
const FEW_NAMES: u64 = 1_000;
/// From so large files on, on average, it is not names that hold a copy.
const LARGE_FILE: u64 = 256 << 10;
/// Connections that break as often as this are what holds a copy: each time, what was under way is sent again, and as a rule somebody waited
/// 15 s before.
const BROKEN_EACH_NS: u64 = 60_000_000_000;
/// A path as long as this has several streams from the first; below, cores are what counts.
const LONG_US: u64 = 5_000;
/// A path that is shorter is one's own network.
const NEAR_US: u64 = 1_000;
/// What one channel of OpenSSH has under way at most, in bytes (channels.h, `CHAN_SES_WINDOW_DEFAULT`).
const SSH_WINDOW_MIB: u64 = 2;

/// What is known of a host at one end.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Cores that its process may use.
    pub(super) cores: Option<f64>,
    /// Bytes a second that one of them encrypts and decrypts, by cipher.
    pub(super) speeds: Vec<(Cipher, f64)>,
    /// What TCP's buffers grow to there at most, in bytes: to send, and to receive.
    pub buffers: [Option<u64>; 2],
}

impl HostFacts {
    /// This host's; ciphers are not measured for that.
    pub(super) fn here() -> Self {
        Self {
            cores: thread::available_parallelism().ok().map(|n| n.get() as f64),
            speeds: Vec::new(),
            buffers: buffers_here(),
        }
    }

    /// What a far side told.
    pub(super) fn told(ready: &Ready) -> Self {
        let told = |bytes: u64| (bytes > 0).then_some(bytes);
        Self {
            cores: (ready.cores > 0).then_some(ready.cores.into()),
            speeds: ready.speeds.clone(),
            buffers: ready.buffers.map(told),
        }
    }
}

/// What TCP's buffers grow to at most in the calling thread's namespace: to send, and to receive.
pub fn buffers_here() -> [Option<u64>; 2] {
    ["tcp_wmem", "tcp_rmem"].map(|name| sys::host::tcp_mem_triplet(name).map(|[.., most]| most))
}

/// What a process of the copy had of its host's CPUs.
#[derive(Clone, Debug)]
pub(super) struct Cpu {
    /// `this host`, `the source`, `the destination`.
    pub(super) whose: String,
    pub(super) busy_ns: u64,
    pub(super) cores: Option<f64>,
    /// Of that, what the cipher takes by its measured speed.
    pub(super) cipher_ns: u64,
}

/// What is known of a copy that is over.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) copy: &'a Copy,
    /// What held at the end of what was asked for.
    pub(super) limit: Option<Rate>,
    /// When the first connection for blocks was there.
    pub(super) made_ns: u64,
    pub(super) cpus: Vec<Cpu>,
    /// What the sending side's kernel knew of each connection last.
    pub(super) connections: &'a [TcpInfo],
    /// ssh carried it, and took so much of this host's CPU, where that is known.
    pub(super) inside: Option<Option<u64>>,
    pub(super) is_source_here: bool,
}

/// What held it; nothing where nothing came over the network.
pub(super) fn why(facts: &Facts<'_>) -> String {
    let copy = facts.copy;
    if copy.received_bytes == 0 {
        return String::new();
    }
    path_is_full(copy)
        .or_else(|| limit_is_reached(facts))
        .or_else(|| began_late(facts))
        .or_else(|| is_too_short(copy))
        .or_else(|| cpus_are_busy(facts))
        .or_else(|| connections_broke(copy))
        .or_else(|| threads_waited(copy))
        .or_else(|| was_carried_by_another(facts))
        .or_else(|| buffers_held(facts))
        .or_else(|| streams_have_a_core_each(facts))
        .unwrap_or_else(|| path_or_nothing(facts))
}

fn path_is_full(copy: &Copy) -> Option<String> {
    let achievable = copy.achievable_bits_per_second?;
    let full = |rate: u64| rate as f64 > 0.9 * achievable as f64;
    if full(copy.goodput_bits_per_second) {
        return Some("the path, which is full".to_owned());
    }
    let steady = copy.steady_bits_per_second.filter(|steady| full(*steady))?;
    Some(format!(
        "its beginning and end: between them {}, which fills the path",
        Rate::from_bits_per_second(steady)
    ))
}

fn limit_is_reached(facts: &Facts<'_>) -> Option<String> {
    // Beside what packets have of their own, and the end.
    let fastest = fastest(facts.copy) as f64;
    let reached = |limit: &Rate| fastest > 0.85 * limit.as_bits_per_second() as f64;
    let limit = facts.limit.filter(reached)?;
    Some(format!("the limit of {limit} that was asked for"))
}

fn began_late(facts: &Facts<'_>) -> Option<String> {
    let made_ns = facts.made_ns;
    (made_ns > LATE_NS.max(facts.copy.duration_ns / 2)).then(|| {
        format!(
            "its beginning: the first connection for blocks was there after {:.1} s",
            made_ns as f64 / 1e9
        )
    })
}

fn is_too_short(copy: &Copy) -> Option<String> {
    let is_little = copy.received_bytes < FEW_BYTES && copy.names < FEW_NAMES;
    (is_little || copy.duration_ns < SHORT_NS).then(|| TOO_SHORT.to_owned())
}

fn cpus_are_busy(facts: &Facts<'_>) -> Option<String> {
    let copy = facts.copy;
    facts.cpus.iter().find_map(|cpu| {
        let (cores, busy) = (cpu.cores?, busy(cpu, copy));
        (busy > 0.8 * cores).then(|| {
            let Cpu { whose, .. } = cpu;
            let most = of_cipher(cpu, copy);
            format!("{whose}'s CPU: {busy:.1} of its {cores} cores were busy with it{most}")
        })
    })
}

/// How many cores were busy with it on average.
fn busy(cpu: &Cpu, copy: &Copy) -> f64 {
    cpu.busy_ns as f64 / copy.duration_ns.max(1) as f64
}

/// Where more than half of it was the cipher's.
fn of_cipher(cpu: &Cpu, copy: &Copy) -> String {
    match cpu.cipher_ns > cpu.busy_ns / 2 {
        true => format!(", most of that with the cipher {}", copy.cipher),
        false => String::new(),
    }
}

fn connections_broke(copy: &Copy) -> Option<String> {
    let times = copy.reconnects;
    // Going over to QUIC makes them again, too.
    let is_cause = times > 0
        && copy.transport != "quic"
        && copy.duration_ns / times < BROKEN_EACH_NS
        && average_file(copy) >= LARGE_FILE;
    is_cause.then(|| {
        let times = if times == 1 {
            "once".to_owned()
        } else {
            format!("{times} times")
        };
        format!("connections that broke: they were made again {times}")
    })
}

fn average_file(copy: &Copy) -> u64 {
    copy.placed_bytes.max(copy.received_bytes) / copy.placed.max(1)
}

fn threads_waited(copy: &Copy) -> Option<String> {
    let source = copy.ends.iter().find(|end| end.end == "source");
    if source.is_some_and(|end| end.time.idle > 0.5) {
        let names = match copy.names {
            1 => "1 name".to_owned(),
            n => format!("{n} names"),
        };
        return Some(format!(
            "looking at files, for which connections waited: {names}, of {} each on average",
            bytes(copy.placed_bytes / copy.placed.max(1))
        ));
    }
    copy.ends.iter().find_map(|end| match &end.time {
        time if time.disk > 0.5 => Some(format!("the {}'s disk", end.end)),
        time if time.sums > 0.5 => Some(format!("the {}'s CPU, with sums of blocks", end.end)),
        _ => None,
    })
}

fn was_carried_by_another(facts: &Facts<'_>) -> Option<String> {
    if facts.copy.transport == "quic" {
        return Some(
            "the path, as QUIC's congestion control found it, or the thread that moves its packets"
                .to_owned(),
        );
    }
    if let Some(cpu_ns) = facts.inside {
        let took = match cpu_ns {
            Some(ns) => format!("took {:.1} s of this host's CPU", ns as f64 / 1e9),
            None => "encrypts once more on both hosts".to_owned(),
        };
        return Some(format!(
            "the ssh connection that carried it: ssh {took}, and has no more than {SSH_WINDOW_MIB} MiB under way"
        ));
    }
    let is_untold = facts.connections.is_empty();
    is_untold
        .then(|| "what nobody told: the sending side said nothing of its connections".to_owned())
}

/// A clock of all connections. A far side's numbers may be any.
fn sum(facts: &Facts<'_>, of: fn(&TcpInfo) -> u64) -> f64 {
    let all = facts.connections.iter().map(of);
    all.fold(0, u64::saturating_add) as f64
}

fn buffers_held(facts: &Facts<'_>) -> Option<String> {
    let busy = sum(facts, |info| info.busy_time_us).max(1.0);
    let is_near = facts.connections.iter().all(|info| info.rtt_us < NEAR_US);
    if sum(facts, |info| info.rwnd_limited_us) > 0.4 * busy {
        return Some(match is_near {
            true => "the destination, which takes no more: its disk, or what else its host does".to_owned(),
            false => "the destination: it takes no more, for its disk, its CPU or its buffers' limit (tcp_rmem)"
                .to_owned(),
        });
    }
    (sum(facts, |info| info.sndbuf_limited_us) > 0.4 * busy).then(|| {
        let whose = match facts.is_source_here {
            true => "this host's",
            false => "the source's",
        };
        format!("{whose} limit of send buffers (tcp_wmem): more connections, or a higher limit")
    })
}

fn streams_have_a_core_each(facts: &Facts<'_>) -> Option<String> {
    let copy = facts.copy;
    let streams = copy.streams.max(1);
    let cpu = facts
        .cpus
        .iter()
        .find(|cpu| busy(cpu, copy) > 0.85 * streams as f64)?;
    let s = if streams == 1 { "" } else { "s" };
    Some(format!(
        "{}'s CPU: a core for each of {streams} stream{s} was busy with it{}; with more streams, more cores are",
        cpu.whose,
        of_cipher(cpu, copy)
    ))
}

fn path_or_nothing(facts: &Facts<'_>) -> String {
    let count = facts.connections.len();
    let idle_path = facts.connections.iter().map(|info| info.rtt_us).min();
    if idle_path.unwrap_or(0) >= NEAR_US {
        return "the path: what its congestion control found there".to_owned();
    }
    // What was under way was neither the other side's buffer's fault nor this one's.
    let half_us = facts.copy.duration_ns / 2_000;
    let waits = |info: &&TcpInfo| {
        let held = info.rwnd_limited_us.saturating_add(info.sndbuf_limited_us);
        info.busy_time_us.saturating_sub(held) > half_us
    };
    let waiting = facts.connections.iter().filter(waits).count();
    let again = match sum(facts, |info| info.total_retrans_segments) {
        0.0 => String::new(),
        n => format!("; {n:.0} segments were sent again"),
    };
    match waiting {
        0 => "nothing that shows: CPUs, disks, buffers and connections were not busy most of the time".to_owned(),
        n if n == count => format!("the path: connections had something under way all the time, and no buffer held them{again}"),
        n => format!("the path: {n} of {count} connections waited for it most of the time{again}"),
    }
}

fn fastest(copy: &Copy) -> u64 {
    let steady = copy.steady_bits_per_second.unwrap_or(0);
    copy.goodput_bits_per_second.max(steady)
}

/// What would let one stream do what several did, where it was buffers' limits that asked for several; `limits` are those of
/// the source's send buffers and of the destination's receive buffers.
pub(super) fn buffers_for_one(facts: &Facts<'_>, limits: [Option<u64>; 2]) -> Option<String> {
    let copy = facts.copy;
    let rtt_us = facts.connections.iter().map(|info| info.min_rtt_us).min()?;
    let is_asked = copy.streams > 1 && copy.transport != "quic" && copy.ways.is_empty();
    if !is_asked || !(LONG_US..10_000_000).contains(&rtt_us) || copy.duration_ns < LATE_NS {
        return None;
    }
    // What is known that the path carries, or else what it was seen to.
    let achievable = copy.achievable_bits_per_second.unwrap_or(0);
    let rate = Rate::from_bits_per_second(fastest(copy).max(achievable));
    let rtt = Duration::from_ns(rtt_us * 1_000);
    let model = BufferModel::LINUX;
    let needed = [
        model.send_buffer_for(rate, rtt),
        model.receive_buffer_for(rate, rtt),
    ];
    let places = [
        ("tcp_wmem", "4096 16384", "source"),
        ("tcp_rmem", "4096 131072", "destination"),
    ];
    let all = places.into_iter().zip(needed).zip(limits);
    let steps: Vec<String> = all
        .filter_map(|(((name, least, place), needed), limit)| {
            let limit = limit.filter(|limit| *limit < needed.as_u64())?;
            let (now, needed) = (Bytes::new(limit), needed.as_u64());
            Some(format!(
                "net.ipv4.{name} = {least} {needed} at the {place} (it ends at {now} now)"
            ))
        })
        .collect();
    let milliseconds = rtt_us as f64 / 1e3;
    (!steps.is_empty()).then(|| {
        format!(
            "one stream would do for {rate} over {milliseconds:.0} ms in place of {} where an administrator sets {}",
            copy.streams,
            steps.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use run::model::{CopyEnd, CopyTime, CopyWay};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A GB in 10 s as one file over four connections, and nothing remarkable.
    fn usual() -> Copy {
        let end = |end: &str| CopyEnd {
            end: end.to_owned(),
            time: CopyTime {
                disk: 0.2,
                sums: 0.2,
                link: 0.5,
                idle: 0.1,
            },
            ..CopyEnd::default()
        };
        Copy {
            cipher: "aes-128-gcm".to_owned(),
            transport: "tcp".to_owned(),
            streams: 4,
            names: 1,
            placed: 1,
            placed_bytes: 1_000_000_000,
            received_bytes: 1_000_000_000,
            duration_ns: 10 * SECOND,
            goodput_bits_per_second: 800_000_000,
            ends: vec![end("source"), end("destination")],
            ..Copy::default()
        }
    }

    fn cpu(whose: &str, busy_s: u64, cipher_s: u64) -> Cpu {
        Cpu {
            whose: whose.to_owned(),
            busy_ns: busy_s * SECOND,
            cores: Some(4.0),
            cipher_ns: cipher_s * SECOND,
        }
    }

    fn connection(rtt_us: u64, busy_s: u64) -> TcpInfo {
        TcpInfo {
            rtt_us,
            min_rtt_us: rtt_us,
            busy_time_us: busy_s * 1_000_000,
            ..TcpInfo::default()
        }
    }

    fn facts<'a>(copy: &'a Copy, connections: &'a [TcpInfo]) -> Facts<'a> {
        Facts {
            copy,
            limit: None,
            made_ns: 0,
            cpus: vec![cpu("this host", 3, 0), cpu("the destination", 3, 0)],
            connections,
            inside: None,
            is_source_here: true,
        }
    }

    #[track_caller]
    fn says(facts: &Facts<'_>, text: &str) {
        let said = why(facts);
        assert!(said.contains(text), "'{said}' is not '{text}'");
    }

    #[test]
    fn cpus_are_named_only_where_they_were_busy() {
        let (copy, near) = (usual(), [connection(200, 9); 4]);
        let mut facts = facts(&copy, &near);
        says(
            &facts,
            "the path: connections had something under way all the time",
        );
        facts.cpus[1] = cpu("the destination", 36, 9);
        assert_eq!(
            why(&facts),
            "the destination's CPU: 3.6 of its 4 cores were busy with it"
        );
        facts.cpus[1] = cpu("the destination", 36, 20);
        says(
            &facts,
            "busy with it, most of that with the cipher aes-128-gcm",
        );
        facts.cpus[0] = cpu("this host", 38, 9);
        says(&facts, "this host's CPU: 3.8 of its 4 cores");
        // How many it has is not known of an older far side.
        facts.cpus = vec![Cpu {
            cores: None,
            ..cpu("the source", 38, 30)
        }];
        says(
            &facts,
            "the source's CPU: a core for each of 4 streams was busy with it, most of that with the cipher",
        );
        facts.cpus = vec![Cpu {
            cores: None,
            ..cpu("the source", 20, 30)
        }];
        says(&facts, "the path");
    }

    #[test]
    fn what_broke_or_was_too_short_or_waited_is_no_cpu() {
        // 30 MB in 13 s with 0.24 s of CPU: a stream that nothing came through.
        let mut copy = Copy {
            received_bytes: 30_000_000,
            placed_bytes: 30_000_000,
            duration_ns: 13 * SECOND,
            reconnects: 1,
            ..usual()
        };
        let near = [connection(100, 1), connection(100, 12), connection(100, 1)];
        says(
            &facts(&copy, &near),
            "connections that broke: they were made again once",
        );
        copy.reconnects = 3;
        // Others had nothing to send meanwhile.
        copy.ends[0].time = CopyTime {
            disk: 0.0,
            sums: 0.0,
            link: 0.3,
            idle: 0.7,
        };
        says(&facts(&copy, &near), "made again 3 times");
        copy.reconnects = 0;
        copy.ends.clear();
        says(
            &facts(&copy, &near),
            "the path: 1 of 3 connections waited for it most of the time",
        );
        let lossy = near.map(|info| TcpInfo {
            total_retrans_segments: 7,
            ..info
        });
        says(&facts(&copy, &lossy), "; 21 segments were sent again");
        says(&facts(&copy, &[connection(100, 1)]), "nothing that shows");
        copy.received_bytes = 2;
        copy.duration_ns = 2 * SECOND;
        assert_eq!(why(&facts(&copy, &near)), TOO_SHORT);
        copy.received_bytes = 1 << 30;
        copy.duration_ns = SECOND / 5;
        assert_eq!(why(&facts(&copy, &near)), TOO_SHORT);
        copy.received_bytes = 0;
        assert_eq!(why(&facts(&copy, &near)), "");
    }

    #[test]
    fn many_small_files_are_looked_at_whatever_broke_meanwhile() {
        let mut copy = Copy {
            names: 100_000,
            placed: 100_000,
            placed_bytes: 400_000,
            received_bytes: 400_000,
            reconnects: 2,
            ..usual()
        };
        copy.ends[0].time = CopyTime {
            disk: 0.1,
            sums: 0.0,
            link: 0.2,
            idle: 0.7,
        };
        says(
            &facts(&copy, &[]),
            "looking at files, for which connections waited: 100000 names, of 4 B each",
        );
    }

    #[test]
    fn a_disk_that_threads_waited_for_is_named_by_its_end() {
        let (mut copy, near) = (usual(), [connection(200, 9); 4]);
        copy.ends[1].time = CopyTime {
            disk: 0.6,
            sums: 0.1,
            link: 0.3,
            idle: 0.0,
        };
        assert_eq!(why(&facts(&copy, &near)), "the destination's disk");
        copy.ends[1].time = CopyTime {
            disk: 0.1,
            sums: 0.6,
            link: 0.3,
            idle: 0.0,
        };
        says(&facts(&copy, &near), "the destination's CPU, with sums");
    }

    #[test]
    fn limits_and_full_paths_and_late_beginnings_come_first() {
        let (mut copy, far) = (usual(), [connection(50_000, 9); 4]);
        let mut found = facts(&copy, &far);
        says(&found, "the path: what its congestion control found there");
        found.limit = Some(Rate::from_bits_per_second(810_000_000));
        says(&found, "the limit of 810 Mb/s");
        found.limit = None;
        found.made_ns = 6 * SECOND;
        says(
            &found,
            "its beginning: the first connection for blocks was there after 6.0 s",
        );
        copy.achievable_bits_per_second = Some(850_000_000);
        says(&facts(&copy, &far), "the path, which is full");
        copy.goodput_bits_per_second = 400_000_000;
        copy.steady_bits_per_second = Some(840_000_000);
        says(
            &facts(&copy, &far),
            "its beginning and end: between them 840 Mb/s",
        );
    }

    #[test]
    fn what_carried_it_is_named_where_no_connection_was_measured() {
        let mut copy = usual();
        let mut found = facts(&copy, &[]);
        says(&found, "what nobody told");
        found.inside = Some(Some(9 * SECOND));
        says(
            &found,
            "the ssh connection that carried it: ssh took 9.0 s of this host's CPU",
        );
        found.inside = Some(None);
        says(&found, "ssh encrypts once more on both hosts");
        copy.transport = "quic".to_owned();
        says(&facts(&copy, &[]), "QUIC's congestion control");
    }

    #[test]
    fn windows_and_send_buffers_are_told_by_the_kernels_clocks() {
        let copy = usual();
        let window = |rtt_us| TcpInfo {
            rwnd_limited_us: 5_000_000,
            ..connection(rtt_us, 9)
        };
        says(
            &facts(&copy, &[window(100)]),
            "the destination, which takes no more",
        );
        says(&facts(&copy, &[window(80_000)]), "(tcp_rmem)");
        let buffer = [TcpInfo {
            sndbuf_limited_us: 5_000_000,
            ..connection(80_000, 9)
        }];
        let mut found = facts(&copy, &buffer);
        says(&found, "this host's limit of send buffers (tcp_wmem)");
        found.is_source_here = false;
        says(&found, "the source's limit of send buffers");
        // A far side's numbers may be any.
        let wild = [TcpInfo {
            busy_time_us: u64::MAX,
            rwnd_limited_us: u64::MAX,
            ..TcpInfo::default()
        }; 2];
        says(&facts(&copy, &wild), "the destination");
    }

    #[test]
    fn larger_buffers_are_advised_where_one_stream_would_do_with_them() {
        let copy = Copy {
            streams: 16,
            steady_bits_per_second: Some(950_000_000),
            ..usual()
        };
        let (far, near) = ([connection(100_000, 9); 2], [connection(300, 9)]);
        let usual_limits = [Some(4 << 20), Some(6 << 20)];
        let advice =
            |copy: &Copy, all: &[TcpInfo], limits| buffers_for_one(&facts(copy, all), limits);
        assert_eq!(
            advice(&copy, &far, usual_limits).unwrap(),
            "one stream would do for 950 Mb/s over 100 ms in place of 16 where an administrator sets net.ipv4.tcp_wmem = 4096 16384 \
             29360128 at the source (it ends at 4 MiB now) and net.ipv4.tcp_rmem = 4096 131072 41943040 at the destination (it \
             ends at 6 MiB now)"
        );
        let one = advice(&copy, &far, [Some(64 << 20), Some(6 << 20)]).unwrap();
        assert!(
            !one.contains("tcp_wmem") && one.contains("tcp_rmem"),
            "{one}"
        );
        assert_eq!(advice(&copy, &far, [Some(64 << 20); 2]), None);
        assert_eq!(advice(&copy, &far, [None; 2]), None);
        assert_eq!(advice(&copy, &near, usual_limits), None);
        assert_eq!(advice(&copy, &[], usual_limits), None);
        let ways = vec![CopyWay::default(); 2];
        assert_eq!(
            advice(
                &Copy {
                    ways,
                    ..copy.clone()
                },
                &far,
                usual_limits
            ),
            None
        );
        assert_eq!(
            advice(&Copy { streams: 1, ..copy }, &far, usual_limits),
            None
        );
    }
}
