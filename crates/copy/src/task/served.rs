//! The way to a daemon that serves copies (`goodput serve --dir`).

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::gate::{Line, Visitor};
use crate::link::Socket;

use super::Request;
use super::job::{CONNECT, Job};
use fault::Failure;
use sys::endpoint::{Endpoint, without_interface};

/// Whether what was typed goes with a daemon.
pub(super) fn check(request: &Request) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::usage(text));
    if request.reverse || request.through_ssh || request.push || request.port != 0 {
        return usage(
            "--reverse, --through-ssh, --push and --port are for hosts that ssh reaches; a daemon \
             has one port, goodput://HOST:PORT/PATH",
        );
    }
    if request.token.is_none() && request.ca.is_none() {
        return usage(
            "a daemon has to be told from another: say --token-file with its token, or --ca with \
             whoever signed its certificate",
        );
    }
    if request.cipher.is_some_and(|cipher| cipher.is_open()) {
        return usage("a daemon encrypts all that it sends and takes");
    }
    Ok(())
}

/// Goes in, and hands over the job. The address that answered is where links go too.
pub(super) fn enter(
    request: &Request,
    host: &str,
    port: u16,
    job: &Job,
) -> Result<(Line, SocketAddr), Failure> {
    let here = |error: std::io::Error| Failure::here(error);
    let identity = match (&request.certificate, &request.key) {
        (Some(certificate), Some(key)) => {
            Some(tls::Identity::read(certificate, key).map_err(here)?)
        }
        _ => None,
    };
    let authorities = request
        .ca
        .as_deref()
        .map(tls::authorities)
        .transpose()
        .map_err(here)?;
    let config = tls::gate_client(identity, authorities).map_err(Failure::here)?;
    let endpoint = endpoint(host)?;
    // A certificate knows of no interface of this host.
    let visitor = Visitor::new(config, endpoint.host(), request.token.clone())
        .map_err(|error| Failure::usage(format!("'{host}': {error}")))?;
    let (socket, at) = connect(&endpoint, port)?;
    let far = |error: std::io::Error| Failure::far(format!("{host}, port {port}: {error}"));
    let mut line = visitor.enter(Socket::Tcp(socket)).map_err(far)?;
    let mut text = serde_json::to_vec(job).map_err(Failure::here)?;
    text.push(b'\n');
    line.write_all(&text).map_err(far)?;
    Ok((line, at))
}

fn endpoint(host: &str) -> Result<Endpoint, Failure> {
    Endpoint::parse(host).map_err(|problem| Failure::usage(format!("'{host}': {problem}")))
}

fn connect(host: &Endpoint, port: u16) -> Result<(TcpStream, SocketAddr), Failure> {
    let all = host.resolve(port).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Failure::usage(error),
        _ => Failure::far(format!("'{host}' has no address: {error}")),
    })?;
    let mut failure = None;
    for at in all {
        if let Some(problem) = without_interface(at) {
            return Err(Failure::usage(problem));
        }
        match TcpStream::connect_timeout(&at, CONNECT) {
            Ok(socket) => return Ok((socket, at)),
            Err(error) => failure = Some((at, error)),
        }
    }
    Err(Failure::far(match failure {
        Some((at, error)) => format!(
            "{at}: {error}; is `goodput serve --dir` running there, with --listen for other machines?"
        ),
        None => format!("'{host}' has no address"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_on_a_link_wants_its_interface_and_that_is_one_of_this_host() {
        let refused = |typed: &str| {
            let connected = connect(&endpoint(typed).unwrap(), 1);
            let failure = connected.unwrap_err();
            assert_eq!(failure.code, fault::USAGE, "{failure}");
            failure.to_string()
        };
        assert!(refused("fe80::1").contains("fe80::1 is link-local: name the interface"));
        assert!(refused("fe80::1%no-such").contains("no interface 'no-such'"));
        assert!(endpoint("http://far").is_err());
    }
}
