//! The user's configuration of a PT unit, in perf's syntax.

use std::str::FromStr;

/// The terms of a PT configuration with their values, in perf's syntax: `cyc,mtc_period=6,ptw`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtConfig {
    pub(super) terms: Vec<(String, u64)>,
}

/// The reason why a text is no PT configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadTerm {
    /// This part between commas is no term.
    #[error("{0:?} is no term; give for example cyc,mtc_period=6")]
    Name(String),
    /// The value of this term is no number.
    #[error("the value of {0} is no number")]
    Value(String),
    /// This term is given twice.
    #[error("{0} is given twice")]
    Twice(String),
}

impl FromStr for PtConfig {
    type Err = BadTerm;

    fn from_str(text: &str) -> Result<Self, BadTerm> {
        let mut terms: Vec<(String, u64)> = Vec::new();
        for term in text.split(',') {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(BadTerm::Name(term.to_owned()));
            }
            let hexadecimal = value.strip_prefix("0x").map(|value| u64::from_str_radix(value, 16));
            let value = hexadecimal.unwrap_or_else(|| value.parse());
            let value = value.map_err(|_| BadTerm::Value(name.to_owned()))?;
            if terms.iter().any(|(known, _)| known == name) {
                return Err(BadTerm::Twice(name.to_owned()));
            }
            terms.push((name.to_owned(), value));
        }
        Ok(Self { terms })
    }
}

impl PtConfig {
    /// Returns the value that the user gave a term; `None` if none.
    pub(super) fn value(&self, name: &str) -> Option<u64> {
        self.terms.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}
