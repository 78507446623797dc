//! Operators on numbers, by the rules of C: small integers become int, and an unsigned operand of
//! the larger size makes the result unsigned.

use super::number::Number;
use super::parse::{Binary, Unary};

/// Returns the result of `left operator right`; `None` if there is none, as in a division by zero,
/// a shift by as many bits as the number has, or an operator that needs integers and has a
/// floating-point number. Comparisons return the int 1 or 0. `None` for `&&` and `||`, which may
/// not evaluate their right operand.
pub(super) fn binary(operator: Binary, left: Number, right: Number) -> Option<Number> {
    let truth = |is_true: bool| Some(Number::integer(is_true.into(), 4, true));
    let (Number::Integer { .. }, Number::Integer { .. }) = (left, right) else {
        return real(operator, left, right);
    };
    let (size_bytes, is_signed) = match operator {
        Binary::ShiftLeft | Binary::ShiftRight => promoted(left),
        _ => common(left, right),
    };
    let converted = |number: Number| Number::integer(number.to_integer(), size_bytes, is_signed);
    let (a, b) = (converted(left).to_integer(), converted(right).to_integer());
    let shift = || u32::try_from(b).ok().filter(|bits| u64::from(*bits) < 8 * size_bytes);
    let value = match operator {
        Binary::Multiply => a.wrapping_mul(b),
        Binary::Divide => a.checked_div(b)?,
        Binary::Remainder => a.checked_rem(b)?,
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::ShiftLeft => a.wrapping_shl(shift()?),
        Binary::ShiftRight => a.wrapping_shr(shift()?),
        Binary::And => a & b,
        Binary::Xor => a ^ b,
        Binary::Or => a | b,
        Binary::Less => return truth(a < b),
        Binary::LessOrEqual => return truth(a <= b),
        Binary::Greater => return truth(a > b),
        Binary::GreaterOrEqual => return truth(a >= b),
        Binary::Equal => return truth(a == b),
        Binary::NotEqual => return truth(a != b),
        Binary::BothTrue | Binary::AnyTrue => return None,
    };
    Some(Number::integer(value, size_bytes, is_signed))
}

/// Returns the result for two operands of which at least one is a floating-point number; `None` for
/// operators that need integers. It is a double, or the int of a comparison.
#[expect(clippy::float_cmp, reason = "the user asks whether they are the same")]
fn real(operator: Binary, left: Number, right: Number) -> Option<Number> {
    let (a, b) = (left.to_real(), right.to_real());
    let truth = |is_true: bool| Some(Number::integer(is_true.into(), 4, true));
    let value = match operator {
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Less => return truth(a < b),
        Binary::LessOrEqual => return truth(a <= b),
        Binary::Greater => return truth(a > b),
        Binary::GreaterOrEqual => return truth(a >= b),
        Binary::Equal => return truth(a == b),
        Binary::NotEqual => return truth(a != b),
        _ => return None,
    };
    Some(Number::Real { value, size_bytes: 8 })
}

/// Returns the size in bytes and the signedness of an integer after C's integer promotion.
fn promoted(number: Number) -> (u64, bool) {
    match number {
        Number::Integer { size_bytes, is_signed, .. } if size_bytes >= 4 => (size_bytes, is_signed),
        _ => (4, true),
    }
}

/// Returns the size in bytes and the signedness to which C converts both operands.
fn common(left: Number, right: Number) -> (u64, bool) {
    let (left, right) = (promoted(left), promoted(right));
    let size = left.0.max(right.0);
    let is_unsigned = |(of, is_signed): (u64, bool)| of == size && !is_signed;
    (size, !is_unsigned(left) && !is_unsigned(right))
}

/// Returns the result of a unary operator, for `!` the int 1 or 0; `None` for `~` of a
/// floating-point number.
pub(super) fn unary(operator: Unary, number: Number) -> Option<Number> {
    match (operator, number) {
        (Unary::Not, number) => Some(Number::integer((!number.is_true()).into(), 4, true)),
        (Unary::Minus, Number::Real { value, size_bytes }) => {
            Some(Number::Real { value: -value, size_bytes })
        }
        (Unary::Minus, number) => {
            let (size_bytes, is_signed) = promoted(number);
            Some(Number::integer(number.to_integer().wrapping_neg(), size_bytes, is_signed))
        }
        (Unary::Invert, Number::Integer { value, .. }) => {
            let (size_bytes, is_signed) = promoted(number);
            Some(Number::integer(!value, size_bytes, is_signed))
        }
        (Unary::Invert, Number::Real { .. }) => None,
    }
}
