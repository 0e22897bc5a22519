//! `measure --growth acks`: Reno as Linux had it before 3.13, for the time of a run.

use clap::ValueEnum;
use sys::bpf::{self, Registered};

use crate::cli::{DirectionArg, TestArgs, TransferArgs, TransportArg};
use crate::failure::Failure;
use crate::sim_verb::GrowthArg;
use crate::target::Target;

/// Makes the kernel know the congestion control that the flags ask for; `None` where they ask for none.
pub(crate) fn register(
    args: &TransferArgs,
    test: &TestArgs,
    target: &Target,
) -> Result<Option<Registered>, Failure> {
    if test.growth != Some(GrowthArg::Acks) {
        return Ok(None);
    }
    if let Some(problem) = problem(args, test, matches!(target, Target::Lab(_))) {
        return Err(Failure::usage(anyhow::anyhow!("{problem}")));
    }
    let registered = bpf::register_reno_by_acks().map_err(Failure::here)?;
    Ok(Some(registered))
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
    use crate::cli::MeasureArgs;
    use crate::reproduce::parse;

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
