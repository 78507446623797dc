//! The vsyscall page: three system calls at fixed addresses, of programs from long ago. The kernel
//! makes each call when execution faults there (`vsyscall_64.c` of arch/x86), so there is no code
//! to translate, to step or to decode. The recorder makes the call in the kernel's place.

use super::address_space::AddressSpace;
use super::error::Error;
use crate::common::Addr;
use crate::insn::Registers;
use crate::tracee::call_numbers::{GETCPU, GETTIMEOFDAY, TIME};
use crate::tracee::{Memory, Tracee};

/// Returns the number of the system call that execution at an address makes, as the address is an
/// entry of the vsyscall page; `None` for all others.
pub const fn vsyscall_at(ip: Addr) -> Option<u64> {
    match ip.0 {
        0xffff_ffff_ff60_0000 => Some(GETTIMEOFDAY),
        0xffff_ffff_ff60_0400 => Some(TIME),
        0xffff_ffff_ff60_0800 => Some(GETCPU),
        _ => None,
    }
}

/// Makes the vsyscall at whose entry a thread is stopped, through the SYSCALL instruction at
/// `gadget`, and moves the thread to the call's return address, which this returns. Returns `None`,
/// with the thread unmoved, if it is at no vsyscall, if its process has no vsyscall page, or if the
/// call faults, as it would natively.
pub fn make_vsyscall(
    tracee: Tracee,
    memory: &Memory,
    space: &AddressSpace,
    gadget: Addr,
) -> Result<Option<Addr>, Error> {
    let registers = tracee.registers()?;
    let ip = Addr(registers.rip);
    let Some(number) = vsyscall_at(ip).filter(|_| space.is_executable(ip)) else { return Ok(None) };
    let mut back = [0; 8];
    if memory.read(Addr(registers.rsp), &mut back) < back.len() {
        return Ok(None);
    }
    // getcpu(2) ignores its third argument.
    let result = tracee.inject(gadget, number, [registers.rdi, registers.rsi, 0, 0, 0, 0])?;
    if result == i64::from(-libc::EFAULT) {
        return Ok(None);
    }
    let back = u64::from_le_bytes(back);
    tracee.set_registers(&Registers {
        rip: back,
        rsp: registers.rsp.wrapping_add(8),
        rax: result.cast_unsigned(),
        orig_rax: u64::MAX,
        ..registers
    })?;
    Ok(Some(Addr(back)))
}
