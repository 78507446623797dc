//! Encodes and decodes the notes of a core file. Layouts: the kernel's `elf_prstatus` (336 bytes),
//! `elf_prpsinfo` (136 bytes) and the `NT_FILE` table. Knows nothing of the file around them.

use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::PAGE_SIZE_BYTES;
use crate::image::core::{CoreContents, FileMapping, ProcessInfo, Thread};
use crate::insn::Registers;

pub(super) const NT_PRSTATUS: u32 = 1;
pub(super) const NT_FPREGSET: u32 = 2;
pub(super) const NT_PRPSINFO: u32 = 3;
pub(super) const NT_AUXV: u32 = 6;
pub(super) const NT_X86_XSTATE: u32 = 0x202;
pub(super) const NT_FILE: u32 = 0x4649_4c45;
pub(super) const NT_SIGINFO: u32 = 0x5349_4749;

/// Offsets of fields in `elf_prstatus`, in bytes.
mod prstatus {
    pub(super) const CURSIG: usize = 12;
    pub(super) const SIGPEND: usize = 16;
    pub(super) const SIGHOLD: usize = 24;
    pub(super) const PID: usize = 32;
    pub(super) const PPID: usize = 36;
    pub(super) const PGRP: usize = 40;
    pub(super) const SID: usize = 44;
    pub(super) const REG: usize = 112;
    pub(super) const FPVALID: usize = 328;
    pub(super) const SIZE: usize = 336;
}

/// Offsets of fields in `elf_prpsinfo`, in bytes.
mod prpsinfo {
    pub(super) const SNAME: usize = 1;
    pub(super) const NICE: usize = 3;
    pub(super) const FLAG: usize = 8;
    pub(super) const UID: usize = 16;
    pub(super) const GID: usize = 20;
    pub(super) const PID: usize = 24;
    pub(super) const PPID: usize = 28;
    pub(super) const PGRP: usize = 32;
    pub(super) const SID: usize = 36;
    pub(super) const FNAME: usize = 40;
    pub(super) const PSARGS: usize = 56;
    pub(super) const SIZE: usize = 136;
}

/// Encodes all notes of a core in the kernel's order: thread by thread, with the process's notes
/// right after the first thread's status.
pub(super) fn encode(contents: &CoreContents) -> Vec<u8> {
    let mut notes = Vec::new();
    for (index, thread) in contents.threads.iter().enumerate() {
        push_note(&mut notes, "CORE", NT_PRSTATUS, &encode_status(thread, contents));
        if index == 0 {
            push_process(&mut notes, contents);
        }
        push_optional(&mut notes, "CORE", NT_SIGINFO, thread.siginfo.as_deref());
        push_optional(&mut notes, "CORE", NT_FPREGSET, thread.fpregs.as_deref());
        push_optional(&mut notes, "LINUX", NT_X86_XSTATE, thread.xstate.as_deref());
    }
    if contents.threads.is_empty() {
        push_process(&mut notes, contents);
    }
    notes
}

/// Appends the notes of the process: `NT_PRPSINFO`, and `NT_AUXV` and `NT_FILE` unless they are
/// empty.
fn push_process(notes: &mut Vec<u8>, contents: &CoreContents) {
    push_note(notes, "CORE", NT_PRPSINFO, &encode_process(&contents.process));
    if !contents.auxv.is_empty() {
        push_note(notes, "CORE", NT_AUXV, &contents.auxv);
    }
    if !contents.mappings.is_empty() {
        push_note(notes, "CORE", NT_FILE, &encode_mappings(&contents.mappings));
    }
}

fn push_optional(notes: &mut Vec<u8>, owner: &str, kind: u32, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        push_note(notes, owner, kind, bytes);
    }
}

/// Appends a note: sizes of name and contents, type, name with its NUL, contents; each padded to
/// four bytes. Contents of 4 GiB and more cannot be represented and are omitted.
fn push_note(notes: &mut Vec<u8>, owner: &str, kind: u32, bytes: &[u8]) {
    let Ok(size) = u32::try_from(bytes.len()) else { return };
    let name = [owner.as_bytes(), b"\0"].concat();
    let name_size = u32::try_from(name.len()).unwrap_or(0);
    for word in [name_size, size, kind] {
        notes.extend(word.to_le_bytes());
    }
    for part in [&name[..], bytes] {
        notes.extend(part);
        notes.resize(notes.len().next_multiple_of(4), 0);
    }
}

/// Encodes the contents of an `NT_PRSTATUS` note: the status of a thread, with the core's signal.
fn encode_status(thread: &Thread, contents: &CoreContents) -> Vec<u8> {
    use prstatus as at;
    let CoreContents { process, signal, .. } = contents;
    let mut bytes = vec![0; at::SIZE];
    // Both pr_info.si_signo and pr_cursig contain the signal.
    put(&mut bytes, 0, &signal.to_le_bytes());
    let cursig = i16::try_from(*signal).unwrap_or(0);
    put(&mut bytes, at::CURSIG, &cursig.to_le_bytes());
    put(&mut bytes, at::SIGPEND, &thread.pending_signals.to_le_bytes());
    put(&mut bytes, at::SIGHOLD, &thread.blocked_signals.to_le_bytes());
    put(&mut bytes, at::PID, &thread.tid.0.to_le_bytes());
    put(&mut bytes, at::PPID, &process.parent.0.to_le_bytes());
    put(&mut bytes, at::PGRP, &process.group.to_le_bytes());
    put(&mut bytes, at::SID, &process.session.to_le_bytes());
    put(&mut bytes, at::REG, &thread.registers.to_bytes());
    put(&mut bytes, at::FPVALID, &i32::from(thread.fpregs.is_some()).to_le_bytes());
    bytes
}

/// Decodes the thread and the signal of an `NT_PRSTATUS` note; `None` if it is too short.
pub(super) fn decode_status(bytes: &[u8]) -> Option<(Thread, i32)> {
    use prstatus as at;
    let signal = i16::from_le_bytes(get(bytes, at::CURSIG)?).into();
    let thread = Thread {
        tid: Tid(i32::from_le_bytes(get(bytes, at::PID)?)),
        pending_signals: u64::from_le_bytes(get(bytes, at::SIGPEND)?),
        blocked_signals: u64::from_le_bytes(get(bytes, at::SIGHOLD)?),
        registers: Registers::from_bytes(bytes.get(at::REG..)?)?,
        ..Thread::default()
    };
    Some((thread, signal))
}

/// Encodes the contents of an `NT_PRPSINFO` note, as of a running process (`R`). Cuts a long name
/// and command line.
fn encode_process(process: &ProcessInfo) -> Vec<u8> {
    use prpsinfo as at;
    let mut bytes = vec![0; at::SIZE];
    put(&mut bytes, at::SNAME, b"R");
    put(&mut bytes, at::NICE, &process.nice.to_le_bytes());
    put(&mut bytes, at::FLAG, &process.flags.to_le_bytes());
    put(&mut bytes, at::UID, &process.user_id.to_le_bytes());
    put(&mut bytes, at::GID, &process.group_id.to_le_bytes());
    put(&mut bytes, at::PID, &process.pid.0.to_le_bytes());
    put(&mut bytes, at::PPID, &process.parent.0.to_le_bytes());
    put(&mut bytes, at::PGRP, &process.group.to_le_bytes());
    put(&mut bytes, at::SID, &process.session.to_le_bytes());
    let name = process.name.get(..15).unwrap_or(&process.name);
    put(&mut bytes, at::FNAME, name);
    let arguments = process.arguments.get(..79).unwrap_or(&process.arguments);
    put(&mut bytes, at::PSARGS, arguments);
    bytes
}

/// Decodes the process of an `NT_PRPSINFO` note; `None` if it is too short.
pub(super) fn decode_process(bytes: &[u8]) -> Option<ProcessInfo> {
    use prpsinfo as at;
    Some(ProcessInfo {
        nice: i8::from_le_bytes(get(bytes, at::NICE)?),
        flags: u64::from_le_bytes(get(bytes, at::FLAG)?),
        user_id: u32::from_le_bytes(get(bytes, at::UID)?),
        group_id: u32::from_le_bytes(get(bytes, at::GID)?),
        pid: Pid(i32::from_le_bytes(get(bytes, at::PID)?)),
        parent: Pid(i32::from_le_bytes(get(bytes, at::PPID)?)),
        group: i32::from_le_bytes(get(bytes, at::PGRP)?),
        session: i32::from_le_bytes(get(bytes, at::SID)?),
        name: until_nul(bytes.get(at::FNAME..at::PSARGS)?).to_vec(),
        arguments: until_nul(bytes.get(at::PSARGS..at::SIZE)?).to_vec(),
    })
}

/// Encodes the `NT_FILE` table: count, page size, ranges with offsets in pages, then the paths,
/// each up to its first NUL.
fn encode_mappings(mappings: &[FileMapping]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((mappings.len() as u64).to_le_bytes());
    bytes.extend(PAGE_SIZE_BYTES.to_le_bytes());
    for FileMapping { range, offset, .. } in mappings {
        for word in [range.start.0, range.end.0, offset / PAGE_SIZE_BYTES] {
            bytes.extend(word.to_le_bytes());
        }
    }
    for mapping in mappings {
        bytes.extend(until_nul(&mapping.path));
        bytes.push(0);
    }
    bytes
}

/// Decodes the mappings of an `NT_FILE` note; `None` if it is truncated, or a number is too large.
pub(super) fn decode_mappings(bytes: &[u8]) -> Option<Vec<FileMapping>> {
    let count = usize::try_from(u64::from_le_bytes(get(bytes, 0)?)).ok()?;
    let page_size_bytes = u64::from_le_bytes(get(bytes, 8)?);
    let table_end = count.checked_mul(24)?.checked_add(16)?;
    let table = bytes.get(16..table_end)?;
    let mut paths = bytes.get(table_end..)?.split_inclusive(|byte| *byte == 0);
    let rows = table.chunks_exact(24);
    rows.map(|row| decode_mapping(row, page_size_bytes, paths.next()?.strip_suffix(b"\0")?))
        .collect()
}

fn decode_mapping(row: &[u8], page_size_bytes: u64, path: &[u8]) -> Option<FileMapping> {
    let start = Addr(u64::from_le_bytes(get(row, 0)?));
    let end = Addr(u64::from_le_bytes(get(row, 8)?));
    let offset = u64::from_le_bytes(get(row, 16)?).checked_mul(page_size_bytes)?;
    Some(FileMapping { range: AddrRange::new(start, end), offset, path: path.to_vec() })
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(value) {
        *to = *from;
    }
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
