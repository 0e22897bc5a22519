//! What is typed for a source or a destination.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use fault::Failure;
use sys::endpoint::Endpoint;

/// Hosts at one end, at most.
const HOSTS_MOST: usize = 64;

/// A place on this host, on another, or behind a lab.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A path here.
    Here(PathBuf),
    /// A path on a host that a shell reaches, and on others that see the same files.
    Far {
        /// What the shell is told to reach.
        host: String,
        /// The others.
        beside: Vec<String>,
        /// The path there.
        path: PathBuf,
    },
    /// A path below what a daemon serves.
    Served {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
        /// The path there.
        path: PathBuf,
    },
    /// A path on this host's disk, behind a lab's path.
    Lab {
        /// What the lab is called.
        name: String,
        /// The path on this host's disk.
        place: PathBuf,
    },
}

impl Operand {
    /// Reads `PATH`, `HOST:PATH`, `USER@HOST:PATH`, `[ADDRESS]:PATH`, `HOST,HOST,HOST:PATH`, `HOST::PATH`, `goodput://HOST:PORT/PATH` or
    /// `lab:NAME:PATH`. As for rsync and scp, a colon before any slash makes a host, and two colons
    /// a daemon there. Whether there is such a lab is not looked at.
    ///
    /// # Errors
    /// What is none of these.
    pub fn parse(typed: &OsStr) -> Result<Self, Failure> {
        let bytes = typed.as_bytes();
        let usage = |text: String| Failure::usage(text);
        if bytes.is_empty() {
            return Err(usage("an empty name is no path".to_owned()));
        }
        if let Some(rest) = bytes.strip_prefix(b"lab:") {
            let Some(colon) = rest.iter().position(|byte| *byte == b':') else {
                let typed = typed.display();
                return Err(usage(format!("'{typed}': say lab:NAME:PATH")));
            };
            let name = String::from_utf8_lossy(&rest[..colon]).into_owned();
            let place = path_of(&rest[colon + 1..]);
            return Ok(Self::Lab { name, place });
        }
        if let Some(rest) = bytes.strip_prefix(b"goodput://") {
            return served(rest).map_err(|problem| {
                usage(format!(
                    "'{}': {problem}; say goodput://HOST:PORT/PATH",
                    typed.display()
                ))
            });
        }
        let colon = colon_of(bytes);
        match colon {
            Some(colon) if colon > 0 => {
                let hosts = String::from_utf8(bytes[..colon].to_vec())
                    .map_err(|_| usage(format!("'{}': no host is called so", typed.display())))?;
                let mut hosts: Vec<String> = hosts.split(',').map(bare).collect();
                for (n, host) in hosts.iter().enumerate() {
                    // ssh would take it for an option.
                    if host.starts_with('-')
                        || host.is_empty()
                        || host.contains(char::is_whitespace)
                        || host.contains(['[', ']'])
                    {
                        return Err(usage(format!("'{host}': no host is called so")));
                    }
                    if hosts[..n].contains(host) {
                        return Err(usage(format!("'{host}' stands twice")));
                    }
                }
                if hosts.len() > HOSTS_MOST {
                    return Err(usage(format!("more than {HOSTS_MOST} hosts")));
                }
                let host = hosts.remove(0);
                if let Some(path) = bytes[colon + 1..].strip_prefix(b":") {
                    if host.contains('@') {
                        let text = format!("'{host}': a daemon asks for no user, but for a token");
                        return Err(usage(text));
                    }
                    if !hosts.is_empty() {
                        return Err(usage(
                            "several hosts are for ssh, and not for daemons".into(),
                        ));
                    }
                    let endpoint = Endpoint::parse(&host)
                        .map_err(|problem| usage(format!("'{host}': {problem}")))?;
                    return Ok(Self::Served {
                        host: endpoint.without_port().to_string(),
                        port: super::daemon::PORT,
                        path: path_of(path),
                    });
                }
                Ok(Self::Far {
                    host,
                    beside: hosts,
                    path: path_of(&bytes[colon + 1..]),
                })
            }
            _ => Ok(Self::Here(PathBuf::from(typed))),
        }
    }

    /// Which host, for comparing.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Here(_) => None,
            Self::Far { host, .. } | Self::Served { host, .. } => Some(host),
            Self::Lab { name, .. } => Some(name),
        }
    }

    /// Other hosts that see the same files.
    pub(super) fn beside(&self) -> &[String] {
        match self {
            Self::Far { beside, .. } => beside,
            _ => &[],
        }
    }

    /// Whether it is not on this host.
    pub fn is_far(&self) -> bool {
        !matches!(self, Self::Here(_))
    }

    /// Whether its files are none of this host's: a lab's are.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Far { .. } | Self::Served { .. })
    }

    /// The path on its host.
    pub fn path(&self) -> &Path {
        match self {
            Self::Here(path) | Self::Far { path, .. } | Self::Served { path, .. } => path,
            Self::Lab { place, .. } => place,
        }
    }

    /// A name for run folders.
    pub(super) fn far_name(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::Far { host, .. } | Self::Served { host, .. } => Some(host.clone()),
            Self::Lab { name, .. } => {
                let stem = Path::new(name).file_stem();
                Some(stem.map_or_else(|| name.clone(), |s| s.to_string_lossy().into_owned()))
            }
        }
    }

    /// The name that its copy has at the destination; `None` where what is in it is copied instead.
    pub(super) fn last_name(&self) -> Option<Box<[u8]>> {
        let bytes = self.path().as_os_str().as_bytes();
        let name = bytes.rsplit(|byte| *byte == b'/').next()?;
        let is_contents = matches!(name, b"" | b"." | b".." | b"~");
        (!is_contents).then(|| name.into())
    }

    /// By what it is known again.
    pub(super) fn identity(&self) -> Vec<u8> {
        let mut text = self.place().unwrap_or_default().as_bytes().to_vec();
        text.push(b':');
        if let Self::Served { port, .. } = self {
            text.extend_from_slice(format!("{port}:").as_bytes());
        }
        let path = match self {
            Self::Here(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            other => other.path().to_owned(),
        };
        text.extend_from_slice(path.as_os_str().as_bytes());
        text
    }
}

/// The colon that ends hosts: before any slash, and in no brackets.
fn colon_of(bytes: &[u8]) -> Option<usize> {
    let mut is_inside = false;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'[' => is_inside = true,
            b']' => is_inside = false,
            b'/' => return None,
            b':' if !is_inside => return Some(at),
            _ => {}
        }
    }
    None
}

/// A host as it was typed, without brackets.
fn bare(typed: &str) -> String {
    let inner = typed
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(typed).to_owned()
}

/// `HOST/PATH`, `HOST:PORT/PATH` or `[ADDRESS]:PORT/PATH`.
fn served(rest: &[u8]) -> Result<Operand, String> {
    let slash = rest.iter().position(|byte| *byte == b'/');
    let (host, path) = rest.split_at(slash.unwrap_or(rest.len()));
    let host = std::str::from_utf8(host).map_err(|_| "no host is called so".to_owned())?;
    let endpoint = Endpoint::parse(host)?;
    Ok(Operand::Served {
        host: endpoint.without_port().to_string(),
        port: endpoint.port().unwrap_or(super::daemon::PORT),
        path: path_of(path.strip_prefix(b"/").unwrap_or(path)),
    })
}

/// Nothing after the colon is the home folder.
fn path_of(bytes: &[u8]) -> PathBuf {
    match bytes {
        b"" => PathBuf::from("."),
        _ => PathBuf::from(OsString::from_vec(bytes.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(typed: &str) -> Option<(String, PathBuf)> {
        match Operand::parse(OsStr::new(typed)).unwrap() {
            Operand::Far { host, path, .. } => Some((host, path)),
            _ => None,
        }
    }

    #[test]
    fn a_colon_before_any_slash_makes_a_host() {
        let is = |typed: &str, host: &str, path: &str| {
            assert_eq!(far(typed), Some((host.to_owned(), path.into())), "{typed}");
        };
        is("node:/a", "node", "/a");
        is("me@node:a:b", "me@node", "a:b");
        is("node:", "node", ".");
        is("[fe80::1]:/a", "fe80::1", "/a");
        assert_eq!(far("./a:b"), None);
        assert_eq!(far("a/b:c"), None);
        assert_eq!(far("plain"), None);
        assert_eq!(far(":a"), None);
    }

    #[test]
    fn hosts_that_see_the_same_files_stand_in_a_list() {
        let is = |typed: &str, all: &[&str], at: &str| {
            let operand = Operand::parse(OsStr::new(typed)).unwrap();
            let mut hosts = vec![operand.place().unwrap().to_owned()];
            hosts.extend_from_slice(operand.beside());
            assert_eq!(hosts, all, "{typed}");
            assert_eq!(operand.path(), Path::new(at), "{typed}");
        };
        is("a,b,c:/x", &["a", "b", "c"], "/x");
        is("me@a,you@b:x:y", &["me@a", "you@b"], "x:y");
        is("[fe80::1],[fe80::2]:/x", &["fe80::1", "fe80::2"], "/x");
        is("a,[fe80::2]:", &["a", "fe80::2"], ".");
        assert_eq!(far("a,b/c:d"), None);
        for wrong in [
            "a,:x", ",a:x", "a,-o:x", "a,a:x", "a,b::x", "a,[b:x", "a, b:x",
        ] {
            let parsed = Operand::parse(OsStr::new(wrong));
            assert!(!matches!(parsed, Ok(Operand::Far { .. })), "{wrong}");
        }
    }

    #[test]
    fn two_colons_or_a_url_make_a_daemon() {
        let is = |typed: &str, host: &str, port: u16, path: &str| {
            let Operand::Served {
                host: h,
                port: p,
                path: at,
            } = Operand::parse(OsStr::new(typed)).unwrap()
            else {
                panic!("{typed}");
            };
            assert_eq!((h.as_str(), p, at), (host, port, path.into()), "{typed}");
        };
        is("node::data/x", "node", 5212, "data/x");
        is("node::", "node", 5212, ".");
        is("node::/x", "node", 5212, "/x");
        is("[fe80::1]::x", "fe80::1", 5212, "x");
        is("goodput://node/a/b/", "node", 5212, "a/b/");
        is("goodput://node:7/a", "node", 7, "a");
        is("goodput://[::1]:7/a", "::1", 7, "a");
        is("goodput://[fe80::1%eth0]:7/a", "fe80::1%eth0", 7, "a");
        is("[fe80::1%eth0]::x", "fe80::1%eth0", 5212, "x");
        is("goodput://node:7", "node", 7, ".");
        for wrong in [
            "goodput://",
            "goodput:///a",
            "goodput://node:0/a",
            "goodput://node:x/a",
            "goodput://me@node/a",
            "goodput://-o/a",
            "me@node::a",
        ] {
            assert!(Operand::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_host() {
        assert!(Operand::parse(OsStr::new("-oProxyCommand=x:y")).is_err());
        assert!(Operand::parse(OsStr::new("[-oProxyCommand=x]:y")).is_err());
        assert!(Operand::parse(OsStr::new("[-F]:y")).is_err());
        assert!(Operand::parse(OsStr::new("[]:y")).is_err());
        assert!(Operand::parse(OsStr::new("a b:y")).is_err());
        assert!(Operand::parse(OsStr::new("")).is_err());
        assert!(Operand::parse(OsStr::new("lab:columbia")).is_err());
    }
}
