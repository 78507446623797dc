//! Filters of system calls that the program installs (seccomp(2)).
//!
//! The kernel applies them: a thread makes the program's calls itself, where it is in the program.
//! The calls that the recorder makes it execute come from one SYSCALL instruction of the cache. So a
//! filter gets a first part that allows calls from there, and is the program's own for all others.

use super::process::Process;
use crate::common::Addr;
use crate::syscalls::Call;
use crate::tracee::call_numbers::{PRCTL, SECCOMP};
use crate::tracee::{SiginfoBytes, siginfo};

const PR_SET_SECCOMP: u64 = 22;
const SECCOMP_MODE_FILTER: u64 = 2;
const SECCOMP_SET_MODE_STRICT: u64 = 0;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
/// Another process, or thread, answers for the kernel.
const SECCOMP_FILTER_FLAG_NEW_LISTENER: u64 = 8;

/// `si_code` of the signal of a filter.
const SYS_SECCOMP: i32 = 1;
/// The argument that points to the filter, of both calls.
pub(super) const FILTER_ARGUMENT: usize = 2;
/// `struct sock_fprog`: a number of instructions, and their address.
pub(super) const PROGRAM_BYTES: u64 = 16;
const INSN_BYTES: usize = 8;
/// `BPF_MAXINSNS`.
const MOST_INSNS: usize = 4096;
/// Bytes of SYSCALL: the kernel reports the address after it.
const SYSCALL_BYTES: u64 = 2;

// Classic BPF (linux/bpf_common.h), with the offsets of `struct seccomp_data`.
const LOAD_WORD: u16 = 0x20;
const LOAD_IMMEDIATE: u16 = 0x00;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const IP_LOW: u32 = 8;
const IP_HIGH: u32 = 12;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;

/// Returns true if a call installs a filter of the kind that can be given a first part.
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

/// Returns true if a call fails, since it names no filter, or has arguments that strict mode does not
/// have. Programs make such calls to learn what the kernel knows, as libseccomp does.
pub(super) fn asks_for_filters(call: &Call) -> bool {
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

/// Returns true for the signal by which a filter answers a call.
pub(super) fn is_of_filter(info: &SiginfoBytes) -> bool {
    siginfo::signal_of(info) == libc::SIGSYS && siginfo::code_of(info) == SYS_SECCOMP
}

impl Process {
    /// Returns true if a call installs a filter that is given a first part.
    pub(super) fn can_filter(&self, call: &Call) -> bool {
        self.filter_for_program(call, Addr(0)).is_some()
    }

    /// Returns the filter that a call installs with its first part, as it is laid out at `at`; `None`
    /// if the call installs none that is known.
    pub(super) fn filter_for_program(&self, call: &Call, at: Addr) -> Option<Vec<u8>> {
        if !installs_filter(call) {
            return None;
        }
        let pointer = call.args[FILTER_ARGUMENT];
        let count = usize::from(u16::try_from(self.word(pointer) & 0xffff).ok()?);
        let insns = Addr(self.word(pointer.wrapping_add(8)));
        let mut program = vec![0; count * INSN_BYTES];
        let is_known = count > 0 && self.engine.memory.read(insns, &mut program) == program.len();
        let first = first_part(self.engine.gadget().0 + SYSCALL_BYTES);
        let total = first.len() / INSN_BYTES + count;
        if !is_known || total > MOST_INSNS {
            return None;
        }
        let header = [u64::try_from(total).ok()?, at.0 + PROGRAM_BYTES];
        let header = header.iter().flat_map(|word| word.to_le_bytes());
        Some(header.chain(first).chain(program).collect())
    }
}

/// Returns instructions that allow calls from before `ip`, and go on with what follows otherwise.
fn first_part(ip: u64) -> Vec<u8> {
    let insn = |code: u16, if_not: u8, value: u32| {
        let mut bytes = [0; INSN_BYTES];
        bytes[..2].copy_from_slice(&code.to_le_bytes());
        bytes[3] = if_not;
        bytes[4..].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let (low, high) = (ip as u32, (ip >> 32) as u32);
    [
        insn(LOAD_WORD, 0, IP_LOW),
        insn(JUMP_IF_EQUAL, 3, low),
        insn(LOAD_WORD, 0, IP_HIGH),
        insn(JUMP_IF_EQUAL, 1, high),
        insn(RETURN, 0, SECCOMP_RET_ALLOW),
        // As at the start of any filter.
        insn(LOAD_IMMEDIATE, 0, 0),
    ]
    .concat()
}
