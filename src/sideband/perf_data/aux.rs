//! The AUX areas: the positions of their bytes in the file, and perf's Intel PT settings (`struct
//! perf_record_auxtrace`; `AUXTRACE_INFO` follows `tools/perf/util/intel-pt.h`). An AUX area is the
//! buffer to which a CPU writes the trace of itself or of a thread. Its stream is all that was ever
//! written to it.

use super::fields::Fields;
use crate::common::Tid;

/// A piece of an AUX area's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxTrace {
    /// The file offset of the piece's record, in bytes.
    pub record_offset: u64,
    /// The file offset of the piece's bytes.
    pub start: usize,
    /// The number of bytes; up to 7 of them are padding.
    pub size_bytes: usize,
    /// The stream offset of the first byte.
    pub stream_offset: u64,
    /// A TSC value at about the time of reading; 0 if perf has no times.
    pub reference: u64,
    /// The number of the area.
    pub index: u32,
    /// The thread of the area; for an area of a CPU, the first of the threads that perf traces.
    /// `None` if perf names no thread.
    pub tid: Option<Tid>,
    /// The CPU that the area belongs to; `None` for an area of a thread.
    pub cpu: Option<u32>,
}

impl AuxTrace {
    /// Parses an `AUXTRACE` record at file offset `record_offset`, whose fields are those after its
    /// header. The trace bytes, which follow the record, start at file offset `start`. `None` if it
    /// is cut off.
    pub(super) fn parse(record_offset: u64, start: usize, mut fields: Fields<'_>) -> Option<Self> {
        let (size, stream_offset, reference) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (index, tid, cpu) = (fields.u32()?, fields.i32()?, fields.i32()?);
        Some(Self {
            record_offset,
            start,
            size_bytes: usize::try_from(size).ok()?,
            stream_offset,
            reference,
            index,
            tid: (tid > 0).then_some(Tid(tid)),
            cpu: u32::try_from(cpu).ok(),
        })
    }
}

/// The conversion from the TSC to perf's clock: `zero_ns + tsc * multiplier / 2^shift` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfClock {
    /// The time of the clock when the TSC was 0, modulo 2^64.
    pub zero_ns: u64,
    /// The multiplier, not 0.
    pub multiplier: u32,
    /// The binary logarithm of the divisor, below 64.
    pub shift: u8,
}

/// The Intel PT settings of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuxInfo {
    /// The number of the PMU `intel_pt`.
    pub pmu: u32,
    /// The conversion from the TSC to perf's clock.
    pub clock: Option<PerfClock>,
    /// The reporting of context switches: 0 none, 1 by a tracepoint, else by records.
    pub sched_switch: u64,
    /// True if each piece is a snapshot of a ring buffer.
    pub snapshot: bool,
    /// The mask of the bit in `config` that enables TSC packets.
    pub tsc_bit: u64,
    /// The mask of the bit in `config` that disables return compression (`NoRETComp`).
    pub noretcomp_bit: u64,
    /// The mask of the bit in `config` that enables MTC packets.
    pub mtc_bit: u64,
    /// The bits of `config` for `MTCFreq`.
    pub mtc_freq_bits: u64,
    /// CPUID leaf 15H, EBX and EAX; 0 if unknown.
    pub tsc_ctc_ratio: (u32, u32),
    /// The mask of the bit in `config` that enables CYC packets.
    pub cyc_bit: u64,
    /// The CPU's nominal frequency, in units of 100 MHz; 0 if unknown.
    pub max_nonturbo_ratio: u64,
    /// True if each area belongs to one CPU.
    pub per_cpu: bool,
    /// The address filters, as given to perf; empty without any.
    pub filter: String,
}

impl AuxInfo {
    /// Parses an `AUXTRACE_INFO` record of Intel PT, whose fields are those after its type. The
    /// fields from `mtc_bit` on, which older perfs do not write, are 0 if they are missing. `None`
    /// if earlier fields are cut off.
    pub(super) fn parse(mut fields: Fields<'_>) -> Option<Self> {
        let mut next = || fields.u64();
        let pmu = u32::try_from(next()?).ok()?;
        let (shift, multiplier, zero_ns) = (next()?, next()?, next()?);
        let has_clock = next()? != 0;
        let (tsc_bit, noretcomp_bit) = (next()?, next()?);
        let (have_switches, snapshot, per_cpu) = (next()?, next()?, next()?);
        // From here on, fields that older records lack are 0.
        let mut next = || next().unwrap_or(0);
        let (mtc_bit, mtc_freq_bits) = (next(), next());
        let ratio = (next(), next());
        let (cyc_bit, max_nonturbo_ratio) = (next(), next());
        let filter_size = usize::try_from(next()).unwrap_or(0);
        // The size is without the NULs that follow.
        let filter = fields.take(filter_size).and_then(|text| text.split(|byte| *byte == 0).next());
        let multiplier = u32::try_from(multiplier).ok().filter(|multiplier| *multiplier > 0);
        let shift = u8::try_from(shift).ok().filter(|shift| *shift < 64);
        let clock = multiplier.zip(shift).filter(|_| has_clock);
        let low = |number: u64| u32::try_from(number).unwrap_or(0);
        Some(Self {
            pmu,
            clock: clock.map(|(multiplier, shift)| PerfClock { zero_ns, multiplier, shift }),
            sched_switch: have_switches,
            snapshot: snapshot != 0,
            tsc_bit,
            noretcomp_bit,
            mtc_bit,
            mtc_freq_bits,
            tsc_ctc_ratio: (low(ratio.0), low(ratio.1)),
            cyc_bit,
            max_nonturbo_ratio,
            per_cpu: per_cpu != 0,
            filter: String::from_utf8_lossy(filter.unwrap_or_default()).into_owned(),
        })
    }

    /// Returns true if the tracepoint `sched:sched_switch` reports context switches, and not
    /// records of perf (`PERF_RECORD_SWITCH`).
    #[must_use]
    pub const fn has_tracepoint_switches(&self) -> bool {
        self.sched_switch == 1
    }

    /// Returns `MTCFreq` of an event with this `config`; `None` if it does not enable MTC packets.
    #[must_use]
    pub fn mtc_freq(&self, config: u64) -> Option<u8> {
        let shift = self.mtc_freq_bits.trailing_zeros();
        let freq = (config & self.mtc_freq_bits).checked_shr(shift).unwrap_or(0);
        u8::try_from(freq).ok().filter(|freq| *freq < 16 && config & self.mtc_bit != 0)
    }
}
