//! Data that a client reads: registers, memory, documents, files, and answers in text.

use super::*;
use crate::gdb::numbers;
use crate::session::Value;

#[test]
fn unknown_registers_are_unavailable() {
    let all = last(&["bs", "g"]);
    let rip = 16 * 16;
    assert_eq!(&all[..rip], "x".repeat(rip));
    assert_eq!(&all[rip..rip + 16], "0410000000000000");
    assert_eq!(all.len() % 2, 0);
    assert_eq!(last(&["p7"]), "0000ff7f00000000");
    assert_eq!(last(&["bs", "p7"]), "x".repeat(16));
    assert_eq!(last(&["p99"]), "");
}

#[test]
fn lldb_gets_an_error_for_an_unavailable_register() {
    let lldb = "qSupported:xmlRegisters=i386,arm;multiprocess+";
    assert_eq!(last(&[lldb, "p0"]), "x".repeat(16), "only asks whether `p` is understood");
    assert_eq!(last(&[lldb, "p0", "p0"]), "E45");
    assert_eq!(last(&[lldb, "p0", "p10"]), "0610000000000000");
    assert_eq!(last(&["qSupported:qRelocInsn+", "p0", "p0"]), "x".repeat(16));
}

#[test]
fn a_fatal_signal_is_shown_at_the_end() {
    let mut killed = history();
    killed.description.ending = Ending::Signal(7);
    let first_reply = |hello: &str| {
        let mut served = Served::new(Session::new(Recorded::at_end(killed.clone())));
        let mut wire = Wire::default();
        wire.input.extend([frame::encode(hello.as_bytes()), frame::encode(b"?")]);
        Client::new(&mut served, &mut wire, &Options::default()).serve().unwrap();
        bodies(&wire.output).pop().unwrap()
    };
    // SIGBUS is 7 on Linux, and 10 in gdb's numbers.
    assert!(first_reply("qSupported:qRelocInsn+").starts_with("T0athread:1;"));
    let reply = first_reply("qSupported:xmlRegisters=i386");
    let words = reply.split("description:").nth(1).unwrap().split(';').next().unwrap();
    assert!(reply.starts_with("T05thread:1;reason:exception;"), "{reply}");
    assert_eq!(hex_text(words), "killed by SIGBUS");
}

#[test]
fn the_description_matches_the_registers() {
    let xml = last(&["qXfer:features:read:target.xml:0,ffff"]);
    let sizes = xml.split("bitsize=\"").skip(1);
    let bits: usize =
        sizes.map(|rest| rest.split('"').next().unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(last(&["g"]).len(), bits / 4);
    for register in ["rip", "eflags", "st7", "fop", "xmm15", "mxcsr", "orig_rax", "gs_base"] {
        assert!(xml.contains(&format!("<reg name=\"{register}\"")), "{register}");
    }
    assert!(!xml.contains("ymm0h"));
    assert_eq!(last(&["qXfer:features:read:other.xml:0,ffff"]), "E00");
}

#[test]
fn the_upper_avx_halves_are_served_when_the_end_knows_them() {
    let mut history = history();
    let registers = history.final_registers.get_mut(&Tid(1)).unwrap();
    registers.set(Register::ymm_high(3).unwrap(), Some(5));
    let served = Served::new(Session::new(Recorded::at_end(history)));
    assert!(served.target_xml.contains("org.gnu.gdb.i386.avx"));
    assert!(served.target_xml.contains("ymm15h") && !served.target_xml.contains("zmm"));
}

#[test]
fn the_registers_of_avx_512_are_served_when_the_end_knows_them() {
    let mut history = history();
    let registers = history.final_registers.get_mut(&Tid(1)).unwrap();
    registers.set(Register::ymm_high(3).unwrap(), Some(5));
    let upper: Vec<u8> = (1..=32).collect();
    let zmm31 = Register::zmm_high(31).unwrap();
    registers.set_value(zmm31, Some(Value::new(&upper)));
    let mut served = Served::new(Session::new(Recorded::at_end(history)));
    for name in ["k7", "xmm16", "ymm31h", "zmm0h", "zmm31h"] {
        assert!(served.target_xml.contains(&format!("<reg name=\"{name}\"")), "{name}");
    }
    let mut wire = Wire::default();
    let packets = [format!("p{:x}", numbers::number(zmm31).unwrap()), "g".to_owned()];
    wire.input.extend(packets.map(|packet| frame::encode(packet.as_bytes())));
    Client::new(&mut served, &mut wire, &Options::default()).serve().unwrap();
    let replies = bodies(&wire.output);
    assert_eq!(replies[0], hex::encode(&upper));
    assert!(replies[1].ends_with(&replies[0]));
}

#[test]
fn memory_is_served_as_far_as_it_is_known() {
    assert_eq!(last(&["m1000,4"]), "90909090");
    assert_eq!(last(&["m101e,10"]), "9090");
    assert_eq!(last(&["m3000,4"]), "E0e");
    assert_eq!(last(&["m7fff0000,2"]), "0707");
    assert_eq!(last(&["bs", "m7fff0000,2"]), "E0e", "the stack of the past is unknown");
    assert_eq!(last(&["m1000,ffffffffffffffff"]).len(), 2 * 0x20);
    assert_eq!(last(&["mffffffffffffffff,8"]), "E0e");
    assert_eq!(last(&["m1000,0"]), "");
    for broken in ["m", "m1000", "mx,4", "m1000,", "m-1,4"] {
        assert_eq!(last(&[broken]), "E01");
    }
}

#[test]
fn writes_are_refused_in_words() {
    let all = format!("G{}", "00".repeat(last(&["g"]).len() / 2));
    for write in ["P0=0000000000000000", "M1000,1:00", "X1000,1:a", &all] {
        let reply = last(&["bs", write]);
        assert!(reply.starts_with("E.the past cannot be changed"), "{write}: {reply}");
    }
    assert_eq!(last(&["X1000,0:"]), "OK", "gdb asks whether binary writes are understood");
}

#[test]
fn threads_are_listed_with_their_names() {
    assert_eq!(exchange(&["qfThreadInfo", "qsThreadInfo"])[..], ["m01,02", "l"]);
    let xml = last(&["qXfer:threads:read::0,1000"]);
    assert!(xml.ends_with(r#"<thread id="1"/><thread id="2" name="a&lt;b"/></threads>"#), "{xml}");
    assert_eq!(hex_text(&last(&["qThreadExtraInfo,2"])), "a<b");
    assert_eq!(last(&["T3"]), "E01");
    // A thread does not exist before its first instruction.
    assert_eq!(last(&["qRcmd,7365656b2030", "qfThreadInfo"]), "m01");
    assert_eq!(last(&["qRcmd,7365656b2030", "Hg2"]), "E01");
}

#[test]
fn data_is_hidden_on_request() {
    let stack = "m7fff0000,8";
    assert_eq!(last(&[stack]), "07".repeat(8));
    let replies = exchange(&["qContraflow.data:hide", stack, "m1000,2", "qContraflow.data:show"]);
    assert_eq!(replies, ["OK", "E0e", "9090", "OK"]);
    assert_eq!(last(&["qContraflow.data:hide", "qContraflow.data:show", stack]), "07".repeat(8));
    assert_eq!(last(&["qContraflow.data:x"]), "E01");
}

#[test]
fn lldb_gets_libraries() {
    // `?` of LLDB, a client that does not offer to relocate instructions.
    let lldb = "qSupported:xmlRegisters=i386";
    assert!(last(&[lldb, "?"]).ends_with("library:1;"));
    assert!(!last(&["qSupported:qRelocInsn+", "?"]).contains("library"));
}

#[test]
fn documents_are_read_in_pieces() {
    let whole = last(&["qXfer:libraries-svr4:read::0,1000"]);
    assert!(whole.contains(r#"name="/lib/libc.so" lm="0x10" l_addr="0x20" l_ld="0x30""#));
    let packets: Vec<String> =
        (0..whole.len()).map(|at| format!("qXfer:libraries-svr4:read::{at:x},1")).collect();
    let packets: Vec<&str> = packets.iter().map(String::as_str).collect();
    let pieces: String = exchange(&packets).iter().map(|piece| &piece[1..]).collect();
    assert_eq!(pieces, whole[1..]);
    assert_eq!(last(&["qXfer:exec-file:read:1:0,100"]), "l/bin/true");
    assert_eq!(last(&["qXfer:auxv:read::0,100"]), "E00", "not known here");
    assert_eq!(last(&["qXfer:exec-file:read::ffffffffffffffff,ffffffffffffffff"]), "l");
    assert_eq!(last(&["qXfer:nonsense:read::0,100"]), "");
    assert_eq!(last(&["qXfer:auxv:write::0,100"]), "E00");
}

#[test]
fn only_files_of_the_recording_can_be_opened() {
    let path = hex::encode(b"/bin/true");
    let passwd = hex::encode(b"/etc/passwd");
    let replies = exchange(&[
        "vFile:setfs:0",
        &format!("vFile:open:{path},0,0"),
        "vFile:pread:0,100,0",
        "vFile:pread:0,2,5",
        "vFile:close:0",
        "vFile:close:0",
        &format!("vFile:open:{passwd},0,0"),
        &format!("vFile:open:{path},1,0"),
    ]);
    assert_eq!(
        replies,
        ["F0", "F00", "F07;}\u{3}}\u{4}}]}\nelf", "F02;lf", "F0", "F-1,09", "F-1,02", "F-1,1e"]
    );
}

#[test]
fn branch_traces_are_served_when_asked_for() {
    let options = Options::default();
    let replies = exchange_with(
        &options,
        &[
            b"qXfer:btrace-conf:read::0,1000",
            b"Qbtrace-conf:pt:size=0x10000",
            b"Qbtrace:pt",
            b"qXfer:btrace-conf:read::0,1000",
            b"qXfer:btrace:read:all:0,1000",
            b"qXfer:btrace:read:delta:0,1000",
            b"qXfer:btrace:read:new:0,1000",
            b"Qbtrace:pt",
            b"qXfer:btrace:read:new:0,1000",
            b"Qbtrace:bts",
            b"Qbtrace:off",
        ],
    );
    assert!(!replies[0].contains("<pt"));
    assert!(replies[3].contains("<pt size="));
    assert!(replies[4].contains("<raw>0282</raw>"));
    assert_eq!(replies[5], "E00");
    assert!(replies[6].ends_with(r#"<btrace version="1.0"></btrace>"#), "nothing is new");
    assert!(replies[8].contains("<raw>0282</raw>"), "a trace that was enabled again is new");
    assert_eq!(replies[9..], ["", "OK"]);
}

#[test]
fn the_call_history_is_reported() {
    let reply = last(&["qRcmd,7365656b2034", "qContraflow.stack:1,0,10"]);
    assert_eq!(reply, "4,0,2,1012,0;1,1010,1002,1004,0;-,-,-,-,0");
    let reply = last(&["qRcmd,7365656b2034", "qContraflow.stack:1,1,1"]);
    assert_eq!(reply, "4,0,2,1012,0;-,-,-,-,0");
    assert_eq!(last(&["qContraflow.stack:zz"]), "E01");
}

#[test]
fn monitor_commands_answer_in_text() {
    let say = |command: &str| {
        let packet = format!("qRcmd,{}", hex::encode(command.as_bytes()));
        let replies = exchange_with(&Options::default(), &[packet.as_bytes()]);
        let text = replies.iter().filter_map(|reply| reply.strip_prefix('O'));
        text.filter(|rest| *rest != "K").map(hex_text).collect::<String>()
    };
    assert!(say("when").starts_with("position 8 of 8, thread 1"));
    assert!(say("seek 3").starts_with("position 3 of 8"));
    assert!(say("seek -8").starts_with("position 0 of 8"));
    assert_eq!(say("seek -9"), "that position is outside the history\n");
    assert!(say("seek 9").contains("no such position: 9"));
    assert!(say("seek").contains("seek where"));
    assert!(say("seek x").contains("not a position"));
    assert!(say("info").contains("8 instructions"));
    assert!(say("gaps").contains("no gaps"));
    assert!(say("").contains("seek N"));
    assert!(say("dance").contains("no such command: dance"));
}

/// Returns the answers to several commands of one client.
fn say_all(commands: &[&str]) -> Vec<String> {
    let packets: Vec<String> =
        commands.iter().map(|c| format!("qRcmd,{}", hex::encode(c.as_bytes()))).collect();
    let packets: Vec<&[u8]> = packets.iter().map(String::as_bytes).collect();
    let replies = exchange_with(&Options::default(), &packets);
    let answers = replies.split(|reply| reply == "OK");
    let text = |answer: &[String]| answer.iter().map(|piece| hex_text(&piece[1..])).collect();
    answers.map(text).take(commands.len()).collect()
}

#[test]
fn monitor_seeks_by_share_time_and_mark() {
    let answers = say_all(&[
        "seek 50%",
        "mark half",
        "seek 12.5%",
        "seek half",
        "seek 2us",
        "seek +1.5us",
        "seek -3us",
        "seek 9us",
        "seek -9s",
        "seek start",
        "seek -1%",
        "seek 101%",
        "marks",
        "unmark half",
        "seek half",
        "mark end",
        "mark 7",
        "unmark half",
    ]);
    let positions: Vec<&str> =
        answers.iter().filter_map(|a| a.strip_prefix("position ")?.split(' ').next()).collect();
    assert_eq!(positions, ["4", "1", "4", "2", "4", "1", "0", "0"]);
    assert!(answers[0].contains("50.00% of the history"), "{answers:?}");
    assert!(answers[0].contains("1970-01-01 00:00:01.000004000 UTC"), "{answers:?}");
    assert_eq!(answers[1], "mark half: position 4\n");
    assert!(answers[7].contains("after the end, which is at 0.000008000 s"), "{answers:?}");
    assert!(answers[8].contains("before the start"), "{answers:?}");
    assert!(answers[11].contains("not a position"), "{answers:?}");
    assert_eq!(answers[12], "half: position 4\n");
    assert!(answers[14].contains("not a position, a time or a mark"), "{answers:?}");
    assert!(answers[15].contains("a mark has a name") && answers[16].contains("a mark has a name"));
    assert!(answers[17].contains("there is no mark half"));
}

#[test]
fn marks_have_short_names_that_are_shown_without_control_characters() {
    let long = format!("mark {}", "m".repeat(101));
    let answers = say_all(&[&long, "mark a\u{1b}[1m"]);
    assert!(answers[0].contains("at most 100 bytes"), "{}", answers[0]);
    assert!(answers[1].starts_with("mark a") && !answers[1].contains('\u{1b}'), "{}", answers[1]);
}

#[test]
fn monitor_finds_code_and_shows_the_calls_around() {
    let answers = say_all(&[
        "find callee",
        "find callee 1",
        "find *2004",
        "find nothing",
        "find callee 0",
        "seek 5",
        "history",
        "history 0",
        "stats",
        "find",
        "find 'callee' 1",
        "seek 5",
        "caller",
        "return",
        "home",
    ]);
    assert_eq!(
        answers[0],
        "position 5, thread 1, 0.000005000 s: callee+2 at call.c:7 (0x1012), called at 0x1002\n\
         position 3, thread 1, 0.000003000 s: callee at call.c:7 (0x1010), called at 0x1002\n\
         2 hits of callee at 2 addresses\n"
    );
    assert!(answers[1].contains("and earlier ones: monitor find callee 10"), "{answers:?}");
    assert!(answers[2].starts_with("position 6, thread 2"), "{answers:?}");
    assert!(answers[3].contains("no code of nothing"), "{answers:?}");
    assert!(answers[4].contains("give a number from 1"), "{answers:?}");
    let lines: Vec<&str> = answers[6].lines().map(str::trim).collect();
    assert_eq!(
        lines,
        ["0  (begins) 0x1000", "3    callee at call.c:7", "5  => callee+2 at call.c:7"]
    );
    assert!(answers[7].contains("give a number"), "{answers:?}");
    assert!(
        answers[8].contains("thread 2: 3 instructions (37.50%), from position 2"),
        "{answers:?}"
    );
    assert!(answers[9].contains("find what?"), "{answers:?}");
    assert_eq!(answers[10].lines().next(), answers[0].lines().next());
    assert!(answers[12].starts_with("position 1 of"), "{answers:?}");
    assert!(answers[13].contains("the call of this function is not known"), "{answers:?}");
    assert!(answers[14].contains("no call of the program's own code"), "{answers:?}");
}

#[test]
fn a_seek_may_wait_for_the_next_continue() {
    let seek = format!("qRcmd,{}", hex::encode(b"on-continue seek 3"));
    let replies = exchange(&[&seek, "qC", "vCont;c", "vCont;c"]);
    assert!(replies[2].contains("thread:1;10:1010000000000000;"), "{replies:?}");
    assert!(replies[3].contains("replaylog:end"), "{replies:?}");
}

#[test]
fn only_a_move_is_repeated_at_the_next_continue() {
    let monitor = |command: &str| format!("qRcmd,{}", hex::encode(command.as_bytes()));
    let (seek, begin) = (monitor("seek 3"), monitor("seek start"));
    for command in ["when", "gaps", "find callee"] {
        let replies = exchange(&[&seek, &monitor(&format!("on-continue {command}")), "vCont;c"]);
        assert!(replies[2].contains("replaylog:end"), "{command}: {replies:?}");
    }
    let replies = exchange(&[&monitor("on-continue seek 3"), &begin, "vCont;c"]);
    assert!(replies[2].contains("replaylog:end"), "{replies:?}");
    let replies = exchange(&[&monitor("on-continue seek 3"), &monitor("when"), "vCont;c"]);
    assert!(replies[2].contains("thread:1;10:1010000000000000;"), "{replies:?}");
}

#[test]
fn memory_is_searched_and_summed() {
    assert_eq!(last(&["qSearch:memory:1000;20;\u{7}"]), "0");
    assert_eq!(last(&["qSearch:memory:7fff0000;8;\u{7}\u{7}"]), "1,7fff0000");
    assert_eq!(last(&["bs", "qSearch:memory:7fff0000;8;\u{7}"]), "E0e", "not known");
    assert_eq!(last(&["qSearch:memory:1000;100;\u{7}"]), "0", "as far as it is known");
    assert_eq!(last(&["qSearch:memory:100000;20000;\u{7}"]), "0", "known for a whole piece");
    for broken in ["qSearch:memory:1000;20", "qSearch:memory:1000;20;", "qSearch:memory:;;a"] {
        assert_eq!(last(&[broken]), "E01", "{broken}");
    }
    // gdb's checksum of 32 bytes of 0x90.
    assert_eq!(last(&["qCRC:1000,20"]), "C9dfc4f4f");
    assert_eq!(last(&["qCRC:1000,21"]), "E0e");
    assert_eq!(last(&["qCRC:1000,0"]), "Cffffffff");
    assert_eq!(last(&["qCRC:1000,ffffffffffffffff"]), "E01");
}

#[test]
fn lldb_asks_about_host_process_memory_and_threads() {
    assert!(last(&["qHostInfo"]).contains("ptrsize:8;endian:little;ostype:linux;"));
    assert!(last(&["qProcessInfo"]).starts_with("pid:1;triple:"));
    assert_eq!(last(&["qMemoryRegionInfo:1004"]), "start:1000;size:20;permissions:rx;");
    assert_eq!(last(&["qMemoryRegionInfo:10"]), "start:0;size:1000;");
    assert_eq!(last(&["qMemoryRegionInfo:zz"]), "E01");
    let threads = last(&["jThreadsInfo"]).replace("}]", "}");
    let threads: serde_json::Value = serde_json::from_str(&threads).unwrap();
    assert_eq!((&threads[1]["tid"], &threads[1]["name"]), (&2.into(), &"a<b".into()));
    assert!(last(&["qThreadStopInfo2"]).starts_with("T00thread:2;10:"));
    assert!(last(&["qThreadStopInfo1"]).starts_with("T05thread:1;"));
    assert_eq!(last(&["qThreadStopInfo9"]), "E03");
    assert!(last(&["QListThreadsInStopReply", "bs"]).contains("threads:1,2;"));
}

#[test]
fn lldb_saves_registers() {
    let replies = exchange(&[
        "QSaveRegisterState",
        "QSaveRegisterState;thread:2;",
        "QRestoreRegisterState:1",
        "QRestoreRegisterState:1",
        "QSaveRegisterState",
        "bs",
        "QRestoreRegisterState:3",
    ]);
    assert_eq!(replies[..5], ["1", "2", "OK", "E01", "3"]);
    assert!(replies[6].starts_with("E.the past cannot be changed"), "{replies:?}");
}

#[test]
fn a_condition_that_is_false_is_no_stop() {
    // reg 16 (rip); const16 0x1012; equal; end: true at 0x1012 only, which has no breakpoint.
    let denied = "Z0,1010,1;X8,26001023101213 27".replace(' ', "");
    let replies = exchange(&[&denied, "bc", "Z0,1002,1", "vCont;c", "bc"]);
    assert!(replies[1].contains("replaylog:begin"), "{replies:?}");
    // It stops without a condition, and with an unknown one.
    assert!(replies[3].contains("thread:1;10:0210000000000000;"), "{replies:?}");
    let unknown = "Z0,1010,1;X4,26000027";
    assert!(exchange(&[unknown, "bc"])[1].contains("10:1010000000000000;"));
    assert_eq!(last(&["Z0,1010,1;X9,27"]), "E01");
}

#[test]
fn lldb_reads_traces() {
    assert!(last(&["jLLDBTraceSupported"]).contains("\"name\":\"intel-pt\""));
    let pt = r#"{"type":"intel-pt","kind":"iptTrace","tid":1}]"#;
    assert_eq!(last(&[&format!("jLLDBTraceStart:{pt}")]), "OK");
    let state = last(&[&format!("jLLDBTraceGetState:{pt}")]).replace("}]", "}");
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["tracedThreads"][0]["binaryData"][0]["size"], 2);
    assert_eq!(state["usingCgroupFiltering"], false);
    let raw =
        exchange_with(&Options::default(), &[format!("jLLDBTraceGetBinaryData:{pt}").as_bytes()]);
    assert_eq!(raw[0].as_bytes(), "\u{2}\u{fffd}".as_bytes());
    let cpu = pt.replace("iptTrace", "procfsCpuInfo");
    assert!(
        last(&[&format!("jLLDBTraceGetBinaryData:{cpu}")]).contains("vendor_id\t: GenuineIntel")
    );
    let other = pt.replace("\"tid\":1", "\"tid\":2");
    assert!(last(&[&format!("jLLDBTraceGetBinaryData:{other}")]).starts_with("E.there is no"));
    assert!(last(&["jLLDBTraceStart:{"]).starts_with("E.only Intel PT"));
}

#[test]
fn a_recording_is_not_run() {
    assert_eq!(last(&["!"]), "OK");
    assert!(last(&["vRun;2f62696e2f6c73"]).starts_with("E.a recording cannot run again"));
    assert!(last(&["vAttach;1"]).starts_with("E.a recording cannot run again"));
    assert_eq!(exchange(&["!", "vKill;1", "D"]), ["OK", "OK", "OK"], "it stays connected");
    assert_eq!(last(&["QCatchSyscalls:1"]), "");
    assert_eq!(last(&["QProgramSignals:e;f"]), "OK");
    assert_eq!(last(&["qAttached"]), "1");
}
