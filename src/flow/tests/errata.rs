//! Decodes each erratum's trace, with the erratum enabled and disabled.

use super::trace::{Raw, Trace};
use crate::common::{Addr, AddrRange};
use crate::flow::Config;
use crate::pt::{Errata, Erratum};

fn config(erratum: Erratum) -> Config {
    Config { errata: Errata::NONE.with(erratum), ..Config::default() }
}

fn with(erratum: Erratum, trace: &Trace, code: &'static [u8]) -> String {
    trace.shows(&Raw(0x1000, code), config(erratum))
}

fn without(trace: &Trace, code: &'static [u8]) -> String {
    trace.shows(&Raw(0x1000, code), Config::default())
}

#[test]
fn bdm70_psb_before_an_enable_has_a_fup() {
    let code = &[0x90, 0x90, 0xff, 0xe0];
    let trace = Trace::off().pge(0x1000).tip(0x1000).pgd(0x1000);
    let trace = trace.psb_at(0x1001).pge(0x1001).tip(0x1000).ovf();
    let head = "on(1000) 1000 1001 1002 1000 1001 1002 off(1002>1000)";
    assert_eq!(with(Erratum::Bdm70, &trace, code), format!("{head} on(1001) 1001 1002 lost(>?)"));
    assert!(without(&trace, code).contains("unexpected TIP.PGE"));
}

#[test]
fn bdm64_abort_gives_the_branch_a_wrong_target() {
    // jmp rax; hlt; nop; nop; ret
    let code = &[0xff, 0xe0, 0xf4, 0xc3, 0x90, 0x90, 0xc3];
    let trace = Trace::on_at(0x1000).tip(0x1003).tsx(false, true).fup(0x1004).tip(0x1005);
    let trace = trace.tip(0x1000).ovf();
    assert_eq!(
        with(Erratum::Bdm64, &trace, code),
        "1000 abort(1004) async(1004>1005) 1005 1006 lost(>?)"
    );
    assert_eq!(without(&trace, code), "1000 1003 gap(the code does not lead to 0x1004)");
}

#[test]
fn skd007_overflow_inside_a_cyc() {
    let code = &[0x90, 0xff, 0xe0];
    let trace = Trace::on_at(0x1000).raw(&[0x07, 0x02, 0xf3]).fup(0x1001).tip(0x1000).ovf();
    assert_eq!(with(Erratum::Skd007, &trace, code), "lost(>1001) 1001 lost(>?)");
    assert_eq!(without(&trace, code), "1000 async(1001>1000) lost(>?)");
}

#[test]
fn skd010_fup_after_an_overflow_is_missing() {
    let code = &[0x90, 0x90, 0xff, 0xe0];
    let lost = Trace::on_at(0x1000).ovf();
    let found = |trace: Trace| with(Erratum::Skd010, &trace.ovf(), code);
    assert_eq!(found(lost.clone().tip(0x1001).tip(0x1000)), "lost(>1001) 1001 1002 lost(>?)");
    assert_eq!(
        found(lost.clone().tsx(false, false).fup(0x1001).tip(0x1000)),
        "lost(>1001) commit(1001) 1001 1002 lost(>?)"
    );
    assert_eq!(
        found(lost.clone().pgd(None).pge(0x1002).tip(0x1000)),
        "lost(>?) on(1002) 1002 lost(>?)"
    );
    assert_eq!(found(lost.clone().pge(0x1002).tip(0x1000)), "lost(>?) on(1002) 1002 lost(>?)");
    // The IP of the TIP.PGE is compressed against that of the TIP.PGD.
    let trace = lost.clone().pgd(0x7f00_0000_1001).pge_low(0x1002);
    assert!(found(trace).starts_with("lost(>?) on(7f0000001002)"));
    assert!(without(&lost.tip(0x1001), code).contains("unexpected TIP"));
}

#[test]
fn skd022_vm_entry_has_a_fup() {
    // nop; vmlaunch; nop
    let code = &[0x90, 0x0f, 0x01, 0xc2, 0x90];
    let trace = Trace::on_at(0x1000).fup(0x1001).pgd(None);
    assert_eq!(with(Erratum::Skd022, &trace, code), "1000 1001 off(1001>?)");
    assert_eq!(without(&trace, code), "1000 async-off(1001>?)");
}

#[test]
fn skl014_disable_of_a_direct_jump_has_no_ip() {
    // jmp 1003; nop; 1003: jmp 1020; ...
    let code = &[0xeb, 0x01, 0x90, 0xeb, 0x1b, 0x74, 0x00];
    let trace = Trace::on_at(0x1000).pgd(None);
    let filter = vec![AddrRange::new(Addr(0x1000), Addr(0x1010))];
    let filtered = Config { filter, ..config(Erratum::Skl014) };
    assert_eq!(trace.shows(&Raw(0x1000, code), filtered), "1000 1003 off(1003>?)");
    let trace_stop = vec![AddrRange::new(Addr(0x1020), Addr(0x1030))];
    let stopped = Config { trace_stop, ..config(Erratum::Skl014) };
    assert_eq!(trace.shows(&Raw(0x1000, code), stopped), "1000 1003 off(1003>?)");
    assert!(with(Erratum::Skl014, &trace, code).ends_with("gap(no code is known at 0x1020)"));
}

#[test]
fn apl11_overflow_has_a_disable() {
    let code = &[0x90, 0xff, 0xe0];
    let trace = Trace::on_at(0x1000).ovf().pgd(None).pge(0x1001).tip(0x1000).ovf();
    assert_eq!(with(Erratum::Apl11, &trace, code), "lost(>?) on(1001) 1001 lost(>?)");
    assert!(without(&trace, code).contains("unexpected TIP.PGD"));
    // The IP of the TIP.PGE is compressed against that of the TIP.PGD.
    let trace = Trace::on_at(0x1000).ovf().pgd(0x7f00_0000_1001).pge_low(0x1002);
    assert!(with(Erratum::Apl11, &trace, code).starts_with("lost(>?) on(7f0000001002)"));
}

#[test]
fn apl12_overflow_has_a_fup_with_tracing_off() {
    let code = &[0x90, 0xff, 0xe0];
    let lost = Trace::on_at(0x1000).ovf().fup(0x1000);
    let trace = lost.clone().pge(0x1001).tip(0x1000).ovf();
    assert_eq!(with(Erratum::Apl12, &trace, code), "lost(>?) on(1001) 1001 lost(>?)");
    assert!(without(&trace, code).contains("unexpected TIP.PGE"));
    let trace = lost.tip(0x1001).tip(0x1000).ovf();
    assert_eq!(with(Erratum::Apl12, &trace, code), "lost(>1000) 1000 1001 1001 lost(>?)");
}

#[test]
fn skz84_tma_has_a_byte_after_it() {
    let code = &[0x90, 0xff, 0xe0];
    let trace = Trace::on_at(0x1000).raw(&[0x02, 0x73, 1, 1, 1, 1, 0, 0xd5]).tip(0x1001).ovf();
    assert_eq!(with(Erratum::Skz84, &trace, code), "1000 1001 lost(>?)");
    assert_eq!(without(&trace, code), "gap(TMA packet has reserved bits set)");
}
