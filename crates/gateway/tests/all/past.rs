//! A rule that splits only what is likely to carry much.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use crate::net::{Net, SERVER, until};
use gateway::Gateway;
use gateway::config::Config;

/// One connection to the same port, which carries so much.
fn carry(net: &Net, listener: &TcpListener, to: SocketAddr, bytes: usize) {
    let mut near = net.connect(to).unwrap();
    let mut far = listener.accept().unwrap().0;
    let sent: Vec<u8> = (0..bytes).map(|n| u8::try_from(n % 251).unwrap()).collect();
    near.write_all(&sent).unwrap();
    let mut got = vec![0; bytes];
    far.read_exact(&mut got).unwrap();
    assert!(got == sent);
}

/// Split connections, once all of them have ended.
fn split(gateway: &Gateway) -> u64 {
    until(gateway, "all ended", |c| c.ended == c.split && c.live == 0).split
}

#[test]
fn after_small_ones_the_next_pass_until_one_is_found_large() {
    let Some(net) = Net::new() else { return };
    let mut config = Net::config();
    let rule = Config::parse("[[rule]]\naction = 'split'\nmin-bytes = '1KiB'").unwrap();
    config.rules = rule.rules;
    let gateway = net.gateway(config);
    let (listener, to) = net.listen(SERVER);
    for n in 1..=8 {
        carry(&net, &listener, to, 100);
        until(&gateway, "it ended", |c| c.ended == n);
    }
    assert_eq!(gateway.counts().bypassed, 0);
    // About one in sixteen is split to look again.
    for _ in 0..40 {
        carry(&net, &listener, to, 100);
    }
    let passed = gateway.counts().bypassed;
    let before = split(&gateway);
    assert!(passed > 0);
    assert_eq!(passed + before, 48);
    // Another port is not known.
    let (other, to_other) = net.listen(SERVER);
    carry(&net, &other, to_other, 100);
    assert_eq!(split(&gateway), before + 1);
    // Of large ones the first that is looked at is remembered, and all are split from then on.
    for _ in 0..2_000 {
        carry(&net, &listener, to, 2_000);
        if split(&gateway) > before + 1 {
            break;
        }
    }
    let (found, passed) = (split(&gateway), gateway.counts().bypassed);
    assert_eq!(found, before + 2);
    for _ in 0..7 {
        carry(&net, &listener, to, 100);
        split(&gateway);
    }
    let counts = gateway.counts();
    assert_eq!((counts.split, counts.bypassed), (found + 7, passed));
}
