//! TOML into types, with the place of every value and of every error.
//!
//! The `toml` crate parses; what serde derives then reads the parsed tree through one deserializer.
//! `toml`'s own deserializers give the same values, messages and spans, but serde's code for a type is
//! compiled once for each of them: for tables, spanned values, dates and keys. Here it is compiled once.
//!
//! Two simplifications, neither of which a type of ours notices. A type that asks for one kind of
//! value is given that kind or none: only `deserialize_any` takes them as they come. Nothing is
//! borrowed from the text.
//!
//! A document of more than 256 levels is refused, which `toml` reads as far as the stack lasts. Dates
//! are not read: they are refused as a table is, where a table has no place.

#![forbid(unsafe_code)]

mod error;
mod named;
mod node;
mod read;
mod spanned;
#[cfg(test)]
mod tests;

use serde::Deserialize as _;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
pub use toml::{Table, Value};

pub use error::Error;
pub use named::Named;
pub use spanned::Spanned;

/// Reads a document.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct File {
///     port: spans::Spanned<u16>,
/// }
/// let file: File = spans::from_str("# where\nport = 443").unwrap();
/// assert_eq!((*file.port.get_ref(), file.port.span()), (443, 15..18));
///
/// let error = spans::from_str::<File>("port = 70000").err().unwrap();
/// assert_eq!(error.message(), "invalid value: integer `70000`, expected u16");
/// assert_eq!(error.at(), 7);
/// ```
///
/// # Errors
/// For what is no TOML or not a `T`.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    T::deserialize(&node::Node::parse(text)?)
}

/// Reads a document of any layout.
///
/// # Errors
/// For what is no TOML.
pub fn table(text: &str) -> Result<Table, Error> {
    let document = node::document(text)?;
    Ok(Table::deserialize(document.into_deserializer())?)
}
