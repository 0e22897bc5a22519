//! The run folder: what every file of it says, and how it is written and read.
//!
//! [`model`] is the schema, [`folder`] the files, [`columns`] explains their keys, [`settling`] tells
//! from samples how soon senders came to their path's rate. Left out: the page of a run, which is
//! drawn by a function that is handed to [`RunFolder::finish`].
//!
//! ```no_run
//! use run::RunFolder;
//! use run::model::Run;
//!
//! # fn main() -> Result<(), run::FolderError> {
//! let run = Run::default();
//! let mut folder = RunFolder::create("runs".as_ref(), "doctor", "a path", run.clone())?;
//! folder.finish(&run, &[], &|run, _, _| format!("<title>{}</title>", run.name))?;
//! assert_eq!(RunFolder::load(folder.path())?.run.verb, "doctor");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod columns;
pub mod folder;
pub mod json;
pub mod model;
pub mod settling;
pub mod text;
mod utc;

pub use folder::{FolderError, LoadedRun, REPORT_FILE, RunFolder};
pub use json::{from_json, plain_value};
pub use utc::{now_utc, utc_of_ns};
