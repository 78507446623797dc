//! Numbers, and their conversions from and to bytes.

use super::parse::Basic;
use super::shown::Missing;
use super::ty::Ty;
use crate::symbols::{FloatFormat, Kind};

/// A number with which an expression computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// An integer. `value` is in the range of its size and signedness.
    Integer { value: i128, size_bytes: u64, is_signed: bool },
    /// A floating-point number: a float with 4 bytes, else a double.
    Real { value: f64, size_bytes: u64 },
}

impl Number {
    /// Returns the integer in the low `size_bytes` bytes of `value`.
    pub(super) fn integer(value: i128, size_bytes: u64, is_signed: bool) -> Self {
        Self::Integer { value: cut(value, size_bytes, is_signed), size_bytes, is_signed }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Integer { value, .. } => *value != 0,
            Self::Real { value, .. } => *value != 0.0,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "C converts like this")]
    pub(super) fn to_real(self) -> f64 {
        match self {
            Self::Integer { value, .. } => value as f64,
            Self::Real { value, .. } => value,
        }
    }

    /// Returns the integer part: 0 for NaN, and the nearest bound of `i128` beyond them.
    #[expect(clippy::cast_possible_truncation, reason = "C converts like this")]
    pub(super) fn to_integer(self) -> i128 {
        match self {
            Self::Integer { value, .. } => value,
            Self::Real { value, .. } => value as i128,
        }
    }

    /// Returns the number's type, and its bytes in memory order. A floating-point number is a float
    /// if it has 4 bytes, else a double.
    #[expect(clippy::cast_possible_truncation, reason = "a float has less digits")]
    pub(super) fn to_bytes(self) -> (Ty, Vec<u8>) {
        match self {
            Self::Integer { value, size_bytes, is_signed } => {
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.truncate(usize::try_from(size_bytes).unwrap_or(16));
                (Ty::Basic(Basic::Integer { size_bytes, is_signed }), bytes)
            }
            Self::Real { value, size_bytes: 4 } => {
                let bytes = (value as f32).to_le_bytes().to_vec();
                (Ty::Basic(Basic::Float { size_bytes: 4 }), bytes)
            }
            Self::Real { value, .. } => {
                (Ty::Basic(Basic::Float { size_bytes: 8 }), value.to_le_bytes().to_vec())
            }
        }
    }
}

/// Returns the low `size_bytes` bytes of an integer, extended with its sign or with zeros; all of
/// it for 0 bytes, or 16 and more.
pub(super) fn cut(value: i128, size_bytes: u64, is_signed: bool) -> i128 {
    let bits = u32::try_from(size_bytes.saturating_mul(8)).unwrap_or(128).min(128);
    let shift = 128 - bits;
    match (shift, is_signed) {
        (0 | 128, _) => value,
        (_, true) => value << shift >> shift,
        (_, false) => {
            (value << shift).cast_unsigned().checked_shr(shift).map_or(0, u128::cast_signed)
        }
    }
}

/// Returns the little-endian integer in `bytes`; `None` if they are more than 16, or if it is
/// larger than an `i128` can be.
pub(super) fn integer_of(bytes: &[u8], is_signed: bool) -> Option<i128> {
    let mut all = [0; 16];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = cut(i128::from_le_bytes(all), bytes.len() as u64, is_signed);
    (is_signed || value >= 0).then_some(value)
}

/// Returns the floating-point number that `bytes` contain. Fails if its format is unknown, and for
/// numbers beyond the range of a double.
pub(super) fn real_of(bytes: &[u8], format: Option<FloatFormat>) -> Result<f64, Missing> {
    match format.ok_or(Missing::Unavailable)? {
        FloatFormat::Single => {
            bytes.first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
        }
        FloatFormat::Double => bytes.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
        FloatFormat::Extended => bytes.first_chunk().and_then(|bytes| extended(*bytes)),
    }
    .ok_or(Missing::Unavailable)
}

/// Returns the nearest double of a number in x87's extended format (SDM, volume 1, 4.2.2), maybe
/// its neighbor if that is subnormal, since it is rounded twice; `None` if the number is too large
/// or too small for a double.
fn extended(bytes: [u8; 10]) -> Option<f64> {
    let (mut low, mut high) = ([0; 8], [0; 2]);
    low.copy_from_slice(&bytes[..8]);
    high.copy_from_slice(&bytes[8..]);
    let (mantissa, high) = (u64::from_le_bytes(low), u16::from_le_bytes(high));
    let exponent = i32::from(high & 0x7fff);
    let sign = if high >> 15 == 1 { -1.0 } else { 1.0 };
    if exponent == 0x7fff {
        return Some(if mantissa << 1 == 0 { sign * f64::INFINITY } else { f64::NAN });
    }
    // In two steps, since the exponents of doubles have a smaller range.
    let shift = exponent - 16383 - 63;
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is shown")]
    let whole = mantissa as f64;
    let nearest = sign * whole * 2_f64.powi(shift / 2) * 2_f64.powi(shift - shift / 2);
    (mantissa == 0 || nearest.is_finite() && nearest != 0.0).then_some(nearest)
}

/// Returns true for signed integers, characters and enumerations, false for unsigned ones and
/// Booleans, and `None` for other kinds.
pub(super) fn signedness(kind: &Kind) -> Option<bool> {
    match kind {
        Kind::Integer { is_signed }
        | Kind::Character { is_signed }
        | Kind::Enumeration { is_signed, .. } => Some(*is_signed),
        Kind::Boolean => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads bytes as gcc stores them for the numbers.
    #[test]
    fn numbers_that_do_not_fit_are_missing() {
        let extended_of = |mantissa: u64, high: u16| {
            let mut bytes = [0; 10];
            bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
            bytes[8..].copy_from_slice(&high.to_le_bytes());
            extended(bytes)
        };
        assert_eq!(extended_of(0xa000_0000_0000_0000, 0x3fff), Some(1.25));
        assert_eq!(extended_of(0, 0x8000), Some(-0.0));
        assert_eq!(extended_of(1 << 63, 0xffff), Some(f64::NEG_INFINITY));
        assert_eq!(extended_of(1 << 63, 0x3fff + 1024), None);
        assert_eq!(extended_of(1 << 63, 1), None);
        assert_eq!(integer_of(&[0xff; 16], true), Some(-1));
        assert_eq!(integer_of(&[0xff; 16], false), None);
        assert_eq!(integer_of(&[0xff; 8], false), Some(u64::MAX.into()));
    }
}
