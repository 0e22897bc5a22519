//! A folder with the /proc and /sys of a machine that this one is not.

use std::fs;
use std::path::{Path, PathBuf};

use settings::{Key, Plan, Role};
use tune::{Asked, Confirmation, DROP_IN, Host, Tuner, Values, Wanted};

pub(crate) struct Machine(pub(crate) PathBuf);

/// A data-transfer node with a fast card, as distributions leave it.
const FILES: [(&str, &str); 34] = [
    ("proc/meminfo", "MemTotal:       16777216 kB\n"),
    ("proc/sys/kernel/osrelease", "6.18.1\n"),
    ("proc/sys/kernel/random/boot_id", "first\n"),
    (
        "lib/modules/6.18.1/modules.dep",
        "kernel/net/sched/sch_fq.ko.zst:\n",
    ),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("proc/sys/net/ipv4/tcp_mem", "188000\t262144\t393216\n"),
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/wmem_max", "212992\n"),
    ("proc/sys/net/core/default_qdisc", "fq_codel\n"),
    ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
    ("proc/sys/net/core/somaxconn", "128\n"),
    ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
    (
        "proc/sys/net/ipv4/tcp_available_congestion_control",
        "reno cubic bbr\n",
    ),
    ("proc/sys/net/ipv4/tcp_sack", "0\n"),
    ("proc/sys/net/ipv4/tcp_mtu_probing", "0\n"),
    ("proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n"),
    ("proc/sys/net/ipv4/tcp_notsent_lowat", "4294967295\n"),
    ("proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
    ("proc/sys/net/netfilter/nf_conntrack_buckets", "16384\n"),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors",
        "performance schedutil\n",
    ),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "schedutil\n",
    ),
    ("sys/devices/system/cpu/cpu1/online", "1\n"),
    ("sys/class/net/lo/mtu", "65536\n"),
    ("sys/class/net/eth0/mtu", "1500\n"),
    ("sys/class/net/eth0/speed", "10000\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
    ("ethtool/eth0/driver", "ixgbe\n"),
    ("ethtool/eth0/ring-rx", "512\n"),
    ("ethtool/eth0/ring-rx-max", "4096\n"),
    ("ethtool/eth0/ring-tx", "512\n"),
    ("ethtool/eth0/ring-tx-max", "4096\n"),
    ("ethtool/eth0/tso", "off\n"),
    ("ethtool/eth0/qdisc", "default\n"),
];

impl Machine {
    pub(crate) fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("goodput-tune-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let machine = Self(root);
        for (path, text) in FILES {
            machine.put(path, text);
        }
        fs::create_dir_all(machine.0.join("etc/sysctl.d")).unwrap();
        machine
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.0.join(path)).unwrap();
    }

    pub(crate) fn host(&self) -> Host {
        Host::at(&self.0)
    }

    fn tuner(&self) -> Tuner {
        Tuner::new(self.host(), &self.0.join("var/state"))
    }

    /// Every file but the journal's, with its content.
    fn picture(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        gather(&self.0, &mut found);
        found.retain(|(path, _)| !path.starts_with(self.0.join("var")));
        found.sort();
        found
    }

    fn plan(&self, role: Role) -> Plan {
        Asked::new(&self.host(), &wanted(role)).unwrap().plan
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gather(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => gather(&path, found),
            false => {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
}

fn wanted(role: Role) -> Wanted {
    Wanted {
        path: Some(("10Gb/s".parse().unwrap(), "85ms".parse().unwrap())),
        connections: Some(if role == Role::Gateway { 40_000 } else { 8 }),
        role: Some(role),
        ..Wanted::default()
    }
}

fn apply(tuner: &Tuner, plan: &Plan) -> Result<(), fault::Failure> {
    let nobody = &mut |_| unreachable!("nothing waits");
    tuner
        .apply(plan, Confirmation::None, true, nobody)
        .map(drop)
}

/// The kernel prints no more blanks than one; files keep what was written.
fn same(a: &[(PathBuf, String)], b: &[(PathBuf, String)]) -> bool {
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.0 == b.0 && words(&a.1) == words(&b.1))
}

#[test]
fn a_plan_of_every_role_is_applied_verified_and_undone() {
    for role in [Role::Dtn, Role::Web, Role::Gateway] {
        let machine = Machine::new(&format!("whole-{role}"));
        machine.put(
            "etc/sysctl.d/10-site.conf",
            "net.ipv4.tcp_rmem = 4096 131072 16777216\n",
        );
        let before = machine.picture();
        let plan = machine.plan(role);
        if role == Role::Gateway {
            assert!(plan.refused.is_none(), "{:?}", plan.refused);
        }
        assert!(plan.steps.len() > 6, "{role}: {:?}", plan.steps);
        let tuner = machine.tuner();
        apply(&tuner, &plan).unwrap();
        let host = machine.host();
        for step in &plan.steps {
            assert_eq!(host.read(&step.key).unwrap(), step.new, "{}", step.key);
        }
        assert!(machine.plan(role).steps.is_empty(), "{role}: a second plan");
        let verified = tuner.verify().unwrap();
        assert!(verified.checks.iter().all(|c| c.holds), "{verified:?}");
        assert_eq!(tuner.state().unwrap().word, "applied");
        let undone = machine.tuner().undo().unwrap();
        assert!(
            undone.foreign.is_empty() && undone.failed.is_empty(),
            "{undone:?}"
        );
        assert!(same(&machine.picture(), &before), "{role}");
        assert_eq!(tuner.state().unwrap().word, "nothing");
    }
}

#[test]
fn what_another_changed_is_reported_and_left() {
    let machine = Machine::new("foreign");
    let tuner = machine.tuner();
    apply(&tuner, &machine.plan(Role::Dtn)).unwrap();
    machine.put("proc/sys/net/ipv4/tcp_rmem", "4096 131072 999\n");
    machine.put(&DROP_IN[1..], "# mine now\n");
    let undone = tuner.undo().unwrap();
    let foreign: Vec<&str> = undone.foreign.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(foreign, [DROP_IN, "net.ipv4.tcp_rmem"]);
    assert_eq!(
        machine.get("proc/sys/net/ipv4/tcp_rmem"),
        "4096 131072 999\n"
    );
    assert_eq!(
        machine
            .get("proc/sys/net/ipv4/tcp_wmem")
            .split_whitespace()
            .nth(2),
        Some("4194304")
    );
}

#[test]
fn two_plans_one_after_the_other_go_back_to_the_beginning() {
    let machine = Machine::new("twice");
    let before = machine.picture();
    let tuner = machine.tuner();
    let mut small = wanted(Role::Dtn);
    small.path = Some(("1Gb/s".parse().unwrap(), "20ms".parse().unwrap()));
    let first = Asked::new(&machine.host(), &small).unwrap().plan;
    apply(&tuner, &first).unwrap();
    apply(&tuner, &machine.plan(Role::Dtn)).unwrap();
    // The file holds what either of them set.
    let file = machine.get(&DROP_IN[1..]);
    assert!(
        file.contains("tcp_sack = 1") && file.contains("356515840"),
        "{file}"
    );
    tuner.undo().unwrap();
    assert!(same(&machine.picture(), &before));
}

#[test]
fn a_value_that_is_refused_half_way_takes_the_others_back() {
    let machine = Machine::new("refused");
    let before = machine.picture();
    let mut plan = machine.plan(Role::Dtn);
    // A key that is gone when its turn comes.
    machine.remove("ethtool/eth0/ring-tx");
    let picture: Vec<_> = before
        .iter()
        .filter(|(path, _)| !path.ends_with("ring-tx"))
        .cloned()
        .collect();
    let tuner = machine.tuner();
    let failure = apply(&tuner, &plan).unwrap_err();
    assert_eq!(failure.code, fault::CANNOT_RUN_HERE);
    let text = failure.to_string();
    assert!(
        text.contains("ring:eth0/tx: cannot be read") && text.ends_with("nothing is changed"),
        "{text}"
    );
    assert!(same(&machine.picture(), &picture));
    assert_eq!(tuner.state().unwrap().word, "rolled_back");
    // What was read for the plan is no longer so.
    plan.steps
        .retain(|step| step.key == Key::sysctl("net.ipv4.tcp_rmem"));
    plan.steps[0].old = "4096 131072 1".to_owned();
    let text = apply(&tuner, &plan).unwrap_err().to_string();
    assert!(text.contains("when the plan was made"), "{text}");
}

#[test]
fn a_drop_in_that_cannot_be_written_takes_the_values_back() {
    let machine = Machine::new("no-file");
    let before = machine.picture();
    fs::remove_dir(machine.0.join("etc/sysctl.d")).unwrap();
    machine.put("etc/sysctl.d", "not a folder");
    let failure = apply(&machine.tuner(), &machine.plan(Role::Dtn)).unwrap_err();
    assert!(failure.to_string().contains("--no-boot"), "{failure}");
    machine.remove("etc/sysctl.d");
    assert!(same(&machine.picture(), &before));
}

#[test]
fn a_container_with_a_read_only_proc_and_missing_keys_is_told_so() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new("container");
    for name in ["tcp_rmem", "tcp_wmem"] {
        let path = machine.0.join("proc/sys/net/ipv4").join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
    }
    for name in [
        "ipv4/tcp_mem",
        "core/default_qdisc",
        "core/netdev_max_backlog",
    ] {
        machine.remove(&format!("proc/sys/net/{name}"));
    }
    let plan = machine.plan(Role::Dtn);
    let why = |name: &str| {
        let found = plan.cannot.iter().find(|c| c.key == Key::sysctl(name));
        found.map(|c| c.why.as_str()).unwrap_or_default()
    };
    assert!(
        why("net.ipv4.tcp_rmem").starts_with("read-only here"),
        "{plan:?}"
    );
    assert!(
        why("net.ipv4.tcp_mem").contains("run tune on the host"),
        "{plan:?}"
    );
    assert!(
        why("net.core.netdev_max_backlog").contains("run tune on the host"),
        "{plan:?}"
    );
}

#[test]
fn a_plan_waits_for_its_confirmation_and_the_file_comes_with_it() {
    let machine = Machine::new("confirm");
    let before = machine.picture();
    let tuner = machine.tuner();
    let plan = machine.plan(Role::Dtn);
    let mut told = None;
    let mut note = |waiting| {
        told = Some(waiting);
        Ok(())
    };
    let wait = Confirmation::Within(0);
    let waiting = tuner.apply(&plan, wait, true, &mut note).unwrap();
    assert_eq!(told, waiting);
    assert_eq!(tuner.state().unwrap().word, "unconfirmed");
    assert!(!machine.0.join(&DROP_IN[1..]).exists());
    assert!(
        apply(&tuner, &plan).is_err(),
        "another plan before the confirmation"
    );
    // Its time is over.
    let undone = machine
        .tuner()
        .undo_unless_confirmed(waiting.unwrap())
        .unwrap();
    assert!(undone.is_some());
    assert!(same(&machine.picture(), &before));
    assert!(tuner.confirm().is_err());
    // Confirmed in time.
    let waiting = tuner
        .apply(&plan, wait, true, &mut |_| Ok(()))
        .unwrap()
        .unwrap();
    tuner.confirm().unwrap();
    assert!(machine.0.join(&DROP_IN[1..]).exists());
    assert_eq!(
        machine.tuner().undo_unless_confirmed(waiting).unwrap(),
        None
    );
    assert_eq!(tuner.state().unwrap().word, "applied");
    // Whoever would undo it cannot be started.
    tuner.undo().unwrap();
    let mut none = |_| Err(std::io::Error::other("no process"));
    let text = tuner
        .apply(&plan, wait, true, &mut none)
        .unwrap_err()
        .to_string();
    assert!(text.contains("nothing is changed"), "{text}");
    assert!(same(&machine.picture(), &before));
}

#[test]
fn a_boot_after_a_power_loss_is_taken_back_too() {
    let machine = Machine::new("boot");
    let before = machine.picture();
    apply(&machine.tuner(), &machine.plan(Role::Dtn)).unwrap();
    // The drop-in has set the sysctls again; the card has lost its rings.
    machine.put("proc/sys/kernel/random/boot_id", "second\n");
    machine.put("ethtool/eth0/ring-rx", "512\n");
    let undone = machine.tuner().undo().unwrap();
    assert!(
        undone.foreign.is_empty() && undone.failed.is_empty(),
        "{undone:?}"
    );
    machine.put("proc/sys/kernel/random/boot_id", "first\n");
    assert!(same(&machine.picture(), &before));
}

#[test]
fn a_run_gives_rate_round_trip_and_connections() {
    let machine = Machine::new("run");
    let run = "{\"path\": {\"rate_bits_per_second\": 1000000000, \"rtt_idle_ns\": null, \"loss_forward\": 0.001}, \
               \"phases\": [{\"rtt_idle_ns\": 85030000, \"streams\": 4}]}";
    machine.put("run/run.json", run);
    let wanted = Wanted {
        run: Some(machine.0.join("run")),
        ..Wanted::default()
    };
    let plan = Asked::new(&machine.host(), &wanted).unwrap().plan;
    let request = &plan.request;
    assert_eq!(request.rate.as_bits_per_second(), 1_000_000_000);
    assert_eq!((request.rtt.as_ns(), request.connections), (85_030_000, 4));
    let bbr = plan.steps.iter().find(|s| s.new == "bbr").unwrap();
    assert!(
        bbr.why.starts_with("1 in 1000 packets was lost"),
        "{}",
        bbr.why
    );
    machine.put("run/run.json", "{}");
    let failure = Asked::new(&machine.host(), &wanted).unwrap_err();
    assert_eq!(failure.code, fault::USAGE);
}
