//! Glue that checks system calls before they are made, and files after they were opened. A call is
//! made in the cache only if it does not wait and has no effect but those of its [`LoggedClass`].
//! This follows from its arguments, from the classes of its descriptors ([`DescriptorClass`]), or
//! from a *probe*: a system call of the glue itself, which writes to the record.

use super::super::emit::{Emitter, Gpr};
use super::super::slots;
use super::clock::{Clock, emit_choice};
use super::table::{DESCRIPTORS, DEVICE_COUNT, DEVICES, DescriptorClass, FILE_KINDS, UNMAPPED};
use super::{HEADER_BYTES, LoggedClass, R10, RAX, RCX, RDI, RDX, RSI, STOP_BYTES, Word};

/// Commands of fcntl(2) that write nothing and do not wait: `F_DUPFD`, `F_GETFD`, `F_SETFD`,
/// `F_GETFL`, `F_DUPFD_CLOEXEC`.
const COMMANDS: [i32; 5] = [0, 1, 2, 3, 1030];
/// Operations of futex(2) that wake: `FUTEX_WAKE`, also with `FUTEX_PRIVATE_FLAG`.
const WAKES: [i32; 2] = [1, 129];
/// Requests of ioctl(2): for the settings of a terminal, and to clone a file.
pub(super) const TCGETS: i32 = 0x5401;
const FICLONE: i32 = 0x4004_9409;
const MOV_RCX_R8: [u8; 3] = [0x4c, 0x89, 0xc1];
const MOV_RCX_R10: [u8; 3] = [0x4c, 0x89, 0xd1];
const MOV_ECX_R10D: [u8; 3] = [0x44, 0x89, 0xd1];
const MOV_RCX_RSI: [u8; 3] = [0x48, 0x89, 0xf1];
const MOV_RCX_RDI: [u8; 3] = [0x48, 0x89, 0xf9];
const MOV_RCX_RDX: [u8; 3] = [0x48, 0x89, 0xd1];
/// The lowest class of calls that are checked, and the number of these classes. Calls of other
/// classes are made at once; those without a class never get here.
const FIRST_CHECKED: u8 = LoggedClass::TimeAtRsi as u8;
const CHECKED_CLASSES: usize = LoggedClass::EventsByMask as usize - FIRST_CHECKED as usize + 1;
const FSTAT: u32 = 5;
const NEWFSTATAT: u32 = 262;
/// Offsets in `struct stat`: the device, the inode's number, and the second byte of the mode.
const DEVICE: u32 = 0;
const INODE: u32 = 8;
const MODE_HIGH: u32 = 25;

/// The instructions that copy a descriptor from the register that it is in.
#[derive(Clone, Copy)]
struct InRegister {
    /// `movzx ecx, low byte`
    low: [u8; 4],
    /// `mov r11d, register`
    word: [u8; 3],
}

const IN_RDI: InRegister = InRegister { low: [0x40, 0x0f, 0xb6, 0xcf], word: [0x41, 0x89, 0xfb] };
const IN_RDX: InRegister = InRegister { low: [0x40, 0x0f, 0xb6, 0xca], word: [0x41, 0x89, 0xd3] };

/// The addresses of the code that checks calls before they are made, and the jumps out of it.
pub(super) struct Checks {
    /// The code that makes the glue's own newfstatat(2), or prepares its `epoll_wait(2)`: in it,
    /// RAX, RDX and R10 may not be the program's.
    pub(super) probes: std::ops::Range<u64>,
    /// The jump to the glue's own `epoll_wait(2)`, with R10 set to 0.
    pub(super) events: usize,
    /// The jumps that are taken to read the clocks, by [`Clock`].
    pub(super) clocks: [usize; 2],
    /// The address of the code by which the thread stops before the call.
    pub(super) stop: u64,
}

/// Emits code that checks a call, whose registers are in the record. It continues after its end if
/// the call is to be made, and leaves by a returned jump for a probe for events or a clock.
/// Otherwise it goes to the stop before the call. It destroys RCX and R11, and may write after the
/// record's header. On the jump to the probe for events, R10 is 0.
pub(super) fn emit_checks(emitter: &mut Emitter) -> Checks {
    let (mut to_call, mut to_stop) = (Vec::new(), Vec::new());
    // movzx ecx, ax
    emitter.put(&[0x0f, 0xb7, 0xc8]);
    emitter.load_class();
    // lea rcx, [rcx - first]
    emitter.put(&[0x48, 0x8d, 0x49, FIRST_CHECKED.wrapping_neg()]);
    let fields: [usize; CHECKED_CLASSES] = std::array::from_fn(|number| {
        if number > 0 {
            emitter.decrement_rcx();
        }
        emitter.jump_if_rcx_is_0()
    });
    to_call.push(emitter.jump_from_here());
    // In the order of `LoggedClass`, from `FIRST_CHECKED` on.
    let [
        gets_time,
        terminal,
        action,
        time,
        command,
        reads,
        receives,
        writes,
        closes,
        copies,
        wakes,
        opens,
        events,
        by_mask,
    ] = fields;
    emitter.aim_here(gets_time);
    let (without, get_time) = emit_choice(emitter, Clock::GetTime);
    to_call.push(without);
    emitter.aim_here(terminal);
    emit_requests(emitter, &[TCGETS], &mut to_call);
    let mut clone_requests = Vec::new();
    emit_requests(emitter, &[FICLONE], &mut clone_requests);
    to_stop.push(emitter.jump_from_here());
    emitter.aim_here(action);
    emit_pointer_check(emitter, MOV_RCX_RDX, MOV_RCX_RSI, &mut to_call, &mut to_stop);
    emitter.aim_here(time);
    let mut reads_time = Vec::new();
    emit_pointer_check(emitter, MOV_RCX_RDI, MOV_RCX_RSI, &mut reads_time, &mut to_stop);
    for field in reads_time {
        emitter.aim_here(field);
    }
    let (without, time_of_day) = emit_choice(emitter, Clock::TimeOfDay);
    to_call.push(without);
    emitter.aim_here(command);
    emit_requests(emitter, &COMMANDS, &mut to_call);
    to_stop.push(emitter.jump_from_here());
    emitter.aim_here(wakes);
    emit_requests(emitter, &WAKES, &mut to_call);
    to_stop.push(emitter.jump_from_here());
    emitter.aim_here(receives);
    emit_zero_check(emitter, &[&MOV_RCX_R8, &MOV_ECX_R10D], &mut to_stop);
    // The descriptor is then checked as that of a read.
    emitter.aim_here(reads);
    emit_descriptor_check(emitter, IN_RDI, &mut to_stop);
    to_call.push(emitter.jump_from_here());
    emitter.aim_here(copies);
    emit_zero_check(emitter, &[&MOV_RCX_RSI, &MOV_RCX_R10], &mut to_stop);
    emit_descriptor_check(emitter, IN_RDI, &mut to_stop);
    emit_descriptor_check(emitter, IN_RDX, &mut to_stop);
    let free_copies = emitter.jump_if_rcx_is_0();
    to_stop.push(emitter.jump_from_here());
    // A request to clone a file is checked as a write.
    for field in clone_requests.into_iter().chain([writes]) {
        emitter.aim_here(field);
    }
    emit_descriptor_check(emitter, IN_RDI, &mut to_stop);
    // Both jumps are taken if the descriptor may be written to.
    to_call.extend([free_copies, emitter.jump_if_rcx_is_0()]);
    to_stop.push(emitter.jump_from_here());
    emitter.aim_here(closes);
    emit_closing(emitter, &mut to_call);
    emitter.aim_here(by_mask);
    emit_zero_check(emitter, &[&MOV_RCX_R8], &mut to_stop);
    // Continues with the probe for events.
    emitter.aim_here(events);
    let start = emitter.here();
    // mov r10d, 0
    emitter.put(&[0x41, 0xba, 0, 0, 0, 0]);
    let events = emitter.jump_from_here();
    emitter.aim_here(opens);
    let end = emit_file_probe(emitter, &mut to_call, &mut to_stop);
    for field in to_stop {
        emitter.aim_here(field);
    }
    let stop = emitter.here();
    emit_jump_to_stop(emitter);
    for field in to_call {
        emitter.aim_here(field);
    }
    Checks { probes: start..end, events, clocks: [get_time, time_of_day], stop }
}

/// Emits the SYSCALL of an `epoll_wait(2)` that does not wait, as R10 is 0. Without events, or
/// after an error, the code restores the registers and goes to `stop`. Returns the jump that is
/// taken if there are some, with their number in RAX.
pub(super) fn emit_events_probe(emitter: &mut Emitter, stop: u64) -> usize {
    emitter.put(&[0x0f, 0x05]);
    // mov rcx, rax
    emitter.put(&[0x48, 0x89, 0xc1]);
    let mut none = vec![emitter.jump_if_rcx_is_0()];
    // bswap rcx; movzx ecx, cl: 0 if it is not negative
    emitter.put(&[0x48, 0x0f, 0xc9, 0x0f, 0xb6, 0xc9]);
    let some = emitter.jump_if_rcx_is_0();
    none.push(emitter.jump_from_here());
    for field in none {
        emitter.aim_here(field);
    }
    emitter.load(Gpr::Rcx, slots::LOG);
    for (register, word) in [(RAX, Word::Rax), (R10, Word::R10)] {
        emitter.load_at(register, RCX, word.offset());
    }
    emitter.jump(stop);
    some
}

/// Emits code that goes to the stop before the call: it is [`STOP_BYTES`] before the address to go
/// on at. R11 is the budget there.
fn emit_jump_to_stop(emitter: &mut Emitter) {
    emitter.load(Gpr::Rcx, slots::JUMP);
    // lea rcx, [rcx - bytes]
    emitter.put(&[0x48, 0x8d, 0x49, STOP_BYTES.wrapping_neg()]);
    emitter.store(Gpr::Rcx, slots::JUMP);
    emitter.load(Gpr::R11, slots::TRACE_POINTER);
    emitter.jump_slot(slots::JUMP);
}

/// Emits code that takes a jump of `to_call` if the register that `set` copies to RCX is not 0 and
/// that of `unset` is, and otherwise one of `to_stop`. It never falls through.
fn emit_pointer_check(
    emitter: &mut Emitter,
    set: [u8; 3],
    unset: [u8; 3],
    to_call: &mut Vec<usize>,
    to_stop: &mut Vec<usize>,
) {
    emitter.put(&set);
    to_stop.push(emitter.jump_if_rcx_is_0());
    emitter.put(&unset);
    to_call.push(emitter.jump_if_rcx_is_0());
    to_stop.push(emitter.jump_from_here());
}

/// Emits jumps that are taken if ESI is one of `requests`, and adds them to `taken`. Falls through
/// otherwise. Destroys RCX.
fn emit_requests(emitter: &mut Emitter, requests: &[i32], taken: &mut Vec<usize>) {
    for request in requests {
        // lea ecx, [rsi - request]: the kernel takes 32 bits of it
        emitter.put(&[0x8d, 0x8e]);
        emitter.put_u32(request.wrapping_neg().cast_unsigned());
        taken.push(emitter.jump_if_rcx_is_0());
    }
}

/// Emits code that continues if some registers are 0, and otherwise takes a jump of `to_stop`.
/// `copies` are the instructions that copy each of them to RCX.
fn emit_zero_check(emitter: &mut Emitter, copies: &[&[u8; 3]], to_stop: &mut Vec<usize>) {
    for copy in copies {
        emitter.put(*copy);
        let is_0 = emitter.jump_if_rcx_is_0();
        to_stop.push(emitter.jump_from_here());
        emitter.aim_here(is_0);
    }
}

/// Emits code that continues if calls on the descriptor in a register do not wait, and otherwise
/// takes a jump of `to_stop`. RCX is then 0 if the descriptor may be written to.
fn emit_descriptor_check(emitter: &mut Emitter, fd: InRegister, to_stop: &mut Vec<usize>) {
    to_stop.push(emit_descriptor(emitter, fd));
    // movzx ecx, byte gs:[rcx + descriptors]
    emitter.put(&[0x65, 0x0f, 0xb6, 0x89]);
    emitter.put_u32(slots::SYSCALL_CLASSES + DESCRIPTORS);
    to_stop.push(emitter.jump_if_rcx_is_0());
    emitter.decrement_rcx();
    to_stop.push(emitter.jump_if_rcx_is_0());
    emitter.decrement_rcx();
}

/// Emits code that copies the descriptor in a register to RCX. Returns the jump that is taken if
/// the descriptor is too large for the table. Destroys R11.
fn emit_descriptor(emitter: &mut Emitter, fd: InRegister) -> usize {
    emitter.put(&fd.low);
    emitter.put(&fd.word);
    emitter.subtract_from_rcx();
    let small = emitter.jump_if_rcx_is_0();
    let large = emitter.jump_from_here();
    emitter.aim_here(small);
    emitter.put(&fd.low);
    large
}

/// Emits `mov byte gs:[rcx + descriptors], class`, with a descriptor of the table in RCX.
fn emit_class(emitter: &mut Emitter, class: DescriptorClass) {
    emitter.put(&[0x65, 0xc6, 0x81]);
    emitter.put_u32(slots::SYSCALL_CLASSES + DESCRIPTORS);
    emitter.put(&[class as u8]);
}

/// Emits code that sets the class of the descriptor in RDI, if the table has it, to unknown, and
/// takes a jump of `to_call` in any case.
fn emit_closing(emitter: &mut Emitter, to_call: &mut Vec<usize>) {
    to_call.push(emit_descriptor(emitter, IN_RDI));
    emit_class(emitter, DescriptorClass::Unknown);
    to_call.push(emitter.jump_from_here());
}

/// Emits code that probes, by newfstatat(2), the file that an openat(2) is about to open. Makes the
/// call if the probe fails, as where there is no file, or if it is a regular file or directory of a
/// known device; otherwise the thread stops. Returns the address from which on RAX, RDX and R10,
/// which the probe uses, are the program's again.
fn emit_file_probe(
    emitter: &mut Emitter,
    to_call: &mut Vec<usize>,
    to_stop: &mut Vec<usize>,
) -> u64 {
    emitter.load(Gpr::Rdx, slots::LOG);
    // lea rdx, [rdx + header]; mov r10d, 0; mov eax, number; syscall
    emitter.put(&[0x48, 0x8d, 0x92]);
    emitter.put_u32(HEADER_BYTES);
    emitter.put(&[0x41, 0xba, 0, 0, 0, 0, 0xb8]);
    emitter.put_u32(NEWFSTATAT);
    emitter.put(&[0x0f, 0x05]);
    // mov rcx, rax
    emitter.put(&[0x48, 0x89, 0xc1]);
    let is_there = emitter.jump_if_rcx_is_0();
    let restore = |emitter: &mut Emitter| {
        emitter.load(Gpr::Rcx, slots::LOG);
        for (register, word) in [(RAX, Word::Rax), (RDX, Word::Rdx), (R10, Word::R10)] {
            emitter.load_at(register, RCX, word.offset());
        }
    };
    // A file that is not there is made, or the call fails.
    let makes_it = emitter.here();
    restore(emitter);
    to_call.push(emitter.jump_from_here());
    emitter.aim_here(is_there);
    let others = emit_kind_check(emitter, RDX);
    emitter.jump(makes_it);
    for other in others {
        emitter.aim_here(other);
    }
    restore(emitter);
    let end = emitter.here();
    to_stop.push(emitter.jump_from_here());
    end
}

/// Emits code that continues if the attributes at `base` are those of a regular file or directory
/// of a known device; RCX is then 0 for a directory. Returns the jumps that are taken otherwise.
fn emit_kind_check(emitter: &mut Emitter, base: u8) -> Vec<usize> {
    let mut known = Vec::new();
    for number in 0..u32::try_from(DEVICE_COUNT).unwrap_or(0) {
        emitter.load(Gpr::R11, slots::SYSCALL_CLASSES + DEVICES + number * 8);
        emitter.load_at(RCX, base, DEVICE);
        emitter.subtract_from_rcx();
        known.push(emitter.jump_if_rcx_is_0());
    }
    let mut others = vec![emitter.jump_from_here()];
    for field in known {
        emitter.aim_here(field);
    }
    emitter.load_byte(base, MODE_HIGH);
    // movzx ecx, byte gs:[rcx + kinds]
    emitter.put(&[0x65, 0x0f, 0xb6, 0x89]);
    emitter.put_u32(slots::SYSCALL_CLASSES + FILE_KINDS);
    others.push(emitter.jump_if_rcx_is_0());
    emitter.decrement_rcx();
    others
}

/// Emits code that probes, by fstat(2), the file that an openat(2) has opened, with the descriptor
/// in RAX. Notes the class of the descriptor of a regular file that is not mapped, and restores the
/// registers. Returns the jumps that are taken if the record is complete, and if the thread must
/// stop.
pub(super) fn emit_opened_file_probe(emitter: &mut Emitter) -> (usize, usize) {
    // mov rdi, rax
    emitter.put(&[0x48, 0x89, 0xc7]);
    emitter.load(Gpr::Rsi, slots::LOG);
    // lea rsi, [rsi + header]; mov eax, number; syscall; mov rcx, rax
    emitter.put(&[0x48, 0x8d, 0xb6]);
    emitter.put_u32(HEADER_BYTES);
    emitter.put(&[0xb8]);
    emitter.put_u32(FSTAT);
    emitter.put(&[0x0f, 0x05, 0x48, 0x89, 0xc1]);
    let is_there = emitter.jump_if_rcx_is_0();
    let mut others = vec![emitter.jump_from_here()];
    emitter.aim_here(is_there);
    others.extend(emit_kind_check(emitter, RSI));
    let mut done = vec![emitter.jump_if_rcx_is_0()];
    emitter.load_byte(RSI, INODE);
    // movzx ecx, byte gs:[rcx + unmapped]
    emitter.put(&[0x65, 0x0f, 0xb6, 0x89]);
    emitter.put_u32(slots::SYSCALL_CLASSES + UNMAPPED);
    others.push(emitter.jump_if_rcx_is_0());
    done.push(emit_descriptor(emitter, IN_RDI));
    emit_class(emitter, DescriptorClass::Free);
    for field in done {
        emitter.aim_here(field);
    }
    let restore = |emitter: &mut Emitter| {
        emitter.load(Gpr::Rcx, slots::LOG);
        for (register, word) in [(RAX, Word::Result), (RSI, Word::Rsi), (RDI, Word::Rdi)] {
            emitter.load_at(register, RCX, word.offset());
        }
        emitter.jump_from_here()
    };
    let is_all = restore(emitter);
    for other in others {
        emitter.aim_here(other);
    }
    let is_more = restore(emitter);
    (is_all, is_more)
}
