//! In network namespaces that the test makes: values of a kernel, and everything byte for byte as before.

use std::fmt::Write as _;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use settings::{Key, Plan, Request, Role, Scope, Step};
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use tune::{Asked, Confirmation, Host, Tuner, Values, Wanted};

fn state(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("goodput-tune-ns-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// A namespace with a veth pair, or none where this user may not make one.
fn made() -> Option<NetNs> {
    let Ok(ns) = NetNs::create() else {
        testing::skipped("no privilege to make namespaces");
        return None;
    };
    ns.run(|| {
        let end = |name, mac| VethEnd {
            name,
            mac: [2, 0, 0, 0, 0, mac],
            netns: ns.as_fd(),
        };
        let mut netlink = Netlink::open().unwrap();
        netlink.add_veth(end("left", 1), end("right", 2)).unwrap();
        netlink.set_up("lo", None).unwrap();
    })
    .unwrap();
    Some(ns)
}

/// What the kernel and the usual tools show of the calling thread's namespace.
fn picture(ns: &NetNs) -> String {
    let mut text = String::new();
    below(Path::new("/proc/sys/net"), &mut text);
    for words in [
        "ip -d address show",
        "ip -d -4 route show table all",
        "tc qdisc show",
        "ethtool -k left",
        "ethtool -c left",
    ] {
        let mut parts = words.split(' ');
        let mut command = Command::new(parts.next().unwrap());
        let output = ns.place(command.args(parts)).unwrap().output();
        match output {
            Ok(output) => text.push_str(&String::from_utf8_lossy(&output.stdout)),
            Err(e) => testing::skipped(format!("{words}: {e}")),
        }
    }
    text
}

fn below(folder: &Path, text: &mut String) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            below(&path, text);
        } else {
            let value = fs::read(&path).unwrap_or_default();
            let _ = writeln!(
                text,
                "{} {}",
                path.display(),
                String::from_utf8_lossy(&value)
            );
        }
    }
}

fn plan(host: &Host) -> Plan {
    let wanted = Wanted {
        path: Some(("10Gb/s".parse().unwrap(), "85ms".parse().unwrap())),
        role: Some(Role::Dtn),
        device: Some("left".to_owned()),
        ..Wanted::default()
    };
    Asked::new(host, &wanted).unwrap().plan
}

fn step(key: &str, old: &str, new: &str) -> Step {
    Step {
        key: key.parse().unwrap(),
        old: old.to_owned(),
        new: new.to_owned(),
        why: String::new(),
        cost: String::new(),
        scope: Scope::Namespace,
        from: "",
        restart: "",
        writers: Vec::new(),
    }
}

fn of(steps: Vec<Step>) -> Plan {
    let request = Request::new("1Gb/s".parse().unwrap(), "10ms".parse().unwrap(), Role::Dtn);
    Plan {
        steps,
        ..settings::derive(&request, &settings::Facts::default())
    }
}

fn apply(tuner: &Tuner, plan: &Plan) -> Result<(), fault::Failure> {
    tuner
        .apply(plan, Confirmation::None, true, &mut |_| Ok(()))
        .map(drop)
}

#[test]
fn a_namespace_is_set_verified_by_a_fresh_connection_and_as_it_was_after() {
    let Some(ns) = made() else { return };
    let folder = state("whole");
    ns.run(|| {
        let host = Host::machine();
        let before = picture(&ns);
        let plan = plan(&host);
        assert!(
            plan.cannot
                .iter()
                .any(|c| c.key == Key::sysctl("net.core.rmem_max")),
            "{plan:?}"
        );
        let tuner = Tuner::new(host.clone(), &folder);
        apply(&tuner, &plan).unwrap();
        assert_ne!(picture(&ns), before);
        let verified = tuner.verify().unwrap();
        let scale = verified.checks.last().unwrap();
        // 340 MiB: 2^28 and more, less the 16 bits of the header.
        assert_eq!(
            (scale.what.as_str(), scale.found.as_str()),
            ("window scale of a fresh connection", "13")
        );
        assert!(verified.checks.iter().all(|c| c.holds), "{verified:?}");
        let undone = Tuner::new(host, &folder).undo().unwrap();
        assert!(
            undone.foreign.is_empty() && undone.failed.is_empty(),
            "{undone:?}"
        );
        assert_eq!(picture(&ns), before);
    })
    .unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_value_out_of_the_kernels_range_is_named_and_nothing_stays() {
    let Some(ns) = made() else { return };
    let folder = state("range");
    ns.run(|| {
        let before = picture(&ns);
        let host = Host::machine();
        let sack = host.read(&Key::sysctl("net.ipv4.tcp_sack")).unwrap();
        let rmem = host.read(&Key::sysctl("net.ipv4.tcp_rmem")).unwrap();
        let steps = vec![
            step("net.ipv4.tcp_sack", &sack, "0"),
            step("qdisc:left", "default", "pfifo"),
            step("offload:left/tso", "on", "off"),
            step("net.ipv4.tcp_rmem", &rmem, "4096 131072 4294967296"),
        ];
        let tuner = Tuner::new(host, &folder);
        let text = apply(&tuner, &of(steps)).unwrap_err().to_string();
        assert!(
            text.starts_with("net.ipv4.tcp_rmem: the kernel refuses"),
            "{text}"
        );
        assert!(
            text.contains("out of the range") && text.ends_with("nothing is changed"),
            "{text}"
        );
        assert_eq!(picture(&ns), before);
        let absent = vec![
            step("net.ipv4.tcp_sack", &sack, "0"),
            step("net.ipv4.tcp_mem", "1 2 3", "2 3 4"),
        ];
        let text = apply(&tuner, &of(absent)).unwrap_err().to_string();
        assert!(
            text.starts_with("net.ipv4.tcp_mem: cannot be read"),
            "{text}"
        );
        let limit = host_read(&tuner, "net.core.rmem_max");
        let read_only = vec![
            step("net.ipv4.tcp_sack", &sack, "0"),
            step("net.core.rmem_max", &limit, "1073741824"),
        ];
        let text = apply(&tuner, &of(read_only)).unwrap_err().to_string();
        assert!(text.contains("CAP_NET_ADMIN"), "{text}");
        assert_eq!(picture(&ns), before);
    })
    .unwrap();
    fs::remove_dir_all(folder).unwrap();
}

fn host_read(tuner: &Tuner, name: &str) -> String {
    tuner.host.read(&Key::sysctl(name)).unwrap()
}
