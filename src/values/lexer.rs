//! Tokens of expressions.

use super::error::Error;

/// A token of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name with its namespaces, such as `a::b`.
    Name(String),
    /// The name of a register, without the `$`.
    Register(String),
    /// An integer.
    Integer(u64),
    /// A floating-point number.
    Real(f64),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// All operators and brackets. Longer ones are first, so that `->` is not taken as `-`.
const SIGNS: [&str; 27] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", ".", "*", "&", "+",
    "-", "/", "%", "<", ">", "^", "|", "!", "~", ",",
];

/// Returns the tokens of a text, each with the number of its first character, from 1. Fails at a
/// character that begins no token, and at a malformed number.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Error> {
    let mut tokens: Vec<(usize, Token)> = Vec::new();
    let (mut rest, mut at) = (text, 1);
    loop {
        let trimmed = rest.trim_start();
        at += characters(rest, trimmed);
        rest = trimmed;
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let after_dot = matches!(tokens.last(), Some((_, Token::Sign("." | "->"))));
        let fault = |what| Error::Syntax { text: text.to_owned(), at, what };
        let (token, length) = if first.is_ascii_digit() {
            number(rest, after_dot).ok_or_else(|| fault("this is no number"))?
        } else if is_letter(first) {
            let length = name_length(rest);
            (Token::Name(rest[..length].to_owned()), length)
        } else if let Some(register) = rest.strip_prefix('$') {
            let length = register.find(|c: char| !is_letter(c)).unwrap_or(register.len());
            (Token::Register(register[..length].to_owned()), length + 1)
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| fault("this character has no meaning here"))?;
            (Token::Sign(sign), sign.len())
        };
        tokens.push((at, token));
        let following = &rest[length..];
        at += characters(rest, following);
        rest = following;
    }
}

/// Returns the number of characters of `text` before `rest`, which is a suffix of `text`.
fn characters(text: &str, rest: &str) -> usize {
    text[..text.len() - rest.len()].chars().count()
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length in bytes of the name at the start of `text`, with its namespaces.
fn name_length(text: &str) -> usize {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        length += rest.find(|c: char| !is_letter(c)).unwrap_or(rest.len());
        let next = text[length..].strip_prefix("::").and_then(|next| next.chars().next());
        if !next.is_some_and(is_letter) {
            return length;
        }
        length += 2;
    }
}

/// Parses the number at the start of `text` and returns its length in bytes too. It is decimal, or
/// hexadecimal after `0x`; `_` and the suffixes `u` and `l` of integers mean nothing. It may have a
/// fraction and an exponent. After a dot it is a member of a tuple, whose name is `__N`. `None` if
/// it is malformed or too large.
fn number(text: &str, after_dot: bool) -> Option<(Token, usize)> {
    let is_part = |c: char| is_letter(c) || c == '.' && !after_dot;
    let length_of = |text: &str| text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    let mut length = length_of(text);
    let is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    if text[..length].ends_with(['e', 'E']) && !is_hexadecimal && !after_dot {
        // The sign of an exponent.
        let signed = text[length..].strip_prefix(['+', '-']);
        let digits = signed.filter(|exponent| exponent.starts_with(|c: char| c.is_ascii_digit()));
        length += digits.map_or(0, |digits| 1 + length_of(digits));
    }
    let word = &text[..length];
    if after_dot {
        return Some((Token::Name(format!("__{}", word.parse::<u32>().ok()?)), length));
    }
    let plain: String = word.chars().filter(|c| *c != '_').collect();
    let lower = plain.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        let digits = digits.trim_end_matches(['u', 'l']);
        return Some((Token::Integer(u64::from_str_radix(digits, 16).ok()?), length));
    }
    if lower.contains('.') || lower.contains('e') {
        return Some((Token::Real(lower.parse().ok()?), length));
    }
    let digits = lower.trim_end_matches(['u', 'l']);
    Some((Token::Integer(digits.parse().ok()?), length))
}
