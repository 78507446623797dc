//! Vectors and messages.

use super::{BASE, FakeMemory};

const VECTOR: u64 = BASE + 0x100;
const MESSAGE: u64 = BASE + 0x200;

/// Writes a vector of three buffers of 4, 0 and 100 bytes.
fn vector(scene: &FakeMemory) {
    for (index, (start, size)) in [(0x1000, 4), (0x2000, 0), (0x3000, 100)].iter().enumerate() {
        scene.put64(VECTOR + 16 * index as u64, *start);
        scene.put64(VECTOR + 16 * index as u64 + 8, *size);
    }
}

fn message(scene: &FakeMemory, at: u64) {
    scene.put64(at, 0x5000).put32(at + 8, 128);
    scene.put64(at + 16, VECTOR).put64(at + 24, 3);
    scene.put64(at + 32, 0x6000).put64(at + 40, 64);
}

#[test]
fn a_vector_is_filled_in_order() {
    let scene = FakeMemory::new();
    vector(&scene);
    assert_eq!(scene.whole("readv", &[3, VECTOR, 3], 3), [(0x1000, 3)]);
    assert_eq!(scene.whole("readv", &[3, VECTOR, 3], 10), [(0x1000, 4), (0x3000, 6)]);
    assert_eq!(scene.whole("readv", &[3, VECTOR, 3], 0), []);
    let all = [(0x1000, 4), (0x3000, 100)];
    assert_eq!(scene.whole("process_vm_readv", &[9, VECTOR, 3, 0, 0], 5), all);
}

#[test]
fn a_vector_that_is_overwritten_by_its_own_call_still_counts() {
    let scene = FakeMemory::new();
    vector(&scene);
    let open = scene.begin("readv", &[3, VECTOR, 3]);
    scene.put(VECTOR, &[0xff; 48]);
    assert_eq!(scene.end(&open, 10), [(0x1000, 4), (0x3000, 6)]);
}

#[test]
fn vectors_that_the_kernel_refuses_write_nothing() {
    let scene = FakeMemory::new();
    assert_eq!(scene.whole("readv", &[3, VECTOR, 1025], 10), []);
    assert_eq!(scene.whole("readv", &[3, u64::MAX - 8, 3], 10), []);
    assert_eq!(scene.whole("readv", &[3, VECTOR, u64::MAX], 10), []);
}

#[test]
fn a_message_has_a_name_and_control_data() {
    let scene = FakeMemory::new();
    vector(&scene);
    message(&scene, MESSAGE);
    let open = scene.begin("recvmsg", &[3, MESSAGE]);
    scene.put32(MESSAGE + 8, 16).put64(MESSAGE + 40, 20);
    let lengths = [(MESSAGE + 8, 4), (MESSAGE + 40, 12)];
    let expected = [(0x5000, 16), (0x6000, 20), lengths[0], lengths[1], (0x1000, 4), (0x3000, 1)];
    assert_eq!(scene.end(&open, 5), expected);
    assert_eq!(scene.end(&open, -11), []);
}

#[test]
fn each_message_of_an_array_has_its_own_size() {
    let scene = FakeMemory::new();
    vector(&scene);
    for index in 0..3 {
        message(&scene, MESSAGE + 64 * index);
        // No name, no control data.
        scene.put64(MESSAGE + 64 * index, 0).put64(MESSAGE + 64 * index + 32, 0);
    }
    let open = scene.begin("recvmmsg", &[3, MESSAGE, 3, 0, 0]);
    scene.put32(MESSAGE + 56, 2).put32(MESSAGE + 64 + 56, 6);
    let second = MESSAGE + 64;
    let head = |at: u64| [(at + 8, 4), (at + 40, 12)];
    let first = [&head(MESSAGE)[..], &[(0x1000, 2), (MESSAGE + 56, 4)]].concat();
    let second = [&head(second)[..], &[(0x1000, 4), (0x3000, 2), (second + 56, 4)]].concat();
    assert_eq!(scene.end(&open, 2), [first, second].concat());
}
