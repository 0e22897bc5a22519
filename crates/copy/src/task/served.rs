//! The way to a daemon that serves copies (`goodput serve --dir`).

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};

use crate::gate::{Line, Visitor};
use crate::link::Socket;

use super::Request;
use super::job::{CONNECT, Job};
use fault::Failure;

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
    let visitor = Visitor::new(config, host, request.token.clone())
        .map_err(|error| Failure::usage(format!("'{host}': {error}")))?;
    let (socket, at) = connect(host, port)?;
    let far = |error: std::io::Error| Failure::far(format!("{host}, port {port}: {error}"));
    let mut line = visitor.enter(Socket::Tcp(socket)).map_err(far)?;
    let mut text = serde_json::to_vec(job).map_err(Failure::here)?;
    text.push(b'\n');
    line.write_all(&text).map_err(far)?;
    Ok((line, at))
}

fn connect(host: &str, port: u16) -> Result<(TcpStream, SocketAddr), Failure> {
    let all = (host, port)
        .to_socket_addrs()
        .map_err(|error| Failure::far(format!("'{host}' has no address: {error}")))?;
    let mut failure = None;
    for at in all {
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
