//! The kernel's own types (BTF), as far as a BPF program has to name them by number.
//!
//! Layout: Linux Documentation/bpf/btf.rst; include/uapi/linux/btf.h.

use std::collections::HashMap;

/// Types by kind and name, with their numbers.
#[derive(Debug)]
pub(super) struct Types<'a> {
    text: &'a [u8],
    /// By kind and name; the first of equals.
    named: HashMap<(u32, &'a str), Entry<'a>>,
}

/// One type: its number, its size where it has one, and what follows its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) number: u32,
    pub(super) size: u32,
    tail: &'a [u8],
}

/// Where a member of a structure stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Among the members.
    pub(super) index: u32,
    pub(super) offset_bytes: usize,
}

impl<'a> Types<'a> {
    /// Reads a block of types in this machine's byte order; `None` where it is none.
    pub(super) fn read(block: &'a [u8]) -> Option<Self> {
        if block.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let header = u32_at(block, 4)? as usize;
        let part = |at: usize| -> Option<&'a [u8]> {
            let (from, bytes) = (u32_at(block, at)? as usize, u32_at(block, at + 4)? as usize);
            let from = header.checked_add(from)?;
            block.get(from..from.checked_add(bytes)?)
        };
        let (mut types, text) = (part(8)?, part(16)?);
        let mut named = HashMap::new();
        let mut number = 1;
        while !types.is_empty() {
            let (name, info, size) = (u32_at(types, 0)?, u32_at(types, 4)?, u32_at(types, 8)?);
            let (kind, members) = (info >> 24 & 31, info & 0xffff);
            let tail = 12..12 + tail_bytes(kind, members as usize)?;
            let entry = Entry {
                number,
                size,
                tail: types.get(tail.clone())?,
            };
            if name != 0 {
                named.entry((kind, string(text, name)?)).or_insert(entry);
            }
            types = &types[tail.end..];
            number += 1;
        }
        Some(Self { text, named })
    }

    /// A structure.
    pub(super) fn structure(&self, name: &str) -> Option<Entry<'a>> {
        self.named.get(&(STRUCT, name)).copied()
    }

    /// The number of a function.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        Some(self.named.get(&(FUNCTION, name))?.number)
    }

    /// A value of an enumeration.
    pub(super) fn value(&self, enumeration: &str, name: &str) -> Option<u32> {
        let all = self.named.get(&(ENUM, enumeration))?.tail;
        let mut pairs = all.chunks_exact(8);
        let found =
            pairs.find(|pair| u32_at(pair, 0).and_then(|n| string(self.text, n)) == Some(name));
        u32_at(found?, 4)
    }

    /// A member of a structure.
    pub(super) fn member(&self, structure: &Entry<'_>, name: &str) -> Option<Member> {
        let mut members = (0..).zip(structure.tail.chunks_exact(12));
        let is_it = |m: &[u8]| u32_at(m, 0).and_then(|n| string(self.text, n)) == Some(name);
        let (index, found) = members.find(|(_, m)| is_it(m))?;
        // No bit-fields among those that we name: the offset is in bits.
        let offset_bytes = u32_at(found, 8)? as usize / 8;
        Some(Member {
            index,
            offset_bytes,
        })
    }
}

/// Bytes that follow a type's three words.
const fn tail_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        2 | 7..=12 | 16 | 18 => 0,
        1 | 14 | 17 => 4,
        3 => 12,
        STRUCT | 5 | 15 | 19 => 12 * members,
        ENUM | 13 => 8 * members,
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn string(text: &[u8], at: u32) -> Option<&str> {
    let rest = text.get(at as usize..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

pub(super) const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const ENUM: u32 = 6;
const FUNCTION: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    /// A block: an integer, a structure {ssthresh, name}, a function and an enumeration.
    fn block() -> Vec<u8> {
        let text = b"\0int\0ops\0ssthresh\0name\0grow\0kinds\0SECOND\0";
        let at = |name: &str| {
            let found = text.windows(name.len()).position(|w| w == name.as_bytes());
            u32::try_from(found.unwrap()).unwrap()
        };
        let words = [
            &[at("int"), 1 << 24, 4, 32][..],
            &[at("ops"), STRUCT << 24 | 2, 16],
            &[at("ssthresh"), 1, 0, at("name"), 1, 64],
            &[at("grow"), FUNCTION << 24, 1],
            &[at("kinds"), ENUM << 24 | 1, 4, at("SECOND"), 7],
        ];
        let types: Vec<u8> = words
            .concat()
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        let mut block = MAGIC.to_ne_bytes().to_vec();
        block.extend([1, 0]);
        let len = |part: &[u8]| u32::try_from(part.len()).unwrap();
        let (types_len, text_len) = (len(&types), len(text));
        for word in [24, 0, types_len, types_len, text_len] {
            block.extend(u32::to_ne_bytes(word));
        }
        block.extend(types);
        block.extend(text);
        block
    }

    #[test]
    fn types_are_found_by_name_with_their_numbers() {
        let block = block();
        let types = Types::read(&block).unwrap();
        let ops = types.structure("ops").unwrap();
        assert_eq!((ops.number, ops.size), (2, 16));
        let member = |name| types.member(&ops, name).map(|m| (m.index, m.offset_bytes));
        assert_eq!(member("ssthresh"), Some((0, 0)));
        assert_eq!(member("name"), Some((1, 8)));
        assert_eq!(member("owner"), None);
        assert_eq!(types.function("grow"), Some(3));
        assert_eq!(types.function("ops"), None);
        assert_eq!(types.value("kinds", "SECOND"), Some(7));
        assert_eq!(types.value("kinds", "THIRD"), None);
    }

    #[test]
    fn a_block_cut_short_anywhere_is_refused() {
        let block = block();
        for end in 0..block.len() {
            assert!(Types::read(&block[..end]).is_none(), "{end}");
        }
        let mut odd = block.clone();
        // A kind that nobody knows: how long it is cannot be told.
        odd[24 + 7] = 31;
        assert!(Types::read(&odd).is_none());
    }
}
