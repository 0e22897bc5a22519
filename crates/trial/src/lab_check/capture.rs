//! Captures by somebody else: dumpcap writes what passes a host's interface, tshark says what it was.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fault::Cause;
use lab::Host;
use sys::child::ChildHandle;
use sys::signal::Interrupt;
use sys::threads;

use super::account::{Key, Seen};

/// A capture under way at a host's interface.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    said: Receiver<String>,
    file: PathBuf,
}

impl Capture {
    /// Begins to write the headers of what passes `host`'s interface to `file`; returns when the
    /// capture is open.
    pub fn start(host: &Host, file: PathBuf) -> Result<Self, Cause> {
        let mut program = host.program("dumpcap")?;
        program.args(["-q", "-i", "eth0", "-s", SNAP_BYTES, "-B", BUFFER_MIB, "-w"]);
        program
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut child = program.stderr(Stdio::piped()).spawn().map_err(|_| {
            "dumpcap cannot be started; install it (Debian: apt-get install tshark), or leave \
                 the captures out with --no-captures"
        })?;
        let stderr = child.stderr.take().ok_or("dumpcap has no stderr")?;
        let (tell, said) = mpsc::channel();
        threads::spawn("gp-reads", move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        })?;
        let capture = Self { child, said, file };
        loop {
            match capture.said.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with("File:") => return Ok(capture),
                Ok(_) => {}
                Err(_) => {
                    return Err(format!(
                        "dumpcap in host {} did not begin; is {} a place that it may write to?",
                        host.name(),
                        capture.file.display()
                    )
                    .into());
                }
            }
        }
    }

    /// Ends the capture; returns its file and the frames that it dropped itself.
    pub fn finish(mut self) -> Result<(PathBuf, u64), Cause> {
        let handle = ChildHandle::of(&self.child)?;
        handle.interrupt(Interrupt::Int);
        if !handle.wait(PATIENCE)? {
            return Err("dumpcap does not end".into());
        }
        self.child.wait()?;
        let said: Vec<String> = self.said.iter().collect();
        let line = said
            .iter()
            .find(|l| l.starts_with("Packets received/dropped"));
        let dropped = line.and_then(|l| dropped(l));
        let dropped = dropped.ok_or_else(|| format!("dumpcap ended with: {}", said.join(" / ")))?;
        Ok((std::mem::take(&mut self.file), dropped))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `Packets received/dropped on interface 'eth0': 123/4 (...)`.
fn dropped(line: &str) -> Option<u64> {
    let (_, counts) = line.rsplit_once("': ")?;
    let (_, dropped) = counts.split_whitespace().next()?.split_once('/')?;
    dropped.parse().ok()
}

/// A frame as tshark read it.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) seen: Seen,
    /// Source address, the first field of the key.
    pub(super) from: String,
    pub(super) comment: String,
}

/// Has tshark read the IPv4 frames of a file, pcap or pcapng.
pub(super) fn read(file: &Path, mut each: impl FnMut(Read)) -> Result<(), Cause> {
    let mut program = Command::new("tshark");
    program.args([
        "-n",
        "-Y",
        "ip",
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-E",
        "occurrence=f",
    ]);
    for field in FIELDS {
        program.args(["-e", field]);
    }
    program.arg("-r").arg(file);
    let mut child = program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| "tshark cannot be started; install it (Debian: apt-get install tshark)")?;
    let stdout = child.stdout.take().ok_or("tshark has no output")?;
    for line in BufReader::new(stdout).lines() {
        if let Some(frame) = frame(&line?) {
            each(frame);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("tshark could not read {}: {status}", file.display()).into());
    }
    Ok(())
}

fn frame(line: &str) -> Option<Read> {
    let (time, rest) = line.split_once('|')?;
    let (comment, key) = rest.split_once('|')?;
    let (seconds, fraction) = time.split_once('.')?;
    let fraction: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let from = key.split('|').next()?.to_owned();
    Some(Read {
        seen: Seen {
            time_ns: seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)? + fraction,
            key: Key::from(key),
        },
        from,
        comment: comment.to_owned(),
    })
}

/// What tshark is asked for: when, what the log says of it, and what a frame is known by.
pub(super) const FIELDS: [&str; 12] = [
    "frame.time_epoch",
    "frame.comment",
    "ip.src",
    "ip.dst",
    "ip.id",
    "ip.len",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.options.timestamp.tsval",
    "udp.srcport",
    "udp.dstport",
];

/// Headers and TCP options; as many as the lab's log has.
const SNAP_BYTES: &str = "128";
const BUFFER_MIB: &str = "64";
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_tshark_is_time_comment_and_key() {
        let line = "1763785000.123456789|dropped: queue_full|10.0.0.1|10.0.0.2|0x0001|1500||||||";
        let read = frame(line).unwrap();
        assert_eq!(read.seen.time_ns, 1_763_785_000_123_456_789);
        assert_eq!(read.from, "10.0.0.1");
        assert_eq!(read.comment, "dropped: queue_full");
        assert_eq!(read.seen.key, "10.0.0.1|10.0.0.2|0x0001|1500||||||");
        assert_eq!(frame("5.5||a|b").unwrap().seen.time_ns, 5_500_000_000);
        assert!(frame("nonsense").is_none());
    }

    #[test]
    fn what_a_capture_dropped_is_read_off_its_last_words() {
        let line = "Packets received/dropped on interface 'eth0': 120/3 (pcap:3/dumpcap:0/flushed:0/ps_ifdrop:0) (97.6%)";
        assert_eq!(dropped(line), Some(3));
        assert_eq!(dropped("Capturing on 'eth0'"), None);
    }
}
