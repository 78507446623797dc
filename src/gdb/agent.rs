//! Agent expressions: the bytecode into which gdb compiles conditions (gdb's manual, appendix "The
//! GDB Agent Expression Mechanism"). They compute with 64-bit integers on a stack. Evaluation fails
//! on unknown values and unsupported operations.

use super::numbers;
use crate::common::Addr;
use crate::session::KnownRegisters;

/// The maximum number of executed operations.
const OPERATIONS_LIMIT: usize = 10_000;
const STACK_LIMIT: usize = 256;

/// The reason why an expression has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A register or memory with an unknown value.
    Unknown,
    /// The expression is malformed, takes too many operations, or uses an unsupported one.
    Malformed,
}

/// Evaluates an expression with these registers, and returns the number that is on top of the stack
/// at its end. `read` fills a buffer from memory, and returns true if all of it is known. Also
/// fails if the expression has not ended after [`OPERATIONS_LIMIT`] operations.
pub(super) fn evaluate(
    code: &[u8],
    registers: &KnownRegisters,
    read: &dyn Fn(Addr, &mut [u8]) -> bool,
) -> Result<i64, Fault> {
    let mut machine = Machine { code, at: 0, stack: Vec::new(), registers, read };
    for _ in 0..OPERATIONS_LIMIT {
        if let Some(value) = machine.step()? {
            return Ok(value);
        }
    }
    Err(Fault::Malformed)
}

/// The state of an evaluation.
struct Machine<'a> {
    code: &'a [u8],
    /// The offset of the next operation.
    at: usize,
    stack: Vec<i64>,
    registers: &'a KnownRegisters,
    read: &'a dyn Fn(Addr, &mut [u8]) -> bool,
}

impl Machine<'_> {
    /// Executes one operation. Returns the expression's value if the operation is its end; `None`
    /// for others.
    fn step(&mut self) -> Result<Option<i64>, Fault> {
        // The codes and names of operations are in section "Bytecode Descriptions" of the appendix.
        let operation = self.operand(1)?;
        match operation {
            0x02..=0x0b | 0x0f..=0x11 | 0x13..=0x15 => self.binary(operation)?,
            // log_not and bit_not.
            0x0e => self.unary(|value| i64::from(value == 0))?,
            0x12 => self.unary(|value| !value)?,
            // ext and zero_ext.
            0x16 => self.extend(true)?,
            0x2a => self.extend(false)?,
            // ref8 to ref64.
            0x17 => self.load(1)?,
            0x18 => self.load(2)?,
            0x19 => self.load(4)?,
            0x1a => self.load(8)?,
            // if_goto and goto.
            0x20 => {
                let target = self.operand(2)?;
                if self.pop()? != 0 {
                    self.jump(target)?;
                }
            }
            0x21 => {
                let target = self.operand(2)?;
                self.jump(target)?;
            }
            // const8 to const64.
            0x22 => self.constant(1)?,
            0x23 => self.constant(2)?,
            0x24 => self.constant(4)?,
            0x25 => self.constant(8)?,
            // reg, end, dup and pop.
            0x26 => self.register()?,
            0x27 => return self.pop().map(Some),
            0x28 => self.pick(0)?,
            0x29 => drop(self.pop()?),
            // swap, pick and rot.
            0x2b => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.push(b)?;
                self.push(a)?;
            }
            0x32 => {
                let depth = self.operand(1)?;
                self.pick(usize::try_from(depth).map_err(|_| Fault::Malformed)?)?;
            }
            0x33 => {
                let (c, b, a) = (self.pop()?, self.pop()?, self.pop()?);
                for value in [c, a, b] {
                    self.push(value)?;
                }
            }
            // Floating point, tracing, trace variables and printing.
            _ => return Err(Fault::Malformed),
        }
        Ok(None)
    }

    /// Reads the next `bytes` bytes of the code as a number, the most significant byte first, and
    /// skips them. Fails beyond the end of the code.
    fn operand(&mut self, bytes: usize) -> Result<u64, Fault> {
        let end = self.at + bytes;
        let operand = self.code.get(self.at..end).ok_or(Fault::Malformed)?;
        self.at = end;
        Ok(operand.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Pushes a number. Fails if the stack has [`STACK_LIMIT`] numbers already.
    fn push(&mut self, value: i64) -> Result<(), Fault> {
        if self.stack.len() >= STACK_LIMIT {
            return Err(Fault::Malformed);
        }
        self.stack.push(value);
        Ok(())
    }

    /// Removes and returns the top of the stack. Fails if there is none.
    fn pop(&mut self) -> Result<i64, Fault> {
        self.stack.pop().ok_or(Fault::Malformed)
    }

    /// Continues at an offset of the code. Does not check it: the next operation fails outside the
    /// code.
    fn jump(&mut self, target: u64) -> Result<(), Fault> {
        self.at = usize::try_from(target).map_err(|_| Fault::Malformed)?;
        Ok(())
    }

    /// Pushes the operand of `bytes` bytes, extended with zeros.
    fn constant(&mut self, bytes: usize) -> Result<(), Fault> {
        let value = self.operand(bytes)?;
        self.push(value.cast_signed())
    }

    /// Pushes a copy of the number that is `depth` below the top of the stack. Fails if there is
    /// none.
    fn pick(&mut self, depth: usize) -> Result<(), Fault> {
        let place = self.stack.len().checked_sub(depth + 1);
        let value = place.and_then(|place| self.stack.get(place)).copied();
        self.push(value.ok_or(Fault::Malformed)?)
    }

    /// Replaces the top of the stack by the result of `compute`. Fails if there is none.
    fn unary(&mut self, compute: fn(i64) -> i64) -> Result<(), Fault> {
        let value = self.pop()?;
        self.push(compute(value))
    }

    /// Replaces the two numbers at the top of the stack by the result of an operation, of which the
    /// upper one is the right operand. Fails for a division by zero. A shift by 64 or more bits
    /// leaves 0 or the sign.
    fn binary(&mut self, operation: u64) -> Result<(), Fault> {
        let (b, a) = (self.pop()?, self.pop()?);
        let (a_bits, b_bits) = (a.cast_unsigned(), b.cast_unsigned());
        let shift = u32::try_from(b_bits).ok().filter(|shift| *shift < 64);
        let quotient = |value: Option<i64>| value.ok_or(Fault::Malformed);
        let unsigned = |value: Option<u64>| quotient(value.map(u64::cast_signed));
        let value = match operation {
            // add, sub, mul, div and rem with and without signs, lsh, rsh_signed, rsh_unsigned.
            0x02 => a.wrapping_add(b),
            0x03 => a.wrapping_sub(b),
            0x04 => a.wrapping_mul(b),
            0x05 => quotient((b != 0).then(|| a.wrapping_div(b)))?,
            0x06 => unsigned(a_bits.checked_div(b_bits))?,
            0x07 => quotient((b != 0).then(|| a.wrapping_rem(b)))?,
            0x08 => unsigned(a_bits.checked_rem(b_bits))?,
            0x09 => shift.map_or(0, |shift| a << shift),
            0x0a => a >> shift.unwrap_or(63),
            0x0b => shift.map_or(0, |shift| (a_bits >> shift).cast_signed()),
            // bit_and, bit_or, bit_xor, equal, less_signed, less_unsigned.
            0x0f => a & b,
            0x10 => a | b,
            0x11 => a ^ b,
            0x13 => i64::from(a == b),
            0x14 => i64::from(a < b),
            _ => i64::from(a_bits < b_bits),
        };
        self.push(value)
    }

    /// Replaces the top of the stack by its low bits, as many as the operand says, extended to 64
    /// bits with or without their sign. Fails for an operand other than 1 to 64.
    fn extend(&mut self, signed: bool) -> Result<(), Fault> {
        let bits = self.operand(1)?;
        let value = self.pop()?;
        let unused = match u32::try_from(bits) {
            Ok(bits @ 1..=64) => 64 - bits,
            _ => return Err(Fault::Malformed),
        };
        let high = value << unused;
        let low =
            if signed { high >> unused } else { (high.cast_unsigned() >> unused).cast_signed() };
        self.push(low)
    }

    /// Replaces the address on top of the stack by the little-endian number of `bytes` bytes there,
    /// extended with zeros. Fails with [`Fault::Unknown`] if one of them is unknown.
    fn load(&mut self, bytes: usize) -> Result<(), Fault> {
        let addr = Addr(self.pop()?.cast_unsigned());
        let mut value = [0; 8];
        if !(self.read)(addr, &mut value[..bytes]) {
            return Err(Fault::Unknown);
        }
        self.push(i64::from_le_bytes(value))
    }

    /// Pushes the low 64 bits of the register that the operand names by gdb's number; a shorter one
    /// is extended with zeros. Fails if there is no such register or its value is unknown.
    fn register(&mut self) -> Result<(), Fault> {
        let number = usize::try_from(self.operand(2)?).map_err(|_| Fault::Malformed)?;
        let register = numbers::register(number).ok_or(Fault::Malformed)?;
        let bytes = self.registers.bytes(register).ok_or(Fault::Unknown)?;
        let mut value = [0; 8];
        let count = bytes.len().min(value.len());
        value[..count].copy_from_slice(&bytes[..count]);
        self.push(i64::from_le_bytes(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Register;
    use proptest::prelude::*;

    fn value(code: &[u8]) -> Result<i64, Fault> {
        let mut registers = KnownRegisters::default();
        registers.set(Register::RBP, Some(0x1000));
        registers.set(Register::EFLAGS, Some(0x246));
        let read = |addr: Addr, buf: &mut [u8]| {
            buf.fill(0xfe);
            addr == Addr(0xfec)
        };
        evaluate(code, &registers, &read)
    }

    #[test]
    fn a_condition_as_gdb_compiles_it() {
        // reg 6; const8 -20 extended; add; ref32; ext 32; const8 3; equal; end
        let code =
            [0x26, 0, 6, 0x22, 0xec, 0x16, 8, 0x02, 0x19, 0x16, 32, 0x23, 1, 2, 0x13, 0x0e, 0x27];
        assert_eq!(value(&code), Ok(1));
        assert_eq!(value(&[0x26, 0, 17, 0x27]), Ok(0x246));
        assert_eq!(value(&[0x26, 0, 0, 0x27]), Err(Fault::Unknown), "rax is not known");
        assert_eq!(value(&[0x22, 1, 0x1a, 0x27]), Err(Fault::Unknown), "memory is not known");
    }

    #[test]
    fn each_operation() {
        let two = |a: u8, b: u8, operation: u8| {
            value(&[0x22, a, 0x16, 8, 0x22, b, 0x16, 8, operation, 0x27])
        };
        for (operation, expected) in [
            (0x02, -4),
            (0x03, -10),
            (0x04, -21),
            (0x05, -2),
            (0x07, -1),
            (0x09, -56),
            (0x0a, -1),
            (0x0f, 1),
            (0x10, -5),
            (0x11, -6),
            (0x13, 0),
            (0x14, 1),
            (0x15, 0),
        ] {
            assert_eq!(two(0xf9, 3, operation), Ok(expected), "{operation:#x}");
        }
        assert_eq!(two(100, 7, 0x06), Ok(14));
        assert_eq!(two(100, 7, 0x08), Ok(2));
        assert_eq!(two(0xff, 60, 0x0b), Ok(15));
        assert_eq!(two(1, 0, 0x05), Err(Fault::Malformed), "division by zero");
        assert_eq!(value(&[0x22, 5, 0x12, 0x27]), Ok(-6));
        assert_eq!(value(&[0x22, 0xff, 0x16, 4, 0x2a, 8, 0x27]), Ok(255));
        assert_eq!(value(&[0x22, 1, 0x22, 2, 0x2b, 0x03, 0x27]), Ok(1), "swap");
        assert_eq!(value(&[0x22, 1, 0x22, 2, 0x22, 3, 0x32, 2, 0x27]), Ok(1), "pick");
        assert_eq!(value(&[0x22, 1, 0x22, 2, 0x22, 3, 0x33, 0x27]), Ok(2), "rot");
        assert_eq!(value(&[0x22, 0, 0x20, 0, 8, 0x22, 7, 0x27, 0x22, 9, 0x27]), Ok(7));
        assert_eq!(value(&[0x22, 1, 0x20, 0, 8, 0x22, 7, 0x27, 0x22, 9, 0x27]), Ok(9));
        assert_eq!(value(&[0x21, 0, 0]), Err(Fault::Malformed), "without an end");
    }

    proptest! {
        #[test]
        fn any_bytes_end(code in prop::collection::vec(any::<u8>(), 0..60)) {
            // Evaluation returns for any code.
            let _ = value(&code);
        }
    }
}
