//! Births and ends of threads.

use super::{BASE, FakeMemory, call, written};
use crate::common::Addr;
use crate::syscalls::Registered;

const CHILD_CLEARTID: u64 = 0x20_0000;
const CHILD_SETTID: u64 = 0x100_0000;
const PARENT_SETTID: u64 = 0x10_0000;
const VM: u64 = 0x100;

#[test]
fn clone_writes_the_childs_number_where_it_is_asked_to() {
    assert_eq!(written("clone", &[17, 0, 0x100, 0x200], 9), []);
    assert_eq!(written("clone", &[PARENT_SETTID, 0, 0x100, 0x200], 9), [(0x100, 4)]);
    // The kernel writes the number in the child's own memory.
    assert_eq!(written("clone", &[CHILD_SETTID, 0, 0x100, 0x200], 9), []);
    assert_eq!(written("clone", &[CHILD_SETTID | VM, 0, 0x100, 0x200], 9), [(0x200, 4)]);
    let scene = FakeMemory::new();
    scene.put64(BASE, PARENT_SETTID | 0x1000).put64(BASE + 8, 0x300).put64(BASE + 24, 0x400);
    assert_eq!(scene.whole("clone3", &[BASE, 88], 9), [(0x300, 4), (0x400, 4)]);
}

#[test]
fn a_thread_clears_its_number_and_marks_its_locks_at_its_end() {
    let scene = FakeMemory::new();
    let memory = |addr: Addr, buf: &mut [u8]| scene.read(addr, buf);
    let birth = call("clone", &[CHILD_CLEARTID, 0, 0, 0x200]);
    let mut registered = Registered::of_child(&birth, &memory);
    assert_eq!(registered.clear_tid, Some(Addr(0x200)));
    // Two locks, of which the second inherits priorities, and one that is being taken.
    let (head, first, second, pending) = (BASE, BASE + 0x100, BASE + 0x200, BASE + 0x300);
    scene.put64(head, first).put64(head + 8, 8).put64(head + 16, pending);
    scene.put64(first, second | 1).put64(second, head);
    registered.note_call(&call("set_robust_list", &[head, 24]), 0);
    let words: Vec<u64> =
        registered.written_at_end(&memory).iter().map(|range| range.start.0).collect();
    assert_eq!(words, [0x200, pending + 8, first + 8, second + 8]);
    registered.note_call(&call("set_tid_address", &[0x500]), 77);
    assert_eq!(registered.clear_tid, Some(Addr(0x500)));
}

#[test]
fn a_list_that_closes_without_its_head_ends() {
    let scene = FakeMemory::new();
    let memory = |addr: Addr, buf: &mut [u8]| scene.read(addr, buf);
    scene.put64(BASE, BASE + 0x100).put64(BASE + 0x100, BASE + 0x100);
    let registered = Registered { clear_tid: None, robust_list: Some(Addr(BASE)) };
    assert_eq!(registered.written_at_end(&memory).len(), 2049);
}
