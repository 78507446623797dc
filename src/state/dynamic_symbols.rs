//! Looks up exported symbols of a loaded library in memory, in the tables that the dynamic linker
//! uses (`DT_SYMTAB`, `DT_STRTAB`, `DT_GNU_HASH`).

use super::link_map::LinkMap;
use super::words::Words;
use crate::common::Addr;

const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// The size of an `Elf64_Sym`, and the offsets of its name, its section and its value.
const SYMBOL_BYTES: u64 = 24;
const ST_NAME: u64 = 0;
const ST_SHNDX: u64 = 6;
const ST_VALUE: u64 = 8;
/// The maximum length of a hash bucket's chain of symbols. A longer one is taken as damaged.
const CHAIN_LIMIT: u64 = 1 << 16;

/// Returns the address of a symbol that a library exports, of whatever version; `None` if it
/// exports none of this name, has no `DT_GNU_HASH`, or its tables are unknown.
pub(super) fn symbol(memory: &Words<'_>, library: &LinkMap, name: &str) -> Option<Addr> {
    let table = |tag| memory.dynamic_entry(library.dynamic, tag).map(|at| absolute(library, at));
    let (symbols, strings) = (table(DT_SYMTAB)?, table(DT_STRTAB)?);
    let hash_table = table(DT_GNU_HASH)?;
    let number = |at: Addr| memory.u32_at(at).map(u64::from);
    // `nbuckets`, `symoffset`, `bloom_size` and `bloom_shift`, of four bytes each; then the words
    // of the Bloom filter, the buckets and the chains.
    let [buckets, first, bloom] = [0, 4, 8].map(|offset| number(hash_table.wrapping_add(offset)));
    let (buckets, first) = (buckets.filter(|count| *count > 0)?, first?);
    let bucket_table = hash_table.wrapping_add(16).wrapping_add(bloom?.wrapping_mul(8));
    let chains = bucket_table.wrapping_add(4 * buckets);
    let hash = gnu_hash(name);
    let start = number(bucket_table.wrapping_add(4 * (u64::from(hash) % buckets)))?;
    // Zero is an empty bucket. The hash table omits the symbols before `first`.
    start.checked_sub(first)?;
    for index in start..start + CHAIN_LIMIT {
        // The hash of each symbol of the bucket. Its lowest bit marks the end of the chain.
        let of_symbol = memory.u32_at(chains.wrapping_add(4 * (index - first)))?;
        let at = symbols.wrapping_add(index.wrapping_mul(SYMBOL_BYTES));
        if of_symbol | 1 == hash | 1 {
            let its_name = memory.string(strings.wrapping_add(number(at.wrapping_add(ST_NAME))?));
            let is_defined = memory.u16_at(at.wrapping_add(ST_SHNDX))? != 0;
            if its_name == name && is_defined {
                let value = memory.u64_at(at.wrapping_add(ST_VALUE))?;
                return Some(Addr(library.load_bias).wrapping_add(value));
            }
        }
        if of_symbol & 1 == 1 {
            return None;
        }
    }
    None
}

/// Returns the address that an entry of a dynamic section contains. glibc adds the load bias to
/// most of these entries at run time; it is added here to the others.
fn absolute(library: &LinkMap, pointer: u64) -> Addr {
    let is_relative = pointer < library.load_bias;
    Addr(pointer).wrapping_add(if is_relative { library.load_bias } else { 0 })
}

/// Computes the hash function of `DT_GNU_HASH`.
fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}
