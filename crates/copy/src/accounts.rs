//! Names of users and groups by number and back, from `/etc/passwd` and `/etc/group` (passwd(5), group(5)).
//!
//! Left out: accounts of network services (LDAP, NIS). Their files keep their numbers.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::sync::OnceLock;

/// The most bytes of either file that are read.
const FILE_BYTES_MOST: u64 = 64 << 20;
/// The longest name that is told (`LOGIN_NAME_MAX` in limits.h).
const NAME_BYTES_MOST: usize = 256;

#[derive(Debug, Default)]
struct Table {
    names: HashMap<u32, Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Table {
    fn read(path: &str) -> Self {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(path) {
            // What could be read counts.
            let _ = file.take(FILE_BYTES_MOST).read_to_end(&mut bytes);
        }
        Self::parse(&bytes)
    }

    /// Lines of `name:password:number:…`; the first of several wins, as in getpwnam(3).
    fn parse(bytes: &[u8]) -> Self {
        let mut table = Self::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let name = fields
                .next()
                .and_then(|name| std::str::from_utf8(name).ok());
            let number = fields
                .nth(1)
                .and_then(|number| std::str::from_utf8(number).ok());
            let (Some(name), Some(Ok(number))) = (name, number.map(str::parse::<u32>)) else {
                continue;
            };
            if name.is_empty() || name.len() > NAME_BYTES_MOST {
                continue;
            }
            table.names.entry(number).or_insert_with(|| name.into());
            table.numbers.entry(name.into()).or_insert(number);
        }
        table
    }

    /// The number this host has for `name`. Number 0 stays 0 and no name leads to it: who writes as the superuser does
    /// not give files to it because of a name from outside.
    fn number(&self, number: u32, name: &str) -> u32 {
        match self.numbers.get(name) {
            Some(here) if number != 0 && *here != 0 => *here,
            _ => number,
        }
    }
}

/// Users and groups of this host, read when first asked for.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: OnceLock<Table>,
    groups: OnceLock<Table>,
}

impl Accounts {
    fn users(&self) -> &Table {
        self.users.get_or_init(|| Table::read("/etc/passwd"))
    }

    fn groups(&self) -> &Table {
        self.groups.get_or_init(|| Table::read("/etc/group"))
    }

    /// Names of a user and a group; empty where there is none.
    pub(crate) fn names(&self, (user, group): (u32, u32)) -> (Box<str>, Box<str>) {
        let name = |table: &Table, number| table.names.get(&number).cloned().unwrap_or_default();
        (name(self.users(), user), name(self.groups(), group))
    }

    /// Numbers here for those of another host.
    pub(crate) fn numbers(
        &self,
        owner: (u32, u32),
        names: Option<&(Box<str>, Box<str>)>,
    ) -> (u32, u32) {
        match names {
            Some((user, group)) => (
                self.users().number(owner.0, user),
                self.groups().number(owner.1, group),
            ),
            None => owner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_wins_over_a_number_but_never_becomes_the_superuser() {
        let lines =
            b"root:x:0:0::/:/bin/sh\nann:x:1000:1000:::\nbad line\n:x:5:\nann:x:7:::\n\xff:x:9:\n";
        let table = Table::parse(lines);
        assert_eq!(table.names.get(&1000).map(AsRef::as_ref), Some("ann"));
        assert_eq!(table.number(4000, "ann"), 1000);
        assert_eq!(table.number(4000, "bob"), 4000);
        assert_eq!(table.number(4000, "root"), 4000);
        assert_eq!(table.number(0, "ann"), 0);
        assert_eq!(table.number(4000, ""), 4000);
        assert_eq!(table.names.len(), 3);
    }
}
