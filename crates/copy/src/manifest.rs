//! A list of files with their BLAKE3 hashes, as `b3sum --check` reads it.
//!
//! A line is the hash in hexadecimal digits, two blanks and the name. Where the name has a backslash or an end of line, the
//! line begins with a backslash, and they stand as `\\`, `\n` and `\r` in it. A name that is not UTF-8 cannot be said.

use std::fmt::Write as _;
use std::io::{self, Read as _};

use blake3::Hasher;

use crate::destination::{Destination, Standing};
use crate::digest::Sum;
use crate::entry::RelPath;
use crate::room::{self, PAGE};
use crate::source::{Source, SourceFile};

/// One line of a manifest, its end included; `None` for a name that is not UTF-8.
pub fn line(name: &[u8], hash: &Sum) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let mut line = String::with_capacity(name.len() + 70);
    let is_escaped = name.contains(['\\', '\n', '\r']);
    if is_escaped {
        line.push('\\');
    }
    for byte in hash {
        // Writing to a string cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    line.push_str("  ");
    match is_escaped {
        true => name.chars().for_each(|letter| match letter {
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            other => line.push(other),
        }),
        false => line.push_str(name),
    }
    line.push('\n');
    Some(line)
}

/// Name and hash of one line, with or without its end; `None` where it is no such line.
pub fn read_line(line: &[u8]) -> Option<(Vec<u8>, Sum)> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (digits, rest) = line.split_at_checked(2 * blake3::OUT_LEN)?;
    let hash = blake3::Hash::from_hex(digits).ok()?;
    let name = rest.strip_prefix(b"  ").filter(|name| !name.is_empty())?;
    std::str::from_utf8(name).ok()?;
    if !is_escaped {
        return Some((name.to_vec(), *hash.as_bytes()));
    }
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            other => *other,
        });
    }
    Some((plain, *hash.as_bytes()))
}

/// The hash of a file of a source.
///
/// # Errors
/// `InvalidData` where it changed while it was read; `TimedOut` once `is_stopped`; as read(2).
pub fn hash_of_source(
    source: &Source,
    path: &RelPath,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<Sum> {
    let file: SourceFile = source.open_file(path)?;
    let hash = hash(file.file(), is_stopped)?;
    match file.changed_since(&file.fingerprint().to_owned())? {
        true => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it changed while it was read",
        )),
        false => Ok(hash),
    }
}

/// The hash of a file that stands at a destination; `None` where no file does.
///
/// # Errors
/// `TimedOut` once `is_stopped`; as read(2).
pub fn hash_at(
    destination: &Destination,
    path: &RelPath,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<Option<Sum>> {
    match destination.look(path)? {
        Some(stands) if stands.kind == Standing::File => {
            let file = destination.open_existing(path)?;
            Ok(Some(hash(&file, is_stopped)?))
        }
        _ => Ok(None),
    }
}

fn hash(mut file: &std::fs::File, is_stopped: &dyn Fn() -> bool) -> io::Result<Sum> {
    let mut hasher = Hasher::new();
    let mut room = Vec::new();
    let place = room::place(&mut room, 1 << 20, PAGE);
    let bytes = &mut room[place];
    loop {
        if is_stopped() {
            // Not `Interrupted`, which is read again.
            return Err(io::ErrorKind::TimedOut.into());
        }
        match file.read(bytes) {
            Ok(0) => return Ok(*hasher.finalize().as_bytes()),
            Ok(n) => hasher.update(&bytes[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hash_is_given_up_when_it_is_stopped() {
        let scratch = crate::scratch::Scratch::new();
        let path = scratch.file("a", vec![7; 5 << 20]);
        let file = std::fs::File::open(path).unwrap();
        let asked = std::cell::Cell::new(0);
        let is_stopped = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let error = hash(&file, &is_stopped).unwrap_err();
        assert_eq!((error.kind(), asked.get()), (io::ErrorKind::TimedOut, 3));
    }

    #[test]
    fn names_are_escaped_as_b3sum_does() {
        let hash = crate::digest::sum_of(b"");
        let digits = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        let line = |name: &[u8]| line(name, &hash);
        assert_eq!(line(b"a b").unwrap(), format!("{digits}  a b\n"));
        assert_eq!(
            line(b"a\\b\nc\r").unwrap(),
            format!("\\{digits}  a\\\\b\\nc\\r\n")
        );
        assert_eq!(line(b"\xff"), None);
        for name in [&b"a b"[..], b"a\\b\nc\r", b"\\n", b" "] {
            let line = line(name).unwrap();
            assert_eq!(read_line(line.as_bytes()), Some((name.to_vec(), hash)));
        }
        for wrong in [
            String::new(),
            digits.to_owned(),
            format!("{digits}  "),
            format!("{digits} a"),
            format!("{}  a", &digits[1..]),
            format!("\\{digits}  a\\x"),
            format!("\\{digits}  a\\"),
        ] {
            assert_eq!(read_line(wrong.as_bytes()), None, "{wrong}");
        }
    }
    proptest! {
        #[test]
        fn any_line_is_refused_or_reads_the_same_when_it_is_written_again(
            bytes: Vec<u8>, text in "[a-zé\\\\\n\r \u{0}]{0,12}", is_escaped: bool
        ) {
            let hash = crate::digest::sum_of(&bytes);
            // The same hash before any bytes, and before a text that is often a name.
            let digits = line(b"x", &hash).unwrap();
            let digits = &digits.as_bytes()[..digits.len() - 2];
            let mark: &[u8] = if is_escaped { b"\\" } else { b"" };
            for line_of in [&bytes[..], &[mark, digits, &bytes].concat(), &[mark, digits, text.as_bytes()].concat()] {
                let Some((name, hash)) = read_line(line_of) else { continue };
                prop_assert!(!name.is_empty() && name.len() <= line_of.len());
                let again = line(&name, &hash).unwrap();
                prop_assert_eq!(again.matches('\n').count(), 1);
                prop_assert_eq!(read_line(again.as_bytes()), Some((name, hash)));
            }
            let own = line(text.as_bytes(), &hash).unwrap();
            let read = (!text.is_empty()).then(|| (text.clone().into_bytes(), hash));
            prop_assert_eq!(read_line(own.as_bytes()), read);
        }
    }
}
