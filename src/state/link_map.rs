//! The dynamic linker's list of loaded libraries (`struct r_debug`, link.h), read out of memory.

use crate::common::Addr;

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMap {
    /// Address of the `struct link_map`.
    pub addr: Addr,
    /// `l_addr`: what to add to the file's addresses.
    pub load_bias: u64,
    /// `l_name`; empty for the program.
    pub name: String,
    /// `l_ld`: address of the dynamic section.
    pub dynamic: Addr,
}

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PROGRAM_HEADER_BYTES: u64 = 56;
const DT_NULL: u64 = 0;
const DT_DEBUG: u64 = 21;
/// More libraries, longer names, or larger tables than these are not believed.
const LIMIT: usize = 4096;

/// The list of a program, found by its auxiliary vector. None for a static program, or where the
/// memory that holds the list is not known.
pub fn link_maps(auxv: &[u8], read: &dyn Fn(Addr, &mut [u8]) -> usize) -> Option<Vec<LinkMap>> {
    let memory = Words { read };
    let debug = memory.debug(memory.dynamic(auxv)?)?;
    let mut at = memory.word(debug.wrapping_add(8))?;
    let mut maps = Vec::new();
    while at != 0 && maps.len() < LIMIT {
        let entry = Addr(at);
        let [bias, name, dynamic, next] =
            [0, 8, 16, 24].map(|offset| memory.word(entry.wrapping_add(offset)));
        maps.push(LinkMap {
            addr: entry,
            load_bias: bias?,
            name: memory.string(Addr(name?)),
            dynamic: Addr(dynamic?),
        });
        at = next?;
    }
    Some(maps)
}

struct Words<'a> {
    read: &'a dyn Fn(Addr, &mut [u8]) -> usize,
}

impl Words<'_> {
    fn word(&self, at: Addr) -> Option<u64> {
        let mut bytes = [0; 8];
        ((self.read)(at, &mut bytes) == bytes.len()).then_some(u64::from_le_bytes(bytes))
    }

    fn string(&self, at: Addr) -> String {
        let mut bytes = vec![0; LIMIT];
        let known = (self.read)(at, &mut bytes);
        let text = bytes[..known].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The program's dynamic section in memory.
    fn dynamic(&self, auxv: &[u8]) -> Option<Addr> {
        let headers = auxv_value(auxv, AT_PHDR)?;
        let count = auxv_value(auxv, AT_PHNUM)?.min(LIMIT as u64);
        let header = |i: u64| Addr(headers).wrapping_add(i * PROGRAM_HEADER_BYTES);
        let kind = |i: u64| self.word(header(i)).map(|word| word & 0xffff_ffff);
        let vaddr = |i: u64| self.word(header(i).wrapping_add(16));
        let find = |wanted: u32| (0..count).find(|i| kind(*i) == Some(wanted.into()));
        let bias = find(PT_PHDR).and_then(vaddr).map_or(0, |linked| headers.wrapping_sub(linked));
        Some(Addr(vaddr(find(PT_DYNAMIC)?)?).wrapping_add(bias))
    }

    /// The `struct r_debug` that the dynamic section points to.
    fn debug(&self, dynamic: Addr) -> Option<Addr> {
        for i in 0..LIMIT as u64 {
            let entry = dynamic.wrapping_add(i * 16);
            match self.word(entry)? {
                DT_NULL => return None,
                DT_DEBUG => {
                    return self.word(entry.wrapping_add(8)).filter(|at| *at != 0).map(Addr);
                }
                _ => {}
            }
        }
        None
    }
}

/// A value of the auxiliary vector (getauxval(3)).
fn auxv_value(auxv: &[u8], wanted: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    auxv.chunks_exact(16)
        .find(|entry| word(&entry[..8]) == Some(wanted))
        .and_then(|entry| word(&entry[8..]))
}
