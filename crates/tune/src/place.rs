//! Which network namespace is tuned, and where its journal is.

use std::env;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fault::Failure;
use sys::netns::NetNs;

/// A network namespace as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One that `ip netns add` made.
    Named(String),
    /// That of a process.
    Process(u32),
    /// A host of a lab that is up, and the lab's name where several are.
    Lab(Option<String>, String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = |name: &str| {
            let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let first = name
                .chars()
                .next()
                .is_some_and(|c| c.is_ascii_alphanumeric());
            first && name.chars().all(legal)
        };
        let refused = || {
            format!(
                "'{text}' is no namespace; expected a name of `ip netns`, a process id, lab:HOST or lab:LAB/HOST"
            )
        };
        if let Some(rest) = text.strip_prefix("lab:") {
            let (lab, host) = match rest.split_once('/') {
                Some((lab, host)) if word(lab) => (Some(lab.to_owned()), host),
                Some(_) => return Err(refused()),
                None => (None, rest),
            };
            return match word(host) {
                true => Ok(Self::Lab(lab, host.to_owned())),
                false => Err(refused()),
            };
        }
        if let Ok(number) = text.parse() {
            return Ok(Self::Process(number));
        }
        match word(text) {
            true => Ok(Self::Named(text.to_owned())),
            false => Err(refused()),
        }
    }
}

/// Moves the calling thread into a namespace that is not a lab's. The process must have one thread.
///
/// # Errors
/// There is none of that name, or entering it takes root.
pub fn enter(place: &Place) -> Result<(), Failure> {
    let (path, what) = match place {
        Place::Named(name) => (PathBuf::from(format!("/run/netns/{name}")), name.clone()),
        Place::Process(number) => (
            PathBuf::from(format!("/proc/{number}/ns/net")),
            format!("of process {number}"),
        ),
        Place::Lab(..) => {
            return Err(Failure::usage("a lab's host is entered through its lab"));
        }
    };
    let file = File::open(&path).map_err(|e| {
        Failure::usage(format!(
            "cannot open the network namespace {what} ({}): {e}",
            path.display()
        ))
    })?;
    let entered = NetNs::from(OwnedFd::from(file)).enter();
    entered.map_err(|e| {
        Failure::here(format!(
            "cannot enter the network namespace {what}: {e}; it takes root (CAP_SYS_ADMIN)"
        ))
    })
}

/// The name of the calling thread's namespace in a journal: one that no other namespace gets until the next boot.
pub(crate) fn namespace(first: bool) -> String {
    if first {
        return "host".to_owned();
    }
    let number = NetNs::cookie().map(|cookie| format!("netns-{cookie}"));
    number.unwrap_or_else(|| {
        let link = fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
        let digits = link.to_string_lossy();
        let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
        format!("netns-inode-{digits}")
    })
}

/// Where journals are: as asked for, else /var/lib/goodput/tune where this user may write there, else the user's own.
///
/// # Errors
/// A user without a home.
pub fn state_folder(asked: Option<&Path>, root: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(folder) = asked {
        return Ok(folder.to_owned());
    }
    const MACHINE: &str = "var/lib/goodput/tune";
    if let Some(root) = root {
        return Ok(root.join(MACHINE));
    }
    let machine = Path::new("/").join(MACHINE);
    let is_root = sys::control::effective_user() == 0;
    // In a user namespace root is somebody else and may not write there.
    if is_root && (fs::create_dir_all(&machine).is_ok() || machine.is_dir()) && may_write(&machine)
    {
        return Ok(machine);
    }
    let own = env::var_os("XDG_STATE_HOME")
        .filter(|folder| Path::new(folder).is_absolute())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".local/state")));
    own.map(|folder| folder.join("goodput/tune"))
        .ok_or_else(|| {
            Failure::here(
                "there is no place for the journal: set HOME or XDG_STATE_HOME, or --state DIR",
            )
        })
}

fn may_write(folder: &Path) -> bool {
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    let made = File::create(&probe).is_ok();
    let _ = fs::remove_file(probe);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_names_processes_or_hosts_of_labs() {
        let lab =
            |lab: Option<&str>, host: &str| Place::Lab(lab.map(str::to_owned), host.to_owned());
        for (text, place) in [
            ("blue", Some(Place::Named("blue".to_owned()))),
            ("4711", Some(Place::Process(4711))),
            ("lab:near", Some(lab(None, "near"))),
            ("lab:wan/near", Some(lab(Some("wan"), "near"))),
            ("lab:", None),
            ("lab:a/b/c", None),
            ("../etc", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Place>().ok(), place, "{text}");
        }
    }
}
