//! Queries the mappings in a part of a process's memory (`PROCMAP_QUERY` of Linux 6.11,
//! `linux/fs.h`). Reading all of them would take long.

use crate::common::{Addr, AddrRange, Pid};
use crate::sideband::{Mapping, Protection};
use std::fs::File;
use std::os::fd::AsRawFd;

/// The request of ioctl(2): `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: u64 = 0xc068_6611;
/// The flag that asks for the mapping at an address, or the next one after it.
const COVERING_OR_NEXT: u64 = 0x10;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
/// Bytes for the name of a mapping: `PATH_MAX`, and room for ` (deleted)`.
const NAME_BYTES: usize = 4096 + 16;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    /// `query_flags`.
    flags: u64,
    /// `query_addr`.
    addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// An open file for queries of a process's mappings, valid until it executes another program.
#[derive(Debug)]
pub struct MapQuery(File);

impl MapQuery {
    /// Opens the file of the mappings; `None` if that fails, as for a process that is gone. If the
    /// kernel answers no queries, or the process's first thread has ended, each query fails.
    pub fn open(pid: Pid) -> Option<Self> {
        File::open(format!("/proc/{pid}/maps")).ok().map(Self)
    }

    /// Returns the mappings that overlap `range`, by address, each as a whole. `None` if the kernel
    /// does not answer, or a name is one that `/proc/PID/maps` writes in another form.
    pub fn mappings_in(&self, range: AddrRange) -> Option<Vec<Mapping>> {
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some(mapping) = mapping_at_or_after(&self.0, at).ok()? else { break };
            if mapping.range.start >= range.end {
                break;
            }
            at = mapping.range.end;
            found.push(mapping);
        }
        Some(found)
    }
}

/// The error of a query: the kernel does not answer, or answers in another form than
/// `/proc/PID/maps`.
struct Unanswered;

/// Returns the mapping at an address, or the next one after it; `None` if there is none.
fn mapping_at_or_after(maps: &File, at: Addr) -> Result<Option<Mapping>, Unanswered> {
    let mut name = [0_u8; NAME_BYTES];
    let mut query = Query {
        size: size_of::<Query>() as u64,
        flags: COVERING_OR_NEXT,
        addr: at.0,
        vma_name_size: u32::try_from(NAME_BYTES).map_err(|_| Unanswered)?,
        vma_name_addr: name.as_mut_ptr().expose_provenance() as u64,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes the structure, whose size is in it and in the request,
    // and writes at most `vma_name_size` bytes to `name`. Both live until the call returns.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if result != 0 {
        let is_last = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
        return if is_last { Ok(None) } else { Err(Unanswered) };
    }
    // The size includes the NUL at the end.
    let length = usize::try_from(query.vma_name_size).unwrap_or(usize::MAX).saturating_sub(1);
    let name = name.get(..length).ok_or(Unanswered)?;
    // In the text a line break is `\012`, so there a backslash in a name is ambiguous.
    if name.iter().any(|byte| matches!(byte, b'\n' | b'\\')) {
        return Err(Unanswered);
    }
    let is_set = |flag| query.vma_flags & flag != 0;
    Ok(Some(Mapping {
        range: AddrRange::new(Addr(query.vma_start), Addr(query.vma_end)),
        protection: Protection {
            read: is_set(READABLE),
            write: is_set(WRITABLE),
            execute: is_set(EXECUTABLE),
            shared: is_set(SHARED),
        },
        offset: query.vma_offset,
        device: u64::from(query.dev_major) << 32 | u64::from(query.dev_minor),
        inode: query.inode,
        name: String::from_utf8_lossy(name).into_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracee::mappings;

    const EVERYWHERE: AddrRange = AddrRange::new(Addr(0), Addr(u64::MAX));

    /// Starts a process whose mappings stay as they are.
    fn sleeper() -> std::process::Child {
        let child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        child
    }

    #[test]
    fn the_kernel_says_the_same_in_both_ways() {
        let mut child = sleeper();
        let pid = Pid(i32::try_from(child.id()).unwrap());
        let mut all = mappings(pid).unwrap();
        // It is the same in all processes, and part of none.
        all.retain(|mapping| mapping.name != "[vsyscall]");
        let query = MapQuery::open(pid).unwrap();
        if let Some(asked) = query.mappings_in(EVERYWHERE) {
            assert_eq!(asked, all);
            let part = AddrRange::new(Addr(all[1].range.end.0 - 1), all[3].range.start);
            assert_eq!(query.mappings_in(part).unwrap(), all[1..3]);
            let gap = AddrRange::new(Addr(0), Addr(0x1000));
            assert_eq!(query.mappings_in(gap).unwrap(), []);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(query.mappings_in(EVERYWHERE), None);
        assert!(MapQuery::open(pid).is_none());
    }
}
