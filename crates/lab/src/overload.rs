//! Whether this machine can be expected to carry a path.

use crate::path::PathFile;

/// A path that asks for more frames a second than a lab here carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Frames a second, each way, when the path is full.
    pub needed: u64,
    /// About so many a lab carries where every frame comes by itself.
    pub carried: u64,
}

impl Overload {
    /// What to expect of a path; `None` where a lab carries it.
    ///
    /// ```
    /// use lab::{Overload, PathFile};
    ///
    /// let text = "title = \"fast\"\n[hosts.a]\n[hosts.b]\n[links.wan]\n\
    ///             between = [\"a\", \"b\"]\nrate = \"10Gb/s\"\n";
    /// let path = PathFile::parse("fast.toml".as_ref(), text)?;
    /// assert_eq!(Overload::of(&path).unwrap().needed, 812_743);
    /// # Ok::<(), lab::PathError>(())
    /// ```
    pub fn of(path: &PathFile) -> Option<Self> {
        // The kernel passes super-packets whole.
        let by_engine = Some(path).filter(|path| !path.network.by_kernel)?;
        let rate = by_engine.forward.rate.max(by_engine.backward.rate)?;
        // Preamble, header, check sequence and gap: 1538 bytes at MTU 1500.
        let frame_bits = 8 * (u64::from(path.mtu_bytes()) + 38);
        let needed = rate.as_bits_per_second() / frame_bits;
        (needed > FRAMES_PER_SECOND).then_some(Self {
            needed,
            carried: FRAMES_PER_SECOND,
        })
    }
}

/// What one forwarding thread carries when every frame comes by itself: 155,000 to 196,000 were
/// measured on two CPUs of an AMD EPYC (bench/lab.json, UDP and TCP without off-loads). TCP with
/// off-loads comes in trains and is carried several times faster.
const FRAMES_PER_SECOND: u64 = 150_000;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_path_of_more_frames_than_the_lab_carries_is_announced() {
        let overload = |rate: &str| {
            let text = format!(
                "title = \"x\"\n[hosts.a]\n[hosts.b]\n[links.wan]\nbetween = [\"a\", \"b\"]\n{rate}"
            );
            Overload::of(&PathFile::parse(Path::new("x.toml"), &text).unwrap())
        };
        // 150,000 frames of 1538 bytes.
        assert_eq!(overload("rate = \"1845.6Mb/s\"\n"), None);
        assert_eq!(
            overload("rate = \"10Gb/s\"\n").map(|o| o.needed),
            Some(812_743)
        );
        assert_eq!(overload(""), None);
    }
}
