//! Filters of system calls that the program installs (seccomp(2)).
//!
//! The kernel applies them: a thread makes the program's calls itself, where it is in the program.
//! The calls that the recorder makes it execute come from the *gate* (`engine::Gate`), a page with
//! a SYSCALL instruction at a fixed address. So each filter that the program installs gets a *first
//! part* of instructions (classic BPF). It allows calls from the gate, and the mmap(2) by which the
//! gate gets into a program that is executed. All other calls go on to the program's instructions.

use super::process::Process;
use crate::capture::Error;
use crate::common::Addr;
use crate::engine::Gate;
use crate::syscalls::Call;
use crate::tracee::call_numbers::{PRCTL, SECCOMP};
use crate::tracee::{SiginfoBytes, Tracee, siginfo};

const PR_SET_SECCOMP: u64 = 22;
const SECCOMP_MODE_FILTER: u64 = 2;
const SECCOMP_SET_MODE_STRICT: u64 = 0;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
/// Another process, or thread, answers for the kernel.
const SECCOMP_FILTER_FLAG_NEW_LISTENER: u64 = 8;

/// `si_code` of the SIGSYS by which a filter answers a call.
const SYS_SECCOMP: i32 = 1;
/// The index of the argument that points to the filter, of prctl(2) and seccomp(2).
pub(super) const FILTER_ARGUMENT: usize = 2;
/// The size of `struct sock_fprog`: a number of instructions, and their address.
pub(super) const PROGRAM_BYTES: u64 = 16;
const INSN_BYTES: usize = 8;
/// `BPF_MAXINSNS`.
const MOST_INSNS: usize = 4096;

// Classic BPF (linux/bpf_common.h), with the offsets of `struct seccomp_data`.
const LOAD_WORD: u16 = 0x20;
const LOAD_IMMEDIATE: u16 = 0x00;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const IP: u32 = 8;
const ARGUMENTS: u32 = 16;
/// The number of arguments of mmap(2) that a first part compares: address, size, protection, flags.
const MAPPED_BY: usize = 4;
/// linux/audit.h.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;

/// Returns true if a call is to install a filter, and no listener that answers in the kernel's
/// place. Says nothing about its success.
pub(super) fn installs_filter(call: &Call) -> bool {
    match call.number {
        PRCTL => call.args[0] == PR_SET_SECCOMP && call.args[1] == SECCOMP_MODE_FILTER,
        SECCOMP => {
            let is_answered = call.args[1] & SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
            call.args[0] == SECCOMP_SET_MODE_FILTER && !is_answered
        }
        _ => false,
    }
}

/// Returns true if a call about filters will fail and so changes nothing, since it names no filter,
/// or has arguments that strict mode does not have. Programs make such calls to learn which
/// features the kernel has, as libseccomp does.
pub(super) fn probes_filters(call: &Call) -> bool {
    let [operation, flags, pointer, ..] = call.args;
    if call.number == SECCOMP && operation == SECCOMP_SET_MODE_STRICT {
        return flags & u64::from(u32::MAX) != 0 || pointer != 0;
    }
    let is_about_filters = match call.number {
        PRCTL => operation == PR_SET_SECCOMP && flags == SECCOMP_MODE_FILTER,
        SECCOMP => operation == SECCOMP_SET_MODE_FILTER,
        _ => false,
    };
    is_about_filters && pointer == 0
}

/// Returns true if a signal's information is of the SIGSYS by which a filter answers a call.
pub(super) fn is_of_filter(info: &SiginfoBytes) -> bool {
    siginfo::signal_of(info) == libc::SIGSYS && siginfo::code_of(info) == SYS_SECCOMP
}

impl Process {
    /// Returns true if a call installs a filter that can get a first part.
    pub(super) fn can_filter(&self, call: &Call) -> bool {
        self.program_filter(call).is_some()
    }

    /// Returns the program's instructions of the filter that a call installs; `None` if it installs
    /// none, if they cannot be read, or if there is no room for a first part.
    fn program_filter(&self, call: &Call) -> Option<Vec<u8>> {
        if !installs_filter(call) {
            return None;
        }
        let pointer = call.args[FILTER_ARGUMENT];
        let count = usize::from(u16::try_from(self.read_word(pointer) & 0xffff).ok()?);
        let insns = Addr(self.read_word(pointer.wrapping_add(8)));
        let mut program = vec![0; count * INSN_BYTES];
        let is_known = count > 0 && self.engine.memory.read(insns, &mut program) == program.len();
        let fits = FIRST_INSNS + count <= MOST_INSNS;
        (is_known && fits).then_some(program)
    }

    /// Makes the gate in the process, and returns the filter that a call installs with its first
    /// part, as a `struct sock_fprog` for the address `at`, followed by the instructions. The
    /// caller lets the call use that. Returns `None`, and makes no gate, if the call installs no
    /// filter that can get a first part.
    pub(super) fn filter_for_program(
        &mut self,
        tracee: Tracee,
        call: &Call,
        at: Addr,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(program) = self.program_filter(call) else { return Ok(None) };
        let first = first_part(self.engine.make_gate(tracee)?);
        let total = (first.len() + program.len()) / INSN_BYTES;
        let header = [total as u64, at.0 + PROGRAM_BYTES];
        let header = header.iter().flat_map(|word| word.to_le_bytes());
        Ok(Some(header.chain(first).chain(program).collect()))
    }

    /// Returns the gate if the process has a filter, since its children and the programs that it
    /// executes have the filter, too, and need a gate; otherwise `None`.
    pub(super) fn gate_if_filtered(&self) -> Option<Gate> {
        self.engine.gate().filter(|_| self.is_filtered)
    }
}

/// The number of instructions of the first part: those of `allow_if` for two words, those for the
/// call that maps the gate, and one that resets the accumulator.
const FIRST_INSNS: usize = (2 * 2 + 1) + (2 * (2 + 2 * MAPPED_BY) + 1) + 1;

/// Returns the instructions of a first part: they allow calls from the gate, and the call that maps
/// it. For all other calls, the instructions after them are executed.
fn first_part(gate: Gate) -> Vec<u8> {
    let (number, args) = gate.mmap_call();
    let of_x86_64 = [(ARCH, AUDIT_ARCH_X86_64), (NUMBER, low(number))];
    let args = (ARGUMENTS..).step_by(8).zip(args).take(MAPPED_BY);
    let mapping = of_x86_64.into_iter().chain(args.flat_map(|(offset, arg)| halves(offset, arg)));
    let mut part = allow_if(&halves(IP, gate.after_entry().0));
    part.extend(allow_if(&mapping.collect::<Vec<_>>()));
    // A filter starts with 0 in its accumulator.
    part.extend(insn(LOAD_IMMEDIATE, 0, 0));
    part
}

/// Returns instructions that allow a call if its `struct seccomp_data` has all these words, each
/// given by its offset and value; otherwise, the instructions after them are executed.
fn allow_if(words: &[(u32, u32)]) -> Vec<u8> {
    let mut part = Vec::new();
    for (&(offset, value), rest) in words.iter().zip((0..words.len()).rev()) {
        part.extend(insn(LOAD_WORD, 0, offset));
        part.extend(insn(JUMP_IF_EQUAL, u8::try_from(2 * rest + 1).unwrap_or(u8::MAX), value));
    }
    part.extend(insn(RETURN, 0, SECCOMP_RET_ALLOW));
    part
}

/// Returns the two words of an 8-byte value at `offset`, for [`allow_if`].
fn halves(offset: u32, value: u64) -> [(u32, u32); 2] {
    [(offset, low(value)), (offset + 4, low(value >> 32))]
}

#[expect(clippy::cast_possible_truncation, reason = "the half that is meant")]
fn low(value: u64) -> u32 {
    value as u32
}

/// Returns a `struct sock_filter` that skips no instructions if a comparison holds, and `if_not` of
/// them otherwise.
fn insn(code: u16, if_not: u8, value: u32) -> [u8; INSN_BYTES] {
    let mut bytes = [0; INSN_BYTES];
    bytes[..2].copy_from_slice(&code.to_le_bytes());
    bytes[3] = if_not;
    bytes[4..].copy_from_slice(&value.to_le_bytes());
    bytes
}
