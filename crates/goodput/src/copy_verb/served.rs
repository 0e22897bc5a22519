//! The way to a daemon that serves copies (`goodput serve --dir`).

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};

use ::copy::gate::{Line, Visitor};
use ::copy::link::Socket;

use super::job::{CONNECT, Job};
use super::{CopyArgs, daemon};
use crate::failure::Failure;

/// Whether what was typed goes with a daemon.
pub(super) fn check(args: &CopyArgs) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::usage(anyhow::anyhow!("{text}")));
    if args.reverse || args.through_ssh || args.push || args.port != 0 {
        return usage(
            "--reverse, --through-ssh, --push and --port are for hosts that ssh reaches; a daemon \
             has one port, goodput://HOST:PORT/PATH",
        );
    }
    if args.token_file.is_none() && args.ca.is_none() {
        return usage(
            "a daemon has to be told from another: say --token-file with its token, or --ca with \
             whoever signed its certificate",
        );
    }
    if args.cipher.is_some_and(|cipher| cipher.cipher().is_open()) {
        return usage("a daemon encrypts all that it sends and takes");
    }
    Ok(())
}

/// Goes in, and hands over the job. The address that answered is where links go too.
pub(super) fn enter(
    args: &CopyArgs,
    host: &str,
    port: u16,
    job: &Job,
) -> Result<(Line, SocketAddr), Failure> {
    let here = |error: std::io::Error| Failure::here(error);
    let identity = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => {
            Some(tls::Identity::read(certificate, key).map_err(here)?)
        }
        _ => None,
    };
    let authorities = args
        .ca
        .as_deref()
        .map(tls::authorities)
        .transpose()
        .map_err(here)?;
    let config = tls::gate_client(identity, authorities).map_err(Failure::here)?;
    let token = args.token_file.as_deref().map(daemon::token).transpose()?;
    let visitor = Visitor::new(config, host, token)
        .map_err(|error| Failure::usage(anyhow::anyhow!("'{host}': {error}")))?;
    let (socket, at) = connect(host, port)?;
    let far = |error: std::io::Error| Failure::far(anyhow::anyhow!("{host}, port {port}: {error}"));
    let mut line = visitor.enter(Socket::Tcp(socket)).map_err(far)?;
    let mut text = serde_json::to_vec(job).map_err(Failure::here)?;
    text.push(b'\n');
    line.write_all(&text).map_err(far)?;
    Ok((line, at))
}

fn connect(host: &str, port: u16) -> Result<(TcpStream, SocketAddr), Failure> {
    let all = (host, port)
        .to_socket_addrs()
        .map_err(|error| Failure::far(anyhow::anyhow!("'{host}' has no address: {error}")))?;
    let mut failure = None;
    for at in all {
        match TcpStream::connect_timeout(&at, CONNECT) {
            Ok(socket) => return Ok((socket, at)),
            Err(error) => failure = Some((at, error)),
        }
    }
    Err(Failure::far(match failure {
        Some((at, error)) => anyhow::anyhow!(
            "{at}: {error}; is `goodput serve --dir` running there, with --listen for other machines?"
        ),
        None => anyhow::anyhow!("'{host}' has no address"),
    }))
}
