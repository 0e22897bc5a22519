//! `goodput report`: a run's page drawn again, or several runs compared.

use std::path::Path;

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
            let page = report::render(&run.run, &run.samples, &run.findings);
            (page, folder.join("report.html"))
        }
        _ => (report::render_comparison(&runs), COMPARISON.into()),
    };
    let file = args.output.clone().unwrap_or(file);
    write(&file, &text)?;
    context::print(&format!("Report: {}\n", file.display()))?;
    Ok(failure::DONE)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|e| {
        let file = file.display();
        Failure::here(anyhow::anyhow!(
            "cannot write {file}: {e}; choose another place with --output"
        ))
    })
}

const COMPARISON: &str = "comparison.html";
