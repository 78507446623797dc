//! Parses expressions: the operators of C without side effects, with their precedence.

use super::error::Error;
use super::lexer::{Token, tokens};

/// The maximum depth of nested expressions.
const MAX_DEPTH: usize = 200;
/// The limit on binary and postfix operators of an expression: a chain of them nests as deep as it
/// is long.
const MAX_OPERATORS: usize = 500;

/// The syntax tree of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// A variable or a member of `this`, with its namespaces.
    Name(String),
    /// A register, without the `$`.
    Register(String),
    /// An integer, as it is written.
    Integer(u64),
    /// A floating-point number, as it is written.
    Real(f64),
    /// `a.name` or `a->name`, which mean the same.
    Member(Box<Expr>, String),
    /// `a[b]`
    Index(Box<Expr>, Box<Expr>),
    /// `*a`
    Target(Box<Expr>),
    /// `&a`
    Address(Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `(basic) a`, or `(basic *) a` with this number of stars.
    Cast(Basic, u32, Box<Expr>),
}

/// An operator before its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Minus,
    /// `!`
    Not,
    /// `~`
    Invert,
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    And,
    Xor,
    Or,
    /// `&&`
    BothTrue,
    /// `||`
    AnyTrue,
}

/// A type that a cast can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basic {
    Integer { size_bytes: u64, is_signed: bool },
    Character { is_signed: bool },
    Float { size_bytes: u64 },
    Boolean,
    Void,
}

/// An item of a question: an expression, or `bt`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Value(Expr),
    /// `bt`, with the maximum number of frames.
    Backtrace(usize),
}

/// Parses a list of expressions with commas between them. Returns each with its text; none if the
/// text is blank. Fails if one is malformed or blank.
pub(super) fn items(text: &str) -> Result<Vec<(String, Item)>, Error> {
    let parts = split(text);
    if let [only] = parts.as_slice()
        && only.trim().is_empty()
    {
        return Ok(Vec::new());
    }
    parts.into_iter().map(|part| Ok((part.trim().to_owned(), item(part)?))).collect()
}

/// Splits a text at its commas outside of `()` and `[]`. Does not trim the parts.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Parses an expression, or `bt` with the number of frames after it, which is without a limit if
/// there is none, and not 0.
fn item(text: &str) -> Result<Item, Error> {
    let mut words = text.split_whitespace();
    if words.next() == Some("bt") {
        let count = words.next().map_or(Some(usize::MAX), |count| count.parse().ok());
        return match (count.filter(|count| *count > 0), words.next()) {
            (Some(count), None) => Ok(Item::Backtrace(count)),
            _ => Err(Error::Syntax {
                text: text.trim().to_owned(),
                at: 1,
                what: "give bt, or bt with the number of frames",
            }),
        };
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { text, tokens: &tokens, next: 0, depth: 0, operators: 0 };
    let expr = parser.binary(0)?;
    match parser.tokens.get(parser.next) {
        None => Ok(Item::Value(expr)),
        Some(_) => Err(parser.fault("an operator is missing")),
    }
}

/// The binary operators with their precedence. A higher one binds tighter.
const BINARY: [(&str, Binary, u8); 18] = [
    ("||", Binary::AnyTrue, 1),
    ("&&", Binary::BothTrue, 2),
    ("|", Binary::Or, 3),
    ("^", Binary::Xor, 4),
    ("&", Binary::And, 5),
    ("==", Binary::Equal, 6),
    ("!=", Binary::NotEqual, 6),
    ("<", Binary::Less, 7),
    ("<=", Binary::LessOrEqual, 7),
    (">", Binary::Greater, 7),
    (">=", Binary::GreaterOrEqual, 7),
    ("<<", Binary::ShiftLeft, 8),
    (">>", Binary::ShiftRight, 8),
    ("+", Binary::Add, 9),
    ("-", Binary::Subtract, 9),
    ("*", Binary::Multiply, 10),
    ("/", Binary::Divide, 10),
    ("%", Binary::Remainder, 10),
];

/// A parser of one expression, by recursive descent.
struct Parser<'a> {
    text: &'a str,
    tokens: &'a [(usize, Token)],
    /// The index of the next token.
    next: usize,
    /// The depth of the operand that is being parsed.
    depth: usize,
    /// The number of binary and postfix operators so far.
    operators: usize,
}

impl Parser<'_> {
    /// Returns an error at the next token, or after the last one.
    fn fault(&self, what: &'static str) -> Error {
        let end = self.text.trim_end().chars().count() + 1;
        let at = self.tokens.get(self.next).map_or(end, |(at, _)| *at);
        Error::Syntax { text: self.text.to_owned(), at, what }
    }

    /// Returns the next token if it is an operator or a bracket.
    fn sign(&self) -> Option<&'static str> {
        match self.tokens.get(self.next)? {
            (_, Token::Sign(sign)) => Some(sign),
            _ => None,
        }
    }

    /// Skips the next token if it is `sign`. Returns true if it was.
    fn take(&mut self, sign: &str) -> bool {
        let found = self.sign() == Some(sign);
        self.next += usize::from(found);
        found
    }

    /// Counts a binary or postfix operator. Fails beyond [`MAX_OPERATORS`].
    fn count_operator(&mut self) -> Result<(), Error> {
        self.operators += 1;
        if self.operators <= MAX_OPERATORS {
            Ok(())
        } else {
            Err(self.fault("the expression is too long"))
        }
    }

    /// Parses an operand and the binary operators after it whose precedence is higher than `above`.
    fn binary(&mut self, above: u8) -> Result<Expr, Error> {
        let mut left = self.unary()?;
        loop {
            let sign = self.sign();
            let found = BINARY.iter().find(|(text, ..)| Some(*text) == sign);
            let Some((_, operator, precedence)) = found.filter(|(.., of)| *of > above) else {
                return Ok(left);
            };
            self.count_operator()?;
            self.next += 1;
            let right = self.binary(*precedence)?;
            left = Expr::Binary(*operator, Box::new(left), Box::new(right));
        }
    }

    /// Parses an operand with the unary and postfix operators around it. Fails beyond
    /// [`MAX_DEPTH`].
    fn unary(&mut self) -> Result<Expr, Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fault("this is nested too deeply"));
        }
        let expr = self.unary_within();
        self.depth -= 1;
        expr
    }

    /// Parses an operand like [`Self::unary`], without a limit on the depth.
    fn unary_within(&mut self) -> Result<Expr, Error> {
        let sign = self.sign();
        if let Some(cast) = self.cast() {
            let (basic, stars) = cast?;
            return Ok(Expr::Cast(basic, stars, Box::new(self.unary()?)));
        }
        let operator = match sign {
            Some("-") => Some(Unary::Minus),
            Some("!") => Some(Unary::Not),
            Some("~") => Some(Unary::Invert),
            Some("*" | "&") => None,
            _ => return self.postfix(),
        };
        self.next += 1;
        let operand = Box::new(self.unary()?);
        Ok(match (operator, sign) {
            (Some(operator), _) => Expr::Unary(operator, operand),
            (None, Some("*")) => Expr::Target(operand),
            _ => Expr::Address(operand),
        })
    }

    /// Parses a cast, such as `(char *)`, and returns its type and number of stars. `None`, with no
    /// token skipped, if there is none here: `(T)` may be an operand in parentheses. Qualifiers
    /// such as `const` mean nothing. Fails at a type that is clearly not basic, such as
    /// `(struct a)` or `(T *)`.
    fn cast(&mut self) -> Option<Result<(Basic, u32), Error>> {
        let begin = self.next;
        if !self.take("(") {
            return None;
        }
        let mut words = Vec::new();
        while let Some((_, Token::Name(word))) = self.tokens.get(self.next) {
            words.push(word.as_str());
            self.next += 1;
        }
        words.retain(|word| !is_qualifier(word));
        let basic = basic(&words);
        let mut stars = 0;
        while self.take("*") {
            stars += 1;
            self.skip_qualifiers();
        }
        let is_named = matches!(words.first(), Some(&("struct" | "union" | "enum")));
        let is_pointer = stars > 0 && !words.is_empty() && self.sign() == Some(")");
        match basic {
            Some(basic) if self.take(")") => Some(Ok((basic, stars))),
            None if is_named || is_pointer => {
                Some(Err(self.fault("a cast can only be to a basic type, or a pointer to one")))
            }
            _ => {
                self.next = begin;
                None
            }
        }
    }

    /// Skips the qualifiers of a pointer, as in `(char *const)`.
    fn skip_qualifiers(&mut self) {
        while let Some((_, Token::Name(word))) = self.tokens.get(self.next)
            && is_qualifier(word)
        {
            self.next += 1;
        }
    }

    /// Parses an operand and the `[]`, `.` and `->` after it.
    fn postfix(&mut self) -> Result<Expr, Error> {
        let mut expr = self.primary()?;
        loop {
            if matches!(self.sign(), Some("[" | "." | "->")) {
                self.count_operator()?;
            }
            if self.take("[") {
                let index = self.binary(0)?;
                if !self.take("]") {
                    return Err(self.fault("a ] is missing"));
                }
                expr = Expr::Index(Box::new(expr), Box::new(index));
            } else if self.take(".") || self.take("->") {
                let Some((_, Token::Name(name))) = self.tokens.get(self.next) else {
                    return Err(self.fault("the name of a member is missing"));
                };
                self.next += 1;
                expr = Expr::Member(Box::new(expr), name.clone());
            } else {
                return Ok(expr);
            }
        }
    }

    /// Parses a name, a register, a number, or an expression in parentheses. Fails at a call.
    fn primary(&mut self) -> Result<Expr, Error> {
        let Some((_, token)) = self.tokens.get(self.next) else {
            return Err(self.fault("an operand is missing"));
        };
        let expr = match token {
            Token::Name(name) => Expr::Name(name.clone()),
            Token::Register(name) => Expr::Register(name.clone()),
            Token::Integer(value) => Expr::Integer(*value),
            Token::Real(value) => Expr::Real(*value),
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.binary(0)?;
                if self.sign() != Some(")") {
                    return Err(self.fault("a ) is missing"));
                }
                inner
            }
            Token::Sign(_) => return Err(self.fault("an operand is missing")),
        };
        self.next += 1;
        if self.sign() == Some("(") {
            return Err(self.fault("functions cannot be called here"));
        }
        Ok(expr)
    }
}

/// Returns true for a qualifier of a type, which does not matter to a value.
fn is_qualifier(word: &str) -> bool {
    matches!(word, "const" | "volatile" | "restrict")
}

/// Returns the basic type that has this name, as a list of words, in C, or of Rust's integers to 64
/// bits, floats and bool; `None` for others, also for `long double` and integers of 128 bits.
/// `char` is that of C. The words of C, such as `long unsigned int`, may be in any order.
fn basic(words: &[&str]) -> Option<Basic> {
    let integer = |size_bytes, is_signed| Some(Basic::Integer { size_bytes, is_signed });
    match words {
        ["void"] => return Some(Basic::Void),
        ["bool" | "_Bool"] => return Some(Basic::Boolean),
        ["float" | "f32"] => return Some(Basic::Float { size_bytes: 4 }),
        ["double" | "f64"] => return Some(Basic::Float { size_bytes: 8 }),
        ["i8" | "int8_t"] => return integer(1, true),
        ["u8" | "uint8_t"] => return integer(1, false),
        ["i16" | "int16_t"] => return integer(2, true),
        ["u16" | "uint16_t"] => return integer(2, false),
        ["i32" | "int32_t"] => return integer(4, true),
        ["u32" | "uint32_t"] => return integer(4, false),
        ["i64" | "isize" | "int64_t" | "ssize_t" | "intptr_t"] => return integer(8, true),
        ["u64" | "usize" | "uint64_t" | "size_t" | "uintptr_t"] => return integer(8, false),
        _ => {}
    }
    let count = |word| words.iter().filter(|other| **other == word).count();
    let known = ["unsigned", "signed", "char", "short", "int", "long"];
    if words.is_empty() || !words.iter().all(|word| known.contains(word)) {
        return None;
    }
    let is_signed = count("unsigned") == 0;
    match (count("char"), count("short"), count("long")) {
        (1, 0, 0) => Some(Basic::Character { is_signed }),
        (0, 1, 0) => integer(2, is_signed),
        (0, 0, 0) => integer(4, is_signed),
        (0, 0, _) => integer(8, is_signed),
        _ => None,
    }
}
