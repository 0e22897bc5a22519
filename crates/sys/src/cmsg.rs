//! Control messages (ancillary data) of a received message: none is read beyond its own length.
//!
//! The kernel shortens the last one where the buffer is too small (MSG_CTRUNC), and other kernels may send a type with
//! another length. A value that is not complete is absent.
//!
//! Sources: cmsg(3), recvmsg(2), RFC 3542 section 20, Linux net/core/scm.c (`put_cmsg`).

use std::ptr;

/// One control message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlMessage<'a> {
    /// Protocol that it belongs to (`cmsg_level`) and its type there (`cmsg_type`).
    pub(crate) kind: (libc::c_int, libc::c_int),
    data: &'a [u8],
}

impl ControlMessage<'_> {
    /// The value that it begins with; `None` where it is shorter than that. The type is the one that the man page names
    /// for this kind of message.
    #[inline]
    pub(crate) fn value<T: Plain>(&self) -> Option<T> {
        plain(self.data)
    }
}

/// What recvmsg(2) or recvmmsg(2) wrote into the message's control buffer.
///
/// # Safety
/// `msg_control` is null, or the first `msg_controllen` bytes of it are initialized and stay unchanged as long as the
/// messages are used.
#[inline]
pub(crate) unsafe fn received(message: &libc::msghdr) -> Messages<'_> {
    let rest: &[u8] = match message.msg_control.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe {
            std::slice::from_raw_parts(message.msg_control.cast(), message.msg_controllen)
        },
    };
    Messages { rest }
}

/// The messages of a control buffer, in its order.
#[derive(Clone, Debug)]
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = ControlMessage<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let header: libc::cmsghdr = plain(self.rest)?;
        // Less than its own header, or more than there is: where the next one begins is unknown.
        let data = self.rest.get(HEADER_BYTES..header.cmsg_len)?;
        let next = header.cmsg_len.next_multiple_of(size_of::<usize>());
        self.rest = self.rest.get(next..).unwrap_or_default();
        let kind = (header.cmsg_level, header.cmsg_type);
        Some(ControlMessage { kind, data })
    }
}

/// Integers, and structs of nothing but integers: any bytes are a value.
///
/// # Safety
/// Every bit pattern is a valid value of the type.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: two integers.
unsafe impl Plain for libc::timespec {}
// SAFETY: three times two integers.
unsafe impl Plain for [libc::timespec; 3] {}
// SAFETY: integers.
unsafe impl Plain for libc::in_pktinfo {}
// SAFETY: bytes and an integer.
unsafe impl Plain for libc::in6_pktinfo {}
// SAFETY: integers.
unsafe impl Plain for libc::sock_extended_err {}
// SAFETY: integers.
unsafe impl Plain for libc::cmsghdr {}

#[inline]
fn plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes, they are read without alignment, and any of them are a value.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// From a message's beginning to its data.
// SAFETY: it only computes.
const HEADER_BYTES: usize = unsafe { libc::CMSG_LEN(0) } as usize;

/// A received message with one control message, whose length leaves it `data` bytes of a buffer that is full of `word`.
#[cfg(test)]
pub(crate) fn shortened(
    kind: (libc::c_int, libc::c_int),
    data: usize,
    word: u64,
    buffer: &mut [u64; 16],
) -> libc::msghdr {
    *buffer = [word; 16];
    // SAFETY: an all-zero msghdr is valid; the buffer is aligned and has room for a header.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_control = buffer.as_mut_ptr().cast();
        message.msg_controllen = HEADER_BYTES + data;
        let header = buffer.as_mut_ptr().cast::<libc::cmsghdr>();
        (*header).cmsg_len = message.msg_controllen;
        ((*header).cmsg_level, (*header).cmsg_type) = kind;
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOS: (libc::c_int, libc::c_int) = (libc::IPPROTO_IP, libc::IP_TOS);
    const SEGMENT: (libc::c_int, libc::c_int) = (libc::SOL_UDP, libc::UDP_GRO);

    /// A message as put_cmsg lays it out, with the length that its header is to state.
    fn message(kind: (libc::c_int, libc::c_int), data: &[u8], stated: usize) -> Vec<u8> {
        let mut bytes = stated.to_ne_bytes().to_vec();
        bytes.extend(kind.0.to_ne_bytes());
        bytes.extend(kind.1.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    fn whole(kind: (libc::c_int, libc::c_int), data: &[u8]) -> Vec<u8> {
        message(kind, data, HEADER_BYTES + data.len())
    }

    fn of(bytes: &[u8]) -> Messages<'_> {
        Messages { rest: bytes }
    }

    #[test]
    fn several_messages_come_in_their_order_with_their_values() {
        let unknown = whole((12_345, -1), b"whatever");
        let all = [
            whole(TOS, &[0xb8]),
            unknown,
            whole(SEGMENT, &1_400_i32.to_ne_bytes()),
        ];
        let all = all.concat();
        let kinds: Vec<_> = of(&all).map(|m| m.kind).collect();
        assert_eq!(kinds, [TOS, (12_345, -1), SEGMENT]);
        assert_eq!(of(&all).next().unwrap().value::<u8>(), Some(0xb8));
        assert_eq!(of(&all).nth(2).unwrap().value::<i32>(), Some(1_400));
    }

    #[test]
    fn a_value_longer_than_its_message_is_absent_and_the_next_message_is_read() {
        // Two bytes of four; the other two are another message's or padding.
        let all = [
            whole(SEGMENT, &[1, 2]),
            whole(SEGMENT, &7_i32.to_ne_bytes()),
        ]
        .concat();
        let values: Vec<_> = of(&all).map(|m| m.value::<i32>()).collect();
        assert_eq!(values, [None, Some(7)]);
        assert_eq!(of(&all).next().unwrap().value::<u8>(), Some(1));
        let empty = whole(TOS, &[]);
        assert_eq!(of(&empty).next().unwrap().value::<u8>(), None);
    }

    #[test]
    fn a_length_below_the_header_or_beyond_the_buffer_ends_the_list() {
        let valid = whole(TOS, &[1]);
        for stated in [0, 1, HEADER_BYTES - 1, 1_000, usize::MAX, usize::MAX - 7] {
            let all = [
                valid.clone(),
                message(SEGMENT, &[0; 4], stated),
                valid.clone(),
            ]
            .concat();
            assert_eq!(of(&all).count(), 1, "{stated}");
        }
    }

    #[test]
    fn every_truncation_ends_the_list_and_no_value_is_made_up() {
        let all = [whole(TOS, &[9]), whole(SEGMENT, &[1, 0, 0, 0])].concat();
        for end in 0..all.len() {
            let read = of(&all[..end]).count();
            assert!(read <= 2, "{end}");
            let unaligned: Vec<u8> = [&[0], &all[..end]].concat();
            assert_eq!(of(&unaligned[1..]).count(), read, "{end}");
        }
        // As the kernel shortens it: the header states what is there.
        let cut = message(SEGMENT, &[1, 2], HEADER_BYTES + 2);
        let cut = &cut[..HEADER_BYTES + 2];
        assert_eq!(of(cut).next().unwrap().value::<i32>(), None);
    }

    #[test]
    fn a_message_without_a_control_buffer_has_none() {
        // SAFETY: an all-zero msghdr is valid and its control buffer is null.
        let message: libc::msghdr = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        assert_eq!(unsafe { received(&message) }.count(), 0);
    }
}
