//! The syntax, and values in a made-up state; values of programs are compared with gdb's by
//! `tests/end_to_end/ask.rs`.

use super::error::Error;
use super::parse::{Item, items};
use super::shown::{Missing, Shown, Text};
use super::{Evaluator, Frame, Question};
use crate::common::Addr;
use crate::symbols::{FrameRegisters, Machine, Symbols};
use std::path::Path;

/// A state with a few registers, and text at 0x1000.
struct State;

impl Machine for State {
    fn register(&self, number: u16) -> Option<u64> {
        match number {
            0 => Some(0x1000),
            1 => Some(u64::MAX),
            16 => Some(0x40_0000),
            _ => None,
        }
    }

    fn vector(&self, _: u16) -> Option<[u8; 16]> {
        None
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> bool {
        let memory: Vec<u8> = b"hello\0world\0".iter().copied().cycle().take(0x1000).collect();
        let from = usize::try_from(addr.0.wrapping_sub(0x1000)).unwrap_or(usize::MAX);
        let found = from.checked_add(buf.len()).and_then(|until| memory.get(from..until));
        found.is_some_and(|bytes| {
            buf.copy_from_slice(bytes);
            true
        })
    }
}

fn answer(text: &str) -> Result<Vec<Shown>, Error> {
    let symbols = Symbols::new(|_: &Path| None);
    let evaluator = Evaluator::new(&symbols);
    let bound = evaluator.bind(&Question::parse(text)?, Addr(0x40_0000))?;
    let registers = FrameRegisters::innermost(&State);
    let frame = Frame { registers: &registers, machine: &State, is_innermost: true };
    evaluator.answer(&bound, &frame)
}

fn one(text: &str) -> String {
    let values = answer(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    values.iter().map(Shown::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn operators_have_the_precedence_of_c() {
    // The values are gcc's.
    for (text, value) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 4 - 3", "3"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("1 << 4 | 3", "19"),
        ("1 | 2 == 2", "1"),
        ("5 & 3 == 3", "1"),
        ("!0 + !5", "1"),
        ("~0", "-1"),
        ("2147483647 + 1", "-2147483648"),
        ("0xffffffff + 1", "4294967296"),
        ("1 < 2 && 2 < 1 || 1", "1"),
        ("0 && 1 / 0", "0"),
        ("2 || *(int *) 0", "1"),
        ("$rdx == 1 || $rdx", "1"),
        ("7 / 2.0", "3.5"),
        ("25e-1 * 2 + 1e+2", "105"),
        ("0xe-1", "13"),
        ("(unsigned char) 300", "44 ','"),
        ("(int) 2.9", "2"),
        ("(unsigned) -1", "4294967295"),
        ("(long) 1 << 40", "1099511627776"),
        ("(bool) 7", "true"),
        ("(const int) 2.9", "2"),
        ("(unsigned int const) -1", "4294967295"),
        ("(volatile long) 1 << 40", "1099511627776"),
    ] {
        assert_eq!(one(text), value, "{text}");
    }
}

#[test]
fn registers_and_memory_are_read() {
    assert_eq!(one("$rax"), "4096");
    assert_eq!(one("$rdx"), "-1");
    assert_eq!(one("(char *) $rax"), "0x1000 \"hello\"");
    for cast in ["const char *", "char const *", "char *const", "const volatile char * restrict"] {
        assert_eq!(one(&format!("({cast}) $rax")), "0x1000 \"hello\"", "{cast}");
    }
    assert_eq!(one("*(char *) ($rax + 6)"), "119 'w'");
    assert_eq!(one("((char *) $rax)[1]"), "101 'e'");
    assert_eq!(one("*(unsigned short *) $rax"), "25960");
    assert_eq!(one("(char *) $rax + 6, $rip"), "0x1006 \"world\"; 4194304");
}

#[test]
fn unknown_values_are_missing_and_not_zero() {
    let missing = Shown::Missing(Missing::Unavailable);
    for text in
        ["$rbx", "$rbx + 1", "*(int *) 0", "1 / 0", "*(int *) 0x1fff", "1 << 99", "1 && $rbx"]
    {
        assert_eq!(answer(text), Ok(vec![missing.clone()]), "{text}");
        assert!(missing.to_json().is_null());
    }
}

#[test]
fn wrong_expressions_are_answered_in_a_sentence() {
    for (text, part) in [
        ("1 +", "an operand is missing"),
        ("(1", "a ) is missing"),
        ("1 2", "an operator is missing"),
        ("a[1", "a ] is missing"),
        ("p->", "the name of a member is missing"),
        ("f(1)", "functions cannot be called"),
        ("#", "no meaning"),
        ("99999999999999999999", "no number"),
        ("(struct node *) 1", "basic type"),
        ("(const struct node *) 1", "basic type"),
        ("(const node *) 1", "basic type"),
        ("bt x", "give bt"),
        ("bt 0", "give bt"),
        ("$xyz", "no register $xyz"),
        ("1 + nothing", "debug information"),
        ("*1", "needs a pointer"),
        ("1.x", "no number"),
        ("$rax.x", "has no member \"x\""),
        (&"(".repeat(1000), "nested too deeply"),
        (&"-".repeat(1000), "nested too deeply"),
    ] {
        let error = answer(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains('\n'));
    }
}

#[test]
fn faults_are_located_by_characters() {
    for (text, part) in [
        ("é + #", "at character 5"),
        ("été + ", "at character 6"),
        ("ß ß", "at character 3"),
        ("1, é #", "at character 4"),
    ] {
        let error = answer(text).expect_err(text).to_string();
        assert!(error.ends_with(part), "{text}: {error}");
    }
}

#[test]
fn long_rows_of_operators_are_refused() {
    for text in [format!("1{}", "+1".repeat(60_000)), format!("$rax{}", ".a".repeat(60_000))] {
        let error = answer(&text).unwrap_err().to_string();
        assert!(error.contains("the expression is too long"), "{}", &error[error.len() - 60..]);
    }
    assert_eq!(one(&format!("1{}", "+1".repeat(200))), "201");
}

#[test]
fn commas_in_brackets_do_not_divide() {
    let list = items("a[b], bt 3 , (c)").unwrap();
    let texts: Vec<&str> = list.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(texts, ["a[b]", "bt 3", "(c)"]);
    assert!(matches!(list[1].1, Item::Backtrace(3)));
    assert!(Question::parse("  ").unwrap().is_empty());
}

#[test]
fn strings_are_written_like_gdb() {
    let text = |bytes: &[u8]| Text { bytes: bytes.to_vec(), has_more: false }.to_string();
    assert_eq!(text(b"a\"b\\c\n\x01\xff"), r#""a\"b\\c\n\001\377""#);
    let json =
        |bytes: &[u8]| Shown::Text(Text { bytes: bytes.to_vec(), has_more: false }).to_json();
    assert_eq!(json("é".as_bytes()), "é");
    // Half of a surrogate pair, and a byte.
    assert_eq!(Shown::Character(0xd83d).to_string(), r"55357 '\xd83d'");
    assert_eq!(Shown::Character(-61).to_string(), r"-61 '\303'");
}
