//! gdb's numbers of registers: their places in the target description and in the `g` packet.

use crate::session::Register;
use std::sync::LazyLock;

/// The general registers, RIP, the flags and the segment registers, in the order of
/// `amd64_register_names` in gdb.
const FIRST: [&str; 24] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs",
];
const X87_CONTROL: [&str; 8] =
    ["fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop"];
const AFTER_SSE: [&str; 4] = ["mxcsr", "orig_rax", "fs_base", "gs_base"];

/// All registers, in the order of gdb's numbers.
static BY_NUMBER: LazyLock<Vec<Register>> = LazyLock::new(|| {
    let named = |names: &'static [&str]| names.iter().filter_map(|name| Register::from_name(name));
    named(&FIRST)
        .chain((0..8).filter_map(Register::st))
        .chain(named(&X87_CONTROL))
        .chain((0..16).filter_map(Register::xmm))
        .chain(named(&AFTER_SSE))
        .chain((0..16).filter_map(Register::ymm_high))
        .chain((0..8).filter_map(Register::mask))
        .chain((16..32).filter_map(Register::xmm))
        .chain((16..32).filter_map(Register::ymm_high))
        .chain((0..32).filter_map(Register::zmm_high))
        .collect()
});

/// Returns all registers, in the order of gdb's numbers.
pub(super) fn registers() -> impl Iterator<Item = Register> {
    BY_NUMBER.iter().copied()
}

/// Returns the register with this gdb number; `None` if there is none.
pub(super) fn register(number: usize) -> Option<Register> {
    BY_NUMBER.get(number).copied()
}

/// Returns gdb's number of a register; `None` if gdb has no such register.
pub(super) fn number(register: Register) -> Option<usize> {
    BY_NUMBER.iter().position(|known| *known == register)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_register_has_one_number() {
        assert_eq!(registers().count(), Register::all().count());
        for known in Register::all() {
            assert_eq!(register(number(known).unwrap()), Some(known));
        }
        assert_eq!(register(registers().count()), None);
    }

    #[test]
    fn numbers_are_those_of_the_clients_that_count() {
        let named = |name| number(Register::from_name(name).unwrap());
        assert_eq!(["rip", "st0", "fop"].map(named), [Some(16), Some(24), Some(39)]);
        assert_eq!(["xmm0", "ymm15h", "zmm31h"].map(named), [Some(40), Some(75), Some(147)]);
    }
}
