//! `goodput report`: a run's page drawn again, several runs compared, or a packet log drawn.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use fault::{Failure, Verdict};
use report::{LoadedRun, REPORT_FILE, RunFolder};
use sys::folder::Folder;

use crate::print;

#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Run folders: one is drawn again, several are compared. Or one packet log of a lab (FILE.gplog)
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Where to write the page [default: report.html in the run's folder; of several runs,
    /// comparison.html here; of a log, an .html beside it]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

pub(crate) const REPORT_EXAMPLES: &str = "\
Examples:
  goodput report runs/20261121T120000.000Z-doctor-columbia-untuned
  goodput report runs/*-doctor-* --output all.html
  goodput report q.gplog                      a lab's packet log: queues, drops, who was dropped";

/// Draws what the run folders hold, or a log.
pub(crate) fn run(args: &ReportArgs) -> Verdict {
    if let Some(file) = args.runs.iter().find(|path| path.is_file()) {
        if args.runs.len() > 1 {
            return Err(Failure::usage(format!(
                "{} is a file; a log is drawn alone, and only run folders are compared",
                file.display()
            )));
        }
        return log(file, args.output.as_deref());
    }
    if let [folder] = args.runs.as_slice() {
        return one(folder, args.output.as_deref());
    }
    let runs = args
        .runs
        .iter()
        .map(|folder| RunFolder::load(folder))
        .collect::<Result<Vec<LoadedRun>, _>>()?;
    let page = report::render_comparison(&runs);
    write(args.output.as_deref(), Path::new(COMPARISON), &page)?;
    Ok(fault::DONE)
}

/// Draws a run's page again, into the folder that it was read from.
fn one(path: &Path, output: Option<&Path>) -> Verdict {
    let (folder, run) = RunFolder::load_with_folder(path)?;
    let (color, width) = (print::color(), print::width());
    let summary = report::terminal::summary(&run.run, &run.findings, color, width);
    print::print_colored(&summary)?;
    let page = report::render(&run.run, &run.samples, &run.findings);
    write_in(output, &folder, REPORT_FILE.as_ref(), &page)?;
    Ok(fault::DONE)
}

/// Draws a packet log.
fn log(file: &Path, output: Option<&Path>) -> Verdict {
    let beside = file.with_extension("html");
    let page_file = output.unwrap_or(&beside);
    let place = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    if place(page_file).is_some_and(|page| Some(page) == place(file)) {
        return Err(Failure::usage(format!(
            "{} is the log itself; name another file to write with --output",
            file.display()
        )));
    }
    let drawn = analyse::draw_log(file)?;
    print::print(&format!("{}\n", drawn.summary))?;
    write(output, &beside, &drawn.page)?;
    Ok(fault::DONE)
}

/// Writes a page to where the user wants it, through links of the user's own too; else to `beside`.
fn write(output: Option<&Path>, beside: &Path, page: &str) -> Result<(), Failure> {
    let (folder, name) = Folder::of(beside).map_err(|e| unwritable(beside, &e))?;
    write_in(output, &folder, name, page)
}

/// As [`write`]. Others may have made `folder`: what has the name in it is replaced, and never followed.
fn write_in(
    output: Option<&Path>,
    folder: &Folder,
    name: &OsStr,
    page: &str,
) -> Result<(), Failure> {
    let (file, written) = match output {
        Some(output) => (output.to_owned(), std::fs::write(output, page)),
        None => (
            folder.path().join(name),
            folder.replace(name, page.as_bytes()),
        ),
    };
    written.map_err(|e| unwritable(&file, &e))?;
    print::print_place("Report", &file)
}

fn unwritable(file: &Path, error: &std::io::Error) -> Failure {
    let file = file.display();
    Failure::here(format!(
        "cannot write {file}: {error}; choose another place with --output"
    ))
}

const COMPARISON: &str = "comparison.html";
