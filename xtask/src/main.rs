//! The project's own chores. `cargo xtask help` lists them.
//!
//! Arguments are matched by hand: this binary has few of them and one kind of user.

mod bench;
mod captures;
mod fuzz;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> anyhow::Result<ExitCode> {
    match args {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        ["bench", "checksum"] => bench::checksum(),
        ["bench", "lab", rest @ ..] => {
            let options = options(rest)?;
            // Before the first thread, as the kernel wants it.
            if !sys::netns::can_create_namespaces() {
                sys::netns::become_root_in_user_namespace().map_err(lab::LabError::NoNamespaces)?;
            }
            bench::lab(&options)
        }
        ["bench", "copy", rest @ ..] => bench::copy::copy(&options(rest)?),
        ["bench", "explain", rest @ ..] => bench::explain::explain(&options(rest)?),
        ["bench", "fabric", rest @ ..] => bench::fabric::fabric(&options(rest)?),
        ["bench", "harmonizer", rest @ ..] => bench::harmonizer::harmonizer(&options(rest)?),
        ["bench", "netem", rest @ ..] => bench::netem::netem(&options(rest)?),
        ["bench", "measure", rest @ ..] => {
            let options = options(rest)?;
            if !sys::netns::can_create_namespaces() {
                sys::netns::become_root_in_user_namespace().map_err(lab::LabError::NoNamespaces)?;
            }
            bench::measure::measure(&options)
        }
        ["captures", folders @ ..] if !folders.is_empty() => captures::captures(folders),
        ["bench", "truth", rest @ ..] => {
            let options = options(rest)?;
            if !sys::netns::can_create_namespaces() {
                sys::netns::become_root_in_user_namespace().map_err(lab::LabError::NoNamespaces)?;
            }
            bench::truth::truth(&options)
        }
        ["bench", "gaps", rest @ ..] => bench::gaps::gaps(&options(rest)?),
        ["bench", "gateway", rest @ ..] => {
            let options = options(rest)?;
            if !sys::netns::can_create_namespaces() {
                sys::netns::become_root_in_user_namespace().map_err(lab::LabError::NoNamespaces)?;
            }
            bench::gateway::gateway(&options)
        }
        ["fuzz", rest @ ..] => fuzz::fuzz(&fuzzing(rest)?),
        ["bench", "sim", rest @ ..] => bench::sim::sim(&options(rest)?),
        ["bench", "watch", rest @ ..] => bench::watch::watch(&options(rest)?),
        // What bench watch looks at.
        ["watch-hold", pairs] => bench::watch::hold(pairs).map(|()| ExitCode::SUCCESS),
        ["watch-churn", count] => bench::watch::churner(count).map(|()| ExitCode::SUCCESS),
        // What bench explain starts to see how much memory it takes.
        ["crowd", name, part] => {
            bench::explain::crowd(name, part)?;
            Ok(ExitCode::SUCCESS)
        }
        // What bench fabric starts, for the same reason.
        ["fabric", name] => {
            bench::fabric::child(name)?;
            Ok(ExitCode::SUCCESS)
        }
        ["end", rest @ ..] => bench::measure::end(rest),
        _ => bail!("'{}' is no chore; see: cargo xtask help", args.join(" ")),
    }
}

fn options(args: &[&str]) -> anyhow::Result<bench::Options> {
    let mut options = bench::Options::default();
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg {
            "--quick" => options.quick = true,
            "--rounds" => {
                let text = value()?;
                let rounds = text.parse().ok().filter(|n| (1..=100).contains(n));
                let rounds =
                    rounds.with_context(|| format!("--rounds {text}: expected 1 to 100"))?;
                options.rounds = Some(rounds);
            }
            "--seed" => {
                let text = value()?;
                let seed = text.parse().ok();
                options.seed = Some(seed.with_context(|| format!("--seed {text}: no number"))?);
            }
            "--time" => {
                let text = value()?;
                let seconds = text.trim_end_matches('s').parse().ok();
                let seconds = seconds.filter(|s| (4..=3_600).contains(s));
                options.time_s =
                    Some(seconds.with_context(|| format!("--time {text}: 4s to 3600s"))?);
            }
            "--again" => options.again = true,
            "--guest" => options.guest = true,
            "--only" => options.only = Some((*value()?).to_owned()),
            _ => bail!("'{arg}' is no option of a bench; see: cargo xtask help"),
        }
    }
    Ok(options)
}

fn fuzzing(args: &[&str]) -> anyhow::Result<fuzz::Options> {
    let mut options = fuzz::Options {
        only: Vec::new(),
        time: Duration::ZERO,
        since: None,
        keep: false,
    };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg {
            "--time" => {
                // As people type it; the units themselves have no `m`.
                let text = value()?;
                let text = text
                    .strip_suffix('m')
                    .map_or_else(|| text.to_string(), |n| format!("{n}min"));
                let time: units::Duration = text.parse().context("--time")?;
                options.time = Duration::from_nanos(time.as_ns());
            }
            "--since" => options.since = Some((*value()?).to_owned()),
            "--keep" => options.keep = true,
            _ if arg.starts_with('-') => {
                bail!("'{arg}' is no option of fuzz; see: cargo xtask help")
            }
            target => options.only.push(target.to_owned()),
        }
    }
    Ok(options)
}

const HELP: &str = "\
The project's own chores.

  cargo xtask bench checksum
      The vector checksum beside the scalar one, reading and copying; writes
      bench/checksum.txt.
  cargo xtask bench lab [--quick] [--rounds N] [--only NAME]
      Measures the lab beside a kernel bridge and a direct veth, and our
      transfers beside iperf3's. Writes bench/lab.json and the table in
      bench/README.md; seven to eight minutes with 5 rounds, the default.
      --quick     one round of short cells, under a minute: does it work?
      --rounds N  1 to 100
      --only NAME cells whose name contains NAME, such as tcp/lab or udp
      With --quick or --only the results go to target/bench instead.
  cargo xtask bench netem [--quick] [--rounds N] [--only NAME]
      The lab beside netem: delay, throughput, losses. As root, on a kernel that
      has netem; bench/netem-guest/run.sh brings one. Writes target/bench/netem.json.
  cargo xtask bench copy [--quick] [--rounds N] [--only NAME,NAME]
      goodput copy beside rsync, scp, tar and rclone over ssh, through loopback and paths of 100 and 300 ms, by
      target/release/goodput (or GOODPUT); as root, with openssh-server, rsync and rclone. Takes 5 GB of /dev/shm.
      Writes bench/copy.json and its table in bench/README.md; a quarter of an hour a round, one by default.
      --only NAME cells whose name contains NAME, such as large; kept beside what was there
  cargo xtask bench explain [--quick] [--rounds N] [--only NAME]
      How fast captures are read, and how much memory that takes. Writes bench/explain.json and its table in
      bench/README.md; under a minute, and 1.7 GB in target/bench meanwhile.
  cargo xtask bench fabric [--quick] [--rounds N] [--only NAME]
      How fast fabrics are simulated packet by packet and as fluids, how fast they are routed, and how much
      memory that takes. Writes bench/fabric.json and its table in bench/README.md; a minute.
  cargo xtask bench harmonizer [--quick] [--rounds N] [--only NAME] [--time SECONDS]
      Four streams of kernels at a queue, without a Stream Harmonizer and with each variant, by
      target/release/goodput (or GOODPUT). Runs are kept in target/bench/harmonizer; what is there is not
      made again. Writes bench/harmonizer.json and its table in bench/README.md; some 18 minutes.
  cargo xtask bench measure [--quick] [--rounds N] [--only NAME]
      Latency of messages beside a bare ping-pong in C, TCP and UDP beside iperf3
      and nuttcp, the cost of sampling, all over veth. Writes bench/measure.json
      and its table in bench/README.md; four minutes.
  cargo xtask bench gaps [--quick] [--rounds N] [--only NAME,NAME]
      measure --pacing auto beside the kernel's BBR and CUBIC on twelve paths, and two and four
      such flows on two, by target/release/goodput (or GOODPUT). Writes bench/gaps.json and the table in
      docs/guide/pacing.md; a quarter of an hour a round, 3 rounds by default.
      --only NAME paths whose name contains NAME, such as 1000M; kept beside what was there
  cargo xtask bench gateway [--quick] [--rounds N] [--only NAME,NAME] [--guest]
      goodput gateway beside HAProxy in TCP mode with splice, over veth: throughput and CPU of
      1, 8 and 64 connections, connections a second, latency, memory of thousands. Writes
      bench/gateway.json and its table in bench/README.md; two minutes a round.
      --guest     10,000 idle and 1,000 busy ones (or the cell of --only), for which this machine may allow
                  too few descriptors, in a virtual machine: bench/netem-guest/run.sh gateway. Writes
                  bench/gateway-guest.json; some ten minutes where it is emulated
  cargo xtask bench sim [--rounds N] [--only NAME,NAME] [--time SECONDS] [--again]
      The simulated TCP beside the kernel's in the lab: 108 cells of round trip, rate,
      loss, queue and congestion control, by target/release/goodput (or GOODPUT). What the lab
      gave is kept in bench/sim.json; only what is missing there, or came from a machine that was
      not quiet, is measured, a minute a cell at most. The sim's side, some seconds in all, is made anew, and the table in docs/guide/sim.md.
      --rounds N  seeds of the losses, 1 when not given
      --again     nothing in the lab: compare with what is kept
  cargo xtask bench watch [--quick] [--rounds N]
      goodput watch beside ss at 20,000 sockets, and 10,000 connections a second of a millisecond each against
      the kernel's counters. Writes bench/watch.json and its table in bench/README.md; a minute a round.
  cargo xtask captures DIR...
      compares what explain counts in all captures below these folders with what tshark
      does, and lists each connection in which they differ
  cargo xtask bench truth [--quick] [--rounds N] [--only KIND] [--seed N] [--again]
      Connections with planted limits and random parameters in the lab, captured at
      both ends and as by a mirror port, and explained. Writes bench/truth.json and the table in
      docs/guide/limits.md; some 45 minutes with 10 draws of each kind, the default.
      With target/release/goodput (or GOODPUT) and tshark, round trips are held
      against tshark's.
      --seed N    other draws
      --again     judge the captures of an earlier run, in target/bench/truth
  cargo xtask fuzz [TARGET...] [--time TIME] [--since COMMIT] [--keep]
      Replays the kept corpus of the fuzz targets (fuzz/corpus), then tries new inputs for TIME in
      all (30m, 60s; none when not given), on the stable compiler.
      --since COMMIT  new inputs only for targets whose crates changed since then
      --keep      inputs that cover more join the corpus
  cargo xtask help
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_mean_what_they_say() {
        let all = options(&["--only", "udp", "--quick", "--rounds", "3"]).unwrap();
        assert_eq!(
            (all.quick, all.rounds, all.only.as_deref()),
            (true, Some(3), Some("udp"))
        );
        assert_eq!(options(&[]).unwrap().rounds, None);
    }

    #[test]
    fn mistakes_are_refused() {
        for wrong in [
            &["--rounds"][..],
            &["--rounds", "0"],
            &["--rounds", "many"],
            &["--only"],
            &["--fast"],
        ] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
        assert!(run(&["bench", "moon"]).is_err());
    }
}
