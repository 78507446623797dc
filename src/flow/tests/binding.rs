//! Checks what each packet binds to, with one small trace each (SDM, chapter "Intel Processor
//! Trace").

use super::trace::{Raw, Trace};
use crate::flow::{Code, Config, Decoder, FlowItem};
use crate::insn::ExecMode;
use crate::pt::{ClockConfig, Packet, PayloadSize};

fn shows(trace: &Trace, code: &'static [u8]) -> String {
    trace.shows(&Raw(0x1000, code), Config::default())
}

/// Follows SDM table "IP Filtering Packet Example", with Bar at 1000, the filter's base at 1010,
/// Foo at 1015 and its limit at 101a.
#[test]
fn ip_filtering_example() {
    let mut code = [0x90; 0x30];
    code[0x00..0x02].copy_from_slice(&[0xeb, 0x0e]);
    code[0x10..0x12].copy_from_slice(&[0x74, 0x03]);
    code[0x12..0x15].copy_from_slice(&[0x83, 0xc0, 0x01]);
    code[0x15..0x1a].copy_from_slice(&[0xe9, 0x01, 0, 0, 0]);
    let code = Raw(0x1000, Box::leak(Box::new(code)));
    let trace = Trace::off().pge(0x1010).tnt("n").pgd(0x101b);
    let decoded = trace.shows(&code, Config::default());
    assert_eq!(decoded, "on(1010) 1010 1012 1015 off(1015>101b)");
}

#[test]
fn disable_without_ip_binds_to_the_next_branch_that_needs_the_trace() {
    // jmp +0; nop; syscall
    let code = &[0xeb, 0x00, 0x90, 0x0f, 0x05];
    assert_eq!(shows(&Trace::on_at(0x1000).pgd(None), code), "1000 1002 1003 off(1003>?)");
    // nop; jz
    let code = &[0x90, 0x74, 0x00];
    assert_eq!(shows(&Trace::on_at(0x1000).pgd(None), code), "1000 1001 off(1001>?)");
    // nop; mov cr3, rax; nop
    let code = &[0x90, 0x0f, 0x22, 0xd8, 0x90];
    assert_eq!(shows(&Trace::on_at(0x1000).pgd(None), code), "1000 1001 off(1001>?)");
}

#[test]
fn disable_with_ip_binds_to_the_direct_branch_that_goes_there() {
    // jmp 1004; nop; nop; call 1009; ...
    let code = &[0xeb, 0x02, 0x90, 0x90, 0xe8, 0x00, 0, 0, 0, 0xff, 0xe0];
    let trace = Trace::on_at(0x1000);
    assert_eq!(shows(&trace.clone().pgd(0x1004), code), "1000 off(1000>1004)");
    assert_eq!(shows(&trace.clone().pgd(0x1009), code), "1000 1004 off(1004>1009)");
    assert_eq!(shows(&trace.pgd(0x5000), code), "1000 1004 1009 off(1009>5000)");
}

#[test]
fn fup_binds_to_its_ip_in_the_middle_of_a_block() {
    let code = &[0x90, 0x90, 0xeb, 0x00, 0x90, 0x90, 0xc3];
    let trace = Trace::on_at(0x1000).fup(0x1005);
    assert_eq!(
        shows(&trace.clone().tip(0x1001).fup(0x1002).pgd(None), code),
        "1000 1001 1002 1004 async(1005>1001) 1001 async-off(1002>?)"
    );
    assert_eq!(shows(&trace.pgd(0x9000), code), "1000 1001 1002 1004 async-off(1005>9000)");
}

#[test]
fn packets_before_a_fup_take_its_place() {
    // nop; ptwrite rax; nop; ret
    let code = &[0x90, 0xf3, 0x48, 0x0f, 0xae, 0xe0, 0x90, 0xc3];
    let ptw = |ip| Packet::Ptw { value: 5, size: PayloadSize::Bytes8, ip };
    let trace = Trace::on_at(0x1000);
    assert_eq!(
        shows(&trace.clone().put(ptw(true)).fup(0x1001).tip(0x1000).ovf(), code),
        "1000 1001 ptw(1001:5) 1006 1007 lost(>?)"
    );
    assert_eq!(shows(&trace.clone().put(ptw(false)).ovf(), code), "1000 1001 ptw(1001:5) lost(>?)");
    let stop = Packet::ExStop { ip: true };
    let mwait = Packet::Mwait { hints: 0, extensions: 0 };
    assert_eq!(
        shows(&trace.put(mwait).put(stop).fup(0x1006).ovf(), code),
        "1000 1001 mwait(1006) exstop(1006) lost(>?)"
    );
    let off = Trace::off().put(ptw(true)).fup(0x1001).put(ptw(false)).put(stop).fup(0x1006);
    assert_eq!(shows(&off, code), "ptw(1001:5) ptw(?:5) exstop(1006)");
}

#[test]
fn transactions() {
    // xbegin 1008; nop; nop; xend
    let code = &[0xc7, 0xf8, 0x02, 0, 0, 0, 0x90, 0x90, 0x0f, 0x01, 0xd5, 0x90, 0xc3];
    let begun = Trace::on_at(0x1000).tsx(true, false).fup(0x1006);
    assert_eq!(
        shows(&begun.clone().tsx(false, false).fup(0x100b).tip(0x1000).ovf(), code),
        "1000 begin(1006) 1006 1007 1008 commit(100b) 100b 100c lost(>?)"
    );
    assert_eq!(
        shows(&begun.tsx(false, true).fup(0x1007).tip(0x1008).fup(0x100b).pgd(None), code),
        "1000 begin(1006) 1006 abort(1007) async(1007>1008) 1008 async-off(100b>?)"
    );
    assert_eq!(shows(&Trace::off().tsx(true, false), code), "begin(?)");
}

#[test]
fn overflow_goes_on_at_a_fup_an_enable_or_a_psb() {
    let code = &[0x90, 0x90, 0x90, 0xc3];
    let lost = Trace::on_at(0x1000).ovf();
    assert_eq!(
        shows(&lost.clone().put(Packet::Mtc(1)).fup(0x1002).tip(0x1000).ovf(), code),
        "lost(>1002) 1002 1003 lost(>?)"
    );
    assert_eq!(
        shows(&lost.clone().put(Packet::Tsc(9)).pge(0x1001).tip(0x1000).ovf(), code),
        "lost(>?) tsc(9) on(1001) 1001 1002 1003 lost(>?)"
    );
    assert_eq!(
        shows(&lost.clone().put(Packet::Mnt(7)).fup(0x1002).tip(0x1000).ovf(), code),
        "lost(>1002) mnt(7)(?) 1002 1003 lost(>?)"
    );
    assert_eq!(
        shows(&lost.clone().psb_at(0x1003).tip(0x1000).ovf(), code),
        "lost(>1003) 1003 lost(>?)"
    );
    // The PSB+ itself is cut short.
    let cut = lost.put(Packet::Psb).ovf().fup(0x1003).tip(0x1000).ovf();
    assert_eq!(shows(&cut, code), "lost(>?) lost(>1003) 1003 lost(>?)");
}

#[test]
fn overflow_that_loses_the_tip_of_an_interrupt_goes_on_as_any_other() {
    let code = &[0x90, 0x90, 0x90, 0xc3];
    let interrupted = Trace::on_at(0x1000).fup(0x1001).ovf();
    assert_eq!(
        shows(&interrupted.clone().fup(0x1002).tip(0x1000).ovf(), code),
        "1000 lost(>1002) 1002 1003 lost(>?)"
    );
    assert_eq!(
        shows(&interrupted.pge(0x1003).tip(0x1000).ovf(), code),
        "1000 lost(>?) on(1003) 1003 lost(>?)"
    );
}

#[test]
fn overflow_that_loses_a_deferred_tip_goes_on_as_any_other() {
    // call rax; 1002: jz 1002; ret
    let code = &[0xff, 0xd0, 0x74, 0xfe, 0xc3];
    let trace = Trace::on_at(0x1000).tnt("tn").ovf().fup(0x1004).tip(0x1002).ovf();
    assert_eq!(shows(&trace, code), "1000 lost(>1004) 1004 lost(>?)");
}

#[test]
fn maintenance_packets_within_a_psb_are_events() {
    let mnt = Packet::Mnt(0xa000);
    let off = Trace::default().put(Packet::Psb).put(mnt).put(Packet::PsbEnd);
    assert_eq!(shows(&off, &[]), "mnt(40960)(?)");
    let on = Trace::default().put(Packet::Psb).fup(0x1000).put(mnt).put(Packet::PsbEnd);
    assert_eq!(shows(&on.tip(0x1000).ovf(), &[0x90, 0xc3]), "mnt(40960)(?) 1000 1001 lost(>?)");
}

#[test]
fn psb_that_contradicts_the_execution_mode_is_a_gap() {
    // nop; nop; jmp rax
    let code = &[0x90, 0x90, 0xff, 0xe0];
    let trace = Trace::on_at(0x1000).put(Packet::Psb).mode(ExecMode::Bits32).fup(0x1001);
    assert_eq!(
        shows(&trace.put(Packet::PsbEnd).tip(0x1000).ovf(), code),
        "gap(the state at the PSB contradicts the trace before it) 1001 1002 lost(>?)"
    );
}

#[test]
fn psb_checks_where_execution_stands() {
    let code = &[0x90, 0x90, 0x90, 0x90, 0xff, 0xe0];
    let trace = Trace::on_at(0x1000);
    let good = trace.clone().psb_at(0x1002).tip(0x1001).ovf();
    assert_eq!(shows(&good, code), "1000 1001 1002 1003 1004 lost(>?)");
    let elsewhere = trace.clone().psb_at(0x2000).tip(0x1001).ovf();
    assert_eq!(
        shows(&elsewhere, code),
        "1000 1001 1002 1003 1004 gap(the code does not lead to 0x2000) \
         gap(no code is known at 0x2000)"
    );
    let off = trace.put(Packet::Psb).put(Packet::PsbEnd).pge(0x1003).tip(0x1000).ovf();
    assert_eq!(
        shows(&off, code),
        "gap(the state at the PSB contradicts the trace before it) on(1003) 1003 1004 lost(>?)"
    );
}

#[test]
fn returns_with_and_without_compression() {
    // call 100b; call +0; ret; ...; 100b: ret
    let code = &[0xe8, 0x06, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3, 0xc3];
    let trace = Trace::on_at(0x1000);
    assert_eq!(
        shows(&trace.clone().tnt("t").tip(0x100b).ovf(), code),
        "1000 100b 1005 100a lost(>?)",
    );
    assert_eq!(
        shows(&trace.clone().tnt("tt"), code),
        "1000 100b 1005 100a gap(the return at 0x100a has no call)"
    );
    assert_eq!(
        shows(&trace.clone().tnt("n"), code),
        "1000 100b gap(the return at 0x100b is marked as not taken)"
    );
    // The stack is empty after a PSB.
    assert_eq!(
        shows(&trace.psb_at(0x100b).tnt("t"), code),
        "1000 100b gap(the return at 0x100b has no call)"
    );
}

#[test]
fn deferred_tips_stand_after_the_bits_of_later_branches() {
    // call rax; 1002: jz 1002; ret
    let code = &[0xff, 0xd0, 0x74, 0xfe, 0xc3];
    let trace = Trace::on_at(0x1000).tnt("ttnt").tip(0x1002).ovf();
    assert_eq!(shows(&trace, code), "1000 1002 1002 1002 1004 lost(>?)");
}

#[test]
fn modes() {
    // 48 ff c0: inc rax, or dec eax; inc eax
    let code = &[0xff, 0xe0, 0x48, 0xff, 0xc0, 0xff, 0xe0];
    let to_32 = Trace::on_at(0x1000).mode(ExecMode::Bits32).tip(0x1002).tip(0x1000).ovf();
    assert_eq!(shows(&to_32, code), "1000 Bits32 1002 1003 1005 lost(>?)");
    let by_interrupt = Trace::on_at(0x1000).fup(0x1000).mode(ExecMode::Bits16).tip(0x1002).ovf();
    assert_eq!(shows(&by_interrupt, code), "async(1000>1002) Bits16 lost(>?)");
    let same = Trace::on_at(0x1000).mode(ExecMode::Bits64).tip(0x1002).tip(0x1000).ovf();
    assert_eq!(shows(&same, code), "1000 1002 1005 lost(>?)");
}

#[test]
fn interrupt_flag_binds_to_a_fup_or_the_next_target() {
    let code = &[0x90, 0xfb, 0x90, 0xff, 0xe0];
    let sti = Packet::ModeExec { mode: ExecMode::Bits64, interrupts: true };
    let trace = Trace::on_at(0x1000).put(sti).fup(0x1002).tip(0x1000).ovf();
    assert_eq!(shows(&trace, code), "1000 1001 if(1) 1002 1003 lost(>?)");
}

#[test]
fn context_changes_bind_to_the_instruction_that_makes_them() {
    let pip = Packet::Pip { cr3: 0x2000, non_root: false };
    // nop; mov cr3, rax; nop; jmp rax
    let code = &[0x90, 0x0f, 0x22, 0xd8, 0x90, 0xff, 0xe0];
    assert_eq!(
        shows(&Trace::on_at(0x1000).put(pip).tip(0x1000).ovf(), code),
        "1000 1001 cr3(2000) 1004 1005 lost(>?)"
    );
    // Only the PIP proves that the instruction was executed.
    assert_eq!(shows(&Trace::on_at(0x1000).put(pip).ovf(), code), "1000 1001 cr3(2000) lost(>?)");
    let twice = Trace::on_at(0x1000).put(pip).put(pip);
    assert_eq!(shows(&twice, code), "1000 1001 cr3(2000) cr3(2000)");
    // nop; iretq
    let code = &[0x90, 0x48, 0xcf];
    assert_eq!(
        shows(&Trace::on_at(0x1000).put(pip).put(Packet::Vmcs(0x3000)).tip(0x1000).ovf(), code),
        "1000 1001 cr3(2000) vmcs(3000) lost(>?)"
    );
    assert_eq!(
        shows(&Trace::on_at(0x1000).fup(0x1001).put(pip).tip(0x1000).ovf(), code),
        "1000 async(1001>1000) cr3(2000) lost(>?)"
    );
    assert_eq!(shows(&Trace::off().put(pip), code), "cr3(2000)");
}

#[test]
fn event_trace_reports_of_the_flow_that_follows() {
    let code = &[0x90, 0x90, 0x48, 0xcf];
    let cfe = |kind, ip| Packet::Cfe { kind, vector: 0, ip };
    let evd = Packet::Evd { kind: 0, payload: 7 };
    let trace = Trace::on_at(0x1000).put(evd).put(cfe(1, false)).fup(0x1001).tip(0x1000).ovf();
    assert_eq!(shows(&trace, code), "1000 evd(1001) cfe(1001) async(1001>1000) lost(>?)");
    let trace = Trace::on_at(0x1000).put(cfe(2, false)).tip(0x1000).ovf();
    assert_eq!(shows(&trace, code), "1000 1001 1002 cfe(1002) lost(>?)");
    let trace = Trace::off().put(cfe(1, true)).fup(0x1001).put(evd).put(cfe(2, false));
    assert_eq!(shows(&trace, code), "cfe(1001) evd(?) cfe(?)");
}

#[test]
fn event_trace_without_branch_packets() {
    let cfe = Packet::Cfe { kind: 1, vector: 14, ip: true };
    let sti = Packet::ModeExec { mode: ExecMode::Bits64, interrupts: true };
    let trace = Trace::default().put(Packet::Psb).put(sti).put(Packet::PsbEnd);
    let trace = trace.mode(ExecMode::Bits32).fup(0x1000).put(sti).fup(0x1001).put(cfe).fup(0x1002);
    assert_eq!(shows(&trace, &[]), "Bits32 if(0) Bits64 if(1) cfe(1002)");
}

#[test]
fn trace_stop() {
    let code = &[0xeb, 0x10];
    let trace = Trace::on_at(0x1000).pgd(0x1012).put(Packet::TraceStop);
    assert_eq!(shows(&trace, code), "1000 off(1000>1012) stop");
}

#[test]
fn what_cannot_be_followed_is_a_gap_that_says_why() {
    // nop; jz 1000; jmp .
    let code = &[0x90, 0x74, 0xfd, 0xeb, 0xfe];
    let gap = |trace: Trace| shows(&trace, code);
    assert_eq!(
        gap(Trace::on_at(0x1000).tip(0x1000)),
        "1000 1001 gap(the branch at 0x1001 has no packet)"
    );
    assert_eq!(
        gap(Trace::on_at(0x1000).tnt("n").tip(0x1000)),
        "1000 1001 gap(the code runs on without a branch that the packet could belong to)"
    );
    assert_eq!(
        gap(Trace::on_at(0x1000).fup(0x1001).tnt("n").psb_at(0x1001).tnt("n")),
        "1000 gap(unexpected TNT packet) 1001"
    );
    assert_eq!(gap(Trace::on_at(0x1000).pge(0x1001)), "gap(unexpected TIP.PGE packet)");
    assert_eq!(gap(Trace::off().tnt("n")), "gap(unexpected TNT packet)");
    assert_eq!(gap(Trace::on_at(0x2000).tnt("n")), "gap(no code is known at 0x2000)");
    assert_eq!(
        gap(Trace::on_at(0x1000).raw(&[0xd5]).psb_at(0x1000).tnt("t")),
        "gap(unknown packet opcode 0xd5) 1000 1001"
    );
    assert_eq!(gap(Trace::default().raw(&[0, 0, 0])), "gap(no PSB to start at)");
    assert_eq!(gap(Trace::default()), "");
}

#[test]
fn each_item_has_a_time_where_a_clock_is_asked_for() {
    // jz +0; jz +0; ret
    let code = Raw(0x1000, &[0x74, 0x00, 0x74, 0x00, 0xc3]);
    let trace = Trace::on_at(0x1000).put(Packet::Tsc(1000)).put(Packet::Cyc(500)).tnt("n");
    let trace = trace.put(Packet::Cyc(100)).tnt("t").put(Packet::Tsc(2000)).ovf();
    let times = |config: Config| {
        let mut decoder = Decoder::new(&trace.0, config);
        let mut code = Code::new(&code);
        let mut times = Vec::new();
        while let Some(item) = decoder.next(&mut code) {
            times.push((matches!(item, FlowItem::Block(_)), decoder.time(), decoder.cycles()));
        }
        times
    };
    assert!(times(Config::default()).iter().all(|(_, time, _)| time.is_none()));
    let clocked = times(Config { clock: Some(ClockConfig::default()), ..Config::default() });
    let blocks: Vec<_> = clocked.iter().filter(|(is_block, ..)| *is_block).collect();
    let cycles: Vec<_> = blocks.iter().map(|(_, _, cycles)| *cycles).collect();
    assert_eq!(cycles, [Some(500), Some(600)]);
    let tscs: Vec<_> =
        clocked.iter().filter_map(|(_, time, _)| Some(time.as_ref()?.tsc.0)).collect();
    assert_eq!((tscs.first(), tscs.last()), (Some(&1000), Some(&2000)));
    assert!(tscs.is_sorted());
}
