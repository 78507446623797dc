//! Values as text, like gdb's, and as JSON, where a missing value is null.

use super::shown::{Missing, Shown, ShownFrame, Text};
use serde_json::{Map, Value, json};
use std::fmt;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OptimizedOut => "<optimized out>",
            Self::Unavailable => "<unavailable>",
        })
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for chunk in self.bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                escape(c, '"', f)?;
            }
            for byte in chunk.invalid() {
                write!(f, "\\{byte:03o}")?;
            }
        }
        f.write_str(if self.has_more { "\"..." } else { "\"" })
    }
}

/// Writes a character of a literal as gdb does: a control character as an escape such as `\n`, or
/// in octal, and `quote` and `\` after a backslash.
fn escape(c: char, quote: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\t' => f.write_str("\\t"),
        '\r' => f.write_str("\\r"),
        '\u{7}' => f.write_str("\\a"),
        '\u{8}' => f.write_str("\\b"),
        '\u{b}' => f.write_str("\\v"),
        '\u{c}' => f.write_str("\\f"),
        '\u{1b}' => f.write_str("\\033"),
        '\\' => f.write_str("\\\\"),
        c if c == quote => write!(f, "\\{c}"),
        c if c.is_control() => {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().try_for_each(|byte| write!(f, "\\{byte:03o}"))
        }
        c => write!(f, "{c}"),
    }
}

/// The code of a character, displayed in single quotes.
struct Quoted(i128);

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("'")?;
        match u32::try_from(self.0 & 0xffff_ffff).ok().and_then(char::from_u32) {
            Some(c) if c.is_ascii() => escape(c, '\'', f)?,
            Some(c) if u32::from(c) > 0xff => escape(c, '\'', f)?,
            // Such as half of a surrogate pair.
            None if self.0 > 0o777 => write!(f, "\\x{:x}", self.0)?,
            // U+0080 to U+00FF may be a `char` of C, which is one byte of some encoding.
            _ => write!(f, "\\{:03o}", self.0 & 0xff)?,
        }
        f.write_str("'")
    }
}

impl fmt::Display for ShownFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => f.write_str(function)?,
            None => write!(f, "{}", self.addr)?,
        }
        match &self.line {
            Some((file, line)) => write!(f, " {file}:{line}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Integer(value) | Self::Enumerator { name: None, value } => value.fmt(f),
            Self::Character(value) => write!(f, "{value} {}", Quoted(*value)),
            Self::Scalar(c) => write!(f, "{} {}", u32::from(*c), Quoted(u32::from(*c).into())),
            Self::Float(value) => float(*value, f),
            Self::Boolean(value) => value.fmt(f),
            Self::Pointer { addr, string, function } => {
                write!(f, "0x{:x}", addr.0)?;
                if let Some(string) = string {
                    write!(f, " {string}")?;
                }
                function.as_ref().map_or(Ok(()), |function| write!(f, " <{function}>"))
            }
            Self::Text(text) => text.fmt(f),
            Self::Enumerator { name: Some(name), .. } => f.write_str(name),
            Self::Structure { variant, members, is_rust } => {
                structure(variant.as_deref(), members, *is_rust, f)
            }
            Self::Array { elements, has_more } => {
                f.write_str("{")?;
                list(elements, ", ", f)?;
                f.write_str(if *has_more { "...}" } else { "}" })
            }
            Self::Frames(frames) => list(frames, " < ", f),
        }
    }
}

/// Writes the items, with the text `between` between them.
fn list<T: fmt::Display>(items: &[T], between: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            f.write_str(between)?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

/// Writes a number in its shortest form, infinity as `inf`, and all NaNs as `nan`. A number below
/// 1e-5, or from 1e17 on, has an exponent.
fn float(value: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if value.is_nan() {
        return f.write_str("nan");
    }
    let size = value.abs();
    if size != 0.0 && (!(1e-5..1e17).contains(&size)) && size.is_finite() {
        return write!(f, "{value:e}");
    }
    write!(f, "{value}")
}

/// Writes members by the syntax of their language: `{a = 1}` or, for Rust, `{a: 1}`, with tuples as
/// `(1, 2)`. The name of a variant comes before its members, and alone if it has none.
fn structure(
    variant: Option<&str>,
    members: &[(Option<String>, Shown)],
    is_rust: bool,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let is_tuple = is_tuple(members);
    if let Some(variant) = variant {
        f.write_str(variant)?;
        if members.is_empty() {
            return Ok(());
        }
    }
    let is_positional = is_rust && is_tuple;
    f.write_str(if is_positional { "(" } else { "{" })?;
    for (number, (name, value)) in members.iter().enumerate() {
        if number > 0 {
            f.write_str(", ")?;
        }
        match name {
            Some(name) if is_rust && !is_tuple => write!(f, "{name}: ")?,
            Some(name) if !is_rust => write!(f, "{name} = ")?,
            _ => {}
        }
        write!(f, "{value}")?;
    }
    f.write_str(if is_positional { ")" } else { "}" })
}

/// Returns true for the members of a tuple: `__0`, `__1` and so on. Returns false for no members.
fn is_tuple(members: &[(Option<String>, Shown)]) -> bool {
    let is_numbered = |(number, (name, _)): (usize, &(Option<String>, Shown))| {
        name.as_deref() == Some(&format!("__{number}"))
    };
    !members.is_empty() && members.iter().enumerate().all(is_numbered)
}

impl Shown {
    /// Returns the value as JSON. A missing value is null; characters of C are numbers, those of
    /// Rust strings; an enumerator is its name, or its number without one. Pointers are strings in
    /// hexadecimal, and those with a string are objects with both; the name of a function is left
    /// out. Integers beyond 64 bits, infinity and NaN are strings. The JSON of an array or string
    /// does not show that it has more.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Missing(_) => Value::Null,
            Self::Integer(value)
            | Self::Character(value)
            | Self::Enumerator { name: None, value } => integer(*value),
            Self::Scalar(c) => json!(c.to_string()),
            Self::Float(value) if value.is_finite() => json!(value),
            Self::Float(_) => json!(self.to_string()),
            Self::Boolean(value) => json!(value),
            Self::Pointer { addr, string: Some(string), .. } => {
                json!({"pointer": format!("0x{:x}", addr.0), "string": string_of(string)})
            }
            Self::Pointer { addr, .. } => json!(format!("0x{:x}", addr.0)),
            Self::Text(text) => json!(string_of(text)),
            Self::Enumerator { name: Some(name), .. } => json!(name),
            Self::Structure { variant, members, .. } => structure_json(variant.as_ref(), members),
            Self::Array { elements, .. } => elements.iter().map(Self::to_json).collect(),
            Self::Frames(frames) => frames.iter().map(frame_json).collect(),
        }
    }
}

/// Returns an integer as a JSON number, or as a string if it does not fit in 64 bits.
fn integer(value: i128) -> Value {
    if let Ok(value) = i64::try_from(value) {
        return json!(value);
    }
    u64::try_from(value).map_or_else(|_| json!(value.to_string()), |value| json!(value))
}

/// Returns a string as it is if it is UTF-8, else in quotes and with escapes. Leaves out the last
/// character if the shown part of a longer string ends inside it.
fn string_of(text: &Text) -> String {
    match std::str::from_utf8(&text.bytes) {
        Ok(whole) => whole.to_owned(),
        Err(error) if text.has_more && error.error_len().is_none() => {
            String::from_utf8_lossy(&text.bytes[..error.valid_up_to()]).into_owned()
        }
        Err(_) => text.to_string(),
    }
}

/// Returns members as an object by their names, or those of a tuple as an array. A member without a
/// name is `<anonymous N>`, N being its index. Those of a variant are in an object with its name as
/// the key; a variant without members is its name.
fn structure_json(variant: Option<&String>, members: &[(Option<String>, Shown)]) -> Value {
    let inner = if is_tuple(members) {
        let values = members.iter().map(|(_, value)| value.to_json());
        values.collect::<Value>()
    } else {
        let mut object = Map::new();
        for (number, (name, value)) in members.iter().enumerate() {
            let name = name.clone().unwrap_or_else(|| format!("<anonymous {number}>"));
            object.insert(name, value.to_json());
        }
        Value::Object(object)
    };
    match variant {
        Some(variant) if members.is_empty() => json!(variant),
        Some(variant) => json!({variant: inner}),
        None => inner,
    }
}

fn frame_json(frame: &ShownFrame) -> Value {
    let (file, line) = frame.line.clone().unzip();
    json!({
        "address": format!("{}", frame.addr), "function": frame.function, "file": file,
        "line": line,
    })
}
