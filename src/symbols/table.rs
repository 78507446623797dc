//! The ELF symbols of a module: functions by address and by name. Reads no DWARF.

use crate::image::Bytes;
use crate::symbols::names;
use crate::symbols::plt;
use crate::symbols::spans::{Span, Spans};
use object::elf::{STB_GLOBAL, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{ElfFile64, Sym, SymbolTable as ElfTable};
use object::{Endianness, Object, ObjectSection};

type File<'data> = ElfFile64<'data, Endianness>;

/// The ELF symbols of a module's functions, at the addresses of its file.
#[derive(Debug, Default)]
pub(super) struct SymbolTable {
    symbols: Vec<Symbol>,
    /// The value of each span is an index in `symbols`.
    by_address: Spans,
    /// The address ranges of the code sections.
    code: Spans,
    /// The module, and its separate debug file if it has one.
    files: Vec<Bytes>,
}

/// A function found by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionSymbol {
    /// Its demangled name; `name@plt` for a stub of the procedure linkage table.
    pub(super) name: String,
    pub(super) start: u64,
    /// Zero if the symbol has no size.
    pub(super) size_bytes: u64,
}

/// A function, label or stub, at the addresses of the file.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: u64,
    /// Zero if the symbol has no size.
    size_bytes: u64,
    name: Name,
    rank: Rank,
}

/// The position of a symbol's name: the index of the file, and the bytes in it.
#[derive(Clone, Copy, Debug)]
struct Name {
    file: usize,
    start: usize,
    size_bytes: usize,
    /// True if it names a stub of the procedure linkage table: the function to which it jumps.
    is_plt: bool,
}

/// The priority of a name among those of one address: the highest is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_function: bool,
    is_sized: bool,
    /// 0 for a local symbol, 2 for a global one, 1 for a weak or other one.
    binding: u8,
    /// True if the name does not start with an underscore.
    is_public: bool,
}

impl SymbolTable {
    /// Reads the symbols of `files`: the module, and its separate debug file if it has one. The
    /// code sections are those of the first file that has any.
    pub(super) fn parse(files: Vec<Bytes>) -> Self {
        let mut symbols = Vec::new();
        let mut code = Spans::default();
        for (index, bytes) in files.iter().enumerate() {
            let Ok(elf) = File::parse(&**bytes) else { continue };
            if code.is_empty() {
                code = code_sections(&elf);
            }
            for table in [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()] {
                push_symbols(&mut symbols, table, &code, index, bytes);
            }
            push_stubs(&mut symbols, &elf, index, bytes);
        }
        symbols.sort_by_key(|symbol| (symbol.start, symbol.rank));
        let by_address = covered_code(&symbols, &code);
        Self { symbols, by_address, code, files }
    }

    /// Returns the address ranges of the code sections. Their values have no meaning.
    pub(super) fn code(&self) -> &Spans {
        &self.code
    }

    /// Returns the function, label or stub whose symbol covers `addr`, as [`covered_code`] says;
    /// `None` if there is none, or its name is not UTF-8.
    pub(super) fn function_at(&self, addr: u64) -> Option<FunctionSymbol> {
        let index = usize::try_from(self.by_address.find(addr)?.value).ok()?;
        let symbol = self.symbols.get(index)?;
        let mut name = names::demangle(self.raw_name(symbol.name)?);
        if symbol.name.is_plt {
            name.push_str("@plt");
        }
        Some(FunctionSymbol { name, start: symbol.start, size_bytes: symbol.size_bytes })
    }

    /// Returns the start addresses of the symbols that `query` matches: of functions and labels or,
    /// for `name@plt`, of the stubs of `name` only. Repeats an address for each of its names.
    pub(super) fn addresses_of_function<'a>(
        &'a self,
        query: &'a str,
    ) -> impl Iterator<Item = u64> + 'a {
        let (name, wants_plt) = match query.strip_suffix("@plt") {
            Some(name) => (name, true),
            None => (query, false),
        };
        let query = names::Query::new(name);
        let meant = move |symbol: &&Symbol| {
            symbol.name.is_plt == wants_plt
                && self.raw_name(symbol.name).is_some_and(|raw| query.matches(raw))
        };
        self.symbols.iter().filter(meant).map(|symbol| symbol.start)
    }

    /// Returns a name as it is in the file; `None` if it is not UTF-8.
    fn raw_name(&self, name: Name) -> Option<&str> {
        let end = name.start.checked_add(name.size_bytes)?;
        std::str::from_utf8(self.files.get(name.file)?.get(name.start..end)?).ok()
    }
}

/// Returns the address ranges of the sections with code; empty if the file has no sections.
fn code_sections(elf: &File<'_>) -> Spans {
    let is_code = |flags: object::SectionFlags| matches!(flags, object::SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(object::elf::SHF_EXECINSTR));
    let sections = elf.sections().filter(|section| is_code(section.flags()));
    let spans = sections.map(|section| {
        let start = section.address();
        Span { start, end: start.saturating_add(section.size()), value: 0 }
    });
    Spans::new(spans.collect())
}

/// Adds the functions and labels of an ELF symbol table that start in the code sections. Leaves out
/// undefined and nameless ones.
fn push_symbols(
    symbols: &mut Vec<Symbol>,
    table: &ElfTable<'_, object::elf::FileHeader64<Endianness>>,
    code: &Spans,
    file: usize,
    bytes: &Bytes,
) {
    let endian = Endianness::Little;
    for symbol in table.iter() {
        let start = symbol.st_value(endian);
        let kind = symbol.st_type();
        let is_function = kind == STT_FUNC || kind == STT_GNU_IFUNC;
        if !(is_function || kind == STT_NOTYPE)
            || symbol.is_undefined(endian)
            || code.find(start).is_none()
        {
            continue;
        }
        let raw = table.symbol_name(endian, symbol).ok();
        let Some(name) = raw.and_then(|raw| name_in(file, bytes, raw, false)) else { continue };
        let binding = match symbol.st_bind() {
            STB_GLOBAL => 2,
            STB_LOCAL => 0,
            _ => 1,
        };
        let size_bytes = symbol.st_size(endian);
        let is_public = raw.is_some_and(|raw| !raw.starts_with(b"_"));
        let rank = Rank { is_function, is_sized: size_bytes > 0, binding, is_public };
        symbols.push(Symbol { start, size_bytes, name, rank });
    }
}

/// Adds the stubs of the procedure linkage table, with the names of the functions to which they
/// jump.
fn push_stubs(symbols: &mut Vec<Symbol>, elf: &File<'_>, file: usize, bytes: &Bytes) {
    for stub in plt::stubs(elf) {
        let Some(name) = name_in(file, bytes, stub.target, true) else { continue };
        let rank = Rank { is_function: false, is_sized: true, binding: 0, is_public: false };
        symbols.push(Symbol { start: stub.start, size_bytes: stub.size_bytes, name, rank });
    }
}

/// Returns the position of `raw`, a name inside `bytes`, without its version (`@@GLIBC_2.2.5`);
/// `None` for an empty name.
fn name_in(file: usize, bytes: &Bytes, raw: &[u8], is_plt: bool) -> Option<Name> {
    let start = raw.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
    let size_bytes = raw.iter().position(|byte| *byte == b'@').unwrap_or(raw.len());
    (size_bytes > 0).then_some(Name { file, start, size_bytes, is_plt })
}

/// Returns the code that each symbol covers; the value of a span is the symbol's index. `symbols`
/// are sorted by start and rank; of several at one start, the highest-ranking one has the code. A
/// sized symbol covers its size. One without a size extends to the next symbol or to the end of its
/// section, unless it is a label inside a sized one. Bytes between sized symbols belong to none.
fn covered_code(symbols: &[Symbol], code: &Spans) -> Spans {
    let mut ranges = Vec::new();
    let mut covered_to = 0;
    for (index, symbol) in (0_u32..).zip(symbols) {
        let start = symbol.start;
        let Some(section) = code.find(start) else { continue };
        let end = if symbol.size_bytes > 0 {
            start.saturating_add(symbol.size_bytes).min(section.end)
        } else if start < covered_to {
            continue;
        } else {
            next_start(symbols, start).map_or(section.end, |next| next.min(section.end))
        };
        if symbol.size_bytes > 0 {
            covered_to = covered_to.max(end);
        }
        ranges.push(Span { start, end, value: index });
    }
    Spans::new(highest_ranking(&ranges, symbols))
}

/// Returns for each start address the range of the highest-ranking symbol; of equal ones, the
/// last. `ranges` must be sorted by start; the value of each is an index in `symbols`.
fn highest_ranking(ranges: &[Span], symbols: &[Symbol]) -> Vec<Span> {
    let rank = |span: &Span| usize::try_from(span.value).ok().and_then(|at| symbols.get(at));
    let same_start = |a: &Span, b: &Span| a.start == b.start;
    let best = |run: &[Span]| run.iter().copied().max_by_key(|span| rank(span).map(|s| s.rank));
    ranges.chunk_by(same_start).filter_map(best).collect()
}

/// Returns the start of the first symbol above `start`; `None` if there is none.
fn next_start(symbols: &[Symbol], start: u64) -> Option<u64> {
    let next = symbols.partition_point(|symbol| symbol.start <= start);
    symbols.get(next).map(|symbol| symbol.start)
}
