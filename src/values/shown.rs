//! Values as the user sees them: facts, without a format.

use crate::common::Addr;

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The compiler did not keep it at this place.
    OptimizedOut,
    /// It cannot be found out: memory that does not exist, a register whose value is unknown.
    Unavailable,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// None.
    Missing(Missing),
    /// An integer.
    Integer(i128),
    /// A character of C, which is an integer, too.
    Character(i128),
    /// A character of Rust.
    Scalar(char),
    /// A number with a fraction.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A pointer.
    Pointer {
        /// The address.
        addr: Addr,
        /// The bytes up to a zero, of a pointer to characters.
        string: Option<Text>,
        /// The function there.
        function: Option<String>,
    },
    /// A string.
    Text(Text),
    /// The name of a value of an enumeration; `None` if it has none.
    Enumerator {
        /// The name.
        name: Option<String>,
        /// The value.
        value: i128,
    },
    /// The members of a structure, or of a variant of an enum of Rust.
    Structure {
        /// The name of the variant.
        variant: Option<String>,
        /// The members, by their names.
        members: Vec<(Option<String>, Shown)>,
        /// True if it is a structure of Rust.
        is_rust: bool,
    },
    /// The elements of an array.
    Array {
        /// The first elements.
        elements: Vec<Shown>,
        /// True if there are more.
        has_more: bool,
    },
    /// The frames of a call stack, innermost first.
    Frames(Vec<ShownFrame>),
}

/// A string, as far as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// True if there are more.
    pub has_more: bool,
}

/// A frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFrame {
    /// The address of its next instruction.
    pub addr: Addr,
    /// The function.
    pub function: Option<String>,
    /// The file and line.
    pub line: Option<(String, u32)>,
}
