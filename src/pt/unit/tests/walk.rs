//! Runs random programs through the unit and reads the trace with a minimal decoder: the
//! instructions that it walks must be the executed ones.

use super::super::{Branch, BranchKind, Config, RtitCtl, TntForm, Unit};
use super::{KERNEL, USER};
use crate::common::Addr;
use crate::pt::{LastIp, Packet, Packets, Tnt};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Bytes from one branch to the next; the program has no other instructions.
const SIZE: u64 = 4;
const BASE: u64 = 0x40_0000;

#[derive(Clone, Copy, Debug)]
enum Insn {
    Jcc(u64),
    Jmp(u64),
    Call(u64),
    JmpIndirect,
    CallIndirect,
    Ret,
    Syscall,
}

fn program() -> impl Strategy<Value = Vec<Insn>> {
    let insn = (0..10_u8, 0..64_u64).prop_map(|(kind, target)| match kind {
        0..=2 => Insn::Jcc(target),
        3 => Insn::Jmp(target),
        4 | 5 => Insn::Call(target),
        6 => Insn::JmpIndirect,
        7 => Insn::CallIndirect,
        8 => Insn::Ret,
        _ => Insn::Syscall,
    });
    prop::collection::vec(insn, 64)
}

fn config() -> impl Strategy<Value = Config> {
    (any::<bool>(), any::<bool>(), any::<[bool; 2]>()).prop_map(|(long, defer, [retc, cyc])| {
        let tnt = if long { TntForm::Long } else { TntForm::Short };
        let mut config = Config { deferred_tips: defer, ..Config::user_only().with_tnt(tnt) };
        config.ctl |= if retc { RtitCtl::DIS_RETC } else { RtitCtl(0) };
        config.ctl |= if cyc { RtitCtl::CYC_EN } else { RtitCtl(0) };
        config.with_psb_period(2048)
    })
}

/// Runs the program as `choices` direct. Returns the path and the trace.
fn run(program: &[Insn], config: Config, choices: &[u64]) -> (Vec<u64>, Vec<u8>) {
    let mut unit = Unit::new(config);
    let (mut at, mut stack, mut path) = (0, Vec::new(), Vec::new());
    unit.enter(Addr(BASE), USER);
    for &choice in choices {
        path.push(at);
        let any = choice >> 8 & 63;
        let next = (at + 1) % 64;
        let taken = choice & 1 != 0;
        // The program wraps around: `next` of its last branch is its first address.
        let (kind, target) = match program[usize::try_from(at).expect("small")] {
            Insn::Jcc(target) => (BranchKind::Jcc { taken }, if taken { target } else { next }),
            Insn::Jmp(target) => (BranchKind::Jmp, target),
            Insn::Call(target) => (BranchKind::Call, target),
            Insn::JmpIndirect => (BranchKind::JmpIndirect, any),
            Insn::CallIndirect => (BranchKind::CallIndirect, any),
            // Most returns go to their call.
            Insn::Ret => (BranchKind::Ret, stack.pop().filter(|_| choice & 7 != 0).unwrap_or(any)),
            Insn::Syscall => (BranchKind::Far, next),
        };
        if matches!(kind, BranchKind::Call | BranchKind::CallIndirect) {
            stack.push(next);
        }
        unit.advance_cycles(choice & 0xfff);
        let (ip, next_ip) = (Addr(BASE + at * SIZE), Addr(BASE + next * SIZE));
        let mut branch =
            Branch { kind, ip, next: next_ip, target: Addr(BASE + target * SIZE), cpl: USER };
        if kind == BranchKind::Far {
            branch.cpl = KERNEL;
            unit.branch(&branch);
            unit.enter(next_ip, USER);
        } else {
            unit.branch(&branch);
        }
        at = target;
    }
    unit.flush();
    (path, unit.drain())
}

/// Returns the packets that a walk consumes, without PSB+.
fn flow_packets(trace: &[u8]) -> VecDeque<Packet> {
    let mut in_psb = false;
    let packets = Packets::new(trace)
        .map(|(offset, packet)| packet.unwrap_or_else(|error| panic!("at {offset}: {error}")));
    packets
        .filter(|packet| {
            in_psb = (in_psb || *packet == Packet::Psb) && *packet != Packet::PsbEnd;
            let time = matches!(packet, Packet::Cyc(_) | Packet::ModeExec { .. });
            // PSB and its FUP stay: they set the last IP.
            let ip_state = matches!(packet, Packet::Psb | Packet::Fup(_));
            ip_state || !in_psb && *packet != Packet::PsbEnd && !time
        })
        .collect()
}

struct Walker {
    packets: VecDeque<Packet>,
    last_ip: LastIp,
    bits: VecDeque<bool>,
    stack: Vec<u64>,
}

impl Walker {
    fn next(&mut self) -> Option<Packet> {
        self.take_state();
        self.packets.pop_front()
    }

    fn peek_is_tnt(&mut self) -> bool {
        self.take_state();
        matches!(self.packets.front(), Some(Packet::TntShort(_) | Packet::TntLong(_)))
    }

    /// Consumes the state of a PSB+.
    fn take_state(&mut self) {
        while let Some(Packet::Psb | Packet::Fup(_)) = self.packets.front() {
            match self.packets.pop_front() {
                Some(Packet::Fup(ip)) => drop(self.last_ip.reconstruct(ip)),
                _ => self.last_ip.reset(),
            }
        }
    }

    fn bit(&mut self) -> Option<bool> {
        if self.bits.is_empty() {
            match self.next()? {
                Packet::TntShort(Tnt { bits, len }) | Packet::TntLong(Tnt { bits, len }) => {
                    self.bits.extend((0..len).rev().map(|i| bits >> i & 1 != 0));
                }
                other => panic!("{other:?} for a conditional branch"),
            }
        }
        self.bits.pop_front()
    }

    fn tip(&mut self) -> Option<u64> {
        match self.next()? {
            Packet::Tip(ip) | Packet::TipPge(ip) => {
                Some((self.last_ip.reconstruct(ip)?.0 - BASE) / SIZE)
            }
            other => panic!("{other:?} for an indirect branch"),
        }
    }

    /// Returns the successor of `insn` at `at`; `None` at the trace's end.
    fn step(&mut self, at: u64, insn: Insn) -> Option<u64> {
        let next = (at + 1) % 64;
        match insn {
            Insn::Jcc(target) => Some(if self.bit()? { target } else { next }),
            Insn::Jmp(target) => Some(target),
            Insn::Call(target) => {
                if target != next {
                    self.stack.push(next);
                }
                Some(target)
            }
            Insn::CallIndirect => {
                self.stack.push(next);
                self.tip()
            }
            Insn::Ret if !self.bits.is_empty() || self.peek_is_tnt() => {
                assert!(self.bit()?, "a compressed return is a taken bit");
                Some(self.stack.pop().expect("a call for the return"))
            }
            Insn::JmpIndirect | Insn::Ret => self.tip(),
            Insn::Syscall => {
                assert!(matches!(self.next()?, Packet::TipPgd(_)));
                self.tip()
            }
        }
    }
}

proptest! {
    #[test]
    fn the_path_can_be_walked(
        program in program(),
        config in config(),
        choices in prop::collection::vec(any::<u64>(), 1..3000),
    ) {
        let (path, trace) = run(&program, config, &choices);
        let mut walker = Walker {
            packets: flow_packets(&trace),
            last_ip: LastIp::new(),
            bits: VecDeque::new(),
            stack: Vec::new(),
        };
        let mut at = walker.tip().expect("the enable");
        for (n, ran) in path.iter().enumerate() {
            prop_assert_eq!(at, *ran, "instruction {}", n);
            let insn = program[usize::try_from(at).expect("small")];
            at = walker.step(at, insn).expect("a packet for every branch");
        }
        prop_assert!(walker.next().is_none());
    }
}
