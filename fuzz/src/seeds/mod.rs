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

/// The first time of the traces.
pub const START_TSC: u64 = 0x1234_5678;

/// Traces of that program, with short and with long TNT.
pub fn traces() -> Vec<Vec<u8>> {
    [TntForm::Short, TntForm::Long].map(trace).to_vec()
}

fn trace(form: TntForm) -> Vec<u8> {
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

/// Descriptions of LLDB trace bundles, of threads and of CPUs.
pub fn bundles() -> Vec<Vec<u8>> {
    let of_threads = r#"{"type": "intel-pt", "cpuInfo": {"vendor": "intel", "family": 6,
        "model": 85, "stepping": 4}, "processes": [{"pid": 1, "triple": "x86_64-*-linux",
        "threads": [{"tid": 1, "iptTrace": "a"}, {"tid": 2, "iptTrace": "b"}],
        "modules": [{"file": "m", "systemPath": "/m", "loadAddress": 4194304,
        "uuid": "00112233-4455"}]}]}"#;
    let of_cpus = r#"{"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6,
        "model": 85, "stepping": 4}, "processes": [{"pid": 1, "threads": [{"tid": 1}],
        "modules": []}], "cpus": [{"id": 4, "iptTrace": "a", "contextSwitchTrace": "b"}],
        "tscPerfZeroConversion": {"timeMult": 1076264588, "timeShift": 31,
        "timeZero": "18433473881008870804"}}"#;
    vec![of_threads.into(), of_cpus.into()]
}

/// Context switches as perf writes them.
pub fn switches() -> Vec<Vec<u8>> {
    let record = |number: u8| {
        let out = if number % 2 == 0 { 0x20 } else { 0 };
        let mut bytes = vec![15, 0, 0, 0, 0, out, 32, 0];
        bytes.extend([number, 0, 0, 0].repeat(4));
        bytes.extend(u64::from(number).to_le_bytes());
        bytes
    };
    let lost = [2, 0, 0, 0, 0, 0, 24, 0].into_iter().chain([0; 16]).collect();
    vec![[record(1), record(2), lost, record(3)].concat()]
}
