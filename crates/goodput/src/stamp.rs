//! `goodput measure stamp://HOST`: probes to a STAMP reflector (RFC 8762), goodput's or another's.

use std::fmt::Write as _;
use std::net::SocketAddr;

use explain::one_way::{self, Delays, OneWay};
use measure::stamp::{Answer, Probed, Probing, Reflector, STAMP_PORT, probe_by};
use measure::{Approach, MeasureError};
use report::model::{ClockRecord, DelayRecord, StampRecord};
use units::Duration;

use crate::cli::MeasureArgs;
use crate::context::{self, Context};
use crate::doctor;
use crate::failure::{self, Failure, Verdict};
use crate::session::{Site, beside};
use crate::target::Target;

/// Sends probes and says what they tell. Nobody who answers is a failure of the far end.
pub(crate) fn command(args: &MeasureArgs, target: &str, context: &Context) -> Verdict {
    let probing = Probing {
        count: args.count,
        interval: args.interval,
        ..Probing::default()
    };
    let parsed = match target.starts_with("lab:") {
        true => Target::parse(Some(target))?,
        false => Target::Host(target.to_owned()),
    };
    let approach = doctor::approach(&args.transfer.approach, &parsed)?;
    let probed = match parsed {
        Target::Lab(_) => in_lab(parsed, &approach, &probing, context)?,
        _ => probe_by(&approach, target, &probing, &context.stop)?,
    };
    let told = one_way::one_way(probed.sent, &replies(&probed));
    let record = record(&probed, &told);
    if args.transfer.json {
        context::print_json(&record)?;
    } else {
        context::print(&sentences(&record))?;
    }
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    if probed.replies.is_empty() {
        return Err(MeasureError::FarFailed(format!(
            "none of {} probes was answered; start `goodput serve --stamp` there, or open its UDP port",
            probed.sent
        ))
        .into());
    }
    Ok(failure::DONE)
}

/// A reflector on the lab's far host, and the probes from its near one.
fn in_lab(
    target: Target,
    approach: &Approach,
    probing: &Probing,
    context: &Context,
) -> Result<Probed, Failure> {
    let name = target.name();
    let Site::Lab { lab, .. } = Site::open(target, approach)? else {
        return Err(Failure::usage(anyhow::anyhow!("'{name}' is no lab")));
    };
    let address = SocketAddr::from((lab.far().address(), STAMP_PORT));
    beside(
        &lab,
        |ready, stop| match Reflector::bind(address) {
            Ok(reflector) => {
                let _ = ready.send(Ok(()));
                reflector.serve(stop)
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                Ok(())
            }
        },
        || probe_by(approach, &address.to_string(), probing, &context.stop),
    )
}

fn replies(probed: &Probed) -> Vec<one_way::Reply> {
    let reply = |a: &Answer| one_way::Reply {
        sender_sequence: a.sender_sequence,
        reflector_sequence: a.reflector_sequence,
        t1_ns: a.t1_ns,
        t2_ns: a.t2_ns,
        t3_ns: a.t3_ns,
        t4_ns: a.t4_ns,
        error_ns: a.error_ns,
    };
    probed.replies.iter().map(reply).collect()
}

fn record(probed: &Probed, told: &OneWay) -> StampRecord {
    let delays = |d: Option<Delays>| {
        d.map(|d| {
            let (variation_median_ns, variation_p99_ns) = d.variation_ns();
            DelayRecord {
                min_ns: d.min_ns,
                median_ns: d.median_ns,
                p99_ns: d.p99_ns,
                max_ns: d.max_ns,
                variation_median_ns,
                variation_p99_ns,
            }
        })
    };
    let fates = told.fates;
    StampRecord {
        reflector: probed.addr.map(|a| a.to_string()).unwrap_or_default(),
        sent: fates.sent,
        answered: fates.answered,
        forward_lost: fates.directions_known.then_some(fates.forward_lost),
        backward_lost: fates.directions_known.then_some(fates.backward_lost),
        lost_somewhere: fates.lost_somewhere,
        forward_duplicates: fates.forward_duplicates,
        backward_duplicates: fates.backward_duplicates,
        forward_reordered: fates.forward_reordered,
        backward_reordered: fates.backward_reordered,
        implausible: told.implausible,
        strangers: probed.strangers,
        kernel_stamped: probed.kernel_stamped,
        hops_left: probed.replies.last().map(|a| a.hops_left),
        near_synchronised: probed.near_synchronised,
        far_synchronised: probed.far_synchronised,
        round_trip: delays(told.round_trip),
        forward: delays(told.forward),
        backward: delays(told.backward),
        clocks: told.clocks.map(|c| ClockRecord {
            offset_ns: c.offset_ns.value,
            offset_uncertainty_ns: c.offset_ns.uncertainty,
            drift_ppm: c.drift_ppm.map(|d| d.value),
            drift_uncertainty_ppm: c.drift_ppm.map(|d| d.uncertainty),
            at_ns: c.middle.as_ns(),
            points: c.points,
        }),
    }
}

fn sentences(r: &StampRecord) -> String {
    let mut text = String::new();
    let ms = |ns: i64| format!("{:.3} ms", ns as f64 / 1e6);
    let _ = writeln!(
        text,
        "{}: {} of {} probes answered",
        r.reflector, r.answered, r.sent
    );
    let lost = match (r.forward_lost, r.backward_lost) {
        (Some(there), Some(back)) => {
            format!(
                "lost there {there}, back {back}, unknown where {}",
                r.lost_somewhere
            )
        }
        _ => format!(
            "lost {}; the reflector's numbers do not tell which way",
            r.lost_somewhere
        ),
    };
    let _ = writeln!(text, "  {lost}");
    let _ = writeln!(
        text,
        "  reordered there {}, back {}; duplicates there {}, back {}",
        r.forward_reordered, r.backward_reordered, r.forward_duplicates, r.backward_duplicates
    );
    let mut row = |name: &str, d: &Option<DelayRecord>| {
        if let Some(d) = d {
            let _ = writeln!(
                text,
                "  {name:<10} min {}, median {}, p99 {}, max {}; varies by {} (median), {} (p99)",
                ms(d.min_ns),
                ms(d.median_ns),
                ms(d.p99_ns),
                ms(d.max_ns),
                ms(d.variation_median_ns),
                ms(d.variation_p99_ns),
            );
        }
    };
    row("round trip", &r.round_trip);
    row("there", &r.forward);
    row("back", &r.backward);
    if let Some(c) = &r.clocks {
        let drift = match (c.drift_ppm, c.drift_uncertainty_ppm) {
            (Some(ppm), Some(within)) => format!(", drifting {ppm:+.2} ppm (within {within:.2})"),
            _ => ", too short to see it drift".to_owned(),
        };
        let _ = writeln!(
            text,
            "  the far clock is ahead by {:+.3} ms, within {:.3} ms{drift}",
            c.offset_ns / 1e6,
            c.offset_uncertainty_ns / 1e6,
        );
        let _ = writeln!(
            text,
            "  Delays there and back are each within {:.3} ms too: probes cannot see how unequal the two \
             ways are, a constant\n  difference looks like an offset of the clocks. Sums and variations \
             do not depend on it.",
            c.offset_uncertainty_ns / 1e6
        );
    }
    text
}

/// Default time between probes.
pub(crate) const INTERVAL: Duration = Duration::from_ms(10);
