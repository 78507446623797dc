//! The name of the backend that made a recording, as its manifest has it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The backend that made a recording. A name that this version does not know is kept, so manifests
/// of later versions can be opened, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum BackendName {
    /// The CPU's PT unit, through Linux perf.
    Perf,
    /// Translation that records the path.
    Soft,
    /// Single-stepping.
    Step,
    /// Translation that counts ticks: the recording has a log, and can be replayed.
    Exact,
    /// A replay, which made the path of an exact recording.
    Replay,
    /// No backend: the trace was imported from another tool.
    Import,
    /// A backend that this version does not know, by its name.
    Other(String),
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perf => "perf",
            Self::Soft => "soft",
            Self::Step => "step",
            Self::Exact => "exact",
            Self::Replay => "replay",
            Self::Import => "import",
            Self::Other(name) => name,
        })
    }
}

impl From<String> for BackendName {
    fn from(name: String) -> Self {
        match name.as_str() {
            "perf" => Self::Perf,
            "soft" => Self::Soft,
            "step" => Self::Step,
            "exact" => Self::Exact,
            "replay" => Self::Replay,
            "import" => Self::Import,
            _ => Self::Other(name),
        }
    }
}

impl From<BackendName> for String {
    fn from(backend: BackendName) -> Self {
        backend.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_also_those_of_other_versions() {
        for name in ["perf", "soft", "step", "exact", "replay", "import", "gpu"] {
            let backend = BackendName::from(name.to_owned());
            assert_eq!(backend.to_string(), name);
            assert_eq!(matches!(backend, BackendName::Other(_)), name == "gpu");
        }
    }
}
