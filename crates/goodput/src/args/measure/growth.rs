//! `measure --growth acks`: Reno as Linux had it before 3.13, for the time of a run.

use clap::ValueEnum;

use super::{DirectionArg, TestArgs, TransferArgs, TransportArg};
use crate::args::sim::GrowthArg;
use fault::Failure;
use job::target::Target;

/// Whether the flags ask for Reno that counts acknowledgements, which a kernel is to be made to know.
pub(super) fn is_of_acks(
    args: &TransferArgs,
    test: &TestArgs,
    target: &Target,
) -> Result<bool, Failure> {
    if test.growth != Some(GrowthArg::Acks) {
        return Ok(false);
    }
    if let Some(problem) = problem(args, test, matches!(target, Target::Lab(_))) {
        return Err(Failure::usage(problem));
    }
    Ok(true)
}

fn problem(args: &TransferArgs, test: &TestArgs, lab: bool) -> Option<String> {
    if let Some(other) = args.congestion.as_deref().filter(|name| *name != "reno") {
        return Some(format!(
            "--growth acks is a way of Reno's: leave out --congestion {other}"
        ));
    }
    if let Some(other) = test
        .transport
        .filter(|t| *t != TransportArg::Tcp && *t != TransportArg::Tls)
    {
        let name = other.to_possible_value();
        let name = name.as_ref().map_or("that", |v| v.get_name());
        return Some(format!(
            "--growth acks is of the kernel's TCP: leave out --transport {name}"
        ));
    }
    let far = test.reverse || test.bidir || args.direction == DirectionArg::Down;
    (far && !lab).then(|| {
        "--growth acks is loaded on this host, and the far one sends: leave out --direction down"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::measure::MeasureArgs;
    use crate::args::reproduce::parse;

    fn refused(words: &[&str], lab: bool) -> Option<String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let args: MeasureArgs = parse(&words).unwrap();
        problem(&args.transfer, &args.test, lab)
    }

    #[test]
    fn it_goes_with_reno_alone_and_where_this_host_sends() {
        let acks = "--growth=acks";
        assert_eq!(refused(&[acks], false), None);
        assert_eq!(refused(&[acks, "--congestion=reno"], false), None);
        let cubic = refused(&[acks, "--congestion=cubic"], true).unwrap();
        assert!(cubic.contains("--congestion cubic"), "{cubic}");
        let quic = refused(&[acks, "--transport=quic"], true).unwrap();
        assert!(quic.contains("--transport quic"), "{quic}");
        assert_eq!(refused(&[acks, "--transport=tls"], true), None);
        for down in ["--reverse", "--direction=down", "--bidir"] {
            assert!(refused(&[acks, down], false).is_some(), "{down}");
            assert_eq!(refused(&[acks, down], true), None, "{down}");
        }
    }
}
