//! One measurement over a lab path or to a far host, with everything that explains it.

mod fill;
mod quic;
mod udp;

pub(crate) use fill::Found;

use std::net::SocketAddr;
use std::sync::mpsc::{self, Sender};
use std::thread;

use explain::{Diagnosis, Evidence, HostConfig, Prediction, ProbePlan, Scaling, WriteCost};
use lab::path::HostSpec;
use lab::{Bulk, Certificate, Lab, PathFile, Traffic};
use measure::iperf3::results::StreamResult;
use measure::iperf3::{self, Half, Tested, Wish};
use measure::{
    Approach, CONNECT_TIMEOUT, Client, Config, Direction, EndResult, FarFacts, HostFacts, Kept,
    Limits, MeasureError, Outcome, SampleKind, Server, Stop, Transport, WriteCosts,
};
use report::model::{Handshake, LoadLatency, Observer, UdpFacts};
use throughput::{BufferModel, PathKnowledge, Probe, ProbeKind, StreamEvidence};
use units::{Bytes, Rate};

use crate::buffers::granted;
use crate::observer::Tool;
use crate::watcher::Watcher;
use crate::{cost, latency, observer};
use fault::Failure;
use job::record as of_job;
use job::target::Target;
use sys::threads;

/// Where measurements are made.
#[derive(Debug)]
pub enum Site {
    /// A lab on this machine.
    Lab {
        /// The running lab.
        lab: Box<Lab>,
        /// Its path.
        path: Box<PathFile>,
    },
    /// A far host.
    Host {
        /// The host, maybe with a port.
        target: String,
        /// How to come to it.
        approach: Box<Approach>,
    },
    /// A far host with an iperf3 server.
    Iperf3 {
        /// The host, maybe with a port.
        target: String,
        /// What is asked of it.
        wish: Box<Wish>,
        /// How to come to it.
        approach: Box<Approach>,
    },
}

/// A measurement and what it means.
#[derive(Debug)]
pub struct Measured {
    /// What was transferred.
    pub outcome: Outcome,
    /// This end.
    pub near: HostFacts,
    /// The far end.
    pub far: FarFacts,
    /// What was expected before the first byte.
    pub prediction: Prediction,
    /// The lab's accuracy during it.
    pub certificate: Option<Certificate>,
    /// Why it was no faster.
    pub diagnosis: Diagnosis,
    /// Short transfers made to tell causes apart.
    pub probes: Vec<Probe>,
    /// The same path measured by others.
    pub observers: Vec<Observer>,
    /// A handshake seen by others.
    pub handshake: Option<Handshake>,
    /// What became of the datagrams.
    pub udp: Option<UdpFacts>,
    /// Segments that the far end told it sent again.
    pub retransmitted: Option<u64>,
    /// Round trips idle and beside it.
    pub latency: Option<LoadLatency>,
    /// What ended it before its time: what it says holds for the time until then.
    pub broken: Option<MeasureError>,
}

impl Measured {
    /// A transfer with its diagnosis, and nothing beside it.
    fn of(transfer: Transfer, certificate: Option<Certificate>, mut diagnosis: Diagnosis) -> Self {
        let Transfer {
            outcome,
            near,
            far,
            prediction,
            latency,
            broken,
        } = transfer;
        if let Some(error) = &broken {
            let (goodput, time) = (outcome.goodput_whole(), outcome.receiver.duration);
            let sentence = format!("Incomplete: {error}. {goodput} received in {time} until then.");
            udp::say_only(&mut diagnosis, sentence);
        }
        Self {
            outcome,
            near,
            far,
            prediction,
            certificate,
            diagnosis,
            probes: Vec::new(),
            observers: Vec::new(),
            handshake: None,
            udp: None,
            retransmitted: None,
            latency,
            broken,
        }
    }
}

/// What to do beside the measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Another tool to run over the same lab.
    pub observer: Option<Tool>,
    /// Whether to make probes where they would tell causes apart.
    pub probes: bool,
    /// Whether to measure round trips beside the transfer.
    pub latency: bool,
    /// Over UDP: search for the highest rate with at most this share lost.
    pub search: Option<f64>,
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
    broken: Option<MeasureError>,
}

impl Site {
    /// Builds the lab, if the target is one.
    pub fn open(target: Target, approach: &Approach) -> Result<Self, Failure> {
        Self::open_with(target, approach, lab::Options::default())
    }

    /// The same; a lab does what `options` say beside.
    pub fn open_with(
        target: Target,
        approach: &Approach,
        options: lab::Options,
    ) -> Result<Self, Failure> {
        Ok(match target {
            Target::Host(target) => Self::Host {
                target,
                approach: Box::new(approach.clone()),
            },
            Target::Lab(path) => {
                tracing::info!("building the lab of {}", path.file.display());
                Self::Lab {
                    lab: Box::new(Lab::up_with(&path, options)?),
                    path,
                }
            }
            Target::Iperf3(host) => {
                return Err(Failure::usage(format!(
                    "this wants `goodput serve` at {host}: an iperf3 server takes one transfer at a time"
                )));
            }
        })
    }

    /// Runs `work` with a client of the far end, which in a lab is started for it.
    pub fn with_client<T: Send>(
        &self,
        stop: &Stop,
        work: impl FnOnce(Client) -> Result<T, MeasureError> + Send,
    ) -> Result<T, Failure> {
        match self {
            Self::Lab { lab, .. } => in_lab(lab, stop, work),
            Self::Host { target, approach } => {
                Client::connect_by(approach, target, CONNECT_TIMEOUT, stop)
                    .and_then(work)
                    .map_err(Failure::from)
            }
            Self::Iperf3 { .. } => Err(no_client()),
        }
    }

    /// What is known of the path from near to far (or back) before measuring.
    pub fn knowledge(&self, direction: Direction) -> PathKnowledge {
        match self {
            Self::Lab { path, .. } => of_job::knowledge(path, direction == Direction::Up),
            _ => PathKnowledge::default(),
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
    pub fn measure(
        &self,
        name: &str,
        config: &Config,
        stop: &Stop,
        extras: Extras,
        watcher: &mut dyn Watcher,
    ) -> Result<Measured, Failure> {
        if config.transport == Transport::Udp {
            return self.measure_udp(name, config, stop, extras, watcher);
        }
        if config.transport == Transport::Quic {
            return self.measure_quic(name, config, stop, extras, watcher);
        }
        let before = self.before(config, extras);
        let (transfer, certificate) = self.shown((name, false), config, &before, stop, watcher)?;
        let trusted = certificate.as_ref().map(Certificate::trusted);
        let mut evidence = evidence(&transfer, before.path, trusted);
        of_lab(&mut evidence, certificate.as_ref());
        let mut diagnosis = explain::diagnose(&evidence);
        // An untrusted phase will be measured again, or stands for nothing.
        let ended = transfer.outcome.interrupted || transfer.broken.is_some();
        let whole = !ended && trusted != Some(false);
        let mut tried = Vec::new();
        while extras.probes && whole && !stop.is_stopped() {
            let Some(plan) = explain::next_probe(&diagnosis, &tried) else {
                break;
            };
            tried.push(plan);
            evidence
                .probes
                .extend(self.probe(&plan, config, &before, stop, watcher));
            diagnosis = explain::diagnose(&evidence);
        }
        if let Some(sentence) = mptcp_sentence(&transfer.outcome) {
            udp::say_only(&mut diagnosis, sentence);
        }
        if let Some(sentence) = cipher_sentence(&transfer.outcome) {
            udp::say_only(&mut diagnosis, sentence);
        }
        let (mut observers, mut handshake) = (Vec::new(), None);
        if let (Self::Lab { lab, .. }, true) = (self, whole) {
            match extras.observer {
                Some(Tool::Iperf3) => {
                    observers.extend(told(observer::iperf3(lab, config, None, stop), stop));
                }
                Some(Tool::Tshark) => {
                    handshake = told(observer::tshark(lab, stop), stop);
                }
                None => {}
            }
        }
        Ok(Measured {
            probes: evidence.probes,
            observers,
            handshake,
            ..Measured::of(transfer, certificate, diagnosis)
        })
    }

    fn before(&self, config: &Config, extras: Extras) -> Before {
        Before {
            path: self.knowledge(config.direction),
            loss: self.known_loss(config.direction),
            latency: extras.latency,
        }
    }

    /// One transfer that can be watched, by a name and whether it is a probe.
    fn shown(
        &self,
        (name, is_probe): (&str, bool),
        config: &Config,
        before: &Before,
        stop: &Stop,
        watcher: &mut dyn Watcher,
    ) -> Result<(Transfer, Option<Certificate>), Failure> {
        watcher.begins(name, is_probe);
        let done = self.transfer(config, before, stop, watcher);
        watcher.ends();
        done
    }

    /// One transfer, in a lab with what the lab says of itself.
    fn transfer(
        &self,
        config: &Config,
        before: &Before,
        stop: &Stop,
        watcher: &mut dyn Watcher,
    ) -> Result<(Transfer, Option<Certificate>), Failure> {
        let phase = match self {
            Self::Lab { lab, .. } => Some(lab.begin_phase()?),
            _ => None,
        };
        let transfer = self.with_client(stop, |client| {
            transfer(client, config, before, stop, watcher)
        });
        match phase {
            Some(phase) => {
                let most = before.path.achievable_rate();
                let told = transfer.as_ref().map(|t| traffic(t, most));
                let traffic = told.unwrap_or_default();
                judged(transfer, phase.finish_of(&traffic), stop)
            }
            None => transfer.map(|t| (t, None)),
        }
    }

    /// Makes a probe; `None`, with a warning, when it failed or the lab fell behind during it. It
    /// costs the finer distinction, not the measurement.
    fn probe(
        &self,
        plan: &ProbePlan,
        config: &Config,
        before: &Before,
        stop: &Stop,
        watcher: &mut dyn Watcher,
    ) -> Option<Probe> {
        let mut config = Config {
            streams: plan.streams,
            duration: plan.duration,
            ramp: plan.ramp,
            ..config.clone()
        };
        match plan.kind {
            ProbeKind::Segments(bytes) => config.segment_bytes = Some(bytes),
            ProbeKind::Paced(rate) => {
                let each = rate.as_bits_per_second() / u64::from(plan.streams.max(1));
                config.max_pacing = Some(Rate::from_bits_per_second(each));
            }
        }
        for _ in 0..PROBE_TRIES {
            match self.shown(("probe", true), &config, before, stop, watcher) {
                Err(_) if stop.is_stopped() => return None,
                Ok((transfer, _)) if transfer.outcome.interrupted => return None,
                Ok((
                    Transfer {
                        broken: Some(error),
                        ..
                    },
                    _,
                )) => {
                    tracing::warn!("a probe failed: {error}");
                    return None;
                }
                Ok((transfer, certificate)) => {
                    let trusted = certificate.as_ref().map(Certificate::trusted);
                    if trusted != Some(false) {
                        let mut evidence = evidence(&transfer, before.path, trusted);
                        of_lab(&mut evidence, certificate.as_ref());
                        return Some(plan.outcome(&evidence));
                    }
                }
                Err(failure) => {
                    tracing::warn!("a probe failed: {failure}");
                    return None;
                }
            }
        }
        tracing::warn!("the lab fell behind during each try of a probe, which tells nothing then");
        None
    }

    /// Measures once with an iperf3 server: one measurement for each direction, and the test in
    /// iperf3's own terms.
    pub fn measure_iperf3(
        &self,
        name: &str,
        stop: &Stop,
        watcher: &mut dyn Watcher,
    ) -> Result<(Vec<Measured>, Tested), Failure> {
        let Self::Iperf3 {
            target,
            wish,
            approach,
        } = self
        else {
            return Err(Failure::here("no iperf3 server"));
        };
        watcher.begins(name, false);
        let connected = iperf3::Client::connect_by(approach, target, CONNECT_TIMEOUT, stop);
        let tested = connected.and_then(|client| {
            let near = client.near().clone();
            let tested = client.run(wish, stop, &mut |p| watcher.progress(&p))?;
            Ok((near, tested))
        });
        watcher.ends();
        let (near, tested) = tested?;
        let halves = tested.halves.iter();
        let measured = halves.map(|half| of_half(half, &tested, &near)).collect();
        Ok((measured, tested))
    }
}

/// One direction of an iperf3 test as a measurement. Of the far end only totals are known, so where
/// it sends nothing says what held it back.
fn of_half(half: &Half, tested: &Tested, near: &HostFacts) -> Measured {
    let outcome = half.outcome.clone();
    let far = FarFacts {
        version: "iperf3".to_owned(),
        ..FarFacts::default()
    };
    let path = PathKnowledge::default();
    let (sender, receiver) = hosts(&outcome.config, near, &far.host);
    let mut prediction = explain::predict(&explain::Setup {
        sender: &sender,
        receiver: &receiver,
        path: &path,
        idle_rtt: outcome.idle_rtt.min,
        streams: u32::from(outcome.config.streams),
        buffers: BufferModel::default(),
        loss_rate: None,
    });
    let mut transfer = Transfer {
        outcome,
        near: near.clone(),
        far,
        prediction: prediction.clone(),
        latency: None,
        broken: None,
    };
    if half.udp.is_some() {
        let all = tested
            .params
            .rate
            .saturating_mul(tested.params.streams.into());
        udp::expect_rate(&mut prediction, all);
        udp::forget_tcp(&mut transfer.outcome);
    }
    let mut diagnosis = explain::diagnose(&evidence(&transfer, path, None));
    let udp = udp_facts(half);
    let goodput = half.outcome.goodput_after_ramp();
    let unknown = match (&udp, half.outcome.config.direction) {
        (Some(udp), _) => Some(udp::sentence(udp, goodput)),
        (None, Direction::Down) => Some(format!(
            "{goodput} received; what held the sender back only its own kernel knows, which iperf3 \
             does not ask: run `goodput serve` there"
        )),
        (None, Direction::Up) => None,
    };
    if let Some(sentence) = unknown {
        udp::say_only(&mut diagnosis, sentence);
    }
    let far_sends = half.outcome.config.direction == Direction::Down;
    let again: Option<Vec<u64>> = half.far.iter().map(|s| s.retransmits).collect();
    Measured {
        outcome: half.outcome.clone(),
        near: near.clone(),
        far: transfer.far,
        prediction,
        certificate: None,
        diagnosis,
        probes: Vec::new(),
        observers: Vec::new(),
        handshake: None,
        udp,
        latency: None,
        broken: None,
        retransmitted: again.filter(|_| far_sends).map(|all| all.iter().sum()),
    }
}

fn udp_facts(half: &Half) -> Option<UdpFacts> {
    let samples = half.udp.as_ref()?;
    let near_receives = half.outcome.config.direction == Direction::Down;
    let received = if near_receives { &half.near } else { &half.far };
    let packets = |streams: &[StreamResult]| -> u64 {
        let counted = |s: &StreamResult| s.packets.saturating_sub(s.packets_omitted);
        streams.iter().map(counted).sum()
    };
    let lost = |s: &StreamResult| u64::try_from(s.lost.saturating_sub(s.lost_omitted)).unwrap_or(0);
    // The last round of readings holds each stream's totals.
    let last = samples.len().saturating_sub(received.len());
    let sum = |value: fn(&measure::UdpSample) -> u64| {
        near_receives.then(|| samples[last..].iter().map(value).sum())
    };
    let jitter: f64 = received.iter().map(|s| s.jitter_s).sum();
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of some microseconds; a float cast saturates"
    )]
    let jitter_ns = (jitter / received.len().max(1) as f64 * 1e9) as u64;
    Some(UdpFacts {
        packets: packets(&half.near).max(packets(&half.far)),
        lost: received.iter().map(lost).sum(),
        late: sum(|s| s.late),
        duplicates: sum(|s| s.duplicates),
        jitter_ns,
        ..UdpFacts::default()
    })
}

/// Clients of one far end on several hosts of a lab, or the only one.
#[derive(Debug)]
pub struct Clients<'a> {
    site: &'a Site,
    near: Client,
    others: Vec<(String, Client)>,
}

impl<'a> Clients<'a> {
    /// With the near host's client.
    pub const fn new(site: &'a Site, near: Client) -> Self {
        Self {
            site,
            near,
            others: Vec::new(),
        }
    }

    /// The near host's.
    pub const fn near(&mut self) -> &mut Client {
        &mut self.near
    }

    /// Runs a transfer from the host of that name, else from the near one. A host's client connects at
    /// its first transfer.
    pub fn run(
        &mut self,
        from: Option<&str>,
        config: &Config,
        stop: &Stop,
    ) -> Result<Outcome, Failure> {
        let (lab, name) = match (self.site, from) {
            (Site::Lab { lab, .. }, Some(name)) if name != lab.near().name() => (lab, name),
            _ => return Ok(self.near.run(config, stop, &mut |_| {})?),
        };
        let host = lab.host(name)?;
        let known = self.others.iter().position(|(n, _)| n == name);
        let (near, others) = (&self.near, &mut self.others);
        let ran = host.run(|| -> Result<Outcome, MeasureError> {
            let at = match known {
                Some(at) => at,
                None => {
                    let address = near.addr();
                    let client = Client::connect_addr_until(address, CONNECT_TIMEOUT, stop)?;
                    others.push((name.to_owned(), client));
                    others.len() - 1
                }
            };
            others[at].1.run(config, stop, &mut |_| {})
        });
        Ok(ran??)
    }
}

/// An iperf3 server is measured by [`Site::measure_iperf3`].
fn no_client() -> Failure {
    Failure::here("an iperf3 server has no session of ours")
}

/// What a transfer was to the lab that carried it.
fn traffic(t: &Transfer, achievable: Option<Rate>) -> Traffic {
    let config = &t.outcome.config;
    let up = config.direction == Direction::Up;
    let (sender, receiver) = match up {
        true => (&t.near, &t.far.host),
        false => (&t.far.host, &t.near),
    };
    let has_pace =
        config.max_pacing.is_some() || config.finds_gap || config.evens || config.rate.is_some();
    let is_plain = !has_pace && config.window_clamp.is_none() && config.segment_bytes.is_none();
    let fixed = |asked: Option<Bytes>, granted: Bytes, tuned: Option<[u64; 3]>| match asked {
        Some(_) => Some([granted.as_u64(); 3]),
        None => tuned,
    };
    let (sent, received) = (&t.outcome.sender, &t.outcome.receiver);
    let send_buffer = fixed(config.send_buffer, sent.send_buffer, sender.tcp_wmem_bytes);
    let receive_buffer = fixed(
        config.receive_buffer,
        received.receive_buffer,
        receiver.tcp_rmem_bytes,
    );
    match (config.transport, send_buffer, receive_buffer) {
        (Transport::Udp, ..) => Traffic::Datagrams,
        (Transport::Tcp, Some(send_buffer), Some(receive_buffer)) if is_plain => {
            Traffic::Bulk(Bulk {
                streams: config.streams,
                congestion: (config.congestion.clone())
                    .or_else(|| sender.congestion_control.clone())
                    .unwrap_or_default(),
                up,
                duration: config.duration,
                ramp: config.ramp,
                send_buffer,
                receive_buffer,
                ends_waited: waited(sent) + waited(received),
                headroom: achievable.map(|most| headroom(most, t.outcome.goodput_after_ramp())),
            })
        }
        _ => Traffic::Other,
    }
}

/// Share of the time that an end's busiest thread waited for a CPU.
fn waited(end: &EndResult) -> f64 {
    cost::load(end).map_or(0.0, |load| load.thread_waited)
}

/// How much more than `got` could have come, as a share of it.
#[allow(clippy::cast_precision_loss, reason = "rates far below 2^53")]
fn headroom(most: Rate, got: Rate) -> f64 {
    most.as_bits_per_second() as f64 / got.as_bits_per_second().max(1) as f64 - 1.0
}

/// Puts the lab's own part into the evidence.
fn of_lab(evidence: &mut Evidence, certificate: Option<&Certificate>) {
    let Some(certificate) = certificate else {
        return;
    };
    evidence.lab_losses = certificate.frames_lost_by_lab();
    let ppm = certificate.error.goodput_ppm;
    evidence.lab_slowed =
        (!certificate.is_faulty).then(|| f64::from(u32::try_from(ppm).unwrap_or(u32::MAX)) / 1e6);
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
        (Err(failure), Ok(c)) if !c.trusted() && !stop.is_stopped() => Err(Failure::here(format!(
            "{failure}; the lab itself was at fault: {}",
            c.problems.join("; ")
        ))),
        (Err(failure), _) => Err(failure),
    }
}

/// What the other tool said; its failure costs a warning, not the measurement.
pub fn told<T>(said: Result<T, Failure>, stop: &Stop) -> Option<T> {
    match said {
        Ok(said) => Some(said),
        Err(_) if stop.is_stopped() => None,
        Err(failure) => {
            tracing::warn!("{failure}");
            None
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
pub fn beside<T: Send>(
    lab: &Lab,
    serve: impl FnOnce(Sender<Result<(), MeasureError>>, &Stop) -> Result<(), MeasureError> + Send,
    work: impl FnOnce() -> Result<T, MeasureError> + Send,
) -> Result<T, Failure> {
    let serving = Stop::new();
    thread::scope(|scope| {
        let (ready, bound) = mpsc::channel();
        let server_stop = serving.clone();
        let _ends = StopOnDrop(serving);
        let server = threads::scoped(scope, "gp-serve", move || {
            lab.far().run(|| {
                if let Err(e) = serve(ready, &server_stop) {
                    tracing::warn!("the far end of the lab failed: {e}");
                }
            })
        })
        .map_err(Failure::here)?;
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
    watcher: &mut dyn Watcher,
) -> Result<Transfer, MeasureError> {
    let near = client.near().clone();
    let far = client.far().clone();
    if let (Direction::Down, Some(max)) = (config.direction, far.rate_max_bits_per_second) {
        let max = Rate::from_bits_per_second(max);
        watcher.note(&format!(
            "the server sends at most {max} to clients without its token (serve --rate-max)"
        ));
    }
    let idle = client.idle_rtt_until(stop)?;
    let pinger = match before.latency {
        true => Some(latency::start(&client, CONNECT_TIMEOUT, stop)?),
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
    let Kept { outcome, broken } = client.run_kept(config, stop, &mut |p| watcher.progress(&p))?;
    let latency = pinger.map(|pinger| latency::finish(pinger, &outcome));
    let latency = match (latency.transpose(), &broken) {
        (Err(_), Some(_)) => None,
        (latency, _) => latency?.flatten(),
    };
    Ok(Transfer {
        latency,
        broken,
        outcome,
        near,
        far,
        prediction,
    })
}

/// Sender and receiver of a transfer as the rules see them.
fn hosts(config: &Config, near: &HostFacts, far: &HostFacts) -> (HostConfig, HostConfig) {
    let host = |facts: &HostFacts, write_cost| HostConfig {
        write_cost,
        tcp_rmem_bytes: facts.tcp_rmem_bytes,
        tcp_wmem_bytes: facts.tcp_wmem_bytes,
        window_scaling: facts.tcp_window_scaling,
        congestion_control: config
            .congestion
            .clone()
            .or_else(|| facts.congestion_control.clone())
            .unwrap_or_default(),
        congestion_controls_available: facts.congestion_allowed.clone(),
        sndbuf_fixed: config.send_buffer,
        rcvbuf_fixed: config.receive_buffer,
        bus: facts.interface.as_ref().and_then(|nic| {
            Some(Rate::from_bits_per_second(
                nic.pci.as_ref()?.bits_per_second,
            ))
        }),
    };
    match config.direction {
        Direction::Up => (host(near, write_cost(config)), host(far, None)),
        Direction::Down => (host(far, None), host(near, None)),
    }
}

/// What the near end's writes cost it by declaration.
fn write_cost(config: &Config) -> Option<WriteCost> {
    let costs = config.costs;
    (!costs.is_none()).then(|| WriteCost {
        write: Bytes::new(config.block_bytes.into()),
        call: costs.call,
        packet: costs.packet,
        copy: costs.copy,
        page: costs.page,
        page_size: costs.page_size,
    })
}

fn evidence(t: &Transfer, path: PathKnowledge, lab_trusted: Option<bool>) -> Evidence {
    let config = &t.outcome.config;
    let (mut sender, mut receiver) = hosts(config, &t.near, &t.far.host);
    // What was asked for is not what held the transfer.
    sender.sndbuf_fixed = granted(config.send_buffer, t.outcome.sender.send_buffer);
    receiver.rcvbuf_fixed = granted(config.receive_buffer, t.outcome.receiver.receive_buffer);
    let mtu = path.mtu_bytes.or_else(|| path_mtu(&t.near, &t.far.host));
    let mut streams = vec![StreamEvidence::default(); usize::from(config.streams)];
    for sample in &t.outcome.sender.samples {
        // Readings after the sending time would book the drain of the queues as idleness.
        let within = sample.kind != SampleKind::Drained;
        if let Some(stream) = streams
            .get_mut(usize::from(sample.stream))
            .filter(|_| within)
        {
            stream.samples.push(throughput::Sample {
                t: sample.t,
                info: sample.info,
                app_bytes: Bytes::new(sample.app_bytes),
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
        receiver_scaling: t
            .outcome
            .receiver
            .samples
            .last()
            .map(|s| Scaling::of(&s.info)),
        writes_always: config.rate.is_none(),
        finds_pace: config.finds_gap,
        sender_cpu: cpu_share(&t.outcome.sender),
        receiver_cpu: cpu_share(&t.outcome.receiver),
        sender_load: cost::load(&t.outcome.sender),
        receiver_load: cost::load(&t.outcome.receiver),
        one_machine: t.outcome.on_one_machine(),
        ..Evidence::default()
    }
}

/// What writing costs a host of a path file. `Config` refuses what does not go with it, such as a
/// sender at the far end, to whom it would have to travel.
pub fn costs(host: &HostSpec) -> WriteCosts {
    WriteCosts {
        call: host.costs.write,
        packet: host.costs.packet,
        copy: host.costs.copy_rate,
        page: host.costs.page,
        page_size: host.costs.page_size,
    }
}

/// The smaller of what either end may send.
pub fn path_mtu(near: &HostFacts, far: &HostFacts) -> Option<u32> {
    near.path_mtu_bytes
        .into_iter()
        .chain(far.path_mtu_bytes)
        .min()
}

/// What to say over multipath TCP, if the near end's connections stayed that.
fn mptcp_sentence(outcome: &Outcome) -> Option<String> {
    let near_end = match outcome.config.direction {
        Direction::Up => &outcome.sender,
        Direction::Down => &outcome.receiver,
    };
    near_end.mptcp.filter(|mptcp| mptcp.streams > 0)?;
    let goodput = outcome.goodput_after_ramp();
    // tcp_info is the first subflow's: idle there means that another carries, or that the
    // multipath layer above holds the data.
    Some(format!(
        "{goodput} received over multipath TCP; what held the sender back the kernel tells \
         of single subflows only"
    ))
}

/// What to say over TLS and QUIC when the threads that encrypt or decrypt were busy throughout: windows and
/// buffers only show it then.
fn cipher_sentence(outcome: &Outcome) -> Option<String> {
    if !matches!(outcome.config.transport, Transport::Tls | Transport::Quic) {
        return None;
    }
    let each = |end: &EndResult| cpu_share(end).unwrap_or(0.0) / f64::from(outcome.config.streams);
    let (sender, receiver) = (each(&outcome.sender), each(&outcome.receiver));
    let busiest = sender.max(receiver);
    if busiest < CIPHER_BUSY {
        return None;
    }
    let end = if sender >= receiver {
        "sender"
    } else {
        "receiver"
    };
    let (goodput, cipher) = (outcome.goodput_after_ramp(), outcome.config.cipher.name());
    let (work, of) = match outcome.config.transport {
        Transport::Quic => (format!("which are QUIC and encrypt with {cipher}"), "QUIC"),
        _ => (
            format!("which encrypt with {cipher} or decrypt"),
            "the cipher",
        ),
    };
    Some(format!(
        "The {end}'s threads, {work}, were busy {:.0} % of the time: that holds this transfer to {goodput}. \
         Plain TCP beside it tells how much of it is {of}",
        100.0 * busiest
    ))
}

/// CPUs that an end's data threads used, 1 being one CPU throughout.
pub fn cpu_share(end: &EndResult) -> Option<f64> {
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

/// Above this a thread that also waits for the kernel now and then is the limit.
const CIPHER_BUSY: f64 = 0.85;
/// A lab that falls behind twice in a row runs on a machine that is too busy.
const PROBE_TRIES: u32 = 2;

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;

    #[test]
    fn an_application_with_a_rate_does_not_always_write() {
        let writes_always = |rate: Option<u64>| {
            let config = Config {
                rate: rate.map(Rate::from_bits_per_second),
                ..Config::default()
            };
            let facts = HostFacts::default();
            let (sender, receiver) = hosts(&config, &facts, &facts);
            let prediction = explain::predict(&explain::Setup {
                sender: &sender,
                receiver: &receiver,
                path: &PathKnowledge::default(),
                idle_rtt: Duration::ZERO,
                streams: 1,
                buffers: BufferModel::default(),
                loss_rate: None,
            });
            let transfer = Transfer {
                outcome: Outcome {
                    config,
                    idle_rtt: measure::IdleRtt::default(),
                    sender: EndResult::default(),
                    receiver: EndResult::default(),
                    interrupted: false,
                    complete: true,
                },
                near: facts,
                far: FarFacts::default(),
                prediction,
                latency: None,
                broken: None,
            };
            evidence(&transfer, PathKnowledge::default(), None).writes_always
        };
        assert!(writes_always(None));
        assert!(!writes_always(Some(50_000_000)));
    }

    #[test]
    fn a_declared_cost_is_judged_by_what_a_write_is_made_to_cost() {
        let config = Config {
            block_bytes: 10 * 1_448,
            costs: WriteCosts {
                call: Duration::from_us(12),
                packet: Duration::from_us(3),
                copy: Some(Rate::from_bits_per_second(2_000_000_000)),
                page: Duration::from_us(49),
                page_size: Bytes::new(8_192),
            },
            ..Config::default()
        };
        let spent = config.costs.of_write(14_480, 10);
        let judged = write_cost(&config).unwrap().rate(1_448, 1).unwrap();
        let wanted = Rate::average(Bytes::new(14_480), spent);
        let off = judged
            .as_bits_per_second()
            .abs_diff(wanted.as_bits_per_second());
        assert!(off <= 1, "{judged} for {wanted}");
        assert_eq!(write_cost(&Config::default()), None);
        // Only the near end spends it.
        let facts = HostFacts::default();
        let (sender, receiver) = hosts(&config, &facts, &facts);
        assert!(sender.write_cost.is_some() && receiver.write_cost.is_none());
    }

    #[test]
    fn a_busy_end_is_named_over_tls_only() {
        let outcome = |transport, sender_ms: u64, receiver_ms: u64| {
            let end = |ms| EndResult {
                cpu: Duration::from_ms(ms),
                duration: Duration::from_s(1),
                ..EndResult::default()
            };
            Outcome {
                config: Config {
                    transport,
                    streams: 2,
                    ..Config::default()
                },
                idle_rtt: measure::IdleRtt::default(),
                sender: end(sender_ms),
                receiver: end(receiver_ms),
                interrupted: false,
                complete: true,
            }
        };
        let said =
            |transport, sender, receiver| cipher_sentence(&outcome(transport, sender, receiver));
        // Two threads: 85 % of each.
        assert_eq!(said(Transport::Tls, 1_699, 100), None);
        assert!(said(Transport::Tls, 1_700, 100).unwrap().contains("sender"));
        let text = said(Transport::Tls, 100, 1_800).unwrap();
        assert!(text.contains("receiver") && text.contains("90 %"), "{text}");
        assert_eq!(said(Transport::Tcp, 2_000, 2_000), None);
    }
}
