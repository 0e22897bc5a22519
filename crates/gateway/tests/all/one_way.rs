//! Routes on which the client's packets pass the gateway and the server's do not.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use crate::net::*;
use gateway::check::{Level, ways};
use sys::netlink::{Netlink, VethEnd};

/// A link from the server to the client around the gateway, for what the server sends.
fn shortcut(net: &Net) {
    let end = |mac, netns| VethEnd {
        name: "eth1",
        mac: [2, 0, 0, 3, 0, mac],
        netns,
    };
    let here = Ipv4Addr::new(198, 18, 3, 2);
    let here6 = Ipv6Addr::new(0xfd00, 0, 0, 3, 0, 0, 0, 2);
    let at_client = net.client.run(|| -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        netlink.add_veth(end(1, net.client.as_fd()), end(2, net.server.as_fd()))?;
        for scope in ["all", "default", "eth0", "eth1"] {
            fs::write(format!("/proc/sys/net/ipv4/conf/{scope}/rp_filter"), "0")?;
        }
        netlink.add_address("eth1", here, 24)?;
        netlink.add_address("eth1", here6, 64)?;
        netlink.set_up("eth1", None)
    });
    at_client.unwrap().unwrap();
    let at_server = net.server.run(|| -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        netlink.add_address("eth1", Ipv4Addr::new(198, 18, 3, 1), 24)?;
        netlink.add_address("eth1", Ipv6Addr::new(0xfd00, 0, 0, 3, 0, 0, 0, 1), 64)?;
        netlink.set_up("eth1", None)?;
        netlink.add_neighbour("eth1", here, [2, 0, 0, 3, 0, 1])?;
        netlink.add_neighbour("eth1", here6, [2, 0, 0, 3, 0, 1])?;
        netlink.add_route("eth1", CLIENT.into(), 32, here.into())?;
        netlink.add_route("eth1", CLIENT6.into(), 128, here6.into())
    });
    at_server.unwrap().unwrap();
}

fn serve(net: &Net, addr: IpAddr) -> (TcpStream, TcpStream) {
    let (listener, addr): (TcpListener, _) = net.listen(addr);
    let near = net.connect(addr).unwrap();
    let far = listener.accept().unwrap().0;
    (near, far)
}

#[test]
fn a_server_that_answers_by_another_way_is_reached_unsplit() {
    let Some(net) = Net::new() else { return };
    shortcut(&net);
    let gateway = net.gateway(Net::config());
    for (family, addr) in [IpAddr::from(SERVER), SERVER6.into()]
        .into_iter()
        .enumerate()
    {
        for turn in 0..3 {
            let (mut near, mut far) = serve(&net, addr);
            near.write_all(b"there").unwrap();
            let mut got = [0; 5];
            far.read_exact(&mut got).unwrap();
            far.write_all(b"back!").unwrap();
            near.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"back!");
            let counts = gateway.counts();
            // Found by the first one, which then goes on as the later ones.
            let before = family as u64;
            assert_eq!(counts.one_way, before + 1, "{addr} {turn}");
            assert_eq!(counts.split, 0);
            assert!(counts.passed_one_way > before * 3 + turn, "{counts:?}");
        }
    }
    until(&gateway, "nobody waits", |c| c.waiting == 0);
}

#[test]
fn others_are_split_meanwhile() {
    let Some(net) = Net::new() else { return };
    shortcut(&net);
    let gateway = net.gateway(Net::config());
    let _around = serve(&net, SERVER.into());
    assert_eq!(gateway.counts().one_way, 1);
    // IPv6 of the same hosts by both of the gateway's links.
    let back = net.server.run(|| {
        let mut netlink = Netlink::open()?;
        netlink.set_down("eth1")
    });
    back.unwrap().unwrap();
    let (mut near, mut far) = serve(&net, SERVER6.into());
    near.write_all(b"x").unwrap();
    far.read_exact(&mut [0]).unwrap();
    let counts = gateway.counts();
    assert_eq!((counts.split, counts.one_way), (1, 1));
}

#[test]
fn while_one_waits_in_vain_others_to_the_same_port_pass() {
    let Some(net) = Net::new() else { return };
    let gateway = net.gateway(Net::config());
    let connect = |patience| {
        let patience = std::time::Duration::from_millis(patience);
        let connect = || TcpStream::connect_timeout(&(SILENT, 9).into(), patience);
        net.client.run(connect).unwrap().map(drop)
    };
    connect(4_500).unwrap_err();
    let counts = until(&gateway, "the first waits", |c| c.waiting == 1);
    assert_eq!(counts.passed_silent, 0);
    connect(100).unwrap_err();
    let counts = until(&gateway, "the second passes", |c| c.passed_silent == 1);
    assert_eq!((counts.waiting, counts.one_way), (1, 0));
}

#[test]
fn a_way_that_leads_out_of_the_wrong_side_is_told_beforehand() {
    let Some(net) = Net::new() else { return };
    let elsewhere = IpAddr::from([10, 0, 0, 1]);
    let wrong = net.middle.run(|| -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        netlink.add_route("out0", elsewhere, 32, SERVER.into())
    });
    wrong.unwrap().unwrap();
    let config = Net::config();
    let look = |inside: IpAddr, outside: IpAddr| {
        let look = || ways(&config, Some(inside), Some(outside));
        net.middle.run(look).unwrap()
    };
    let fine = look(CLIENT.into(), SERVER.into());
    assert!(fine.iter().all(|c| c.level == Level::Fine), "{fine:?}");
    let poor = look(elsewhere, SERVER6.into());
    assert_eq!(poor[0].level, Level::Poor);
    assert!(
        poor[0].what.contains("out0, which is not inside"),
        "{poor:?}"
    );
    assert_eq!(poor[1].level, Level::Fine);
    let none = look([192, 0, 2, 1].into(), SERVER.into());
    assert!(none[0].what.starts_with("there is no way"), "{none:?}");
}
