//! The socket by which a running gateway is asked and told. One line each way.
//!
//! Only its own user and root reach it: by the file's mode, and by who the kernel says is there.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gateway::Gateway;
use gateway::config::Config;
use sys::control::{Connection, Listener};

use super::status::{self, Status, Sums, words};
use super::{StatusArgs, TellArgs};
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};

/// The gateway's end.
#[derive(Debug)]
pub(super) struct Control {
    listener: Listener,
    file: PathBuf,
    /// Device and inode of our socket, so that another's file of that name stays.
    made: Option<(u64, u64)>,
}

/// What somebody wants that the gateway's owner has to do.
#[derive(Debug)]
pub(super) enum Asked {
    /// Become this; who asked waits.
    Reload(Box<Config>, Asker),
    Drain,
    /// Draw the report; who asked waits for where it is.
    Report(Asker),
    /// Start the program's file again, to go on for this one; who asked waits.
    Upgrade(Asker),
    /// Give everything to who is at the other end.
    HandOver(Connection),
}

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct Asker(Connection);

impl Asker {
    pub(super) fn answer(&self, result: Result<(), String>) {
        self.answer_with(result.map(|()| String::new()));
    }

    /// With a word behind the `ok`.
    pub(super) fn answer_with(&self, result: Result<String, String>) {
        let line = match result {
            Ok(word) => format!("{}\n", format!("ok {word}").trim_end()),
            Err(e) => format!("error {}\n", e.replace('\n', " ")),
        };
        let _ = self.0.send(line.as_bytes(), &[], Instant::now() + PATIENCE);
    }
}

impl Control {
    /// Makes the socket; without one the gateway runs all the same.
    pub(super) fn open(file: Option<&Path>) -> Option<Self> {
        let Some(file) = file.map(Path::to_owned).or_else(default_file) else {
            context::note(
                "gateway: no control socket, XDG_RUNTIME_DIR names no directory for it; status and reload \
                 need one: --control FILE",
            );
            return None;
        };
        // Of one that was killed. Where somebody listens, it stays and we have none. connect(2) refuses
        // what is no socket by the same word as a dead one.
        let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
        if is_socket(&file) && Connection::open(&file).is_err_and(refused) {
            let _ = fs::remove_file(&file);
        }
        match Listener::bind(&file) {
            Ok(listener) => Some(Self {
                listener,
                made: identity(&file),
                file,
            }),
            Err(e) => {
                context::note(format_args!(
                    "gateway: no control socket, {}: {e}; status and reload will not find it",
                    file.display()
                ));
                None
            }
        }
    }

    /// Goes on for the gateway that listens there, which gives its socket with the rest.
    pub(super) fn take_over(
        file: Option<&Path>,
        config: Config,
    ) -> Result<(Gateway, Option<Self>), Failure> {
        let Some(file) = file.map(Path::to_owned).or_else(default_file) else {
            return Err(nobody("there is no directory for its control socket"));
        };
        let name = file.display();
        let mut connection =
            Connection::open(&file).map_err(|e| nobody(&format!("{name}: {e}")))?;
        let peer = connection.peer().map_err(Failure::here)?;
        if peer.uid != sys::control::effective_user() && peer.uid != 0 {
            return Err(nobody(&format!("{name} is another user's")));
        }
        let (gateway, socket) = Gateway::take_over(config, &mut connection)?;
        let listener = socket.map(Listener::from_fd);
        let listener = listener.transpose().map_err(Failure::here)?;
        let control = listener.map(|listener| Self {
            listener,
            made: identity(&file),
            file,
        });
        Ok((gateway, control))
    }

    /// The socket, to be given away.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Another process has the socket from now on: its file stays.
    pub(super) fn leave(&mut self) {
        self.made = None;
    }

    /// Waits a moment for somebody and answers; what is left to do comes back.
    pub(super) fn serve(
        &self,
        gateway: &Gateway,
        context: &Context,
        sums: impl FnOnce() -> Option<Sums>,
        read: impl FnOnce() -> Result<Config, Failure>,
    ) -> Option<Asked> {
        let _ = self.listener.wait(true, &[], LOOK);
        let mut connection = self.listener.accept().ok()??;
        let ours = sys::control::effective_user();
        let peer = connection.peer().ok()?;
        if peer.uid != ours && peer.uid != 0 {
            tracing::warn!("user {} is turned away from the control socket", peer.uid);
            return None;
        }
        // Nobody can hold it up for longer.
        let deadline = Instant::now() + PATIENCE;
        let (line, _) = connection.receive(LINE_BYTES, deadline).ok()?;
        let asker = Asker(connection);
        if let Some(most) = most_of(&line) {
            let seen = match most {
                0 => Vec::new(),
                most => gateway.look(most),
            };
            let status = Status::of(gateway.counts(), seen).with_links(gateway.links());
            let status = status.with_buffers(gateway.buffers());
            let status = status.with_samples(gateway.sampled()).with_sums(sums());
            let mut line = serde_json::to_vec(&status).ok()?;
            line.push(b'\n');
            let _ = asker.0.send(&line, &[], deadline);
            return None;
        }
        match line.as_slice() {
            b"drain" => {
                asker.answer(Ok(()));
                Some(Asked::Drain)
            }
            b"report" => Some(Asked::Report(asker)),
            b"upgrade" | b"renew" if context.stop.is_stopped() => {
                asker.answer(Err("it is ending".to_owned()));
                None
            }
            b"upgrade" => Some(Asked::HandOver(asker.0)),
            b"renew" => Some(Asked::Upgrade(asker)),
            b"reload" if context.stop.is_stopped() => {
                asker.answer(Err("it is ending".to_owned()));
                None
            }
            b"reload" => match read() {
                Ok(config) => Some(Asked::Reload(Box::new(config), asker)),
                Err(e) => {
                    asker.answer(Err(e.to_string()));
                    None
                }
            },
            _ => {
                asker.answer(Err(
                    "expected status, report, reload, drain or upgrade".to_owned()
                ));
                None
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.made.is_some() && identity(&self.file) == self.made {
            let _ = fs::remove_file(&self.file);
        }
    }
}

fn is_socket(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|m| m.file_type().is_socket())
}

/// Device and inode of what has this name, not of what it leads to.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(file).ok()?;
    Some((found.dev(), found.ino()))
}

/// Asks what there is to see and prints it.
pub(super) fn status(args: &StatusArgs) -> Verdict {
    if args.watch {
        return watch(args);
    }
    if args.report {
        let line = ask(&args.which, "report")?;
        let file = line.strip_prefix("ok ").ok_or_else(|| {
            let why = line.strip_prefix("error ").unwrap_or(&line);
            Failure::far(anyhow::anyhow!("the gateway: {why}"))
        })?;
        context::print_place("Report", Path::new(file))?;
        return Ok(failure::DONE);
    }
    let most = if args.json { args.top } else { 0 };
    let line = ask(&args.which, &format!("status {most}"))?;
    if args.json {
        context::print_json_text(&line)?;
        return Ok(failure::DONE);
    }
    let status: Status = context::from_json(line.as_bytes()).map_err(Failure::far)?;
    context::print(&match args.openmetrics {
        true => status::openmetrics(&status),
        false => {
            let links = status::links(&status.links);
            words(&status.counts)
                + &status::sums(status.sums.as_ref())
                + &links
                + &status::buffers(&status.buffers)
                + &status::sampled(&status.unsplit_samples)
        }
    })?;
    Ok(failure::DONE)
}

/// Again each second; ends with Ctrl-C or with the gateway.
fn watch(args: &StatusArgs) -> Verdict {
    loop {
        let line = ask(&args.which, &format!("status {}", args.top))?;
        let status: Status = context::from_json(line.as_bytes()).map_err(Failure::far)?;
        let (counts, table) = (
            words(&status.counts)
                + &status::sums(status.sums.as_ref())
                + &status::links(&status.links),
            status::table(&status),
        );
        // Who reads no more has seen enough.
        if !context::print_screen(&format!("{counts}\n{table}\n")) {
            return Ok(failure::DONE);
        }
        std::thread::sleep(WATCH);
    }
}

/// How many connections "status N" asks for.
fn most_of(line: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(b"status")?;
    match rest.strip_prefix(b" ") {
        Some(number) => str::from_utf8(number).ok()?.parse().ok(),
        None => rest.is_empty().then_some(0),
    }
}

/// Tells it something that it says yes or no to.
pub(super) fn tell(which: &TellArgs, what: &str) -> Verdict {
    let line = ask(which, what)?;
    match line.strip_prefix("error ") {
        None => Ok(failure::DONE),
        // A file that makes no sense is the user's; what does not succeed is the machine's.
        Some(why) if what == "reload" => Err(Failure::usage(anyhow::anyhow!("{what}: {why}"))),
        Some(why) => Err(Failure::here(anyhow::anyhow!("{what}: {why}"))),
    }
}

fn nobody(why: &str) -> Failure {
    Failure::far(anyhow::anyhow!(
        "no gateway answers here: {why}; is one running in this network namespace, as this user?"
    ))
}

fn ask(which: &TellArgs, what: &str) -> Result<String, Failure> {
    let file = which.control.clone().or_else(file_to_ask);
    let Some(file) = file else {
        return Err(nobody("there is no directory for its control socket"));
    };
    let name = file.display();
    let patience = match what {
        "renew" => START_PATIENCE,
        _ => PATIENCE,
    };
    let deadline = Instant::now() + patience;
    let mut connection = Connection::open(&file).map_err(|e| nobody(&format!("{name}: {e}")))?;
    connection
        .send(format!("{what}\n").as_bytes(), &[], deadline)
        .and_then(|()| connection.receive(ANSWER_BYTES, deadline))
        .map(|(line, _)| String::from_utf8_lossy(&line).into_owned())
        .map_err(|e| nobody(&format!("{name}: {e}")))
}

/// Where a gateway of this user has its socket: in what systemd made for the unit, in /run for root, else in the user's own
/// directory; by network namespace, since each may have one.
fn default_file() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|d| d.is_absolute())
    };
    let directory = match (
        absolute("RUNTIME_DIRECTORY"),
        sys::control::effective_user(),
    ) {
        (Some(of_unit), _) => of_unit,
        (None, 0) => PathBuf::from("/run"),
        (None, _) => absolute("XDG_RUNTIME_DIR")?,
    };
    Some(directory.join(name_here()?))
}

/// Where one that runs is asked: root asks the unit's, which has a user of its own, where there is one.
fn file_to_ask() -> Option<PathBuf> {
    let of_unit = Path::new(UNIT_DIRECTORY).join(name_here()?);
    match sys::control::effective_user() {
        0 if is_socket(&of_unit) => Some(of_unit),
        _ => default_file(),
    }
}

fn name_here() -> Option<String> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    Some(format!("goodput-gateway-{namespace}.sock"))
}

/// `RuntimeDirectory=` of the unit.
const UNIT_DIRECTORY: &str = "/run/goodput-gateway";
/// How long the gateway waits for somebody before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// For a line each way.
const PATIENCE: Duration = Duration::from_secs(2);
/// For another one to start and to go on.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(30);
const LINE_BYTES: usize = 64;
/// A thousand connections are some 1.5 MB.
const ANSWER_BYTES: usize = 4 << 20;
const WATCH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_may_name_how_many_connections() {
        for (line, most) in [
            ("status", Some(0)),
            ("status 20", Some(20)),
            ("status x", None),
            ("status20", None),
            ("statu", None),
        ] {
            assert_eq!(most_of(line.as_bytes()), most, "{line}");
        }
    }

    #[test]
    fn only_a_dead_socket_gives_way_and_only_our_own_is_taken_away() {
        let name = format!("goodput-control-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let file = directory.join("notes");
        fs::write(&file, "kept").unwrap();
        assert!(Control::open(Some(&file)).is_none());
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");

        let socket = directory.join("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let control = Control::open(Some(&socket)).unwrap();
        assert!(Control::open(Some(&socket)).is_none());
        // Somebody puts another file in its place.
        fs::remove_file(&socket).unwrap();
        fs::write(&socket, "kept").unwrap();
        drop(control);
        assert_eq!(fs::read_to_string(&socket).unwrap(), "kept");

        let own = directory.join("own");
        drop(Control::open(Some(&own)).unwrap());
        assert!(!own.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
