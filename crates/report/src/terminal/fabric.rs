//! Cases of a modelled fabric as a table.

use super::{Ink, POINTS_MAX, Page};
use crate::html::{fabric_cells, failures, in_short, replayed, study_heads, study_rows};
use crate::model::{FabricRun, FabricStudy, Run};
use crate::table::{Column, Table};

impl Page {
    /// A line for each case and transport.
    pub(super) fn fabric(&mut self, run: &Run) {
        let Some(fabric) = &run.fabric else { return };
        self.settings(fabric);
        for study in fabric.studies.iter().take(STUDIES_MAX) {
            self.study(study);
        }
        self.more_than(STUDIES_MAX, fabric.studies.len(), "case");
        if fabric.curves.is_empty() {
            return;
        }
        let shown = fabric.curves.iter().take(POINTS_MAX);
        let width = shown.clone().map(|c| c.name.chars().count()).max();
        let mut table = Table::new([
            Column::words(width.unwrap_or(0).clamp(4, 40)),
            Column::numbers(11),
            Column::numbers(11),
            Column::numbers(9),
            Column::numbers(11),
            Column::numbers(9),
        ]);
        table.row([
            "case",
            "goodput",
            "below first",
            "bound by",
            "off formula",
            "latency",
        ]);
        for curve in shown {
            table.row(fabric_cells(curve));
        }
        self.out.push('\n');
        for line in table.lines() {
            self.out.push_str(&line);
            self.out.push('\n');
        }
        self.more(fabric.curves.len(), "case");
    }

    /// A line for each combination of a sweep.
    fn settings(&mut self, fabric: &FabricRun) {
        let Some(first) = fabric.settings.first() else {
            return;
        };
        let last_part = |key: &String| key.rsplit('.').next().unwrap_or_default().to_owned();
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut heads: Vec<String> = first.values.iter().map(|[key, _]| last_part(key)).collect();
        heads.extend(["case", "nodes", "found", "±"].map(str::to_owned));
        rows.push(heads);
        for setting in fabric.settings.iter().take(SETTINGS_MAX) {
            for study in setting.studies.iter().take(STUDIES_MAX) {
                let Some(last) = study.points.last() else {
                    continue;
                };
                let mut row: Vec<String> = setting.values.iter().map(|[_, v]| v.clone()).collect();
                let [found, sure] = in_short(study, last);
                row.extend([study.name.clone(), last.nodes.to_string(), found, sure]);
                rows.push(row.iter().map(|cell| crate::text::plain(cell)).collect());
            }
        }
        let widths = (0..rows[0].len()).map(|n| {
            let cells = rows.iter().filter_map(|r| r.get(n));
            cells.map(|c| c.chars().count()).max().unwrap_or(0)
        });
        let mut table = Table::new(widths.map(Column::words));
        for row in rows {
            table.row(row);
        }
        self.out.push('\n');
        for line in table.lines() {
            self.out.push_str(line.trim_end());
            self.out.push('\n');
        }
        self.more_than(SETTINGS_MAX, fabric.settings.len(), "combination");
    }

    /// A line for each number of nodes.
    fn study(&mut self, study: &FabricStudy) {
        let (heads, rows) = (study_heads(study), study_rows(study));
        let widths = (0..heads.len()).map(|n| {
            let cells = rows.iter().map(|r| r[n].chars().count());
            cells.chain([heads[n].chars().count()]).max().unwrap_or(0)
        });
        let mut table = Table::new(widths.map(Column::numbers));
        table.row(heads.iter().map(|h| (*h).to_owned()));
        let left_out = rows.len().saturating_sub(POINTS_MAX);
        for row in rows.into_iter().skip(left_out) {
            table.row(row);
        }
        self.out.push('\n');
        let name = format!(
            "{}: {}, {}, {}",
            study.name, study.pattern, study.routing, study.topology
        );
        self.wrapped("", &crate::text::plain(&name), Ink::Dim);
        for line in table.lines() {
            self.out.push_str(line.trim_end());
            self.out.push('\n');
        }
        for job in study.jobs.iter().take(STUDIES_MAX) {
            let line = format!(
                "job {}, {}, {} ranks: {:.3} ms, {:.0} % of its speed lost (worst seed {:.0} %)",
                job.name,
                job.pattern,
                job.nodes,
                job.finish_ns[0] / 1e6,
                job.lost_shares[0] * 100.0,
                job.lost_shares[1] * 100.0
            );
            self.wrapped("", &crate::text::plain(&line), Ink::Plain);
        }
        for line in [failures(study), replayed(study)].into_iter().flatten() {
            self.wrapped("", &crate::text::plain(&line), Ink::Plain);
        }
        self.wrapped("", &crate::text::plain(&study.trust), Ink::Dim);
    }
}

const STUDIES_MAX: usize = 8;
const SETTINGS_MAX: usize = 40;
