//! Valid inputs to begin with, made by the library itself.

use contraflow::common::{Addr, AddrRange, Tid, Tsc};
use contraflow::image::core::{self, CoreContents, CoreSegment, Thread};
use contraflow::pt::unit::{Branch, BranchKind, Config, TntForm, Unit};
use std::io::Cursor;

/// Where the program of the traces lies.
pub const CODE_AT: Addr = Addr(0x1000);

/// A loop with a call, a return, a conditional and an indirect branch, and a system call.
pub const CODE: [u8; 32] = [
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

/// Traces of that program, with short and with long TNT.
pub fn traces() -> Vec<Vec<u8>> {
    [TntForm::Short, TntForm::Long].map(trace).to_vec()
}

fn trace(form: TntForm) -> Vec<u8> {
    let mut unit = Unit::new(Config::user_only().with_tnt(form).with_psb_period(2048));
    unit.set_tsc(Tsc(0x1234_5678));
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
            unit.set_tsc(Tsc(0x1234_5678 + round * 1000));
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

/// This very program, and a core.
pub fn images() -> Vec<Vec<u8>> {
    let mut program = std::fs::read("/proc/self/exe").unwrap_or_default();
    program.truncate(1 << 16);
    vec![program, core_file()]
}

fn core_file() -> Vec<u8> {
    let thread = Thread { tid: Tid(7), fpregs: Some(vec![1; 512]), ..Thread::default() };
    let range = AddrRange::sized(CODE_AT, 0x2000);
    let segment = CoreSegment { range, readable: true, dumped: true, ..CoreSegment::default() };
    let contents = CoreContents {
        threads: vec![thread],
        auxv: vec![3; 64],
        segments: vec![segment],
        ..CoreContents::default()
    };
    let mut out = Cursor::new(Vec::new());
    let written = core::write(&mut out, &contents, &mut |_, buf| {
        buf.fill(0x90);
        buf.len()
    });
    written.map(|()| out.into_inner()).unwrap_or_default()
}
