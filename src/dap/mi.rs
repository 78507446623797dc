//! gdb's machine interface (gdb manual, "GDB/MI Output Syntax"): lines to records, whose results
//! are JSON values: tuples are objects, and all scalars are strings.

use serde_json::{Map, Value};

/// A line of gdb's output.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    /// `^done`, `^running`, `^error`...: the answer to the command with this token.
    Result { token: Option<u64>, class: String, results: Value },
    /// `*stopped`, `*running`: the program has stopped, or runs.
    Exec { class: String, results: Value },
    /// `=breakpoint-modified`...: other news.
    Notice { class: String },
    /// Text for gdb's console.
    Console(String),
    /// Output of the program, or of the server.
    Target(String),
    /// gdb's log, or a line that is no record.
    Log(String),
}

/// Parses a line. A line in no form of gdb's output is a [`Record::Log`].
pub(super) fn parse(line: &str) -> Record {
    let line = line.trim_end_matches(['\r', '\n']);
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let (token, rest) = (line[..digits].parse().ok(), &line[digits..]);
    let mut characters = rest.chars();
    let kind = characters.next();
    let mut parser = Parser { text: characters.as_str() };
    let record = match kind {
        Some('^') => parser.class_and_results().map(|(class, results)| Record::Result {
            token,
            class,
            results,
        }),
        Some('*') => {
            parser.class_and_results().map(|(class, results)| Record::Exec { class, results })
        }
        Some('=') => parser.class_and_results().map(|(class, _)| Record::Notice { class }),
        Some('~') => parser.string().map(Record::Console),
        Some('@') => parser.string().map(Record::Target),
        Some('&') => parser.string().map(Record::Log),
        _ => None,
    };
    record.unwrap_or_else(|| Record::Log(line.to_owned()))
}

/// Returns text as a quoted argument of a command: [`parse`] reads such a string as the same text.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// A parser of the rest of a line.
struct Parser<'a> {
    /// The text that is not parsed yet.
    text: &'a str,
}

impl Parser<'_> {
    /// Skips a character if it is next. Returns true if it was.
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.text.strip_prefix(wanted);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    /// Takes the text up to the next delimiter, or all of it; perhaps nothing.
    fn name(&mut self) -> String {
        let end = self.text.find(['=', ',', '{', '}', '[', ']', '"']);
        let (name, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
        self.text = rest;
        name.to_owned()
    }

    /// Parses the rest of a record: its class, and its results as an object. `None` if it is
    /// damaged.
    fn class_and_results(&mut self) -> Option<(String, Value)> {
        let class = self.name();
        let mut results = Map::new();
        while self.take(',') {
            let (name, value) = self.result()?;
            results.insert(name, value);
        }
        self.text.is_empty().then_some((class, Value::Object(results)))
    }

    /// Parses `NAME=VALUE`; `None` if it is damaged.
    fn result(&mut self) -> Option<(String, Value)> {
        let name = self.name();
        if !self.take('=') {
            return None;
        }
        Some((name, self.value()?))
    }

    /// Parses a string, a tuple or a list; `None` if it is damaged. Names of elements of a list are
    /// dropped.
    fn value(&mut self) -> Option<Value> {
        if self.text.starts_with('"') {
            return self.string().map(Value::String);
        }
        if self.take('{') {
            let mut tuple = Map::new();
            while !self.take('}') {
                if self.take(',') {
                    continue;
                }
                let (name, value) = self.result()?;
                tuple.insert(name, value);
            }
            return Some(Value::Object(tuple));
        }
        if !self.take('[') {
            return None;
        }
        let mut list = Vec::new();
        while !self.take(']') {
            // gdb 13 writes `args=[,{...}]` after frame filters have been loaded.
            if self.take(',') {
                continue;
            }
            let named = !self.text.starts_with(['"', '{', '[']);
            list.push(if named { self.result()?.1 } else { self.value()? });
        }
        Some(Value::Array(list))
    }

    /// Parses a string of C in quotes; `None` if it is damaged. Escapes are bytes, which together
    /// are UTF-8.
    fn string(&mut self) -> Option<String> {
        if !self.take('"') {
            return None;
        }
        let (mut bytes, mut at) = (Vec::new(), 0);
        let text = self.text.as_bytes();
        loop {
            let byte = *text.get(at)?;
            at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let (escaped, length) = escape(text.get(at..)?)?;
                    bytes.push(escaped);
                    at += length;
                }
                _ => bytes.push(byte),
            }
        }
        self.text = self.text.get(at..)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Returns the byte that an escape sequence means, and the sequence's size without its backslash,
/// after which `text` begins. A character without a special meaning means itself. `None` if `text`
/// is empty.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    let byte = match *text.first()? {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'a' => 7,
        b'v' => 11,
        b'e' => 27,
        b'0'..=b'7' => {
            let length = text.iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let value =
                text[..length].iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
            return Some((u8::try_from(value & 0xff).ok()?, length));
        }
        other => other,
    };
    Some((byte, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn records_of_gdb_are_read() {
        let stop = r#"*stopped,reason="breakpoint-hit",frame={addr="0x1",args=[,{name="a",value="\"\303\244\n\""}]},core="1""#;
        let results = json!({"reason": "breakpoint-hit", "core": "1",
            "frame": {"addr": "0x1", "args": [{"name": "a", "value": "\"ä\n\""}]}});
        assert_eq!(parse(stop), Record::Exec { class: "stopped".into(), results });
        let list = r#"12^done,features=["async","reverse"],frames=[frame={level="0"},frame={level="1"}],e=[]"#;
        let results = json!({"features": ["async", "reverse"], "frames": [{"level": "0"}, {"level": "1"}], "e": []});
        let done = Record::Result { token: Some(12), class: "done".into(), results };
        assert_eq!(parse(list), done);
        assert_eq!(parse("~\"a\\tb\\033[0m\""), Record::Console("a\tb\u{1b}[0m".into()));
        assert_eq!(parse("(gdb) "), Record::Log("(gdb) ".into()));
    }

    proptest! {
        #[test]
        fn whatever_is_quoted_is_read_again(text: String) {
            let line = format!("~{}", quoted(&text));
            if !text.contains(['\n', '\r']) {
                prop_assert_eq!(parse(&line), Record::Console(text));
            }
        }

        #[test]
        fn no_line_is_a_panic(line in ".{0,200}|[*^=~@&]?[a-z,={}\\[\\]\"\\\\0-9]{0,80}") {
            let _ = parse(&line);
        }
    }
}
