//! Names the stubs of the procedure linkage table, which have no symbols: a stub jumps through the
//! slot of the global offset table that a relocation fills with a function.

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
};
use std::collections::HashMap;

/// A stub, and the name of the function to which it jumps.
pub(super) struct Stub<'data> {
    pub(super) start: u64,
    pub(super) size_bytes: u64,
    pub(super) target: &'data [u8],
}

/// Returns all stubs of `elf` whose function is known, in the sections whose names begin with
/// `.plt`.
pub(super) fn stubs<'data>(elf: &ElfFile64<'data, Endianness>) -> Vec<Stub<'data>> {
    let slots = got_slots(elf);
    let mut stubs = Vec::new();
    if slots.is_empty() {
        return stubs;
    }
    for section in elf.sections() {
        let is_plt = section.name_bytes().is_ok_and(|name| name.starts_with(b".plt"));
        if let (true, Ok(code)) = (is_plt, section.data()) {
            // `.plt.got` of older linkers contains stubs of 8 bytes; all others have 16.
            let entry_size = section.elf_section_header().sh_entsize.get(elf.endian());
            let size_bytes = if entry_size == 8 { 8 } else { 16 };
            add_section_stubs(code, section.address(), size_bytes, &slots, &mut stubs);
        }
    }
    stubs
}

/// Adds the stubs of a section that jump through one of `slots`. Each has `size_bytes`: 8 or 16.
fn add_section_stubs<'data>(
    code: &[u8],
    address: u64,
    size_bytes: u64,
    slots: &HashMap<u64, &'data [u8]>,
    stubs: &mut Vec<Stub<'data>>,
) {
    // `size_bytes` as a usize.
    let step = if size_bytes == 8 { 8 } else { 16 };
    let starts = (0..).map(|index: u64| address.wrapping_add(index.wrapping_mul(size_bytes)));
    for (stub, start) in code.chunks(step).zip(starts) {
        if let Some(target) = jump_slots(stub, start).find_map(|slot| slots.get(&slot)) {
            stubs.push(Stub { start, size_bytes, target });
        }
    }
}

/// Returns the slots used by any `jmp *disp32(%rip)` in a stub (FF /4, SDM volume 2, "JMP"):
/// linkers put ENDBR64, BND or a PUSH before it.
fn jump_slots(stub: &[u8], start: u64) -> impl Iterator<Item = u64> {
    stub.windows(6).enumerate().filter_map(move |(at, window)| {
        let displacement = match window {
            [0xff, 0x25, displacement @ ..] => i32::from_le_bytes(displacement.try_into().ok()?),
            _ => return None,
        };
        let next = start.wrapping_add(at as u64 + 6);
        Some(next.wrapping_add_signed(displacement.into()))
    })
}

/// Returns the slots of the global offset table by address, with the function that fills each.
fn got_slots<'data>(elf: &ElfFile64<'data, Endianness>) -> HashMap<u64, &'data [u8]> {
    let (Some(symbols), Some(relocations)) =
        (elf.dynamic_symbol_table(), elf.dynamic_relocations())
    else {
        return HashMap::new();
    };
    let named = relocations.filter_map(|(slot, relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let name = symbols.symbol_by_index(index).ok()?.name_bytes().ok()?;
        (!name.is_empty()).then_some((slot, name))
    });
    named.collect()
}
