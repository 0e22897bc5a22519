//! Names that stand for numbers in filters.

/// A port by its name in IANA's registry; the common ones only.
pub(super) fn port(name: &str) -> Option<u32> {
    find(&PORTS, name)
}

/// An IP protocol by its name.
pub(super) fn protocol(name: &str) -> Option<u32> {
    find(&PROTOCOLS, name)
}

/// An EtherType by its name.
pub(super) fn ether_type(name: &str) -> Option<u32> {
    find(&ETHER_TYPES, name)
}

/// A number that expressions know by a name: offsets of fields, flags and types (pcap-filter(7)).
pub(super) fn constant(name: &str) -> Option<u32> {
    find(&CONSTANTS, name)
}

/// True for words of the language that are not understood here.
pub(super) fn is_left_out(name: &str) -> bool {
    LEFT_OUT.contains(&name)
}

fn find(table: &[(&str, u32)], name: &str) -> Option<u32> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|&(_, number)| number)
}

const PORTS: [(&str, u32); 40] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("time", 37),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap2", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("bgp", 179),
    ("ptp-event", 319),
    ("ptp-general", 320),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("syslog", 514),
    ("submission", 587),
    ("ldaps", 636),
    ("rsync", 873),
    ("imaps", 993),
    ("pop3s", 995),
    ("nfs", 2049),
    ("mysql", 3306),
    ("rdp", 3389),
    ("vxlan", 4789),
    ("sip", 5060),
    ("mdns", 5353),
    ("postgresql", 5432),
];

/// IANA, "Assigned Internet Protocol Numbers".
const PROTOCOLS: [(&str, u32); 14] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
];

/// IEEE registry of EtherTypes.
const ETHER_TYPES: [(&str, u32); 7] = [
    ("ip", 0x0800),
    ("arp", 0x0806),
    ("rarp", 0x8035),
    ("vlan", 0x8100),
    ("ip6", 0x86dd),
    ("lldp", 0x88cc),
    ("ptp", 0x88f7),
];

const CONSTANTS: [(&str, u32); 38] = [
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
];

const LEFT_OUT: [&str; 36] = [
    "aarp",
    "action",
    "atalk",
    "carp",
    "clnp",
    "decnet",
    "dir",
    "esis",
    "gateway",
    "geneve",
    "ifname",
    "igrp",
    "inbound",
    "ipx",
    "isis",
    "iso",
    "lat",
    "llc",
    "moprc",
    "mopdl",
    "mpls",
    "netbeui",
    "on",
    "outbound",
    "pppoed",
    "pppoes",
    "protochain",
    "reason",
    "rnr",
    "rset",
    "rulenum",
    "stp",
    "subtype",
    "type",
    "wlan",
    "fddi",
];
