//! Run control: threads, steps, breakpoints, edges.

use super::*;

#[test]
fn offers_reverse_execution_and_no_events_that_never_come() {
    let reply = last(&["qSupported:multiprocess+;swbreak+;hwbreak+;xmlRegisters=i386"]);
    for feature in ["PacketSize=20000", "ReverseStep+", "ReverseContinue+", "swbreak+", "hwbreak+"]
    {
        assert!(reply.split(';').any(|item| item == feature), "{feature}: {reply}");
    }
    for absent in ["multiprocess", "fork", "QCatchSyscalls"] {
        assert!(!reply.contains(absent), "{absent}: {reply}");
    }
    let options = Options::default();
    let replies = exchange_with(&options, &[b"qSupported"]);
    assert!(replies[0].contains("Qbtrace:pt+"));
}

#[test]
fn the_first_question_names_the_thread_that_stopped() {
    let reply = last(&["?"]);
    assert!(reply.starts_with("T05thread:1;"), "{reply}");
    assert!(reply.contains("10:0610000000000000;07:0000ff7f00000000;"), "{reply}");
    assert!(!reply.contains("06:"), "rbp is unknown: {reply}");
    assert_eq!(last(&["qC"]), "QC1");
}

#[test]
fn a_reverse_step_without_a_thread_is_of_the_last_stopped_one() {
    let reply = last(&["Hc0", "bs"]);
    assert!(reply.starts_with("T05thread:1;10:0410000000000000;"), "{reply}");
    // Reading all threads selects none of them.
    let reply = last(&["qfThreadInfo", "Hg2", "Hc0", "bs"]);
    assert!(reply.starts_with("T05thread:1;"), "{reply}");
    // `thread 2` does, and so does `Hg` of a client that lists nothing.
    assert!(last(&["qfThreadInfo", "T2", "Hc0", "bs"]).starts_with("T05thread:2;"));
    assert!(last(&["Hg2", "Hc0", "bs"]).starts_with("T05thread:2;"));
    assert!(last(&["Hgp1.2", "Hcp1.0", "bs"]).starts_with("T05thread:2;"));
    assert!(last(&["qContraflow.select:2", "bs"]).starts_with("T05thread:2;"));
}

#[test]
fn packets_about_registers_may_name_their_thread() {
    let threads = ["QThreadSuffixSupported", "p10;thread:1;", "p10;thread:2;", "Hg2", "p10"];
    let replies = exchange(&threads);
    assert_eq!((replies[0].as_str(), &replies[2]), ("OK", &replies[4]));
    assert_ne!(replies[1], replies[2]);
    let all = last(&["QThreadSuffixSupported", "g;thread:2;"]);
    assert_eq!(all, last(&["Hg2", "g"]));
    // A thread that does not exist, and a client that did not announce the suffix.
    assert_eq!(last(&["QThreadSuffixSupported", "p10;thread:99;"]), "E01");
    assert_eq!(last(&["p10;thread:2;"]), "E01");
}

#[test]
fn a_chosen_thread_steps_alone() {
    let reply = last(&["Z0,2004,1", "Hc1", "bs", "bs"]);
    assert!(reply.starts_with("T05thread:1;10:1210000000000000;"), "{reply}");
    let reply = last(&["qSupported:swbreak+", "Z0,2004,1", "Hc0", "bs", "bs"]);
    assert!(reply.starts_with("T05thread:2;swbreak:;10:0420000000000000;"), "{reply}");
    // gdb does not repeat its choice after a stop.
    assert!(last(&["Hc2", "bc", "bc"]).starts_with("T05thread:2;replaylog:begin;"));
}

#[test]
fn scheduler_locking_forward_is_a_step_without_the_others() {
    let seek = "qRcmd,7365656b2030";
    let locked = last(&[seek, "Z0,2000,1", "vCont;s:1", "vCont;s:1", "vCont;s:1"]);
    assert!(locked.contains("10:1210000000000000;"), "{locked}");
    let free = last(&[seek, "Z0,2000,1", "vCont;s:1;c", "vCont;s:1;c", "vCont;s:1;c"]);
    assert!(free.starts_with("T05thread:2;10:0020000000000000;"), "{free}");
}

#[test]
fn the_leftmost_action_applies_to_a_thread() {
    let begin = "qRcmd,7365656b2030";
    let continued = last(&[begin, "vCont;c"]);
    assert_eq!(last(&[begin, "vCont;c;s:1"]), continued);
    assert_ne!(last(&[begin, "vCont;s:1;c"]), continued);
}

#[test]
fn a_range_is_stepped_through() {
    let reply = last(&["qRcmd,7365656b2030", "vCont;r1000,1004:1;c"]);
    assert!(reply.contains("thread:1;10:1010000000000000;"), "{reply}");
}

#[test]
fn edges_are_reported_or_hidden() {
    assert!(last(&["bc"]).contains("replaylog:begin;"));
    assert!(last(&["vCont;c"]).contains("replaylog:end;"));
    let options = Options { edge_as_trap: true, ..Options::default() };
    let replies = exchange_with(&options, &[b"bc"]);
    assert!(replies[0].starts_with("T05thread:1;10:"), "{replies:?}");
}

#[test]
fn breakpoints_stop_both_ways_and_never_twice_at_the_start() {
    let packets =
        ["qSupported:swbreak+;hwbreak+", "Z1,1010,1", "bc", "bc", "c", "c", "z1,1010,1", "bc"];
    let replies = exchange(&packets);
    assert!(replies[2].contains("hwbreak:;10:1010"), "{replies:?}");
    assert!(replies[3].contains("replaylog:begin;"), "{replies:?}");
    assert!(replies[4].contains("hwbreak:;10:1010"), "{replies:?}");
    assert!(replies[5].contains("replaylog:end;"), "{replies:?}");
    assert!(replies[7].contains("replaylog:begin;"), "{replies:?}");
    // Without the feature the stop is a plain trap; watchpoints are not offered.
    assert!(last(&["Z0,1010,1", "bc"]).starts_with("T05thread:1;10:1010"));
    assert_eq!(last(&["Z2,1010,4"]), "");
}

#[test]
fn the_sequence_of_codelldb_survives_the_start_of_history() {
    let back = ["Hc1", "bs", "bs", "s"];
    let mut packets = vec!["qRcmd,7365656b2031"];
    for _ in 0..3 {
        packets.extend(back);
    }
    packets.extend(["bc", "bs", "s"]);
    let replies = exchange(&packets);
    assert!(replies.iter().filter(|reply| reply.contains("replaylog:begin;")).count() >= 2);
    assert!(replies.last().unwrap().contains("10:0210000000000000;"), "{replies:?}");
}

#[test]
fn a_line_is_stepped_back_over_at_once() {
    // 1000, 1002 (a call to 1010), 1010, 1012 (its return), 1004: the end is at 1006.
    let line = "qContraflow.line:1,1000,1008";
    let at = |packets: &[&str]| {
        let reply = last(packets);
        let pc = reply.split("10:").nth(1).expect("a pc");
        format!("{}{}", &pc[2..4], &pc[0..2])
    };
    assert_eq!(at(&["Hc1", "bs"]), "1004");
    assert_eq!(at(&["Hc1", line, "bs"]), "1012");
    // The line of another thread, and none.
    assert_eq!(at(&["Hc1", "qContraflow.line:2,1000,1008", "bs"]), "1004");
    assert_eq!(at(&["Hc1", line, "qContraflow.line:", "bs"]), "1004");
    // gdb checks the start of the line, and its calls.
    assert_eq!(at(&["Hc1", "qContraflow.line:1,1004,1008", "bs"]), "1004");
    assert_eq!(at(&["Hc1", line, "bs", "bs", "bs"]), "1002");
    // A breakpoint inside the line stops; forward steps are unchanged.
    assert_eq!(at(&["Hc1", line, "Z0,1004,1", "bs"]), "1004");
    assert_eq!(at(&["Hc1", line, "qRcmd,7365656b2030", "vCont;s:1"]), "1002");
    for wrong in ["1", "1,2", "x,1,2", "1,2,x", "-1,1,2"] {
        assert!(last(&[&format!("qContraflow.line:{wrong}")]).starts_with('E'), "{wrong}");
    }
}

#[test]
fn a_refused_choice_of_a_thread_is_never_another_thread() {
    let (begin, end) = ("qRcmd,7365656b2030", "qRcmd,7365656b20656e64");
    // gdb assumes that its `Hg` succeeded: before thread 2 exists there are no registers to show.
    let replies = exchange(&["Hg1", begin, "Hg2", "p10", "g", "P10=00", end, "p10"]);
    assert_eq!(replies[2..6], ["E01"; 4]);
    assert_eq!(replies[7], "0620000000000000");
    // All threads share the memory.
    assert_eq!(last(&[begin, "Hg2", "m1000,2"]), "9090");
    // No other thread steps in its place.
    let stepped = exchange(&[begin, "Hc2", "s", end, "bs"]);
    assert!(stepped[2].starts_with("E.thread 2 does not exist"), "{stepped:?}");
    assert!(stepped[4].starts_with("T05thread:2;"), "{stepped:?}");
}

#[test]
fn a_finish_with_an_unknown_value_ends_without_a_breakpoint() {
    let begin = "qRcmd,7365656b2030";
    let until = |finish: &str| last(&[begin, "Z0,1004,1", finish, "vCont;c"]);
    assert!(until("qContraflow.finish:1,1004,1").starts_with("T00thread:1;10:0410"));
    // At another address, of another thread, in an inner frame, removed.
    for other in ["1,1002,1", "2,1004,1", "1,1004,0", ""] {
        let reply = until(&format!("qContraflow.finish:{other}"));
        assert!(reply.starts_with("T05thread:1;"), "{other}: {reply}");
    }
    // Once.
    let finish = "qContraflow.finish:1,1004,1";
    let again = last(&[begin, "Z0,1004,1", finish, "vCont;c", begin, "vCont;c"]);
    assert!(again.starts_with("T05"), "{again}");
    assert_eq!(last(&["qContraflow.finish:1,1004"]), "E01");
}
