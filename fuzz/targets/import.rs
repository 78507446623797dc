//! Import: traces that somebody else took. The first byte of an input tells what the rest is:
//! `{` the description of an LLDB trace bundle, whose files are there; `s` context switches of
//! perf; `t` the trace of a CPU, shared out by switches that are there; `w` a whole import: two
//! bytes of size, as many bytes of context switches, and the trace of their CPU.

use crate::seeds;
use crate::traits::Traits;
use contraflow::common::{AddrRange, Pid, Tid, Tsc};
use contraflow::flow::Config;
use contraflow::image::{Bytes, Section};
use contraflow::recording::import::{Bundle, CpuSwitch, Imported, MappedCode, open_bundle};
use contraflow::recording::{Mapped, Reader, TraceId};
use contraflow::sideband::{Event, Record, Switch, SwitchKind, perf_switches};
use contraflow::timeline::{Options, Timeline, Visit, divide_among_threads};
use std::fs;
use std::mem::discriminant;
use std::ops::ControlFlow;
use std::path::Path;

/// Of descriptions.
pub(crate) const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"null",
    b"-1",
    b"0",
    b"1e999",
    b"\"a\"",
    b"\"b\"",
    b"\"m\"",
    b"\"../a\"",
    b"\"/\"",
    b"\"\\u0000\"",
    b"18446744073709551615",
    b"2147483647",
    b"\"iptTrace\":",
    b"\"tid\":",
    b"\"threads\":",
    b"\"cpus\":",
    b"\"id\":",
    b"\"modules\":",
    b"\"kernel\":",
    b"\"loadAddress\":",
    b"\"uuid\":",
    b"\"timeZero\":",
    b"\"timeShift\":",
];

pub(crate) fn feed(bytes: &[u8], dir: &Path, traits: &mut Traits) {
    match bytes.split_first() {
        Some((b'{', _)) => bundle(bytes, dir, traits),
        Some((b's', bytes)) => drop(switches(bytes, traits)),
        Some((b't', bytes)) => parts(bytes, traits),
        Some((b'w', bytes)) => whole(bytes, dir, traits),
        _ => {}
    }
}

/// A description reads, or is refused in one line with a place; and so are its files.
fn bundle(bytes: &[u8], dir: &Path, traits: &mut Traits) {
    match Bundle::parse(bytes) {
        Ok(bundle) => assert!(!bundle.threads.is_empty()),
        Err(bad) => {
            assert!(!bad.place.is_empty() && bad.to_string().lines().count() == 1);
            // The rest may be the input's own words.
            let place = bad.place.replace(|c: char| c.is_ascii_digit(), "");
            traits.note(("bundle", place, bad.what.split_whitespace().next()));
            return;
        }
    }
    let dir = dir.join("bundle");
    if !dir.exists() {
        let trace = seeds::traces().remove(0);
        let module = seeds::images().remove(0);
        let made = fs::create_dir_all(&dir)
            .and_then(|()| fs::write(dir.join("a"), trace))
            .and_then(|()| fs::write(dir.join("b"), seeds::switches()))
            .and_then(|()| fs::write(dir.join("m"), module));
        made.expect("a place for the bundle");
    }
    fs::write(dir.join("trace.json"), bytes).expect("a place for the bundle");
    match open_bundle(&dir) {
        Ok(imported) => recorded(&imported, &dir, traits),
        Err(error) => traits.note(("refused", discriminant(&error.kind))),
    }
}

/// Damage is found where it is.
fn switches(bytes: &[u8], traits: &mut Traits) -> Vec<Switch> {
    match perf_switches(bytes) {
        Ok(switches) => {
            assert!(switches.len() <= bytes.len() / 4);
            for pair in switches.windows(2) {
                let later = pair[0].time_ns <= pair[1].time_ns;
                let kinds = [&pair[0], &pair[1]].map(|switch| discriminant(&switch.kind));
                traits.note(("switches", kinds, later));
            }
            switches
        }
        Err(bad) => {
            assert!(bad.offset < bytes.len());
            assert!(perf_switches(&bytes[..bad.offset]).is_ok());
            traits.note(("bad switches", bytes[bad.offset] % 16));
            Vec::new()
        }
    }
}

/// No byte of a trace is certainly two threads', and each thread's come in order.
fn parts(bytes: &[u8], traits: &mut Traits) {
    // The times that the seeds tell, with a switch now and then.
    let switch = |number: i32| {
        let tid = Tid(1 + number / 2 % 3);
        let event =
            if number % 2 == 0 { Event::SwitchIn { cpu: 0 } } else { Event::SwitchOut { cpu: 0 } };
        let tsc = Tsc(seeds::START_TSC + u64::try_from(number).unwrap_or(0) * 5000);
        Record { tsc, pid: Pid(1), tid, event }
    };
    let records: Vec<_> = (0..80).map(switch).collect();
    let threads = [(Pid(1), Tid(1)), (Pid(1), Tid(2))];
    let parts = divide_among_threads(bytes, 0, &records, &threads, &Config::default());
    for pair in parts.windows(2).filter(|pair| pair[0].tid == pair[1].tid) {
        assert!(pair[0].range.end <= pair[1].range.start || !pair[0].is_certain);
        traits.note(("parts", pair[0].is_certain, pair[1].is_certain));
    }
    let mut certain: Vec<_> = parts.iter().filter(|part| part.is_certain).collect();
    certain.sort_by_key(|part| part.range.start);
    assert!(certain.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    assert!(parts.iter().all(|part| part.range.start < part.range.end));
    assert!(parts.iter().all(|part| part.range.end <= bytes.len()));
    traits.magnitude("certain parts", certain.len());
    traits.magnitude("parts", parts.len());
}

/// Context switches and the trace of a CPU, with the code that it ran.
fn whole(bytes: &[u8], dir: &Path, traits: &mut Traits) {
    let Some((size, rest)) = bytes.split_first_chunk() else { return };
    let size = usize::from(u16::from_le_bytes(*size)).min(rest.len());
    let (before, trace) = rest.split_at(size);
    let switch = |switch: Switch| {
        let tsc = Tsc(seeds::START_TSC.wrapping_add(switch.time_ns));
        CpuSwitch { cpu: 0, tsc, kind: switch.kind }
    };
    let switches: Vec<_> = switches(before, traits).into_iter().map(switch).collect();
    let mut threads: Vec<_> = switches.iter().filter_map(|switch| thread(switch.kind)).collect();
    threads.sort_unstable();
    threads.dedup();
    if threads.is_empty() || trace.is_empty() {
        return;
    }
    let program = Section {
        range: AddrRange::sized(seeds::CODE_AT, seeds::CODE.len() as u64),
        bytes: Bytes::from(&seeds::CODE[..]),
        executable: true,
        name: "/program".into(),
        ..Section::default()
    };
    let imported = Imported {
        program: "/program".to_owned(),
        pid: PROCESS,
        threads,
        traces: vec![(TraceId::Cpu(0), Mapped::from(trace.to_vec()).into())],
        switches,
        code: vec![MappedCode::File(program)],
        ..Imported::default()
    };
    recorded(&imported, dir, traits);
}

const PROCESS: Pid = Pid(1);

fn thread(kind: SwitchKind) -> Option<Tid> {
    match kind {
        SwitchKind::In(PROCESS, tid) | SwitchKind::Out(PROCESS, tid) if tid.0 > 0 => Some(tid),
        _ => None,
    }
}

/// What is imported makes a recording that opens, is walked from end to end, and has as many
/// instructions as its index says.
pub(super) fn recorded(imported: &Imported, dir: &Path, traits: &mut Traits) {
    let dir = dir.join("recording");
    if dir.exists() {
        fs::remove_dir_all(&dir).expect("a place for the recording");
    }
    if let Err(error) = imported.write(&dir) {
        traits.note(("not written", discriminant(&error.kind)));
        return;
    }
    let reader = Reader::open(&dir).expect("what was written opens");
    let options = Options { workers: 1, cache_bytes: 1 << 20, use_saved_index: false };
    let timeline = Timeline::open(reader, options).expect("what was written has a timeline");
    let mut total = 0;
    for tid in timeline.threads() {
        let (mut insns, mut gaps) = (0, 0);
        let visited = timeline.visit(tid, 0, &mut |visit| {
            match visit {
                Visit::Block { index, span, code, .. } => {
                    assert_eq!((index, code.addrs().len()), (insns, span.insns as usize));
                    insns += u64::from(span.insns);
                }
                Visit::Event { index, .. } => assert_eq!(index, insns),
                Visit::Gap { index, gap, .. } => {
                    assert_eq!(index, insns);
                    gaps += 1;
                    traits.note(("gap", discriminant(&gap.reason)));
                }
            }
            ControlFlow::<()>::Continue(())
        });
        assert!(visited.is_continue());
        assert_eq!(insns, timeline.instructions(tid));
        assert_eq!(gaps, timeline.gaps(tid).len());
        for index in [0, insns / 2, insns.saturating_sub(1), insns] {
            assert!(index >= insns || timeline.pc(tid, index).is_some());
            let _ = timeline.call_stack(tid, index);
        }
        traits.magnitude("insns", usize::try_from(insns).unwrap_or(0));
        traits.magnitude("gaps", gaps);
        total += insns;
    }
    assert_eq!(total, timeline.total());
    for global in [0, total / 2, total.saturating_sub(1)] {
        assert_eq!(timeline.running_at(global).is_some(), global < total);
    }
}
