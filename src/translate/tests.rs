//! Tests the translator on small programs. No test executes the cache.

mod hooks;
mod persisted;
mod samples;
mod ticks;

use super::{AddressMap, CacheMemory, Limits, Outcome, ProgramCode, Translator};
use std::cell::RefCell;
use std::rc::Rc;

const TABLE: u64 = 0x1000;
const ZONE_OFFSET: u64 = 0x10_0000;
const ZONE: u64 = 0x5000_0000;
const START: u64 = 0x5555_0000;

#[derive(Clone)]
struct Bytes(Rc<RefCell<Vec<u8>>>);

impl CacheMemory for Bytes {
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        let at = usize::try_from(offset).unwrap();
        bytes.copy_from_slice(&self.0.borrow()[at..at + bytes.len()]);
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let at = usize::try_from(offset).unwrap();
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn store_u32(&self, offset: u64, value: u32) {
        assert!(offset.is_multiple_of(4));
        self.write(offset, &value.to_le_bytes());
    }

    fn store_u64(&self, offset: u64, value: u64) {
        assert!(offset.is_multiple_of(8));
        self.write(offset, &value.to_le_bytes());
    }
}

impl Bytes {
    fn load(&self, offset: u64) -> u64 {
        let at = usize::try_from(offset).unwrap();
        u64::from_le_bytes(self.0.borrow()[at..at + 8].try_into().unwrap())
    }

    /// Returns the entries of the superblocks that compare an indirect branch to `target`, in
    /// order.
    fn chain(&self, translator: &Translator<Self>, target: u64) -> Vec<u64> {
        let mut at = self.load(TABLE + (target & 0xffff) * 8);
        let mut entries = Vec::new();
        let made = || (0..).map_while(|number| translator.superblock(number));
        while let Some(superblock) = made().find(|superblock| superblock.entry == at) {
            entries.push(superblock.entry);
            at = self.load(ZONE_OFFSET + (superblock.next_literal - ZONE));
        }
        entries
    }
}

struct Code {
    bytes: Vec<u8>,
    is_fixed: bool,
}

impl ProgramCode for Code {
    fn fetch(&mut self, ip: u64, buf: &mut [u8]) -> usize {
        let at = usize::try_from(ip.wrapping_sub(START)).unwrap_or(usize::MAX);
        let known = self.bytes.get(at..).unwrap_or_default();
        let len = known.len().min(buf.len());
        buf[..len].copy_from_slice(&known[..len]);
        len
    }

    fn is_fixed(&self, ip: u64) -> bool {
        self.is_fixed && ip.wrapping_sub(START) < self.bytes.len() as u64
    }
}

type Make = fn(Bytes, u64, Limits) -> Translator<Bytes>;

fn make(make: Make) -> (Translator<Bytes>, Bytes) {
    let memory = Bytes(Rc::new(RefCell::new(vec![0; 2 << 20])));
    let mut translator = make(memory.clone(), TABLE, Limits::default());
    translator.add_zone(ZONE, 1 << 20, ZONE_OFFSET);
    (translator, memory)
}

fn translator() -> (Translator<Bytes>, Bytes) {
    make(Translator::new)
}

fn counting() -> (Translator<Bytes>, Bytes) {
    make(Translator::counting)
}

/// Returns `je +0x20`, NOPs, and at 0x22 and 0x3e a `jmp` to itself.
fn branching(is_fixed: bool) -> Code {
    let mut bytes = vec![0x90; 0x40];
    bytes[..2].copy_from_slice(&[0x74, 0x20]);
    bytes[0x22..0x24].copy_from_slice(&[0xeb, 0xfe]);
    bytes[0x3e..].copy_from_slice(&[0xeb, 0xfe]);
    Code { bytes, is_fixed }
}

#[test]
fn what_stays_as_it_is_is_translated_ahead() {
    for is_fixed in [true, false] {
        let (mut translator, _) = translator();
        let mut code = branching(is_fixed);
        translator.get_or_translate(START, &mut code).unwrap();
        let made = translator.superblock_count();
        translator.get_or_translate(START + 0x22, &mut code).unwrap();
        let is_new = translator.superblock_count() > made;
        assert_eq!(is_new, !is_fixed, "{made} superblocks at once");
    }
}

#[test]
fn a_circle_of_jumps_is_exact_where_it_is_entered() {
    for bytes in [vec![0xeb, 0xfe], vec![0xeb, 0x00, 0xeb, 0xfc]] {
        let (mut translator, _) = translator();
        let number =
            translator.get_or_translate(START, &mut Code { bytes, is_fixed: false }).unwrap();
        let at = translator.locate(translator.superblock(number).unwrap().body).unwrap();
        let last = translator.path(number).pop().unwrap();
        assert!(at.exact);
        assert_eq!(at.point.ip, last.ip);
    }
}

#[test]
fn a_path_turns_where_samples_go() {
    let (mut translator, _) = counting();
    let mut code = branching(false);
    let first = translator.get_or_translate(START, &mut code).unwrap();
    let taken = translator.edges_from(0).iter().position(|edge| edge.target == START + 0x22);
    let taken = taken.unwrap() as u64;
    assert_eq!([taken; 3].map(|edge| translator.note_exit_sample(edge)), [false, false, true]);
    let second = translator.get_or_translate(START, &mut code).unwrap();
    assert_ne!(first, second);
    assert_eq!(translator.path(second)[0].outcome, Outcome::Taken);
    assert!(!translator.note_exit_sample(u64::MAX), "no edge");
}

#[test]
fn a_branch_back_is_followed() {
    let (mut translator, _) = translator();
    // nop; nop; inc eax; jne -5; jmp to itself
    let bytes = vec![0x90, 0x90, 0xff, 0xc0, 0x75, 0xfb, 0xeb, 0xfe];
    let mut code = Code { bytes, is_fixed: false };
    let number = translator.get_or_translate(START + 2, &mut code).unwrap();
    let path = translator.path(number);
    let ips: Vec<u64> = path.iter().take(3).map(|step| step.ip - START).collect();
    assert_eq!(ips, [2, 4, 1]);
    assert_eq!(path[1].outcome, Outcome::Taken);
}

/// Returns the addresses and outcomes of the first two steps of a path.
fn first_steps(translator: &Translator<Bytes>, number: u32) -> Vec<(u64, Outcome)> {
    let steps = translator.path(number).into_iter().take(2);
    steps.map(|step| (step.ip - START, step.outcome)).collect()
}

/// Returns a sample of 100 records of a superblock that starts with a branch; `at_once` of them
/// leave there.
fn sample(translator: &Translator<Bytes>, number: u32, at_once: u64) -> AddressMap<u32, u64> {
    let edges = (0..).zip(translator.edges_from(0));
    let of_superblock = edges.filter(|(_, edge)| edge.superblock == number && edge.start != 0);
    let counts = of_superblock.map(|(edge, of)| match of.instructions {
        1 => (edge, at_once),
        _ => (edge, 100 - at_once),
    });
    counts.collect()
}

#[test]
fn a_branch_is_followed_where_it_mostly_goes() {
    let (mut translator, _) = translator();
    let mut code = branching(false);
    let first = translator.get_or_translate(START, &mut code).unwrap();
    assert_eq!(first_steps(&translator, first), [(0, Outcome::NotTaken), (2, Outcome::Plain)]);
    // The guess is right half of the time, so only the path becomes longer.
    assert_eq!(translator.learn_from_records(&sample(&translator, first, 50)), 1);
    let second = translator.get_or_translate(START, &mut code).unwrap();
    assert_ne!(second, first);
    assert_eq!(first_steps(&translator, second)[0].1, Outcome::NotTaken);
    // A dropped superblock teaches nothing more.
    assert_eq!(translator.learn_from_records(&sample(&translator, first, 90)), 0);
    assert_eq!(translator.learn_from_records(&sample(&translator, second, 90)), 1);
    let third = translator.get_or_translate(START, &mut code).unwrap();
    assert_eq!(first_steps(&translator, third), [(0, Outcome::Taken), (0x22, Outcome::Jump)]);
    // The branch changes direction once, until its code changes.
    assert_eq!(translator.learn_from_records(&sample(&translator, third, 90)), 0);
    assert!(translator.invalidate(START, START + 1));
    let fourth = translator.get_or_translate(START, &mut code).unwrap();
    assert_eq!(first_steps(&translator, fourth)[0].1, Outcome::NotTaken);
}

#[test]
fn a_loop_that_goes_on_stays_one() {
    let (mut translator, _) = translator();
    // inc eax; jne -4; jmp to itself
    let mut code = Code { bytes: vec![0xff, 0xc0, 0x75, 0xfc, 0xeb, 0xfe], is_fixed: false };
    for _ in 0..2 {
        let number = translator.get_or_translate(START, &mut code).unwrap();
        assert_eq!(translator.path(number)[1].outcome, Outcome::Taken);
        let last = translator.path(number).len();
        let edges = (0..).zip(translator.edges_from(0));
        let of_it = edges.filter(|(_, edge)| edge.superblock == number);
        let at_last = of_it.filter(|(_, edge)| usize::from(edge.instructions) == last);
        // At the last branch that the path follows, most threads continue and some leave.
        let of_target = |target| if target == START { 90 } else { 10 };
        let sample: AddressMap<u32, u64> =
            at_last.map(|(edge, of)| (edge, of_target(of.target))).collect();
        assert_eq!(sample.len(), 2);
        translator.learn_from_records(&sample);
    }
}

#[test]
fn a_dropped_superblock_is_asked_for_again() {
    let (mut translator, memory) = translator();
    let mut code = branching(false);
    let first = translator.get_or_translate(START, &mut code).unwrap();
    let second = translator.get_or_translate(START + 0x22, &mut code).unwrap();
    let entry = |t: &Translator<Bytes>, number| t.superblock(number).unwrap().entry;
    assert_eq!(memory.chain(&translator, START), [entry(&translator, first)]);
    let before = memory.0.borrow().clone();
    assert!(translator.invalidate(START, START + 1));
    assert!(memory.chain(&translator, START).is_empty());
    assert!(memory.chain(&translator, START + 0x22).is_empty());
    let again = translator.get_or_translate(START + 0x22, &mut code).unwrap();
    assert_ne!(again, second);
    // The first superblock's exit leads to the new one, so its jump has changed.
    let range = usize::try_from(entry(&translator, first) - ZONE + ZONE_OFFSET).unwrap();
    let end = usize::try_from(translator.superblock(first).unwrap().end - ZONE + ZONE_OFFSET);
    assert_ne!(before[range..end.unwrap()], memory.0.borrow()[range..end.unwrap()]);
}

#[test]
fn targets_that_share_a_slot_are_asked_in_turn() {
    let (mut translator, memory) = translator();
    let mut bytes = vec![0x90; 0x2_0040];
    for at in [0, 0x1_0000, 0x2_0000] {
        bytes[at..at + 2].copy_from_slice(&[0xeb, 0xfe]);
    }
    let mut code = Code { bytes, is_fixed: false };
    let entries = [0, 0x1_0000, 0x2_0000].map(|at| {
        let number = translator.get_or_translate(START + at, &mut code).unwrap();
        translator.superblock(number).unwrap().entry
    });
    let [first, second, third] = entries;
    assert_eq!(memory.chain(&translator, START), [third, second, first]);
    translator.invalidate(START + 0x1_0000, START + 0x1_0001);
    assert_eq!(memory.chain(&translator, START), [third, first]);
    translator.invalidate(START + 0x2_0000, START + 0x2_0001);
    assert_eq!(memory.chain(&translator, START), [first]);
}
