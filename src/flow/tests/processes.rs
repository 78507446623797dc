//! Two processes on one CPU, with different code at the same address, which changes: a user of the
//! decoder follows the address space of CR3, as it was at the trace's time.

use super::program::Random;
use super::trace::Trace;
use crate::common::{Addr, AddrRange, Tsc};
use crate::flow::{Code, Config, Decoder, Event, EventKind, FlowItem};
use crate::image::{AddressSpace, Section};
use crate::pt::Packet;
use proptest::prelude::*;

const BASE: u64 = 0x40_1000;
const NOPS: [&[u8]; 5] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
];
const SYSCALL: &[u8] = &[0x0f, 0x05];

/// A process, and the addresses that it executes each time it runs.
#[derive(Clone, Default)]
struct Process {
    space: AddressSpace,
    addrs: Vec<Addr>,
}

impl Process {
    /// Maps new code: some NOPs of random sizes, and a system call.
    fn map(&mut self, now: u64, random: &mut Random) {
        let nops = (0..random.below(4)).map(|_| NOPS[random.below(NOPS.len())]);
        let insns: Vec<&[u8]> = nops.chain([SYSCALL]).collect();
        let sizes = insns.iter().map(|insn| insn.len() as u64);
        let place = |addr: &mut u64, size: u64| Some(Addr(std::mem::replace(addr, *addr + size)));
        self.addrs = sizes.scan(BASE, place).collect();
        let range = AddrRange::sized(Addr(BASE), 0x1000);
        let (bytes, executable) = (insns.concat().into(), true);
        let section = Section { range, bytes, executable, ..Section::default() };
        if random.one_in(2) {
            self.space.exec(Tsc(now));
        }
        self.space.map(Tsc(now), section);
    }
}

/// Returns the CPU's trace, the processes, and the executed addresses.
fn run(seed: u64, turns: usize) -> (Trace, [Process; 2], Vec<Addr>) {
    let mut random = Random::new(seed);
    let mut parent = Process::default();
    parent.map(0, &mut random);
    // The child starts with its parent's code.
    let mut processes = [parent.clone(), parent];
    let (mut trace, mut executed) = (Trace::off(), Vec::new());
    for turn in 1..=turns as u64 {
        let now = 10 * turn;
        let number = random.below(2);
        let process = &mut processes[number];
        if random.one_in(3) {
            process.map(now, &mut random);
        }
        executed.extend_from_slice(&process.addrs);
        trace = trace.put(Packet::Tsc(now)).put(Packet::Pip { cr3: cr3(number), non_root: false });
        trace = trace.pge(BASE).pgd(None);
    }
    (trace, processes, executed)
}

const fn cr3(number: usize) -> u64 {
    (number as u64 + 1) << 12
}

/// Decodes the addresses by following CR3 and the time.
fn decoded(trace: &Trace, processes: &[Process; 2]) -> Vec<Addr> {
    let mut decoder = Decoder::new(&trace.0, Config::default());
    let (mut addrs, mut number, mut now) = (Vec::new(), 0, Tsc(0));
    'images: loop {
        let image = processes[number].space.image_at(now);
        let mut code = Code::new(&*image);
        while let Some(item) = decoder.next(&mut code) {
            match item {
                FlowItem::Block(span) => addrs.extend(code.addrs(span.ip, span.mode, span.insns)),
                FlowItem::Event(Event { kind: EventKind::Tsc(tsc), .. }) => {
                    now = tsc;
                    continue 'images;
                }
                FlowItem::Event(Event {
                    kind: EventKind::Paging { cr3: reported, .. }, ..
                }) => {
                    number = usize::from(reported == cr3(1));
                    continue 'images;
                }
                FlowItem::Event(_) => {}
                FlowItem::Gap(gap) => panic!("{gap}"),
            }
        }
        return addrs;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_process_executes_its_own_code(seed: u64, turns in 1_usize..60) {
        let (trace, processes, executed) = run(seed, turns);
        prop_assert_eq!(decoded(&trace, &processes), executed);
    }
}
