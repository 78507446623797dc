//! The buffers of calls that may block while other threads run.
//!
//! The kernel fills a buffer some time before the call's entry is in the log. A thread that looks
//! there in between would see bytes that the replay does not have yet. So the kernel fills memory
//! of the recorder instead (in the thread's [`Area`]): the call's arguments point there during the
//! call. When the call is logged, the arguments are restored, and the bytes copied to the program's
//! buffer. The same way, a filter of system calls gets its first part (`filters`).

use super::effects::ranges_of;
use crate::capture::Error;
use crate::common::{Addr, AddrRange};
use crate::engine::{Area, BUFFERS, TranslatedProcess};
use crate::insn::Registers;
use crate::sideband::Mapping;
use crate::syscalls::{Call, Effects, OpenCall};
use crate::tracee::Tracee;

/// The calls whose buffers can be replaced: `read`, `poll`, `pread64`, `select`, `accept`,
/// `recvfrom`, `wait4`, `msgrcv`, `rt_sigtimedwait`, `epoll_wait`, `waitid`, `pselect6`, `ppoll`,
/// `epoll_pwait`, `accept4`. Nothing but the call's arguments points to them.
const MOVABLE: [u64; 15] = [0, 7, 17, 23, 43, 45, 61, 70, 128, 232, 247, 270, 271, 281, 288];

/// The maximum size in bytes of a buffer that is replaced: its bytes are copied twice.
const LARGEST_BYTES: u64 = 64 << 10;

/// A buffer of the program (`range`), and the address of the memory that the kernel fills instead
/// (`at`).
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// The index of the call's argument that points to the buffer.
    argument: usize,
    range: AddrRange,
    at: Addr,
}

/// The replaced buffers of one call.
#[derive(Debug, Default)]
pub(super) struct Scratch(Vec<Buffer>);

impl Scratch {
    /// Replaces the buffers of a call that a thread is about to make: changes its registers, and
    /// copies the buffers' bytes. Buffers that are too large, overlap, cannot be written by the
    /// program, or are one too many for the area stay where they are, as do all those of calls
    /// other than `MOVABLE`, or with unknown effects.
    pub(super) fn replace_buffers(
        process: &TranslatedProcess,
        (tracee, area): (Tracee, Area),
        (call, effects): (&Call, &OpenCall),
        registers: &Registers,
    ) -> Result<Self, Error> {
        let Effects::Known(ranges) = effects.limit() else { return Ok(Self::default()) };
        if !MOVABLE.contains(&call.number) {
            return Ok(Self::default());
        }
        let mut scratch = Self::default();
        let mut moved = *registers;
        for range in ranges.iter().filter(|range| range.start < range.end) {
            let mut pointers =
                call.args.iter().enumerate().filter(|(_, arg)| **arg == range.start.0);
            let (pointer, again) = (pointers.next(), pointers.next());
            let overlaps = ranges.iter().filter(|other| other.overlaps(*range)).count() > 1;
            let number = scratch.0.len();
            let (Some((argument, _)), None, false) = (pointer, again, overlaps) else { continue };
            if number == BUFFERS || range.size_bytes() > LARGEST_BYTES.min(area.buffer_bytes) {
                continue;
            }
            let Some(bytes) = writable_bytes(process, *range) else { continue };
            let at = Addr(area.buffer(number));
            // Bytes that the kernel does not write stay as they are.
            if process.memory.write(at, &bytes).is_ok() {
                scratch.0.push(Buffer { argument, range: *range, at });
                *argument_of(&mut moved, argument) = at.0;
            }
        }
        if !scratch.0.is_empty() {
            tracee.set_registers(&moved)?;
        }
        Ok(scratch)
    }

    /// Writes `bytes` to `at`, and lets an argument of a call (by its index) point there instead of
    /// to `range`, in the thread's registers.
    pub(super) fn replace_argument(
        process: &TranslatedProcess,
        tracee: Tracee,
        registers: &Registers,
        (argument, range): (usize, AddrRange),
        (at, bytes): (Addr, &[u8]),
    ) -> Result<Self, Error> {
        process.memory.write(at, bytes).map_err(|_| Error::NoMemory { at })?;
        let mut moved = *registers;
        *argument_of(&mut moved, argument) = at.0;
        tracee.set_registers(&moved)?;
        Ok(Self(vec![Buffer { argument, range, at }]))
    }

    /// Returns true if no buffer was replaced.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets the arguments of the call, in `registers`, point to the program's buffers again. Leaves
    /// arguments alone that the call changed. Does not set the thread's registers.
    pub(super) fn restore_arguments(&self, registers: &mut Registers) {
        for buffer in &self.0 {
            let argument = argument_of(registers, buffer.argument);
            if *argument == buffer.at.0 {
                *argument = buffer.range.start.0;
            }
        }
    }

    /// Copies the bytes that the kernel wrote, in a call with this result, to the program's
    /// buffers, and drops code that was translated from those. Leaves out memory that another
    /// thread has unmapped.
    pub(super) fn copy_back(
        &self,
        process: &mut TranslatedProcess,
        effects: &OpenCall,
        result: i64,
    ) {
        if self.0.is_empty() {
            return;
        }
        let memory = |addr: Addr, buf: &mut [u8]| match self.buffer_with(addr) {
            Some(buffer) => {
                let offset = addr.0 - buffer.range.start.0;
                let left = usize::try_from(buffer.range.end.0 - addr.0).unwrap_or(usize::MAX);
                let count = left.min(buf.len());
                process.memory.read(buffer.at.wrapping_add(offset), &mut buf[..count])
            }
            None => process.read_visible(addr, buf),
        };
        for written in ranges_of(effects.end(result, &memory)) {
            let Some(buffer) = self.buffer_with(written.start) else { continue };
            let end = written.end.min(buffer.range.end);
            let written = AddrRange::new(written.start, end);
            let mut bytes = vec![0; usize::try_from(written.size_bytes()).unwrap_or(0)];
            let known = memory(written.start, &mut bytes);
            // Another thread may have unmapped the buffer. The call itself would have failed then.
            let _ = process.memory.write(written.start, &bytes[..known]);
        }
        for buffer in &self.0 {
            let may_be_code = |m: &Mapping| m.protection.execute || m.protection.shared;
            if process.space.overlapping(buffer.range).any(may_be_code) {
                process.forget_code(buffer.range);
            }
        }
    }

    /// Returns the replaced buffer of the program that contains an address; `None` if none does.
    fn buffer_with(&self, addr: Addr) -> Option<&Buffer> {
        self.0.iter().find(|buffer| buffer.range.contains(addr))
    }
}

/// Reads a range; `None` if the program cannot write all of it, or it cannot be read.
fn writable_bytes(process: &TranslatedProcess, range: AddrRange) -> Option<Vec<u8>> {
    let mut covered = range.start;
    for mapping in process.space.overlapping(range) {
        if mapping.range.start > covered || !mapping.protection.write {
            return None;
        }
        covered = mapping.range.end;
    }
    let mut bytes = vec![0; usize::try_from(range.size_bytes()).ok()?];
    let is_whole =
        covered >= range.end && process.memory.read(range.start, &mut bytes) == bytes.len();
    is_whole.then_some(bytes)
}

/// Returns the register of a system call's argument, by the argument's index (0 to 5).
fn argument_of(r: &mut Registers, number: usize) -> &mut u64 {
    [&mut r.rdi, &mut r.rsi, &mut r.rdx, &mut r.r10, &mut r.r8, &mut r.r9]
        .into_iter()
        .nth(number)
        .expect("a call has six arguments")
}
