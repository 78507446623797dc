//! A place in the code, as text.

use crate::symbols::Location;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A function, and the line in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The name of the function; `None` if its code has no symbols.
    pub function: Option<Arc<str>>,
    /// The name of the source file without its directory, and the line; `None` without debug
    /// information.
    pub line: Option<(Arc<str>, u32)>,
}

impl Place {
    /// Returns a place in a function, in the line of a location. Keeps only the file name of the
    /// location's path.
    pub fn new(function: Option<Arc<str>>, location: Option<Location>) -> Self {
        let line = location.map(|location| {
            let name = Path::new(&*location.file).file_name();
            let name = name.map(|name| Arc::from(&*name.to_string_lossy()));
            (name.unwrap_or(location.file), location.line)
        });
        Self { function, line }
    }
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
