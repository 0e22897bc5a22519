//! Steps of the board for another kernel than this machine's: a virtual machine is booted, a part of its
//! script runs there with this very program, and what it says as JSON is read back.
//!
//! The scripts are those of `bench/netem-guest`, out of this binary, for the same reason as the board's
//! files: a folder in which the command is typed must not decide what the board says. Left out: packages,
//! which the script downloads by apt; a machine that cannot have the guest is told from one where the step
//! failed in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sys::folder::{Folder, replace};

use crate::runner::NoRun;

/// Makes the folder in which a step leaves what it did.
pub(crate) fn folder(runs: &Path, step: &str) -> Result<PathBuf, NoRun> {
    let time: String = job::record::now_utc()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '.')
        .collect();
    let name = format!("{time}-guest-{step}");
    let made = Folder::fresh(runs, &name);
    let made = made.map_err(|e| format!("cannot make {}: {e}", runs.join(name).display()))?;
    Ok(made.path().to_owned())
}

/// Runs a part of the script, such as `beside`, and reads what the guest said.
pub(crate) fn run(args: &[String], folder: &Path) -> Result<Value, NoRun> {
    let failed = |doing: &str, e: std::io::Error| NoRun::Failed(format!("cannot {doing}: {e}"));
    for (name, text) in FILES {
        replace(&folder.join(name), text).map_err(|e| failed("write the guest's scripts", e))?;
    }
    let folder = folder.canonicalize();
    let folder = folder.map_err(|e| failed("find the step's folder", e))?;
    let goodput = std::env::current_exe().map_err(|e| failed("find this program", e))?;
    let answer = folder.join("guest.json");
    let ended = Command::new("sh")
        .arg(folder.join("run.sh"))
        .args(args)
        .env("GOODPUT", goodput)
        .env("OUT", &answer)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    let ended = ended.map_err(|e| failed("run the guest's script", e))?;
    outcome(&ended)?;
    let length = fs::metadata(&answer).map_or(0, |m| m.len());
    if length > ANSWER_BYTES_MAX {
        return Err(format!("the guest said {length} B").into());
    }
    let text = fs::read(&answer).map_err(|e| failed("read what the guest said", e))?;
    answered(&text)
}

/// What the script's end says: its last line is the reason.
fn outcome(ended: &Output) -> Result<(), NoRun> {
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let reason = last.map_or_else(|| ended.status.to_string(), str::to_owned);
    Err(match ended.status.code() {
        Some(LACKING) => NoRun::Lacking(reason),
        _ => NoRun::Failed(reason),
    })
}

/// What the guest said, unless that is that something failed there.
fn answered(text: &[u8]) -> Result<Value, NoRun> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|e| format!("the guest's answer does not read: {e}"))?;
    match value.get("failed").and_then(Value::as_str) {
        Some(why) => Err(format!("in the guest: {why}").into()),
        None => Ok(value),
    }
}

const FILES: [(&str, &str); 2] = [
    ("run.sh", include_str!("../../../bench/netem-guest/run.sh")),
    (
        "guest.sh",
        include_str!("../../../bench/netem-guest/guest.sh"),
    ),
];

/// How the script ends where the guest cannot be had.
const LACKING: i32 = 3;
/// Three sweeps are some 100 kB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(script: &str) -> Result<(), NoRun> {
        outcome(&Command::new("sh").args(["-c", script]).output().unwrap())
    }

    #[test]
    fn a_machine_without_the_guest_is_told_from_a_step_that_failed_in_it() {
        assert_eq!(ended("exit 0"), Ok(()));
        assert_eq!(
            ended("echo no qemu >&2; echo >&2; exit 3"),
            Err(NoRun::Lacking("no qemu".to_owned()))
        );
        assert_eq!(
            ended("echo no rows >&2; exit 1"),
            Err(NoRun::Failed("no rows".to_owned()))
        );
        let killed = ended("kill -9 $$").unwrap_err();
        assert!(matches!(killed, NoRun::Failed(why) if why.contains('9')));
    }

    #[test]
    fn without_qemu_the_script_says_so_and_that_it_cannot_run_here() {
        let folder = std::env::temp_dir().join(format!("goodput-guest-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = folder.join("run.sh");
        fs::write(&script, FILES[0].1).unwrap();
        let sh = ["/bin/sh", "/usr/bin/sh"]
            .into_iter()
            .find(|p| Path::new(p).exists());
        let dirname = ["/usr/bin/dirname", "/bin/dirname"]
            .into_iter()
            .find(|p| Path::new(p).exists());
        std::os::unix::fs::symlink(dirname.unwrap(), folder.join("dirname")).unwrap();
        let ended = Command::new(sh.unwrap())
            .arg(&script)
            .arg("beside")
            .env("PATH", &folder)
            .env("CACHE", folder.join("cache"))
            .env("IMAGE", "none")
            .output()
            .unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let said = outcome(&ended).unwrap_err();
        let NoRun::Lacking(what) = said else {
            panic!("{said}")
        };
        assert!(what.contains("qemu-system-x86_64 is missing"), "{what}");
    }

    #[test]
    fn what_the_guest_said_reads_or_says_what_failed_there() {
        assert_eq!(answered(b"{\"rc\": 1}").unwrap()["rc"], 1);
        let failed = answered(br#"{"failed": "goodput ended with 3"}"#).unwrap_err();
        assert_eq!(
            failed,
            NoRun::Failed("in the guest: goodput ended with 3".to_owned())
        );
        assert!(matches!(answered(b"{"), Err(NoRun::Failed(_))));
        assert!(matches!(answered(b""), Err(NoRun::Failed(_))));
    }
}
