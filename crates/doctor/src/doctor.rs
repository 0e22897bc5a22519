//! Measure, explain, fix, prove.
//!
//! Measures a path, names what limits it, applies the first remedy that has settings (inside
//! a lab only: nothing on a real host is changed), measures again and keeps everything in a run
//! folder. A measurement is its first half.

mod fill;

use std::fmt;
use std::path::PathBuf;

use lab::Lab;
use link::record::End;
use measure::iperf3::{self, Wish};
use measure::{Approach, Config, Direction, MeasureError};
use report::RunFolder;
use report::model::{Balance, FindingRecord, Phase, Run};
use report::settling;
use sys::bpf::{self, RENO_BY_ACKS};
use units::Rate;

use crate::legs;
use crate::observer::Tool;
use crate::record;
use crate::scale::{self, Scale};
use crate::session::{Extras, Measured, Site};
use crate::watcher::Watcher;
use fault::Failure;
use job::Context;
use job::record as of_job;
use job::target::Target;

pub use fill::Given as FillGiven;

/// What to measure, where, and what to do about it.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The verb that the run is kept under; `doctor` also makes probes.
    pub verb: &'a str,
    /// The far end.
    pub target: Target,
    /// How far a lab's path is scaled down, if at all.
    pub scale: Option<Scale>,
    /// How to come to it.
    pub approach: Approach,
    /// The transfer.
    pub config: Config,
    /// Folder that run folders are made in.
    pub runs: PathBuf,
    /// Whether to apply a remedy and measure again.
    pub fix: bool,
    /// Whether to measure round trips beside the transfer.
    pub latency: bool,
    /// Another tool to run over the same lab.
    pub observer: Option<Tool>,
    /// Over UDP: search for the highest rate with at most this share lost.
    pub search: Option<f64>,
    /// Whether Reno is to count acknowledgements, as a congestion control that is loaded for
    /// the run.
    pub reno_by_acks: bool,
    /// Testers along the path, the nearest first.
    pub via: Vec<String>,
    /// Fill the path instead, with what was asked for besides.
    pub fill: Option<FillGiven>,
    /// What is asked of an iperf3 server, where the far end is one; its transfer is `config`.
    pub wish: Option<Wish>,
    /// Whether to make what iperf3 would print.
    pub document: bool,
    /// Whether to judge when each phase settled, whatever its pacing.
    pub settles: bool,
    /// In a lab: how parallel streams fared at the queue.
    pub balance: Option<BalanceLog<'a>>,
}

impl Plan<'_> {
    /// One transfer of default settings to a far end, kept in `runs`, and nothing beside it.
    pub fn new(verb: &str, target: Target) -> Plan<'_> {
        Plan {
            verb,
            target,
            scale: None,
            approach: Approach::default(),
            config: Config::default(),
            runs: PathBuf::from("runs"),
            fix: false,
            latency: false,
            observer: None,
            search: None,
            reno_by_acks: false,
            via: Vec::new(),
            fill: None,
            wish: None,
            document: false,
            settles: false,
            balance: None,
        }
    }
}

/// A packet log of the lab of a run, and how to read it once the lab is down.
pub struct BalanceLog<'a> {
    /// The file, which the lab makes.
    pub file: PathBuf,
    /// Reads it; is told how the log ended.
    pub read: &'a dyn Fn(Option<End>) -> Result<Balance, Failure>,
}

impl fmt::Debug for BalanceLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalanceLog")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// All that is kept of it.
    pub run: Run,
    /// What was found in its phases.
    pub findings: Vec<FindingRecord>,
    /// Its folder.
    pub folder: PathBuf,
    /// What iperf3 would print, if it was asked for.
    pub document: Option<serde_json::Value>,
    /// What ended it before its time, after something had been measured.
    pub failure: Option<Failure>,
}

impl Finished {
    /// Whether the question was answered. A doctor's is the cause, proved by a gain where a remedy
    /// was applied (a tenth, so that chance proves nothing); a measurement's is the number, which
    /// a lab that fell behind does not give.
    pub fn is_answered(&self) -> bool {
        let run = &self.run;
        let trusted = |p: &Phase| p.certificate.as_ref().is_none_or(|c| c.trusted);
        let conclusive = run.verdict.as_ref().is_some_and(|v| v.conclusive);
        let gained = match run.phases.as_slice() {
            [before, after, ..] => {
                let before = before.goodput_bits_per_second;
                after.goodput_bits_per_second >= before + before / 10
            }
            _ => true,
        };
        match run.verb.as_str() {
            "measure" => run.phases.iter().all(trusted),
            _ => conclusive && gained,
        }
    }
}

/// Measures and keeps the run; the folder is left readable however it ends.
///
/// # Examples
///
/// ```no_run
/// use doctor::{Plan, Silent};
///
/// let context = job::Context::start(|| {})?;
/// let plan = Plan::new("doctor", job::Target::parse(Some("lab:columbia-untuned"))?);
/// let finished = doctor::perform(Plan { fix: true, ..plan }, &context, &mut Silent)?;
/// println!("{:?}", finished.run.verdict);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn perform(
    mut plan: Plan<'_>,
    context: &Context,
    watcher: &mut dyn Watcher,
) -> Result<Finished, Failure> {
    if let Some(wanted) = plan.scale {
        let (target, note) = scale::scaled(plan.target, wanted, &context.stop)?;
        plan.target = target;
        note.iter().for_each(|text| watcher.note(text));
    }
    let mut config = plan.config.clone();
    let register = plan.reno_by_acks.then(bpf::register_reno_by_acks);
    let _registered = register.transpose().map_err(Failure::here)?;
    if plan.reno_by_acks {
        config.congestion = Some(RENO_BY_ACKS.to_owned());
    }
    let run = of_job::begin(plan.verb, &plan.target, context);
    let mut folder = RunFolder::create(&plan.runs, plan.verb, &plan.target.name(), run.clone())?;
    let mut doctor = Doctor {
        config,
        approach: plan.approach.clone(),
        plan,
        context,
        watcher,
        run,
        findings: Vec::new(),
        document: None,
    };
    let result = doctor.work(&mut folder);
    let Doctor {
        mut run,
        findings,
        document,
        watcher,
        ..
    } = doctor;
    of_job::end_as(&mut run, &result, context);
    let path = folder.path().to_owned();
    let kept = folder.finish(&run, &findings);
    match (context.interrupted(), result) {
        (Some(code), _) => {
            if !run.phases.is_empty() {
                let page = path.join("report.html");
                watcher.note(&format!("what was measured so far: {}", page.display()));
            }
            Err(Failure::interrupted(code))
        }
        (None, Err(failure)) if run.phases.is_empty() => Err(failure),
        (None, result) => {
            kept?;
            Ok(Finished {
                run,
                findings,
                folder: path,
                document,
                failure: result.err(),
            })
        }
    }
}

struct Doctor<'a> {
    plan: Plan<'a>,
    context: &'a Context,
    watcher: &'a mut dyn Watcher,
    config: Config,
    approach: Approach,
    run: Run,
    findings: Vec<FindingRecord>,
    document: Option<serde_json::Value>,
}

impl Doctor<'_> {
    fn work(&mut self, folder: &mut RunFolder) -> Result<(), Failure> {
        let target = self.plan.target.clone();
        if !self.plan.via.is_empty() {
            return self.along(target, folder);
        }
        let approach = Box::new(self.approach.clone());
        let site = match target {
            Target::Iperf3(target) => {
                let wish = Box::new(Wish {
                    config: self.config.clone(),
                    ..self.plan.wish.clone().unwrap_or_default()
                });
                let site = Site::Iperf3 {
                    target,
                    wish,
                    approach,
                };
                return self.with_iperf3(&site, folder);
            }
            other if self.plan.balance.is_some() => return self.balanced(other, folder),
            other => Site::open(other, &self.approach)?,
        };
        if let Some(given) = self.plan.fill {
            return self.fill(&site, given, folder);
        }
        let name = match &site {
            Site::Lab { .. } if self.plan.fix => "before",
            _ => "measured",
        };
        let before = self.phase(&site, name, &[], folder)?;
        self.judge(&before);
        if self.plan.document {
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
        let log = self.plan.balance.as_ref().map(|log| log.file.clone());
        let options = lab::Options { log };
        let site = Site::open_with(target, &self.approach, options)?;
        let measured = self.phase(&site, "measured", &[], folder)?;
        self.judge(&measured);
        let Site::Lab { lab, .. } = site else {
            return Ok(());
        };
        let end = lab.down()?;
        if let Some(log) = &self.plan.balance {
            self.run.balance = Some((log.read)(end)?);
        }
        Ok(())
    }

    /// Measures to each tester along the path, then to the far end, and names the bad leg.
    fn along(&mut self, target: Target, folder: &mut RunFolder) -> Result<(), Failure> {
        let stops = legs::stops(&self.plan.via, target)?;
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
        self.run.verdict = Some(of_job::verdict(
            &measured.diagnosis.verdict,
            &measured.diagnosis.findings,
        ));
    }

    /// Measures once with an iperf3 server; each direction is a phase. The verdict is the near
    /// sender's, of whom the kernel's clocks are known, if it sends.
    fn with_iperf3(&mut self, site: &Site, folder: &mut RunFolder) -> Result<(), Failure> {
        let stop = &self.context.stop;
        let (halves, tested) = site.measure_iperf3("measured", stop, self.watcher)?;
        if let Some(first) = halves.first() {
            self.judge(first);
            if self.plan.document {
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
        let extras = Extras {
            observer: self.plan.observer,
            // What an "after" gained is told by its goodput.
            probes: self.plan.verb == "doctor" && name != "after",
            latency: self.plan.latency,
            search: self.plan.search,
        };
        let mut measured = self.measure(site, name, extras)?;
        let mut attempts = 1;
        // A log holds one measurement's streams.
        while attempts <= LAB_RETRIES && self.plan.balance.is_none() {
            let Some(certificate) = measured.certificate.as_ref().filter(|c| !c.trusted()) else {
                break;
            };
            let is_sure = self.plan.verb == "doctor" && measured.diagnosis.verdict.conclusive;
            if is_sure || self.context.stop.is_stopped() || measured.broken.is_some() {
                break;
            }
            self.watcher.note(&format!(
                "the lab fell behind ({}); measuring again",
                certificate.problems.join("; ")
            ));
            measured = self.measure(site, name, extras)?;
            attempts += 1;
        }
        self.keep(site, name, settings, attempts, &measured, folder)?;
        if let Some(error) = measured.broken.take() {
            self.judge(&measured);
            return Err(error.into());
        }
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
        for sample in of_job::samples(name, &measured.outcome) {
            folder.append_sample(&sample)?;
        }
        // Hosts and path as they were found; what a remedy changed stands with its phase.
        if self.run.phases.is_empty() {
            self.run.hosts = record::hosts(site, measured);
            self.run.path = Some(record::path(site, measured));
        }
        let config = &measured.outcome.config;
        let judges =
            config.finds_gap || config.evens || config.max_pacing.is_some() || self.plan.settles;
        let settling = judges.then(|| {
            let known = self.run.path.as_ref().map(of_job::known);
            let samples: Vec<_> = of_job::samples(name, &measured.outcome).collect();
            settling::of(&samples, name, known.unwrap_or_default())
        });
        self.run.phases.push(Phase {
            attempts,
            settling: settling.flatten(),
            ..record::phase(name, settings, measured)
        });
        self.findings
            .extend(of_job::findings(name, &measured.diagnosis.findings));
        Ok(folder.write(&self.run, &self.findings)?)
    }

    fn measure(&mut self, site: &Site, name: &str, extras: Extras) -> Result<Measured, Failure> {
        let stop = &self.context.stop;
        if stop.is_stopped() {
            return Err(MeasureError::Interrupted.into());
        }
        site.measure(name, &self.config, stop, extras, self.watcher)
    }

    /// Applies a remedy inside the lab; what was set, a line each.
    fn apply(
        &mut self,
        lab: &Lab,
        settings: &[throughput::Setting],
    ) -> Result<Vec<String>, Failure> {
        let up = self.config.direction == Direction::Up;
        let mut lines = Vec::new();
        for setting in settings {
            match setting {
                throughput::Setting::Sysctl { host, name, value } => {
                    let near = (*host == throughput::Host::Sender) == up;
                    let host = if near { lab.near() } else { lab.far() };
                    // net.core limits are the machine's, not a namespace's; sockets that tune
                    // themselves do not need them.
                    if name.starts_with("net.core.") {
                        continue;
                    }
                    host.set(name, value)?;
                    lines.push(format!("{}: {name} = {value}", host.name()));
                }
                throughput::Setting::CongestionControl(name) => {
                    self.config.congestion = Some(name.clone());
                    lines.push(format!("congestion control = {name}"));
                }
                throughput::Setting::Streams(n) => {
                    self.config.streams = *n;
                    lines.push(format!("streams = {n}"));
                }
                throughput::Setting::AutotuneBuffer(_) => {
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
        let (was, is) = (
            before.outcome.goodput_after_ramp(),
            after.outcome.goodput_after_ramp(),
        );
        // What a lab adds makes a transfer slower: a gain that is left all the same is proved.
        let gained = is >= Rate::from_bits_per_second(was.as_bits_per_second() / 10 * GAIN_TENTHS);
        let certificate = after.certificate.as_ref();
        let slowed = certificate.is_some_and(|c| !c.trusted() && !c.is_faulty && gained);
        let trusted = certificate.is_none_or(|c| c.trusted() || slowed);
        verdict.conclusive &= trusted;
        let achievable = self
            .run
            .path
            .as_ref()
            .and_then(|p| p.achievable_bits_per_second);
        let share = achievable.map_or_else(String::new, |a| {
            format!(
                ", {:.0} % of what the path can carry",
                of_job::percent(is, a)
            )
        });
        let title = before
            .diagnosis
            .findings
            .first()
            .map_or("", |f| f.title.as_str());
        verdict.sentence = if slowed {
            format!(
                "{title}. With the remedy it went from {was} to {is}{share}, and would have gone further on a machine \
                 with time for it."
            )
        } else if trusted {
            format!("{title}. With the remedy it went from {was} to {is}{share}.")
        } else {
            format!("{title}. The lab fell behind while the remedy ran, so the gain is not proved.")
        };
    }
}

/// A tenth more: chance proves nothing.
const GAIN_TENTHS: u64 = 11;
/// A lab that falls behind twice in a row runs on a machine that is too busy.
const LAB_RETRIES: u32 = 1;
