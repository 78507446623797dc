//! Finds the address of a thread-local variable in programs with glibc. The layout of glibc's
//! structures is private, but it describes them to debuggers by the symbols `_thread_db_...`, each
//! of which contains a size in bits, a number of elements and an offset.
//!
//! A *module* is a loaded file with thread-local variables. A thread's *dynamic thread vector*
//! (`dtv`) has the address of its storage for each module, as of a *generation*: each change of the
//! list of modules starts a new one.

use super::dynamic_symbols::symbol;
use super::link_map::{LinkMap, SEGMENT_VADDR, link_maps};
use super::words::Words;
use crate::common::Addr;

/// The type of the program header that names the dynamic linker.
const PT_INTERP: u32 = 3;
/// The type of the program header of the thread-local storage.
const PT_TLS: u32 = 7;
/// The offset of `p_memsz` in a program header.
const SEGMENT_SIZE: u64 = 40;
/// The offset of `p_align` in a program header.
const SEGMENT_ALIGN: u64 = 48;
/// `l_tls_offset` of a file whose storage has no fixed offset from the control block (yet).
const NO_STATIC_OFFSET: u64 = 0;
/// `l_tls_offset` of a file whose storage never gets a fixed offset from the control block.
const FORCED_DYNAMIC: u64 = u64::MAX;
/// The maximum number of lists in the chain of module lists. A longer chain is taken as damaged.
const LISTS_LIMIT: usize = 1 << 16;

/// The reason why the address is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoThreadLocal {
    /// Memory or registers are missing, as they are before the end of the run.
    #[error("the linker's list and the thread's control block are unknown here")]
    Unknown,
    /// The C library does not describe its thread-local storage.
    #[error("the C library does not describe its thread-local storage")]
    Undescribed,
    /// The file has no thread-local variables.
    #[error("no thread-local variables are loaded from there")]
    NoModule,
    /// The thread has not used any of the file's variables yet.
    #[error("the thread has not allocated the library's thread-local variables yet")]
    Unallocated,
}

/// A thread-local variable: the thread, the link map of its file, and its offset in the file's
/// thread-local storage.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLocal {
    /// The base of the thread's FS segment.
    pub fs_base: Addr,
    /// The address of the file's `struct link_map`.
    pub link_map: Addr,
    /// The variable's offset in the file's thread-local storage.
    pub offset: u64,
}

impl ThreadLocal {
    /// Returns the variable's address, computed as glibc's `nptl_db` does. Where memory does not
    /// describe glibc's structures, finds only the program's own variables. In a static program,
    /// `link_map` is not looked at: there is one file only. `read` copies the known bytes from an
    /// address on, and returns their number.
    pub fn address(
        &self,
        auxv: &[u8],
        read: &dyn Fn(Addr, &mut [u8]) -> usize,
    ) -> Result<Addr, NoThreadLocal> {
        let memory = Words { read };
        let Some(maps) = link_maps(auxv, read) else {
            // Without a linker that is to load libraries, there is one file: the program's.
            let is_static = memory.program_header(auxv, PT_INTERP).is_none();
            let unknown = Err(NoThreadLocal::Unknown);
            return if is_static { self.of_program(&memory, auxv) } else { unknown };
        };
        if !maps.iter().any(|map| map.addr == self.link_map) {
            return Err(NoThreadLocal::NoModule);
        }
        // Without `_thread_db_` symbols only the program's own variables can be found.
        let Some(layout) = Layout::of(&memory, &maps) else {
            let is_program = maps.first().is_some_and(|map| map.addr == self.link_map);
            let undescribed = Err(NoThreadLocal::Undescribed);
            return if is_program { self.of_program(&memory, auxv) } else { undescribed };
        };
        let base = self.base(&memory, &layout)?;
        Ok(base.wrapping_add(self.offset))
    }

    /// Returns the address of a variable of the program itself, without a description of glibc's
    /// structures: its storage is before the control block, at a distance that follows from the
    /// `PT_TLS` header (ELF Handling for Thread-Local Storage, variant II). `NoModule` if there is
    /// no such header; `Unknown` if a header is; and `Unallocated` if the FS base is 0.
    fn of_program(&self, memory: &Words<'_>, auxv: &[u8]) -> Result<Addr, NoThreadLocal> {
        if !memory.knows_program_headers(auxv) {
            return Err(NoThreadLocal::Unknown);
        }
        let header = memory.program_header(auxv, PT_TLS).ok_or(NoThreadLocal::NoModule)?;
        let field =
            |offset| memory.u64_at(header.wrapping_add(offset)).ok_or(NoThreadLocal::Unknown);
        let (vaddr, size) = (field(SEGMENT_VADDR)?, field(SEGMENT_SIZE)?);
        let mask = field(SEGMENT_ALIGN)?.max(1).wrapping_sub(1);
        if self.fs_base.0 == 0 {
            return Err(NoThreadLocal::Unallocated);
        }
        let padding = vaddr.wrapping_add(size).wrapping_neg() & mask;
        let distance = size.wrapping_add(padding);
        Ok(Addr(self.fs_base.0.wrapping_sub(distance).wrapping_add(self.offset)))
    }

    /// Returns the base of the thread's copy of the file's storage: the block in its vector, else
    /// the one at the file's fixed offset (as `td_thr_tlsbase` of glibc's `nptl_db` does). Fails
    /// with `NoModule` if the file has no storage, or its number is another file's now; with
    /// `Unallocated` if it has neither block nor offset; with `Unknown` if memory lacks a part.
    fn base(&self, memory: &Words<'_>, layout: &Layout) -> Result<Addr, NoThreadLocal> {
        let word = |at| memory.u64_at(at).ok_or(NoThreadLocal::Unknown);
        let module = word(layout.module_id.of(self.link_map))?;
        let generation = match module {
            0 => return Err(NoThreadLocal::NoModule),
            module => layout.generation(memory, module, self.link_map)?,
        };
        let vector = Addr(word(layout.vector.of(self.fs_base))?);
        // The thread updates its vector only when it needs it.
        if word(layout.counter.of(vector))? >= generation {
            let element = layout.elements.element(vector, module);
            let block = word(layout.pointer.of(element))?;
            // An odd pointer is `TLS_DTV_UNALLOCATED`.
            if block & 1 == 0 {
                return Ok(Addr(block));
            }
        }
        match word(layout.static_offset.of(self.link_map))? {
            NO_STATIC_OFFSET | FORCED_DYNAMIC => Err(NoThreadLocal::Unallocated),
            offset => Ok(Addr(self.fs_base.0.wrapping_sub(offset))),
        }
    }
}

/// A field of one of glibc's structures, as its `_thread_db_` symbol describes it: the size of an
/// element in bits, and the offset in bytes.
#[derive(Clone, Copy, Debug)]
struct Field {
    bits: u32,
    offset: u32,
}

impl Field {
    fn of(self, structure: Addr) -> Addr {
        structure.wrapping_add(self.offset.into())
    }

    /// Returns the address of an element of an array field.
    fn element(self, structure: Addr, index: u64) -> Addr {
        self.of(structure).wrapping_add(index.wrapping_mul(u64::from(self.bits / 8)))
    }
}

/// The layout of glibc's structures, as its `_thread_db_` symbols describe them.
struct Layout {
    /// `l_tls_modid` of a `link_map`: the number of the file's module.
    module_id: Field,
    /// `l_tls_offset` of a `link_map`: the fixed distance from the file's storage to the control
    /// block, if it has one.
    static_offset: Field,
    /// `dtv` of a thread's `tcbhead_t`: the pointer to its dynamic thread vector.
    vector: Field,
    /// The elements of a `dtv`, by module number.
    elements: Field,
    /// `counter` of the `dtv`: its generation.
    counter: Field,
    /// `pointer.val` of an element: the module's storage.
    pointer: Field,
    /// The address of the first `dtv_slotinfo_list`: the modules by number.
    modules: Addr,
    /// `len` of a `dtv_slotinfo_list`: the number of its slots.
    length: Field,
    /// `next` of a `dtv_slotinfo_list`.
    next: Field,
    /// `slotinfo` of a `dtv_slotinfo_list`: an array of `dtv_slotinfo`.
    slots: Field,
    /// The size of a `dtv_slotinfo`.
    slot_bytes: u32,
    /// `gen` of a `dtv_slotinfo`: the generation in which the module got its number.
    slot_generation: Field,
    /// `map` of a `dtv_slotinfo`: the `link_map` of the module.
    slot_map: Field,
}

impl Layout {
    /// Reads the layout from the `_thread_db_` symbols; `None` if one is missing or unknown.
    fn of(memory: &Words<'_>, maps: &[LinkMap]) -> Option<Self> {
        let described =
            |map: &&LinkMap| symbol(memory, map, "_thread_db_link_map_l_tls_modid").is_some();
        let libc = maps.iter().find(described)?;
        let at = |name: &str| symbol(memory, libc, &format!("_thread_db_{name}"));
        let field = |name: &str| {
            let at = at(name)?;
            let (bits, offset) = (memory.u32_at(at)?, memory.u32_at(at.wrapping_add(8))?);
            Some(Field { bits, offset })
        };
        let global = maps.iter().find_map(|map| symbol(memory, map, "_rtld_global"))?;
        let modules = field("rtld_global__dl_tls_dtv_slotinfo_list")?.of(global);
        Some(Self {
            module_id: field("link_map_l_tls_modid")?,
            static_offset: field("link_map_l_tls_offset")?,
            vector: field("pthread_dtvp")?,
            elements: field("dtv_dtv")?,
            counter: field("dtv_t_counter")?,
            pointer: field("dtv_t_pointer_val")?,
            modules: Addr(memory.u64_at(modules)?),
            length: field("dtv_slotinfo_list_len")?,
            next: field("dtv_slotinfo_list_next")?,
            slots: field("dtv_slotinfo_list_slotinfo")?,
            slot_bytes: memory.u32_at(at("sizeof_dtv_slotinfo")?)?,
            slot_generation: field("dtv_slotinfo_gen")?,
            slot_map: field("dtv_slotinfo_map")?,
        })
    }

    /// Returns the generation in which a module got its number. Fails with
    /// [`NoThreadLocal::NoModule`] if the number does not belong to `link_map` now.
    fn generation(
        &self,
        memory: &Words<'_>,
        module: u64,
        link_map: Addr,
    ) -> Result<u64, NoThreadLocal> {
        let word = |at| memory.u64_at(at).ok_or(NoThreadLocal::Unknown);
        let (mut list, mut index) = (self.modules, module);
        for _ in 0..LISTS_LIMIT {
            let length = word(self.length.of(list))?;
            if index < length {
                let slots = self.slots.of(list);
                let slot = slots.wrapping_add(index.wrapping_mul(self.slot_bytes.into()));
                let is_its_own = word(self.slot_map.of(slot))? == link_map.0;
                let generation = word(self.slot_generation.of(slot))?;
                return is_its_own.then_some(generation).ok_or(NoThreadLocal::NoModule);
            }
            index -= length;
            list = Addr(word(self.next.of(list))?);
            if list == Addr(0) {
                break;
            }
        }
        Err(NoThreadLocal::NoModule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_without_program_headers() {
        let variable = ThreadLocal { fs_base: Addr(1), link_map: Addr(2), offset: 3 };
        let unknown = |_: Addr, _: &mut [u8]| 0;
        assert_eq!(variable.address(&[], &unknown), Err(NoThreadLocal::Unknown));
        // The auxiliary vector has their address (AT_PHDR) and number (AT_PHNUM).
        let auxv = [3_u64, 0x40_0040, 5, 1].map(u64::to_le_bytes).concat();
        assert_eq!(variable.address(&auxv, &unknown), Err(NoThreadLocal::Unknown));
        let known = |_: Addr, buf: &mut [u8]| {
            buf.fill(0);
            buf.len()
        };
        assert_eq!(variable.address(&auxv, &known), Err(NoThreadLocal::NoModule));
    }
}
