//! Why a text was not read, and where.

use std::fmt;
use std::ops::Range;

/// Why a text was not read.
///
/// One pointer wide: it is part of the result of every value that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    message: String,
    span: Option<Range<usize>>,
}

impl Error {
    pub(crate) fn new(message: String, span: Option<Range<usize>>) -> Self {
        Self(Box::new(Inner { message, span }))
    }

    /// Places the error, unless a value further inside did.
    #[cold]
    pub(crate) fn place(&mut self, span: Option<&Range<usize>>) {
        if self.0.span.is_none() {
            self.0.span = span.cloned();
        }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Bytes of the innermost key or value at fault; of a missing key those of its table's header.
    pub fn span(&self) -> Option<Range<usize>> {
        self.0.span.clone()
    }

    /// Bytes before it; 0 for an error of the whole text.
    pub fn at(&self) -> usize {
        self.0.span.as_ref().map_or(0, |span| span.start)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    #[cold]
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), None)
    }
}

impl From<toml::de::Error> for Error {
    fn from(error: toml::de::Error) -> Self {
        Self::new(error.message().to_owned(), error.span())
    }
}
