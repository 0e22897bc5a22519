//! The far end of measurements in hosts of a lab: `goodput serve` without a process of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::thread::Scope;

use measure::{Limits, Server, Stop};

use fault::Failure;
use sys::threads;

use crate::lab::{Host, LabError};

/// Raises a stop when it goes out of scope, however that happens: a server that nobody told to stop
/// would keep its scope from ending.
#[derive(Debug, Default)]
pub(crate) struct StopOnDrop(pub(crate) Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves on both addresses of a host until `stop`. A machine without IPv6 serves on one.
pub(crate) fn serve<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    host: &'env Host,
    stop: &Stop,
) -> Result<(), Failure> {
    serve_on(scope, host, host.address().into(), stop)?;
    if let Err(failure) = serve_on(scope, host, host.address6().into(), stop) {
        tracing::debug!("{}: {failure}", host.name());
    }
    Ok(())
}

fn serve_on<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    host: &'env Host,
    address: IpAddr,
    stop: &Stop,
) -> Result<(), Failure> {
    let address = SocketAddr::new(address, measure::DEFAULT_PORT);
    let (ready, bound) = mpsc::channel();
    let stop = stop.clone();
    let server = threads::scoped(scope, "gp-serve", move || {
        host.run(|| match Server::bind(address, Limits::default()) {
            Ok(server) => {
                let _ = ready.send(Ok(()));
                if let Err(e) = server.serve(&stop) {
                    tracing::warn!("the server in {} failed: {e}", host.name());
                }
            }
            Err(e) => {
                let _ = ready.send(Err(e));
            }
        })
    })
    .map_err(Failure::here)?;
    match bound.recv() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(e.into()),
        // The thread is gone without a word: it could not enter the host.
        Err(_) => match server.join() {
            Ok(Err(e)) => Err(e.into()),
            _ => Err(LabError::ForwarderGone.into()),
        },
    }
}
