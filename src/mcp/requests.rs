//! The arguments of the tools. Their descriptions are those that clients see.

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;

/// Arguments of `open`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Open {
    /// A recording's directory or name, or a packed recording; the latest if not given
    #[serde(default)]
    pub(super) recording: Option<String>,
}

/// Arguments of `where`: none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Where {}

/// Arguments of `go`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Go {
    /// A position that another answer gave, such as "1234.5"; or "begin" or "end"
    pub(super) position: String,
}

/// A step.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Step {
    /// One instruction
    Instruction,
    /// To another line of the source, over called functions; exact recordings only
    Line,
    /// Out of the function; exact recordings only
    Out,
}

/// Arguments of `back` and `forward`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Travel {
    /// Go until this code is about to execute: `FILE:LINE`, a function, or an address such as
    /// `0x401136`. Without `until`, `watch` and `step`: to the end of the history
    #[serde(default)]
    pub(super) until: Option<String>,
    /// With `until`: stop only where this expression is known and not 0
    #[serde(default)]
    pub(super) when: Option<String>,
    /// Go until the memory of this expression changes: `back` stops before the instruction that
    /// changed it last, `forward` after the next one that does
    #[serde(default)]
    pub(super) watch: Option<String>,
    /// The unit of a step
    #[serde(default)]
    pub(super) step: Option<Step>,
    /// Repeat `until` or `step` so many times; 1 if not given
    #[serde(default)]
    pub(super) count: Option<u32>,
}

/// Arguments of `backtrace`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Backtrace {
    /// A thread; the one that stopped if not given
    #[serde(default)]
    pub(super) thread: Option<i32>,
    /// The first frame of the page; 0 if not given
    #[serde(default)]
    pub(super) skip: usize,
    /// The maximum number of frames in the page; 20 if not given, at most 200
    #[serde(default)]
    pub(super) limit: Option<usize>,
}

/// Arguments of `print`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Print {
    /// Expressions of C, C++ or Rust with commas between them, such as "a->id, list[0].name, $rax"
    pub(super) expressions: String,
    /// The number of the frame in `backtrace`; if not given, the innermost frame that knows the
    /// names in the expressions
    #[serde(default)]
    pub(super) frame: Option<usize>,
    /// A thread; the one that stopped if not given
    #[serde(default)]
    pub(super) thread: Option<i32>,
}

/// Arguments of `hits`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Hits {
    /// The code: `FILE:LINE`, a function, or an address such as `0x401136`
    pub(super) at: String,
    /// Expressions to evaluate at each execution, with commas between them
    #[serde(default)]
    pub(super) print: String,
    /// The position to begin at: `next` of the last page; the beginning of the run if not given
    #[serde(default)]
    pub(super) from: Option<String>,
    /// The maximum number of rows in the page; 20 if not given, at most 200
    #[serde(default)]
    pub(super) limit: Option<usize>,
}

/// Arguments of `calls`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the question")]
pub(super) struct Calls {
    /// The functions; all if not given
    #[serde(default)]
    pub(super) functions: Vec<String>,
    /// Only functions in the program's own file, none of libraries
    #[serde(default)]
    pub(super) own: bool,
    /// Add the values of the arguments
    #[serde(default)]
    pub(super) arguments: bool,
    /// Add the results; a call is then listed where it returns
    #[serde(default)]
    pub(super) results: bool,
    /// Add the number of instructions of each call; it is then listed where it returns
    #[serde(default)]
    pub(super) durations: bool,
    /// The calls before the page: `next` of the last page; 0 if not given
    #[serde(default)]
    pub(super) skip: usize,
    /// The maximum number of rows in the page; 20 if not given, at most 200
    #[serde(default)]
    pub(super) limit: Option<usize>,
}

/// Arguments of `origin`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    /// A variable, member or element in memory, or a register such as "$rdx"
    pub(super) expression: String,
    /// The position at which the expression has the value; the current position if not given
    #[serde(default)]
    pub(super) position: Option<String>,
    /// The number of the frame in `backtrace`, not together with `position`; if not given, the
    /// innermost frame that knows the names
    #[serde(default)]
    pub(super) frame: Option<usize>,
    /// The maximum number of steps; 20 if not given, at most 200. To go on, ask at the position of
    /// the last one
    #[serde(default)]
    pub(super) limit: Option<usize>,
}

/// Arguments of `source`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// `FILE:LINE` or a function; the current line if not given
    #[serde(default)]
    pub(super) at: Option<String>,
    /// The lines to show; 20 if not given, at most 200
    #[serde(default)]
    pub(super) limit: Option<usize>,
}
