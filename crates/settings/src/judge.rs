//! What a list of sysctls from somewhere is worth on this host and for this path: line by line.

use throughput::BufferModel;
use units::Bytes;

use crate::facts::Facts;
use crate::key::Key;
use crate::plan::{Plan, rate_of};

/// The list of 2007 for 85 ms (M. Foster, CENIC 07, "recommend TCP adjustments").
pub const NASA_2007: &str = "\
net.core.rmem_max = 104857600
net.core.wmem_max = 104857600
net.ipv4.tcp_rmem = 4096 524288 104857600
net.ipv4.tcp_wmem = 4096 524288 104857600
net.core.netdev_max_backlog = 30000
net.ipv4.tcp_no_metrics_save = 1
net.ipv4.conf.all.arp_ignore = 1
";

/// A line of a list, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Which line of the text, from 1.
    pub line: usize,
    /// The key; the whole line where it is none.
    pub key: String,
    /// The value that the list gives it.
    pub value: String,
    /// What it is worth.
    pub judgement: Judgement,
    /// Why, with the kernel version that made it so where one did.
    pub why: String,
    /// What this plan does with the key.
    pub instead: Option<String>,
}

/// What a line is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Does what it is meant to.
    Right,
    /// Does nothing, or nothing for throughput.
    Harmless,
    /// Holds the path back, or costs more than it gives.
    Wrong,
    /// Nothing is known of it.
    Unknown,
}

impl Judgement {
    /// As shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Harmless => "harmless",
            Self::Wrong => "wrong",
            Self::Unknown => "unknown",
        }
    }
}

/// Judges each line of a text in the layout of sysctl.conf(5) against the plan for the path. Comments and empty lines are passed
/// over.
pub fn judge(list: &str, plan: &Plan, facts: &Facts) -> Vec<Judged> {
    let lines = list.lines().enumerate().filter_map(|(at, line)| {
        let line = line.trim();
        let comment = line.is_empty() || line.starts_with(['#', ';']);
        (!comment).then(|| one(at + 1, line, plan, facts))
    });
    lines.collect()
}

fn one(number: usize, line: &str, plan: &Plan, facts: &Facts) -> Judged {
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (
            key.trim().trim_start_matches('-').replace('/', "."),
            words(value),
        ),
        None => (line.to_owned(), String::new()),
    };
    let is_key = format!("{key}.").parse::<Key>().is_ok() && line.contains('=');
    let (judgement, why) = match is_key {
        false => (
            Judgement::Unknown,
            "no line of the form key = value".to_owned(),
        ),
        true => worth(&key, &value, plan, facts),
    };
    let step = plan.steps.iter().find(|s| s.key.as_sysctl() == Some(&key));
    Judged {
        line: number,
        instead: step.map(|s| s.new.clone()),
        key,
        value,
        judgement,
        why,
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn worth(key: &str, value: &str, plan: &Plan, facts: &Facts) -> (Judgement, String) {
    let number = value.parse::<u64>().ok();
    let last = value.split(' ').nth(2).and_then(|n| n.parse::<u64>().ok());
    match (key, number) {
        ("net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem", _) => buffers(key, last, plan, facts),
        ("net.core.rmem_max" | "net.core.wmem_max", Some(bytes)) => fixed(key, bytes, facts),
        ("net.core.rmem_default" | "net.core.wmem_default", _) => (
            Judgement::Harmless,
            "TCP does not use it (tcp_rmem and tcp_wmem have its default since Linux 2.4); UDP sockets grow by it".to_owned(),
        ),
        ("net.core.netdev_max_backlog", Some(_)) => backlog(plan),
        ("net.ipv4.tcp_no_metrics_save", Some(1)) => metrics(facts),
        ("net.ipv4.conf.all.arp_ignore", Some(1)) => (
            Judgement::Harmless,
            "right for a host with two interfaces on one subnet; a single interface never answers for another, and throughput does not depend on it".to_owned(),
        ),
        ("net.ipv4.tcp_tw_recycle", _) => (
            Judgement::Wrong,
            "dropped connections from behind NAT; removed in Linux 4.12".to_owned(),
        ),
        ("net.ipv4.tcp_low_latency", _) => (
            Judgement::Harmless,
            "without effect since Linux 4.14, which has no prequeue".to_owned(),
        ),
        ("net.ipv4.tcp_timestamps" | "net.ipv4.tcp_sack" | "net.ipv4.tcp_window_scaling", Some(0)) => (
            Judgement::Wrong,
            "a long path needs it; turning it off saved CPU time before offloads".to_owned(),
        ),
        ("net.ipv4.tcp_mem", _) => tcp_mem(value, plan, facts),
        _ => by_plan(key, value, plan, facts),
    }
}

/// The last of three against what the path needs.
fn buffers(key: &str, last: Option<u64>, plan: &Plan, facts: &Facts) -> (Judgement, String) {
    let Some(max) = last else {
        return (Judgement::Unknown, "not three numbers".to_owned());
    };
    let now = facts.triple(key).map_or(0, |sizes| sizes[2]);
    if max < now {
        return (
            Judgement::Wrong,
            format!(
                "lowers this kernel's {} (32 MiB for tcp_rmem since Linux 6.16)",
                Bytes::new(now)
            ),
        );
    }
    let request = &plan.request;
    let large = Some(u64::MAX >> 2);
    let rate = match key {
        "net.ipv4.tcp_rmem" => rate_of(Some(max), large, request),
        _ => rate_of(large, Some(max), request),
    };
    let share = match key {
        "net.ipv4.tcp_rmem" => BufferModel::LINUX.receive_window_fraction,
        _ => BufferModel::LINUX.send_payload_fraction,
    };
    match rate {
        Some(rate) if rate < request.rate => (
            Judgement::Wrong,
            format!(
                "too small: {share} of it is payload (packets' overhead counts; of a receive buffer as measured since Linux 6.6), \
                 {rate} of {}",
                request.rate
            ),
        ),
        _ => (
            Judgement::Right,
            format!("fills {} at {}", request.rate, request.rtt),
        ),
    }
}

fn fixed(key: &str, bytes: u64, facts: &Facts) -> (Judgement, String) {
    let now = facts.number(key).and_then(|n| u64::try_from(n).ok());
    if now.is_some_and(|now| bytes < now) {
        return (
            Judgement::Wrong,
            format!("lowers {}", Bytes::new(now.unwrap_or(0))),
        );
    }
    let (option, since) = match key {
        "net.core.rmem_max" => ("SO_RCVBUF", "2.6.7"),
        _ => ("SO_SNDBUF", "2.4"),
    };
    (
        Judgement::Harmless,
        format!(
            "bounds {option} only; buffers that size themselves (since Linux {since}) do not heed it"
        ),
    )
}

fn backlog(plan: &Plan) -> (Judgement, String) {
    let used = plan
        .steps
        .iter()
        .any(|s| s.key.to_string().ends_with("/rps_cpus"));
    match used {
        true => (
            Judgement::Right,
            "RPS queues packets for other CPUs there".to_owned(),
        ),
        false => (
            Judgement::Harmless,
            "drivers with NAPI (all since about Linux 2.6.30) do not queue there; only RPS, loopback and veth do"
                .to_owned(),
        ),
    }
}

fn metrics(facts: &Facts) -> (Judgement, String) {
    match facts.number("net.ipv4.tcp_no_ssthresh_metrics_save") {
        Some(1) => (
            Judgement::Wrong,
            "its cure is the default since Linux 5.6 (tcp_no_ssthresh_metrics_save); now it only discards hints of round trip and reordering"
                .to_owned(),
        ),
        _ => (
            Judgement::Right,
            "this kernel caches slow-start thresholds of earlier connections".to_owned(),
        ),
    }
}

fn tcp_mem(value: &str, plan: &Plan, facts: &Facts) -> (Judgement, String) {
    let Some(pressure) = value.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()) else {
        return (Judgement::Unknown, "not three numbers".to_owned());
    };
    let bytes = pressure.saturating_mul(facts.page_bytes);
    let memory = facts.memory.map_or(u64::MAX, Bytes::as_u64);
    if bytes > memory {
        return (
            Judgement::Wrong,
            format!(
                "{} are more than this host's memory: it counts pages, not bytes",
                Bytes::new(bytes)
            ),
        );
    }
    if bytes < plan.memory.needed.as_u64() {
        let text = format!(
            "{} are less than {} that the connections need",
            Bytes::new(bytes),
            plan.memory.needed
        );
        return (Judgement::Wrong, text);
    }
    (Judgement::Right, format!("{} of memory", Bytes::new(bytes)))
}

/// A key that the plan speaks of.
fn by_plan(key: &str, value: &str, plan: &Plan, facts: &Facts) -> (Judgement, String) {
    if let Some(step) = plan.steps.iter().find(|s| s.key.as_sysctl() == Some(key)) {
        return match words(&step.new) == value {
            true => (Judgement::Right, step.why.clone()),
            false => (
                Judgement::Wrong,
                format!("the path wants {}: {}", step.new, step.why),
            ),
        };
    }
    match facts.sysctl(key) {
        Some(now) if words(now) == value => (Judgement::Harmless, "already so".to_owned()),
        None => (
            Judgement::Harmless,
            "this kernel or namespace does not have it".to_owned(),
        ),
        Some(_) => (
            Judgement::Unknown,
            "tune does not derive it and knows no harm of it".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Role, derive};

    fn facts() -> Facts {
        let mut facts = Facts::default();
        facts.set("net.ipv4.tcp_rmem", "4096 131072 33554432");
        facts.set("net.ipv4.tcp_wmem", "4096 16384 4194304");
        facts.set("net.core.rmem_max", "4194304");
        facts.set("net.core.wmem_max", "4194304");
        facts.set("net.ipv4.tcp_no_metrics_save", "0");
        facts.set("net.ipv4.tcp_no_ssthresh_metrics_save", "1");
        facts.set("net.ipv4.conf.all.arp_ignore", "0");
        facts.set("net.core.netdev_max_backlog", "1000");
        facts
    }

    fn judged(list: &str, rate: &str, facts: &Facts) -> Vec<Judged> {
        let request = Request::new(rate.parse().unwrap(), "85ms".parse().unwrap(), Role::Dtn);
        judge(list, &derive(&request, facts), facts)
    }

    #[test]
    fn the_list_of_2007_is_short_for_10_gigabits_and_right_for_one() {
        let words = |rate| {
            let lines = judged(NASA_2007, rate, &facts());
            let words: Vec<String> = lines
                .iter()
                .map(|j| {
                    format!(
                        "{} {}",
                        j.key.rsplit('.').next().unwrap(),
                        j.judgement.name()
                    )
                })
                .collect();
            words.join(", ")
        };
        assert_eq!(
            words("10Gb/s"),
            "rmem_max harmless, wmem_max harmless, tcp_rmem wrong, tcp_wmem wrong, \
             netdev_max_backlog harmless, tcp_no_metrics_save wrong, arp_ignore harmless"
        );
        assert!(words("1Gb/s").contains("tcp_rmem right, tcp_wmem right"));
        let why = &judged(NASA_2007, "10Gb/s", &facts())[2].why;
        assert!(why.contains("5.921 Gb/s of 10 Gb/s"), "{why}");
    }

    #[test]
    fn an_old_kernel_makes_no_metrics_save_right() {
        let mut old = facts();
        old.values
            .remove(&Key::sysctl("net.ipv4.tcp_no_ssthresh_metrics_save"));
        let lines = judged("net.ipv4.tcp_no_metrics_save=1", "10Gb/s", &old);
        assert_eq!(lines[0].judgement, Judgement::Right);
    }

    #[test]
    fn bytes_in_place_of_pages_lower_values_and_unknown_lines_are_named() {
        let list = "# comment\n\nnet.ipv4.tcp_mem = 1073741824 1073741824 1073741824\n\
                    net/ipv4/tcp_rmem = 4096 131072 16777216\nnonsense\nvm.swappiness = 10\n";
        let found: Vec<_> = judged(list, "1Gb/s", &facts())
            .iter()
            .map(|j| (j.line, j.judgement))
            .collect();
        let expected = [
            (3, Judgement::Wrong),
            (4, Judgement::Wrong),
            (5, Judgement::Unknown),
            (6, Judgement::Harmless),
        ];
        assert_eq!(found, expected);
    }
}
