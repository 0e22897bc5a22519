//! The far end of measurements: a server, and beside it what reflects STAMP probes.

use std::net::SocketAddr;

use measure::stamp::Reflector;
use measure::{Limits, Secret, Server};

use fault::Failure;
use job::Context;
use sys::threads;

/// What to serve, and to whom.
#[derive(Debug)]
pub struct Plan {
    /// Where to listen.
    pub listen: SocketAddr,
    /// What clients may have.
    pub limits: Limits,
    /// Another port for iperf3's clients.
    pub iperf3: Option<u16>,
    /// Where to publish counters.
    pub metrics: Option<SocketAddr>,
    /// The token that clients must have.
    pub secret: Option<Secret>,
    /// Whether iperf3's clients are served without it.
    pub iperf3_open: bool,
    /// UDP port that STAMP probes are reflected on.
    pub stamp: Option<u16>,
}

/// What is said while a server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It listens.
    Listens(SocketAddr),
    /// It listens for iperf3's clients too.
    ListensToo(SocketAddr),
    /// Its counters are published.
    Publishes(SocketAddr),
    /// All of that is so; with the address that it listens on.
    Starts(SocketAddr),
    /// STAMP probes are reflected.
    Reflects(SocketAddr),
}

/// Serves until asked to stop.
///
/// # Examples
///
/// ```no_run
/// use doctor::serve::{self, Plan};
///
/// let plan = Plan {
///     listen: "127.0.0.1:5210".parse()?,
///     limits: measure::Limits::default(),
///     iperf3: None,
///     metrics: None,
///     secret: None,
///     iperf3_open: false,
///     stamp: None,
/// };
/// let context = job::Context::start(|| {})?;
/// serve::serve(plan, &context, &mut |event| println!("{event:?}"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve(
    plan: Plan,
    context: &Context,
    observer: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    // A stream is a descriptor, and 8 clients may have 128 each where 1,024 is the usual limit.
    tracing::debug!("up to {} descriptors", sys::host::raise_descriptor_limit());
    let mut server = Server::bind(plan.listen, plan.limits)?;
    let local = server.local_addr();
    observer(Event::Listens(local));
    if let Some(port) = plan.iperf3 {
        let also = server.listen_also(at_port(local, port))?;
        observer(Event::ListensToo(also));
    }
    if let Some(address) = plan.metrics {
        observer(Event::Publishes(server.publish(address)?));
    }
    if let Some(secret) = plan.secret {
        server.demand(secret, plan.iperf3_open);
    }
    observer(Event::Starts(local));
    let Some(port) = plan.stamp else {
        return Ok(server.serve(&context.stop)?);
    };
    let reflector = Reflector::bind(at_port(local, port))?;
    observer(Event::Reflects(reflector.local_addr()));
    with_reflector(&server, &reflector, context)
}

/// The same address, and interface of one that is good on one link only, at another port.
fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Serves and reflects STAMP probes until asked to stop; a reflector that breaks ends both.
fn with_reflector(
    server: &Server,
    reflector: &Reflector,
    context: &Context,
) -> Result<(), Failure> {
    let stop = &context.stop;
    std::thread::scope(|scope| {
        let reflecting = threads::scoped(scope, "gp-reflect", || {
            let ended = reflector.serve(stop);
            if ended.is_err() {
                stop.stop();
            }
            ended
        })
        .map_err(Failure::here)?;
        let served = server.serve(stop);
        stop.stop();
        match reflecting.join() {
            Ok(ended) => Ok(ended.and(served)?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
