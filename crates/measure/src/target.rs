//! Hosts that people name as targets.

use std::io::ErrorKind;
use std::net::SocketAddr;

use sys::endpoint::Endpoint;

use crate::MeasureError;

/// Addresses of a target; only names ask the resolver.
pub(crate) fn resolve(target: &str, default_port: u16) -> Result<Vec<SocketAddr>, MeasureError> {
    let endpoint = endpoint(target)?;
    endpoint
        .resolve(default_port)
        .map_err(|source| match source.kind() {
            ErrorKind::InvalidInput => wrong(target, source.to_string()),
            _ => MeasureError::Resolve {
                host: endpoint.host().to_owned(),
                source,
            },
        })
}

/// What was typed for a target.
pub(crate) fn endpoint(target: &str) -> Result<Endpoint, MeasureError> {
    Endpoint::parse(target).map_err(|problem| wrong(target, problem))
}

fn wrong(target: &str, problem: String) -> MeasureError {
    MeasureError::Target {
        target: target.to_owned(),
        problem,
    }
}
