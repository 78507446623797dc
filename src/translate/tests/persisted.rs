//! Persisted caches: read back, damaged, of other code.

use super::{Bytes, Code, START, ZONE, ZONE_OFFSET, counting};
use crate::common::AddrRange;
use crate::translate::packed::put_number;
use crate::translate::{Module, Outcome, Persisted, PersistedCode, Translator};
use std::collections::BTreeSet;

/// Returns a loop that calls a function: `call 8; jnz 0; ret`, and at 8 `nop; call rax; ret`.
fn code() -> Code {
    let mut bytes = vec![0x90; 0x20];
    bytes[..8].copy_from_slice(&[0xe8, 3, 0, 0, 0, 0x75, 0xf9, 0xc3]);
    bytes[8..12].copy_from_slice(&[0x90, 0xff, 0xd0, 0xc3]);
    Code { bytes, is_fixed: true }
}

fn module() -> Module {
    let range = AddrRange::sized(START.into(), 0x1000);
    Module { range, offset: 0x2000, file: "content".to_owned() }
}

fn always(_: u64) -> bool {
    true
}

/// Translates all that the code leads to. Returns the translator and its persisted cache.
fn persisted() -> (Translator<Bytes>, Persisted) {
    let (mut translator, _) = counting();
    translator.wake(&module(), &always);
    for start in [0, 5, 7, 8, 11] {
        translator.get_or_translate(START + start, &mut code()).unwrap();
    }
    let persisted = translator.persist(&always).unwrap();
    (translator, persisted)
}

/// Returns a translator that resumed from a persisted cache, if it could, and its memory.
fn resumed(of: &Persisted) -> (Translator<Bytes>, Bytes, bool) {
    let (mut translator, memory) = counting();
    let code = PersistedCode::read::<Bytes>(&of.description);
    let is_resumed = code.is_some_and(|code| translator.resume(code, &mut &of.code[..]));
    (translator, memory, is_resumed)
}

#[test]
fn a_resumed_cache_is_as_it_was() {
    let (first, persisted) = persisted();
    let (mut second, memory, is_resumed) = resumed(&persisted);
    assert!(is_resumed);
    let count = first.superblock_count();
    assert_eq!((second.superblock_count(), second.persisted_and_new()), (count, (count, 0)));
    second.wake(&module(), &always);
    for number in (0..).take(count) {
        let (was, is) = (first.superblock(number).unwrap(), second.superblock(number).unwrap());
        assert_eq!((was.start, was.entry, was.end), (is.start, is.entry, is.end));
        assert_eq!(first.path(number), second.path(number));
        for at in was.entry..was.end {
            assert_eq!(first.locate(at), second.locate(at), "{at:#x}");
        }
        assert!(memory.chain(&second, was.start).contains(&is.entry));
        assert_eq!(
            second.get_or_translate(was.start, &mut code()),
            Ok(number),
            "nothing is translated again"
        );
    }
    for (was, is) in first.edges_from(1).iter().zip(second.edges_from(1)) {
        let facts = |edge: &super::super::Edge| {
            let counts = (edge.ticks, edge.instructions, edge.superblock);
            (edge.start, edge.target, edge.kind, edge.bits, edge.bit_count, counts)
        };
        assert_eq!(facts(was), facts(is));
    }
    assert_eq!(first.edge_count(), second.edge_count());
    // The links are the same, whatever order they were made in.
    let again = second.persist(&always).unwrap();
    assert_eq!(again.code, persisted.code);
}

#[test]
fn code_of_files_that_are_not_mapped_stays_dormant() {
    let (first, persisted) = persisted();
    let count = first.superblock_count();
    let elsewhere = AddrRange::sized((START + 0x1000).into(), 0x1000);
    let others = [
        Module { range: elsewhere, ..module() },
        Module { offset: 0, ..module() },
        Module { file: "other content".to_owned(), ..module() },
    ];
    let (mut second, _, _) = resumed(&persisted);
    for other in &others {
        second.wake(other, &always);
    }
    second.wake(&module(), &|_| false);
    assert_eq!(second.get_or_translate(START, &mut code()), Ok(u32::try_from(count).unwrap()));
    // It is kept all the same, if it never could wake.
    let (second, _, _) = resumed(&persisted);
    let (mut third, _, is_resumed) = resumed(&second.persist(&always).unwrap());
    third.wake(&module(), &always);
    assert!(is_resumed);
    assert_eq!(third.get_or_translate(START, &mut code()), Ok(0));
}

#[test]
fn code_that_was_changed_is_not_used() {
    let (mut first, persisted) = persisted();
    first.invalidate(START + 0x800, START + 0x801);
    first.get_or_translate(START, &mut code()).unwrap();
    assert_eq!(first.persist(&always), None, "its bytes may not be the file's");
    let (mut second, _, _) = resumed(&persisted);
    second.wake(&module(), &always);
    second.invalidate(START, START + 1);
    let number = second.get_or_translate(START, &mut code()).unwrap();
    assert!(number as usize >= second.persisted_and_new().0);
    assert_eq!(second.persist(&always), None);
    // A file that is mapped anew has its own bytes again.
    let (mut third, _) = counting();
    third.wake(&module(), &always);
    third.invalidate(START, START + 1);
    third.wake(&module(), &always);
    third.invalidate(START + 0x1000, START + 0x2000);
    third.get_or_translate(START, &mut code()).unwrap();
    assert!(third.persist(&always).is_some());
}

#[test]
fn code_near_a_stop_does_not_wake() {
    let (first, persisted) = persisted();
    let (mut second, _, _) = resumed(&persisted);
    second.set_stops(&BTreeSet::from([START + 0xfff]));
    second.wake(&module(), &always);
    let number = second.get_or_translate(START, &mut code()).unwrap();
    assert!(number as usize >= first.superblock_count());
}

#[test]
fn threads_stop_in_code_that_woke() {
    let (_, persisted) = persisted();
    let (mut second, _, _) = resumed(&persisted);
    second.wake(&module(), &always);
    second.set_stops(&BTreeSet::from([START + 7]));
    let number = second.get_or_translate(START + 7, &mut code()).unwrap();
    assert!(second.stops_at(number) && second.superblock(number).unwrap().native);
    let starts_before = second.get_or_translate(START + 5, &mut code()).unwrap();
    let path = second.path(starts_before);
    assert!(path.iter().all(|step| step.ip != START + 7), "{path:x?}");
}

#[test]
fn new_code_is_added_to_a_resumed_cache() {
    let (mut first, _) = counting();
    first.wake(&module(), &always);
    first.get_or_translate(START + 8, &mut code()).unwrap();
    let (mut second, _, _) = resumed(&first.persist(&always).unwrap());
    second.wake(&module(), &always);
    let before = second.superblock_count();
    let number = second.get_or_translate(START, &mut code()).unwrap();
    assert!(number as usize >= before);
    let (mut third, _, is_resumed) = resumed(&second.persist(&always).unwrap());
    third.wake(&module(), &always);
    assert!(is_resumed && third.get_or_translate(START, &mut code()) == Ok(number));
    assert_eq!(third.path(number)[0].outcome, Outcome::Call);
}

#[test]
fn a_cache_of_another_zone_or_program_is_refused() {
    let (_, persisted) = persisted();
    let (mut other, _) = counting();
    other.add_zone(ZONE + 0x1000_0000, 1 << 20, ZONE_OFFSET);
    let code = || PersistedCode::read::<Bytes>(&persisted.description).unwrap();
    assert!(!other.resume(code(), &mut &persisted.code[..]), "one more zone");
    let (mut full, _) = counting();
    full.get_or_translate(START, &mut super::branching(true)).unwrap();
    assert!(!full.resume(code(), &mut &persisted.code[..]), "not empty");
    let (mut changed, _) = counting();
    let mut bytes = persisted.code.clone();
    bytes[3] ^= 1;
    assert!(!changed.resume(code(), &mut &bytes[..]), "other glue");
    assert!(!changed.resume(code(), &mut &persisted.code[1..]), "other glue");
    let (mut cut, _) = counting();
    assert!(!cut.resume(code(), &mut &persisted.code[..persisted.code.len() - 1]), "cut");
    assert!(cut.get_or_translate(START, &mut super::branching(true)).is_ok());
}

#[test]
fn a_damaged_description_with_many_edges_is_refused() {
    // No zones, modules, groups, hints, pages and exits. A superblock that was not kept takes a few
    // bytes, whatever the number of its edges.
    let mut description = vec![0; 9];
    put_number(&mut description, 3000);
    for left in (1..=3000).rev() {
        put_number(&mut description, 0);
        put_number(&mut description, left);
    }
    description.push(0);
    assert!(PersistedCode::read::<Bytes>(&description).is_none());
}

#[test]
fn a_damaged_description_does_no_harm() {
    let (_, persisted) = persisted();
    let bytes = &persisted.description;
    for cut in 0..bytes.len() {
        assert!(PersistedCode::read::<Bytes>(&bytes[..cut]).is_none(), "cut at {cut}");
    }
    for (at, mask) in (0..bytes.len()).flat_map(|at| [1, 2, 0x10, 0x7f, 0x80].map(|m| (at, m))) {
        let mut description = bytes.clone();
        description[at] ^= mask;
        let (mut translator, _, _) =
            resumed(&Persisted { description, code: persisted.code.clone() });
        // Wrong numbers must not lead out of it.
        for module in [module(), Module { offset: 0, ..module() }] {
            translator.wake(&module, &always);
        }
        let _ = translator.get_or_translate(START, &mut code());
        let _ = (ZONE..ZONE + 0x400).filter_map(|at| translator.locate(at)).count();
        translator.invalidate(START, START + 0x1000);
        let _ = translator.persist(&always);
        translator.clear();
    }
}
