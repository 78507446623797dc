//! The surroundings of the server: recordings, their rows as JSON, and gdb.

use crate::ask::{Asked, Call, CallsQuestion, Hit, OriginStep};
use crate::session::{AnySession, SourceDirectory};
use serde_json::Value;
use std::any::Any;
use std::path::{Path, PathBuf};

/// A recording that was opened.
pub struct Opened {
    /// Its directory.
    pub dir: PathBuf,
    /// The recording for questions.
    pub asked: Asked,
    /// The recording at a position: the end.
    pub session: Box<dyn AnySession>,
    /// Directories of source files that it contains.
    pub sources: Vec<SourceDirectory>,
    /// Dropped with it.
    pub kept: Box<dyn Any>,
}

/// A question for gdb.
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

/// The surroundings of a server. An error is a sentence for the client.
pub trait Host {
    /// Opens a recording by its directory or name; the latest one for `None`.
    fn open(&self, name: Option<&Path>) -> Result<Opened, String>;

    /// Returns an execution as JSON; `texts` are the expressions.
    fn hit(&self, hit: &Hit, texts: &[String], is_exact: bool) -> Value;

    /// Returns a call as JSON.
    fn call(&self, call: &Call, wanted: &CallsQuestion<'_>, is_exact: bool) -> Value;

    /// Returns a step to an origin as JSON.
    fn origin_step(&self, step: &OriginStep, expression: &str, is_exact: bool) -> Value;

    /// Returns gdb's text for the value of an expression.
    fn gdb_value(
        &self,
        question: &GdbQuestion<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<String, String>;
}
