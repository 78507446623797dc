//! Tests that the code that counts and its caller agree on the instructions that tick.

use super::samples::{SAMPLE_IP, samples};
use super::{Bytes, Code, START, ZONE, ZONE_OFFSET, counting};
use crate::translate::{Bound, CHECK_BYTES, Edge, Outcome, SPENT, Translator, is_tick, slots};
use iced_x86::{FlowControl, Mnemonic};
use std::collections::BTreeSet;

fn edges_of(translator: &Translator<Bytes>, number: u32) -> Vec<Edge> {
    let edges = translator.edges_from(1).iter();
    edges.filter(|edge| edge.superblock == number).copied().collect()
}

/// Checks that each edge has the ticks of its path, and that no two indirect edges have the same
/// number of ticks.
fn check(translator: &Translator<Bytes>, number: u32, code: &Code) {
    let mut indirect = BTreeSet::new();
    for edge in edges_of(translator, number) {
        let ticks = |ip| is_tick(&code.bytes[usize::try_from(ip - START).unwrap()..], ip);
        let path = translator.path_of(&edge);
        assert!(path.iter().all(|step| step.ticks == ticks(step.ip)));
        let expected = path.iter().filter(|step| step.ticks).count();
        assert_eq!(usize::from(edge.ticks), expected, "{edge:x?}");
        assert!(edge.ticks <= translator.limits.bits);
        if edge.kind.is_indirect() {
            assert!(indirect.insert(edge.ticks));
            let left = translator.edge_taken(number, u64::MAX, SPENT - u64::from(edge.ticks));
            assert_eq!(left, Some(edge));
        }
    }
}

#[test]
fn the_caller_counts_as_the_code_does() {
    let mut names = BTreeSet::new();
    for (bytes, insn) in samples() {
        if insn.flow_control() == FlowControl::Next {
            assert!(!is_tick(&bytes, SAMPLE_IP), "{insn}");
            continue;
        }
        names.insert(format!("{:?}", insn.code()));
        let (mut translator, _) = counting();
        let mut code = Code { bytes, is_fixed: false };
        let number = translator.get_bounded(START, Bound::Instructions(1), &mut code).unwrap();
        let edges = edges_of(&translator, number);
        // The caller executes instructions without an edge, and asks `is_tick`.
        assert_eq!(edges.is_empty(), translator.superblock(number).unwrap().native, "{insn}");
        assert!(edges.iter().all(|edge| edge.instructions == 1), "{insn}");
        check(&translator, number, &code);
    }
    for name in ["Jb_rel8_64", "Loop_rel8_64_RCX", "Retnq_imm16", "Jmp_rm64", "Call_rm64"] {
        assert!(names.contains(name), "{name}");
    }
    for name in ["Call_rel32_64", "Jmp_m1664", "Retfw", "Iretq", "Sysenter", "Xbegin_rel32"] {
        assert!(names.contains(name), "{name}");
    }
}

#[test]
fn an_instruction_that_can_close_a_cycle_ticks() {
    let always: [&[u8]; 11] = [
        &[0x74, 0x10],
        &[0xe3, 0x10],
        &[0xe2, 0x10],
        &[0xc3],
        &[0xc2, 8, 0],
        &[0xff, 0xe0],
        &[0x3e, 0xff, 0xd0],
        &[0xff, 0x28],
        &[0xcb],
        &[0x48, 0xcf],
        &[0xc7, 0xf8, 0, 0, 0, 0],
    ];
    for bytes in always {
        assert!(is_tick(bytes, START), "{bytes:x?}");
    }
    let never: [&[u8]; 9] = [
        &[0x90],
        &[0xeb, 0],
        &[0xe8, 0, 0, 0, 0],
        &[0x0f, 0x05],
        &[0x0f, 0x34],
        &[0xcd, 0x80],
        &[0xcc],
        &[0x0f, 0x0b],
        &[0x06],
    ];
    for bytes in never {
        assert!(!is_tick(bytes, START), "{bytes:x?}");
    }
    // Jumps to 1 byte after the next instruction, to itself, into itself, and to the byte before
    // it.
    for (distance, ticks) in [(1, false), (-2_i8, true), (-1, false), (-3, true)] {
        assert_eq!(is_tick(&[0xeb, distance.to_le_bytes()[0]], START), ticks);
    }
    assert!(is_tick(&[0xe8, 0xfb, 0xff, 0xff, 0xff], START));
    assert!(is_tick(&[0x66, 0xe9, 0xfa, 0xff, 0xff, 0xff], START));
}

#[test]
fn a_loop_of_jumps_uses_up_its_budget() {
    // jmp to itself; two jumps in a circle; call to itself.
    let circles: [&[u8]; 3] =
        [&[0xeb, 0xfe], &[0xeb, 0, 0xeb, 0xfc], &[0xe8, 0xfb, 0xff, 0xff, 0xff]];
    for bytes in circles {
        let (mut translator, _) = counting();
        let mut code = Code { bytes: bytes.to_vec(), is_fixed: false };
        let number = translator.get_or_translate(START, &mut code).unwrap();
        let edges = edges_of(&translator, number);
        assert_eq!(edges.len(), 1);
        assert_eq!((edges[0].target, edges[0].ticks > 0), (START, true));
        check(&translator, number, &code);
    }
}

/// Returns `je` to a chain of jumps that each go back by 4 bytes, after which there is a return.
fn stairs(steps: usize) -> Code {
    let mut bytes = vec![0xc3; 4];
    bytes.extend([0xeb, 0xfa, 0x90, 0x90].repeat(steps));
    // jne to the next instruction, which resets what PT's limits count; jmp to the last stair.
    bytes.extend([0x75, 0x00, 0xeb, 0xf8]);
    Code { bytes, is_fixed: false }
}

#[test]
fn a_path_of_backward_jumps_ends() {
    let (mut translator, memory) = counting();
    let mut code = stairs(200);
    let start = START + code.bytes.len() as u64 - 4;
    let number = translator.get_or_translate(start, &mut code).unwrap();
    let ticks = edges_of(&translator, number).iter().map(|edge| edge.ticks).max();
    assert_eq!(ticks, Some(translator.limits.bits));
    check(&translator, number, &code);
    // `lea r11, [r11 - ticks]` of the last exit.
    let count = [0x4d, 0x8d, 0x5b, translator.limits.bits.wrapping_neg()];
    let used = usize::try_from(ZONE_OFFSET + translator.superblock(number).unwrap().end - ZONE);
    let emitted = memory.0.borrow()[..used.unwrap()].to_vec();
    assert!(emitted.windows(4).any(|window| window == count));
    // A recorder's path is not limited by ticks.
    let (mut recording, _) = super::translator();
    let number = recording.get_or_translate(start, &mut code).unwrap();
    assert!(recording.path(number).len() > 90);
}

#[test]
fn a_bound_is_reached_at_its_tick() {
    let mut code = stairs(20);
    let start = START + code.bytes.len() as u64 - 4;
    for most in 1..=20 {
        let (mut translator, _) = counting();
        let bound = Bound::Ticks(most);
        let number = translator.get_bounded(start, bound, &mut code).unwrap();
        let ticks = translator.path(number).iter().filter(|step| step.ticks).count();
        assert_eq!(ticks as u64, most);
        assert!(translator.path(number).last().unwrap().ticks);
        check(&translator, number, &code);
    }
}

#[test]
fn a_return_to_a_call_of_the_path_has_its_own_count() {
    // call +1; ret; ret
    let mut code = Code { bytes: vec![0xe8, 1, 0, 0, 0, 0xc3, 0xc3], is_fixed: false };
    let (mut translator, _) = counting();
    let number = translator.get_or_translate(START, &mut code).unwrap();
    let outcomes: Vec<Outcome> = translator.path(number).iter().map(|step| step.outcome).collect();
    assert_eq!(outcomes, [Outcome::Call, Outcome::Return, Outcome::Plain]);
    check(&translator, number, &code);
    let indirect = edges_of(&translator, number).iter().filter(|e| e.kind.is_indirect()).count();
    assert_eq!(indirect, 2);
}

#[test]
fn the_check_at_each_exit_shows_its_request() {
    // call +3; ja +0; ret; ret
    let bytes = vec![0xe8, 3, 0, 0, 0, 0x77, 0x00, 0xc3, 0xc3];
    let (mut translator, memory) = counting();
    let number = translator.get_or_translate(START, &mut Code { bytes, is_fixed: false }).unwrap();
    let superblock = translator.superblock(number).unwrap();
    let offset = |at| usize::try_from(ZONE_OFFSET + at - ZONE).unwrap();
    let emitted = memory.0.borrow()[offset(superblock.body)..offset(superblock.end)].to_vec();
    let at = |from: usize| &emitted[from..(from + CHECK_BYTES).min(emitted.len())];
    let requests: BTreeSet<u64> = (0..emitted.len())
        .filter_map(|from| Translator::<Bytes>::request_of_spent(at(from)))
        .collect();
    let ticking = (1..).zip(translator.edges_from(1)).filter(|(_, edge)| edge.ticks > 0);
    let expected = ticking
        .filter(|(_, edge)| edge.superblock == number)
        .map(|(request, edge)| if edge.kind.is_indirect() { slots::INDIRECT } else { request });
    assert_eq!(requests, expected.collect());
    assert!(requests.len() > 1);
    assert_eq!(Translator::<Bytes>::request_of_spent(&[0x90; CHECK_BYTES]), None);
}

#[test]
fn the_samples_have_each_branch_of_64_bit_code() {
    let sampled: BTreeSet<Mnemonic> = samples().iter().map(|(_, insn)| insn.mnemonic()).collect();
    let missing: BTreeSet<Mnemonic> = iced_x86::Code::values()
        .filter(|code| code.flow_control() != FlowControl::Next)
        .map(iced_x86::Code::mnemonic)
        .filter(|mnemonic| !sampled.contains(mnemonic))
        .collect();
    // Data, and instructions of other modes, of Cyrix and VIA, and of Knights Corner.
    let of_others = [
        Mnemonic::INVALID,
        Mnemonic::Db,
        Mnemonic::Dw,
        Mnemonic::Dd,
        Mnemonic::Dq,
        Mnemonic::Into,
        Mnemonic::Jcxz,
        Mnemonic::Jmpe,
        Mnemonic::Smint,
        Mnemonic::Dmint,
        Mnemonic::Rdm,
        Mnemonic::Altinst,
        Mnemonic::Jkzd,
        Mnemonic::Jknzd,
    ];
    assert_eq!(missing, BTreeSet::from(of_others));
}
