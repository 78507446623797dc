//! A place in the code, as text.

use std::fmt;

/// A function, and the line in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The name of the function; `None` if its code has no symbols.
    pub function: Option<String>,
    /// The name of the source file without its directory, and the line; `None` without debug
    /// information.
    pub line: Option<(String, u32)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.function, &self.line) {
            (Some(function), Some((file, line))) => write!(f, "{function} {file}:{line}"),
            (Some(function), None) => f.write_str(function),
            (None, Some((file, line))) => write!(f, "{file}:{line}"),
            (None, None) => f.write_str("?"),
        }
    }
}
