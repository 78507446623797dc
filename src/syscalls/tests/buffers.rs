//! Buffers, structures, and when they are written.

use super::{BASE, FakeMemory, written};

const NOTHING: [(u64, u64); 0] = [];
const EFAULT: i64 = -14;
const EINTR: i64 = -4;

#[test]
fn results_count_bytes_and_elements() {
    assert_eq!(written("read", &[0, 0x100, 64], 5), [(0x100, 5)]);
    assert_eq!(written("read", &[0, 0x100, 64], 0), NOTHING);
    assert_eq!(written("epoll_wait", &[3, 0x100, 10], 2), [(0x100, 24)]);
    assert_eq!(written("msgrcv", &[0, 0x100, 50], 5), [(0x100, 13)]);
    // The result may exceed the size of the buffer.
    assert_eq!(written("recvfrom", &[0, 0x100, 4], 22), [(0x100, 4)]);
    assert_eq!(written("getgroups", &[0, 0], 7), NOTHING);
}

#[test]
fn errors_write_nothing_but_those_that_come_late() {
    assert_eq!(written("read", &[0, 0x100, 64], EINTR), NOTHING);
    assert_eq!(written("read", &[0, 0x100, 64], EFAULT), [(0x100, 64)]);
    assert_eq!(written("stat", &[1, 0x100], -2), NOTHING);
    assert_eq!(written("nanosleep", &[1, 0x100], 0), [(0x100, 16)]);
    assert_eq!(written("nanosleep", &[1, 0x100], -516), [(0x100, 16)]);
    assert_eq!(written("nanosleep", &[1, 0x100], -22), NOTHING);
    assert_eq!(written("waitid", &[0, 0, 0x100, 4, 0x200], -10), [(0x100, 28)]);
    assert_eq!(written("socketpair", &[1, 1, 0, 0x100], -94), [(0x100, 8)]);
}

#[test]
fn sizes_follow_from_arguments() {
    let sets = [(0x100, 16), (0x200, 16)];
    assert_eq!(written("select", &[65, 0x100, 0x200, 0, 0], 1), sets);
    assert_eq!(written("mincore", &[0x1000, 0x2001, 0x100], 0), [(0x100, 3)]);
    assert_eq!(written("get_mempolicy", &[0, 0x100, 65], 0), [(0x100, 8)]);
    assert_eq!(written("get_mempolicy", &[0, 0x100, 66], 0), [(0x100, 16)]);
    assert_eq!(written("poll", &[0x100, 3], EINTR), [(0x100, 24)]);
    // The kernel ignores the upper half of a 32-bit argument.
    let garbage = 0xffff_ffff_0000_0000;
    assert_eq!(written("ppoll", &[0x100, garbage + 3], 1), [(0x100, 24)]);
    assert_eq!(written("sched_getattr", &[0, 0x100, garbage + 56], 0), [(0x100, 56)]);
    assert_eq!(written("bpf", &[0, 0x100, garbage + 16], 3), [(0x100, 16)]);
    assert_eq!(written("bpf", &[11, 0x100, garbage], 0), [(0x104, 4)]);
}

#[test]
fn lengths_go_in_and_out() {
    let scene = FakeMemory::new();
    let (name, length) = (BASE, BASE + 0x100);
    scene.put32(length, 16);
    let open = scene.begin("accept", &[3, name, length]);
    scene.put32(length, 110);
    assert_eq!(scene.end(&open, 4), [(length, 4), (name, 16)]);
    scene.put32(length, 7);
    assert_eq!(scene.end(&open, 4), [(length, 4), (name, 7)]);
    assert_eq!(scene.whole("accept", &[3, 0, 0], 4), NOTHING);
}

#[test]
fn operations_have_effects_of_their_own() {
    assert_eq!(written("fcntl", &[3, 5, 0x100], 0), [(0x100, 32)]);
    assert_eq!(written("fcntl", &[3, 6, 0x100], 0), NOTHING);
    assert_eq!(written("futex", &[0x100, 0x80, 0], 0), NOTHING);
    assert_eq!(written("futex", &[0x100, 0x86], -11), [(0x100, 4)]);
    let lock = |operation| {
        crate::syscalls::Call { number: 202, args: [0x100, operation, 0, 0, 0, 0] }
            .pi_lock()
            .map(|lock| lock.0)
    };
    assert_eq!(
        [0x86, 6, 13, 0x80, 7].map(lock),
        [Some(0x100), Some(0x100), Some(0x100), None, None]
    );
    assert_eq!(written("prctl", &[16, 0x100], 0), [(0x100, 16)]);
    assert_eq!(written("prctl", &[35, 15, 0x100], 0), [(0x100, 4)]);
    assert_eq!(written("prctl", &[35, 1, 0x100], 0), NOTHING);
    assert_eq!(written("ptrace", &[30, 9, 0x100, 0x1003], 0), [(0x100, 8)]);
    assert_eq!(written("ptrace", &[30, 9, 0x100, 0x1002], 0), NOTHING);
}

#[test]
fn structures_point_to_buffers() {
    let scene = FakeMemory::new();
    scene.put64(BASE, 0x500).put32(BASE + 8, 50);
    assert_eq!(scene.whole("getxattrat", &[0, 0, 0, 0, BASE, 16], 5), [(0x500, 5)]);
    scene.put64(BASE, 0x500).put64(BASE + 8, 300);
    let open = scene.begin("ptrace", &[0x4204, 9, 1, BASE]);
    scene.put64(BASE + 8, 216);
    assert_eq!(scene.end(&open, 0), [(BASE + 8, 8), (0x500, 216)]);
    scene.put32(BASE + 84, 3).put64(BASE + 88, 0x700);
    assert_eq!(scene.whole("setsockopt", &[3, 0, 64, BASE], 0), [(0x700, 48)]);
    scene.put32(BASE, 12);
    let handle = [(BASE, 20), (0x900, 4)];
    assert_eq!(scene.whole("name_to_handle_at", &[0, 0, BASE, 0x900, 0], 0), handle);
}
