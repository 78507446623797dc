//! Values of a program by its debug information: expressions in the syntax of C, C++ and Rust,
//! evaluated in any state of registers and memory.
//!
//! A [`Question`] is a list of expressions. [`Evaluator::bind`] resolves its names, once for each
//! address, and [`Evaluator::answer`] evaluates it in a state at that address. A value that the
//! compiler dropped or the state lacks is missing, and is never made up.

mod arithmetic;
mod backtrace;
mod bind;
mod error;
mod evaluate;
mod home;
mod lexer;
mod located;
mod members;
mod number;
mod operators;
mod parse;
mod returned;
mod show;
mod shown;
mod text;
mod ty;

#[cfg(test)]
mod tests;

pub use bind::{Bound, Question};
pub use error::Error;
pub use evaluate::{Evaluator, Frame};
pub use located::Located;
pub use shown::{Missing, Shown, ShownFrame};
