//! Reads one thread's AUX area and its ring of records (module `ring`) in the order that is needed:
//! each byte after the `AUX` record that covers it. Marks each loss where it happened.

use super::mend::Mender;
use super::ring::{AuxRing, DataRing, RingMemory, Seen, Snapshots};
use super::stitch::{AuxRecords, Step, Stitch};
use crate::common::Addr;
use crate::pt::overlap;
use crate::sideband::perf_data::{PerfEvent, PerfRecords};

/// The reader of an AUX area that fills up, and of the ring of records beside it.
#[derive(Debug)]
pub(super) struct Drain<M> {
    data: DataRing<M>,
    aux: AuxRing<M>,
    records: PerfRecords,
    reported: AuxRecords,
    stitch: Stitch,
    /// The repair of the packets at our INT3s; `None` if there cannot be any.
    mender: Option<Mender>,
    taken: Vec<u8>,
    /// The head at which the AUX area was full before the tail was moved.
    full_at: Option<u64>,
}

impl<M: RingMemory> Drain<M> {
    pub(super) fn new(data: M, aux: M, records: PerfRecords, mends: bool) -> Self {
        Self {
            mender: mends.then(Mender::default),
            data: DataRing::new(data),
            aux: AuxRing::new(aux),
            records,
            reported: AuxRecords::default(),
            stitch: Stitch::default(),
            taken: Vec::new(),
            full_at: None,
        }
    }

    /// Takes the available bytes from the AUX area. Returns the whole packets that follow those
    /// returned before. The caller must then enable the event, which the kernel disables when the
    /// area is full.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let whole = self.take_whole();
        self.mended(&whole)
    }

    fn mended(&mut self, whole: &[u8]) -> Vec<u8> {
        match &mut self.mender {
            Some(mender) => mender.pass(whole),
            None => whole.to_vec(),
        }
    }

    /// Takes the available bytes from the AUX area. Returns the whole packets, with an OVF packet
    /// at each loss.
    fn take_whole(&mut self) -> Vec<u8> {
        // The kernel writes the record for bytes before the head that counts them.
        let head = self.aux.head();
        let Self { data, records, reported, .. } = self;
        let note = &mut |record: &[u8]| note(records, reported, record);
        let seen = data.read(note);
        if self.aux.is_full(head, self.aux.tail()) || seen == Seen::Doubtful {
            self.reported.note(head, 0, true);
        }
        if let Some(full_at) = self.full_at.take() {
            self.reported.note(full_at, 0, true);
        }
        self.taken.clear();
        let start = self.aux.take(head, &mut self.taken);
        // If the area became full before the tail was moved, the kernel still treats it as full.
        let later = self.aux.head();
        self.full_at = Some(later).filter(|later| self.aux.is_full(*later, start));
        let mut whole = Vec::new();
        for step in self.reported.steps(start, head) {
            match step {
                Step::Bytes(from, to) => {
                    let place = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
                    let bytes = self.taken.get(place(from)..place(to)).unwrap_or_default();
                    whole.append(&mut self.stitch.bytes(bytes));
                }
                Step::Loss => whole.append(&mut self.stitch.loss()),
            }
        }
        whole
    }

    /// Returns all remaining packets of a thread that is stopped or gone.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut whole = self.take_whole();
        whole.append(&mut self.stitch.end());
        let mut mended = self.mended(&whole);
        mended.extend(self.mender.iter_mut().flat_map(Mender::rest));
        mended
    }

    /// Returns all remaining packets of a thread that is stopped at our INT3 at the address `at`,
    /// and adds a FUP packet with this address.
    pub(super) fn finish_at(&mut self, at: Addr) -> Vec<u8> {
        let mut whole = self.take_whole();
        whole.append(&mut self.stitch.end());
        let mut mended = self.mended(&whole);
        mended.extend(self.mender.iter_mut().flat_map(|mender| mender.stop_at(at)));
        mended
    }

    /// Returns the number of gaps so far.
    pub(super) fn gaps(&self) -> u64 {
        self.stitch.gaps
    }
}

/// Notes in `reported` the bytes or losses that a record of the kernel reports.
fn note(records: &PerfRecords, reported: &mut AuxRecords, record: &[u8]) {
    let record = records.parse(record).ok().flatten();
    match record.map(|record| record.event) {
        Some(PerfEvent::Aux { offset, size, flags }) => {
            reported.note(offset, size, flags & PerfEvent::AUX_LOSSES != 0);
        }
        Some(PerfEvent::Lost(_)) => reported.doubt(),
        _ => {}
    }
}

/// The reader of an AUX area that overwrites itself. Each time it takes everything in the area,
/// with a gap between two times if bytes may be missing.
#[derive(Debug)]
pub(super) struct Ring<M> {
    data: DataRing<M>,
    snapshots: Snapshots<M>,
    stitch: Stitch,
    last: Vec<u8>,
}

impl<M: RingMemory> Ring<M> {
    pub(super) fn new(data: M, aux: M) -> Self {
        Self {
            data: DataRing::new(data),
            snapshots: Snapshots::new(aux),
            stitch: Stitch::from_the_midst(),
            last: Vec::new(),
        }
    }

    /// Returns the packets in the area that follow those returned before. The thread must be
    /// stopped.
    pub(super) fn take(&mut self) -> Vec<u8> {
        // Discard the records: for an overwriting ring, the head contains the same information.
        self.data.read(&mut |_| ());
        let now = self.snapshots.take();
        let mut whole = Vec::new();
        let common = overlap(&self.last, &now);
        if common == 0 && !self.last.is_empty() {
            whole.append(&mut self.stitch.loss());
        }
        whole.append(&mut self.stitch.bytes(now.get(common..).unwrap_or_default()));
        whole.append(&mut self.stitch.end());
        self.last = now;
        whole
    }
}
