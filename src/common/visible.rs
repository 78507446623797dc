//! Shows untrusted text (names, arguments, paths) safely on a terminal.

use std::fmt::{self, Display, Formatter, Write};

/// Text whose control and bidirectional formatting characters print as escapes: `\n`, `\x1b`. The
/// width and precision of a format are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Visible<T>(pub T);

impl<T: Display> Display for Visible<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_escaped) {
            let last = part.chars().next_back().filter(|c| is_escaped(*c));
            let Some(c) = last else {
                self.0.write_str(part)?;
                continue;
            };
            self.0.write_str(&part[..part.len() - c.len_utf8()])?;
            match c {
                '\t' | '\n' | '\r' => write!(self.0, "{}", c.escape_default())?,
                c if c.is_ascii() => write!(self.0, "\\x{:02x}", u32::from(c))?,
                c => write!(self.0, "{}", c.escape_unicode())?,
            }
        }
        Ok(())
    }
}

fn is_escaped(c: char) -> bool {
    // The characters with the property Bidi_Control of Unicode.
    let is_bidi = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_bidi || c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_terminal_would_obey_is_escaped() {
        let shown = |text: &str| Visible(text).to_string();
        assert_eq!(shown("größer \\x 'a' 日本"), "größer \\x 'a' 日本");
        assert_eq!(shown("\x1b[31mred\x07\n"), "\\x1b[31mred\\x07\\n");
        assert_eq!(shown("\u{9b}2J\u{202e}txt"), "\\u{9b}2J\\u{202e}txt");
        assert_eq!(shown("\x7f\x7f"), "\\x7f\\x7f");
        assert_eq!(shown("\u{61c}1\u{2066}"), "\\u{61c}1\\u{2066}");
    }
}
