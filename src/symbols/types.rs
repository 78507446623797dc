//! Types and variables as the debug information describes them, at run-time addresses. No values.

use super::dwarf::EntryId;
use crate::common::{Addr, AddrRange};
use std::sync::Arc;

/// The identity of a type: it is read with [`type_of`](super::Symbols::type_of).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId {
    pub(super) module: Addr,
    pub(super) entry: EntryId,
}

/// A type, without the typedefs and qualifiers around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its size, if known.
    pub size_bytes: Option<u64>,
    /// Its kind.
    pub kind: Kind,
    /// The source language.
    pub language: Language,
}

/// A source language whose values look different.
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
    /// A number in IEEE 754 or x87 format.
    Float,
    /// A pointer or reference; `None` points to anything.
    Pointer {
        /// The type of its target.
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
        /// The member that says which variant it is; `None` if there is only one.
        discriminant: Option<Member>,
        /// The variants.
        variants: Vec<Variant>,
    },
    /// An array.
    Array {
        /// The type of its elements.
        element: Option<TypeId>,
        /// Its sizes, from outside in; `None` if unknown.
        counts: Vec<Option<u64>>,
    },
    /// An enumeration: names by their value, which is cut to the size of the type.
    Enumeration {
        /// True if its values have a sign.
        is_signed: bool,
        /// The names.
        names: Vec<(u64, String)>,
    },
    /// Code.
    Function,
    /// Another one, whose values are unknown.
    Other,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name; `None` for an anonymous structure, whose members count as those around it.
    pub name: Option<String>,
    /// Its offset, if it is constant.
    pub offset_bytes: Option<u64>,
    /// For a bit field: the offset of its first bit, from the start of the structure on, and its
    /// size in bits.
    pub bits: Option<(u64, u64)>,
    /// Its type.
    pub type_id: Option<TypeId>,
    /// True if it is a base class.
    pub is_base: bool,
}

/// A variant of an enum of Rust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The value of the discriminant; `None` for all others.
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
    /// Its type.
    pub type_id: Option<TypeId>,
    pub(super) module: Addr,
    pub(super) entry: EntryId,
}

/// The function that executes at an address, as its source says: the innermost inlined one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The arguments.
    pub arguments: Vec<Variable>,
    /// The type of the returned value; `None` if it returns nothing.
    pub returns: Option<TypeId>,
    /// The source language.
    pub language: Language,
}

/// The code of a line, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Its addresses.
    pub range: AddrRange,
    /// The path of the source file.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}
