//! The answer of a tool.

use serde_json::Value;

/// An answer, or a sentence that says why there is none.
pub(super) type Answer = Result<Value, String>;
