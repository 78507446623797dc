//! Traces of a small program, made by the model of the PT unit.

use contraflow::common::{Addr, Tsc};
use contraflow::pt::PayloadSize;
use contraflow::pt::unit::{Branch, BranchKind, Config, FlowEvent, RtitCtl, TntForm, Unit};

/// Where the program of the traces lies.
pub(crate) const CODE_AT: Addr = Addr(0x1000);

/// A loop with a call, a return, a conditional and an indirect branch, and a system call.
pub(crate) const CODE: [u8; 32] = [
    0xe8, 0x06, 0x00, 0x00, 0x00, // 1000 call 100b
    0x74, 0xf9, // 1005 je 1000
    0xff, 0xe0, // 1007 jmp *%rax
    0x0f, 0x05, // 1009 syscall
    0x90, // 100b nop
    0xc3, // 100c ret
    0xeb, 0xf1, // 100d jmp 1000
    0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
    0xc3,
];

fn branch(kind: BranchKind, ip: u64, next: u64, target: u64, cpl: u8) -> Branch {
    Branch { kind, ip: Addr(ip), next: Addr(next), target: Addr(target), cpl }
}

/// The first time of the traces.
pub(crate) const START_TSC: u64 = 0x1234_5678;

/// Traces of that program: with short and with long TNT, and with all that a machine tells.
pub(crate) fn traces() -> Vec<Vec<u8>> {
    vec![path(TntForm::Short), path(TntForm::Long), machine()]
}

/// Clocks, transactions, PTWRITE, power, paging, overflow and event trace in the loop.
fn machine() -> Vec<u8> {
    let more = RtitCtl::OS
        | RtitCtl::CYC_EN
        | RtitCtl::MTC_EN
        | RtitCtl::PWR_EVT_EN
        | RtitCtl::FUP_ON_PTW
        | RtitCtl::PTW_EN
        | RtitCtl::EVENT_EN;
    let mut unit = Unit::new(Config::user_only().with(more).with_psb_period(2048));
    unit.set_tsc(Tsc(START_TSC));
    unit.enter(CODE_AT, 3);
    for round in 0..24_u64 {
        unit.branch(&branch(BranchKind::Call, 0x1000, 0x1005, 0x100b, 3));
        match round % 8 {
            0 => unit.tx_begin(Addr(0x100b)),
            1 => unit.tx_commit(Addr(0x100b)),
            2 => unit.ptwrite(Addr(0x100b), round, PayloadSize::Bytes8),
            3 => unit.mov_cr3(Addr(0x100c), round << 12),
            4 => unit.power_exit(1, 2, 4),
            5 => {
                unit.overflow_begin();
                unit.overflow_end();
            }
            6 => unit.flow_event(Addr(0x100c), &FlowEvent { kind: 1, vector: 14, data: &[(0, 7)] }),
            _ => unit.vmptrld(round << 12),
        }
        unit.set_tsc(Tsc(START_TSC + round * 10_000));
        unit.advance_cycles(round * 100);
        unit.branch(&branch(BranchKind::Ret, 0x100c, 0x100d, 0x1005, 3));
        unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x1005, 0x1007, 0x1000, 3));
    }
    unit.flush();
    unit.drain()
}

fn path(form: TntForm) -> Vec<u8> {
    let mut unit = Unit::new(Config::user_only().with_tnt(form).with_psb_period(2048));
    unit.set_tsc(Tsc(START_TSC));
    unit.enter(CODE_AT, 3);
    for round in 0..400_u64 {
        unit.branch(&branch(BranchKind::Call, 0x1000, 0x1005, 0x100b, 3));
        unit.branch(&branch(BranchKind::Ret, 0x100c, 0x100d, 0x1005, 3));
        let taken = round % 3 != 0;
        unit.branch(&branch(BranchKind::Jcc { taken }, 0x1005, 0x1007, 0x1000, 3));
        if taken {
            continue;
        }
        if round % 2 == 0 {
            unit.branch(&branch(BranchKind::JmpIndirect, 0x1007, 0x1009, 0x1009, 3));
            unit.branch(&branch(BranchKind::Far, 0x1009, 0x100b, 0xffff_8000_0000_0000, 0));
            unit.set_tsc(Tsc(START_TSC + round * 1000));
            unit.stamp();
            unit.enter(Addr(0x100d), 3);
            unit.branch(&branch(BranchKind::Jmp, 0x100d, 0x100f, 0x1000, 3));
        } else {
            unit.interrupt(Addr(0x1007), Addr(0xffff_8000_0000_0000), 0);
            unit.enter(Addr(0x1007), 3);
            unit.branch(&branch(BranchKind::JmpIndirect, 0x1007, 0x1009, 0x1000, 3));
        }
    }
    unit.flush();
    unit.drain()
}
