//! What no copy through memory can beat: the CPU time of its parts, each alone and as others do it. And what memory a copy
//! takes itself.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use copy::Cipher;
use copy::digest::Cut;
use sys::clock;

use super::super::children::output_of;
use super::super::record::Recorder;

/// Seconds of CPU for a gigabyte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// cp(1): reading a file and writing another.
    pub(super) files: f64,
    /// BLAKE3 of it at both ends.
    pub(super) sums: f64,
    /// Encryption and decryption.
    pub(super) seal: f64,
}

/// Has memory in use once, and free again, in a file of a `folder` in memory: for `bytes` of files, and what a program takes
/// beside them. A virtual machine gives what is free for some seconds back to its host (virtio 1.2, 5.5.6.7: free page
/// reporting), and whoever needs it next waits several times as long for each page (2 GB into a file: 1.0 s, or 5.7): programs
/// would be compared by who came first.
pub(super) fn touch(folder: &Path, bytes: u64) -> anyhow::Result<()> {
    let at = folder.join("touched");
    let mut file = fs::File::create(&at)?;
    let mut left = bytes + BESIDE;
    let block = vec![0; 1 << 20];
    while left > 0 {
        let part = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    drop(file);
    fs::remove_file(&at)?;
    Ok(())
}

/// Measures the parts with a file of `bytes`, and a copy of it in `into`, which goes again.
pub(super) fn parts(
    from: &Path,
    into: &Path,
    bytes: u64,
    to: &mut Recorder,
) -> anyhow::Result<Parts> {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let gigabytes = bytes as f64 / 1e9;
    fs::create_dir(into)?;
    let copied = into.join("cp");
    let before = clock::children_cpu();
    output_of(Command::new("cp").arg(from).arg(&copied), COPY)?;
    let took = (clock::children_cpu() - before).to_std();
    fs::remove_dir_all(into)?;
    let cut = Cut::usual(SUMMED);
    let block = vec![0x5a; cut.block() as usize];
    let before = clock::thread_cpu();
    for index in 0..cut.blocks() {
        std::hint::black_box(cut.sum(index, std::hint::black_box(&block)));
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let once = (clock::thread_cpu() - before).to_std().as_secs_f64() / (SUMMED as f64 / 1e9);
    let speed = copy::link::speed(Cipher::Aes128Gcm).context("AES")?;
    let parts = Parts {
        files: took.as_secs_f64() / gigabytes,
        sums: 2.0 * once,
        seal: 1e9 / speed,
    };
    to.put("cp.cpu", parts.files, "s/GB");
    to.put("sums.cpu", parts.sums, "s/GB");
    to.put("seal.cpu", parts.seal, "s/GB");
    Ok(parts)
}

impl Parts {
    /// Bits a second that so many cores come to, with what a connection takes; with encryption or without.
    pub(super) fn rate(&self, connection: f64, is_open: bool, cores: usize) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a number of cores")]
        let cores = cores as f64;
        cores * 8e9 / self.all(connection, is_open)
    }

    /// Seconds of CPU for a gigabyte, all together.
    pub(super) fn all(&self, connection: f64, is_open: bool) -> f64 {
        let seal = if is_open { 0.0 } else { self.seal };
        self.files + self.sums + seal + connection
    }
}

/// What a program's processes took of memory and CPU.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Bytes in memory at most, of those that copy.
    pub(super) near: u64,
    /// Of those that are the far side.
    pub(super) far: u64,
    /// CPU ticks of far sides by process, as far as seen: whoever started one may be gone before it ends.
    ticks: HashMap<PathBuf, u64>,
}

impl Held {
    /// CPU time of far sides.
    pub(super) fn far_cpu(&self) -> Duration {
        Duration::from_millis(self.ticks.values().sum::<u64>() * 10)
    }

    /// Looks at all processes (proc(5), `/proc/PID/status`: VmHWM; `/proc/PID/stat`: utime and stime).
    fn look(&mut self, program: &Path) {
        let Ok(all) = fs::read_dir("/proc") else {
            return;
        };
        for entry in all.flatten() {
            let place: PathBuf = entry.path();
            if !fs::read_link(place.join("exe")).is_ok_and(|exe| exe == program) {
                continue;
            }
            let line = fs::read(place.join("cmdline")).unwrap_or_default();
            let is_far = match line.split(|byte| *byte == 0).nth(1) {
                Some(b"copy") => false,
                Some(b"agent") => true,
                _ => continue,
            };
            let text = fs::read_to_string(place.join("status")).unwrap_or_default();
            let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
            let held = if is_far {
                &mut self.far
            } else {
                &mut self.near
            };
            *held = peak.map_or(0, |kib| kib * 1024).max(*held);
            let text = fs::read_to_string(place.join("stat")).unwrap_or_default();
            if let (true, Some((_, rest))) = (is_far, text.rsplit_once(')')) {
                let ticks = rest.split_whitespace().skip(11).take(2);
                let ticks: u64 = ticks.filter_map(|word| word.parse::<u64>().ok()).sum();
                let seen = self.ticks.entry(place).or_default();
                *seen = ticks.max(*seen);
            }
        }
    }
}

/// Runs `work` and says what a program's processes held meanwhile.
pub(super) fn held_during<T>(program: &Path, work: impl FnOnce() -> T) -> (T, Held) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut held = Held::default();
            while !is_over.load(Ordering::Relaxed) {
                held.look(program);
                thread::sleep(Duration::from_millis(50));
            }
            held
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (done, looks.join().unwrap_or_default())
    })
}

/// What programs take of memory beside the files, in bytes: inodes, sockets, what is read early.
const BESIDE: u64 = 1 << 30;
/// Bytes that are summed.
const SUMMED: u64 = 1 << 30;
const COPY: Duration = Duration::from_secs(60);
