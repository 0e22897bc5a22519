//! Packet filters as people type them for tcpdump, compiled to the kernel's classic BPF.
//!
//! The language is that of pcap-filter(7), version 1.10, on Ethernet: hosts, networks, ports, protocols,
//! VLAN tags, lengths, and comparisons of bytes. `and` and `or` have the same precedence and are read
//! from the left; what follows a `vlan` is looked for inside the tag.
//!
//! Two programs can be made of a filter. [`Filter::for_frames`] reads frames as the wire carries them.
//! [`Filter::for_socket`] reads what a packet socket sees: there the kernel has taken the outer tag out of
//! the bytes. Both judge the same frame alike, so that a file captured with a filter holds what the same
//! filter finds in it. tcpdump differs there: live, its `ip` also matches tagged frames.
//!
//! A frame that ends before a byte that a test wants is refused as a whole, as BPF has it.
//!
//! Left out, each refused by name: names of hosts and networks, link layers other than Ethernet, LLC and
//! the protocols on it, MPLS, PPPoE and other tunnels, `protochain`, `gateway`, `ip broadcast`,
//! `inbound` and `outbound`.
//!
//! Sources: pcap-filter(7); Linux Documentation/networking/filter.rst, include/uapi/linux/filter.h.

mod emit;
mod lex;
mod names;
mod parse;
mod tree;

use std::fmt;
use std::ops::Range;

use units::text::{is_plain, plain};

use tree::Node;

/// An instruction of classic BPF: `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions to skip where a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip where it does not.
    pub jump_false: u8,
    /// Operand.
    pub k: u32,
}

/// Which packets a socket is to see, by their direction at the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Those that come in.
    In,
    /// Those that go out.
    Out,
    /// All.
    #[default]
    Both,
}

/// A filter that was understood.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    root: Node,
}

/// Why a text is no filter: points at the word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    text: String,
    at: Range<usize>,
    why: String,
}

/// Most instructions that the kernel takes: BPF_MAXINSNS.
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Longest text that is read, far more than so many instructions say.
pub const TEXT_BYTES_MAX: usize = 65_536;

impl Filter {
    /// Reads a filter. Nothing, or blanks, is one that takes every packet.
    ///
    /// # Errors
    /// When the text is no filter, or one of what the module says is left out.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > TEXT_BYTES_MAX {
            let why = format!("is longer than {TEXT_BYTES_MAX} bytes");
            return Err(FilterError::new("the filter", 0..10, why));
        }
        let root = parse::parse(text).map_err(|(at, why)| FilterError::new(text, at, why))?;
        Ok(Self {
            text: text.to_owned(),
            root,
        })
    }

    /// The program for frames with all their bytes, which keeps `keep` bytes of each that it takes.
    ///
    /// # Errors
    /// When it has more than [`INSTRUCTIONS_MAX`] instructions.
    pub fn for_frames(&self, keep: u32) -> Result<Vec<Instruction>, FilterError> {
        emit::for_frames(&self.root, keep).map_err(|why| self.whole(why))
    }

    /// The program for a packet socket's frames, whose outer tag is beside the bytes.
    ///
    /// # Errors
    /// When it has more than [`INSTRUCTIONS_MAX`] instructions.
    pub fn for_socket(&self, keep: u32, way: Way) -> Result<Vec<Instruction>, FilterError> {
        emit::for_socket(&self.root, keep, way).map_err(|why| self.whole(why))
    }

    /// What was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn whole(&self, why: &str) -> FilterError {
        FilterError::new(&self.text, 0..self.text.len(), why.to_owned())
    }
}

impl FilterError {
    fn new(text: &str, at: Range<usize>, why: String) -> Self {
        Self {
            text: text.to_owned(),
            at,
            why,
        }
    }

    /// The bytes of the text that are at fault; empty at the end of the text where something is missing.
    pub fn at(&self) -> Range<usize> {
        self.at.clone()
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.at.end.min(self.text.len());
        let start = self.at.start.min(end);
        let (before, rest) = self.text.split_at_checked(start).unwrap_or(("", ""));
        let word = rest.get(..end - start).unwrap_or_default();
        if word.is_empty() {
            write!(f, "the filter ends where {}", self.why)?;
        } else {
            write!(f, "'{}' {}", shown(word), self.why)?;
        }
        // A long text would not fit above its mark.
        if self.text.len() <= LINE_BYTES_MAX && self.text.chars().all(is_plain) {
            let (gap, mark) = (before.chars().count(), word.chars().count().max(1));
            write!(f, "\n  {}\n  {:gap$}{}", self.text, "", "^".repeat(mark))?;
        }
        Ok(())
    }
}

impl std::error::Error for FilterError {}

/// A word for a message: short, on one line.
fn shown(word: &str) -> String {
    let line = plain(word);
    let short: String = line.chars().take(WORD_CHARS_MAX).collect();
    match line.chars().count() > WORD_CHARS_MAX {
        true => short + "…",
        false => short,
    }
}

const WORD_CHARS_MAX: usize = 40;
const LINE_BYTES_MAX: usize = 96;
