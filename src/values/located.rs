//! Where the value of an expression is.

use super::bind::Bound;
use super::error::Error;
use super::evaluate::{Evaluation, Evaluator, Fail, Frame};
use super::home::InFrame;
use super::parse::Item;
use super::shown::Shown;
use crate::symbols::{Home, Piece};

/// The value of an expression, and where it is.
#[derive(Clone, Debug)]
pub struct Located {
    /// Where the value is: in memory, in registers, or in neither. [`Piece::Unavailable`] if that
    /// is unknown.
    pub home: Home,
    /// The value's size; `None` if it is unknown.
    pub size_bytes: Option<u64>,
    /// The value as the user sees it.
    pub shown: Shown,
}

impl Evaluator<'_> {
    /// Evaluates a question in a frame, like [`Self::answer`], and returns where the value is too.
    /// The home may be known while the value is missing, as in memory that the state lacks. Fails
    /// if the question is not a single expression, or if the expression is wrong.
    pub fn locate(&self, bound: &Bound, frame: &Frame<'_>) -> Result<Located, Error> {
        let machine = InFrame {
            registers: frame.registers,
            machine: frame.machine,
            is_innermost: frame.is_innermost,
        };
        let evaluation = Evaluation { evaluator: self, bound, frame, machine: &machine };
        let [(_, Item::Value(expr))] = bound.items.as_slice() else {
            return Err(Error::NotOneValue);
        };
        match evaluation.value(expr) {
            Ok(value) => Ok(Located {
                size_bytes: self.size_of(&value.ty),
                shown: self.show(&value, &machine),
                home: value.home,
            }),
            Err(Fail::Missing(missing)) => {
                let home = Home::of(Piece::Unavailable);
                Ok(Located { home, size_bytes: None, shown: Shown::Missing(missing) })
            }
            Err(Fail::Error(error)) => Err(error),
        }
    }
}
