//! Tests images and address spaces against a model that stores every byte separately.

use super::*;
use crate::common::{Addr, AddrRange, Tsc};
use proptest::prelude::*;
use std::sync::Arc;

const SPACE_BYTES: u64 = 64;

/// The model of a byte: its value, whether it is file data, and the section's name.
type Cell = Option<(u8, bool, Arc<str>)>;

#[derive(Clone, Debug)]
enum Change {
    Map { range: AddrRange, offset: u64, writable: bool, named: bool, seed: u8 },
    Unmap(AddrRange),
    Exec,
    Protect(AddrRange, bool),
    Poke(Addr, Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let range = (0..SPACE_BYTES, 0..16_u64)
        .prop_map(|(start, size)| AddrRange::new(Addr(start), Addr(start + size)));
    let map = (range.clone(), 0..32_u64, any::<bool>(), any::<bool>(), any::<u8>());
    prop_oneof![
        8 => map.prop_map(|(range, offset, writable, named, seed)| {
            Change::Map { range, offset, writable, named, seed }
        }),
        3 => range.clone().prop_map(Change::Unmap),
        1 => Just(Change::Exec),
        3 => (range, any::<bool>()).prop_map(|(range, writable)| Change::Protect(range, writable)),
        3 => (0..SPACE_BYTES, prop::collection::vec(any::<u8>(), 0..8))
            .prop_map(|(addr, bytes)| Change::Poke(Addr(addr), bytes)),
    ]
}

fn name(named: bool) -> Arc<str> {
    if named { "/program".into() } else { "".into() }
}

fn file(seed: u8) -> Vec<u8> {
    (0..48_u8).map(|at| at.wrapping_mul(seed)).collect()
}

impl Change {
    fn apply(&self, space: &mut AddressSpace, at: Tsc) {
        match self.clone() {
            Self::Map { range, offset, writable, named, seed } => {
                let bytes = file(seed).into();
                let name = name(named);
                space.map(
                    at,
                    Section { range, bytes, offset, writable, name, ..Section::default() },
                );
            }
            Self::Unmap(range) => space.unmap(at, range),
            Self::Exec => space.exec(at),
            Self::Protect(range, writable) => space.protect(at, range, writable, false),
            Self::Poke(addr, bytes) => space.poke(at, addr, bytes),
        }
    }

    fn apply_to_model(&self, model: &mut [Cell]) {
        for (cell, at) in model.iter_mut().zip((0..).map(Addr)) {
            match self {
                Self::Map { range, offset, writable, named, seed } if range.contains(at) => {
                    let position = usize::try_from(offset + at.0 - range.start.0).unwrap();
                    let value = file(*seed).get(position).copied().unwrap_or(0);
                    *cell = Some((value, *named && !writable, name(*named)));
                }
                Self::Unmap(range) if range.contains(at) => *cell = None,
                Self::Exec => *cell = None,
                Self::Protect(range, writable) if range.contains(at) => {
                    if let Some((_, is_file_data, _)) = cell {
                        *is_file_data &= !writable;
                    }
                }
                _ => {}
            }
        }
        if let Self::Poke(addr, bytes) = self {
            let start = usize::try_from(addr.0).unwrap();
            let name = model[start].as_ref().map(|cell| cell.2.clone()).unwrap_or_default();
            for (cell, byte) in model.iter_mut().skip(start).zip(bytes) {
                *cell = Some((*byte, false, name.clone()));
            }
        }
    }
}

fn assert_same(image: &Arc<Image>, model: &[Cell]) {
    image.check();
    let reader = image.reader();
    for (start, addr) in (0..).map(Addr).enumerate().take(model.len()) {
        let known: Vec<u8> = model[start..].iter().map_while(|c| c.as_ref().map(|c| c.0)).collect();
        let mut buf = vec![0xcc; model.len()];
        let read = image.read(addr, &mut buf);
        assert_eq!(&buf[..read], &known[..], "at {addr}");
        assert_eq!(reader.read(addr, &mut buf), read);
        let data = model[start..].iter().take_while(|c| c.as_ref().is_some_and(|c| c.1)).count();
        assert_eq!(image.read_file_data(addr, &mut buf), data, "file data at {addr}");
        let name = image.section_at(addr).map(|section| section.name.clone());
        assert_eq!(name, model[start].as_ref().map(|cell| cell.2.clone()));
    }
}

proptest! {
    #[test]
    fn address_space_equals_model(changes in prop::collection::vec((0..40_u64, change()), 0..60)) {
        let mut space = AddressSpace::new();
        for (at, change) in &changes {
            change.apply(&mut space, Tsc(*at));
            if at % 7 == 0 {
                space.epochs(); // Changes after a query must be visible in the next one.
            }
        }
        let mut model = vec![None; 96];
        let mut sorted = changes.clone();
        sorted.sort_by_key(|(at, _)| *at);
        for now in 0..41 {
            for (_, change) in sorted.iter().filter(|(at, _)| *at == now) {
                change.apply_to_model(&mut model);
            }
            assert_same(&space.image_at(Tsc(now)), &model);
        }
        prop_assert!(space.epochs().windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}

#[test]
fn a_mapping_reads_as_zero_to_the_page_end_and_is_unknown_after() {
    let image = Image::new([Section {
        range: AddrRange::new(Addr(0x1000), Addr(0x4000)),
        bytes: vec![7; 0x1800].into(),
        ..Section::default()
    }]);
    let mut buf = [1; 0x4000];
    assert_eq!(image.read(Addr(0x1000), &mut buf), 0x2000);
    assert!(buf[..0x1800].iter().all(|byte| *byte == 7));
    assert!(buf[0x1800..0x2000].iter().all(|byte| *byte == 0));
    assert_eq!(image.read(Addr(0x3000), &mut buf), 0);
    assert_eq!(image.read(Addr(u64::MAX), &mut buf), 0);
}

/// Creates a process with libraries that writes `pokes` functions into memory reserved for code.
fn jit(pokes: u64) -> AddressSpace {
    let mut space = AddressSpace::new();
    let range = |start, size| AddrRange::sized(Addr(start), size);
    for library in 0..100 {
        let bytes = vec![0xcc; 4096].into();
        let range = range(0x7f00_0000_0000 + library * 0x10_0000, 0x1000);
        space.map(Tsc(0), Section { range, bytes, ..Section::default() });
    }
    let range = range(0x1000_0000, 0x1000_0000);
    space.map(Tsc(1), Section { range, writable: true, executable: true, ..Section::default() });
    for at in 0..pokes {
        // At scattered addresses, as code caches are filled and refilled.
        let addr = 0x1000_0000 + at.wrapping_mul(0x9e37_79b9) % 0xfff_0000;
        space.poke(Tsc(2 + at), Addr(addr), vec![0x90; 200]);
    }
    space
}

#[test]
fn images_of_a_process_that_writes_code_share_what_is_the_same() {
    let space = jit(10_000);
    let epochs = space.epochs();
    assert_eq!(epochs.len(), 10_002);
    let nodes = Image::count_nodes(epochs.iter().map(|(_, image)| &**image));
    let longest_path = 20;
    assert!(nodes < 10_000 * 4 * longest_path, "{nodes} nodes");
    epochs.iter().step_by(1000).for_each(|(_, image)| image.check());
}

#[test]
fn read_only_data_that_was_relocated_is_not_served_for_the_past() {
    let mut space = AddressSpace::new();
    let range = AddrRange::sized(Addr(0x1000), 0x3000);
    let bytes = vec![7; 0x3000].into();
    let name = "/lib/libc.so.6".into();
    space.map(Tsc(1), Section { range, bytes, name, writable: true, ..Section::default() });
    space.protect(Tsc(2), AddrRange::sized(Addr(0x1000), 0x1000), false, false);
    let image = space.image_at(Tsc(2));
    let mut buf = [0; 4];
    assert_eq!(image.read_file_data(Addr(0x1000), &mut buf), 0);
    assert_eq!(image.read(Addr(0x1000), &mut buf), 4);
}
