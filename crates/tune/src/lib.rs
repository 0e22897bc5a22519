//! A host's settings: facts are read, a plan is derived (crate `settings`), applied, verified and undone.
//!
//! Every write is in a journal on the disk first, with the value as it was read, so another process undoes it after a crash. A
//! lock keeps two of these apart. Undone is only what is still ours.
//!
//! Left out: what a restart does to a device's settings, which need a file of whoever manages the device
//! ([`settings::Layout`]).

mod ask;
mod change;
mod host;
mod journal;
mod json;
mod others;
mod place;
mod text;
mod tuner;

pub use ask::{Asked, Wanted};
pub use change::Undone;
pub use host::{Host, Values};
pub use journal::{Event, Journal};
pub use json::{plan_json, state_json, undone_json, verified_json};
pub use others::{Assignment, DROP_IN, Program, at_boot, proc_is_read_only, programs};
pub use place::{Place, enter, state_folder};
pub use text::{plan_text, state_text, undone_text, verified_text};
pub use tuner::{Checked, Confirmation, State, Tuner, Verified, Waiting, detach, start_watch};
