//! Tests the rings' protocol under random schedules: the kernel's side acts before each action of
//! the reader.

use super::super::drain::{Drain, RingDrain};
use super::super::ring::{AuxRing, Completeness, DataRing, MappedRing, RingMemory};
use super::super::stitch::Stitch;
use super::kernel::{AuxArea, FLAG_COLLISION, Kernel, attr, record};
use super::random::Random;
use crate::pt::{IpCompression, IpPayload, Packet, Packets, encode};
use crate::sideband::perf_data::PerfRecords;
use std::cell::RefCell;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// The output of a PT unit: packets with rising numbers, and a PSB now and then.
#[derive(Debug, Default)]
struct TraceSource {
    next: u16,
    since_psb: u64,
    has_begun: bool,
}

impl TraceSource {
    /// Returns the bytes of the unit's next packet.
    fn packet(&mut self, random: &mut Random) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.has_begun || self.since_psb > 16 + random.below(32) {
            (self.has_begun, self.since_psb) = (true, 0);
            encode(&Packet::Psb, &mut bytes);
            return bytes;
        }
        let payload = IpPayload { compression: IpCompression::Update16, value: self.next.into() };
        encode(&Packet::Tip(payload), &mut bytes);
        self.next += 1;
        self.since_psb += bytes.len() as u64;
        bytes
    }
}

#[derive(Debug)]
struct World {
    kernel: Kernel,
    source: TraceSource,
    random: Random,
    /// The bytes of a packet that were not output yet: the unit may be stopped within one.
    rest: Vec<u8>,
    /// The head of an ended output, to be stored next. Its record is already written.
    ending: Option<u64>,
    steps_left: u32,
    /// True once the area was full to the last byte, by the tail that the kernel loaded or may have
    /// loaded.
    was_full: bool,
    tail_before: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let aux_bytes = 32 << random.below(4);
        let data_bytes = [256, 512, 4096][usize::try_from(random.below(3)).unwrap()];
        Self {
            kernel: Kernel::new(data_bytes, aux_bytes, false),
            source: TraceSource::default(),
            rest: Vec::new(),
            ending: None,
            steps_left: 8 + u32::try_from(random.below(24)).unwrap(),
            was_full: false,
            tail_before: 0,
            random,
        }
    }

    fn run_some(&mut self) {
        for _ in 0..self.random.below(4) {
            if self.steps_left == 0 {
                return;
            }
            self.steps_left -= 1;
            self.step();
        }
    }

    fn step(&mut self) {
        if let Some(head) = self.ending.take() {
            self.kernel.aux.head.store(head, Ordering::Release);
            let tail = self.kernel.aux.tail.load(Ordering::Acquire);
            let size = self.kernel.aux.plain(false).size_bytes();
            let held = [head - tail, head - self.tail_before];
            self.was_full |= held.into_iter().any(|held| held == size || held + 1 == size);
            return;
        }
        match self.random.below(16) {
            0 => self.kernel.flag(FLAG_COLLISION),
            1..=3 => self.end(),
            4..=5 => self.kernel.record(&record(99, &[0; 8])),
            _ if self.kernel.is_on() => self.trace(),
            _ => {
                self.kernel.begin();
                if !self.kernel.is_on() {
                    self.trace();
                }
            }
        }
    }

    /// Outputs some bytes of the current packet, as if the thread executed.
    fn trace(&mut self) {
        if self.rest.is_empty() {
            self.rest = self.source.packet(&mut self.random);
        }
        let count = 1 + self.random.below(self.rest.len() as u64);
        let now: Vec<u8> = self.rest.drain(..usize::try_from(count).unwrap()).collect();
        let dropped = self.kernel.dropped;
        self.kernel.trace(&now);
        if self.kernel.dropped > dropped {
            // A packet that is lost in part is lost, and the unit continues with another.
            self.kernel.dropped += self.rest.len() as u64;
            self.rest.clear();
        }
    }

    fn end(&mut self) {
        if let Some((head, record)) = self.kernel.end_output() {
            if let Some(record) = record {
                self.kernel.record(&record);
            }
            self.ending = Some(head);
        }
    }

    /// Completes all pending writes of the kernel's side.
    fn settle(&mut self) {
        while self.ending.is_some() {
            self.step();
        }
        if !self.rest.is_empty() {
            self.kernel.begin();
            let rest = std::mem::take(&mut self.rest);
            self.kernel.trace(&rest);
        }
        self.end();
        while self.ending.is_some() {
            self.step();
        }
    }
}

/// The reader's view of a ring, with a kernel that acts between its reads.
#[derive(Debug)]
struct Busy {
    plain: MappedRing,
    is_aux: bool,
    world: Rc<RefCell<World>>,
}

impl RingMemory for Busy {
    fn size_bytes(&self) -> u64 {
        self.plain.size_bytes()
    }

    fn head(&self) -> u64 {
        self.world.borrow_mut().run_some();
        self.plain.head()
    }

    fn copy(&self, place: u64, to: &mut [u8]) {
        // Copy each half at another time.
        let half = to.len() / 2;
        self.world.borrow_mut().run_some();
        self.plain.copy(place, &mut to[..half]);
        self.world.borrow_mut().run_some();
        self.plain.copy(place + half as u64, &mut to[half..]);
    }

    fn set_tail(&self, tail: u64) {
        self.world.borrow_mut().run_some();
        let mut world = self.world.borrow_mut();
        if self.is_aux {
            world.tail_before = world.kernel.aux.tail.load(Ordering::Acquire);
        }
        self.plain.set_tail(tail);
    }
}

/// Returns the numbers in a trace's packets, in runs between gaps.
fn runs(trace: &[u8], seed: u64) -> Vec<Vec<u16>> {
    let mut runs = vec![Vec::new()];
    let mut before = None;
    for (offset, packet) in Packets::new(trace) {
        match packet.unwrap_or_else(|error| panic!("seed {seed}: {error} at {offset}")) {
            Packet::Tip(payload) => {
                runs.last_mut().unwrap().push(u16::try_from(payload.value).unwrap());
            }
            Packet::Ovf => runs.push(Vec::new()),
            Packet::Psb => {}
            other => panic!("seed {seed}: {other:?} at {offset}"),
        }
        let is_first_of_run = before == Some(Packet::Ovf);
        assert!(
            !is_first_of_run || packet == Ok(Packet::Psb),
            "seed {seed}: no PSB following a gap"
        );
        before = packet.ok();
    }
    runs
}

/// Runs the random schedule of a seed, and checks the resulting trace. Returns true if there was a
/// gap.
fn schedule(seed: u64) -> bool {
    let world = Rc::new(RefCell::new(World::new(seed)));
    let (data, aux) = {
        let world = world.borrow();
        (world.kernel.data.plain(false), world.kernel.aux.plain(false))
    };
    let busy = |plain, is_aux| Busy { plain, is_aux, world: world.clone() };
    let records = PerfRecords::of(&attr());
    let mut drain = Drain::new(busy(data, false), busy(aux, true), records, false);
    let mut trace = Vec::new();
    while world.borrow().steps_left > 0 {
        world.borrow_mut().run_some();
        if world.borrow_mut().random.below(3) == 0 {
            trace.extend(drain.take());
            world.borrow_mut().kernel.enable();
        }
    }
    world.borrow_mut().settle();
    trace.extend(drain.take_rest());
    let world = world.borrow();
    let runs = runs(&trace, seed);
    let numbers: Vec<u16> = runs.concat();
    assert!(numbers.is_sorted_by(|a, b| a < b), "seed {seed}: doubled, or out of order");
    for run in &runs {
        let is_whole = run.windows(2).all(|pair| pair[1] == pair[0] + 1);
        assert!(is_whole, "seed {seed}: a loss without a gap in {run:?}");
    }
    let has_gap = runs.len() > 1;
    let complete = numbers.len() == usize::from(world.source.next)
        && numbers.first().is_none_or(|first| *first == 0);
    let flagged = world.kernel.dropped > 0;
    assert!(!flagged || has_gap, "seed {seed}: bytes were dropped, and there is no gap");
    // A small ring may have lost records, as far as a reader can see.
    let is_small = world.kernel.data.plain(false).size_bytes() < 4096;
    let may_gap = flagged || world.was_full || world.kernel.reported_badly || is_small;
    assert!(may_gap || !has_gap, "seed {seed}: a gap where nothing was dropped");
    assert!(has_gap || complete, "seed {seed}: {} of {}", numbers.len(), world.source.next);
    has_gap
}

#[test]
fn a_million_schedules_lose_double_and_tear_nothing() {
    const SCHEDULES: u64 = 1_000_000;
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let gaps: u64 = std::thread::scope(|scope| {
        let worker = |first| {
            let seeds = (first..SCHEDULES).step_by(usize::try_from(workers).unwrap());
            scope.spawn(move || seeds.filter(|seed| schedule(*seed)).count() as u64)
        };
        let workers: Vec<_> = (0..workers).map(worker).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    // Schedules with and without gaps are both frequent, so both are tested.
    assert!((SCHEDULES / 20..SCHEDULES / 20 * 19).contains(&gaps), "{gaps} had gaps");
}

#[test]
fn bytes_that_come_in_any_pieces_are_one_trace() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut source = TraceSource::default();
        let trace: Vec<u8> = (0..60).flat_map(|_| source.packet(&mut random)).collect();
        let (mut stitch, mut made, mut at) = (Stitch::default(), Vec::new(), 0);
        while at < trace.len() {
            let size = usize::try_from(1 + random.below(90)).unwrap();
            let end = (at + size).min(trace.len());
            made.extend(stitch.add_bytes(&trace[at..end]));
            // The result ends with a whole packet.
            assert!(Packets::new(&made).all(|(_, packet)| packet.is_ok()), "seed {seed}");
            at = end;
        }
        made.extend(stitch.take_whole_packets());
        assert_eq!(made, trace, "seed {seed}");
    }
}

#[test]
fn a_reader_and_a_writer_at_the_same_time_agree() {
    const BYTES: u64 = 8 << 20;
    let mut kernel = Kernel::new(1 << 16, 1 << 14, false);
    let (data, aux) = (kernel.data.plain(false), kernel.aux.plain(false));
    let writer = std::thread::spawn(move || {
        let mut random = Random::new(1);
        let mut count = 0_u64;
        while count < BYTES {
            kernel.enable();
            kernel.begin();
            let wanted = 8 * (1 + random.below(64));
            let numbers: Vec<u8> =
                (count / 8..(count + wanted) / 8).flat_map(u64::to_le_bytes).collect();
            let before = kernel.written.len();
            kernel.trace(&numbers);
            kernel.end();
            // Repeat bytes that found no room.
            count += (kernel.written.len() - before) as u64;
            let cut = count % 8;
            if cut != 0 {
                kernel.enable();
                while !kernel.written.len().is_multiple_of(8) {
                    kernel.enable();
                    kernel.begin();
                    let place = usize::try_from(count % 8).unwrap();
                    let had = kernel.written.len();
                    kernel.trace(&(count / 8).to_le_bytes()[place..]);
                    kernel.end();
                    count += (kernel.written.len() - had) as u64;
                    std::thread::yield_now();
                }
            }
            kernel.written.clear();
        }
        count
    });
    let (mut data, mut aux) = (DataRing::new(data), AuxRing::new(aux));
    let mut read = Vec::new();
    while !writer.is_finished() || aux.head() > read.len() as u64 {
        data.read(&mut |record| assert!(record.len() >= 24));
        aux.take(aux.head(), &mut read);
        std::thread::yield_now();
    }
    assert_eq!(read.len() as u64, writer.join().unwrap());
    for (number, word) in (0_u64..).zip(read.chunks_exact(8)) {
        assert_eq!(word, number.to_le_bytes());
    }
}

#[test]
fn records_that_do_not_read_are_passed_over() {
    let area = AuxArea::new(128);
    let mut ring = DataRing::new(area.plain(false));
    area.head.store(24, Ordering::Release);
    assert_eq!(ring.read(&mut |_| panic!("zeros are no record")), Completeness::MayLackRecords);
    assert_eq!(area.tail.load(Ordering::Acquire), 24);
    // A head that no writer can have written.
    area.head.store(1 << 40, Ordering::Release);
    assert_eq!(ring.read(&mut |_| panic!("not there")), Completeness::MayLackRecords);
}

#[test]
fn a_snapshot_is_the_end_of_what_was_written() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let size = 64 << random.below(4);
        let mut kernel = Kernel::new(4096, size, true);
        let mut ring = super::super::ring::OverwritingRing::new(kernel.aux.plain(true));
        for _ in 0..=random.below(3) {
            for _ in 0..random.below(6) {
                kernel.begin();
                let count = random.below(100);
                // No zeros: a trace contains no page of them.
                let bytes: Vec<u8> = (0..count).map(|n| 1 + (n % 255) as u8).collect();
                kernel.trace(&bytes);
                kernel.end();
            }
            let held = usize::try_from(size).unwrap().min(kernel.written.len());
            let expected = &kernel.written[kernel.written.len() - held..];
            assert_eq!(ring.take(), expected, "seed {seed}");
        }
    }
}

#[test]
fn snapshots_make_one_trace_with_gaps() {
    let mut random = Random::new(5);
    let mut source = TraceSource::default();
    let mut kernel = Kernel::new(4096, 1 << 10, true);
    let mut ring = RingDrain::new(kernel.data.plain(true), kernel.aux.plain(true));
    let mut trace = Vec::new();
    let mut expected_gaps = 0;
    for packets in [20_u16, 100, 1000, 10, 500, 0] {
        kernel.begin();
        let before = kernel.written.len();
        (0..packets).for_each(|_| kernel.trace(&source.packet(&mut random)));
        kernel.end();
        expected_gaps += usize::from(kernel.written.len() - before > 1 << 10);
        trace.extend(ring.take());
    }
    let runs = runs(&trace, 5);
    assert_eq!(runs.len() - 1, expected_gaps);
    let last = runs.last().unwrap();
    assert_eq!(last.last(), Some(&(source.next - 1)));
    assert!(runs.iter().all(|run| run.windows(2).all(|pair| pair[1] == pair[0] + 1)));
    assert_eq!(runs[0][0], 0);
}
