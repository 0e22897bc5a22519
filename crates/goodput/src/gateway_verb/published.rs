//! The gateway's counts at an address for collectors of OpenMetrics.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gateway::Gateway;
use measure::Stop;
use sys::clock;
use units::{Duration, Instant};

use super::recorded::Recorder;
use super::status::{self, Status};
use crate::context;
use crate::failure::Failure;
use crate::serve::metrics_address;

/// What the address says, a second old at most. Its thread ends with this process.
#[derive(Debug)]
pub(super) struct Published {
    text: Arc<Mutex<String>>,
    next: Instant,
}

impl Published {
    /// Listens. Who goes on for another gateway waits until that has let go of the address.
    pub(super) fn at(typed: &str, patient: bool) -> Result<Self, Failure> {
        let address = metrics_address(typed)?;
        let text: Arc<Mutex<String>> = Arc::default();
        let listener = match patient {
            true => None,
            false => Some(listen(address).map_err(|e| {
                Failure::here(anyhow::anyhow!(
                    "--metrics: cannot listen on {address}: {e}"
                ))
            })?),
        };
        let shown = Arc::clone(&text);
        let work = move || {
            let Some(listener) = listener.or_else(|| listen_at_last(address)) else {
                return;
            };
            context::note(format_args!("gateway: metrics on http://{address}/metrics"));
            let read = || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            measure::metrics::serve(&listener, &read, &Stop::new());
        };
        let thread = thread::Builder::new().name("gp-metrics".to_owned());
        thread.spawn(work).map_err(Failure::here)?;
        Ok(Self {
            text,
            next: clock::monotonic(),
        })
    }

    /// To be called often.
    pub(super) fn look(&mut self, gateway: &Gateway, recorder: Option<&Recorder>) {
        let now = clock::monotonic();
        if now >= self.next {
            self.next = now + Duration::from_s(1);
            let status = Status::of(gateway.counts(), Vec::new()).with_links(gateway.links());
            let status = status
                .with_buffers(gateway.buffers())
                .with_sums(recorder.map(Recorder::sums));
            let new = status::openmetrics(&status);
            *self.text.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listen_at_last(address: SocketAddr) -> Option<TcpListener> {
    for _ in 0..100 {
        match listen(address) {
            Ok(listener) => return Some(listener),
            Err(_) => thread::sleep(std::time::Duration::from_millis(100)),
        }
    }
    context::note(format_args!("gateway: no metrics: {address} is not free"));
    None
}
