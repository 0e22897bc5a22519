//! `goodput report`: a run's page drawn again, or several runs compared.

use std::io::{BufWriter, Write};

use anyhow::Context as _;
use report::{LoadedRun, RunFolder};

use crate::cli::ReportArgs;
use crate::context;
use crate::failure::{self, Failure, Verdict};

/// Draws what the run folders hold.
pub(crate) fn command(args: &ReportArgs) -> Verdict {
    let runs = args
        .runs
        .iter()
        .map(|folder| RunFolder::load(folder))
        .collect::<Result<Vec<LoadedRun>, _>>()?;
    let (text, file) = match (runs.as_slice(), args.runs.as_slice()) {
        ([run], [folder]) => {
            let (color, width) = (context::color(), context::width());
            let summary = report::terminal::summary(&run.run, &run.findings, color, width);
            context::print(&summary)?;
            (
                report::render(&run.run, &run.samples, &run.findings),
                folder.join("report.html"),
            )
        }
        _ => (report::render_comparison(&runs), args.output.clone()),
    };
    write(&file, &text).map_err(Failure::here)?;
    context::print(&format!("Report: {}\n", file.display()))?;
    Ok(failure::DONE)
}

fn write(file: &std::path::Path, text: &str) -> anyhow::Result<()> {
    let what = || format!("cannot write {}", file.display());
    let mut out = BufWriter::new(std::fs::File::create(file).with_context(what)?);
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .with_context(what)
}
