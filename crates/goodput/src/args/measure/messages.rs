//! `goodput measure --messages`.

use doctor::messages::{self, EACH, Plan};
use measure::MessageSpec;

use super::verbs::Wish;
use super::{MeasureArgs, TransportArg, code, layout, plan};
use crate::print;
use crate::print::live::Screen;
use fault::{Failure, Verdict};
use job::Context;

/// Measures every size, keeps the run, and prints it as other measurements are.
pub(super) fn run(args: &MeasureArgs, sizes: &str, context: &Context) -> Verdict {
    let plan = of(args, sizes)?;
    let finished = messages::perform(&plan, context, &mut Screen::default())?;
    print::measure::finished(&finished, layout(&args.transfer, &args.test))?;
    let verdict = finished.run.verdict.as_ref();
    Ok(code(verdict.is_some_and(|v| v.conclusive)))
}

fn of(args: &MeasureArgs, sizes: &str) -> Result<Plan, Failure> {
    let sizes = messages::sizes_of("--messages", sizes)?;
    let target = args.transfer.target()?;
    let wish = Wish::of(args, &target, &measure::rdma_devices())?;
    if wish.test.udp.is_some() || !matches!(wish.test.transport, None | Some(TransportArg::Tcp)) {
        return Err(Failure::usage(
            "--messages go over TCP or verbs; datagrams of several sizes are --sweep message-size --udp \
             RATE",
        ));
    }
    Ok(Plan {
        approach: plan::approach(&wish.approach, &target)?,
        target,
        sizes,
        spec: MessageSpec {
            window: args
                .outstanding
                .unwrap_or_else(|| messages::window(wish.verbs)),
            duration_ns: args.transfer.duration.unwrap_or(EACH).as_ns(),
            spin: args.spin || wish.verbs.is_some(),
            verbs: wish.verbs,
            rdma: wish.rdma,
            ..MessageSpec::default()
        },
        runs: args.transfer.runs.clone(),
    })
}
