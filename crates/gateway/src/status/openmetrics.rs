//! A status for collectors that read OpenMetrics 1.0.

use run::model::GatewayHalf;
use units::Duration;
use units::openmetrics::{Kind, Text};

use super::{Status, Sums};
use crate::buffers::Decision;
use crate::counters::{Counts, HELD_MS};
use crate::links::LinkStatus;

/// All of a status.
pub(super) fn text(status: &Status) -> String {
    let mut text = Text::default();
    text.family("goodput_gateway_build", Kind::Info, "", "The program.")
        .row(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    for family in &COUNTED {
        family.write(&status.counts, &mut text);
    }
    links(&status.links, &mut text);
    buffers(&status.buffers, &mut text);
    held(&status.counts, &mut text);
    if let Some(sums) = &status.sums {
        measured(sums, &mut text);
    }
    text.end()
}

/// A count by itself.
type Count = fn(&Counts) -> u64;

/// A family out of the gateway's counts.
struct Counted {
    /// Behind `goodput_gateway_`.
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// The label that tells rows apart; none where there is one row.
    label: &'static str,
    /// The label's value, and the count.
    rows: &'static [(&'static str, Count)],
}

impl Counted {
    fn write(&self, counts: &Counts, text: &mut Text) {
        let unit = match self.name.ends_with("_bytes") {
            true => "bytes",
            false => "",
        };
        let name = format!("goodput_gateway_{}", self.name);
        let mut family = text.family(&name, self.kind, unit, self.help);
        for (value, count) in self.rows {
            match self.label {
                "" => family.row(&[], count(counts)),
                label => family.row(&[(label, value)], count(counts)),
            }
        }
    }
}

/// What the counts are called.
const COUNTED: [Counted; 19] = [
    Counted {
        name: "connections_open",
        kind: Kind::Gauge,
        help: "Split connections now.",
        label: "",
        rows: &[("", |c| c.live)],
    },
    Counted {
        name: "connections",
        kind: Kind::Counter,
        help: "Connections that were split.",
        label: "",
        rows: &[("", |c| c.split)],
    },
    Counted {
        name: "ends",
        kind: Kind::Counter,
        help: "Split connections that ended.",
        label: "how",
        rows: &[("orderly", |c| c.ended), ("reset", |c| c.reset)],
    },
    Counted {
        name: "unsplit",
        kind: Kind::Counter,
        help: "SYNs that passed unsplit.",
        label: "why",
        rows: &[
            ("rule", |c| c.bypassed),
            ("limit", |c| c.over_limit),
            ("failure", |c| c.failed),
            ("one-way", |c| c.passed_one_way),
            ("silence", |c| c.passed_silent),
            ("sample", |c| c.sampled),
        ],
    },
    Counted {
        name: "refusals",
        kind: Kind::Counter,
        help: "SYNs that were answered as the server or the network answered.",
        label: "why",
        rows: &[
            ("rule", |c| c.forbidden),
            ("refused", |c| c.refused),
            ("unreachable", |c| c.unreachable),
            ("silent", |c| c.silent),
            ("loop", |c| c.looped),
        ],
    },
    Counted {
        name: "one_way",
        kind: Kind::Counter,
        help: "Pairs of hosts found whose answers take another way.",
        label: "",
        rows: &[("", |c| c.one_way)],
    },
    Counted {
        name: "abandoned",
        kind: Kind::Counter,
        help: "Servers that had accepted when the client was gone.",
        label: "",
        rows: &[("", |c| c.abandoned)],
    },
    Counted {
        name: "syns_waiting",
        kind: Kind::Gauge,
        help: "SYNs that wait for their server.",
        label: "",
        rows: &[("", |c| c.waiting)],
    },
    Counted {
        name: "undelivered_bytes",
        kind: Kind::Counter,
        help: "Bytes acknowledged to one end of connections that were reset, and not by the other end.",
        label: "",
        rows: &[("", |c| c.bytes_undelivered)],
    },
    Counted {
        name: "undelivered_connections",
        kind: Kind::Counter,
        help: "Connections that were reset with such bytes.",
        label: "",
        rows: &[("", |c| c.undelivered)],
    },
    Counted {
        name: "last_acks_held",
        kind: Kind::Gauge,
        help: "Connections whose last ACK waits for the other side's.",
        label: "",
        rows: &[("", |c| c.acks_held)],
    },
    Counted {
        name: "carried_bytes",
        kind: Kind::Counter,
        help: "Bytes carried.",
        label: "direction",
        rows: &[
            ("outward", |c| c.bytes_outward),
            ("inward", |c| c.bytes_inward),
        ],
    },
    Counted {
        name: "urgent_bytes",
        kind: Kind::Counter,
        help: "Urgent bytes carried.",
        label: "",
        rows: &[("", |c| c.urgent)],
    },
    Counted {
        name: "other_port",
        kind: Kind::Counter,
        help: "Connections that went on from another port than their client's.",
        label: "",
        rows: &[("", |c| c.other_port)],
    },
    Counted {
        name: "accept_rests",
        kind: Kind::Counter,
        help: "Times nothing was accepted for a moment: no descriptor or no memory left.",
        label: "",
        rows: &[("", |c| c.accept_rests)],
    },
    Counted {
        name: "copies",
        kind: Kind::Counter,
        help: "Times bytes went by copying since no pipe was left.",
        label: "",
        rows: &[("", |c| c.copies)],
    },
    Counted {
        name: "pipes",
        kind: Kind::Gauge,
        help: "Pipes that exist.",
        label: "",
        rows: &[("", |c| c.pipes)],
    },
    Counted {
        name: "pipes_filled_bytes",
        kind: Kind::Gauge,
        help: "Bytes in pipes.",
        label: "",
        rows: &[("", |c| c.in_pipes)],
    },
    Counted {
        name: "options_refused",
        kind: Kind::Counter,
        help: "Socket options that the kernel refused.",
        label: "",
        rows: &[("", |c| c.options_refused)],
    },
];

/// Of sides that have several.
fn links(links: &[LinkStatus], text: &mut Text) {
    type Of = fn(&LinkStatus) -> u64;
    if links.is_empty() {
        return;
    }
    let families: [(&str, Kind, &str, Of); 3] = [
        (
            "link_alive",
            Kind::Gauge,
            "Links of sides that have several: 1 where new connections may go by it.",
            |l| u64::from(l.alive),
        ),
        (
            "link_connections_open",
            Kind::Gauge,
            "Connections on a link.",
            |l| l.connections,
        ),
        (
            "link_connections",
            Kind::Counter,
            "Connections that were ever placed on a link.",
            |l| l.placed,
        ),
    ];
    for (name, kind, help, value) in families {
        let mut family = text.family(&format!("goodput_gateway_{name}"), kind, "", help);
        for link in links {
            let labels = [("side", link.side.as_str()), ("interface", &link.interface)];
            family.row(&labels, value(link));
        }
    }
}

/// Buffers that were set; what is left to the kernel has no row.
fn buffers(decisions: &[Decision], text: &mut Text) {
    let set = |d: &Decision| d.send_bytes.is_some() || d.receive_bytes.is_some();
    if !decisions.iter().any(set) {
        return;
    }
    let mut family = text.family(
        "goodput_gateway_buffer_bytes",
        Kind::Gauge,
        "bytes",
        "Buffers that new connections of a way get since the kernel's tuning would be too small.",
    );
    for Decision {
        side,
        hosts,
        send_bytes,
        receive_bytes,
        ..
    } in decisions
    {
        for (what, bytes) in [("send", send_bytes), ("receive", receive_bytes)] {
            let labels = [("side", side.as_str()), ("hosts", hosts), ("buffer", what)];
            if let Some(bytes) = bytes {
                family.row(&labels, bytes);
            }
        }
    }
}

/// Each held SYN became a connection.
fn held(c: &Counts, text: &mut Text) {
    let mut family = text.family(
        "goodput_gateway_held_seconds",
        Kind::Histogram,
        "seconds",
        "Times that SYNs were held until their server had answered.",
    );
    for (ms, within) in HELD_MS.into_iter().zip(c.held_within()) {
        let le = format!("{:?}", Duration::from_ms(ms).as_s_f64());
        family.row_of("_bucket", &[("le", &le)], within);
    }
    family.row_of("_bucket", &[("le", "+Inf")], c.split);
    family.row_of("_count", &[], c.split);
    let (seconds, rest) = (c.held_ns / 1_000_000_000, c.held_ns % 1_000_000_000);
    family.row_of("_sum", &[], format_args!("{seconds}.{rest:09}"));
}

/// What the busiest connections came to. What is not known has no row.
fn measured(sums: &Sums, text: &mut Text) {
    let mut gauge = |name: &str, unit: &str, help: &str, label: &str, rows: &[(&str, f64)]| {
        if rows.is_empty() {
            return;
        }
        let name = format!("goodput_gateway_{name}_{unit}");
        let mut family = text.family(&name, Kind::Gauge, unit, help);
        for (value, number) in rows {
            match label {
                "" => family.row(&[], number),
                label => family.row(&[(label, value)], number),
            }
        }
    };
    let [outward, inward] = sums.rates_bps.map(as_f64);
    let help = "What the busiest connections carried in the last second.";
    let ways = [("outward", outward), ("inward", inward)];
    gauge("busiest", RATE, help, "direction", &ways);
    for (name, unit, help, value) in [
        (
            "busiest_carried",
            RATE,
            "What they carried while anything moved.",
            sums.carried_bps.map(as_f64),
        ),
        (
            "busiest_unsplit",
            RATE,
            "What of it they would have carried unsplit, by the model.",
            sums.unsplit_bps.map(as_f64),
        ),
        ("gain", RATIO, "The one over the other.", sums.gain),
    ] {
        gauge(name, unit, help, "", value.map(|v| ("", v)).as_slice());
    }
    for (name, unit, help, value) in HALVES {
        let halves = sums.halves.iter();
        let rows = halves.filter_map(|h| Some((h.side.as_str(), value(h)?)));
        gauge(name, unit, help, "side", &rows.collect::<Vec<_>>());
    }
}

/// A gauge with a row for each side's halves: name, unit, help, and the value where it is known.
type OfHalf = (
    &'static str,
    &'static str,
    &'static str,
    fn(&GatewayHalf) -> Option<f64>,
);

const HALVES: [OfHalf; 6] = [
    (
        "half_rtt",
        SECONDS,
        "Round trip of the halves of a side, by the bytes that they sent.",
        |h| h.rtt_ns.map(seconds),
    ),
    ("half_min_rtt", SECONDS, "Their smallest round trip.", |h| {
        h.min_rtt_ns.map(seconds)
    }),
    (
        "half_acknowledged",
        RATE,
        "What they had acknowledged while they sent.",
        |h| h.acknowledged_bits_per_second.map(as_f64),
    ),
    (
        "half_held_by_receiver",
        RATIO,
        "Share of the time with data outstanding in which their receivers' windows held them.",
        |h| h.rtt_ns.map(|_| h.receiver_share),
    ),
    (
        "half_held_by_buffer",
        RATIO,
        "The same of their own send buffers.",
        |h| h.rtt_ns.map(|_| h.buffer_share),
    ),
    (
        "half_retransmitted",
        RATIO,
        "Share of their segments that were sent again.",
        |h| h.rtt_ns.map(|_| h.retransmitted_share),
    ),
];

const RATE: &str = "bits_per_second";
const SECONDS: &str = "seconds";
const RATIO: &str = "ratio";

#[allow(clippy::cast_precision_loss, reason = "rates and times, for a chart")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

fn seconds(ns: u64) -> f64 {
    as_f64(ns) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_families_with_their_units() {
        let counts = Counts {
            split: 3,
            held_ns: 1_500_000_000,
            held_1ms: 1,
            held_1s: 1,
            bytes_inward: 9,
            accept_rests: 4,
            copies: 5,
            ..Counts::default()
        };
        let status = Status::of(counts, Vec::new());
        assert!(!text(&status).contains("link_alive"));
        let link = LinkStatus {
            side: "outside".to_owned(),
            interface: "eth2".to_owned(),
            alive: true,
            answers: false,
            connections: 2,
            placed: 7,
            answer_ns: 0,
        };
        assert!(!text(&status).contains("gain"));
        let half = GatewayHalf {
            side: "outside".to_owned(),
            rtt_ns: Some(50_000_000),
            receiver_share: 0.25,
            ..GatewayHalf::default()
        };
        let sums = Sums {
            rates_bps: [8_000, 0],
            carried_bps: Some(900_000_000),
            unsplit_bps: Some(90_000_000),
            gain: Some(10.0),
            halves: vec![half],
        };
        let way = Decision {
            side: "outside".to_owned(),
            hosts: "10.9.2.0/24".to_owned(),
            rtt_us: 50_000,
            sent_bps: 937_000_000,
            received_bps: 0,
            send_bytes: Some(12 << 20),
            receive_bytes: None,
            why: "needs 12 MiB".to_owned(),
        };
        let status = status.with_links(vec![link]).with_sums(Some(sums));
        let text = text(&status.with_buffers(vec![way]));
        for line in [
            "goodput_gateway_link_alive{side=\"outside\",interface=\"eth2\"} 1",
            "goodput_gateway_link_connections_total{side=\"outside\",interface=\"eth2\"} 7",
            "goodput_gateway_connections_total 3",
            "goodput_gateway_carried_bytes_total{direction=\"inward\"} 9",
            "# UNIT goodput_gateway_carried_bytes bytes",
            "goodput_gateway_held_seconds_sum 1.500000000",
            "# TYPE goodput_gateway_held_seconds histogram",
            "goodput_gateway_held_seconds_bucket{le=\"0.001\"} 1",
            "goodput_gateway_held_seconds_bucket{le=\"0.1\"} 1",
            "goodput_gateway_held_seconds_bucket{le=\"1.0\"} 2",
            "goodput_gateway_held_seconds_bucket{le=\"10.0\"} 2",
            "goodput_gateway_held_seconds_bucket{le=\"+Inf\"} 3",
            "goodput_gateway_held_seconds_count 3",
            "goodput_gateway_accept_rests_total 4",
            "goodput_gateway_copies_total 5",
            "goodput_gateway_busiest_bits_per_second{direction=\"outward\"} 8000",
            "goodput_gateway_busiest_unsplit_bits_per_second 90000000",
            "goodput_gateway_gain_ratio 10",
            "# UNIT goodput_gateway_gain_ratio ratio",
            "goodput_gateway_half_rtt_seconds{side=\"outside\"} 0.05",
            "goodput_gateway_half_held_by_receiver_ratio{side=\"outside\"} 0.25",
            "goodput_gateway_buffer_bytes{side=\"outside\",hosts=\"10.9.2.0/24\",buffer=\"send\"} 12582912",
            "# UNIT goodput_gateway_buffer_bytes bytes",
            "goodput_gateway_unsplit_total{why=\"limit\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
