//! `goodput measure stamp://HOST`: probes to a STAMP reflector (RFC 8762), goodput's or another's.

use doctor::stamp::{self, Plan};

use super::{MeasureArgs, plan};
use crate::print;
use fault::{Failure, Verdict};
use job::Context;
use job::target::Target;

/// Sends probes and prints the result. No answer at all is a failure of the reflector.
pub(super) fn run(args: &MeasureArgs, target: &str, context: &Context) -> Verdict {
    let target = match target.starts_with("lab:") {
        true => Target::parse(Some(target))?,
        false => Target::Host(args.transfer.with_port(target)?),
    };
    let plan = Plan {
        approach: plan::approach(&args.transfer.approach, &target)?,
        target,
        count: args.count,
        interval: args.interval,
    };
    let told = stamp::perform(plan, context)?;
    if args.transfer.json {
        print::print_json(&told.record)?;
    } else {
        print::print(&print::stamp::text(&told.record, print::width()))?;
    }
    if let Some(code) = context.interrupted() {
        return Err(Failure::interrupted(code));
    }
    told.check()?;
    Ok(fault::DONE)
}
