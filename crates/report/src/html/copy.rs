//! A copy on the page.

use super::{shown, shown_sentence};
use crate::model::Run;
use crate::terminal::copy::lines as copy_lines;

/// Nothing where nothing was copied.
pub(super) fn section(out: &mut String, run: &Run) {
    let Some(copy) = &run.copy else { return };
    put!(
        out,
        "<section>\n<h2>Copy <span>from {} to {}</span></h2>\n",
        shown(&copy.from.join(", ")),
        shown(&copy.to)
    );
    for line in copy_lines(copy) {
        put!(out, "<p>{}</p>\n", shown_sentence(&line));
    }
    for note in copy.chosen.iter().chain(&copy.notes) {
        put!(out, "<p class=\"note\">{}</p>\n", shown(note));
    }
    if copy.notes_more > 0 {
        put!(
            out,
            "<p class=\"note\">and {} more like these</p>\n",
            copy.notes_more
        );
    }
    out.push_str("</section>\n");
}
