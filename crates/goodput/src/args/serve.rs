//! `goodput serve`: the far end of measurements; with `--dir`, of copies.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use doctor::serve::Plan;
use measure::{Limits, Secret};
use sys::endpoint;
use units::{Duration, Rate};

use super::copy;
use crate::print;
use fault::{Failure, Verdict};
use job::Context;

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on: ADDRESS, ADDRESS:PORT or [IPv6%INTERFACE]:PORT. Only this machine can reach the
    /// default; 0.0.0.0 or [::] opens it to every network
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) listen: String,
    /// Listen on iperf3's port too, 5201 unless another is named. Both ports answer both protocols
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "5201", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) iperf3: Option<u16>,
    /// Clients served at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: u32,
    /// Of these, clients from one address (of IPv6, one /64) [default: all but one; with --dir, all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients_per_address: Option<u32>,
    /// Log a line for what each client asks for and gets, on stderr
    #[arg(long)]
    pub(crate) log_clients: bool,
    /// Serve only who has the token in this file, which only its owner may read. Of measurements, nothing is
    /// encrypted; of copies, all is
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve copies from and to what is below this folder, in place of measurements, on port 5212
    #[arg(long, value_name = "DIR", conflicts_with_all = ["iperf3", "iperf3_open", "metrics", "ranks", "stamp"])]
    pub(crate) dir: Option<PathBuf>,
    /// Let clients of --dir write and delete there
    #[arg(long, requires = "dir")]
    pub(crate) writable: bool,
    /// Certificate of --dir for its clients to check, in PEM, with those between it and its authority
    #[arg(long, value_name = "FILE", requires_all = ["dir", "key"])]
    pub(crate) certificate: Option<PathBuf>,
    /// Key of --certificate, in PEM; only its owner may read it
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Serve only clients with a certificate that one of these authorities signed, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["dir", "certificate"])]
    pub(crate) client_ca: Option<PathBuf>,
    /// Revocation lists (CRL) of these authorities, in PEM, read at the start: no certificate on one is let in, nor one of an
    /// authority that has none here or whose list is out of date
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    pub(crate) client_crl: Option<PathBuf>,
    /// Serve iperf3's clients without the token, which they cannot have
    #[arg(long, requires = "token_file")]
    pub(crate) iperf3_open: bool,
    /// Answer GET /metrics (OpenMetrics) on this port of 127.0.0.1, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub(crate) metrics: Option<String>,
    /// A client that says nothing for this long is dropped
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) silence: Duration,
    /// Send at most this rate in all to clients without the token, such as 1Gb/s
    #[arg(long, value_name = "RATE", conflicts_with = "dir")]
    pub(crate) rate_max: Option<Rate>,
    /// Let clients have this host connect to other hosts, and send to those that serve so: for
    /// `goodput rotate`. Where others than the cluster reach it, with --token-file
    #[arg(long)]
    pub(crate) ranks: bool,
    /// Also reflect STAMP probes (RFC 8762) on this UDP port; below 1024 takes a privilege
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "862")]
    pub(crate) stamp: Option<u16>,
}

/// Serves until asked to stop.
pub(crate) fn run(args: &ServeArgs, context: &Context) -> Verdict {
    if let Some(folder) = &args.dir {
        return copy::serve(args, folder, context);
    }
    let plan = plan(args)?;
    let says = print::serve::Says {
        is_open: plan.secret.is_none(),
        ranks: args.ranks,
    };
    doctor::serve::serve(plan, context, &mut |event| says.say(event))?;
    // Being told to stop is how serving ends.
    Ok(fault::DONE)
}

fn plan(args: &ServeArgs) -> Result<Plan, Failure> {
    let listen = address(&args.listen)?;
    if args.silence < SILENCE_MIN {
        return Err(Failure::usage(format!(
            "--silence {}: expected at least {SILENCE_MIN}, or every client would be dropped",
            args.silence
        )));
    }
    if args.rate_max.is_some() && args.token_file.is_some() && !args.iperf3_open {
        return Err(Failure::usage(
            "--rate-max limits clients without the token, and --token-file serves none: add --iperf3-open or leave it out",
        ));
    }
    Ok(Plan {
        listen,
        metrics: args.metrics.as_deref().map(metrics_address).transpose()?,
        secret: args.token_file.as_deref().map(Secret::read).transpose()?,
        limits: Limits {
            sessions: args.clients,
            // One address alone cannot lock all others out.
            sessions_per_address: args
                .clients_per_address
                .unwrap_or_else(|| args.clients.saturating_sub(1).max(1)),
            silence: args.silence,
            ranks: args.ranks,
            rate_max: args.rate_max,
            ..Limits::default()
        },
        iperf3: args.iperf3,
        iperf3_open: args.iperf3_open,
        stamp: args.stamp,
    })
}

/// Above the round trip of any path.
const SILENCE_MIN: Duration = Duration::from_s(1);

fn address(typed: &str) -> Result<SocketAddr, Failure> {
    address_at(typed, measure::DEFAULT_PORT)
}

/// An address to listen on, at this port where none is said.
pub(crate) fn address_at(typed: &str, port: u16) -> Result<SocketAddr, Failure> {
    endpoint::listening(typed, port).map_err(|problem| {
        Failure::usage(format!(
            "--listen '{typed}': {problem}; expected an address such as 127.0.0.1, 0.0.0.0:5210, [::]:5210 or \
             fe80::1%eth0"
        ))
    })
}

pub(crate) fn metrics_address(typed: &str) -> Result<SocketAddr, Failure> {
    let port = |text: &str| text.parse().ok().filter(|&port: &u16| port > 0);
    if let Some(port) = port(typed) {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    endpoint::with_port(typed).map_err(|problem| {
        Failure::usage(format!(
            "--metrics '{typed}': {problem}; expected a port, which is then 127.0.0.1's, or an address with one \
             such as 10.0.0.1:9555 or [::1]:9555"
        ))
    })
}

pub(crate) const SERVE_EXAMPLES: &str = "\
Examples:
  goodput serve                               for tries on this machine
  goodput serve --listen 0.0.0.0              for other machines: TCP and UDP port 5210, open to all
  goodput serve --listen 0.0.0.0 --iperf3     for `iperf3 -c HOST` as well; UDP port 5201 for its -u
  goodput serve --listen 0.0.0.0 --stamp      answers STAMP probes on UDP port 862 as well
  goodput serve --listen 0.0.0.0 --ranks      a rank of `goodput rotate --hosts`
  goodput serve --listen [::] --token-file token --metrics 9555 --log-clients
  goodput serve --dir /data --token-file token --listen 0.0.0.0    copies out of /data; see `goodput copy`
                                              who has the token only; counters on 127.0.0.1:9555";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_the_port_and_a_name_is_refused() {
        let read = |typed| address(typed).unwrap().to_string();
        assert_eq!(read("127.0.0.1"), "127.0.0.1:5210");
        assert_eq!(read("0.0.0.0:7000"), "0.0.0.0:7000");
        assert_eq!(read("::1"), "[::1]:5210");
        assert_eq!(read("[::]:9"), "[::]:9");
        assert_eq!(read("fe80::1%lo"), "[fe80::1%1]:5210");
        assert!(address("far.example.org").is_err());
        assert!(address("1.2.3.4:99999").is_err());
    }

    #[test]
    fn metrics_stay_on_this_machine_unless_an_address_is_named() {
        let read = |typed| metrics_address(typed).unwrap().to_string();
        assert_eq!(read("9555"), "127.0.0.1:9555");
        assert_eq!(read("0.0.0.0:1"), "0.0.0.0:1");
        assert_eq!(read("[::1]:9555"), "[::1]:9555");
        for wrong in ["0", "65536", "10.0.0.1", ":9555", "host:9555"] {
            assert!(metrics_address(wrong).is_err(), "{wrong}");
        }
    }
}
