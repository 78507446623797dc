//! Evaluates binary operators and casts.

use super::arithmetic;
use super::evaluate::{Evaluated, Evaluation, Fail, Val, value_of};
use super::number::Number;
use super::parse::{Basic, Binary, Expr};
use super::shown::Missing;
use super::ty::Ty;
use crate::symbols::{Home, Piece};
use std::sync::Arc;

impl Evaluation<'_, '_> {
    /// Evaluates `left operator right` by the rules of C: `&&` and `||` evaluate their right
    /// operand only if the left one does not decide.
    pub(super) fn binary(&self, operator: Binary, left: &Expr, right: &Expr) -> Evaluated<Val> {
        // Long rows of operators recurse here, so this has few variables.
        match operator {
            Binary::BothTrue if !self.is_true(left)? => Ok(truth(false)),
            Binary::AnyTrue if self.is_true(left)? => Ok(truth(true)),
            Binary::BothTrue | Binary::AnyTrue => self.is_true(right).map(truth),
            _ => self.combined(operator, &self.value(left)?, &self.value(right)?),
        }
    }

    /// Evaluates an expression as a condition: returns true if it is not 0.
    fn is_true(&self, of: &Expr) -> Evaluated<bool> {
        let value = self.value(of)?;
        self.required_number(&value, "this operator").map(|number| number.is_true())
    }

    /// Returns `left operator right`, of two values. A pointer plus or minus a number moves by
    /// elements, and the difference of two pointers is a number of elements; for other operators a
    /// pointer is its address. The result is missing if it is undefined, as in a division by zero.
    fn combined(&self, operator: Binary, left: &Val, right: &Val) -> Evaluated<Val> {
        let (left, right) = (self.decayed(left)?, self.decayed(right)?);
        let is_pointer = |value: &Val| self.evaluator.target_of(&value.ty).is_some();
        match (operator, is_pointer(&left), is_pointer(&right)) {
            (Binary::Add, true, false) => {
                return self.offset_pointer(&left, self.required_number(&right, "+")?.to_integer());
            }
            (Binary::Add, false, true) => {
                return self.offset_pointer(&right, self.required_number(&left, "+")?.to_integer());
            }
            (Binary::Subtract, true, false) => {
                let by = self.required_number(&right, "-")?.to_integer().wrapping_neg();
                return self.offset_pointer(&left, by);
            }
            (Binary::Subtract, true, true) => {
                let target = self.evaluator.target_of(&left.ty);
                let size = target.and_then(|target| self.evaluator.size_of(&target)).unwrap_or(1);
                let of = |value| Ok::<_, Fail>(self.required_number(value, "-")?.to_integer());
                let difference = of(&left)?.wrapping_sub(of(&right)?);
                let count = difference.checked_div(size.into()).ok_or(Missing::Unavailable)?;
                return Ok(value_of(Number::integer(count, 8, true)));
            }
            _ => {}
        }
        let (left, right) = (
            self.required_number(&left, "this operator")?,
            self.required_number(&right, "this operator")?,
        );
        let result = arithmetic::binary(operator, left, right);
        Ok(value_of(result.ok_or(Missing::Unavailable)?))
    }

    /// Converts a number or pointer to a basic type, or to a pointer to it with this many stars.
    /// Fails for other values, and for `(void)`.
    pub(super) fn cast(&self, basic: Basic, stars: u32, value: &Val) -> Evaluated<Val> {
        let number = self.required_number(value, "a cast")?;
        let mut ty = Ty::Basic(basic);
        for _ in 0..stars {
            ty = Ty::Pointer(Arc::new(ty));
        }
        if stars > 0 {
            let (_, bytes) = Number::integer(number.to_integer(), 8, false).to_bytes();
            return Ok(Val { ty, home: Home::of(Piece::Bytes(bytes)) });
        }
        let (_, bytes) = match basic {
            Basic::Integer { size_bytes, is_signed } => {
                Number::integer(number.to_integer(), size_bytes, is_signed).to_bytes()
            }
            Basic::Character { is_signed } => {
                Number::integer(number.to_integer(), 1, is_signed).to_bytes()
            }
            Basic::Boolean => Number::integer(number.is_true().into(), 1, false).to_bytes(),
            Basic::Float { size_bytes } => {
                Number::Real { value: number.to_real(), size_bytes }.to_bytes()
            }
            Basic::Void => return Err(self.wrong("(void)", "nothing", value)),
        };
        Ok(Val { ty, home: Home::of(Piece::Bytes(bytes)) })
    }
}

/// Returns the result of a condition: the int 1 or 0.
fn truth(is_true: bool) -> Val {
    value_of(Number::integer(is_true.into(), 4, true))
}
