//! Damaged files: no panic, no hang, and every result is consistent with its query.

use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

/// Programs with everything that this room reads: inlining, stubs, compressed sections, old and new
/// DWARF.
static PROGRAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let options: [&[&str]; 4] = [
        &["-O2", "-g"],
        &["-O2", "-g", "-gdwarf-3"],
        &["-O2", "-g", "-gz=zlib"],
        &["-g", "-no-pie"],
    ];
    let compiled = options.iter().filter_map(|options| compile("gcc", "inlined.c", options));
    compiled.map(|program| std::fs::read(program.path).unwrap()).collect()
});

/// Bytes to overwrite, each by its offset modulo the size of the file, with the new value.
type Damage = Vec<(u32, u8)>;

fn damaged(program: usize, damage: &Damage, cut: Option<u16>) -> Option<Vec<u8>> {
    let mut bytes = PROGRAMS.get(program % PROGRAMS.len().max(1))?.clone();
    for (place, value) in damage {
        let place = *place as usize % bytes.len();
        bytes[place] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(bytes.len() * usize::from(cut) / usize::from(u16::MAX));
    }
    Some(bytes)
}

/// Runs all queries on a file.
fn interrogate(bytes: Vec<u8>) {
    let bytes = Bytes::from(bytes);
    let separate = bytes.clone();
    let mut symbols = Symbols::new(move |_: &Path| Some(separate.clone()));
    symbols.add_module("/bin/program", bytes, 0, AddrRange::new(Addr(0), Addr(u64::MAX)));
    let text = (0x1000..0x1600).step_by(13).map(Addr);
    let fixed = (0x40_1000..0x40_1300).step_by(29).map(Addr);
    for addr in text.chain(fixed).chain([Addr(0), Addr(u64::MAX - 1)]) {
        if let Some(function) = symbols.function_at(addr) {
            assert_eq!(function.start.wrapping_add(function.offset), addr);
        }
        let frames = symbols.frames_at(addr);
        if let Some(frame) = frames.first() {
            assert_eq!(frame.location, symbols.location_at(addr));
        }
    }
    for line in [1, 8, 30, 40, u32::MAX] {
        symbols.addresses_of_line("inlined.c", line);
    }
    for name in ["main", "square", "puts@plt"] {
        symbols.addresses_of_function(name);
    }
}

#[test]
fn undamaged_programs_answer() {
    for program in 0..PROGRAMS.len() {
        let mut symbols = Symbols::new(|_: &Path| None);
        let bytes = damaged(program, &Vec::new(), None).unwrap().into();
        symbols.add_module("program", bytes, 0, AddrRange::new(Addr(0), Addr(u64::MAX)));
        let [main] = symbols.addresses_of_function("main")[..] else { panic!("no main") };
        assert!(symbols.location_at(main).is_some());
        assert!(!symbols.addresses_of_line("inlined.c", 30).is_empty());
    }
}

proptest! {
    #[test]
    fn damaged_programs_are_survived(
        program in 0..4_usize,
        damage in prop::collection::vec((any::<u32>(), any::<u8>()), 1..40),
        cut in prop::option::weighted(0.1, any::<u16>()),
    ) {
        if let Some(bytes) = damaged(program, &damage, cut) {
            interrogate(bytes);
        }
    }

    #[test]
    fn random_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..600), magic: bool) {
        if magic && bytes.len() > 20 {
            bytes[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
        }
        interrogate(bytes);
    }
}
