//! Round trips, cuts, damage, and hostile bytes.

use super::pack::{COMPRESSED_LIMIT_BYTES, PIECE_BYTES, pack_chunk};
use super::*;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::insn::Registers;
use crate::recording::chunk::frame;
use crate::recording::{Error, ErrorKind};
use crate::sideband::{ImageId, Protection};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use std::convert::Infallible;

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes)
}

fn words() -> impl Strategy<Value = Words> {
    vec(any::<u64>(), 27).prop_map(|words| {
        let words: [u64; 27] = words.try_into().unwrap();
        Words::from(Registers::from_words(words))
    })
}

fn state() -> impl Strategy<Value = ThreadState> {
    (words(), bytes()).prop_map(|(registers, extended)| ThreadState { registers, extended })
}

fn range() -> impl Strategy<Value = AddrRange> {
    any::<(u64, u64)>().prop_map(|(a, b)| AddrRange::new(Addr(a.min(b)), Addr(a.max(b))))
}

fn protection() -> impl Strategy<Value = Protection> {
    any::<[bool; 4]>().prop_map(|[read, write, execute, shared]| Protection {
        read,
        write,
        execute,
        shared,
    })
}

fn write() -> impl Strategy<Value = Write> {
    (any::<u64>(), bytes()).prop_map(|(addr, bytes)| Write { addr: Addr(addr), bytes })
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    vec(write(), 0..4)
}

fn mapped() -> impl Strategy<Value = Mapped> {
    let file = ("[0-9a-f]{0,64}", any::<u64>());
    let file = file.prop_map(|(image, offset)| Content::File { image: ImageId(image), offset });
    let content = prop_oneof![Just(Content::Zeros), file];
    let shared = any::<(u64, u64)>().prop_map(|(file, offset)| Shared { file, offset });
    (range(), protection(), any::<bool>(), content, ".{0,20}", option::of(shared)).prop_map(
        |(range, protection, grows_down, content, name, shared)| Mapped {
            range,
            protection,
            grows_down,
            content,
            name,
            shared,
        },
    )
}

fn map_change() -> impl Strategy<Value = MapChange> {
    prop_oneof![
        mapped().prop_map(MapChange::Map),
        range().prop_map(MapChange::Unmap),
        (range(), protection())
            .prop_map(|(range, protection)| MapChange::Protect { range, protection }),
        (range(), range()).prop_map(|(from, to)| MapChange::Move { from, to }),
        range().prop_map(MapChange::Discard),
    ]
}

fn effects() -> impl Strategy<Value = CallEffects> {
    let state = option::of(state().prop_map(Box::new));
    (any::<i64>(), writes(), vec(map_change(), 0..4), state)
        .prop_map(|(result, writes, maps, state)| CallEffects { result, writes, maps, state })
}

fn move_to_cpu() -> impl Strategy<Value = PlaceInTick> {
    any::<(u64, u64)>().prop_map(|(ip, rcx)| PlaceInTick { ip: Addr(ip), rcx })
}

fn start() -> impl Strategy<Value = Start> {
    (any::<i32>(), ".{0,20}", bytes(), state(), vec(mapped(), 0..3)).prop_map(
        |(pid, program, auxv, state, mappings)| Start {
            pid: Pid(pid),
            program,
            auxv,
            state,
            mappings,
        },
    )
}

fn event() -> impl Strategy<Value = LogEvent> {
    let signal = (move_to_cpu(), bytes(), option::of(state().prop_map(Box::new)), writes());
    let executes = (words(), option::of(bytes()), writes());
    prop_oneof![
        start().prop_map(|start| LogEvent::Start(Box::new(start))),
        write().prop_map(LogEvent::Memory),
        (any::<u64>(), effects()).prop_map(|(number, effects)| LogEvent::Call { number, effects }),
        any::<u64>().prop_map(|number| LogEvent::Enters { number }),
        effects().prop_map(|effects| LogEvent::Returns { effects }),
        executes.prop_map(|(registers, extended, writes)| LogEvent::Executes {
            registers: Box::new(registers),
            extended,
            writes,
        }),
        signal.prop_map(|(place, siginfo, handler, writes)| LogEvent::Signal {
            place,
            siginfo,
            handler,
            writes,
        }),
        move_to_cpu().prop_map(|place| LogEvent::Switch { place }),
        (state(), writes())
            .prop_map(|(state, writes)| LogEvent::Born { state: Box::new(state), writes }),
        writes().prop_map(|writes| LogEvent::Ends { writes }),
        option::of(move_to_cpu()).prop_map(|place| LogEvent::Finish { place }),
        (move_to_cpu(), option::of(state().prop_map(Box::new)), writes())
            .prop_map(|(place, state, writes)| LogEvent::Changed { place, state, writes }),
        range().prop_map(|range| LogEvent::Foreign { range }),
        Just(LogEvent::FinalMemory),
        (move_to_cpu(), words(), option::of(bytes()), writes()).prop_map(
            |(place, registers, extended, writes)| {
                let registers = Box::new(registers);
                LogEvent::Accesses { place, registers, extended, writes }
            }
        ),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<i32>(), any::<u64>(), any::<u32>(), event())
        .prop_map(|(tid, ticks, check, event)| Entry { tid: Tid(tid), ticks, check, event })
}

/// Reads entries up to the end, or to the first that cannot be read.
fn read(bytes: Vec<u8>) -> (Vec<Entry>, Option<Error>) {
    let mut cursor = Log::of_bytes(bytes).cursor();
    let mut entries = Vec::new();
    loop {
        match cursor.read() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return (entries, None),
            Err(error) => return (entries, Some(error)),
        }
    }
}

fn read_all(bytes: Vec<u8>) -> Vec<Entry> {
    let (entries, error) = read(bytes);
    assert!(error.is_none(), "{error:?}");
    entries
}

/// Returns a log of one chunk whose entries are these bytes.
fn chunk_of(entries: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    let Ok(()) = pack_chunk(entries, |payload| {
        log.extend_from_slice(&frame(payload));
        Ok::<(), Infallible>(())
    });
    log
}

fn switch(ticks: u64) -> Entry {
    let place = PlaceInTick { ip: Addr(0x1000), rcx: 0 };
    Entry { tid: Tid(1), ticks, check: 7, event: LogEvent::Switch { place } }
}

fn call_that_writes(bytes: Vec<u8>) -> Entry {
    let writes = vec![Write { addr: Addr(0x1000), bytes: Bytes(bytes) }];
    let effects = CallEffects { result: 0, writes, maps: Vec::new(), state: None };
    Entry { tid: Tid(1), ticks: 1, check: 7, event: LogEvent::Call { number: 0, effects } }
}

/// Returns bytes that cannot be compressed.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56).to_le_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}

proptest! {
    #[test]
    fn every_entry_is_read_as_it_was_written(entries in vec(entry(), 0..12)) {
        prop_assert_eq!(read_all(encode(&entries)), entries);
    }

    #[test]
    fn a_cut_log_has_the_entries_of_its_whole_chunks(
        chunks in vec(vec(entry(), 1..4), 0..5),
        cut in any::<Index>(),
    ) {
        let pieces: Vec<Vec<u8>> = chunks.iter().map(encode).collect();
        let mut log = pieces.concat();
        let cut = cut.index(log.len() + 1);
        log.truncate(cut);
        let mut end = 0;
        let is_whole = |piece: &&Vec<u8>| {
            end += piece.len();
            end <= cut
        };
        let whole = pieces.iter().take_while(is_whole).count();
        prop_assert_eq!(read_all(log), chunks[..whole].concat());
    }

    #[test]
    fn a_changed_byte_ends_the_log_before_its_chunk(
        chunks in vec(vec(entry(), 1..4), 1..5),
        at in any::<Index>(),
        bit in 0_u32..8,
    ) {
        let pieces: Vec<Vec<u8>> = chunks.iter().map(encode).collect();
        let mut log = pieces.concat();
        let at = at.index(log.len());
        log[at] ^= 1_u8 << bit;
        let (found, error) = read(log);
        prop_assert!(error.is_none());
        let mut end = 0;
        let is_before = |piece: &&Vec<u8>| {
            end += piece.len();
            end <= at
        };
        let before = pieces.iter().take_while(is_before).count();
        prop_assert_eq!(found, chunks[..before].concat());
    }

    #[test]
    fn hostile_entries_are_read_or_refused(
        entries in vec(entry(), 0..3),
        changes in vec((any::<Index>(), any::<u8>()), 0..8),
        rest in vec(any::<u8>(), 0..40),
    ) {
        let mut encoded: Vec<u8> =
            entries.iter().flat_map(|entry| postcard::to_stdvec(entry).unwrap()).collect();
        encoded.extend(rest);
        if encoded.is_empty() {
            return Ok(());
        }
        for (at, byte) in changes {
            let at = at.index(encoded.len());
            encoded[at] = byte;
        }
        let (found, _) = read(chunk_of(&encoded));
        prop_assert_eq!(read_all(encode(&found)), found);
    }

    #[test]
    fn hostile_payloads_are_read_or_refused(payload in vec(any::<u8>(), 0..60)) {
        let (found, _) = read(frame(&payload));
        prop_assert_eq!(read_all(encode(&found)), found);
    }
}

#[test]
fn a_log_is_cut_at_each_byte() {
    let chunks = [vec![switch(1), switch(2)], vec![call_that_writes(noise(30))], vec![switch(3)]];
    let pieces: Vec<Vec<u8>> = chunks.iter().map(encode).collect();
    let log = pieces.concat();
    for cut in 0..=log.len() {
        let mut end = 0;
        let is_whole = |piece: &&Vec<u8>| {
            end += piece.len();
            end <= cut
        };
        let whole = pieces.iter().take_while(is_whole).count();
        assert_eq!(read_all(log[..cut].to_vec()), chunks[..whole].concat(), "cut at {cut}");
    }
}

#[test]
fn an_entry_that_no_frame_can_hold_is_written_in_pieces() {
    let entries = [switch(1), call_that_writes(noise(2 * PIECE_BYTES + 1)), switch(2)];
    let log = encode(&entries);
    assert_eq!(read_all(log.clone()), entries);
    // Without the last piece, the chunk is cut.
    let last = log.len() - PIECE_BYTES / 2;
    let (log, whole) =
        Log::of_file("log".as_ref(), super::super::Mapped::held(log[..last].to_vec()));
    assert!(whole.broken && whole.size_bytes < PIECE_BYTES as u64);
    assert_eq!(log.totals().unwrap().entries, 0);
}

#[test]
fn lengths_that_are_lies_are_refused_without_their_memory() {
    // An end of a thread that wrote 2^60 ranges, and a write of 2^60 bytes.
    let length = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    for start in [&[2, 0, 0, 9][..], &[2, 0, 0, 1, 0]] {
        let (found, error) = read(chunk_of(&[start, &length].concat()));
        assert!(found.is_empty());
        assert!(matches!(error.unwrap().kind, ErrorKind::LogEntry { offset: 8 }));
    }
    // A block that claims to be larger than any that is compressed.
    let size = u32::try_from(COMPRESSED_LIMIT_BYTES + 1).unwrap().to_le_bytes();
    let (_, error) = read(frame(&[&[1][..], &size, &[0; 20]].concat()));
    assert!(error.is_some());
}

#[test]
fn tags_that_no_entry_has_are_refused() {
    for event in 15..0x80 {
        let (found, error) = read(chunk_of(&[2, 0, 0, event, 0, 0, 0, 0]));
        assert!(found.is_empty() && error.is_some(), "{event}");
    }
    // Payloads of unknown kinds.
    for kind in 3..=u8::MAX {
        assert!(read(frame(&[kind, 2, 0, 0, 9, 0])).1.is_some(), "{kind}");
    }
    assert!(read(frame(&[])).1.is_some());
}

#[test]
fn an_entry_must_end_in_its_chunk() {
    let encoded = postcard::to_stdvec(&switch(1)).unwrap();
    let (first, second) = encoded.split_at(4);
    let log = [chunk_of(first), chunk_of(second)].concat();
    assert!(read(log).1.is_some());
}

#[test]
fn copies_of_a_cursor_read_on_independently() {
    let entries: Vec<Entry> = (0..100).map(switch).collect();
    let mut cursor = Log::of_bytes(encode(&entries)).cursor();
    for entry in &entries[..50] {
        assert_eq!(cursor.peek().unwrap(), Some(entry));
        assert_eq!(cursor.read().unwrap().as_ref(), Some(entry));
    }
    let mut copy = cursor.clone();
    assert_eq!((copy.index(), copy.peek().unwrap()), (50, Some(&entries[50])));
    while cursor.read().unwrap().is_some() {}
    assert_eq!((cursor.index(), copy.index()), (100, 50));
    assert_eq!(copy.read().unwrap().as_ref(), Some(&entries[50]));
}
