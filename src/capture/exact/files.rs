//! Mapped files that a system call writes to: the written bytes show in the memory of the program.
//! Also, the file of the program's own memory (/proc/PID/mem), by which it may change its code.

use super::process::Process;
use crate::common::{Addr, AddrRange};
use crate::sideband::Mapping;
use crate::syscalls::{Call, Model, Property};
use crate::tracee::call_numbers::{
    COPY_FILE_RANGE, CREAT, FALLOCATE, FTRUNCATE, MADVISE, OPEN, OPENAT, OPENAT2, PIDFD_GETFD,
    PWRITE64, PWRITEV, PWRITEV2, RECVMMSG, RECVMSG, SPLICE, TRUNCATE, WRITE, WRITEV,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `MADV_REMOVE`, which makes a hole in a file.
const MAKES_HOLE: u64 = libc::MADV_REMOVE as u64;
/// `RWF_APPEND` of pwritev2(2).
const APPENDS_NOW: u64 = 0x10;
const APPENDS: u64 = libc::O_APPEND as u64;
/// Modes of fallocate(2).
const KEEPS_SIZE: u64 = libc::FALLOC_FL_KEEP_SIZE as u64;
const MAKES_ZEROS: u64 = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) as u64;

const PAGE_BYTES: u64 = 4096;

/// The part of a file that was written.
#[derive(Clone, Copy, Debug)]
struct WrittenPart {
    inode: u64,
    /// The offsets of the first byte, and of the one after the last.
    from: u64,
    to: u64,
}

/// A file that the program opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// Its descriptor.
    pub(super) fd: u64,
    /// Its path; empty if it is not known.
    pub(super) path: PathBuf,
}

impl Process {
    /// Returns the ranges of memory that may have changed since a call, which returned `result`,
    /// wrote to a mapped file. `file_size_before` is from [`Self::file_size_before`]. After
    /// truncate(2), returns all shared mappings of files, and of the private ones what is beyond
    /// the new end. Returns none after a failed call, or one that writes to no mapped file.
    pub(super) fn mapped_file_writes(
        &self,
        call: &Call,
        result: i64,
        file_size_before: u64,
    ) -> Vec<AddrRange> {
        let writes =
            Model::by_number(call.number).is_some_and(|model| model.has(Property::WritesFiles));
        if !writes || result < 0 {
            return Vec::new();
        }
        if call.number == MADVISE {
            let range = AddrRange::sized(Addr(call.args[0]), call.args[1]);
            return if call.args[2] == MAKES_HOLE { vec![range] } else { Vec::new() };
        }
        // True for a mapping of a file: only those show what was written.
        let is_written = |mapping: &&Mapping| mapping.inode != 0;
        let mappings = self.engine.space.mappings().filter(is_written);
        if call.number == TRUNCATE {
            // Its path is not looked up: the call is rare. A file that it cut has this size now.
            let size = call.args[1];
            let is_cut = |m: &Mapping| {
                fs::metadata(&m.name).is_ok_and(|file| file.ino() == m.inode && file.len() == size)
            };
            let shown = |m: &Mapping| {
                let part = WrittenPart { inode: m.inode, from: size, to: u64::MAX };
                if m.protection.shared {
                    Some(m.range)
                } else {
                    part.shown_in(m).filter(|_| is_cut(m))
                }
            };
            return mappings.filter_map(shown).collect();
        }
        let Some(part) = self.written_part(call, result, file_size_before) else {
            return Vec::new();
        };
        mappings.filter_map(|mapping| part.shown_in(mapping)).collect()
    }

    /// Returns the size in bytes of the file that a call is about to write or resize, for the calls
    /// whose written part `written_part` works out from it; 0 for all others, such as sendfile(2),
    /// or if it is unknown.
    pub(super) fn file_size_before(&self, call: &Call) -> u64 {
        let changes = matches!(
            call.number,
            FTRUNCATE | FALLOCATE | WRITE | WRITEV | PWRITE64 | PWRITEV | PWRITEV2
        );
        let file = changes.then(|| fs::metadata(self.link_of(call.args[0])).ok()).flatten();
        file.map_or(0, |file| file.len())
    }

    /// Returns the range of memory that a completed call wrote through the process's own
    /// /proc/PID/mem, whatever the protection there; `None` if it wrote none so, or if the place is
    /// unknown.
    pub(super) fn memory_file_write(&self, call: &Call, result: i64) -> Option<AddrRange> {
        let [fd, _, _, at, ..] = call.args;
        let pid = self.pid();
        let size = u64::try_from(result).ok().filter(|size| *size > 0)?;
        let writes = matches!(call.number, WRITE | WRITEV | PWRITE64 | PWRITEV | PWRITEV2);
        if !writes || !self.has_memory_file || !self.is_memory_file(&self.path_of(fd)) {
            return None;
        }
        let state = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
        let start = match call.number {
            PWRITE64 | PWRITEV => at,
            PWRITEV2 if at != u64::MAX => at,
            _ => fdinfo_number(&state, "pos:", 10)?.checked_sub(size)?,
        };
        Some(AddrRange::sized(Addr(start), size))
    }

    /// Returns the file that an open(2), openat(2) or openat2(2) opened; `None` if it failed, and
    /// for all other calls, creat(2) among them.
    pub(super) fn opened_by(&self, call: &Call, result: i64) -> Option<Opened> {
        let fd = u64::try_from(result).ok()?;
        let opens = matches!(call.number, OPEN | OPENAT | OPENAT2);
        opens.then(|| Opened { fd, path: self.path_of(fd) })
    }

    /// Sets `has_memory_file` if a completed call opened, or may have received, a descriptor of the
    /// process's own memory (/proc/PID/mem). `opened` is from [`Self::opened_by`]. Never unsets it.
    pub(super) fn note_memory_file(&mut self, call: &Call, result: i64, opened: Option<&Opened>) {
        let is_memory = match call.number {
            OPEN | OPENAT | OPENAT2 => opened.is_some_and(|file| self.is_memory_file(&file.path)),
            RECVMSG | RECVMMSG | PIDFD_GETFD => result >= 0,
            _ => false,
        };
        self.has_memory_file |= is_memory;
    }

    /// Returns true if the process has its own memory open as a file now, by all its descriptors.
    pub(super) fn has_memory_file_open(&self) -> bool {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten().flatten();
        let mut numbers = fds.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.any(|fd| self.is_memory_file(&self.path_of(fd)))
    }

    /// Returns the flags of an open file, as open(2) has them; `None` if they cannot be read.
    pub(super) fn flags_of(&self, fd: u64) -> Option<u64> {
        let state = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.pid())).ok()?;
        fdinfo_number(&state, "flags:", 8)
    }

    /// Returns the path of an open file; empty if it is not known.
    fn path_of(&self, fd: u64) -> PathBuf {
        fs::read_link(self.link_of(fd)).unwrap_or_default()
    }

    /// Returns the path of the link to an open file: /proc/PID/fd/`fd`.
    pub(super) fn link_of(&self, fd: u64) -> String {
        format!("/proc/{}/fd/{fd}", self.pid())
    }

    /// Returns true for the path of the memory of the process or of one of its threads.
    fn is_memory_file(&self, path: &Path) -> bool {
        path.starts_with(format!("/proc/{}", self.pid())) && path.ends_with("mem")
    }

    /// Returns the part of a mapped regular file that a completed call may have written, the whole
    /// file if the part is unknown; `None` if it wrote to no such file.
    fn written_part(&self, call: &Call, result: i64, file_size_before: u64) -> Option<WrittenPart> {
        let [first, second, third, fourth, _, sixth] = call.args;
        let fd = match call.number {
            OPEN | OPENAT | OPENAT2 | CREAT => result.cast_unsigned(),
            SPLICE | COPY_FILE_RANGE => third,
            _ => first,
        };
        let truncates = |flags: u64| flags & libc::O_TRUNC as u64 != 0;
        let is_opened_as_it_is = match call.number {
            OPEN => !truncates(second),
            OPENAT => !truncates(third),
            OPENAT2 => !truncates(self.read_word(third)),
            _ => false,
        };
        if is_opened_as_it_is {
            return None;
        }
        let pid = self.pid();
        let fd = u32::try_from(fd).ok()?;
        let file = fs::metadata(self.link_of(fd.into())).ok()?;
        if !file.is_file() || !self.engine.space.mappings().any(|m| m.inode == file.ino()) {
            return None;
        }
        let whole = WrittenPart { inode: file.ino(), from: 0, to: u64::MAX };
        let state = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
        let appends = fdinfo_number(&state, "flags:", 8).is_none_or(|flags| flags & APPENDS != 0);
        let written = result.cast_unsigned();
        let written_at_position = || {
            let position = fdinfo_number(&state, "pos:", 10);
            (position.and_then(|at| at.checked_sub(written)), written)
        };
        let (from, size) = match call.number {
            FTRUNCATE => (Some(second), u64::MAX),
            // Without modes, there are zeros from the old end on; the size is an upper bound. With
            // `KEEPS_SIZE` alone, no byte changes. Modes other than these move the bytes after the
            // range.
            FALLOCATE if second & !KEEPS_SIZE == 0 => (Some(third.max(file_size_before)), fourth),
            FALLOCATE if second & !(KEEPS_SIZE | MAKES_ZEROS) == 0 => (Some(third), fourth),
            WRITE | WRITEV => written_at_position(),
            PWRITEV2 if sixth & APPENDS_NOW != 0 => (None, written),
            // It writes where the file's position is, as WRITEV does.
            PWRITEV2 if fourth == u64::MAX => written_at_position(),
            PWRITE64 | PWRITEV | PWRITEV2 if !appends => (Some(fourth), written),
            _ => (None, written),
        };
        let Some(from) = from else { return Some(whole) };
        // There are zeros now between the old end of the file and the written bytes, and from the
        // new end to the end of its page.
        let end = from.saturating_add(size);
        let page_end = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
        let to = if end > file_size_before { page_end } else { end };
        Some(WrittenPart { from: from.min(file_size_before), to, ..whole })
    }
}

impl WrittenPart {
    /// Returns the range in which a mapping shows the part; `None` if it does not.
    fn shown_in(self, mapping: &Mapping) -> Option<AddrRange> {
        if mapping.inode != self.inode {
            return None;
        }
        let end = mapping.offset + mapping.range.size_bytes();
        let (from, to) = (self.from.max(mapping.offset), self.to.min(end));
        let start = mapping.range.start.wrapping_add(from.checked_sub(mapping.offset)?);
        (from < to).then(|| AddrRange::sized(start, to - from))
    }
}

/// Returns the number on the line of a /proc/PID/fdinfo (proc(5)) that begins with `name`; `None`
/// if there is none.
fn fdinfo_number(text: &str, name: &str, radix: u32) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(line.trim(), radix).ok()
}
