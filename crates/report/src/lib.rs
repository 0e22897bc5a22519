//! The run folder and the self-contained HTML report drawn from it.
//!
//! [`folder`] writes and reads what a verb leaves behind, [`html`] draws it as one page that needs
//! neither network nor script, [`terminal`] says the same in thirty lines. [`model`] is the schema.

#![forbid(unsafe_code)]

/// Appends formatted text to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}

pub mod columns;
pub mod folder;
pub mod html;
pub mod model;
mod series;
pub mod settling;
pub mod svg;
pub mod table;
pub mod terminal;
mod text;

pub use folder::{FolderError, LoadedRun, REPORT_FILE, RunFolder};
pub use html::{render, render_comparison, sweep_setting as setting};
pub use text::pci as pci_link;
pub use text::plain_value;
