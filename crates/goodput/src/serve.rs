//! `goodput serve`: the far end of measurements; with `--dir`, of copies.

use std::net::{IpAddr, SocketAddr};

use measure::stamp::Reflector;
use measure::{Limits, Secret, Server, Stop};

use crate::cli::ServeArgs;
use crate::context::{self, Context};
use crate::copy_verb::daemon;
use crate::failure::{self, Failure, Verdict};

/// Serves until asked to stop.
pub(crate) fn command(args: &ServeArgs, context: &Context) -> Verdict {
    if let Some(folder) = &args.dir {
        return daemon::serve(args, folder, context);
    }
    let address = address(&args.listen)?;
    if args.silence < SILENCE_MIN {
        return Err(Failure::usage(anyhow::anyhow!(
            "--silence {}: expected at least {SILENCE_MIN}, or every client would be dropped",
            args.silence
        )));
    }
    if args.rate_max.is_some() && args.token_file.is_some() && !args.iperf3_open {
        return Err(Failure::usage(anyhow::anyhow!(
            "--rate-max limits clients without the token, and --token-file serves none: add --iperf3-open or leave it out"
        )));
    }
    let metrics = args.metrics.as_deref().map(metrics_address).transpose()?;
    let secret = args.token_file.as_deref().map(Secret::read).transpose()?;
    let limits = Limits {
        sessions: args.clients,
        // One address alone cannot lock all others out.
        sessions_per_address: args
            .clients_per_address
            .unwrap_or_else(|| args.clients.saturating_sub(1).max(1)),
        silence: args.silence,
        ranks: args.ranks,
        rate_max: args.rate_max,
        ..Limits::default()
    };
    // A stream is a descriptor, and 8 clients may have 128 each where 1,024 is the usual limit.
    tracing::debug!("up to {} descriptors", sys::host::raise_descriptor_limit());
    let mut server = Server::bind(address, limits)?;
    let local = server.local_addr();
    context::note(format_args!(
        "serving on {local}; Ctrl-C or SIGTERM ends it"
    ));
    if let Some(port) = args.iperf3 {
        let also = server.listen_also(SocketAddr::new(local.ip(), port))?;
        context::note(format_args!("serving iperf3's clients on {also} too"));
    }
    if let Some(address) = metrics {
        let address = server.publish(address)?;
        context::note(format_args!("metrics on http://{address}/metrics"));
    }
    let open = secret.is_none();
    if let Some(secret) = secret {
        server.demand(secret, args.iperf3_open);
    }
    if local.ip().is_loopback() {
        context::note("only this machine can reach it: say --listen 0.0.0.0 for other machines");
    } else if open {
        context::note(format_args!(
            "anyone who reaches TCP port {} may measure: --token-file shuts strangers out",
            local.port()
        ));
    } else {
        context::note("only who has the token may measure; what travels is not encrypted");
    }
    if args.ranks {
        context::note(ranks_note(local.ip(), open));
    }
    match args.stamp {
        Some(port) => with_reflector(&server, SocketAddr::new(local.ip(), port), &context.stop)?,
        None => server.serve(&context.stop)?,
    }
    // Being told to stop is how serving ends.
    Ok(failure::DONE)
}

/// What `--ranks` lets clients do, and to whom where that is everyone.
fn ranks_note(listening: IpAddr, open: bool) -> String {
    let may = "clients may have this host connect to other hosts, and send to those that serve \
               with --ranks";
    match open && may_be_public(listening) {
        true => format!(
            "warning: {may}; with no token that is everybody who reaches it: say --token-file, or --listen \
             an address of the cluster alone"
        ),
        false => may.to_owned(),
    }
}

/// Whether strangers may reach it: not where it is loopback's, link-local or private (RFC 1918, RFC 4193).
fn may_be_public(ip: IpAddr) -> bool {
    !match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Serves and reflects STAMP probes until asked to stop; a reflector that breaks ends both.
fn with_reflector(server: &Server, address: SocketAddr, stop: &Stop) -> Result<(), Failure> {
    let reflector = Reflector::bind(address)?;
    let local = reflector.local_addr();
    context::note(format_args!("reflecting STAMP probes on UDP {local}"));
    std::thread::scope(|scope| {
        let reflecting = scope.spawn(|| {
            let ended = reflector.serve(stop);
            if ended.is_err() {
                stop.stop();
            }
            ended
        });
        let served = server.serve(stop);
        stop.stop();
        match reflecting.join() {
            Ok(ended) => Ok(ended.and(served)?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Above the round trip of any path.
const SILENCE_MIN: units::Duration = units::Duration::from_s(1);

fn address(typed: &str) -> Result<SocketAddr, Failure> {
    address_at(typed, measure::DEFAULT_PORT)
}

/// An address to listen on, at this port where none is said.
pub(crate) fn address_at(typed: &str, port: u16) -> Result<SocketAddr, Failure> {
    if let Ok(address) = typed.parse::<SocketAddr>() {
        return Ok(address);
    }
    let bare = typed.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)).map_err(|_| {
        Failure::usage(anyhow::anyhow!(
            "--listen '{typed}': expected an address such as 127.0.0.1, 0.0.0.0:5210 or [::]:5210"
        ))
    })
}

pub(crate) fn metrics_address(typed: &str) -> Result<SocketAddr, Failure> {
    let port = |text: &str| text.parse().ok().filter(|&port: &u16| port > 0);
    if let Some(port) = port(typed) {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    typed.parse::<SocketAddr>().map_err(|_| {
        Failure::usage(anyhow::anyhow!(
            "--metrics '{typed}': expected a port, which is then 127.0.0.1's, or an address with one \
             such as 10.0.0.1:9555 or [::1]:9555"
        ))
    })
}

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
        assert!(address("far.example.org").is_err());
        assert!(address("1.2.3.4:99999").is_err());
    }

    #[test]
    fn ranks_that_strangers_reach_without_a_token_are_warned_of() {
        let warned =
            |ip: &str, open| ranks_note(ip.parse().unwrap(), open).contains("--token-file");
        for public in [
            "0.0.0.0",
            "::",
            "203.0.113.1",
            "2001:db8::1",
            "::ffff:203.0.113.1",
        ] {
            assert!(warned(public, true) && !warned(public, false), "{public}");
        }
        for own in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(!warned(own, true), "{own}");
        }
        assert!(ranks_note([127, 0, 0, 1].into(), true).contains("other hosts"));
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
