//! Exit code 3: this machine cannot: privilege, kernel, disk.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::{
    Scratch, as_nobody, assert_verdict, is_root, json, lab_alone, run_folders, usable,
    with_own_mounts,
};

const SHORT: [&str; 6] = ["doctor", "-d", "2s", "--ramp", "500ms", "--no-fix"];

#[test]
fn without_user_namespaces_the_lab_names_the_settings() {
    let scratch = Scratch::new();
    // Root of a namespace that may have no namespaces below, without the capability to do without.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces &&
        exec setpriv --bounding-set=-all --inh-caps=-all $GOODPUT doctor";
    let Some(wrapper) = usable(&["unshare", "-Ur"], &["setpriv", "true"]) else {
        return;
    };
    let ended = scratch.run(scratch.script(wrapper, script));
    let says = [
        "does not let you make network namespaces",
        "user.max_user_namespaces",
        "root",
    ];
    ended.fails_with(3, &says);
    scratch.assert_nothing_left();
}

#[test]
fn without_network_namespaces_the_lab_says_so() {
    let scratch = Scratch::new();
    let Some(wrapper) = usable(&["unshare", "-Ur"], &["true"]) else {
        return;
    };
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && exec $GOODPUT doctor";
    let ended = scratch.run(scratch.script(wrapper, script));
    ended.fails_with(3, &["does not let you make network namespaces"]);
    assert_eq!(scratch.run_json()["state"], "failed");
    scratch.assert_nothing_left();
}

#[test]
fn without_packet_sockets_the_lab_says_which_step_failed() {
    const WRAPPER: &[&str] = &["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"];
    if !is_root() {
        testing::skipped("only root keeps its capability for namespaces without that for sockets");
        return;
    }
    let Some(wrapper) = usable(WRAPPER, &["true"]) else {
        return;
    };
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.within(wrapper, &SHORT));
    ended.fails_with(
        3,
        &["cannot run the lab", "packet sockets", "not permitted"],
    );
    assert_eq!(scratch.run_json()["state"], "failed");
    scratch.assert_nothing_left();
}

#[test]
fn a_run_folder_that_must_not_be_made_says_where_and_what_to_do() {
    let scratch = Scratch::new();
    let Some(wrapper) = (if is_root() {
        as_nobody()
    } else {
        Some(&[][..])
    }) else {
        return;
    };
    let closed = scratch.path("runs");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
    let name = closed.display().to_string();
    let says = ["not permitted to create", &name, "choose another place"];
    let measure = ["measure", "127.0.0.1:1"];
    scratch
        .run(scratch.within(wrapper, &measure))
        .fails_with(3, &says);
    // Root of the lab's user namespace may write where its own user must not.
    if is_root() {
        scratch
            .run(scratch.within(wrapper, &SHORT))
            .fails_with(3, &says);
    }
    assert!(run_folders(&closed).is_empty());
    scratch.assert_nothing_left();
}

#[test]
fn a_file_in_place_of_the_folder_for_runs_is_refused() {
    let scratch = Scratch::new();
    scratch.write("runs", "a file");
    let ended = scratch.run(scratch.goodput(&SHORT));
    ended.fails_with(3, &[&scratch.runs().display().to_string()]);
    scratch.assert_nothing_left();
}

#[test]
fn a_disk_that_is_full_from_the_start_is_named() {
    let Some(wrapper) = with_own_mounts() else {
        return;
    };
    let scratch = Scratch::new();
    // The fill's own failure is what is wanted.
    let script = "mkdir $DIR/runs && mount -t tmpfs -o size=64k tmpfs $DIR/runs &&
        { head -c 1M /dev/zero > $DIR/runs/fill 2>/dev/null; exec $GOODPUT doctor; }";
    let ended = scratch.run(scratch.script(wrapper, script));
    ended.fails_with(3, &["is full", &scratch.runs().display().to_string()]);
    scratch.assert_nothing_left();
}

#[test]
fn a_disk_that_fills_up_in_mid_run_leaves_a_run_that_reads() {
    let Some(wrapper) = with_own_mounts() else {
        return;
    };
    let scratch = Scratch::new();
    // Room for run.json and not for the samples; what is there is looked at after the disk is gone.
    let script = "mkdir $DIR/runs && mount -t tmpfs -o size=64k tmpfs $DIR/runs || exit 99
        $GOODPUT doctor -d 2s --ramp 500ms --no-fix; code=$?
        cp -r $DIR/runs/* $DIR/kept || exit 98
        exit $code";
    let ended = scratch.run(scratch.script(wrapper, script));
    ended.fails_with(3, &["is full", &scratch.runs().display().to_string()]);
    let run = json(&scratch.path("kept/run.json"));
    assert_ne!(run["state"], "done", "{run:#}");
    scratch.run(scratch.goodput(&["report", "kept"])).succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn a_full_disk_behind_stdout_is_a_failure_and_a_closed_pipe_is_none() {
    let scratch = Scratch::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    for args in [&["reproduce"][..], &["man"], &["completions", "bash"]] {
        let mut command = scratch.goodput(args);
        command.stdout(full.try_clone().unwrap());
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {stderr}");
        assert!(stderr.contains("cannot write to stdout"), "{stderr}");
    }
    for args in ["reproduce", "man", "completions bash", "--help"] {
        let script = format!("{{ $GOODPUT {args}; echo $? > $DIR/code; }} | true");
        let ended = scratch.run(scratch.script(&[], &script));
        assert_eq!(ended.stderr, "", "{args}");
        let code = fs::read_to_string(scratch.path("code")).unwrap();
        assert_eq!(code.trim(), "0", "{args}");
    }
}

#[test]
fn a_port_that_is_taken_or_reserved_is_named() {
    let scratch = Scratch::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = scratch.run(scratch.goodput(&["serve", "--listen", &address]));
    ended.fails_with(3, &["cannot listen on", &address]);
    let ended = scratch.run(scratch.goodput(&["serve", "--listen", "192.0.2.1:5210"]));
    ended.fails_with(3, &["cannot listen on 192.0.2.1:5210"]);
}

#[test]
fn doctor_needs_no_root() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let Some(wrapper) = (if is_root() {
        as_nobody()
    } else {
        Some(&[][..])
    }) else {
        return;
    };
    if is_root() {
        scratch.give_to_nobody("runs");
    }
    let mut command = scratch.within(wrapper, &SHORT);
    command.arg("--json");
    let ended = scratch.run(command);
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    let run = ended.json();
    assert_verdict(&run, ended.code(), &["receive_window", "send_buffer"]);
    assert_eq!(run, scratch.run_json());
    assert_eq!(run["phases"].as_array().unwrap().len(), 1);
    scratch.assert_nothing_left();
}

#[test]
fn a_disk_without_room_leaves_no_folder_that_cannot_be_read() {
    let scratch = Scratch::new();
    // No file may be written to (setrlimit(2), RLIMIT_FSIZE), which includes what is said.
    let script = "trap '' XFSZ && ulimit -f 0 && exec $GOODPUT measure 127.0.0.1:1 2>/dev/null";
    let ended = scratch.run(scratch.script(&[], script));
    assert_eq!(ended.code(), 3, "{ended:#?}");
    assert!(scratch.runs().is_dir());
    assert!(run_folders(&scratch.runs()).is_empty());
    scratch.assert_nothing_left();
}
