//! Errors of expressions, whatever the state of the program.

use crate::common::Addr;

/// An error of an expression, not of the state in which it is evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The expression does not follow the syntax.
    #[error("{text:?}: {what}, at character {at}")]
    Syntax {
        /// The expression.
        text: String,
        /// The position of the fault: the number of the character in `text`, from 1.
        at: usize,
        /// A description of the fault.
        what: &'static str,
    },
    /// No variable has the name at the address.
    #[error("no variable {name:?} at {addr}{function}")]
    NoVariable {
        /// The name in the expression.
        name: String,
        /// The address at which the name was looked up.
        addr: Addr,
        /// The function at the address, as `, in NAME`; empty if unknown.
        function: String,
    },
    /// There is no debug information for the code.
    #[error(
        "there is no debug information for the code at {0}, so its variables are unknown: compile \
         with -g"
    )]
    NoDebugInfo(Addr),
    /// A structure has no member with the name.
    #[error("{of} has no member {name:?}")]
    NoMember {
        /// The structure's type in words.
        of: String,
        /// The member's name.
        name: String,
    },
    /// An operand has a type that the operation does not take.
    #[error("{what} needs {needs}, and {of} is none")]
    WrongType {
        /// The operator or cast.
        what: &'static str,
        /// The types that the operation takes, in words.
        needs: &'static str,
        /// The operand's type in words.
        of: String,
    },
    /// One expression was needed, but the question has none, several, or a `bt`.
    #[error("give one expression, such as `a->owner` or `$rax`")]
    NotOneValue,
    /// A register does not exist.
    #[error("there is no register ${0}: give a general register of x86-64, such as $rax")]
    NoRegister(String),
}
