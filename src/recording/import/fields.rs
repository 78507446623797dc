//! Values in the description of an LLDB trace bundle, with their places for errors.

use serde_json::Value;

/// A fault in the description of an LLDB trace bundle, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} {what}")]
pub struct BadBundle {
    /// The place of the wrong value, as in `processes[0].pid`.
    pub place: String,
    /// The fault, as the end of a sentence that begins with the place.
    pub what: String,
}

/// The name of the outermost value in errors.
pub(super) const ROOT: &str = "the description";

/// The maximum number of characters of a wrong value that an error shows.
const SHOWN_CHARS: usize = 40;

/// A JSON value (or none, for a missing field), and its place in the description.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    /// The place as in [`BadBundle`]; empty for the outermost value.
    place: String,
    /// The value; `None` if the place does not exist.
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { place: String::new(), value: Some(value) }
    }

    /// Returns an error at the place of this value; `what` ends a sentence that begins with the
    /// place.
    pub(super) fn wrong(&self, what: impl Into<String>) -> BadBundle {
        let place = if self.place.is_empty() { ROOT } else { &self.place };
        BadBundle { place: place.to_owned(), what: what.into() }
    }

    /// Returns the error for a value that is not of the wanted kind.
    fn unlike(&self, wanted: &str) -> BadBundle {
        match self.value {
            None => self.wrong("is missing"),
            Some(value) => {
                let text = value.to_string();
                let shown: String = text.chars().take(SHOWN_CHARS).collect();
                let more = if shown.len() < text.len() { "..." } else { "" };
                self.wrong(format!("must be {wanted}, but is {shown}{more}"))
            }
        }
    }

    /// Returns true if the value exists and is not null.
    pub(super) fn is_there(&self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    /// Returns the field `name` of this object, which may have no value. Fails for other values.
    pub(super) fn get(&self, name: &str) -> Result<Self, BadBundle> {
        let object = self.value.and_then(Value::as_object);
        let object = object.ok_or_else(|| self.unlike("an object"))?;
        let dot = if self.place.is_empty() { "" } else { "." };
        Ok(Self { place: format!("{}{dot}{name}", self.place), value: object.get(name) })
    }

    /// Returns the elements of this array. Fails for other values.
    pub(super) fn list(&self) -> Result<Vec<Self>, BadBundle> {
        let array = self.value.and_then(Value::as_array);
        let array = array.ok_or_else(|| self.unlike("an array"))?;
        let element = |(number, value)| Self {
            place: format!("{}[{number}]", self.place),
            value: Some(value),
        };
        Ok(array.iter().enumerate().map(element).collect())
    }

    /// Returns this string. Fails for other values.
    pub(super) fn text(&self) -> Result<&'a str, BadBundle> {
        self.value.and_then(Value::as_str).ok_or_else(|| self.unlike("a string"))
    }

    /// Returns this integer. Fails unless it is from `low` to `high`.
    pub(super) fn number(&self, low: u64, high: u64) -> Result<u64, BadBundle> {
        let number = self.value.and_then(Value::as_u64);
        let number = number.filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| self.unlike(&format!("a whole number from {low} to {high}")))
    }

    /// Returns this 64-bit number, possibly from a string, in decimal or, after `0x`, hexadecimal:
    /// some JSON writers only have numbers of 53 bits.
    pub(super) fn number_or_text(&self) -> Result<u64, BadBundle> {
        let of_text = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let value = self.value;
        let number = value.and_then(|v| v.as_u64().or_else(|| of_text(v.as_str()?)));
        number.ok_or_else(|| self.unlike("a number of 64 bits"))
    }
}
