//! Shows the translator what a program does most, by samples of what its threads recorded.

use super::process::Process;
use super::thread::Thread;
use crate::translate::AddressMap;

/// Bytes of a sample.
const SAMPLE_BYTES: usize = 64 << 10;
/// Samples are taken of the first, second, fourth... buffer of the process, and of each so many.
const PERIOD: u64 = 64;

impl Process {
    /// A thread's buffer is full: now and then its first records are looked at.
    pub(super) fn learn(&mut self, thread: &Thread) {
        self.full_buffers += 1;
        if !self.full_buffers.is_power_of_two() && !self.full_buffers.is_multiple_of(PERIOD) {
            return;
        }
        let area = thread.area();
        let mut records = vec![0; SAMPLE_BYTES];
        let len = SAMPLE_BYTES.min(usize::try_from(area.buffer_bytes).unwrap_or(0));
        let offset = area.offset_of(area.buffer(thread.buffer));
        self.engine.shared().read(offset, &mut records[..len]);
        let mut sample: AddressMap<u32, u64> = AddressMap::default();
        let mut rest = &records[..len];
        while let Some(number) = rest.first_chunk() {
            let number = u32::from_le_bytes(*number);
            // What the program wrote there itself is no record, and the encoder will say so.
            let Some(edge) = self.engine.translator().edges_from(number as usize).first() else {
                break;
            };
            *sample.entry(number).or_default() += 1;
            rest = rest.get(edge.kind.record_bytes()..).unwrap_or_default();
        }
        self.engine.learn(&sample);
    }
}
