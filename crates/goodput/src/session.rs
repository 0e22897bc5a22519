//! One measurement over a lab path or to a far host, with everything that explains it.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Sender};
use std::thread;

use explain::{BufferModel, Diagnosis, Evidence, HostConfig, PathKnowledge, Prediction};
use indicatif::{ProgressBar, ProgressStyle};
use lab::{Certificate, Lab, PathFile};
use measure::{
    Client, Config, Direction, EndResult, FarFacts, HostFacts, Limits, MeasureError, Outcome,
    Progress, SampleKind, Server, Stop,
};
use report::model::{LoadLatency, Observer};
use units::{Duration, Rate};

use crate::failure::Failure;
use crate::target::Target;
use crate::{latency, observer};

/// Where measurements are made.
#[derive(Debug)]
pub(crate) enum Site {
    /// A lab on this machine.
    Lab {
        /// The running lab.
        lab: Box<Lab>,
        /// Its path.
        path: Box<PathFile>,
    },
    /// A far host.
    Host(String),
}

/// A measurement and what it means.
#[derive(Debug)]
pub(crate) struct Measured {
    /// What was transferred.
    pub(crate) outcome: Outcome,
    /// This end.
    pub(crate) near: HostFacts,
    /// The far end.
    pub(crate) far: FarFacts,
    /// What was expected before the first byte.
    pub(crate) prediction: Prediction,
    /// The lab's accuracy during it.
    pub(crate) certificate: Option<Certificate>,
    /// Why it was no faster.
    pub(crate) diagnosis: Diagnosis,
    /// The same path measured by others.
    pub(crate) observers: Vec<Observer>,
    /// Round trips idle and beside it.
    pub(crate) latency: Option<LoadLatency>,
}

/// What is known before the first byte.
struct Before {
    path: PathKnowledge,
    loss: Option<f64>,
    latency: bool,
}

/// What the client's thread brings back.
struct Transfer {
    outcome: Outcome,
    near: HostFacts,
    far: FarFacts,
    prediction: Prediction,
    latency: Option<LoadLatency>,
}

impl Site {
    /// Builds the lab, if the target is one.
    pub(crate) fn open(target: Target) -> Result<Self, Failure> {
        Ok(match target {
            Target::Host(host) => Self::Host(host),
            Target::Lab(path) => {
                tracing::info!("building the lab of {}", path.file.display());
                Self::Lab {
                    lab: Box::new(Lab::up(&path)?),
                    path,
                }
            }
        })
    }

    /// Runs `work` with a client of the far end, which in a lab is started for it.
    pub(crate) fn with_client<T: Send>(
        &self,
        stop: &Stop,
        work: impl FnOnce(Client) -> Result<T, MeasureError> + Send,
    ) -> Result<T, Failure> {
        match self {
            Self::Lab { lab, .. } => in_lab(lab, stop, work),
            Self::Host(target) => Client::connect_until(target, CONNECT_TIMEOUT, stop)
                .and_then(work)
                .map_err(Failure::from),
        }
    }

    /// What is known of the path from near to far (or back) before measuring.
    pub(crate) fn knowledge(&self, direction: Direction) -> PathKnowledge {
        let Self::Lab { path, .. } = self else {
            return PathKnowledge::default();
        };
        let spec = path.direction(direction == Direction::Up);
        PathKnowledge {
            bottleneck: spec.rate,
            mtu_bytes: Some(path.mtu_bytes()),
            queue: spec.rate.map(|_| spec.queue_bytes(path.mtu_bytes())),
            ..PathKnowledge::default()
        }
    }

    /// Random loss that is known before measuring.
    fn known_loss(&self, direction: Direction) -> Option<f64> {
        let Self::Lab { path, .. } = self else {
            return None;
        };
        Some(path.direction(direction == Direction::Up).loss).filter(|&loss| loss > 0.0)
    }

    /// Measures once.
    pub(crate) fn measure(
        &self,
        name: &str,
        config: &Config,
        stop: &Stop,
        observe: bool,
        latency: bool,
    ) -> Result<Measured, Failure> {
        let bar = progress_bar(name);
        let mut progress = |p: Progress| show(&bar, &p);
        let before = Before {
            path: self.knowledge(config.direction),
            loss: self.known_loss(config.direction),
            latency,
        };
        let phase = match self {
            Self::Lab { lab, .. } => Some(lab.begin_phase()?),
            Self::Host(_) => None,
        };
        let transfer = self.with_client(stop, |client| {
            transfer(client, config, &before, stop, &mut progress)
        });
        let made = match phase {
            Some(phase) => judged(transfer, phase.finish(), stop),
            None => transfer.map(|t| (t, None)),
        };
        bar.finish_and_clear();
        let (transfer, certificate) = made?;
        let trusted = certificate.as_ref().map(Certificate::trusted);
        let observers = match self {
            // An untrusted phase will be measured again, or stands for nothing.
            Self::Lab { lab, .. }
                if observe && !transfer.outcome.interrupted && trusted != Some(false) =>
            {
                observe_with_iperf3(lab, config, stop)
            }
            _ => Vec::new(),
        };
        let diagnosis = explain::diagnose(&evidence(&transfer, before.path, trusted));
        let Transfer {
            outcome,
            near,
            far,
            prediction,
            latency,
        } = transfer;
        Ok(Measured {
            outcome,
            near,
            far,
            prediction,
            certificate,
            diagnosis,
            observers,
            latency,
        })
    }
}

/// Puts transfer and certificate together; a transfer that failed since the lab did is the lab's
/// failure, not the network's.
fn judged(
    transfer: Result<Transfer, Failure>,
    certificate: Result<Certificate, lab::LabError>,
    stop: &Stop,
) -> Result<(Transfer, Option<Certificate>), Failure> {
    match (transfer, certificate) {
        (Ok(transfer), certificate) => Ok((transfer, Some(certificate?))),
        (Err(failure), Ok(c)) if !c.trusted() && !stop.is_stopped() => {
            Err(Failure::here(anyhow::anyhow!(
                "{failure}; the lab itself was at fault: {}",
                c.problems.join("; ")
            )))
        }
        (Err(failure), _) => Err(failure),
    }
}

/// The other tool's number; its failure costs a warning, not the measurement.
fn observe_with_iperf3(lab: &Lab, config: &Config, stop: &Stop) -> Vec<Observer> {
    match observer::iperf3(lab, config, stop) {
        Ok(observed) => vec![observed],
        Err(_) if stop.is_stopped() => Vec::new(),
        Err(failure) => {
            tracing::warn!("{failure}");
            Vec::new()
        }
    }
}

/// Raises a stop when it goes out of scope, however that happens: a server thread that nobody told
/// to stop would keep its scope from ending.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Starts a server on the lab's far host and runs `work` with a client of it on the near one.
fn in_lab<T: Send>(
    lab: &Lab,
    stop: &Stop,
    work: impl FnOnce(Client) -> Result<T, MeasureError> + Send,
) -> Result<T, Failure> {
    let address = SocketAddr::from((lab.far().address(), measure::DEFAULT_PORT));
    beside(
        lab,
        |ready, stop| match Server::bind(address, Limits::default()) {
            Ok(server) => {
                let _ = ready.send(Ok(()));
                server.serve(stop)
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                Ok(())
            }
        },
        || Client::connect_addr_until(address, CONNECT_TIMEOUT, stop).and_then(work),
    )
}

/// Runs `work` on the lab's near host while `serve` runs on its far one, each on threads of their own
/// host. `serve` says when it is ready, or why it never will be, and ends when told to.
pub(crate) fn beside<T: Send>(
    lab: &Lab,
    serve: impl FnOnce(Sender<Result<(), MeasureError>>, &Stop) -> Result<(), MeasureError> + Send,
    work: impl FnOnce() -> Result<T, MeasureError> + Send,
) -> Result<T, Failure> {
    let serving = Stop::new();
    thread::scope(|scope| {
        let (ready, bound) = mpsc::channel();
        let server_stop = serving.clone();
        let _ends = StopOnDrop(serving);
        let server = scope.spawn(move || {
            lab.far().run(|| {
                if let Err(e) = serve(ready, &server_stop) {
                    tracing::warn!("the far end of the lab failed: {e}");
                }
            })
        });
        match bound.recv() {
            Ok(Ok(())) => lab
                .near()
                .run(work)
                .map_err(Failure::from)
                .and_then(|r: Result<T, MeasureError>| r.map_err(Failure::from)),
            Ok(Err(e)) => Err(e.into()),
            // The thread is gone without a word: it could not enter the host.
            Err(_) => match server.join() {
                Ok(Err(e)) => Err(e.into()),
                _ => Err(lab::LabError::ForwarderGone.into()),
            },
        }
    })
}

/// Measures the idle path, predicts, and transfers.
fn transfer(
    mut client: Client,
    config: &Config,
    before: &Before,
    stop: &Stop,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Transfer, MeasureError> {
    let near = client.near().clone();
    let far = client.far().clone();
    let idle = client.idle_rtt_until(stop)?;
    let pinger = match before.latency {
        true => Some(latency::start(&client, stop)?),
        false => None,
    };
    let (sender, receiver) = hosts(config, &near, &far.host);
    let prediction = explain::predict(&explain::Setup {
        sender: &sender,
        receiver: &receiver,
        path: &before.path,
        idle_rtt: idle.min,
        streams: u32::from(config.streams),
        buffers: BufferModel::default(),
        loss_rate: before.loss,
    });
    tracing::info!(
        "idle round trip {}, prediction {}",
        idle.min,
        prediction.formula
    );
    let outcome = client.run(config, stop, &mut |p| progress(p))?;
    let latency = match pinger {
        Some(pinger) => latency::finish(pinger, &outcome)?,
        None => None,
    };
    Ok(Transfer {
        latency,
        outcome,
        near,
        far,
        prediction,
    })
}

/// Sender and receiver of a transfer as the rules see them.
fn hosts(config: &Config, near: &HostFacts, far: &HostFacts) -> (HostConfig, HostConfig) {
    let host = |facts: &HostFacts| HostConfig {
        tcp_rmem_bytes: facts.tcp_rmem_bytes,
        tcp_wmem_bytes: facts.tcp_wmem_bytes,
        congestion_control: config
            .congestion
            .clone()
            .or_else(|| facts.congestion_control.clone())
            .unwrap_or_default(),
        congestion_controls_available: facts.congestion_allowed.clone(),
        sndbuf_fixed: config.send_buffer,
        rcvbuf_fixed: config.receive_buffer,
    };
    match config.direction {
        Direction::Up => (host(near), host(far)),
        Direction::Down => (host(far), host(near)),
    }
}

fn evidence(t: &Transfer, path: PathKnowledge, lab_trusted: Option<bool>) -> Evidence {
    let config = &t.outcome.config;
    let (sender, receiver) = hosts(config, &t.near, &t.far.host);
    let mtu = path.mtu_bytes.or_else(|| path_mtu(&t.near, &t.far.host));
    let mut streams = vec![explain::StreamEvidence::default(); usize::from(config.streams)];
    for sample in &t.outcome.sender.samples {
        // Readings after the sending time would book the drain of the queues as idleness.
        let within = sample.kind != SampleKind::Drained;
        if let Some(stream) = streams
            .get_mut(usize::from(sample.stream))
            .filter(|_| within)
        {
            stream.samples.push(explain::Sample {
                t: sample.t,
                info: sample.info,
                app_bytes: units::Bytes::new(sample.app_bytes),
            });
        }
    }
    Evidence {
        streams,
        direction: match config.direction {
            Direction::Up => explain::Direction::Up,
            Direction::Down => explain::Direction::Down,
        },
        path: PathKnowledge {
            mtu_bytes: mtu,
            ..path
        },
        sender,
        receiver,
        duration: config.duration,
        ramp: config.ramp,
        goodput_after_ramp: t.outcome.goodput_after_ramp(),
        goodput_whole: t.outcome.goodput_whole(),
        idle_rtt: t.outcome.idle_rtt.min,
        target: target_rate(t),
        lab_trusted,
        writes_always: true,
        sender_cpu: cpu_share(&t.outcome.sender),
        receiver_cpu: cpu_share(&t.outcome.receiver),
        ..Evidence::default()
    }
}

/// The smaller of what either end may send.
pub(crate) fn path_mtu(near: &HostFacts, far: &HostFacts) -> Option<u32> {
    near.path_mtu_bytes
        .into_iter()
        .chain(far.path_mtu_bytes)
        .min()
}

/// CPUs that an end's data threads used, 1 being one CPU throughout.
fn cpu_share(end: &EndResult) -> Option<f64> {
    let wall = end.duration.as_s_f64();
    (wall > 0.0).then(|| end.cpu.as_s_f64() / wall)
}

/// What the transfer should reach where no bottleneck is known: the slower of the two interfaces.
fn target_rate(t: &Transfer) -> Option<Rate> {
    let speed = |host: &HostFacts| host.interface.as_ref()?.speed_bits_per_second;
    let speeds = [speed(&t.near), speed(&t.far.host)];
    speeds
        .into_iter()
        .flatten()
        .min()
        .map(Rate::from_bits_per_second)
}

fn progress_bar(name: &str) -> ProgressBar {
    // Hidden by indicatif itself when stderr is not a terminal.
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix:8} [{bar:30}] {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(name.to_owned());
    bar.set_message("connecting");
    bar
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_length(progress.duration.as_ns());
    bar.set_position(progress.elapsed.as_ns().min(progress.duration.as_ns()));
    bar.set_message(format!("{} received, {}", progress.bytes, progress.rate));
}

/// A far host that does not answer within this is down or behind a firewall.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_s(10);
