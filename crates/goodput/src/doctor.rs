//! `goodput doctor` and `goodput measure`: measure, explain, fix, prove.
//!
//! Doctor measures a path, names what limits it, applies the first remedy that has settings (inside
//! a lab only: nothing on a real host is changed), measures again and keeps everything in a run
//! folder. Measure is its first half.

mod fill;

use lab::path::HostSpec;
use lab::{Lab, PathFile};
use measure::iperf3::{self, Wish};
use measure::{
    Approach, Cipher, Config, Direction, MeasureError, Secret, Sending, Transport, WriteCosts,
};
use report::RunFolder;
use report::model::{FindingRecord, Phase, ResultRecord, Run};
use report::settling;
use sys::bpf::RENO_BY_ACKS;
use units::Duration;

use crate::balance;
use crate::cli::{
    ApproachArgs, CipherArg, DirectionArg, FormatArg, PacingArg, TestArgs, TransferArgs,
    TransportArg, UdpArg,
};
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};
use crate::growth;
use crate::legs;
use crate::live::Live;
use crate::record;
use crate::session::{Extras, Measured, Site};
use crate::target::Target;

/// What a verb that measures is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    /// `doctor` or `measure`.
    pub(crate) verb: &'a str,
    /// What was typed.
    pub(crate) args: &'a TransferArgs,
    /// What was typed beside, of `measure`.
    pub(crate) test: &'a TestArgs,
    /// Whether to apply a remedy and measure again.
    pub(crate) fix: bool,
    /// Whether to measure round trips beside the transfer.
    pub(crate) latency: bool,
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) run: Run,
    pub(crate) findings: Vec<FindingRecord>,
    pub(crate) folder: std::path::PathBuf,
    /// What iperf3 would print, if it was asked for.
    pub(crate) document: Option<serde_json::Value>,
}

/// Runs the verb and prints what it found.
pub(crate) fn command(plan: Plan<'_>, context: &Context) -> Verdict {
    let finished = perform(plan, context)?;
    say(&finished, plan.args, plan.test.format)?;
    Ok(exit_code(plan, &finished.run))
}

/// Prints a run as it was asked for.
pub(crate) fn say(
    finished: &Finished,
    args: &TransferArgs,
    format: FormatArg,
) -> Result<(), Failure> {
    if let Some(document) = &finished.document {
        context::print_json(document)?;
    } else if format == FormatArg::Jsonl {
        let last = ResultRecord {
            event: "result".to_owned(),
            folder: finished.folder.display().to_string(),
            run: finished.run.clone(),
        };
        context::print_json_line(&last)?;
    } else if args.json || format == FormatArg::Json {
        context::print_json(&finished.run)?;
    } else {
        let (color, width) = (context::color(), context::width());
        let summary = report::terminal::summary(&finished.run, &finished.findings, color, width);
        let page = finished.folder.join("report.html");
        let streams = finished.run.balance.as_ref().map(balance::text);
        let streams = streams.map_or_else(String::new, |text| format!("\n{text}"));
        context::print_colored(&format!("{summary}{streams}\n"))?;
        context::print_place("Report", &page)?;
    }
    Ok(())
}

/// Zero when the question was answered. A doctor's is the cause, proved by a gain where a remedy was
/// applied (a tenth, so that chance proves nothing); a measurement's is the number, which a lab that fell behind does not give.
fn exit_code(plan: Plan<'_>, run: &Run) -> u8 {
    let trusted = |p: &Phase| p.certificate.as_ref().is_none_or(|c| c.trusted);
    let conclusive = run.verdict.as_ref().is_some_and(|v| v.conclusive);
    let gained = match run.phases.as_slice() {
        [before, after, ..] => {
            let before = before.goodput_bits_per_second;
            after.goodput_bits_per_second >= before + before / 10
        }
        _ => true,
    };
    let answered = match plan.verb {
        "measure" => run.phases.iter().all(trusted),
        _ => conclusive && gained,
    };
    if answered {
        failure::DONE
    } else {
        failure::CHECK_FAILED
    }
}

/// Measures and keeps the run; the folder is left readable however it ends.
pub(crate) fn perform(plan: Plan<'_>, context: &Context) -> Result<Finished, Failure> {
    let target = Target::parse(plan.args.target.as_deref())?;
    let mut config = config(plan.args, plan.test, &target)?;
    let approach = approach(&plan.args.approach, &target)?;
    let growth = growth::register(plan.args, plan.test, &target)?;
    if growth.is_some() {
        config.congestion = Some(RENO_BY_ACKS.to_owned());
    }
    let run = record::begin(plan.verb, &target, context);
    let mut folder = RunFolder::create(&plan.args.runs, plan.verb, &target.name(), run.clone())?;
    let mut doctor = Doctor {
        plan,
        context,
        config,
        approach,
        run,
        findings: Vec::new(),
        document: None,
    };
    let result = doctor.work(target, &mut folder);
    let Doctor {
        mut run,
        findings,
        document,
        ..
    } = doctor;
    record::end_as(&mut run, &result, context);
    let path = folder.path().to_owned();
    let kept = folder.finish(&run, &findings);
    match (context.interrupted(), result) {
        (Some(code), _) => {
            if !run.phases.is_empty() {
                let page = path.join("report.html");
                context::note(format_args!("what was measured so far: {}", page.display()));
            }
            Err(Failure::interrupted(code))
        }
        (None, Err(failure)) => Err(failure),
        (None, Ok(())) => {
            kept?;
            Ok(Finished {
                run,
                findings,
                folder: path,
                document,
            })
        }
    }
}

struct Doctor<'a> {
    plan: Plan<'a>,
    context: &'a Context,
    config: Config,
    approach: Approach,
    run: Run,
    findings: Vec<FindingRecord>,
    document: Option<serde_json::Value>,
}

impl Doctor<'_> {
    fn work(&mut self, target: Target, folder: &mut RunFolder) -> Result<(), Failure> {
        if !self.plan.test.via.is_empty() {
            return self.along(target, folder);
        }
        let approach = Box::new(self.approach.clone());
        let site = match target {
            Target::Iperf3(target) => {
                let wish = Box::new(wish(self.plan.test, &self.config)?);
                let site = Site::Iperf3 {
                    target,
                    wish,
                    approach,
                };
                return self.with_iperf3(&site, folder);
            }
            other if self.plan.test.balance => return self.balanced(other, folder),
            other => Site::open(other, &self.approach)?,
        };
        if self.plan.test.fill {
            return self.fill(&site, folder);
        }
        let name = match &site {
            Site::Lab { .. } if self.plan.fix => "before",
            _ => "measured",
        };
        let before = self.phase(&site, name, &[], folder)?;
        self.judge(&before);
        if self.plan.test.format == FormatArg::Iperf3Json {
            if before.udp.is_some() {
                tracing::warn!("iperf3-json of our own protocol over UDP has bytes and no losses");
            }
            let about = self.circumstances(&site, &before);
            self.document = Some(iperf3::document_of(&before.outcome, &about));
        }
        let verdict = &before.diagnosis.verdict;
        if before.outcome.interrupted || !self.plan.fix || !verdict.conclusive {
            return Ok(());
        }
        // The verdict's own remedy or none: what another finding would mend proves nothing of it.
        let main = before.diagnosis.findings.first();
        let remedy = main
            .and_then(|f| f.remedy.as_ref())
            .filter(|r| !r.settings.is_empty() && !verdict.healthy);
        let (Site::Lab { lab, .. }, Some(remedy)) = (&site, remedy) else {
            return Ok(());
        };
        let applied = self.apply(lab, &remedy.settings)?;
        let after = self.phase(&site, "after", &applied, folder)?;
        if !after.outcome.interrupted {
            self.conclude(&before, &after);
        }
        Ok(())
    }

    /// Measures once in a lab that logs its packets, and tells how the streams fared at the queue.
    fn balanced(&mut self, target: Target, folder: &mut RunFolder) -> Result<(), Failure> {
        if !matches!(target, Target::Lab(_)) {
            return Err(Failure::usage(anyhow::anyhow!("{BALANCE_WANTS_LAB}")));
        }
        let log = balance::Log::new()?;
        let options = lab::Options {
            log: Some(log.file().to_owned()),
        };
        let site = Site::open_with(target, &self.approach, options)?;
        let measured = self.phase(&site, "measured", &[], folder)?;
        self.judge(&measured);
        let Site::Lab { lab, .. } = site else {
            return Ok(());
        };
        let end = lab.down()?;
        self.run.balance = Some(log.balance(end, self.plan.test.striped)?);
        Ok(())
    }

    /// Measures to each tester along the path, then to the far end, and names the bad leg.
    fn along(&mut self, target: Target, folder: &mut RunFolder) -> Result<(), Failure> {
        if self.plan.test.format == FormatArg::Iperf3Json {
            return Err(Failure::usage(anyhow::anyhow!(
                "--via and --format iperf3-json: iperf3's layout holds one test; --format json holds all"
            )));
        }
        let stops = legs::stops(&self.plan.test.via, target)?;
        let mut legs = Vec::new();
        for stop in stops {
            let site = Site::open(Target::Host(stop.clone()), &self.approach)?;
            let name = legs::phase_name(&stop);
            let measured = self.phase(&site, &name, &[], folder)?;
            // The run's far end and path are those of the last.
            self.run.hosts = record::hosts(&site, &measured);
            self.run.path = Some(record::path(&site, &measured));
            self.judge(&measured);
            legs.push(legs::leg(&stop, &measured));
            if measured.outcome.interrupted {
                break;
            }
        }
        let compared = explain::compare_legs(&legs);
        self.run.legs = legs::records(&legs, &compared);
        if let Some(verdict) = &mut self.run.verdict {
            legs::conclude(verdict, &compared);
        }
        Ok(())
    }

    fn judge(&mut self, measured: &Measured) {
        self.run.verdict = Some(record::verdict(&measured.diagnosis));
    }

    /// Measures once with an iperf3 server; each direction is a phase. The verdict is the near
    /// sender's, of whom the kernel's clocks are known, if it sends.
    fn with_iperf3(&mut self, site: &Site, folder: &mut RunFolder) -> Result<(), Failure> {
        let (halves, tested) = site.measure_iperf3(
            "measured",
            &self.context.stop,
            Live::of(self.plan.args, self.plan.test),
        )?;
        if let Some(first) = halves.first() {
            self.judge(first);
            if self.plan.test.format == FormatArg::Iperf3Json {
                let about = self.circumstances(site, first);
                self.document = Some(iperf3::document(&tested, &about));
            }
        }
        for half in &halves {
            let name = match (halves.len(), half.outcome.config.direction) {
                (1, _) => "measured",
                (_, Direction::Up) => "up",
                (_, Direction::Down) => "down",
            };
            self.keep(site, name, &[], 1, half, folder)?;
        }
        Ok(())
    }

    fn circumstances(&self, site: &Site, measured: &Measured) -> iperf3::Circumstances {
        let far = match &measured.outcome.config.direction {
            Direction::Up => &measured.outcome.sender,
            Direction::Down => &measured.outcome.receiver,
        };
        let peer = far.addresses.first().map(|(_, peer)| *peer);
        let host = match site {
            Site::Host { target, .. } | Site::Iperf3 { target, .. } => target.clone(),
            Site::Lab { lab, .. } => lab.far().address().to_string(),
        };
        let now = jiff::Timestamp::now();
        iperf3::Circumstances {
            host,
            port: peer.map_or(0, |peer| peer.port()),
            time: now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
            time_ms: now.as_millisecond(),
            near: measured.near.clone(),
        }
    }

    /// Measures once, or twice when the lab fell behind the first time, and keeps it.
    fn phase(
        &mut self,
        site: &Site,
        name: &str,
        settings: &[String],
        folder: &mut RunFolder,
    ) -> Result<Measured, Failure> {
        let stop = &self.context.stop;
        let extras = Extras {
            observer: self.plan.args.observer,
            // What an "after" gained is told by its goodput.
            probes: self.plan.verb == "doctor" && name != "after",
            latency: self.plan.latency,
            live: Live::of(self.plan.args, self.plan.test),
            search: (self.plan.test.udp == Some(UdpArg::Search))
                .then(|| self.plan.test.loss_limit.unwrap_or(LOSS_LIMIT)),
        };
        let mut measured = self.measure(site, name, extras)?;
        let mut attempts = 1;
        // A log holds one measurement's streams.
        while attempts <= LAB_RETRIES && !self.plan.test.balance {
            let Some(certificate) = measured.certificate.as_ref().filter(|c| !c.trusted()) else {
                break;
            };
            if stop.is_stopped() {
                break;
            }
            context::note(format_args!(
                "the lab fell behind ({}); measuring again",
                certificate.problems.join("; ")
            ));
            measured = self.measure(site, name, extras)?;
            attempts += 1;
        }
        self.keep(site, name, settings, attempts, &measured, folder)?;
        Ok(measured)
    }

    /// Keeps a measurement as a phase of the run.
    fn keep(
        &mut self,
        site: &Site,
        name: &str,
        settings: &[String],
        attempts: u32,
        measured: &Measured,
        folder: &mut RunFolder,
    ) -> Result<(), Failure> {
        for sample in record::samples(name, &measured.outcome) {
            folder.append_sample(&sample)?;
        }
        // Hosts and path as they were found; what a remedy changed stands with its phase.
        if self.run.phases.is_empty() {
            self.run.hosts = record::hosts(site, measured);
            self.run.path = Some(record::path(site, measured));
        }
        let config = &measured.outcome.config;
        let judges = config.finds_gap
            || config.evens
            || config.max_pacing.is_some()
            || self.plan.test.every.is_some();
        let settling = judges.then(|| {
            let known = self.run.path.as_ref().map(crate::sim_verb::known);
            let samples: Vec<_> = record::samples(name, &measured.outcome).collect();
            settling::of(&samples, name, known.unwrap_or_default())
        });
        self.run.phases.push(Phase {
            attempts,
            settling: settling.flatten(),
            ..record::phase(name, settings, measured)
        });
        self.findings
            .extend(record::findings(name, &measured.diagnosis));
        Ok(folder.write(&self.run, &self.findings)?)
    }

    fn measure(&self, site: &Site, name: &str, extras: Extras) -> Result<Measured, Failure> {
        let stop = &self.context.stop;
        if stop.is_stopped() {
            return Err(MeasureError::Interrupted.into());
        }
        site.measure(name, &self.config, stop, extras)
    }

    /// Applies a remedy inside the lab; what was set, a line each.
    fn apply(&mut self, lab: &Lab, settings: &[explain::Setting]) -> Result<Vec<String>, Failure> {
        let up = self.config.direction == Direction::Up;
        let mut lines = Vec::new();
        for setting in settings {
            match setting {
                explain::Setting::Sysctl { host, name, value } => {
                    let near = (*host == explain::Host::Sender) == up;
                    let host = if near { lab.near() } else { lab.far() };
                    // net.core limits are the machine's, not a namespace's; sockets that tune
                    // themselves do not need them.
                    if name.starts_with("net.core.") {
                        continue;
                    }
                    host.set(name, value)?;
                    lines.push(format!("{}: {name} = {value}", host.name()));
                }
                explain::Setting::CongestionControl(name) => {
                    self.config.congestion = Some(name.clone());
                    lines.push(format!("congestion control = {name}"));
                }
                explain::Setting::Streams(n) => {
                    self.config.streams = *n;
                    lines.push(format!("streams = {n}"));
                }
                explain::Setting::AutotuneBuffer(_) => {
                    self.config.send_buffer = None;
                    self.config.receive_buffer = None;
                    lines.push("socket buffers: tuned by the kernel".to_owned());
                }
            }
        }
        Ok(lines)
    }

    /// The verdict of a run with a before and an after.
    fn conclude(&mut self, before: &Measured, after: &Measured) {
        let Some(verdict) = &mut self.run.verdict else {
            return;
        };
        // The cause is proved by before and after; what limits the path now may stay open, but a lab
        // that fell behind proves nothing.
        let trusted = after
            .certificate
            .as_ref()
            .is_none_or(lab::Certificate::trusted);
        verdict.conclusive &= trusted;
        let (was, is) = (
            before.outcome.goodput_after_ramp(),
            after.outcome.goodput_after_ramp(),
        );
        let achievable = self
            .run
            .path
            .as_ref()
            .and_then(|p| p.achievable_bits_per_second);
        let share = achievable.map_or_else(String::new, |a| {
            format!(
                ", {:.0} % of what the path can carry",
                record::percent(is, a)
            )
        });
        let title = before
            .diagnosis
            .findings
            .first()
            .map_or("", |f| f.title.as_str());
        verdict.sentence = if trusted {
            format!("{title}. With the remedy it went from {was} to {is}{share}.")
        } else {
            format!("{title}. The lab fell behind while the remedy ran, so the gain is not proved.")
        };
    }
}

/// How to come to a far host; the token is read here. A lab has one way only.
pub(crate) fn approach(args: &ApproachArgs, target: &Target) -> Result<Approach, Failure> {
    let refuse = |text: &str| Err(Failure::usage(anyhow::anyhow!("{text}")));
    let secret = args.token_file.as_deref();
    match target {
        Target::Lab(_) if args.bind.is_some() || args.device.is_some() || secret.is_some() => {
            return refuse("--bind, --device and --token-file are for far hosts, not for labs");
        }
        Target::Iperf3(_) if secret.is_some() => {
            return refuse(
                "iperf3's protocol has no token: name the far end without iperf3://, or let its `serve \
                 --iperf3-open` do without",
            );
        }
        _ => {}
    }
    let approach = Approach {
        bind: args.bind,
        device: args.device.clone(),
        dscp: args.dscp,
        secret: secret.map(Secret::read).transpose()?,
    };
    approach.check()?;
    Ok(approach)
}

/// What to measure: what was typed, else what the path file says, else ten seconds of one stream.
pub(crate) fn config(
    args: &TransferArgs,
    test: &TestArgs,
    target: &Target,
) -> Result<Config, Failure> {
    let direction = match args.direction {
        DirectionArg::Up if !test.reverse => Direction::Up,
        _ => Direction::Down,
    };
    let path: Option<&PathFile> = match target {
        Target::Lab(path) => Some(path),
        Target::Host(_) | Target::Iperf3(_) => None,
    };
    let foreign = matches!(target, Target::Iperf3(_));
    let new = test.transport.is_some_and(|t| t != TransportArg::Udp)
        || test.zero_copy
        || test.sendfile.is_some()
        || test.udp == Some(UdpArg::Search)
        || test.fill
        || matches!(test.pacing, Some(PacingArg::Window(_)));
    if foreign && new {
        return Err(Failure::usage(anyhow::anyhow!(
            "--transport, --udp search, --zero-copy, --sendfile, --fill and --pacing window=... want \
             `goodput serve` at the far end"
        )));
    }
    if foreign && test.balance {
        return Err(Failure::usage(anyhow::anyhow!("{BALANCE_WANTS_LAB}")));
    }
    if !foreign && (test.bidir || test.bytes.is_some()) {
        return Err(Failure::usage(anyhow::anyhow!(
            "--bidir and --bytes work with iperf3's protocol: name the far end as \
             iperf3://HOST:PORT; `goodput serve` answers it too, on its own port"
        )));
    }
    let spec = path.map(|p| p.transfer);
    let duration = args
        .duration
        .or_else(|| spec.map(|s| s.duration))
        .unwrap_or(DURATION);
    let default_ramp = spec
        .filter(|_| args.duration.is_none())
        .map_or_else(|| Duration::from_ns(duration.as_ns() / 5), |s| s.ramp);
    // What iperf3 leaves out its server leaves out too, and iperf3 leaves out nothing unasked.
    let default_ramp = if foreign {
        Duration::ZERO
    } else {
        default_ramp
    };
    let transport = transport(test)?;
    let quic = transport == Transport::Quic;
    if test.cipher.is_some() && transport != Transport::Tls && !quic {
        return Err(Failure::usage(anyhow::anyhow!(
            "--cipher goes with --transport tls or quic only"
        )));
    }
    if quic && args.observer.is_some() {
        return Err(Failure::usage(anyhow::anyhow!(
            "--observer looks at TCP; leave it out with --transport quic"
        )));
    }
    let length = test
        .length
        .map(|n| u32::try_from(n.as_u64()).unwrap_or(u32::MAX));
    let sender = path.map(|p| {
        if direction == Direction::Up {
            &p.near
        } else {
            &p.far
        }
    });
    let config = Config {
        direction,
        streams: args
            .streams
            .or_else(|| spec.map(|s| s.streams))
            .unwrap_or(1),
        duration,
        ramp: args.ramp.unwrap_or(default_ramp),
        congestion: args
            .congestion
            .clone()
            // A path file's is the host's kernel's.
            .or_else(|| {
                sender
                    .filter(|_| !quic && test.pacing != Some(PacingArg::Auto))
                    .map(|host| host.congestion_control.clone())
            }),
        block_bytes: length.unwrap_or_else(|| Config::default().block_bytes),
        send_buffer: test.window,
        receive_buffer: test.window,
        max_pacing: match test.pacing {
            Some(PacingArg::Rate(rate)) => Some(rate),
            _ => None,
        },
        finds_gap: test.pacing == Some(PacingArg::Auto),
        evens: test.pacing == Some(PacingArg::Even),
        sample_interval: test
            .every
            .unwrap_or_else(|| Config::default().sample_interval),
        dscp: args.approach.dscp,
        costs: sender.map_or_else(WriteCosts::default, costs),
        transport: if foreign { Transport::Tcp } else { transport },
        rate: match test.udp {
            Some(UdpArg::Rate(rate)) if !foreign && rate.as_bits_per_second() > 0 => Some(rate),
            _ => match test.pacing {
                Some(PacingArg::Application(rate)) => Some(rate),
                _ => None,
            },
        },
        window_clamp: match test.pacing {
            Some(PacingArg::Window(bytes)) => Some(bytes),
            _ => None,
        },
        cipher: match test.cipher {
            Some(CipherArg::Aes256Gcm) => Cipher::Aes256Gcm,
            Some(CipherArg::Chacha20Poly1305) => Cipher::Chacha20Poly1305,
            Some(CipherArg::Aes128Gcm) | None => Cipher::Aes128Gcm,
        },
        sending: match &test.sendfile {
            Some(_) => Sending::Sendfile,
            None if test.zero_copy => Sending::ZeroCopy,
            None => Sending::Write,
        },
        file: test
            .sendfile
            .clone()
            .filter(|file| file.as_os_str() != GENERATED),
        ..Config::default()
    };
    config.check()?;
    if config.file.as_ref().is_some_and(|file| !file.is_file()) {
        return Err(Failure::usage(anyhow::anyhow!(
            "--sendfile wants a file with bytes in it, or the word {GENERATED}"
        )));
    }
    if args.observer.is_some() && path.is_none() {
        return Err(Failure::usage(anyhow::anyhow!(
            "--observer runs the other tool inside a lab: name a lab path, or run the tool yourself"
        )));
    }
    Ok(config)
}

/// What writing costs a host of a path file. `Config` refuses what does not go with it, such as a
/// sender at the far end, to whom it would have to travel.
pub(crate) fn costs(host: &HostSpec) -> WriteCosts {
    WriteCosts {
        call: host.costs.write,
        packet: host.costs.packet,
        copy: host.costs.copy_rate,
        page: host.costs.page,
        page_size: host.costs.page_size,
    }
}

/// What the payload is to travel by: what was named, else what goes with --udp.
fn transport(test: &TestArgs) -> Result<Transport, Failure> {
    match (test.transport, test.udp) {
        (None | Some(TransportArg::Udp), Some(_)) => Ok(Transport::Udp),
        (None | Some(TransportArg::Tcp), None) => Ok(Transport::Tcp),
        (Some(TransportArg::Mptcp), None) => Ok(Transport::Mptcp),
        (Some(TransportArg::Tls), None) => Ok(Transport::Tls),
        (Some(TransportArg::Quic), None) => Ok(Transport::Quic),
        (Some(TransportArg::VerbsRc | TransportArg::VerbsUc | TransportArg::VerbsUd), _) => {
            Err(Failure::usage(anyhow::anyhow!(
                "verbs carry messages: add --messages SIZES or --sweep message-size"
            )))
        }
        (Some(TransportArg::Udp), None) => Err(Failure::usage(anyhow::anyhow!(
            "--transport udp needs a rate: say --udp 50Mb/s, or --udp search"
        ))),
        (Some(_), Some(_)) => Err(Failure::usage(anyhow::anyhow!(
            "--udp goes with --transport udp only"
        ))),
    }
}

/// What is asked of an iperf3 server.
fn wish(test: &TestArgs, config: &Config) -> Result<Wish, Failure> {
    if test.bytes.is_some_and(|bytes| bytes.as_u64() == 0) {
        return Err(Failure::usage(anyhow::anyhow!("--bytes 0 sends nothing")));
    }
    let length = test.length.map(|_| config.block_bytes);
    Ok(Wish {
        config: config.clone(),
        bidirectional: test.bidir,
        udp: match test.udp {
            Some(UdpArg::Rate(rate)) => Some(rate),
            _ => None,
        },
        length,
        window: test.window,
        bytes: test.bytes.map(units::Bytes::as_u64),
        server_output: test.get_server_output,
    })
}

const DURATION: Duration = Duration::from_s(10);
/// What voice and video shrug off, and what a sender that fills a path at a set rate may cost others.
const LOSS_LIMIT: f64 = 0.001;
const BALANCE_WANTS_LAB: &str = "--balance reads a lab's packet log: name a lab path";
/// In place of a file's name.
const GENERATED: &str = "generated";
/// A lab that falls behind twice in a row runs on a machine that is too busy.
const LAB_RETRIES: u32 = 1;
