//! `goodput measure --sweep`.

use doctor::Finished;
use doctor::sweep::{self, Plan};

use super::verbs::Wish;
use super::{MeasureArgs, ObserverArg, UdpArg, code, layout, plan};
use crate::print;
use crate::print::live::Screen;
use fault::{Failure, Verdict};
use job::Context;

/// Runs the sweep and prints what it found.
pub(super) fn run(args: &MeasureArgs, context: &Context) -> Verdict {
    let finished = perform(args, context)?;
    print::measure::finished(&finished, layout(&args.transfer, &args.test))?;
    let verdict = finished.run.verdict.as_ref();
    Ok(code(verdict.is_some_and(|v| v.conclusive)))
}

/// Runs the sweep and keeps it.
pub(super) fn perform(args: &MeasureArgs, context: &Context) -> Result<Finished, Failure> {
    sweep::perform(of(args)?, context, &mut Screen::default())
}

fn of(args: &MeasureArgs) -> Result<Plan, Failure> {
    let axes = sweep::axes(&args.sweep)?;
    let transfer = &args.transfer;
    let target = transfer.target()?;
    let wish = Wish::of(args, &target, &measure::rdma_devices())?;
    let config = plan::config(transfer, &wish.test, &target)?;
    if args.test.udp == Some(UdpArg::Search) {
        return Err(Failure::usage("--udp search does not go with --sweep"));
    }
    Ok(Plan {
        axes,
        approach: plan::approach(&wish.approach, &target)?,
        target,
        config,
        names_congestion: transfer.congestion.is_some(),
        duration: transfer.duration,
        ramp: transfer.ramp,
        observer: transfer.observer.map(ObserverArg::tool),
        verbs: wish.verbs,
        rdma: wish.rdma,
        spin: args.spin,
        outstanding: args.outstanding,
        of_transfers: of_transfers(args),
        budget: args.budget,
        precision: args.precision,
        seed: args.seed,
        runs: transfer.runs.clone(),
    })
}

/// Flags that were typed and mean nothing to messages.
fn of_transfers(args: &MeasureArgs) -> Vec<&'static str> {
    let (transfer, test) = (&args.transfer, &args.test);
    let typed = [
        (transfer.streams.is_some_and(|n| n > 1), "--streams"),
        (transfer.congestion.is_some(), "--congestion"),
        (test.window.is_some(), "--window"),
        (test.length.is_some(), "--length"),
        (test.zero_copy, "--zero-copy"),
        (test.sendfile.is_some(), "--sendfile"),
    ];
    let typed = typed.into_iter().filter(|(is_typed, _)| *is_typed);
    typed.map(|(_, flag)| flag).collect()
}
