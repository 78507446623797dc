//! The operations that the server leaves to its caller: opening recordings, writing rows of answers
//! as JSON, and asking gdb.

use crate::ask::{Asked, Call, CallsQuestion, Hit, OriginStep};
use crate::session::{AnySession, SourceDirectory};
use serde_json::Value;
use std::any::Any;
use std::path::{Path, PathBuf};

/// A recording that was opened.
pub struct Opened {
    /// The directory of the recording.
    pub dir: PathBuf,
    /// The recording for questions about its whole history.
    pub asked: Asked,
    /// The session with the recording, at its end.
    pub session: Box<dyn AnySession>,
    /// The directories of source files that the recording contains.
    pub sources: Vec<SourceDirectory>,
    /// A value that is dropped with the recording, such as the guard of a temporary directory.
    pub kept: Box<dyn Any>,
}

/// A question for gdb: the value of an expression at a position.
#[derive(Clone, Copy, Debug)]
pub struct GdbQuestion<'a> {
    /// The directory of the recording.
    pub dir: &'a Path,
    /// The position as text.
    pub position: &'a str,
    /// The number of the frame, as gdb counts.
    pub frame: usize,
    /// The expression.
    pub expression: &'a str,
}

/// The operations that the server leaves to its caller. Errors are sentences for the client. The
/// parameter `is_exact` is true if the recording is exact, which decides the format of positions.
pub trait Host {
    /// Opens a recording, at its end, by its directory, its name, or the path of a packed one; the
    /// latest one for `None`.
    fn open(&self, name: Option<&Path>) -> Result<Opened, String>;

    /// Returns an execution of some code as JSON; `texts` are the expressions of its values.
    fn hit(&self, hit: &Hit, texts: &[String], is_exact: bool) -> Value;

    /// Returns a call as JSON, with the values that `wanted` asks for.
    fn call(&self, call: &Call, wanted: &CallsQuestion<'_>, is_exact: bool) -> Value;

    /// Returns a step on the search for the origin of `expression` as JSON.
    fn origin_step(&self, step: &OriginStep, expression: &str, is_exact: bool) -> Value;

    /// Returns gdb's text for the value of an expression at the question's position. Fails if gdb
    /// has none, and once `interrupted` returns true.
    fn gdb_value(
        &self,
        question: &GdbQuestion<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<String, String>;
}
