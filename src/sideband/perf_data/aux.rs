//! The AUX areas: where their bytes are in the file, and how perf took them with Intel PT
//! (`struct perf_record_auxtrace`; the numbers of `AUXTRACE_INFO` are by `tools/perf/util/intel-pt.h`).

use super::fields::Fields;
use crate::common::Tid;

/// A piece of an AUX area's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxTrace {
    /// Where its record is in the file, in bytes.
    pub record_offset: u64,
    /// Where its bytes begin in the file.
    pub start: usize,
    /// How many there are; up to 7 of them are padding.
    pub size_bytes: usize,
    /// The place of the first byte in the stream.
    pub stream_offset: u64,
    /// A TSC value at about the time when it was read; 0 if not known, where perf finds no times.
    pub reference: u64,
    /// The number of the area.
    pub index: u32,
    /// The thread that it is of, or of whose process it was asked for.
    pub tid: Option<Tid>,
    /// The CPU that it is of.
    pub cpu: Option<u32>,
}

impl AuxTrace {
    /// What follows a record's header; the bytes begin at `start`.
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

/// Perf's clock by the TSC: `zero_ns + tsc * multiplier / 2^shift` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfClock {
    /// When the TSC was 0; wraps.
    pub zero_ns: u64,
    /// Not 0.
    pub multiplier: u32,
    /// Below 64.
    pub shift: u8,
}

/// How Intel PT was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuxInfo {
    /// The number of the PMU `intel_pt`.
    pub pmu: u32,
    /// From the TSC to perf's clock.
    pub clock: Option<PerfClock>,
    /// How context switches are told: 0 not, 1 by a tracepoint, else by records.
    pub sched_switch: u64,
    /// Each piece is what was in a ring when it was asked for.
    pub snapshot: bool,
    /// The bits of `config` where the TSC, `NoRETComp` and `MTCFreq` are.
    pub tsc_bit: u64,
    /// See [`Self::tsc_bit`].
    pub noretcomp_bit: u64,
    /// Whether MTC packets were asked for.
    pub mtc_bit: u64,
    /// See [`Self::tsc_bit`].
    pub mtc_freq_bits: u64,
    /// CPUID leaf 15H, EBX and EAX; 0 where not known.
    pub tsc_ctc_ratio: (u32, u32),
    /// Whether CYC packets were asked for.
    pub cyc_bit: u64,
    /// The nominal frequency, in 100 MHz; 0 where not known.
    pub max_nonturbo_ratio: u64,
    /// Each area is one CPU's.
    pub per_cpu: bool,
    /// The filters of addresses, as perf was given them.
    pub filter: String,
}

impl AuxInfo {
    /// What follows the type.
    pub(super) fn parse(mut fields: Fields<'_>) -> Option<Self> {
        let mut next = || fields.u64();
        let pmu = u32::try_from(next()?).ok()?;
        let (shift, multiplier, zero_ns) = (next()?, next()?, next()?);
        let has_clock = next()? != 0;
        let (tsc_bit, noretcomp_bit) = (next()?, next()?);
        let (have_switches, snapshot, per_cpu) = (next()?, next()?, next()?);
        // What older ones do not have is 0.
        let mut next = || next().unwrap_or(0);
        let (mtc_bit, mtc_freq_bits) = (next(), next());
        let ratio = (next(), next());
        let (cyc_bit, max_nonturbo_ratio) = (next(), next());
        let filter_size = usize::try_from(next()).unwrap_or(0);
        let filter = fields.take(filter_size).map(Fields::new).and_then(|text| text.text());
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
            filter: filter.unwrap_or_default(),
        })
    }

    /// Context switches are told by the tracepoint `sched:sched_switch`, and not by records.
    #[must_use]
    pub const fn has_tracepoint_switches(&self) -> bool {
        self.sched_switch == 1
    }

    /// `MTCFreq` of an event with this `config`, where it asked for MTC packets.
    #[must_use]
    pub fn mtc_freq(&self, config: u64) -> Option<u8> {
        let shift = self.mtc_freq_bits.trailing_zeros();
        let freq = (config & self.mtc_freq_bits).checked_shr(shift).unwrap_or(0);
        u8::try_from(freq).ok().filter(|freq| *freq < 16 && config & self.mtc_bit != 0)
    }
}
