//! CBench's own `rotate`, `rotate_latency` and `output_parse`, where somebody has them built.
//!
//! CBench is under the GPL and no part of this program: its programs and its parser run as processes of their own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use run::model::{RotateCount, RotateParser};

use super::programs::{in_path, is_program};
use fault::Failure;

/// What there is of it.
#[derive(Debug)]
pub(super) struct Cbench {
    /// `rotate`, or `rotate_latency`.
    pub(super) program: PathBuf,
    /// Whether that prints times.
    pub(super) of_times: bool,
    /// Folder of `output_parse/rotate.pm`; of bandwidth only.
    modules: Option<PathBuf>,
}

impl Cbench {
    /// In a folder, or where PATH has the program.
    ///
    /// # Errors
    /// The program is not there, or for bandwidth its parser.
    pub(super) fn find(folder: Option<&Path>, of_times: bool) -> Result<Self, Failure> {
        let name = if of_times { "rotate_latency" } else { "rotate" };
        let program = match folder {
            Some(folder) => {
                let each = [folder.join(name), folder.join("bin").join(name)];
                each.into_iter().find(|file| is_program(file))
            }
            None => in_path(name),
        };
        let missing = |what: &str| {
            let place = folder.map_or_else(|| "PATH".to_owned(), |f| f.display().to_string());
            Failure::here(format!(
                "--observer cbench: there is no {what} in {place}; build CBench (github.com/sandialabs/cbench) with \
                 mpirun's MPI, and say by --cbench DIR or GOODPUT_CBENCH where rotate, rotate_latency and \
                 output_parse/rotate.pm are"
            ))
        };
        let program = program.ok_or_else(|| missing(name))?;
        if of_times {
            return Ok(Self::of(program, None, true));
        }
        let beside = folder
            .or_else(|| program.parent())
            .unwrap_or_else(|| Path::new("."));
        let places = [
            beside.to_owned(),
            beside.join("perllib"),
            beside.join("../perllib"),
        ];
        let modules = places.into_iter().find(|p| p.join(PARSER).is_file());
        let modules = modules.ok_or_else(|| missing(PARSER))?;
        Ok(Self::of(program, Some(modules), false))
    }

    pub(super) fn of(
        program: impl Into<PathBuf>,
        modules: Option<PathBuf>,
        of_times: bool,
    ) -> Self {
        Self {
            program: program.into(),
            of_times,
            modules,
        }
    }

    pub(super) const fn tool(&self) -> &'static str {
        if self.of_times {
            "CBench rotate_latency"
        } else {
            "CBench rotate"
        }
    }

    /// Its parser, which has read nothing yet.
    pub(super) fn parser(&self) -> Option<RotateParser> {
        let modules = self.modules.as_ref()?;
        Some(RotateParser {
            program: modules.join(PARSER).display().to_string(),
            ..RotateParser::default()
        })
    }

    /// Whether its parser finds in that output a run that passed and these four numbers.
    pub(super) fn reads(&self, output: &Path, count: &RotateCount) -> Result<bool, Failure> {
        let Some(modules) = &self.modules else {
            return Ok(false);
        };
        let ended = Command::new("perl")
            .arg("-I")
            .arg(modules)
            .args(["-e", SCRIPT])
            .stdin(Stdio::from(File::open(output).map_err(Failure::here)?))
            .output();
        let ended = ended.map_err(|e| {
            Failure::here(format!(
                "perl, which CBench's parser is written in, cannot be started: {e} (Debian: apt-get install perl)"
            ))
        })?;
        if !ended.status.success() {
            return Err(Failure::here(format!(
                "CBench's parser in {} failed: {}",
                modules.display(),
                String::from_utf8_lossy(&ended.stderr)
                    .lines()
                    .next()
                    .unwrap_or("it gave no reason")
            )));
        }
        Ok(agrees(&String::from_utf8_lossy(&ended.stdout), count))
    }
}

/// Whether it passed with what the run has, in MB/s, to what two places leave.
fn agrees(found: &str, count: &RotateCount) -> bool {
    let of = |name: &str| {
        let each = found.lines().find_map(|l| l.strip_prefix(name));
        each.map(|rest| rest.trim().to_owned())
    };
    let numbers = [
        ("min_link_bw ", count.worst_bits_per_second),
        ("max_link_bw ", count.best_bits_per_second),
        ("ave_link_bw ", count.average_bits_per_second),
        ("aggregate_bw ", count.aggregate_bits_per_second),
    ];
    of("STATUS ").as_deref() == Some("PASSED")
        && numbers.into_iter().all(|(name, bits)| {
            let read = of(name).and_then(|text| text.parse::<f64>().ok());
            let measured = bits.map(|bits| bits as f64 / 8e6);
            read.zip(measured)
                .is_some_and(|(a, b)| (a - b).abs() <= ROUNDED)
        })
}

/// Its names for what it finds, a line each.
const SCRIPT: &str = "use strict; use output_parse::rotate; my @lines = <STDIN>; \
                      my $found = output_parse::rotate->new()->parse('goodput', \\@lines); \
                      print \"$_ $found->{$_}\\n\" for sort keys %$found;";
const PARSER: &str = "output_parse/rotate.pm";
/// Half of the last place, and what rounding to whole bits a second leaves.
const ROUNDED: f64 = 0.005_1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_agrees_by_its_status_and_all_four_numbers() {
        let count = RotateCount {
            worst_bits_per_second: Some(8_000_000),
            average_bits_per_second: Some(16_036_000),
            best_bits_per_second: Some(24_000_000),
            aggregate_bits_per_second: Some(32_000_000),
            ..RotateCount::default()
        };
        let good = "STATUS PASSED\naggregate_bw 4.00\nave_link_bw 2.00\nmax_link_bw 3.00\nmin_link_bw 1.00\n";
        assert!(agrees(good, &count));
        for (from, to) in [
            ("PASSED", "ERROR(STARTED)"),
            ("4.00", "4.01"),
            ("min_link_bw 1.00\n", ""),
        ] {
            assert!(!agrees(&good.replace(from, to), &count), "{from}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_the_remedy() {
        let folder = std::env::temp_dir().join(format!("goodput-cbench-{}", std::process::id()));
        let programs = folder.join("bin");
        std::fs::create_dir_all(&programs).unwrap();
        let error = |of_times| {
            Cbench::find(Some(&folder), of_times)
                .unwrap_err()
                .to_string()
        };
        assert!(
            error(false).contains("there is no rotate in "),
            "{}",
            error(false)
        );
        assert!(error(true).contains("GOODPUT_CBENCH"), "{}", error(true));
        for name in ["rotate", "rotate_latency"] {
            use std::os::unix::fs::OpenOptionsExt as _;
            let mut options = std::fs::OpenOptions::new();
            options.create(true).write(true).mode(0o755);
            options.open(programs.join(name)).unwrap();
        }
        // Latency needs no parser.
        assert!(
            Cbench::find(Some(&folder), true)
                .unwrap()
                .parser()
                .is_none()
        );
        assert!(error(false).contains(PARSER), "{}", error(false));
        std::fs::create_dir_all(folder.join("perllib/output_parse")).unwrap();
        std::fs::write(folder.join("perllib").join(PARSER), "1;").unwrap();
        let found = Cbench::find(Some(&folder), false).unwrap();
        assert!(
            found
                .parser()
                .unwrap()
                .program
                .ends_with("perllib/output_parse/rotate.pm")
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
