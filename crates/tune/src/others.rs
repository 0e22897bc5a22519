//! Who else writes settings: files read at boot, and programs that set them while they run.
//!
//! systemd-sysctl and `sysctl --system` read the files of the folders below by name, whichever folder they are in; a name in an
//! earlier folder masks the same name in a later one; of two assignments the later wins. `sysctl --system` then reads
//! /etc/sysctl.conf, which systemd reads only where a link in sysctl.d leads to it (sysctl.d(5), sysctl(8)).

use std::collections::BTreeMap;

use settings::{Facts, Key};
use sys::tunable::{self, Tree};

/// The drop-in file. Its name sorts behind what distributions and people use.
pub const DROP_IN: &str = "/etc/sysctl.d/99-zz-goodput.conf";
const NAME: &str = "99-zz-goodput.conf";
const LAST: &str = "/etc/sysctl.conf";
/// sysctl.d(5), in the order in which they mask each other.
const FOLDERS: [&str; 5] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
];

/// One assignment in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// As written there; `*` stands for any part.
    pub key: String,
    /// Its value.
    pub value: String,
    /// It is read after the drop-in and would win over it.
    pub after_drop_in: bool,
}

/// All assignments that a boot makes, in their order; the drop-in's own left out.
pub fn at_boot(tree: &Tree) -> Vec<Assignment> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        for name in tree.names(folder) {
            if name.ends_with(".conf") {
                files
                    .entry(name.clone())
                    .or_insert_with(|| format!("{folder}/{name}"));
            }
        }
    }
    files.remove(NAME);
    let mut found = Vec::new();
    for (name, file) in files {
        found.extend(assignments(tree, &file, name.as_str() > NAME));
    }
    found.extend(assignments(tree, LAST, true));
    found
}

fn assignments(tree: &Tree, file: &str, after_drop_in: bool) -> Vec<Assignment> {
    let text = tree.read(file).unwrap_or_default();
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(at, line)| {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                return None;
            }
            let (key, value) = line.split_once('=')?;
            Some(Assignment {
                file: file.to_owned(),
                line: at + 1,
                key: dotted(key.trim().trim_start_matches('-')),
                value: value.trim().to_owned(),
                after_drop_in,
            })
        })
        .collect()
}

/// `net/ipv4/conf/eth0.100/rp_filter` and `net.ipv4.tcp_sack` with dots between the parts.
fn dotted(key: &str) -> String {
    match key.find(['.', '/']).map(|at| &key[at..=at]) {
        Some("/") => key
            .replace('.', "\u{0}")
            .replace('/', ".")
            .replace('\u{0}', "/"),
        _ => key.to_owned(),
    }
}

/// Whether an assignment's key is `key`, part by part.
fn is_for(pattern: &str, key: &str) -> bool {
    let (mut a, mut b) = (pattern.split('.'), key.split('.'));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if pattern == "*" || pattern == part => {}
            _ => return false,
        }
    }
}

/// Programs that were found to set values of this host, each with what it sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name.
    pub name: &'static str,
    /// What it does to settings, and what follows for them.
    pub what: String,
    sets: Sets,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Sets {
    /// These sysctls.
    Sysctls(BTreeMap<String, String>),
    /// Sysctls whose names begin so.
    Beginning(Vec<&'static str>),
    Devices,
    Interrupts,
    Nothing,
}

/// The programs that run or are set up here.
pub fn programs(tree: &Tree) -> Vec<Program> {
    let running = running(tree);
    let runs = |name: &str| running.iter().any(|comm| comm == name);
    let there = |path: &str| tree.path(path).exists();
    let mut found = Vec::new();
    let mut add = |name, what: String, sets| found.push(Program { name, what, sets });
    let profile = tree.read("/etc/tuned/active_profile").unwrap_or_default();
    if !profile.is_empty() && (runs("tuned") || there("/run/tuned/tuned.pid")) {
        let what = format!(
            "profile {profile}; sets its values again at each switch, then those of /etc/sysctl.d and /etc/sysctl.conf"
        );
        add("TuneD", what, Sets::Sysctls(tuned_sysctls(tree, &profile)));
    }
    if runs("bpftune") {
        let what = "changes buffers as connections need them; leaves a key alone once somebody else has set it".to_owned();
        let keys = vec![
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_wmem",
            "net.ipv4.tcp_mem",
            "net.core.rmem_max",
            "net.core.wmem_max",
            "net.core.netdev_max_backlog",
        ];
        add("bpftune", what, Sets::Beginning(keys));
    }
    if there("/run/NetworkManager") || runs("NetworkManager") {
        let what = "sets rings, offloads and coalescing of a device when its connection comes up";
        add("NetworkManager", what.to_owned(), Sets::Devices);
    }
    if runs("irqbalance") {
        let what = "moves interrupts every 10 s";
        add("irqbalance", what.to_owned(), Sets::Interrupts);
    }
    if there("/run/cloud-init") || there("/etc/cloud/cloud.cfg") {
        let what = "may write sysctl.d and network settings at the next boot";
        add("cloud-init", what.to_owned(), Sets::Nothing);
    }
    let pod = there("/var/run/secrets/kubernetes.io") || there("/run/secrets/kubernetes.io");
    if runs("kubelet") || there("/var/lib/kubelet/config.yaml") || pod {
        let what = "pods have namespaces of their own, made with the host's values of that moment: restart them, or set \
                    securityContext.sysctls";
        let keys = vec!["net.ipv4.conf", "net.netfilter", "net.ipv4.ip_forward"];
        add("Kubernetes", what.to_owned(), Sets::Beginning(keys));
    }
    found
}

fn running(tree: &Tree) -> Vec<String> {
    let numbers = tree.names("/proc").into_iter();
    numbers
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|number| tree.read(&format!("/proc/{number}/comm")).ok())
        .collect()
}

/// The sysctls of a TuneD profile and of those that it includes, three deep.
fn tuned_sysctls(tree: &Tree, profile: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut names: Vec<String> = profile.split_whitespace().map(str::to_owned).collect();
    for _ in 0..3 {
        let mut included = Vec::new();
        for name in names.iter().filter(|name| !name.contains('/')) {
            let folders = [
                "/etc/tuned",
                "/etc/tuned/profiles",
                "/usr/lib/tuned",
                "/usr/lib/tuned/profiles",
            ];
            let text = folders
                .iter()
                .find_map(|at| tree.read(&format!("{at}/{name}/tuned.conf")).ok());
            let mut section = String::new();
            for line in text.unwrap_or_default().lines().map(str::trim) {
                if line.starts_with('[') {
                    section = line.to_owned();
                } else if let Some((key, value)) = line.split_once('=') {
                    match (section.as_str(), key.trim()) {
                        ("[sysctl]", key) => {
                            let value = value.trim().trim_matches('"').to_owned();
                            found.entry(dotted(key)).or_insert(value);
                        }
                        ("[main]", "include") => {
                            included.extend(value.split([' ', ',']).map(str::to_owned));
                        }
                        _ => {}
                    }
                }
            }
        }
        names = included;
    }
    found
}

/// Puts into the facts who else writes which of their values.
pub(crate) fn note(tree: &Tree, facts: &mut Facts) {
    let boot = at_boot(tree);
    let programs = programs(tree);
    let keys: Vec<Key> = facts.values.keys().cloned().collect();
    for key in keys {
        let mut writers = Vec::new();
        if let Some(name) = key.as_sysctl() {
            for one in boot.iter().filter(|one| is_for(&one.key, name)) {
                let wins = match (one.after_drop_in, one.file == LAST) {
                    (false, _) => "at boot; the drop-in comes after it",
                    (true, true) => {
                        "and `sysctl --system` reads that file after the drop-in: remove the line"
                    }
                    (true, false) => "after the drop-in, and wins at boot: remove the line",
                };
                writers.push(format!(
                    "{}:{} sets {} {wins}",
                    one.file, one.line, one.value
                ));
            }
        }
        for program in &programs {
            let sets = match (&program.sets, &key) {
                (Sets::Sysctls(all), Key::Sysctl(name)) => {
                    all.get(name).map(|value| format!("sets {value}"))
                }
                (Sets::Beginning(all), Key::Sysctl(name)) => all
                    .iter()
                    .any(|begin| name.starts_with(begin))
                    .then(|| "may set it".to_owned()),
                (Sets::Devices, Key::Ring(..) | Key::Offload(..) | Key::AdaptiveRx(_)) => {
                    Some("may set it".to_owned())
                }
                (Sets::Interrupts, Key::File(path)) => path
                    .starts_with("/proc/irq/")
                    .then(|| "moves it every 10 s".to_owned()),
                _ => None,
            };
            writers.extend(sets.map(|sets| format!("{} {sets}", program.name)));
        }
        if !writers.is_empty() {
            facts.writers.insert(key, writers);
        }
    }
}

/// Assignments that would win over the drop-in's at boot.
pub(crate) fn winners<'a>(boot: &'a [Assignment], key: &str, value: &str) -> Vec<&'a Assignment> {
    let same = |text: &str| text.split_whitespace().eq(value.split_whitespace());
    boot.iter()
        .filter(|one| one.after_drop_in && is_for(&one.key, key) && !same(&one.value))
        .collect()
}

/// Whether a container's /proc/sys is mounted read-only.
pub fn proc_is_read_only(tree: &Tree) -> bool {
    let probe = tree.path("/proc/sys/net/ipv4/tcp_rmem");
    probe.exists() && !tunable::is_writable(&probe)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    struct Made(PathBuf);

    impl Made {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("goodput-others-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn tree(&self) -> Tree {
            Tree::at(&self.0)
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_sort_by_name_and_an_earlier_folder_masks_a_later() {
        let made = Made::new(
            "order",
            &[
                ("usr/lib/sysctl.d/50-a.conf", "net.core.rmem_max = 1\n"),
                (
                    "etc/sysctl.d/50-a.conf",
                    "# masks the other\nnet.core.rmem_max = 2\n",
                ),
                ("run/sysctl.d/10-b.conf", "net/core/rmem_max=3\n"),
                ("usr/lib/sysctl.d/99-zzz.conf", "-net.core.*=4\n"),
                ("etc/sysctl.d/99-zz-goodput.conf", "net.core.rmem_max = 5\n"),
                ("etc/sysctl.d/README", "net.core.rmem_max = 6\n"),
                ("etc/sysctl.conf", "net.core.rmem_max = 7\n"),
            ],
        );
        let boot = at_boot(&made.tree());
        let found: Vec<_> = boot
            .iter()
            .filter(|one| is_for(&one.key, "net.core.rmem_max"))
            .map(|one| (one.value.as_str(), one.line, one.after_drop_in))
            .collect();
        let expected = [
            ("3", 1, false),
            ("2", 2, false),
            ("4", 1, true),
            ("7", 1, true),
        ];
        assert_eq!(found, expected);
        let winners: Vec<&str> = winners(&boot, "net.core.rmem_max", "7")
            .iter()
            .map(|one| one.file.as_str())
            .collect();
        assert_eq!(winners, ["/usr/lib/sysctl.d/99-zzz.conf"]);
    }

    #[test]
    fn programs_are_found_by_their_files_and_processes() {
        let made = Made::new(
            "programs",
            &[
                ("etc/tuned/active_profile", "site\n"),
                ("proc/17/comm", "tuned\n"),
                ("proc/18/comm", "bpftune\n"),
                ("proc/19/comm", "irqbalance\n"),
                ("proc/self/comm", "kubelet\n"),
                (
                    "etc/tuned/site/tuned.conf",
                    "[main]\ninclude=network-throughput\n[sysctl]\nnet.core.rmem_max=9\n",
                ),
                (
                    "usr/lib/tuned/network-throughput/tuned.conf",
                    "[cpu]\ngovernor=performance\n[sysctl]\nnet.ipv4.tcp_rmem=\"4096 131072 16777216\"\nnet.core.rmem_max=8\n",
                ),
            ],
        );
        let tree = made.tree();
        let names: Vec<&str> = programs(&tree).iter().map(|p| p.name).collect();
        assert_eq!(names, ["TuneD", "bpftune", "irqbalance"]);
        let mut facts = Facts::default();
        facts.set("net.ipv4.tcp_rmem", "4096 131072 6291456");
        facts.set("net.core.rmem_max", "212992");
        facts.put(
            Key::File("/proc/irq/24/smp_affinity_list".to_owned()),
            "0",
            true,
        );
        note(&tree, &mut facts);
        let of = |key: &str| facts.writers[&key.parse::<Key>().unwrap()].join("; ");
        assert_eq!(
            of("net.ipv4.tcp_rmem"),
            "TuneD sets 4096 131072 16777216; bpftune may set it"
        );
        assert!(of("net.core.rmem_max").starts_with("TuneD sets 9"));
        assert_eq!(
            of("/proc/irq/24/smp_affinity_list"),
            "irqbalance moves it every 10 s"
        );
    }
}
