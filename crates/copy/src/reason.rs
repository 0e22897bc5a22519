//! Why a call of the kernel failed: the text for the user.

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
}
