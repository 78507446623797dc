//! Why an expression cannot be evaluated anywhere.

use crate::common::Addr;

/// An error of an expression, not of the state in which it is evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not in the syntax.
    #[error("{text:?}: {what}, at character {at}")]
    Syntax {
        /// The expression.
        text: String,
        /// The number of the character, from 1.
        at: usize,
        /// The fault.
        what: &'static str,
    },
    /// A name has no meaning at an address.
    #[error("no variable {name:?} at {addr}{function}")]
    NoVariable {
        /// The name.
        name: String,
        /// The address.
        addr: Addr,
        /// Its function in words, if known.
        function: String,
    },
    /// There is no debug information for the code.
    #[error(
        "there is no debug information for the code at {0}, so its variables are unknown: compile \
         with -g"
    )]
    NoDebugInfo(Addr),
    /// A member does not exist.
    #[error("{of} has no member {name:?}")]
    NoMember {
        /// The type in words.
        of: String,
        /// The member.
        name: String,
    },
    /// An operation does not exist for a type.
    #[error("{what} needs {needs}, and {of} is none")]
    WrongType {
        /// The operation.
        what: &'static str,
        /// The types that it takes.
        needs: &'static str,
        /// The type in words.
        of: String,
    },
    /// A question is not for one value.
    #[error("give one expression, such as `a->owner` or `$rax`")]
    NotOneValue,
    /// A register does not exist.
    #[error("there is no register ${0}: give a general register of x86-64, such as $rax")]
    NoRegister(String),
}
