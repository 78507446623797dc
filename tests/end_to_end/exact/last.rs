//! Going back in gdb: to the last change of a value, to checkpoints, to what the kernel writes; and a
//! search that is interrupted.

use super::record;
use crate::serve::{Client, Live, tools};
use crate::support::{Scene, address_of, answer, assert_in_order, contraflow, have, run_gdb};

/// Records a program, and returns what gdb says to commands on the recording.
fn gdb_on(source: &str, commands: &str) -> Option<String> {
    if !have("gcc") || !have("gdb") {
        return None;
    }
    let scene = Scene::new();
    let program = scene.compile(source, &["-w", "-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    Some(run_gdb(replay, commands))
}

/// A watchpoint compares with the value at the place that a seek leads to, whatever it was before.
#[test]
fn a_watchpoint_that_was_set_elsewhere_shows_the_values_of_here() {
    let Some(said) = gdb_on(
        "exact/last.c",
        "frame function main
         watch -location a->balance
         cf-seek begin
         continue
         continue
         cf-seek end
         reverse-continue",
    ) else {
        return;
    };
    let first = answer(&said, "continue", 0);
    assert_in_order(first, &["Old value = <unreadable>", "New value = 0"]);
    assert_in_order(answer(&said, "continue", 1), &["Old value = 0", "New value = 100"]);
    assert_in_order(answer(&said, "reverse-continue", 0), &["Old value = 40", "New value = 70"]);
}

/// Writers of a balance and of a name, each found from the one after it; also when the frame of a
/// caller is selected.
#[test]
fn the_writers_of_a_value_are_found_one_by_one() {
    let Some(said) = gdb_on(
        "exact/last.c",
        "frame function main
         cf-last a->balance
         info args
         up
         cf-last
         cf-last
         cf-last
         cf-when
         frame function opened
         cf-seek end
         frame function main
         cf-last a->owner
         cf-last
         python position = gdb.execute('cf-when', to_string=True)
         cf-last balance_of_bank
         python print(position == gdb.execute('cf-when', to_string=True))
         cf-last 5
         cf-last nothing",
    ) else {
        return;
    };
    // Not the write that changes nothing.
    let first = answer(&said, "cf-last a->balance", 0);
    assert_in_order(
        first,
        &["in pay (", "sum=30)", "a->balance -= sum", "it is 70, and becomes 40"],
    );
    assert!(answer(&said, "info args", 0).ends_with("sum = 30"), "{said}");
    for (number, (place, change)) in [
        ("sum=20)", "it is 90, and becomes 70"),
        ("sum=10)", "it is 100, and becomes 90"),
        ("opened (", "and becomes 100"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_in_order(answer(&said, "cf-last", number), &["position ", place, change]);
    }
    let name = answer(&said, "cf-last a->owner", 0);
    assert_in_order(name, &["in rename_to (", "it is \"grace"]);
    assert!(!name.contains("becomes"), "{said}");
    assert_in_order(answer(&said, "cf-last", 3), &["strcpy", "it is "]);
    let never = answer(&said, "cf-last balance_of_bank", 0);
    assert!(never.contains("it was not changed before"), "{said}");
    assert!(
        said.contains(">>> python print(position == gdb.execute('cf-when', to_string=True))\nTrue")
    );
    assert!(answer(&said, "cf-last 5", 0).contains("has no address"), "{said}");
    assert!(answer(&said, "cf-last nothing", 0).contains("No symbol \"nothing\""), "{said}");
}

/// gdb's own commands of checkpoints lead back, with positions in place of forks.
#[test]
fn checkpoints_are_returned_to() {
    let Some(said) = gdb_on(
        "exact/last.c",
        "info checkpoints
         break pay
         reverse-continue
         checkpoint
         reverse-continue
         reverse-continue
         up
         checkpoint
         info checkpoints
         restart 1
         output sum
         restart 2
         output sum
         delete checkpoint 1
         restart 1
         delete checkpoint 7
         info checkpoints",
    ) else {
        return;
    };
    assert_eq!(answer(&said, "info checkpoints", 0), "No checkpoints.");
    let both = answer(&said, "info checkpoints", 1);
    assert_in_order(both, &["1 position ", "last.c, line ", "2 position ", "last.c, line "]);
    assert!(answer(&said, "checkpoint", 0).starts_with("Checkpoint 1: position "), "{said}");
    assert_eq!([0, 1].map(|nth| answer(&said, "output sum", nth)), ["0", "20"], "{said}");
    let gone = answer(&said, "restart 1", 1);
    assert!(gone.contains("no checkpoint 1; see `info checkpoints`"), "{said}");
    assert!(answer(&said, "delete checkpoint 7", 0).contains("no checkpoint 7"), "{said}");
    assert!(answer(&said, "info checkpoints", 2).starts_with("2 position "), "{said}");
}

/// A core file of a moment of the past has its memory and registers.
#[test]
fn a_core_of_the_past_is_written() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/last.c", &["-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let core = scene.path("core");
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(
        replay,
        &format!(
            "break pay
             reverse-continue
             reverse-continue
             up
             info inferiors
             info threads
             backtrace
             generate-core-file {}",
            core.display()
        ),
    );
    // gdb restores the frame that is selected.
    assert!(answer(&said, "info threads", 0).contains("pay (a="), "{said}");
    let mut gdb = std::process::Command::new("gdb");
    gdb.args(["-nx", "-batch"]).arg(&program).arg(&core);
    let of_core = run_gdb(gdb, "backtrace\nprint a->balance");
    assert_eq!(answer(&of_core, "backtrace", 0), answer(&said, "backtrace", 0), "{said}");
    assert!(answer(&of_core, "print a->balance", 0).starts_with("$1 = "), "{of_core}");
    // The part into which the stack did not grow is not in it.
    assert!(core.metadata().unwrap().len() < 32 << 20, "{said}");
}

/// Watchpoints stop where the kernel writes, in both directions.
#[test]
fn watchpoints_see_what_the_kernel_writes() {
    let Some(said) = gdb_on(
        "exact/received.c",
        "watch buffer
         reverse-continue
         delete
         watch now.tv_nsec
         reverse-continue
         continue
         continue",
    ) else {
        return;
    };
    let back = answer(&said, "reverse-continue", 0);
    assert_in_order(back, &["Old value = \"other", "New value = \"first", "_read ("]);
    // Of the first clock_gettime, which is before that.
    let first = answer(&said, "reverse-continue", 1);
    assert_in_order(first, &["Old value = ", "New value = 0", "clock_gettime ("]);
    let value = |text: &str, of: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(of)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{of:?}: {said}"))
    };
    let before = value(first, "Old value = ");
    for (nth, was) in [(0, "0"), (1, before.as_str())] {
        let hit = answer(&said, "continue", nth);
        assert_in_order(hit, &["Old value = ", "New value = ", "clock_gettime ("]);
        assert_eq!(value(hit, "Old value = "), was, "{said}");
    }
    assert_eq!(value(answer(&said, "continue", 0), "New value = "), before, "{said}");
}

/// A watchpoint within what a REP instruction writes stops before it on the way back, and after it on the
/// way forward.
#[test]
fn watchpoints_see_instructions_that_repeat() {
    let Some(said) = gdb_on(
        "exact/strings.c",
        "watch table[2]
         reverse-continue
         x/i $pc
         print table[2]
         reverse-continue
         x/i $pc
         continue
         x/i $pc
         print table[2]
         stepi
         print table[2]",
    ) else {
        return;
    };
    for (nth, old, new, insn) in [(0, "3", "7", "rep movsb"), (1, "7", "0", "rep stos")] {
        let back = answer(&said, "reverse-continue", nth);
        assert_in_order(back, &[&format!("Old value = {old}"), &format!("New value = {new}")]);
        assert!(answer(&said, "x/i $pc", nth).contains(insn), "{said}");
    }
    assert!(answer(&said, "print table[2]", 0).contains("= 7"), "{said}");
    let forward = answer(&said, "continue", 0);
    assert_in_order(forward, &["Old value = 0", "New value = 7"]);
    assert!(!answer(&said, "x/i $pc", 2).contains("rep"), "{said}");
    assert!(answer(&said, "print table[2]", 1).contains("= 7"), "{said}");
}

/// A search that finds nothing takes as long as the program ran. One for accesses to more than the
/// debug registers hold is stepped: without an end to it, it would take hours.
#[test]
fn an_interrupt_ends_a_search_in_the_past() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/long.c", &["-O0", "-no-pie"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let live = Live::replay(&dir);
    let mut client = Client::connect(live.address());
    let never = address_of(&program, "never");
    let (bytes, accesses) = (format!("2,{never:x},4"), format!("4,{never:x},c8"));
    let search = |client: &mut Client, watch: &str, direction: &str| {
        assert_eq!(client.ask(&format!("Z{watch}")), "OK");
        client.send(direction);
        std::thread::sleep(std::time::Duration::from_millis(50));
        client.interrupt();
        let reply = client.reply();
        assert_eq!(client.ask(&format!("z{watch}")), "OK");
        reply
    };
    let reply = search(&mut client, &accesses, "bc");
    assert!(reply.starts_with("T02"), "{reply}");
    // It may have come to the beginning by then.
    let reply = search(&mut client, &bytes, "bc");
    assert!(reply.starts_with("T02") || reply.contains("replaylog:begin"), "{reply}");
    assert!(client.ask("bc").contains("replaylog:begin"));
    let reply = search(&mut client, &accesses, "c");
    assert!(reply.starts_with("T02"), "{reply}");
}

/// Of two watchpoints at one address, the one with the accessed byte is hit.
#[test]
fn a_watchpoint_is_hit_by_accesses_to_its_own_bytes() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/members.c", &["-O0", "-no-pie"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let live = Live::replay(&dir);
    let mut client = Client::connect(live.address());
    let pair = address_of(&program, "pair");
    // As LLDB, which alone may watch reads.
    client.ask("qSupported:xmlRegisters=i386");
    assert!(client.ask("bc").contains("replaylog:begin"));
    for watch in [format!("3,{pair:x},4"), format!("4,{pair:x},8")] {
        assert_eq!(client.ask(&format!("Z{watch}")), "OK");
    }
    // The writes to the first and to the second member, and the read of the second.
    for _ in 0..3 {
        let reply = client.ask("c");
        assert!(reply.contains(&format!("awatch:{pair:x}")), "{reply}");
    }
}
