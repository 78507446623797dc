//! Types and variables as the debug information describes them, at run-time addresses. No values.

use super::dwarf::EntryId;
use crate::common::{Addr, AddrRange};
use std::sync::Arc;

/// The identity of a type: it is read with [`read_type`](super::Symbols::read_type).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId {
    /// The start of the module's range.
    pub(super) module: Addr,
    /// The type's entry in the debug information.
    pub(super) entry: EntryId,
}

/// A type, without the typedefs and qualifiers around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// The name of its outermost typedef, else its own; `None` if it has none.
    pub name: Option<String>,
    /// Its size, if known.
    pub size_bytes: Option<u64>,
    /// The kind of the type, with its members, elements or target.
    pub kind: Kind,
    /// The source language of the compilation unit that contains the type.
    pub language: Language,
}

/// A source language, as far as it decides how values are read and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C.
    C,
    /// C++, and all others.
    Other,
    /// Rust.
    Rust,
    /// Go.
    Go,
}

/// The kind of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Integer {
        /// True if it has a sign.
        is_signed: bool,
    },
    /// A character; in C also a small integer.
    Character {
        /// True if it has a sign.
        is_signed: bool,
    },
    /// A truth value (`DW_ATE_boolean`).
    Boolean,
    /// A floating-point number.
    Float {
        /// Its format; `None` for other formats, and if its size and name do not determine it.
        format: Option<FloatFormat>,
    },
    /// A pointer or reference.
    Pointer {
        /// The type of the target; `None` for void, or an unknown type.
        target: Option<TypeId>,
        /// True if it is a reference of C++.
        is_reference: bool,
    },
    /// A structure, class or tuple.
    Structure(Vec<Member>),
    /// A union.
    Union(Vec<Member>),
    /// An enum of Rust, whose variants have members.
    Variants {
        /// The member whose value selects the variant; `None` if there is only one variant.
        discriminant: Option<Member>,
        /// The variants, in the order of the debug information.
        variants: Vec<Variant>,
    },
    /// An array.
    Array {
        /// The type of the innermost elements; `None` if it is unknown.
        element: Option<TypeId>,
        /// The number of elements in each dimension, outermost first; `None` if it is unknown.
        counts: Vec<Option<u64>>,
        /// True if it is a vector, such as `__m128`, which is no array of the language.
        is_vector: bool,
    },
    /// An enumeration, whose values have names.
    Enumeration {
        /// True if the values are signed.
        is_signed: bool,
        /// The values, cut to the size of the type, with their names.
        names: Vec<(u64, String)>,
    },
    /// A function, to which a pointer can point.
    Function,
    /// Any other type, whose values cannot be read.
    Other,
}

/// A format of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatFormat {
    /// 4 bytes (IEEE 754 binary32).
    Single,
    /// 8 bytes (IEEE 754 binary64).
    Double,
    /// 10 bytes, and perhaps padding (x87).
    Extended,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name; `None` for an anonymous structure, whose members are used like those around it.
    pub name: Option<String>,
    /// Its offset in the structure; `None` if it is not constant, as for virtual bases.
    pub offset_bytes: Option<u64>,
    /// For a bit field: the offset of its first bit, from the start of the structure on, and its
    /// size in bits.
    pub bits: Option<(u64, u64)>,
    /// Its type; `None` if it is unknown.
    pub type_id: Option<TypeId>,
    /// True if it is a base class.
    pub is_base: bool,
}

/// A variant of an enum of Rust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The discriminant's value; `None` for the variant that has all other values.
    pub value: Option<u64>,
    /// The variant's members, as one structure.
    pub member: Member,
}

/// A variable or argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// True if it is an argument of its function.
    pub is_argument: bool,
    /// Its type; `None` if it is unknown.
    pub type_id: Option<TypeId>,
    /// The start of the module's range.
    pub(super) module: Addr,
    /// The variable's entry in the debug information.
    pub(super) entry: EntryId,
}

/// The declaration of the innermost function at an address, inlined or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The arguments in their order.
    pub arguments: Vec<Variable>,
    /// The type of the returned value; `None` if it returns nothing.
    pub returns: Option<TypeId>,
    /// The source language of the function.
    pub language: Language,
}

/// A contiguous range of the code of a source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The addresses of the code.
    pub range: AddrRange,
    /// The path of the source file.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}
