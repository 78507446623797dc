//! Samples of the records of threads, which show the translator the code that is executed most.

use super::thread_buffers::ThreadBuffers;
use crate::engine::Shared;
use crate::translate::{AddressMap, Translator};
use std::sync::Arc;

/// The number of bytes of records, from the start of a full buffer, that a sample counts.
const SAMPLE_BYTES: usize = 64 << 10;
/// Samples are taken of the first, second, fourth... buffer of the process, and of each 64th one.
const PERIOD: u64 = 64;

/// Decides which of a process's full buffers are sampled, by their count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    full_buffers: u64,
}

impl Sampler {
    /// Counts the records at the start of a thread's buffer in use, which is full: returns their
    /// number for each edge. Must be called for each full buffer: it skips most of them, and
    /// returns `None`. Counts up to the first unknown edge.
    pub fn sample(
        &mut self,
        code: &Translator<Arc<Shared>>,
        shared: &Shared,
        buffers: &ThreadBuffers,
    ) -> Option<AddressMap<u32, u64>> {
        self.full_buffers += 1;
        if !self.full_buffers.is_power_of_two() && !self.full_buffers.is_multiple_of(PERIOD) {
            return None;
        }
        let mut records = vec![0; SAMPLE_BYTES];
        let len = SAMPLE_BYTES.min(usize::try_from(buffers.area.buffer_bytes).unwrap_or(0));
        shared.read(
            buffers.area.offset_of(buffers.area.buffer(buffers.current)),
            &mut records[..len],
        );
        let mut sample: AddressMap<u32, u64> = AddressMap::default();
        let mut rest = &records[..len];
        while let Some(number) = rest.first_chunk() {
            let number = u32::from_le_bytes(*number);
            // Bytes that the program itself wrote there are no record: the encoder finds that out.
            let Some(edge) = code.edges_from(number as usize).first() else { break };
            *sample.entry(number).or_default() += 1;
            rest = rest.get(edge.kind.record_bytes()..).unwrap_or_default();
        }
        Some(sample)
    }
}
