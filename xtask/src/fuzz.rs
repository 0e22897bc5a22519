//! The fuzz targets: a replay of the kept corpus, and new inputs for a given time.
//!
//! Targets are built as cargo-fuzz builds them but for its nightly compiler and its address sanitizer: coverage counters and
//! debug assertions on the stable compiler (`RUSTC_BOOTSTRAP`). Unsafe code is in `sys` alone, which has tests under Miri's rules of
//! its own; what these targets look for is a panic, a hang, or memory without bound.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context as _, bail, ensure};

/// What one call does.
#[derive(Debug)]
pub(crate) struct Options {
    /// Targets, or all of them.
    pub(crate) only: Vec<String>,
    /// How long new inputs are tried, all targets together.
    pub(crate) time: Duration,
    /// New inputs only for the targets whose crates changed since this commit.
    pub(crate) since: Option<String>,
    /// What is found joins the kept corpus, as far as it covers more.
    pub(crate) keep: bool,
}

/// Replays the corpus, then tries new inputs. A crash, a hang or too much memory is a failure of the call.
pub(crate) fn fuzz(options: &Options) -> anyhow::Result<ExitCode> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let targets = targets(&folder, &options.only)?;
    let built = build(&folder, &targets)?;
    let corpus = folder.join("corpus");
    for_each(&targets, |target| {
        let inputs = corpus.join(target);
        ensure!(
            inputs.is_dir(),
            "{target} has no corpus in {}",
            inputs.display()
        );
        run(&built.join(target), target, &[inputs], &["-runs=0"])
    })?;
    println!("replayed the corpus of {} targets", targets.len());
    let chosen = match &options.since {
        Some(commit) => changed(&folder, &targets, commit),
        None => targets,
    };
    if chosen.is_empty() || options.time.is_zero() {
        return Ok(ExitCode::SUCCESS);
    }
    let seconds = share(options.time, chosen.len());
    println!("new inputs for {} targets, {seconds} s each", chosen.len());
    let time = format!("-max_total_time={seconds}");
    for_each(&chosen, |target| {
        let found = tempdir(target)?;
        let kept = corpus.join(target);
        let binary = built.join(target);
        run(&binary, target, &[found.clone(), kept.clone()], &[&time])?;
        if options.keep {
            run(
                &binary,
                target,
                &[kept.clone(), found.clone()],
                &["-merge=1"],
            )?;
            trim(&kept, (KEPT_FILES, KEPT_BYTES))?;
        }
        fs::remove_dir_all(found).context("cannot remove the inputs tried")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The corpus of one target is part of each clone: so many inputs, of these bytes together.
const KEPT_FILES: usize = 100;
const KEPT_BYTES: u64 = 64 << 10;

/// Keeps at most so many files of a folder, spread over their sizes, and of these the smallest with so many bytes together.
fn trim(folder: &Path, (files_max, most): (usize, u64)) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.metadata()?.len(), entry.path()));
    }
    files.sort();
    let step = files.len().div_ceil(files_max).max(1);
    let mut sum = 0;
    for (number, (bytes, file)) in files.into_iter().enumerate() {
        let is_kept = number % step == 0 && sum + bytes <= most;
        if is_kept {
            sum += bytes;
        } else {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// Seconds for each of `targets` that run two at a time on two cores, at least one.
fn share(time: Duration, targets: usize) -> u64 {
    let at_once = workers().min(targets);
    let all = time.as_secs() * u64::try_from(at_once).unwrap_or(1);
    (all / u64::try_from(targets).unwrap_or(u64::MAX)).max(1)
}

fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The names of all targets, or those typed.
fn targets(folder: &Path, only: &[String]) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder.join("fuzz_targets")).context("cannot list fuzz_targets")?;
    let stems = entries.filter_map(|e| Some(e.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let all: BTreeSet<String> = stems.collect();
    if let Some(unknown) = only.iter().find(|name| !all.contains(*name)) {
        let known: Vec<_> = all.into_iter().collect();
        bail!(
            "there is no fuzz target '{unknown}'; there are {}",
            known.join(", ")
        );
    }
    Ok(match only {
        [] => all.into_iter().collect(),
        _ => only.to_vec(),
    })
}

/// Targets that use a crate, or have a source, with a change since `commit`; all of them where git does not say.
fn changed(folder: &Path, targets: &[String], commit: &str) -> Vec<String> {
    let diff = Command::new("git")
        .args(["diff", "--name-only", commit, "--", "crates", "fuzz"])
        .current_dir(folder.join(".."))
        .output();
    let files = match diff {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => return targets.to_vec(),
    };
    let is_touched = |target: &String| {
        let own = format!("fuzz/fuzz_targets/{target}.rs");
        let source = fs::read_to_string(folder.join("..").join(&own)).unwrap_or_default();
        files.lines().any(|file| {
            let of_crate = file
                .strip_prefix("crates/")
                .and_then(|f| f.split_once("/src/"));
            file == own || of_crate.is_some_and(|(name, _)| source.contains(&format!("{name}::")))
        })
    };
    targets.iter().filter(|t| is_touched(t)).cloned().collect()
}

/// Builds the targets; the folder that has them.
fn build(folder: &Path, targets: &[String]) -> anyhow::Result<PathBuf> {
    let rustc = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let version = String::from_utf8_lossy(&rustc.stdout).into_owned();
    let host = version.lines().find_map(|l| l.strip_prefix("host: "));
    let host = host.context("rustc -vV names no host")?;
    let place: OsString = match env::var_os("CARGO_TARGET_DIR") {
        Some(place) => Path::new(&place).join("fuzz").into(),
        None => folder.join("target").into(),
    };
    let bins = targets.iter().flat_map(|target| ["--bin", target]);
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--target", host])
        .args(bins)
        .current_dir(folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &place)
        .env("RUSTFLAGS", COVERAGE.join(" "))
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the fuzz targets do not build");
    Ok(Path::new(&place).join(host).join("release"))
}

/// LLVM's coverage as libFuzzer reads it: 8-bit counters, tables of blocks, operands of comparisons.
const COVERAGE: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
    "-Cdebug-assertions",
];

/// Runs a target in a folder of its own, so that what it leaves of a failure does not lie about; its log where it fails.
fn run(binary: &Path, target: &str, folders: &[PathBuf], extra: &[&str]) -> anyhow::Result<()> {
    let place = tempdir(&format!("{target}-run"))?;
    let output = Command::new(binary)
        .args(["-max_len=20000", "-rss_limit_mb=3000", "-timeout=20"])
        .args(extra)
        .args(folders)
        .current_dir(&place)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{target} does not start"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        bail!(
            "{target} failed; its input is in {}\n{tail}",
            place.display()
        );
    }
    println!("{target}: {}", log.lines().last().unwrap_or_default());
    fs::remove_dir_all(place).context("cannot remove the folder of a run")
}

fn tempdir(name: &str) -> anyhow::Result<PathBuf> {
    let path = env::temp_dir().join(format!("goodput-fuzz-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

/// Does `work` for each target, as many at once as there are cores; all that failed, once all are done.
fn for_each(
    targets: &[String],
    work: impl Fn(&str) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let left = Mutex::new(targets.iter());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no worker panics with it").next();
                    let Some(target) = next else { return };
                    if let Err(error) = work(target) {
                        let text = format!("{error:#}");
                        failed.lock().expect("no worker panics with it").push(text);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no worker panics with it");
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_shared_by_all_targets() {
        let at_once = u64::try_from(workers()).unwrap();
        assert_eq!(share(Duration::from_secs(60), 60), at_once.min(60));
        assert_eq!(share(Duration::from_secs(1), 1000), 1);
        assert_eq!(share(Duration::from_secs(60), 1), 60);
    }

    #[test]
    fn the_smallest_inputs_stay() {
        let folder = tempdir("trim").unwrap();
        for bytes in [1, 2, 3, 4] {
            fs::write(folder.join(bytes.to_string()), vec![0; bytes]).unwrap();
        }
        trim(&folder, (4, 6)).unwrap();
        let mut left: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["1", "2", "3"]);
        trim(&folder, (2, 100)).unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        assert_eq!(left, 2);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_target_that_is_not_there_is_refused_by_the_names_there_are() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let refused = targets(&folder, &["no_such".to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("'no_such'") && refused.contains("control_message"),
            "{refused}"
        );
    }

    #[test]
    fn every_target_is_a_binary_and_has_a_corpus() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for target in targets(&folder, &[]).unwrap() {
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "{target}"
            );
            let inputs = fs::read_dir(folder.join("corpus").join(&target));
            assert!(inputs.unwrap().count() > 0, "{target} has an empty corpus");
        }
    }

    #[test]
    fn targets_are_chosen_by_the_crates_that_they_use() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let all = targets(&folder, &[]).unwrap();
        assert_eq!(changed(&folder, &all, "no such commit"), all);
    }
}
