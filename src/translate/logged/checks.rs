//! What glue finds out about a system call before it is made, and about a file after it was opened.

use super::super::emit::{Emitter, Gpr};
use super::super::slots;
use super::table::{DESCRIPTORS, DEVICE_COUNT, DEVICES, DescriptorClass, FILE_KINDS, UNMAPPED};
use super::{HEADER_BYTES, LoggedClass, R10, RAX, RCX, RDI, RDX, RSI, STOP_BYTES, Word};

/// Commands of fcntl(2) that write nothing and do not wait: `F_DUPFD`, `F_GETFD`, `F_SETFD`, `F_GETFL`,
/// `F_DUPFD_CLOEXEC`.
const COMMANDS: [i32; 5] = [0, 1, 2, 3, 1030];
const FSTAT: u32 = 5;
const NEWFSTATAT: u32 = 262;
/// Offsets in `struct stat`: the device, the inode's number, and the second byte of the mode.
const DEVICE: u32 = 0;
const INODE: u32 = 8;
const MODE_HIGH: u32 = 25;

/// Addresses in the code that checks calls.
pub(super) struct Checks {
    /// The code that looks for a file before it is opened: there, RAX, RDX and R10 are not the program's.
    pub(super) looks: std::ops::Range<u64>,
}

/// Emits code that goes on where a call is to be made. Otherwise it goes to where the thread stops before
/// the call. At its start, the record has the registers.
pub(super) fn emit_checks(emitter: &mut Emitter) -> Checks {
    let (mut makes, mut stops) = (Vec::new(), Vec::new());
    // movzx ecx, ax
    emitter.put(&[0x0f, 0xb7, 0xc8]);
    emitter.load_class();
    // lea rcx, [rcx - first]
    emitter.put(&[0x48, 0x8d, 0x49, (LoggedClass::TimeOfDay as u8).wrapping_neg()]);
    let mut fields = Vec::new();
    for number in 0..=LoggedClass::Opens as u8 - LoggedClass::TimeOfDay as u8 {
        if number > 0 {
            emitter.decrement_rcx();
        }
        fields.push(emitter.jump_if_rcx_is_0());
    }
    makes.push(emitter.jump_from_here());
    let [time, command, reads, receives, writes, closes, opens] = fields[..] else {
        unreachable!("there are seven classes of calls that are checked")
    };
    emitter.aim_here(time);
    emit_time_check(emitter, &mut makes, &mut stops);
    emitter.aim_here(command);
    emit_command_check(emitter, &mut makes, &mut stops);
    emitter.aim_here(receives);
    emit_receive_check(emitter, &mut stops);
    emitter.aim_here(reads);
    emit_descriptor_check(emitter, &mut stops);
    makes.push(emitter.jump_from_here());
    emitter.aim_here(writes);
    emit_descriptor_check(emitter, &mut stops);
    makes.push(emitter.jump_if_rcx_is_0());
    stops.push(emitter.jump_from_here());
    emitter.aim_here(closes);
    emit_closing(emitter, &mut makes);
    emitter.aim_here(opens);
    let looks = emit_look(emitter, &mut makes, &mut stops);
    for stop in stops {
        emitter.aim_here(stop);
    }
    emit_way_to_stop(emitter);
    for make in makes {
        emitter.aim_here(make);
    }
    Checks { looks }
}

/// Emits code that goes to where the thread stops before the call.
fn emit_way_to_stop(emitter: &mut Emitter) {
    emitter.load(Gpr::Rcx, slots::JUMP);
    // lea rcx, [rcx - bytes]
    emitter.put(&[0x48, 0x8d, 0x49, STOP_BYTES.wrapping_neg()]);
    emitter.store(Gpr::Rcx, slots::JUMP);
    emitter.load(Gpr::R11, slots::TRACE_POINTER);
    emitter.jump_slot(slots::JUMP);
}

/// Emits code that makes a call if RDI is not 0, and RSI is.
fn emit_time_check(emitter: &mut Emitter, makes: &mut Vec<usize>, stops: &mut Vec<usize>) {
    // mov rcx, rdi
    emitter.put(&[0x48, 0x89, 0xf9]);
    stops.push(emitter.jump_if_rcx_is_0());
    // mov rcx, rsi
    emitter.put(&[0x48, 0x89, 0xf1]);
    makes.push(emitter.jump_if_rcx_is_0());
    stops.push(emitter.jump_from_here());
}

/// Emits code that makes a call if its command is one that writes nothing.
fn emit_command_check(emitter: &mut Emitter, makes: &mut Vec<usize>, stops: &mut Vec<usize>) {
    for command in COMMANDS {
        // lea ecx, [rsi - command]: the kernel takes 32 bits of it
        emitter.put(&[0x8d, 0x8e]);
        emitter.put_u32(command.wrapping_neg().cast_unsigned());
        makes.push(emitter.jump_if_rcx_is_0());
    }
    stops.push(emitter.jump_from_here());
}

/// Emits code that goes on if R8 and the flags in R10 are 0.
fn emit_receive_check(emitter: &mut Emitter, stops: &mut Vec<usize>) {
    // mov rcx, r8, and mov ecx, r10d
    for copy in [[0x4c, 0x89, 0xc1], [0x44, 0x89, 0xd1]] {
        emitter.put(&copy);
        let is_0 = emitter.jump_if_rcx_is_0();
        stops.push(emitter.jump_from_here());
        emitter.aim_here(is_0);
    }
}

/// Emits code that goes on if nobody waits for the descriptor in RDI. RCX is 0 then if it may be
/// written to.
fn emit_descriptor_check(emitter: &mut Emitter, stops: &mut Vec<usize>) {
    stops.push(emit_descriptor(emitter));
    // movzx ecx, byte gs:[rcx + descriptors]
    emitter.put(&[0x65, 0x0f, 0xb6, 0x89]);
    emitter.put_u32(slots::SYSCALL_CLASSES + DESCRIPTORS);
    stops.push(emitter.jump_if_rcx_is_0());
    emitter.decrement_rcx();
    stops.push(emitter.jump_if_rcx_is_0());
    emitter.decrement_rcx();
}

/// Emits code that makes RCX the descriptor in RDI. Returns the jump that is taken if the table does
/// not have it.
fn emit_descriptor(emitter: &mut Emitter) -> usize {
    // movzx ecx, dil; mov r11d, edi; not r11; lea rcx, [rcx + r11 + 1]: 0 if it is small
    emitter.put(&[0x40, 0x0f, 0xb6, 0xcf, 0x41, 0x89, 0xfb, 0x49, 0xf7, 0xd3]);
    emitter.put(&[0x4a, 0x8d, 0x4c, 0x19, 1]);
    let small = emitter.jump_if_rcx_is_0();
    let large = emitter.jump_from_here();
    emitter.aim_here(small);
    // movzx ecx, dil
    emitter.put(&[0x40, 0x0f, 0xb6, 0xcf]);
    large
}

/// Emits `mov byte gs:[rcx + descriptors], class`.
fn emit_class(emitter: &mut Emitter, class: DescriptorClass) {
    emitter.put(&[0x65, 0xc6, 0x81]);
    emitter.put_u32(slots::SYSCALL_CLASSES + DESCRIPTORS);
    emitter.put(&[class as u8]);
}

/// Emits code that forgets the class of the descriptor in RDI.
fn emit_closing(emitter: &mut Emitter, makes: &mut Vec<usize>) {
    makes.push(emit_descriptor(emitter));
    emit_class(emitter, DescriptorClass::Unknown);
    makes.push(emitter.jump_from_here());
}

/// Emits code that looks what openat(2) is about to open. Returns where RAX, RDX and R10 are not the
/// program's.
fn emit_look(
    emitter: &mut Emitter,
    makes: &mut Vec<usize>,
    stops: &mut Vec<usize>,
) -> std::ops::Range<u64> {
    let start = emitter.here();
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
    makes.push(emitter.jump_from_here());
    emitter.aim_here(is_there);
    let others = emit_kind_check(emitter, RDX);
    emitter.jump(makes_it);
    for other in others {
        emitter.aim_here(other);
    }
    restore(emitter);
    let end = emitter.here();
    stops.push(emitter.jump_from_here());
    start..end
}

/// Emits code that goes on if the attributes at `base` are those of a regular file or directory of a
/// known device. Returns the jumps that are taken otherwise. RCX is 0 then if it is a directory.
fn emit_kind_check(emitter: &mut Emitter, base: u8) -> Vec<usize> {
    let mut known = Vec::new();
    for number in 0..u32::try_from(DEVICE_COUNT).unwrap_or(0) {
        emitter.load(Gpr::R11, slots::SYSCALL_CLASSES + DEVICES + number * 8);
        emitter.load_at(RCX, base, DEVICE);
        // not r11; lea rcx, [rcx + r11 + 1]: 0 if they are the same
        emitter.put(&[0x49, 0xf7, 0xd3, 0x4a, 0x8d, 0x4c, 0x19, 1]);
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

/// Emits code that looks what a call has opened whose result is in RAX, and restores the registers.
/// Returns the jumps that are taken if that is all, and if more is to be known.
pub(super) fn emit_look_after_opening(emitter: &mut Emitter) -> (usize, usize) {
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
    done.push(emit_descriptor(emitter));
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
