//! Why a call of the kernel failed: the text for the user, and whether another try can help.

use std::io;

use rustix::io::Errno;

/// The kernel's text without its number, such as `permission denied`; of descriptors that ran out also their limit.
pub(crate) fn reason(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::StorageFull => "no space left on device".to_owned(),
            _ => error.to_string(),
        };
    };
    match Errno::from_raw_os_error(number) {
        Errno::MFILE => {
            let limit = sys::host::descriptor_limit();
            return format!("too many open files (ulimit -n {limit})");
        }
        Errno::NFILE => return "too many open files on this host (fs.file-max)".to_owned(),
        _ => {}
    }
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" (os error {number})"));
    let text = text.map_or_else(|| error.to_string(), str::to_owned);
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        // Not of a name that is all capitals.
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text,
    }
}

/// Whether a connection failed for what does not pass by itself: this host has no route or no such address, a rule of it
/// forbids the connection, or the address cannot be meant. "Host unreachable" is not among them (RFC 1122, section 4.2.3.9).
pub(crate) fn stays_unreachable(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::NETUNREACH
                | Errno::ADDRNOTAVAIL
                | Errno::AFNOSUPPORT
                | Errno::INVAL
                | Errno::ACCESS
                | Errno::PERM
        )
    )
}

/// Whether this process or host has no descriptor left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// Whether a file system or its server refuses to keep what belongs to a name: not allowed, not known there, or a value that
/// it cannot hold. Which of these numbers it says differs between file systems.
pub(crate) const fn is_not_kept(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::INVAL
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::NOTTY
            | Errno::OVERFLOW
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_has_no_number_and_no_capital() {
        let of = |errno: Errno| reason(&errno.into());
        assert_eq!(of(Errno::ACCESS), "permission denied");
        assert_eq!(of(Errno::NOSPC), "no space left on device");
        assert_eq!(of(Errno::ROFS), "read-only file system");
        assert_eq!(of(Errno::NAMETOOLONG), "file name too long");
        assert_eq!(of(Errno::NOTDIR), "not a directory");
        let limit = sys::host::descriptor_limit();
        assert_eq!(
            of(Errno::MFILE),
            format!("too many open files (ulimit -n {limit})")
        );
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(reason(&full), "no space left on device");
        assert_eq!(
            reason(&io::Error::other("A word of ours")),
            "A word of ours"
        );
    }

    #[test]
    fn only_a_lack_of_descriptors_is_exhaustion() {
        for (errno, is_lack) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOMEM, false),
            (Errno::AGAIN, false),
        ] {
            assert_eq!(is_exhausted(&errno.into()), is_lack, "{errno}");
        }
        assert!(!is_exhausted(&io::Error::other("words")));
    }

    #[test]
    fn what_a_file_system_refuses_to_keep_is_told_from_a_failure() {
        for (errno, is_refusal) in [
            (Errno::PERM, true),
            (Errno::ACCESS, true),
            (Errno::INVAL, true),
            (Errno::OPNOTSUPP, true),
            (Errno::NOSYS, true),
            (Errno::OVERFLOW, true),
            (Errno::IO, false),
            (Errno::NOSPC, false),
            (Errno::ROFS, false),
            (Errno::STALE, false),
        ] {
            assert_eq!(is_not_kept(errno), is_refusal, "{errno}");
        }
    }

    #[test]
    fn a_missing_route_stays_and_a_refused_connection_may_pass() {
        for (errno, stays) in [
            (Errno::NETUNREACH, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::AFNOSUPPORT, true),
            (Errno::ACCESS, true),
            (Errno::HOSTUNREACH, false),
            (Errno::CONNREFUSED, false),
            (Errno::CONNRESET, false),
            (Errno::TIMEDOUT, false),
        ] {
            assert_eq!(stays_unreachable(&errno.into()), stays, "{errno}");
        }
        assert!(!stays_unreachable(&io::ErrorKind::PermissionDenied.into()));
    }
}
