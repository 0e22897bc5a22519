//! Other tools beside a copy: `openssl speed` for the ciphers, `sha256sum` for the files, iperf3 on the path.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Cipher;
use run::model::{Copy, CopyBeside, CopyCipher, CopyFiles};

use super::operand::Operand;
use super::{Caller, Plan, job};
use fault::{Cause, Failure};

/// Who is asked beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// `openssl speed` on the ciphers that are chosen from
    Openssl,
    /// `sha256sum` on every file, at both ends; of copies on this host and through labs
    Sha256sum,
    /// One stream of iperf3 on the same path while the copy runs: what it leaves to others; of copies through labs
    Iperf3,
}

/// What a plan's observers need before anything is copied.
pub(super) fn check(observers: &[Tool], from: &[Operand], to: &Operand) -> Result<(), Failure> {
    let is_elsewhere =
        |operand: &Operand| matches!(operand, Operand::Far { .. } | Operand::Served { .. });
    if observers.contains(&Tool::Sha256sum) && from.iter().chain([to]).any(is_elsewhere) {
        return Err(Failure::usage(
            "--observer sha256sum reads both ends, which have to be on this host or behind a lab",
        ));
    }
    let is_lab = |operand: &Operand| matches!(operand, Operand::Lab { .. });
    if observers.contains(&Tool::Iperf3) && !from.iter().chain([to]).any(is_lab) {
        return Err(Failure::usage(
            "--observer iperf3 sends on a lab's path, beside the copy",
        ));
    }
    Ok(())
}

/// Asks them, and puts what they say into the run.
pub(super) fn put(plan: &Plan, copy: &mut Copy, caller: &Caller) {
    for observer in &plan.request.observers {
        let asked = match observer {
            Tool::Openssl => ciphers(copy),
            Tool::Sha256sum => files(plan, copy),
            Tool::Iperf3 => beside(plan, copy),
        };
        if let Err(error) = asked {
            caller.note(format_args!("observer: {error}"));
        }
    }
}

/// What a stream beside the copy had, and what it would have if all streams were alike.
fn beside(plan: &Plan, copy: &mut Copy) -> Result<(), Cause> {
    let Some(found) = plan.beside.get() else {
        return Ok(());
    };
    let found = found.as_ref().map_err(|error| error.to_string())?;
    let achievable = copy.achievable_bits_per_second.unwrap_or(0);
    copy.beside = Some(CopyBeside {
        tool: found.tool.clone(),
        command: found.command.clone(),
        goodput_bits_per_second: found.goodput_bits_per_second,
        fair_bits_per_second: achievable / (copy.streams + 1),
    });
    Ok(())
}

/// Ours and openssl's speeds, and whether they rank alike.
fn ciphers(copy: &mut Copy) -> Result<(), Cause> {
    let mut all = Vec::new();
    for (cipher, speed) in job::speeds() {
        all.push(CopyCipher {
            name: cipher.name().to_owned(),
            bytes_per_second: whole(speed),
            observer_bytes_per_second: Some(openssl(cipher)?),
        });
    }
    let fastest = |of: fn(&CopyCipher) -> u64| {
        let best = all.iter().max_by_key(|cipher| of(cipher));
        best.map(|cipher| cipher.name.clone())
    };
    let theirs = fastest(|cipher| cipher.observer_bytes_per_second.unwrap_or(0));
    copy.ranking_agrees = Some(fastest(|cipher| cipher.bytes_per_second) == theirs);
    copy.choice_agrees = Some(Some(&copy.cipher) == theirs.as_ref());
    copy.ciphers = all;
    Ok(())
}

/// Bytes a second of one core, encrypting 16 KiB at a time, which is a record of TLS.
fn openssl(cipher: Cipher) -> Result<u64, Cause> {
    let args = "speed -mr -elapsed -seconds 1 -bytes 16384 -evp";
    let output = Command::new("openssl")
        .args(args.split(' '))
        .arg(cipher.name())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("openssl: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    speed_in(&text).ok_or_else(|| "openssl speed does not say how fast it is".into())
}

/// Out of the last line that `openssl speed -mr` prints, `+F:NUMBER:NAME:BYTES`.
fn speed_in(text: &str) -> Option<u64> {
    let line = text.lines().rfind(|line| line.starts_with("+F:"))?;
    let speed: f64 = line.rsplit(':').next()?.trim().parse().ok()?;
    (speed >= 1.0).then_some(whole(speed))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a speed in bytes a second, which is neither negative nor beyond 64 bits"
)]
const fn whole(speed: f64) -> u64 {
    speed as u64
}

/// Whether sha256sum says the same of every file at both ends.
fn files(plan: &Plan, copy: &mut Copy) -> Result<(), Cause> {
    let to = plan.to.path();
    let (mut files, mut different) = (0, 0);
    for from in &plan.from {
        let place = match from.last_name() {
            // One file that got a new name, or a name in a folder.
            Some(_) if to.is_file() => to.to_owned(),
            Some(name) => to.join(std::ffi::OsStr::from_bytes(&name)),
            None => to.to_owned(),
        };
        let (here, there) = (sums(from.path())?, sums(&place)?);
        files += here.len() as u64;
        let differs = |(name, sum): &(&Vec<u8>, &Vec<u8>)| there.get(*name) != Some(*sum);
        different += here.iter().filter(differs).count() as u64;
    }
    copy.files_observed = Some(CopyFiles {
        tool: "sha256sum".to_owned(),
        files,
        different,
    });
    Ok(())
}

/// Sums of all files at a place, by name below it, as find and sha256sum say them.
fn sums(place: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Cause> {
    let script = "cd -- \"$0\" 2>/dev/null && exec find . -type f -exec sha256sum -z -- {} + ; \
                  exec sha256sum -z -- \"$0\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::path::absolute(place)?)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("sh: {error}"))?;
    let mut sums = BTreeMap::new();
    for line in output.stdout.split(|byte| *byte == 0) {
        // The sum has 64 digits, two letters follow.
        if let Some((sum, name)) = line.split_at_checked(66) {
            let is_one = !name.starts_with(b"./");
            let name = if is_one { Vec::new() } else { name.to_vec() };
            sums.insert(name, sum[..64].to_vec());
        }
    }
    match sums.is_empty() {
        true => Err(format!("sha256sum says nothing of {}", place.display()).into()),
        false => Ok(sums),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_openssl_prints_for_machines_is_read() {
        let text = "+H:16384\n+F:25:ChaCha20-Poly1305:1666009473.27\n";
        assert_eq!(speed_in(text), Some(1_666_009_473));
        for other in ["", "+H:16384\n", "+F:25:x:fast\n", "+F:1:x:0.00\n"] {
            assert_eq!(speed_in(other), None, "{other}");
        }
    }
}
