//! The gateway's counts at an address for collectors of OpenMetrics.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fault::Failure;
use sys::clock;
use sys::threads;
use units::{Duration, Instant};

use super::event::Event;
use crate::recorded::Recorder;
use crate::service::Gateway;
use crate::status::Status;

/// Answers whoever asks a listener with a text, as long as this process lives.
pub type Serve = fn(&TcpListener, &dyn Fn() -> String);

/// What the address says, a second old at most. Its thread ends with this process.
#[derive(Debug)]
pub(super) struct Published {
    text: Arc<Mutex<String>>,
    next: Instant,
    /// Whether it listens, once that is known.
    said: Receiver<Event>,
}

impl Published {
    /// Listens. Who goes on for another gateway waits until that has let go of the address.
    pub(super) fn at(address: SocketAddr, serve: Serve, patient: bool) -> Result<Self, Failure> {
        let text: Arc<Mutex<String>> = Arc::default();
        let listener = match patient {
            true => None,
            false => Some(listen(address).map_err(|e| {
                Failure::here(format!("--metrics: cannot listen on {address}: {e}"))
            })?),
        };
        let shown = Arc::clone(&text);
        let (tell, said) = mpsc::channel();
        let work = move || {
            let Some(listener) = listener.or_else(|| listen_at_last(address)) else {
                let _ = tell.send(Event::NoMetrics(address));
                return;
            };
            let _ = tell.send(Event::Metrics(address));
            let read = || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            serve(&listener, &read);
        };
        threads::spawn("gp-metrics", work).map_err(Failure::here)?;
        Ok(Self {
            text,
            next: clock::monotonic(),
            said,
        })
    }

    /// To be called often.
    pub(super) fn look(&mut self, gateway: &Gateway, recorder: Option<&Recorder>) -> Option<Event> {
        let now = clock::monotonic();
        if now >= self.next {
            self.next = now + Duration::from_s(1);
            let status = Status::of(gateway.counts(), Vec::new()).with_links(gateway.links());
            let status = status
                .with_buffers(gateway.buffers())
                .with_sums(recorder.map(Recorder::sums));
            let new = status.openmetrics();
            *self.text.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
        self.said.try_recv().ok()
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
    None
}
