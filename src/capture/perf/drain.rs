//! One thread's AUX area, its records and its trace: the order in which they are read, so that each
//! byte is told of before it is taken, and each loss stands where it was.

use super::mend::Mender;
use super::ring::{AuxRing, DataRing, RingMemory, Seen, Snapshots};
use super::stitch::{Step, Stitch, Told};
use crate::common::Addr;
use crate::pt::overlap;
use crate::sideband::perf_data::{PerfEvent, PerfRecords};

/// Reads an area that fills up, and the ring of records beside it.
#[derive(Debug)]
pub(super) struct Drain<M> {
    data: DataRing<M>,
    aux: AuxRing<M>,
    records: PerfRecords,
    told: Told,
    stitch: Stitch,
    /// What makes our INT3s into what the recording has there.
    mender: Option<Mender>,
    taken: Vec<u8>,
    /// Where the area was full, before the tail was moved.
    full_at: Option<u64>,
}

impl<M: RingMemory> Drain<M> {
    pub(super) fn new(data: M, aux: M, records: PerfRecords, mends: bool) -> Self {
        Self {
            mender: mends.then(Mender::default),
            data: DataRing::new(data),
            aux: AuxRing::new(aux),
            records,
            told: Told::default(),
            stitch: Stitch::default(),
            taken: Vec::new(),
            full_at: None,
        }
    }

    /// Takes what has come; gives whole packets that follow those given before. To be enabled again
    /// afterwards, as what found no place is disabled.
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

    fn take_whole(&mut self) -> Vec<u8> {
        // The record that tells of bytes is there before the head that counts them.
        let head = self.aux.head();
        let Self { data, records, told, .. } = self;
        let note = &mut |record: &[u8]| note(records, told, record);
        let seen = data.read(note);
        if self.aux.is_full(head, self.aux.tail()) || seen == Seen::Doubtful {
            self.told.note(head, 0, true);
        }
        if let Some(full_at) = self.full_at.take() {
            self.told.note(full_at, 0, true);
        }
        self.taken.clear();
        let start = self.aux.take(head, &mut self.taken);
        // It may have become full before the tail was moved. Then it is so still.
        let later = self.aux.head();
        self.full_at = Some(later).filter(|later| self.aux.is_full(*later, start));
        let mut whole = Vec::new();
        for step in self.told.steps(start, head) {
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

    /// The thread stands still or is gone: gives all the rest.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut whole = self.take_whole();
        whole.append(&mut self.stitch.end());
        let mut mended = self.mended(&whole);
        mended.extend(self.mender.iter_mut().flat_map(Mender::rest));
        mended
    }

    /// The thread stands at an INT3 of ours: gives all the rest, with the place of that.
    pub(super) fn finish_at(&mut self, at: Addr) -> Vec<u8> {
        let mut whole = self.take_whole();
        whole.append(&mut self.stitch.end());
        let mut mended = self.mended(&whole);
        mended.extend(self.mender.iter_mut().flat_map(|mender| mender.stop_at(at)));
        mended
    }

    /// How often bytes were missing.
    pub(super) fn gaps(&self) -> u64 {
        self.stitch.gaps
    }
}

fn note(records: &PerfRecords, told: &mut Told, record: &[u8]) {
    let record = records.parse(record).ok().flatten();
    match record.map(|record| record.event) {
        Some(PerfEvent::Aux { offset, size, flags }) => {
            told.note(offset, size, flags & PerfEvent::AUX_LOSSES != 0);
        }
        Some(PerfEvent::Lost(_)) => told.doubt(),
        _ => {}
    }
}

/// Reads an area that overwrites itself: each time what is in it, with a gap between two times
/// where bytes may be missing.
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

    /// What is in the area, as it follows what was given before. The thread stands still.
    pub(super) fn take(&mut self) -> Vec<u8> {
        // What the records say of a ring that overwrites, the head says as well.
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
