//! Threads that take turns on CPUs, whose PT units write one trace per CPU. Cut by the context
//! switches, each thread's history matches the interpreter's notes. Where the times leave open
//! which thread ran, there is a gap.

use super::machine::{Notes, Thread};
use super::program::{Program, Random};
use super::recorded::tid;
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::flow::{Event, Gap};
use crate::image::Section;
use crate::pt::unit::{Config, RtitCtl, Unit};
use crate::recording::import::{CpuSwitch, Imported, MappedCode};
use crate::recording::{Mapped, Reader, TraceId};
use crate::sideband::SwitchKind;
use crate::timeline::{Options, Timeline, Totals, Visit};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const OURS: Pid = Pid(100);

/// The setup of a run.
#[derive(Clone, Copy, Debug)]
struct Setting {
    threads: usize,
    cpus: usize,
    /// True for one additional thread of a process with other code at the same addresses.
    foreign: bool,
    /// Of so many times around a switch, one is in the trace; 1 for all.
    times_reported: usize,
    ret_compression: bool,
    /// True if some switches are lost and reported as such.
    lost_switches: bool,
}

struct RanProgram {
    program: Program,
    threads: Vec<Notes>,
    traces: Vec<Vec<u8>>,
    switches: Vec<CpuSwitch>,
    /// The thread of each instruction, without those of the foreign thread.
    order: Vec<usize>,
}

struct Machine {
    random: Random,
    now: u64,
    units: Vec<Unit>,
    switches: Vec<CpuSwitch>,
    setting: Setting,
}

impl Machine {
    fn new(seed: u64, setting: Setting) -> Self {
        let more = if setting.ret_compression { RtitCtl::USER } else { RtitCtl::DIS_RETC };
        let config = Config::user_only().with(more).with_psb_period(1 << 26);
        let units = (0..setting.cpus).map(|_| Unit::new(config)).collect();
        Self { random: Random::new(seed), now: 1000, units, switches: Vec::new(), setting }
    }

    fn pass_time(&mut self) {
        self.now += 1 + self.random.below(5) as u64;
    }

    fn switch(&mut self, cpu: usize, kind: SwitchKind) {
        self.pass_time();
        let cpu = u32::try_from(cpu).unwrap();
        self.switches.push(CpuSwitch { cpu, tsc: Tsc(self.now), kind });
        self.pass_time();
    }

    /// Returns the switches that are not lost.
    fn switches_reported(&mut self) -> Vec<CpuSwitch> {
        let mut reported = Vec::new();
        for cpu in 0..u32::try_from(self.setting.cpus).unwrap() {
            let own: Vec<_> = self.switches.iter().filter(|s| s.cpu == cpu).copied().collect();
            let mut rest = own.as_slice();
            while let [next, following @ ..] = rest {
                rest = following;
                reported.push(*next);
                if self.setting.lost_switches && self.random.one_in(8) {
                    reported.push(CpuSwitch { kind: SwitchKind::Lost, ..*next });
                    let lost = self.random.below(6);
                    rest = rest.get(lost..).unwrap_or_default();
                }
            }
        }
        reported
    }

    fn stamp(&mut self, unit: &mut Unit) {
        unit.set_tsc(Tsc(self.now));
        if self.random.one_in(self.setting.times_reported) {
            unit.stamp();
        }
    }

    /// Runs a thread on a CPU for 1 to 40 instructions, between two context switches.
    fn turn(
        &mut self,
        cpu: usize,
        pid: Pid,
        number: usize,
        thread: &mut Thread,
        program: &Program,
    ) {
        let own = tid(number);
        self.switch(cpu, SwitchKind::In(pid, own));
        std::mem::swap(&mut thread.unit, &mut self.units[cpu]);
        self.stamp(&mut thread.unit);
        thread.resume(program, &mut self.random);
        for _ in 0..=self.random.below(40) {
            self.pass_time();
            thread.unit.set_tsc(Tsc(self.now));
            thread.step(program, &mut self.random);
        }
        thread.preempt();
        self.pass_time();
        self.stamp(&mut thread.unit);
        std::mem::swap(&mut thread.unit, &mut self.units[cpu]);
        self.switch(cpu, SwitchKind::Out(pid, own));
    }
}

fn run(seed: u64, setting: Setting, insns: usize) -> RanProgram {
    let mut machine = Machine::new(seed, setting);
    let count = 20 + machine.random.below(100);
    let program = Program::random(&mut machine.random, count, Addr(0x40_1000));
    let other = Program::random(&mut machine.random, count, Addr(0x40_1000));
    let mut threads: Vec<Thread> = (0..setting.threads).map(|_| Thread::new(&program)).collect();
    let mut foreign = Thread::new(&other);
    let mut order = Vec::new();
    for cpu in 0..setting.cpus {
        machine.switch(cpu, SwitchKind::Out(Pid(0), Tid(0)));
    }
    while order.len() < insns {
        let cpu = machine.random.below(setting.cpus);
        if setting.foreign && machine.random.one_in(3) {
            machine.turn(cpu, Pid(999), setting.threads, &mut foreign, &other);
            continue;
        }
        let number = machine.random.below(setting.threads);
        let before = threads[number].notes.addrs.len();
        machine.turn(cpu, OURS, number, &mut threads[number], &program);
        let executed = threads[number].notes.addrs.len() - before;
        order.extend(std::iter::repeat_n(number, executed));
    }
    let drain = |unit: &mut Unit| {
        unit.flush();
        unit.drain()
    };
    let traces = machine.units.iter_mut().map(drain).collect();
    let threads = threads.into_iter().map(Thread::end).collect();
    let switches = machine.switches_reported();
    RanProgram { program, threads, traces, switches, order }
}

/// Returns the timeline of the same run, imported from perf.data.
fn open_of_perf(ran: &RanProgram, dir: &std::path::Path) -> Timeline {
    use crate::recording::import::{PerfOptions, open_perf};
    use crate::sideband::perf_data as perf;
    let mut writer = perf::PerfWriter::new("GenuineIntel,6,85,4");
    writer.add_intel_pt_events(8, 1);
    // One tick is one nanosecond.
    let clock = Some(perf::PerfClock { zero_ns: 0, multiplier: 1, shift: 0 });
    let info =
        perf::AuxInfo { pmu: 8, clock, per_cpu: true, sched_switch: 2, ..Default::default() };
    writer.set_aux_info(&info);
    let mut record = |tsc: Tsc, task, cpu, event| {
        let id = perf::SampleId { task: Some(task), time_ns: Some(tsc.0), cpu };
        writer.add_record(&perf::PerfRecord { offset: 0, id, event });
    };
    for number in 0..ran.threads.len() {
        let child = (OURS, tid(number));
        record(Tsc(0), child, None, perf::PerfEvent::Fork { child, parent: (OURS, Tid(OURS.0)) });
    }
    let range = AddrRange::sized(ran.program.addrs[0], ran.program.bytes().len() as u64);
    let (tid, name, build_id) = (Tid(OURS.0), "/p".to_owned(), Vec::new());
    let map = perf::PerfMap {
        pid: OURS,
        tid,
        range,
        file_offset: 0,
        writable: false,
        executable: true,
        shared: false,
        build_id,
        name,
    };
    record(Tsc(1), (OURS, tid), None, perf::PerfEvent::Map(Box::new(map)));
    for switch in &ran.switches {
        let (task, event) = match switch.kind {
            SwitchKind::In(pid, tid) => {
                ((pid, tid), perf::PerfEvent::Switch { out: false, other: None })
            }
            SwitchKind::Out(pid, tid) => {
                ((pid, tid), perf::PerfEvent::Switch { out: true, other: None })
            }
            SwitchKind::Lost => ((OURS, tid), perf::PerfEvent::Lost(1)),
        };
        record(switch.tsc, task, Some(switch.cpu), event);
    }
    let mut areas = Vec::new();
    for (cpu, trace) in (0..).zip(&ran.traces) {
        let size = trace.len() as u64;
        let aux = perf::PerfEvent::Aux { offset: 0, size, flags: 0 };
        record(Tsc(2), (OURS, tid), Some(cpu), aux);
        // In two pieces.
        let (one, two) = trace.split_at(trace.len() / 16 * 8);
        for (stream_offset, bytes) in [(0, one), (one.len() as u64, two)] {
            let (record_offset, start, size_bytes) = (0, 0, bytes.len());
            let (index, tid, cpu) = (cpu, None, Some(cpu));
            let piece = perf::AuxTrace {
                record_offset,
                start,
                size_bytes,
                stream_offset,
                reference: 0,
                index,
                tid,
                cpu,
            };
            areas.push((piece, bytes));
        }
    }
    std::fs::create_dir(dir).unwrap();
    std::fs::write(dir.join("p"), ran.program.bytes()).unwrap();
    let mut file = std::fs::File::create(dir.join("perf.data")).unwrap();
    writer.write(&areas, &mut file).unwrap();
    let with =
        PerfOptions { pid: Some(OURS), symfs: Some(dir.to_owned()), ..PerfOptions::default() };
    let imported = open_perf(&dir.join("perf.data"), &with).unwrap();
    let recording = dir.join("recording");
    imported.write(&recording).unwrap();
    let options = Options { workers: 2, cache_bytes: 0, use_saved_index: false };
    Timeline::open(Reader::open(&recording).unwrap(), options).unwrap()
}

/// Returns the timelines of the imported recording, opened with different numbers of workers.
fn open(ran: &RanProgram, dir: &std::path::Path) -> [Timeline; 2] {
    let bytes = ran.program.bytes();
    let section = Section {
        range: AddrRange::sized(ran.program.addrs[0], bytes.len() as u64),
        bytes: bytes.into(),
        executable: true,
        name: "/p".into(),
        ..Section::default()
    };
    let traces = (0..).zip(&ran.traces);
    let imported = Imported {
        program: "/p".to_owned(),
        pid: OURS,
        threads: (0..ran.threads.len()).map(tid).collect(),
        traces: traces
            .map(|(cpu, trace)| (TraceId::Cpu(cpu), Mapped::from(trace.clone()).into()))
            .collect(),
        switches: ran.switches.clone(),
        code: vec![MappedCode::File(section)],
        ..Imported::default()
    };
    imported.write(dir).unwrap();
    let open = |options| Timeline::open(Reader::open(dir).unwrap(), options).unwrap();
    let built = open(Options { workers: 3, cache_bytes: 0, use_saved_index: false });
    built.save_index().unwrap();
    let saved = open(Options { workers: 1, cache_bytes: 1 << 20, use_saved_index: true });
    assert!(saved.had_saved_index());
    [built, saved]
}

/// Returns a thread's addresses and the number of its gaps.
fn path(timeline: &Timeline, thread: usize) -> (Vec<Addr>, usize) {
    let (mut path, mut blocks, mut marks) = (Vec::new(), 0, Vec::new());
    let mut each: BTreeMap<_, (u64, Vec<Addr>)> = BTreeMap::new();
    let flow: ControlFlow<()> = timeline.visit(tid(thread), 0, &mut |visit| {
        match visit {
            Visit::Block { span, code, .. } => {
                path.extend_from_slice(code.addrs());
                let key = (span.ip, span.insns, format!("{:?}", span.exit));
                each.entry(key).or_insert_with(|| (0, code.addrs().to_vec())).0 += 1;
                blocks += 1;
            }
            mark => marks.extend(reported(&mark)),
        }
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    let gaps = marks.iter().filter(|mark| matches!(mark, Told::Gap(..))).count();
    let totals = Totals { blocks, insns: path.len() as u64 };
    assert_eq!(counted(timeline, thread), (totals, marks));
    let counted = timeline.count_blocks(tid(thread), &|| false).into_iter();
    let counted = counted.map(|((ip, insns, exit), block)| {
        ((ip, insns, format!("{exit:?}")), (block.count, block.addrs.to_vec()))
    });
    assert_eq!(counted.collect::<BTreeMap<_, _>>(), each);
    (path, gaps)
}

/// An event or gap, and the number of the next instruction; for a gap, true if its code is known.
#[derive(Debug, PartialEq)]
enum Told {
    Event(u64, Event),
    Gap(u64, Gap, bool),
}

fn reported(visit: &Visit<'_>) -> Option<Told> {
    match visit {
        Visit::Block { .. } => None,
        Visit::Event { index, event, .. } => Some(Told::Event(*index, *event)),
        Visit::Gap { index, gap, image } => Some(Told::Gap(*index, *gap, image.is_some())),
    }
}

/// Returns the totals and the events and gaps of a thread, counted without visits of blocks.
fn counted(timeline: &Timeline, thread: usize) -> (Totals, Vec<Told>) {
    let mut marks = Vec::new();
    let flow: ControlFlow<(), Totals> = timeline.count_instructions(tid(thread), &mut |visit| {
        marks.extend(reported(&visit));
        ControlFlow::Continue(())
    });
    let ControlFlow::Continue(totals) = flow else { panic!("nobody broke off") };
    (totals, marks)
}

/// Returns true if `part` results from leaving elements out of `all`.
fn is_part(part: &[Addr], all: &[Addr]) -> bool {
    let mut rest = all.iter();
    part.iter().all(|addr| rest.any(|other| other == addr))
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn times_around_each_switch_give_each_thread_its_path(
        seed: u64, threads in 1_usize..4, cpus in 1_usize..4, ret_compression: bool,
    ) {
        let setting = Setting {
            threads,
            cpus,
            foreign: false,
            times_reported: 1,
            ret_compression,
            lost_switches: false,
        };
        let ran = run(seed, setting, 500);
        let dir = tempfile::tempdir().unwrap();
        for timeline in open(&ran, &dir.path().join("r")) {
            let mut done = vec![0; threads];
            for (g, thread) in (0..).zip(&ran.order) {
                prop_assert_eq!(timeline.running_at(g), Some(tid(*thread)));
                prop_assert_eq!(timeline.global_of(tid(*thread), done[*thread]), Some(g));
                done[*thread] += 1;
            }
            for (number, notes) in ran.threads.iter().enumerate() {
                let own = tid(number);
                prop_assert_eq!(path(&timeline, number), (notes.addrs.clone(), 0));
                for (index, addr) in (0..).zip(&notes.addrs) {
                    prop_assert_eq!(timeline.pc(own, index), Some(*addr));
                }
                let end = notes.addrs.len() as u64;
                prop_assert_eq!(timeline.pc(own, end), (end > 0).then_some(notes.final_pc));
                for (index, stack) in (0..).zip(&notes.stacks).step_by(7) {
                    let innermost_first: Vec<_> = stack.iter().rev().copied().collect();
                    prop_assert_eq!(timeline.call_stack(own, index), innermost_first);
                }
            }
        }
    }

    #[test]
    fn other_code_in_the_same_places_changes_nothing(
        seed: u64, threads in 1_usize..3, cpus in 1_usize..3,
    ) {
        let setting = Setting {
            threads,
            cpus,
            foreign: true,
            times_reported: 1,
            ret_compression: false,
            lost_switches: false,
        };
        let ran = run(seed, setting, 500);
        let dir = tempfile::tempdir().unwrap();
        for timeline in open(&ran, &dir.path().join("r")) {
            for (number, notes) in ran.threads.iter().enumerate() {
                prop_assert_eq!(path(&timeline, number), (notes.addrs.clone(), 0));
            }
        }
        let timeline = open_of_perf(&ran, &dir.path().join("perf"));
        for (number, notes) in ran.threads.iter().enumerate() {
            prop_assert_eq!(path(&timeline, number), (notes.addrs.clone(), 0));
        }
    }

    #[test]
    fn what_is_missing_leaves_gaps_and_nothing_made_up(
        seed: u64, threads in 1_usize..4, cpus in 1_usize..3, foreign: bool,
        times_reported in 1_usize..5, ret_compression: bool, lost_switches: bool,
    ) {
        let setting =
            Setting { threads, cpus, foreign, times_reported, ret_compression, lost_switches };
        let ran = run(seed, setting, 500);
        let dir = tempfile::tempdir().unwrap();
        for timeline in open(&ran, &dir.path().join("r")) {
            for (number, notes) in ran.threads.iter().enumerate() {
                let (path, gaps) = path(&timeline, number);
                prop_assert!(is_part(&path, &notes.addrs));
                prop_assert!(gaps > 0 || path == notes.addrs);
                prop_assert_eq!(gaps, timeline.gaps(tid(number)).len());
            }
        }
        let timeline = open_of_perf(&ran, &dir.path().join("perf"));
        for (number, notes) in ran.threads.iter().enumerate() {
            let (path, gaps) = path(&timeline, number);
            prop_assert!(is_part(&path, &notes.addrs));
            prop_assert!(gaps > 0 || path == notes.addrs);
        }
    }
}
