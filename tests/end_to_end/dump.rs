//! `contraflow dump` of raw traces written here packet by packet: times, paces, JSON.

use crate::support::{Scene, contraflow, text};
use contraflow::common::Tid;
use contraflow::insn::ExecMode;
use contraflow::pt::{IpCompression, IpPayload, Packet, Tnt, encode};
use contraflow::recording::import::Imported;
use contraflow::recording::{Mapped, TraceId};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Output, Stdio};

/// `call 1007; jz +0; ret` at 1000H, whose callee is the RET.
const CODE: &[u8] = &[0xe8, 2, 0, 0, 0, 0x74, 0x00, 0xc3];

/// 1000 TSC ticks in, the call and its return; 100 core clocks later the JZ.
fn scene() -> Scene {
    let scene = Scene::new();
    let mut trace = Vec::new();
    let mode = Packet::ModeExec { mode: ExecMode::Bits64, interrupts: false };
    let ip = IpPayload { compression: IpCompression::Full, value: 0x1000 };
    let (ret, jz) = (Tnt { bits: 1, len: 1 }, Tnt { bits: 0, len: 1 });
    for packet in [
        Packet::Psb,
        Packet::Tsc(1000),
        mode,
        Packet::Fup(ip),
        Packet::PsbEnd,
        Packet::Cyc(500),
        Packet::TntShort(ret),
        Packet::Cyc(100),
        Packet::TntShort(jz),
        Packet::Tsc(2000),
        Packet::Ovf,
    ] {
        encode(&packet, &mut trace);
    }
    fs::write(scene.path("trace"), trace).expect("a file");
    fs::write(scene.path("code"), CODE).expect("a file");
    scene
}

fn dumped(scene: &Scene, arguments: &[&str]) -> Output {
    let mut command = contraflow();
    command.current_dir(scene.path("")).args(["dump", "--pt", "trace"]).args(arguments);
    let output = command.output().expect("contraflow runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn dump(scene: &Scene, arguments: &[&str]) -> String {
    text(&dumped(scene, &[&["--code", "code@1000"], arguments].concat()).stdout)
}

fn objects(scene: &Scene, arguments: &[&str]) -> Vec<Value> {
    let lines = dump(scene, &[arguments, &["--json"]].concat());
    lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn calls_are_objects() {
    let calls = objects(&scene(), &["calls"]);
    let of = |key: &str| calls.iter().map(|call| call[key].to_string()).collect::<Vec<_>>();
    assert_eq!(of("how"), ["\"start\"", "\"call\""]);
    assert_eq!(
        (of("index"), of("depth")),
        (vec!["0".into(), "1".into()], vec!["0".into(), "1".into()])
    );
    assert_eq!(of("address"), ["\"0x1000\"", "\"0x1007\""]);
}

#[test]
fn blocks_and_events_have_times_and_paces() {
    let scene = scene();
    let blocks = objects(&scene, &["blocks"]);
    let exits: Vec<_> = blocks.iter().map(|block| block["exit"].to_string()).collect();
    assert_eq!(exits, ["\"Call\"", "\"Ret\"", "\"NotTaken\""]);
    assert!(blocks.iter().all(|block| block["tsc"] == 1000 && block["earliest"] == 1000));
    assert!(blocks.iter().all(|block| block["latest"].is_null()));
    let paces: Vec<_> = blocks.iter().map(|block| block["pace"].to_string()).collect();
    assert_eq!(paces, ["null", "null", r#"{"cycles":100,"instructions":1}"#]);
    let events = objects(&scene, &["events"]);
    assert_eq!(events.last().map(|event| event["tsc"] == 2000), Some(true), "{events:?}");
    // The column is there where the clocks are known.
    assert!(!dump(&scene, &["blocks"]).contains(" 3e8 "));
    assert!(dump(&scene, &["blocks", "--nom-freq", "20"]).contains(" 3e8 "));
}

#[test]
fn statistics_tell_instructions_per_cycle() {
    let scene = scene();
    let said = dump(&scene, &["stats"]);
    assert!(said.contains("\ninstructions per cycle 0.01 (1 in 100)\n"), "{said}");
    assert!(said.ends_with("\ninstructions 3 gaps 0\n"), "{said}");
    let stats = objects(&scene, &["stats"]);
    assert_eq!(stats[0]["pace"]["cycles"], 100);
}

/// Where ranges overlap, the first line counts; what is mapped and not in its file is named.
/// Erratum SKD007 puts an OVF in place of the second byte of a CYC.
/// Which packets of a CPU's trace are of a thread is unknown.
#[test]
fn statistics_of_a_thread_have_no_packets_of_cpus() {
    let scene = scene();
    let trace = Mapped::from(fs::read(scene.path("trace")).unwrap());
    let imported = Imported {
        threads: vec![Tid(7), Tid(8)],
        traces: vec![(TraceId::Cpu(0), trace.into())],
        ..Imported::default()
    };
    let dir = scene.path("recording");
    imported.write(&dir).unwrap();
    let stats = |options: &[&str]| {
        let mut command = contraflow();
        let output = command.args(["dump", "stats"]).args(options).arg(&dir).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let lines = stats(&[]);
    assert!(lines.starts_with("bytes ") && lines.contains("packets 11\n"), "{lines}");
    let lines = stats(&["--thread", "7"]);
    assert!(lines.starts_with("events ") && lines.contains("instructions 0"), "{lines}");
    let all: Value = serde_json::from_str(&stats(&["--json"])).unwrap();
    assert_eq!(all["packets"]["Psb"], 1);
    let one: Value = serde_json::from_str(&stats(&["--json", "--thread", "7"])).unwrap();
    assert!(one.get("packets").is_none() && one.get("bytes").is_none(), "{one}");
    assert_eq!(one["instructions"], 0);
}

#[test]
fn packets_are_those_of_the_processor() {
    let scene = Scene::new();
    let mut trace = Vec::new();
    encode(&Packet::Psb, &mut trace);
    encode(&Packet::PsbEnd, &mut trace);
    trace.extend([0x07, 0x02, 0xf3]);
    fs::write(scene.path("trace"), trace).expect("a file");
    let packets = |cpu: &str| text(&dumped(&scene, &["--cpu", cpu, "packets"]).stdout);
    assert!(packets("6/94/3").ends_with("00000013  Ovf\n"), "{}", packets("6/94/3"));
    assert!(!packets("6/151/2").contains("Ovf"));
    let counted = text(&dumped(&scene, &["--cpu", "6/94/3", "stats"]).stdout);
    assert!(counted.contains("Ovf 1\n"), "{counted}");
}

#[test]
fn a_list_of_code_and_what_is_missing() {
    let scene = scene();
    let gaps = |list: &str| {
        fs::write(scene.path("list"), list).expect("a file");
        let output = dumped(&scene, &["--code-list", "list", "insns", "--addresses"]);
        (text(&output.stdout).lines().count(), text(&output.stderr))
    };
    fs::write(scene.path("nops"), [0x90; 8]).expect("a file");
    let (insns, said) = gaps("1000 8 0 code\n1000 8 0 nops\n");
    assert_eq!((insns, said.contains("gap: ")), (3, false), "{said}");
    let (insns, said) = gaps("1000 5 0 code\n1007 1 0 nops\n");
    assert_eq!(insns, 2, "{said}");
    let gap = "last ip 0x1008 no code is known at 0x1008, nothing is mapped there\n";
    assert!(said.contains("gap: offset 0x") && said.ends_with(gap), "{said}");
}

/// Erratum SKL014: a direct jump out of the filtered range has a TIP.PGD without an address. Where
/// the range is given, the jump is known; without it the path runs on.
#[test]
fn a_filter_range_tells_where_tracing_ended() {
    let scene = Scene::new();
    let none = IpPayload { compression: IpCompression::Suppressed, value: 0 };
    let ip = IpPayload { compression: IpCompression::Full, value: 0x1000 };
    let mode = Packet::ModeExec { mode: ExecMode::Bits64, interrupts: false };
    let mut trace = Vec::new();
    for packet in [Packet::Psb, mode, Packet::Fup(ip), Packet::PsbEnd, Packet::TipPgd(none)] {
        encode(&packet, &mut trace);
    }
    fs::write(scene.path("trace"), trace).expect("a file");
    // jmp 1003; nop; 1003: jmp 1020; and a system call there.
    let mut code = vec![0xeb, 0x01, 0x90, 0xeb, 0x1b];
    code.resize(0x20, 0x90);
    code.extend([0x0f, 0x05]);
    fs::write(scene.path("code"), code).expect("a file");
    let path = |arguments: &[&str]| {
        let path = dump(&scene, &[arguments, &["insns", "--addresses"]].concat());
        path.lines().map(|addr| addr.trim_start_matches('0').to_owned()).collect::<Vec<_>>()
    };
    let skylake = ["--cpu", "6/94/3"];
    let ranged = |range| path(&[&skylake[..], &["--filter-range", range]].concat());
    assert_eq!(ranged("1000-100f"), ["1000", "1003"]);
    assert_eq!(ranged("1000-1fff"), ["1000", "1003", "1020"]);
    assert_eq!(path(&skylake), ["1000", "1003", "1020"]);
    // A processor without the erratum says where it went, or did not leave by that jump.
    assert_eq!(path(&["--filter-range", "1000-100f"]), ["1000", "1003", "1020"]);
}

/// Whoever reads may stop at any time: that is no error, and nothing is said.
#[test]
fn a_broken_pipe_ends_quietly() {
    let scene = scene();
    let once = fs::read(scene.path("trace")).expect("a file");
    fs::write(scene.path("trace"), once.repeat(100_000)).expect("a file");
    for what in ["packets", "events", "blocks", "insns", "calls"] {
        let mut command = contraflow();
        command.current_dir(scene.path("")).args(["dump", "--pt", "trace", "--cpu", "6/94/3"]);
        command.args(["--code", "code@1000", what]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut dump = command.spawn().expect("contraflow runs");
        let mut lines = BufReader::new(dump.stdout.take().expect("a pipe")).lines();
        assert!(lines.next().is_some(), "{what}");
        drop(lines);
        let mut said = String::new();
        dump.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        let status = dump.wait().expect("it ends");
        assert!(status.success() && said.is_empty(), "{what}: {status}: {said}");
    }
}
