//! The socket by which a running gateway is asked and told. One line each way.
//!
//! Only its own user and root reach it: by the file's mode, and by who the kernel says is there.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fault::Failure;
use sys::control::{Connection, Listener};

use super::event::Event;
use crate::config::Config;
use crate::service::Gateway;
use crate::status::{Status, Sums};

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
    pub(super) fn open(file: Option<&Path>) -> Result<Self, Event> {
        let file = file.map(Path::to_owned).or_else(default_file);
        let file = file.ok_or(Event::NoControlDirectory)?;
        // Of one that was killed. Where somebody listens, it stays and we have none. connect(2) refuses
        // what is no socket by the same word as a dead one.
        let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
        if is_socket(&file) && Connection::open(&file).is_err_and(refused) {
            let _ = fs::remove_file(&file);
        }
        match Listener::bind(&file) {
            Ok(listener) => Ok(Self {
                listener,
                made: identity(&file),
                file,
            }),
            Err(error) => Err(Event::NoControl { file, error }),
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
        ending: impl Fn() -> bool,
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
            b"upgrade" | b"renew" if ending() => {
                asker.answer(Err("it is ending".to_owned()));
                None
            }
            b"upgrade" => Some(Asked::HandOver(asker.0)),
            b"renew" => Some(Asked::Upgrade(asker)),
            b"reload" if ending() => {
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

pub(crate) fn is_socket(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|m| m.file_type().is_socket())
}

/// Device and inode of what has this name, not of what it leads to.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(file).ok()?;
    Some((found.dev(), found.ino()))
}

/// How many connections "status N" asks for.
fn most_of(line: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(b"status")?;
    match rest.strip_prefix(b" ") {
        Some(number) => str::from_utf8(number).ok()?.parse().ok(),
        None => rest.is_empty().then_some(0),
    }
}

/// No gateway is there to ask.
pub(crate) fn nobody(why: &str) -> Failure {
    Failure::far(format!(
        "no gateway answers here: {why}; is one running in this network namespace, as this user?"
    ))
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
pub(crate) fn file_to_ask() -> Option<PathBuf> {
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
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// For another one to start and to go on.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(30);
const LINE_BYTES: usize = 64;

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
        assert!(Control::open(Some(&file)).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");

        let socket = directory.join("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let control = Control::open(Some(&socket)).unwrap();
        assert!(Control::open(Some(&socket)).is_err());
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
