//! Reads one thread's AUX area and its ring of records (module `ring`) in the order that is needed:
//! each byte after the `AUX` record that covers it. Marks each loss where it happened. The *AUX
//! area* is the buffer to which the PMU writes the thread's trace.

use super::mend::Mender;
use super::ring::{AuxRing, Completeness, DataRing, OverwritingRing, RingMemory};
use super::stitch::{AreaPart, AuxRecords, Stitch};
use crate::common::Addr;
use crate::pt::overlap;
use crate::sideband::perf_data::{PerfEvent, PerfRecords};

/// The reader of an AUX area that fills up, and of the ring of records beside it.
#[derive(Debug)]
pub(super) struct Drain<M> {
    data: DataRing<M>,
    aux: AuxRing<M>,
    records: PerfRecords,
    /// The bytes and losses that the kernel's records have reported so far.
    reported: AuxRecords,
    stitch: Stitch,
    /// The repair of the packets at our INT3s; `None` if there cannot be any.
    mender: Option<Mender>,
    taken: Vec<u8>,
    /// The head at which the AUX area was full before the tail was moved.
    full_at: Option<u64>,
}

impl<M: RingMemory> Drain<M> {
    /// Returns the reader of a thread's rings, from which nothing was read yet. `records` parses
    /// the kernel's records. `has_int3s` is true if the thread may stop at INT3s of ours.
    pub(super) fn new(data: M, aux: M, records: PerfRecords, has_int3s: bool) -> Self {
        Self {
            mender: has_int3s.then(Mender::default),
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
    /// returned before, with an OVF packet at each loss; packets after the last PSB are returned
    /// later. The caller must then enable the event, which the kernel disables when the area is
    /// full.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let whole = self.take_unrepaired();
        self.repaired(&whole)
    }

    /// Returns whole packets with the repairs at INT3s, if there can be some; otherwise unchanged.
    fn repaired(&mut self, whole: &[u8]) -> Vec<u8> {
        match &mut self.mender {
            Some(mender) => mender.repair(whole),
            None => whole.to_vec(),
        }
    }

    /// Takes the available bytes from the AUX area. Returns the whole packets, with an OVF packet
    /// at each loss.
    fn take_unrepaired(&mut self) -> Vec<u8> {
        // The kernel writes the record for bytes before the head that counts them.
        let head = self.aux.head();
        let Self { data, records, reported, .. } = self;
        let note = &mut |record: &[u8]| note(records, reported, record);
        let seen = data.read(note);
        if self.aux.is_full(head, self.aux.tail()) || seen == Completeness::MayLackRecords {
            self.reported.add(head, 0, true);
        }
        if let Some(full_at) = self.full_at.take() {
            self.reported.add(full_at, 0, true);
        }
        self.taken.clear();
        let start = self.aux.take(head, &mut self.taken);
        // If the area became full before the tail was moved, the kernel still treats it as full.
        let later = self.aux.head();
        self.full_at = Some(later).filter(|later| self.aux.is_full(*later, start));
        let mut whole = Vec::new();
        for step in self.reported.take_parts(start, head) {
            match step {
                AreaPart::Bytes(from, to) => {
                    let place = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
                    let bytes = self.taken.get(place(from)..place(to)).unwrap_or_default();
                    whole.append(&mut self.stitch.add_bytes(bytes));
                }
                AreaPart::Loss => whole.append(&mut self.stitch.mark_gap()),
            }
        }
        whole
    }

    /// Takes and returns all remaining whole packets of a thread that is stopped or gone.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        let mut whole = self.take_unrepaired();
        whole.append(&mut self.stitch.take_whole_packets());
        let mut mended = self.repaired(&whole);
        mended.extend(self.mender.iter_mut().flat_map(Mender::take_held));
        mended
    }

    /// Takes and returns all remaining whole packets of a thread that is stopped at our INT3 at the
    /// address `at`, with a FUP packet with this address before the last TIP.PGD.
    pub(super) fn take_rest_at_int3(&mut self, at: Addr) -> Vec<u8> {
        let mut whole = self.take_unrepaired();
        whole.append(&mut self.stitch.take_whole_packets());
        let mut mended = self.repaired(&whole);
        mended.extend(self.mender.iter_mut().flat_map(|mender| mender.take_held_at_int3(at)));
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
            reported.add(offset, size, flags & PerfEvent::AUX_LOSSES != 0);
        }
        Some(PerfEvent::Lost(_)) => reported.add_loss(),
        _ => {}
    }
}

/// The reader of an AUX area that overwrites itself. Each time it takes everything in the area,
/// with a gap between two times if bytes may be missing.
#[derive(Debug)]
pub(super) struct RingDrain<M> {
    data: DataRing<M>,
    snapshots: OverwritingRing<M>,
    stitch: Stitch,
    last: Vec<u8>,
}

impl<M: RingMemory> RingDrain<M> {
    /// Returns the reader of a thread's rings, from which nothing was read yet.
    pub(super) fn new(data: M, aux: M) -> Self {
        Self {
            data: DataRing::new(data),
            snapshots: OverwritingRing::new(aux),
            stitch: Stitch::starting_mid_packet(),
            last: Vec::new(),
        }
    }

    /// Returns the whole packets in the area that follow those returned before, after an OVF packet
    /// if some may be missing in between. The thread must be stopped.
    pub(super) fn take(&mut self) -> Vec<u8> {
        // Discard the records: for an overwriting ring, the head contains the same information.
        self.data.read(&mut |_| ());
        let now = self.snapshots.take();
        let mut whole = Vec::new();
        let common = overlap(&self.last, &now);
        if common == 0 && !self.last.is_empty() {
            whole.append(&mut self.stitch.mark_gap());
        }
        whole.append(&mut self.stitch.add_bytes(now.get(common..).unwrap_or_default()));
        whole.append(&mut self.stitch.take_whole_packets());
        self.last = now;
        whole
    }
}
