//! Options of pcapng blocks: a code, a length, a value padded to whole words.

use crate::bytes::array_at;
use crate::capture::block::Order;
use crate::pcapng::END_OF_OPTIONS;

/// Iterator over options: code and value. Ends at the end-of-options option, and before one that
/// does not fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    rest: &'a [u8],
    order: Order,
}

impl<'a> Options<'a> {
    pub(super) const fn new(rest: &'a [u8], order: Order) -> Self {
        Self { rest, order }
    }

    /// Value of the first option of this code.
    pub(super) fn find(mut self, code: u16) -> Option<&'a [u8]> {
        self.find_map(|(found, value)| (found == code).then_some(value))
    }

    /// The first option of this code as a number of four bytes.
    pub(super) fn find_u32(self, code: u16) -> Option<u32> {
        let value = self.find(code)?;
        array_at(value, 0).map(|bytes| self.order.u32(bytes))
    }

    /// The first option of this code as a number of eight bytes.
    pub(super) fn find_u64(self, code: u16) -> Option<u64> {
        let value = self.find(code)?;
        array_at(value, 0).map(|bytes| self.order.u64(bytes))
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let code = self.order.u16(array_at(self.rest, 0)?);
        let length = usize::from(self.order.u16(array_at(self.rest, 2)?));
        let after = self.rest.get(4..).unwrap_or_default();
        let value = after.get(..length).filter(|_| code != END_OF_OPTIONS);
        // The last value's padding may be missing where a writer forgot it.
        self.rest = match value {
            Some(_) => after.get(length.next_multiple_of(4)..).unwrap_or_default(),
            None => &[],
        };
        value.map(|value| (code, value))
    }
}

/// Text up to where it stops being UTF-8, or to a zero byte.
pub(super) fn text(value: &[u8]) -> &str {
    let end = value.iter().position(|&byte| byte == 0);
    let value = value.get(..end.unwrap_or(value.len())).unwrap_or_default();
    let valid = match std::str::from_utf8(value) {
        Ok(text) => return text,
        Err(error) => error.valid_up_to(),
    };
    value
        .get(..valid)
        .and_then(|valid| std::str::from_utf8(valid).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_end_at_their_end_and_before_one_that_does_not_fit() {
        let two = [2, 0, 1, 0, 7, 0, 0, 0, 9, 0, 2, 0, 1, 2];
        let all = |bytes| Options::new(bytes, Order::Little).collect::<Vec<_>>();
        assert_eq!(all(&two), [(2, &[7][..]), (9, &[1, 2][..])]);
        assert_eq!(all(&two[..13]), [(2, &[7][..])]);
        assert_eq!(all(&[0, 0, 0, 0, 2, 0, 0, 0]), []);
        assert_eq!(all(&[2, 0, 0]), []);
        let big = Options::new(&[0, 2, 0, 4, 0, 0, 1, 2], Order::Big);
        assert_eq!((big.find_u32(2), big.find_u32(3)), (Some(258), None));
        assert_eq!(big.find_u64(2), None, "four bytes are no eight");
    }

    #[test]
    fn text_is_cut_where_it_is_none() {
        for (bytes, is) in [
            (&b"eth0"[..], "eth0"),
            (b"a\xffb", "a"),
            (b"a\0b", "a"),
            (b"", ""),
        ] {
            assert_eq!(text(bytes), is);
        }
    }
}
