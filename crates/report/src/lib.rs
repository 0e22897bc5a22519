//! A run as people read it: the self-contained HTML report and the summary on the terminal.
//!
//! [`html`] draws a run as one page that needs neither network nor script, [`terminal`] says the same
//! in thirty lines. The schema and the files are those of crate [`run`]; [`RunFolder`] is its folder
//! with the report as its page.

#![forbid(unsafe_code)]

/// Appends formatted text to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}

pub mod folder;
pub mod html;
pub mod machine;
mod series;
pub mod shown;
pub mod svg;
pub mod table;
pub mod terminal;
mod text;

pub use folder::{FolderError, LoadedRun, REPORT_FILE, RunFolder};
pub use html::{render, render_comparison, sweep_setting as setting};
pub use run::{columns, from_json, model, now_utc, plain_value, settling, utc_of_ns};
pub use text::pci as pci_link;
