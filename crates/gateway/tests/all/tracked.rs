//! A gateway on a machine whose firewall goes by connection tracking.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::net::*;

/// Has nft(8) read rules in the gateway's namespace; `false` where there is none, or the kernel lacks what they take.
fn firewall(net: &Net, rules: &str) -> bool {
    let mut nft = Command::new("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped());
    let Ok(mut child) = net.middle.place(&mut nft).unwrap().spawn() else {
        testing::skipped("no nft");
        return false;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(rules.as_bytes()).unwrap();
    drop(stdin);
    let taken = child.wait().unwrap().success();
    if !taken {
        testing::skipped("this kernel has no connection tracking for nftables");
    }
    taken
}

/// As most firewalls begin.
const INVALID_DROPPED: &str = "
table inet firewall {
    chain input {
        type filter hook input priority 0
        ct state invalid drop
    }
    chain output {
        type filter hook output priority 0
        ct state invalid drop
    }
    chain forward {
        type filter hook forward priority 0
        ct state invalid drop
    }
}
";

#[test]
fn a_firewall_that_drops_what_is_invalid_lets_both_halves_pass() {
    let Some(net) = Net::new() else { return };
    if !firewall(&net, INVALID_DROPPED) {
        return;
    }
    let gateway = net.gateway(Net::config());
    let sent = vec![0x5a; 300_000];
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let begun = Instant::now();
        let (mut near, mut far) = net.pair();
        slowest = slowest.max(begun.elapsed());
        let writing = {
            let (mut end, sent) = (near.try_clone().unwrap(), sent.clone());
            std::thread::spawn(move || {
                end.write_all(&sent).unwrap();
                end.shutdown(Shutdown::Write).unwrap();
            })
        };
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).unwrap();
        writing.join().unwrap();
        assert!(heard == sent);
        far.write_all(&sent).unwrap();
        drop(far);
        let mut heard = Vec::new();
        near.read_to_end(&mut heard).unwrap();
        assert!(heard == sent);
    }
    eprintln!("slowest handshake: {slowest:?}");
    let counts = until(&gateway, "they end", |c| c.live == 0);
    assert_eq!((counts.split, counts.ended, counts.reset), (5, 5, 0));
}
