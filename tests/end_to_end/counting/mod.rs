//! Translated code that counts ticks and records nothing, executed: it stops exactly where it is
//! to, with the registers and the memory that single-stepping finds there, and leaves to its user
//! what a program could not get twice.

mod machine;
mod stepper;

use crate::generated;
use crate::support::{Scene, have};
use contraflow::translate::GlanceAnswer;
use iced_x86::{Instruction, Mnemonic};
use machine::Machine;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use stepper::{Place, Registers, Stepper};

const GETPID: u64 = 39;
const GETTID: u64 = 186;
const WRITE: u64 = 1;
/// The stepping's own, and the CPU's (SDM volume 1, "EFLAGS Register").
const TRAP_FLAG: u64 = 0x100;
const RESUME_FLAG: u64 = 0x1_0000;
/// What the kernel is said to answer.
const PID: u64 = 4242;

/// SYSCALL leaves the next address and the flags in registers.
fn answer_call(insn: &Instruction, registers: &mut Registers, result: u64) -> bool {
    registers.rax = result;
    registers.rcx = insn.next_ip();
    registers.r11 = registers.eflags & !TRAP_FLAG;
    registers.rip = insn.next_ip();
    true
}

fn answer(insn: &Instruction, registers: &mut Registers) -> bool {
    match (insn.mnemonic(), registers.rax) {
        (Mnemonic::Syscall, GETPID | GETTID) => answer_call(insn, registers, PID),
        (Mnemonic::Syscall, WRITE) => answer_call(insn, registers, registers.rdx),
        _ => false,
    }
}

/// All places of a run, with the registers there, by single steps; and the memory at its end.
fn stepped(program: &Path) -> (Vec<(Place, Registers)>, Vec<u8>) {
    let mut stepper = Stepper::start(program, answer);
    let mut run = vec![(stepper.place, stepper.registers)];
    while !stepper.is_at_end() {
        stepper.step();
        run.push((stepper.place, stepper.registers));
    }
    (run, stepper.written_memory(|_| false))
}

/// The first places of a run, with the registers there, by single steps.
fn stepped_for(program: &Path, instructions: usize) -> Vec<(Place, Registers)> {
    let mut stepper = Stepper::start(program, answer);
    let places = std::iter::repeat_with(|| {
        let before = (stepper.place, stepper.registers);
        stepper.step();
        before
    });
    places.take(instructions).collect()
}

/// Checks that ticks and an address determine a place.
fn assert_unique(run: &[(Place, Registers)]) {
    let positions: HashSet<_> =
        run.iter().map(|(place, registers)| (place.ticks, registers.rip)).collect();
    assert_eq!(positions.len(), run.len());
}

/// What a program can know of its registers.
fn shown(registers: &Registers) -> String {
    let flags = registers.eflags & !(TRAP_FLAG | RESUME_FLAG);
    let r = registers;
    format!(
        "rip {:x} flags {flags:x} rsp {:x} {:x?} {:x?}",
        r.rip,
        r.rsp,
        [r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp],
        [r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]
    )
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn seeds() -> std::ops::Range<u64> {
    30..34
}

#[test]
fn a_run_stops_exactly_where_it_is_to() {
    if !have("gcc") {
        return;
    }
    for seed in seeds() {
        let scene = Scene::new();
        let program = generated::peaceful_of_seed(&scene, seed);
        let (run, memory) = stepped(&program);
        assert!(run.len() > 1000, "seed {seed}: {} instructions", run.len());
        assert_unique(&run);
        let mut random = Random(seed);
        let mut goals = BTreeSet::from([0, 1, 2, 3, run.len() - 1]);
        while goals.len() < 60 {
            let at = random.below(run.len());
            goals.extend(at..(at + random.below(4)).min(run.len()));
        }
        let superblocks = [false, true].map(|is_cramped| {
            let mut machine = Machine::start(&program, answer);
            if is_cramped {
                machine.cramp();
            }
            for &goal in &goals {
                let (place, registers) = &run[goal];
                machine.run_to(*place);
                assert_eq!(shown(&machine.at.registers), shown(registers), "seed {seed} at {goal}");
            }
            assert!(machine.at.is_at_end());
            assert!(machine.written_memory() == memory, "seed {seed}: another memory");
            machine.superblock_count()
        });
        println!("{superblocks:?} superblocks");
        assert!(superblocks[1] < superblocks[0] / 2, "seed {seed}: {superblocks:?} superblocks");
    }
}

/// Neither conditional nor indirect branches, for ever.
#[test]
fn a_run_stops_in_a_circle_of_jumps() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("ticks.S", &["-nostdlib", "-static", "-no-pie"]);
    let run = stepped_for(&program, 2000);
    assert_unique(&run);
    let mut machine = Machine::start(&program, answer);
    let mut random = Random(1);
    let mut goal = 0;
    while goal < run.len() {
        let (place, registers) = &run[goal];
        machine.run_to(*place);
        assert_eq!(shown(&machine.at.registers), shown(registers), "at {goal}");
        goal += 1 + random.below(40);
    }
    // Two ticks a round.
    let (at, before, requests) = (machine.at.place, machine.at.registers, machine.requests);
    machine.run_to(Place { ticks: at.ticks + 2_000_000, ..at });
    assert_eq!(machine.at.registers.r12, before.r12 + 1_000_000);
    assert_eq!(machine.at.registers.rip, before.rip);
    assert!(machine.requests < requests + 100);
}

/// From the beginning to far ahead, where nearly all is executed without a stop.
#[test]
fn a_run_is_seldom_interrupted() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = generated::peaceful_of_seed(&scene, 35);
    let (run, _) = stepped(&program);
    let mut requests = Vec::new();
    for goal in [run.len() - 1, run.len() / 2] {
        let mut machine = Machine::start(&program, answer);
        let (place, registers) = &run[goal];
        machine.run_to(*place);
        assert_eq!(shown(&machine.at.registers), shown(registers), "at {goal}");
        requests.push(machine.requests);
    }
    // Once for each superblock, and each instruction that is answered.
    assert!(requests[0] < run.len() as u64 / 4, "{requests:?} of {}", run.len());
}

/// Passed, stopped at, and answered too late: at each stop a thread shows what single steps find there, and
/// it goes on as if there were none.
#[test]
fn a_glance_shows_the_registers_of_a_stop() {
    if !have("gcc") {
        return;
    }
    let (mut late, mut glances) = (0, 0);
    for seed in seeds() {
        let scene = Scene::new();
        let program = generated::peaceful_of_seed(&scene, seed);
        let (run, memory) = stepped(&program);
        let mut random = Random(seed + 200);
        let end = run.last().unwrap();
        let random = (0..8).map(|_| run[1 + random.below(run.len() - 1)].1.rip);
        let stops: BTreeSet<u64> = random.chain([end.1.rip]).collect();
        let mut machine = Machine::start(&program, answer);
        let arrivals: Vec<_> =
            run.iter().skip(1).filter(|(_, registers)| stops.contains(&registers.rip)).collect();
        let (mut seen, mut number) = (BTreeSet::new(), 0);
        machine.run_with_glances(&stops, |ticks, registers| {
            // Some stops are found without a glance: the first after a run began, and where it ended.
            let is_here =
                |(place, of): &&(Place, Registers)| (place.ticks, of.rip) == (ticks, registers.rip);
            let at = arrivals.iter().position(is_here).unwrap();
            assert_eq!(shown(registers), shown(&arrivals[at].1), "seed {seed}");
            assert_eq!(registers.fs_base, arrivals[at].1.fs_base);
            assert!(seen.insert(at), "seed {seed}: {at} twice");
            number += 1;
            if number % 50 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            if number % 7 == 0 || ticks == end.0.ticks {
                GlanceAnswer::Stop
            } else {
                GlanceAnswer::Pass
            }
        });
        println!("{} glances at {} stops", seen.len(), arrivals.len());
        assert!(machine.written_memory() == memory, "seed {seed}: another memory");
        late += machine.late;
        glances += seen.len();
    }
    println!("{late} of {glances} late");
    assert!(glances > 0);
}

#[test]
fn a_run_stops_at_addresses_and_knows_how_far_it_came() {
    if !have("gcc") {
        return;
    }
    for seed in seeds() {
        let scene = Scene::new();
        let program = generated::peaceful_of_seed(&scene, seed);
        let (run, _) = stepped(&program);
        let mut random = Random(seed + 100);
        let mut machine = Machine::start(&program, answer);
        let mut at = 0;
        let mut arrivals = 0;
        while at + 500 < run.len() && arrivals < 40 {
            let stops: BTreeSet<u64> =
                (0..3).map(|_| run[at + 1 + random.below(400)].1.rip).collect();
            let next = (at + 1..run.len()).find(|&i| stops.contains(&run[i].1.rip)).unwrap();
            // REP instructions are one step here.
            assert!(machine.run_to_stop(&stops, 1 << 20), "seed {seed}: no stop after {at}");
            assert_eq!(shown(&machine.at.registers), shown(&run[next].1), "seed {seed} at {next}");
            assert_eq!(machine.at.place.ticks, run[next].0.ticks, "seed {seed} at {next}");
            at = next;
            arrivals += 1;
        }
        assert!(arrivals > 5);
    }
}

/// The engine knows where a thread would be that is killed anywhere in the cache, by what it makes of
/// the glue there: the CPU, which executes that glue, comes to the same places.
#[test]
fn a_thread_anywhere_in_the_cache_has_a_place_in_the_program() {
    if !have("gcc") {
        return;
    }
    let mut checked = 0;
    for seed in 29..34 {
        let scene = Scene::new();
        let (program, run) = if seed == 29 {
            let program = scene.compile("ticks.S", &["-nostdlib", "-static", "-no-pie"]);
            let run = stepped_for(&program, 3000);
            (program, run)
        } else {
            let program = generated::peaceful_of_seed(&scene, seed);
            let run = stepped(&program).0;
            (program, run)
        };
        let known: HashMap<_, _> = run
            .iter()
            .map(|(place, registers)| ((place.ticks, registers.rip), shown(registers)))
            .collect();
        let mut random = Random(seed);
        let mut machine = Machine::start(&program, answer);
        let mut goal = 0;
        while goal + 150 < run.len() {
            machine.run_to(run[goal].0);
            let budget = machine.budget();
            machine.step_in_cache(budget, 150, |ticks, registers| {
                let expected = known.get(&(ticks, registers.rip));
                let expected =
                    expected.unwrap_or_else(|| panic!("seed {seed}: {ticks} {registers:x?}"));
                assert_eq!(&shown(registers), expected, "seed {seed} at {ticks}");
                checked += 1;
            });
            let passed = machine.at.place.ticks + 1 + random.below(30) as u64;
            goal = run.partition_point(|(place, _)| place.ticks < passed);
        }
    }
    assert!(checked > 5000, "{checked}");
}

/// Where branches have usual targets, paths go on there. They count as the program does, whatever the targets
/// are then, and the state is known anywhere in them.
#[test]
fn paths_go_on_at_the_usual_targets_of_indirect_branches() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let options = ["-DROUNDS=3000", "-nostdlib", "-static", "-no-pie"];
    let program = scene.compile("usual.S", &options);
    let (run, memory) = stepped(&program);
    assert_unique(&run);
    let known: HashMap<_, _> = run
        .iter()
        .map(|(place, registers)| ((place.ticks, registers.rip), shown(registers)))
        .collect();
    let mut random = Random(7);
    let mut machine = Machine::start(&program, answer);
    let (mut goal, mut checked) = (0, 0);
    while goal < run.len() {
        let (place, registers) = &run[goal];
        machine.run_to(*place);
        assert_eq!(shown(&machine.at.registers), shown(registers), "at {goal}");
        if random.below(10) == 0 && goal + 300 < run.len() {
            let budget = machine.budget();
            machine.step_in_cache(budget, 200, |ticks, registers| {
                assert_eq!(Some(&shown(registers)), known.get(&(ticks, registers.rip)));
                checked += 1;
            });
        }
        let ticks = machine.at.place.ticks + 70 + random.below(100) as u64;
        let next = run.partition_point(|(place, _)| place.ticks < ticks) + random.below(3);
        goal = if goal == run.len() - 1 { run.len() } else { next.min(run.len() - 1) };
    }
    assert!(machine.at.is_at_end());
    assert!(machine.written_memory() == memory);
    assert!(checked > 1000, "{checked}");
    // The calls of one target, the branch with two, and returns; not the one with many targets.
    let followed = machine.followed_branches().len();
    assert!((5..=14).contains(&followed), "{followed} branches");
}

/// What the CPU and the kernel are said to answer to `hooks.S`.
fn answers(insn: &Instruction, registers: &mut Registers) -> bool {
    let wide = 0x1111_2222_3333_4444_u64;
    match insn.mnemonic() {
        Mnemonic::Rdtsc | Mnemonic::Rdtscp => {
            (registers.rax, registers.rdx) = (wide & 0xffff_ffff, wide >> 32);
            if insn.mnemonic() == Mnemonic::Rdtscp {
                registers.rcx = 0x55;
            }
        }
        Mnemonic::Cpuid => {
            assert_eq!((registers.rax, registers.rcx), (7, 0));
            (registers.rax, registers.rbx, registers.rcx, registers.rdx) = (1, 2, 3, 4);
        }
        // The operands of the program at hand.
        Mnemonic::Rdrand => registers.r12 = 0x6666,
        Mnemonic::Rdseed => registers.r13 = 0x7777,
        Mnemonic::Xgetbv => (registers.rax, registers.rdx) = (0x88, 0x99),
        Mnemonic::Rdpid => registers.r14 = 0xaa,
        Mnemonic::Syscall if registers.rax == GETPID => {
            return answer_call(insn, registers, PID);
        }
        _ => return false,
    }
    registers.rip = insn.next_ip();
    true
}

/// Each gets what the recording had.
#[test]
fn what_no_program_gets_twice_is_answered() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("hooks.S", &["-nostdlib", "-static", "-no-pie"]);
    let mut machine = Machine::start(&program, answers);
    // Each of the loop's rounds is one tick.
    machine.run_to(Place { ticks: 100, instructions: 0 });
    assert!(!machine.at.is_at_end());
    machine.run_to(Place { ticks: 1000, instructions: 11 });
    assert!(machine.at.is_at_end());
    // RDTSC, RDTSCP's ECX, CPUID's four, RDRAND, RDSEED, XGETBV's two, RDPID, getpid: 1000 times.
    let round = 0x1111_2222_3333_4444_u64
        .wrapping_add(0x55 + (1 + 2 + 3 + 4) + 0x6666 + 0x7777 + 0x88 + 0x99 + 0xaa + PID);
    assert_eq!(machine.at.registers.r15, round.wrapping_mul(1000));
}
