//! Values as the user sees them: facts, without a format.

use crate::common::Addr;

/// The reason why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The compiler did not keep the value at this address.
    OptimizedOut,
    /// The value is unknown, as its memory or register is, or undefined, as in a division by zero.
    Unavailable,
}

/// The value of an expression, or a part of it, as the user sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// No value, with the reason.
    Missing(Missing),
    /// An integer.
    Integer(i128),
    /// A `char` of C or C++, which is also an integer.
    Character(i128),
    /// A `char` of Rust.
    Scalar(char),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A pointer.
    Pointer {
        /// The address in the pointer.
        addr: Addr,
        /// The string at `addr`, if the pointer is one to characters and the memory is known.
        string: Option<Text>,
        /// The name of the function that begins at `addr`, if the pointer is one to functions.
        function: Option<String>,
    },
    /// A string.
    Text(Text),
    /// A value of an enumeration.
    Enumerator {
        /// The value's name, or flags such as `(A | B)`; `None` if it has no name.
        name: Option<String>,
        /// The value as a number.
        value: i128,
    },
    /// The members of a structure, or of a variant of an enum of Rust.
    Structure {
        /// The name of the variant; `None` for a structure or union.
        variant: Option<String>,
        /// The members in their order, each with its name; `None` if it is anonymous.
        members: Vec<(Option<String>, Shown)>,
        /// True if the type is one of Rust.
        is_rust: bool,
    },
    /// The elements of an array.
    Array {
        /// The elements, at most the first 200.
        elements: Vec<Shown>,
        /// True if the array has more elements.
        has_more: bool,
    },
    /// The frames of a call stack, innermost first.
    Frames(Vec<ShownFrame>),
}

/// A string, or the beginning of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The bytes, without the zero at the end.
    pub bytes: Vec<u8>,
    /// True if the string has more bytes.
    pub has_more: bool,
}

/// A frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFrame {
    /// The address of the frame's next instruction.
    pub addr: Addr,
    /// The name of the function; `None` if it is unknown.
    pub function: Option<String>,
    /// The name of the source file, without directories, and the line; `None` if they are unknown.
    pub line: Option<(String, u32)>,
}
