//! Threads of static programs, where gdb looks for threads that do not exist yet.

use crate::support::{Scene, answer, have};

#[test]
fn each_has_its_own_registers() {
    if !have("gdb") || !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("parked.c", &["-static"]);
    let recorded = scene.record(&[program.to_str().unwrap()]);
    let commands = "\
        thread apply all -q output/a $pc
        backtrace 1
        cf-seek begin
        info threads
        cf-seek end
        thread apply all -q output/a $pc
        backtrace 1
        reverse-stepi
        output/a $pc";
    let output = recorded.gdb(commands);
    for nth in 0..2 {
        let pcs = answer(&output, "thread apply all -q output/a $pc", nth);
        assert_eq!(pcs.matches("<boom+").count(), 1, "{output}");
        assert_eq!(pcs.matches("0x").count(), 4, "{output}");
        assert!(answer(&output, "backtrace 1", nth).contains("boom (nowhere="), "{output}");
    }
    assert_eq!(answer(&output, "info threads", 0).lines().count(), 2, "{output}");
    // The selected thread steps, and not the one that was looked at last.
    assert!(answer(&output, "output/a $pc", 0).contains("<boom+"), "{output}");
}
