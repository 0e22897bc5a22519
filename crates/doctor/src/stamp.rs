//! Probes to a STAMP reflector (RFC 8762), goodput's or another's.

use std::net::SocketAddr;

use explain::one_way::{self, Delays, OneWay};
use measure::stamp::{Answer, Probed, Probing, Reflector, STAMP_PORT, probe_by};
use measure::{Approach, MeasureError};
use report::model::{ClockRecord, DelayRecord, StampRecord};
use units::Duration;

use crate::session::{Site, beside};
use fault::Failure;
use job::Context;
use job::target::Target;

/// What to probe, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A lab path, or a host, maybe with a port, that has a reflector.
    pub target: Target,
    /// How to come to it.
    pub approach: Approach,
    /// Probes to send.
    pub count: u32,
    /// Time between two of them.
    pub interval: Duration,
}

/// What probes told.
#[derive(Clone, Debug)]
pub struct Told {
    /// Losses, delays and clocks.
    pub record: StampRecord,
    /// Answers that came.
    pub replies: usize,
}

impl Told {
    /// Nobody who answers is a failure of the far end.
    ///
    /// # Errors
    ///
    /// Where none of the probes was answered.
    pub fn check(&self) -> Result<(), Failure> {
        if self.replies > 0 {
            return Ok(());
        }
        Err(MeasureError::FarFailed(format!(
            "none of {} probes was answered; start `goodput serve --stamp` there, or open its UDP port",
            self.record.sent
        ))
        .into())
    }
}

/// Sends probes, or as many as the user lets it; in a lab to a reflector on its far host.
///
/// # Examples
///
/// ```no_run
/// use doctor::stamp::{self, Plan};
///
/// let context = job::Context::start(|| {})?;
/// let plan = Plan {
///     target: job::Target::Host("router.example.org".to_owned()),
///     approach: measure::Approach::default(),
///     count: 1000,
///     interval: stamp::INTERVAL,
/// };
/// let told = stamp::perform(plan, &context)?;
/// told.check()?;
/// println!("{:?}", told.record.round_trip);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn perform(plan: Plan, context: &Context) -> Result<Told, Failure> {
    let probing = Probing {
        count: plan.count,
        interval: plan.interval,
        ..Probing::default()
    };
    let probed = match plan.target {
        Target::Host(host) => probe_by(&plan.approach, &host, &probing, &context.stop)?,
        lab => in_lab(lab, &plan.approach, &probing, context)?,
    };
    let told = one_way::one_way(probed.sent, &replies(&probed));
    Ok(Told {
        record: record(&probed, &told),
        replies: probed.replies.len(),
    })
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
        return Err(Failure::usage(format!("'{name}' is no lab")));
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

/// Default time between probes.
pub const INTERVAL: Duration = Duration::from_ms(10);
