//! What every job shares: how it began and who can stop it ([`Context`]), what it works on ([`Target`]), and what a run folder keeps
//! of it ([`record`]), of its lab ([`certificate_json`]) and of how its streams fared there ([`balance`]).
//!
//! A job takes a plan and an observer and returns a result with facts: it neither prints nor parses flags.

#![forbid(unsafe_code)]

pub mod balance;
mod context;
mod lab_certificate;
pub mod record;
pub mod target;

pub use context::Context;
pub use lab_certificate::certificate_json;
pub use target::Target;
