//! Reads the dynamic linker's list of loaded libraries (`struct r_debug`, link.h) from memory.

use super::words::{LIMIT, Words};
use crate::common::Addr;
use std::sync::Arc;

/// A `struct link_map`: the dynamic linker's entry for a loaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMap {
    /// The address of the `struct link_map`.
    pub addr: Addr,
    /// The address of the `struct r_debug` of the file's namespace; 0 for the first namespace,
    /// which has all files that `dlmopen(3)` did not load elsewhere.
    pub namespace: Addr,
    /// `l_addr`: the load bias of the file.
    pub load_bias: u64,
    /// `l_name`; empty for the program.
    pub name: String,
    /// `l_ld`: the address of the dynamic section.
    pub dynamic: Addr,
}

/// The program, or a library that it loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The link map; synthesized if the real one is unknown.
    pub map: LinkMap,
    /// The mapped file, by its canonical path.
    pub file: Arc<str>,
}

impl Library {
    /// Returns the library's path: the name that the dynamic linker has for it, which is empty for
    /// the program. If that is relative (to the program's working directory), returns the mapped
    /// file.
    pub fn path(&self) -> &str {
        let name = self.map.name.as_str();
        if name.is_empty() || name.starts_with('/') { name } else { &self.file }
    }
}

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PROGRAM_HEADER_BYTES: u64 = 56;
/// The offset of `p_vaddr` in a program header.
pub(super) const SEGMENT_VADDR: u64 = 16;
const DT_DEBUG: u64 = 21;
/// `r_version` of a `struct r_debug_extended`, and the offset of its `r_next`.
const EXTENDED_VERSION: u64 = 2;
const NEXT_NAMESPACE: u64 = 40;

/// Reads the dynamic linker's list of loaded files, found through the auxiliary vector, and then
/// the lists of the other namespaces, as far as they are known, as one list. Returns `None` for a
/// static program, before the linker has made the list, and if the list's memory is unknown. `read`
/// copies the known bytes from an address on, and returns their number.
pub fn link_maps(auxv: &[u8], read: &dyn Fn(Addr, &mut [u8]) -> usize) -> Option<Vec<LinkMap>> {
    let memory = Words { read };
    let first = memory.r_debug(memory.program_dynamic(auxv)?)?;
    let mut maps = memory.link_maps_of(first, Addr(0))?;
    let namespaces = std::iter::successors(Some(first), |debug| memory.next_namespace(*debug));
    for namespace in namespaces.skip(1).take(LIMIT) {
        // A namespace whose files were all closed has an empty list.
        let Some(others) = memory.link_maps_of(namespace, namespace) else { break };
        maps.extend(others);
        if maps.len() >= LIMIT {
            break;
        }
    }
    Some(maps)
}

impl Words<'_> {
    /// Returns the run-time address of the program's dynamic section; `None` if there is none, or
    /// it is unknown.
    fn program_dynamic(&self, auxv: &[u8]) -> Option<Addr> {
        let headers = auxv_value(auxv, AT_PHDR)?;
        let vaddr = |header: Addr| self.u64_at(header.wrapping_add(SEGMENT_VADDR));
        let linked = self.program_header(auxv, PT_PHDR).and_then(vaddr);
        let bias = linked.map_or(0, |linked| headers.wrapping_sub(linked));
        Some(Addr(vaddr(self.program_header(auxv, PT_DYNAMIC)?)?).wrapping_add(bias))
    }

    /// Returns the address in memory of the program's first program header with type `wanted`;
    /// `None` if there is none, or it is unknown.
    pub(super) fn program_header(&self, auxv: &[u8], wanted: u32) -> Option<Addr> {
        let kind = |header: Addr| self.u64_at(header).map(|word| word & 0xffff_ffff);
        program_headers(auxv)?.find(|header| kind(*header) == Some(wanted.into()))
    }

    /// Returns true if the auxiliary vector has the address and number of the program headers, and
    /// memory knows each of the first [`LIMIT`]; true if their number is 0.
    pub(super) fn knows_program_headers(&self, auxv: &[u8]) -> bool {
        program_headers(auxv)
            .is_some_and(|mut headers| headers.all(|header| self.u64_at(header).is_some()))
    }

    /// Reads the list of a namespace, whose `struct r_debug` is at `debug`, up to [`LIMIT`]
    /// entries; `None` if a link is unknown. Unknown names are empty, names that are known in part
    /// are cut. Each entry gets `namespace`.
    fn link_maps_of(&self, debug: Addr, namespace: Addr) -> Option<Vec<LinkMap>> {
        // `r_map`.
        let mut at = self.u64_at(debug.wrapping_add(8))?;
        let mut maps = Vec::new();
        while at != 0 && maps.len() < LIMIT {
            let addr = Addr(at);
            // `l_addr`, `l_name`, `l_ld`, `l_next`.
            let [bias, name, dynamic, next] =
                [0, 8, 16, 24].map(|offset| self.u64_at(addr.wrapping_add(offset)));
            let (load_bias, dynamic) = (bias?, Addr(dynamic?));
            let name = self.string(Addr(name?));
            maps.push(LinkMap { addr, namespace, load_bias, name, dynamic });
            at = next?;
        }
        Some(maps)
    }

    /// Returns the address of the next namespace's `struct r_debug`, which only a `struct
    /// r_debug_extended` contains (glibc 2.35 or later). `None` after the last namespace, or if it
    /// is unknown.
    fn next_namespace(&self, debug: Addr) -> Option<Addr> {
        let version = self.u64_at(debug)? & 0xffff_ffff;
        let next = self.u64_at(debug.wrapping_add(NEXT_NAMESPACE));
        next.filter(|next| version >= EXTENDED_VERSION && *next != 0).map(Addr)
    }

    /// Returns the address of the `struct r_debug` that the dynamic section points to; `None`
    /// before the linker has set it, or if it is unknown.
    fn r_debug(&self, dynamic: Addr) -> Option<Addr> {
        self.dynamic_entry(dynamic, DT_DEBUG).filter(|at| *at != 0).map(Addr)
    }
}

/// Returns the addresses of the program's program headers, at most [`LIMIT`]; `None` if the
/// auxiliary vector does not have them.
fn program_headers(auxv: &[u8]) -> Option<impl Iterator<Item = Addr>> {
    let headers = Addr(auxv_value(auxv, AT_PHDR)?);
    let count = auxv_value(auxv, AT_PHNUM)?.min(LIMIT as u64);
    Some((0..count).map(move |i| headers.wrapping_add(i * PROGRAM_HEADER_BYTES)))
}

/// Returns the value of an entry of the auxiliary vector (getauxval(3)); `None` if there is no such
/// entry.
fn auxv_value(auxv: &[u8], wanted: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    auxv.chunks_exact(16)
        .find(|entry| word(&entry[..8]) == Some(wanted))
        .and_then(|entry| word(&entry[8..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns memory in words: the program headers at 0x100, the dynamic section at 0x200, and from
    /// 0x1000 on the `r_debug_extended` of each namespace, followed by a link map unless it is
    /// empty.
    fn lists(namespaces: &[bool]) -> Vec<u64> {
        let mut words = vec![0; 0x4000];
        let mut set = |at: usize, value: u64| words[at / 8] = value;
        set(0x100, PT_DYNAMIC.into());
        set(0x110, 0x200);
        set(0x200, DT_DEBUG);
        set(0x208, 0x1000);
        for (number, has_file) in namespaces.iter().enumerate() {
            let debug = 0x1000 + 0x100 * number;
            set(debug, EXTENDED_VERSION);
            set(debug + 8, if *has_file { debug as u64 + 0x40 } else { 0 });
            if number + 1 < namespaces.len() {
                set(debug + 40, debug as u64 + 0x100);
            }
        }
        words
    }

    fn namespaces_of(words: &[u64]) -> Vec<u64> {
        let read = |addr: Addr, buf: &mut [u8]| {
            let from = usize::try_from(addr.0 / 8).unwrap();
            let bytes = words.get(from..).unwrap_or_default().iter().flat_map(|w| w.to_le_bytes());
            buf.iter_mut().zip(bytes).map(|(to, byte)| *to = byte).count()
        };
        let auxv = [AT_PHDR, 0x100, AT_PHNUM, 1, 0, 0].map(u64::to_le_bytes).concat();
        let maps = link_maps(&auxv, &read).unwrap();
        maps.iter().map(|map| map.namespace.0).collect()
    }

    #[test]
    fn a_namespace_whose_files_were_closed_hides_no_other() {
        assert_eq!(namespaces_of(&lists(&[true, false, true])), [0, 0x1200]);
    }

    #[test]
    fn a_loop_of_empty_namespaces_ends() {
        let mut words = lists(&[true, false]);
        words[(0x1100 + 40) / 8] = 0x1100;
        assert_eq!(namespaces_of(&words), [0]);
    }
}
