//! `cargo xtask bench copy`: `goodput copy` beside rsync, scp, rclone and tar over ssh, in the same lab paths, over a veth
//! pair and over loopback, out of and into memory.
//!
//! Each cell has an sshd of its own, with its own key and port, that nobody but the cell reaches; every program starts
//! through it, so that ssh's beginning counts for all, and with a home where a shell finds nothing to read.
//! CPU time is that of the near side's processes and of all that sshd started. Peers that take long over a path get fewer
//! bytes or files: rates are what is compared.

mod clauses;
mod limits;

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use sys::clock;

use super::children::{self, Ended, output_of};
use super::record::{Machine, Record, Recorder, Row};
use super::table::{self, Table, number};
use super::{Options, run, site, workspace, write};

/// What is copied where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    between: Between,
    is_many: bool,
    /// A million files: what memory they take, of ours only.
    is_million: bool,
}

/// What is between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// Nothing: both are this host.
    Loopback,
    /// A veth pair, MTU 1500, off-loads as they come.
    Veth,
    /// A built-in path.
    Path(&'static str),
}

impl Between {
    const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
            Self::Path(path) => path,
        }
    }

    /// Whether only what the hosts do takes time.
    const fn is_no_path(self) -> bool {
        matches!(self, Self::Loopback | Self::Veth)
    }
}

const CELLS: [Cell; 9] = [
    Cell::of(Between::Loopback, false),
    Cell::of(Between::Loopback, true),
    Cell::of(Between::Veth, false),
    Cell::of(Between::Path("dtn-100ms"), false),
    Cell::of(Between::Path("dtn-100ms-loss"), false),
    Cell::of(Between::Path("dtn-300ms"), false),
    Cell::of(Between::Path("dtn-100ms"), true),
    Cell::of(Between::Path("dtn-100ms-open"), true),
    Cell {
        between: Between::Loopback,
        is_many: true,
        is_million: true,
    },
];

/// Who copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Goodput,
    /// As a user whose host has no BBR.
    GoodputCubic,
    GoodputOpen,
    Scp,
    Rsync,
    Tar,
    Rclone,
}

const EVERYBODY: [Who; 7] = [
    Who::Goodput,
    Who::GoodputCubic,
    Who::GoodputOpen,
    Who::Scp,
    Who::Rsync,
    Who::Tar,
    Who::Rclone,
];

impl Who {
    const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput copy",
            Self::GoodputCubic => "goodput copy --congestion cubic",
            Self::GoodputOpen => "goodput copy --cipher none",
            Self::Scp => "scp -r",
            Self::Rsync => "rsync -a",
            Self::Tar => "tar | ssh tar",
            Self::Rclone => "rclone sftp",
        }
    }

    const fn is_ours(self) -> bool {
        matches!(self, Self::Goodput | Self::GoodputCubic | Self::GoodputOpen)
    }

    const fn is_open(self) -> bool {
        matches!(self, Self::GoodputOpen)
    }
}

impl Cell {
    const fn of(between: Between, is_many: bool) -> Self {
        Self {
            between,
            is_many,
            is_million: false,
        }
    }

    fn name(&self) -> String {
        let what = match (self.is_million, self.is_many) {
            (true, _) => "million",
            (_, true) => "many",
            _ => "large",
        };
        format!("{what}/{}", self.between.name())
    }

    fn who(&self) -> Vec<Who> {
        let mut all = EVERYBODY.to_vec();
        if self.is_million {
            all.truncate(1);
        }
        let is_path = !self.between.is_no_path();
        all.retain(|who| match (who, self.between) {
            (Who::GoodputCubic, _) => is_path && !self.is_many,
            (Who::GoodputOpen, _) => !is_path && !self.is_many,
            // What rclone and tar do over a path is known from the first, without one from loopback.
            (Who::Tar | Who::Rclone, Between::Path(path)) => path == "dtn-100ms",
            (Who::Tar | Who::Rclone, Between::Veth) => false,
            _ => true,
        });
        if !is_path && !self.is_many {
            let ours: Vec<Who> = all.iter().copied().filter(|who| who.is_ours()).collect();
            all.splice(..0, ours.repeat(AGAIN));
        }
        all
    }

    /// Bytes of the large file, or how many files, that `who` gets.
    fn amount(&self, who: Who, quick: bool) -> u64 {
        let full = match (self.is_many, self.between) {
            (false, Between::Loopback | Between::Veth) => LARGE,
            // Of these the whole file counts, its beginning and its end in it.
            (false, Between::Path("dtn-100ms" | "dtn-300ms")) if who.is_ours() => LARGE,
            (false, Between::Path(_)) if who.is_ours() => LARGE / 2,
            (false, Between::Path("dtn-100ms")) => LARGE / 16,
            (false, Between::Path(_)) => LARGE / 80,
            (true, Between::Path(_)) if matches!(who, Who::Scp | Who::Rclone) => MANY / 1_000,
            (true, _) if matches!(who, Who::Rclone) => MANY / 1_000,
            (true, _) if matches!(who, Who::Scp) => MANY / 10,
            (true, _) if self.is_million => MANY * 10,
            (true, _) => MANY,
        };
        if quick { full / 20 } else { full }
    }

    fn measure(&self, program: &Path, quick: bool, to: &mut Recorder) -> anyhow::Result<()> {
        let folder = Folder::make()?;
        let site = Site::up(self, program, &folder.0)?;
        if let Some(pair) = &site.pair {
            let has = pair.near().run(|| fs::read_to_string(CONGESTION))??;
            if has.trim() != site::CONGESTION_CONTROL {
                to.note(&format!("these hosts have {}", has.trim()));
            }
        }
        let mut streams = 2;
        for who in self.who() {
            let amount = self.amount(who, quick);
            let from = folder.0.join(format!("{amount}"));
            match self.is_many {
                true => make_files(&from, amount)?,
                false => make_large(&from, amount)?,
            }
            let into = folder.0.join("to");
            fs::create_dir(&into)?;
            let bytes = match self.is_many {
                true => amount * FILE,
                false => amount,
            };
            limits::touch(&folder.0, bytes)?;
            let copy = || site.copy(who, &from, &into);
            let (told, held) = limits::held_during(program, copy);
            let told = told?;
            // ssh and its sshd end with a copy, and need not have waited for its far side.
            let mut far = told.far;
            if far < held.far_cpu() {
                far += held.far_cpu();
            }
            let cpu = (told.near + far).as_secs_f64();
            let seconds = told.took.as_secs_f64();
            ensure!(found(&into)? == bytes, "{}: not all arrived", who.name());
            fs::remove_dir_all(&into)?;
            let is_last = amount < LARGE && !(self.is_many && amount == MANY);
            #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
            let (bytes, files) = (bytes as f64, amount as f64);
            let mut put = |what: &str, value, unit| {
                to.put(format!("{}.{what}", who.name()), value, unit);
            };
            put("bytes", bytes, "B");
            put("took", seconds, "s");
            put("rate", bytes * 8.0 / seconds, "bit/s");
            put("cpu", cpu / bytes * 1e9, "s/GB");
            if self.is_many {
                put("files", files, "1");
                put("files_a_second", files / seconds, "1/s");
            }
            #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
            if who.is_ours() {
                put("memory_near", held.near as f64, "B");
                put("memory_far", held.far as f64, "B");
            }
            if let Some(run) = told.run {
                for (key, name) in [("steady_bits_per_second", "steady"), ("streams", "streams")] {
                    if let Some(value) = run["copy"][key].as_f64() {
                        put(name, value, if key == "streams" { "1" } else { "bit/s" });
                    }
                }
                streams = run["copy"]["streams"].as_u64().unwrap_or(streams);
            }
            let beside = match who {
                Who::Goodput => Some(("iperf3", "limit")),
                Who::GoodputOpen => Some(("iperf3_open", "limit_open")),
                _ => None,
            };
            if let (Some((iperf3, limit)), false) = (beside, self.is_many) {
                let (rate, cpu) = site.iperf3(streams, quick)?;
                to.put(format!("{iperf3}.rate"), rate, "bit/s");
                to.put(format!("{iperf3}.cpu"), cpu, "s/GB");
                #[allow(clippy::cast_precision_loss, reason = "at most 128")]
                to.put(format!("{iperf3}.streams"), streams as f64, "1");
                if self.between.is_no_path() {
                    limits::touch(&folder.0, amount)?;
                    let parts = limits::parts(&from, &into, amount, to)?;
                    let (cores, is_open) = (thread::available_parallelism()?.get(), who.is_open());
                    to.put(
                        format!("{limit}.rate"),
                        parts.rate(cpu, is_open, cores),
                        "bit/s",
                    );
                    to.put(format!("{limit}.cpu"), parts.all(cpu, is_open), "s/GB");
                }
            }
            if is_last {
                remove(&from)?;
            }
        }
        to.put("ssh.took", site.ssh_alone()?.as_secs_f64(), "s");
        if let Some(words) = site.down()?
            && !words.contains("; trusted")
        {
            to.note(words.trim());
        }
        Ok(())
    }
}

/// What one copy took.
struct Told {
    took: Duration,
    /// CPU time of this side's processes, and of all that sshd waited for.
    near: Duration,
    far: Duration,
    run: Option<Value>,
}

/// Where a cell's files are; they go with it.
struct Folder(PathBuf);

impl Folder {
    fn make() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let folder = place.join(format!("goodput-bench-copy-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug)]
enum Host {
    Near,
    Far,
}

/// Two hosts, with an sshd at the far one.
struct Site<'a> {
    program: &'a Path,
    folder: &'a Path,
    /// The lab's name, where it is one.
    lab: Option<String>,
    /// The hosts that a veth pair joins.
    pair: Option<site::Site>,
    address: String,
    port: u16,
    sshd: Option<Ended>,
    sshd_pid: u32,
}

impl<'a> Site<'a> {
    fn up(cell: &Cell, program: &'a Path, folder: &'a Path) -> anyhow::Result<Self> {
        let (mut lab, mut pair) = (None, None);
        let (address, port) = match cell.between {
            Between::Loopback => {
                let free = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
                ("127.0.0.1".to_owned(), free)
            }
            Between::Veth => {
                let hosts = joined()?;
                let address = hosts.far().address().to_string();
                pair = Some(hosts);
                (address, SSH_PORT)
            }
            Between::Path(path) => {
                let name = format!("bench-copy-{}", std::process::id());
                let file = workspace().join(format!("paths/{path}.toml"));
                let mut up = Command::new(program);
                up.args(["lab", "up"]).arg(file).args(["--name", &name]);
                output_of(&mut up, LAB)?;
                lab = Some(name);
                (String::new(), SSH_PORT)
            }
        };
        let mut site = Self {
            program,
            folder,
            lab,
            pair,
            address,
            port,
            sshd: None,
            sshd_pid: 0,
        };
        if site.lab.is_some() {
            let mut ask = site.at(Host::Near, Path::new("printenv"))?;
            let told = output_of(ask.arg("GOODPUT_HOST_FAR"), LAB)?;
            site.address = String::from_utf8(told)?.trim().to_owned();
        }
        site.start_sshd()?;
        Ok(site)
    }

    /// A program at one of the hosts; on a veth pair it dies with the thread that starts it.
    fn at(&self, host: Host, program: &Path) -> anyhow::Result<Command> {
        if let Some(pair) = &self.pair {
            let end = match host {
                Host::Near => pair.near(),
                Host::Far => pair.far(),
            };
            let name = program
                .to_str()
                .context("a program whose name is no text")?;
            return end.program(name);
        }
        let Some(lab) = &self.lab else {
            return Ok(Command::new(program));
        };
        let name = match host {
            Host::Near => "near",
            Host::Far => "far",
        };
        let mut command = Command::new(self.program);
        command
            .args(["lab", "exec", "--lab", lab, name, "--"])
            .arg(program);
        Ok(command)
    }

    fn start_sshd(&mut self) -> anyhow::Result<()> {
        let folder = self.folder.display();
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            output_of(make.arg(self.folder.join(key)), LAB).context("ssh-keygen (openssh)")?;
        }
        // A home without files that a shell reads first: they are no part of a copy.
        let config = format!(
            "Port {}\nListenAddress {}\nHostKey {folder}/host\nPidFile {folder}/sshd.pid\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\n\
             PermitRootLogin yes\nAuthorizedKeysFile {folder}/user.pub\nMaxStartups 100\n\
             MaxSessions 100\nSetEnv HOME={folder}\nSubsystem sftp internal-sftp\nLogLevel ERROR\n",
            self.port, self.address
        );
        fs::write(self.folder.join("sshd_config"), config)?;
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let config = format!(
            "Host there {0}\nHostName {0}\nPort {1}\nUser {user}\nIdentityFile {folder}/user\nIdentitiesOnly yes\n\
             StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n",
            self.address, self.port
        );
        fs::write(self.folder.join("ssh_config"), config)?;
        // Where sshd, as root, puts itself aside.
        let _ = fs::create_dir_all("/run/sshd");
        let mut sshd = self.at(Host::Far, Path::new("/usr/sbin/sshd"))?;
        sshd.arg("-D")
            .arg("-f")
            .arg(self.folder.join("sshd_config"));
        sshd.stdin(Stdio::null());
        let child = sshd
            .spawn()
            .context("starting /usr/sbin/sshd (openssh-server)")?;
        self.sshd = Some(Ended::of(child));
        let until = Instant::now() + LAB;
        while self.sshd_pid == 0 {
            ensure!(Instant::now() < until, "sshd did not start");
            thread::sleep(Duration::from_millis(50));
            let told = fs::read_to_string(self.folder.join("sshd.pid")).unwrap_or_default();
            self.sshd_pid = told.trim().parse().unwrap_or(0);
        }
        Ok(())
    }

    /// One copy of `from` into the folder `into`.
    fn copy(&self, who: Who, from: &Path, into: &Path) -> anyhow::Result<Told> {
        let ssh = format!("ssh -F {}/ssh_config", self.folder.display());
        // By its address: a copy connects to none of this host that an alias leads to.
        let there = format!("{}:{}/", self.address, into.display());
        let mut command = match who {
            Who::Goodput | Who::GoodputCubic | Who::GoodputOpen => {
                let mut ours = self.at(Host::Near, self.program)?;
                ours.args(["copy", "--json", "-e", &ssh, "--far-goodput"]);
                ours.arg(self.program);
                ours.arg("--runs").arg(self.folder.join("runs"));
                match who {
                    Who::GoodputCubic => ours.args(["--congestion", "cubic"]),
                    Who::GoodputOpen => ours.args(["--cipher", "none"]),
                    _ => &mut ours,
                };
                ours.arg(from).arg(&there);
                ours
            }
            Who::Scp => {
                let mut scp = self.at(Host::Near, Path::new("scp"))?;
                scp.args(["-q", "-r", "-F"]);
                scp.arg(self.folder.join("ssh_config"));
                scp.arg(from).arg(&there);
                scp
            }
            Who::Rsync => {
                let mut rsync = self.at(Host::Near, Path::new("rsync"))?;
                rsync.args(["-a", "-e", &ssh]).arg(from).arg(&there);
                rsync
            }
            Who::Tar => {
                let (Some(parent), Some(name)) = (from.parent(), from.file_name()) else {
                    bail!("{} has no folder", from.display());
                };
                let mut shell = self.at(Host::Near, Path::new("sh"))?;
                shell.arg("-c").arg(format!(
                    "tar -C {} -cf - {} | {ssh} there tar -C {} -xf -",
                    parent.display(),
                    Path::new(name).display(),
                    into.display()
                ));
                shell
            }
            Who::Rclone => {
                let mut rclone = self.at(Host::Near, Path::new("rclone"))?;
                rclone.args(["copy", "--config", "/dev/null", "--transfers", "16"]);
                rclone.args(["--checkers", "16", "--sftp-host", &self.address]);
                rclone.args(["--sftp-port", &self.port.to_string()]);
                let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
                rclone.args(["--sftp-user", &user, "--sftp-key-file"]);
                rclone.arg(self.folder.join("user"));
                rclone.arg(from).arg(format!(":sftp:{}", into.display()));
                rclone
            }
        };
        let before = (clock::children_cpu(), self.far_cpu()?);
        let begun = Instant::now();
        let told = output_of(&mut command, COPY).with_context(|| who.name())?;
        let took = begun.elapsed();
        // What sshd's children took counts when sshd has waited for them.
        thread::sleep(Duration::from_millis(300));
        let near = (clock::children_cpu() - before.0).to_std();
        let run = match who.is_ours() {
            true => Some(serde_json::from_slice(&told).context("what goodput copy said")?),
            false => None,
        };
        Ok(Told {
            took,
            near,
            far: self.far_cpu()?.saturating_sub(before.1),
            run,
        })
    }

    /// CPU time of sshd and of all that it has waited for (proc(5), `/proc/PID/stat`: utime to cstime).
    fn far_cpu(&self) -> anyhow::Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.sshd_pid))?;
        let (_, rest) = text.rsplit_once(')').context("no name in stat")?;
        let ticks: u64 = rest
            .split_whitespace()
            .skip(11)
            .take(4)
            .filter_map(|word| word.parse::<u64>().ok())
            .sum();
        // USER_HZ is 100 on every architecture that there are distributions for.
        Ok(Duration::from_millis(ticks * 10))
    }

    /// What ssh takes to run nothing.
    fn ssh_alone(&self) -> anyhow::Result<Duration> {
        let mut ssh = self.at(Host::Near, Path::new("ssh"))?;
        ssh.arg("-F").arg(self.folder.join("ssh_config"));
        let begun = Instant::now();
        output_of(ssh.args(["there", "true"]), LAB)?;
        Ok(begun.elapsed())
    }

    /// Payload a second of so many streams, from near to far, and seconds of CPU for a gigabyte of it.
    fn iperf3(&self, streams: u64, quick: bool) -> anyhow::Result<(f64, f64)> {
        let mut server = self.at(Host::Far, Path::new("iperf3"))?;
        server.args(["-s", "-1"]).stdin(Stdio::null());
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let server = Ended::of(server);
        let (seconds, omit) = match (&self.lab, quick) {
            (Some(_), false) => ("6", "4"),
            (Some(_), true) => ("3", "2"),
            (None, _) => ("4", "0"),
        };
        let mut told = Value::Null;
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(300));
            let mut client = self.at(Host::Near, Path::new("iperf3"))?;
            client.args(["-c", &self.address, "-J", "-t", seconds, "-O", omit]);
            client.args(["-P", &streams.to_string(), "-C", "cubic"]);
            let said = output_of(&mut client, LAB)?;
            told = serde_json::from_slice(&said).unwrap_or_default();
            if told["error"].is_null() {
                break;
            }
        }
        server.end();
        let end = &told["end"];
        let rate = end["sum_received"]["bits_per_second"].as_f64();
        let rate = rate.context("iperf3 said no rate")?;
        let of = |side: &str| end["cpu_utilization_percent"][side].as_f64();
        let busy = of("host_total").zip(of("remote_total"));
        let (near, far) = busy.context("iperf3 said nothing of CPU")?;
        Ok((rate, (near + far) / 100.0 * 8e9 / rate))
    }

    /// Ends all; what the lab says of itself.
    fn down(mut self) -> anyhow::Result<Option<String>> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<Option<String>> {
        if let Some(sshd) = self.sshd.take() {
            if self.sshd_pid > 0 {
                let _ = Command::new("kill").arg(self.sshd_pid.to_string()).status();
            }
            sshd.end();
        }
        let Some(lab) = self.lab.take() else {
            return Ok(None);
        };
        let mut down = Command::new(self.program);
        let told = output_of(down.args(["lab", "down", &lab]), LAB)?;
        Ok(Some(String::from_utf8(told)?))
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Two hosts that a veth pair joins, with the limits of the path files.
fn joined() -> anyhow::Result<site::Site> {
    let hosts = site::Site::plain(site::Place::Veth, 1_500, true)?;
    for end in [hosts.near(), hosts.far()] {
        // Not this machine's own choice. A namespace may have what net.ipv4.tcp_allowed_congestion_control names, and reno always.
        end.run(|| {
            fs::write(CONGESTION, site::CONGESTION_CONTROL)
                .or_else(|_| fs::write(CONGESTION, "reno"))
        })??;
    }
    Ok(hosts)
}

/// A file of so many bytes that no compression makes smaller.
fn make_large(at: &Path, bytes: u64) -> anyhow::Result<()> {
    if at.exists() {
        return Ok(());
    }
    let mut file = fs::File::create(at)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        fill(&mut block, &mut state);
        let part = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// So many files of 4 KiB, a thousand in a folder.
fn make_files(at: &Path, files: u64) -> anyhow::Result<()> {
    if at.exists() {
        return Ok(());
    }
    let mut state = 1;
    let mut block = vec![0; usize::try_from(FILE)?];
    for n in 0..files {
        let folder = at.join(format!("{:04}", n / 1_000));
        if n % 1_000 == 0 {
            fs::create_dir_all(&folder)?;
        }
        fill(&mut block, &mut state);
        fs::write(folder.join(format!("{:03}", n % 1_000)), &block)?;
    }
    Ok(())
}

/// Steele, Lea and Flood's SplitMix64.
fn fill(block: &mut [u8], state: &mut u64) {
    for bytes in block.chunks_mut(8) {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..bytes.len()]);
    }
}

fn remove(at: &Path) -> std::io::Result<()> {
    match at.is_dir() {
        true => fs::remove_dir_all(at),
        false => fs::remove_file(at),
    }
}

/// Bytes in all files below a folder.
fn found(at: &Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(at)? {
        let entry = entry?;
        sum += match entry.file_type()?.is_dir() {
            true => found(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(sum)
}

/// Measures the cells, and keeps rows and table.
pub(crate) fn copy(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let program = children::program()?;
    let mut machine = Machine::read(&root);
    // Peers of other benches; these are told in the notes.
    machine.nuttcp = None;
    let only = options.only.as_deref().unwrap_or_default();
    let mut cells = CELLS.to_vec();
    cells.retain(|cell| only.split(',').any(|name| cell.name().contains(name)));
    ensure!(!cells.is_empty(), "no cell is called {only}");
    let rounds = options.rounds.unwrap_or(1);
    let (mut rows, mut notes, failed) = run(rounds, &cells, Cell::name, |cell, to, _| {
        cell.measure(&program, options.quick, to)
    });
    notes.extend(versions());
    let kept = root.join("bench/copy.json");
    if let (false, Ok(text)) = (options.quick, fs::read_to_string(&kept)) {
        // What was measured of other cells stays.
        let old: Value = serde_json::from_str(&text).context("the rows that were there")?;
        let names: Vec<String> = cells.iter().map(Cell::name).collect();
        rows.extend(rows_of(&old).filter(|row| !names.contains(&row.cell)));
    }
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let text = render(&record);
    println!("{text}");
    let is_kept = !options.quick;
    let file = write(
        &root,
        "copy.json",
        &record,
        is_kept.then_some(&text),
        MARKERS,
    )?;
    eprintln!("results: {}", file.display());
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Rows of an earlier record.
fn rows_of(record: &Value) -> impl Iterator<Item = Row> + '_ {
    let rows = record["rows"].as_array().map(Vec::as_slice);
    rows.unwrap_or_default().iter().filter_map(|row| {
        let unit = row["unit"].as_str()?;
        Some(Row {
            round: u32::try_from(row["round"].as_u64()?).ok()?,
            cell: row["cell"].as_str()?.to_owned(),
            metric: row["metric"].as_str()?.to_owned(),
            value: row["value"].as_f64()?,
            unit: UNITS.iter().find(|known| **known == unit)?,
            load: row["load"].as_f64()?,
        })
    })
}

const UNITS: [&str; 6] = ["B", "s", "bit/s", "s/GB", "1", "1/s"];

/// The peers that were there.
fn versions() -> Vec<String> {
    let ask = [
        ("rsync", "--version"),
        ("rclone", "version"),
        ("tar", "--version"),
    ];
    let first = ask.into_iter().filter_map(|(program, flag)| {
        let told = output_of(Command::new(program).arg(flag), LAB).ok()?;
        let text = String::from_utf8_lossy(&told).into_owned();
        Some(text.lines().next()?.split("  protocol").next()?.to_owned())
    });
    // ssh says it on its other output.
    let ssh = Command::new("ssh").arg("-V").output().ok();
    let ssh = ssh.map(|told| String::from_utf8_lossy(&told.stderr).trim().to_owned());
    first.chain(ssh).collect()
}

fn render(record: &Record) -> String {
    let mut large = Table::new(&[
        "path",
        "program",
        "MB",
        "s",
        "Mb/s",
        "middle, Mb/s",
        "connections",
        "CPU s/GB",
    ]);
    let mut many = Table::new(&[
        "path",
        "program",
        "files",
        "s",
        "files/s",
        "CPU s/GB",
        "memory near, MB",
        "far, MB",
    ]);
    for cell in CELLS {
        let name = cell.name();
        let path = cell.between.name().to_owned();
        let of = |who: &str, what: &str| record.median(&name, &format!("{who}.{what}"));
        for who in EVERYBODY {
            let who = who.name();
            if of(who, "took").is_none() {
                continue;
            }
            // A bar is a table's.
            let shown_name = who.replace('|', "\\|");
            let shown = |what, scale, decimals| number(of(who, what), scale, decimals);
            let (took, cpu) = (shown("took", 1.0, 2), shown("cpu", 1.0, 2));
            match cell.is_many {
                true => many.row(vec![
                    path.clone(),
                    shown_name,
                    shown("files", 1.0, 0),
                    took,
                    shown("files_a_second", 1.0, 0),
                    cpu,
                    shown("memory_near", 1e6, 0),
                    shown("memory_far", 1e6, 0),
                ]),
                false => large.row(vec![
                    path.clone(),
                    shown_name,
                    shown("bytes", 1e6, 0),
                    took,
                    shown("rate", 1e6, 0),
                    shown("steady", 1e6, 0),
                    shown("streams", 1.0, 0),
                    cpu,
                ]),
            }
        }
        let others = [
            ("iperf3", "iperf3"),
            ("iperf3_open", "iperf3 after --cipher none"),
            ("limit", "the parts alone"),
            ("limit_open", "the parts without encryption"),
        ];
        for (who, shown_name) in others {
            if of(who, "rate").is_some() {
                large.row(vec![
                    path.clone(),
                    shown_name.to_owned(),
                    String::new(),
                    String::new(),
                    number(of(who, "rate"), 1e6, 0),
                    String::new(),
                    number(of(who, "streams"), 1.0, 0),
                    number(of(who, "cpu"), 1.0, 2),
                ]);
            }
        }
        if let (Some(took), false) = (of("ssh", "took"), cell.is_many) {
            let mut row = vec![String::new(); 8];
            row[0] = path;
            "ssh there true".clone_into(&mut row[1]);
            row[3] = number(Some(took), 1.0, 2);
            large.row(row);
        }
    }
    let mut text = table::head(record);
    for (title, legend, table) in [
        ("One large file", LARGE_LEGEND, large),
        ("Files of 4 KiB", MANY_LEGEND, many),
    ] {
        text += &format!("\n### {title}\n\n{legend}\n\n{}", table.finish());
    }
    // Short cells say that it works, not how well.
    if !record.quick {
        let table = clauses::table(record);
        text += &format!("\n### Must hold\n\n{CLAUSES_LEGEND}\n\n{table}");
    }
    for note in &record.notes {
        text += &format!("\n* {note}");
    }
    text
}

const LARGE: u64 = 2_000_000_000;
const MANY: u64 = 100_000;
const FILE: u64 = 4_096;
/// How many times more a large file is copied where only CPUs count, its parts measured after each. From one second to the next
/// a virtual machine is a third slower: its CPUs are on cores that share a cache, or on others (a cache line goes from one to the
/// other in 50 ns, or in 250).
const AGAIN: usize = 2;
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// Of hosts that nothing else is on.
const SSH_PORT: u16 = 2_222;
const LAB: Duration = Duration::from_secs(60);
const COPY: Duration = Duration::from_secs(280);
const MARKERS: (&str, &str) = ("<!-- copy:begin -->", "<!-- copy:end -->");
const LARGE_LEGEND: &str = "Seconds from the command to its end, ssh's beginning in them (15 round trips). Middle: between the first \
    fifth of the bytes and the last. CPU: of both ends' processes, kernel and all. iperf3: CUBIC, unencrypted, with as many \
    connections as goodput copy had. Memory for what arrives was in use just before each copy. The parts alone: the CPU of cp, of BLAKE3 at both ends, of AES-GCM at both ends and of \
    iperf3, each by itself, and the rate at which all cores together could do that. Without a path, ours takes turns with its parts, up to \
    three times a round.";
const MANY_LEGEND: &str = "Each once a round, a thousand files in a folder. Peers that take minutes over a path get fewer.";
const CLAUSES_LEGEND: &str = "What is demanded of goodput copy, encrypted where nothing else is said, and the medians above. What a path carries \
    is its rate times the payload's part of a full packet on the wire, with time stamps. ssh's start counts for ours but where it says \
    otherwise, and not for a peer that copied less. Of two measures either is enough.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_stands_in_a_table() {
        let mut rows = Vec::new();
        for cell in CELLS {
            let mut recorder = Recorder::new(1, cell.name(), 0.0);
            for who in cell.who() {
                for what in ["bytes", "took", "rate", "cpu", "files", "files_a_second"] {
                    recorder.put(format!("{}.{what}", who.name()), 1e6, "1");
                }
                assert!(cell.amount(who, true) > 0, "{cell:?} {who:?}");
            }
            rows.extend(recorder.into_parts().0);
        }
        for quick in [true, false] {
            let record = Record::of(Machine::default(), 1, quick, Vec::new(), rows.clone());
            let text = render(&record);
            for word in ["| dtn-300ms ", "| rclone sftp ", "| loopback ", "| veth "] {
                assert!(text.contains(word), "{text}");
            }
            assert_eq!(text.contains("### Must hold"), !quick, "{text}");
            assert!(!text.contains("NaN"), "{text}");
        }
    }

    #[test]
    fn what_is_copied_is_as_large_as_it_should_be() {
        let folder =
            std::env::temp_dir().join(format!("goodput-xtask-copy-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        make_files(&folder.join("many"), 3).unwrap();
        make_large(&folder.join("one"), (1 << 20) + 5).unwrap();
        assert_eq!(found(&folder).unwrap(), 3 * FILE + (1 << 20) + 5);
        remove(&folder).unwrap();
    }

    #[test]
    fn hosts_on_a_veth_pair_copy_through_an_sshd_of_their_own() {
        let can_run = ["/usr/sbin/sshd", "/usr/bin/scp"].map(|file| Path::new(file).exists());
        if !sys::netns::can_create_namespaces() || can_run.contains(&false) {
            eprintln!("skipped: no privilege to make namespaces, or no sshd and scp");
            return;
        }
        let folder =
            std::env::temp_dir().join(format!("goodput-xtask-copy-veth-{}", std::process::id()));
        fs::create_dir_all(folder.join("to")).unwrap();
        let from = folder.join("one");
        make_large(&from, 100_000).unwrap();
        let cell = Cell::of(Between::Veth, false);
        // Who names a program in GOODPUT has it tried, too.
        let named = std::env::var_os("GOODPUT").map(PathBuf::from);
        let ours = named.as_ref().map(|_| Who::Goodput);
        let program = named.unwrap_or_default();
        let site = Site::up(&cell, &program, &folder).unwrap();
        for who in [Some(Who::Scp), ours].into_iter().flatten() {
            let told = site.copy(who, &from, &folder.join("to")).unwrap();
            assert!(told.took > Duration::ZERO);
            assert_eq!(found(&folder.join("to")).unwrap(), 100_000, "{who:?}");
            fs::remove_file(folder.join("to/one")).unwrap();
        }
        site.down().unwrap();
        remove(&folder).unwrap();
    }
}
