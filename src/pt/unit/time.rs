//! Timing packets: TSC, TMA, MTC, CYC and CBR (SDM sections "Timestamp Counter (TSC) Packet" to
//! "Cycle Count Packet (CYC) Packet"). The caller supplies the time; the unit has no clock.

use super::{Config, RtitCtl, Unit};
use crate::common::Tsc;
use crate::pt::{CrystalRatio, Packet};

/// The number of core clocks at which the cycle counter would wrap. A separate CYC is written
/// first.
const CYCLE_COUNTER: u64 = 1 << 16;

/// The clocks as the unit sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The last time that was set; `None` before.
    tsc: Option<Tsc>,
    crystal: Option<CrystalRatio>,
    core_bus_ratio: Option<u8>,
    /// Core clocks since the last CYC.
    cycles: u64,
}

impl Clock {
    /// Creates clocks without a time. An invalid crystal ratio counts as unknown.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            tsc: None,
            crystal: config.crystal_ratio.and_then(CrystalRatio::usable),
            core_bus_ratio: config.core_bus_ratio,
            cycles: 0,
        }
    }

    /// Sets the core clocks since the last CYC to 0.
    pub(super) fn restart_cycles(&mut self) {
        self.cycles = 0;
    }

    /// Returns the crystal clock counter, and the TSC ticks since it last incremented. `None` if
    /// the time or the ratio is unknown.
    fn crystal_clock(&self) -> Option<(u64, u64)> {
        let (tsc, ratio) = (u128::from(self.tsc?.0), self.crystal?);
        let (ebx, eax) = (u128::from(ratio.ebx), u128::from(ratio.eax));
        let counter = tsc * eax / ebx;
        let edge = (counter * ebx).div_ceil(eax);
        let since = tsc.saturating_sub(edge);
        Some((u64::try_from(counter).ok()?, u64::try_from(since).ok()?))
    }
}

impl Unit {
    /// Sets the time-stamp counter. If `MTCEn` is set and the crystal ratio is known, writes the
    /// MTC packets that became due since the last call. If MTC cannot express the gap (256 periods
    /// or more, or the time went back), writes TSC and TMA instead, if `TSCEn` is set. Otherwise,
    /// at the first call, and while `TriggerEn` is clear, writes nothing: see [`Unit::stamp`].
    pub fn set_tsc(&mut self, tsc: Tsc) {
        let before = self.crystal_periods();
        self.clock.tsc = Some(tsc);
        let (Some(before), Some(now)) = (before, self.crystal_periods()) else { return };
        if !self.trigger_en() || !self.config.ctl.has(RtitCtl::MTC_EN) || before == now {
            return;
        }
        self.begin_event();
        if (before..before.saturating_add(256)).contains(&now) {
            for period in before + 1..=now {
                self.put(&Packet::Mtc(period.to_le_bytes()[0]));
            }
        } else {
            self.put_tsc();
        }
        self.end_event();
    }

    /// Advances the core clock by `cycles`, which the next CYC reports. Writes the buffered branch
    /// outcomes and a CYC now if the cycle counter would wrap, except in an overflow: the clocks
    /// count on, without a limit. They count while tracing is off, too. For units with `CYCEn`:
    /// without it, nothing resets the counter, so once it would wrap, each call writes the
    /// outcomes.
    pub fn advance_cycles(&mut self, cycles: u64) {
        self.clock.cycles = self.clock.cycles.saturating_add(cycles);
        if self.clock.cycles >= CYCLE_COUNTER && !self.overflow.is_on() {
            self.flush();
            self.put_cyc();
        }
    }

    /// Sets the core:bus ratio, and writes TSC, TMA and CBR, as far as they are enabled and known,
    /// as a frequency change does. While tracing is off, sets it and writes nothing.
    pub fn set_core_bus_ratio(&mut self, ratio: u8) {
        self.begin_event();
        self.clock.core_bus_ratio = Some(ratio);
        self.put_times();
        self.end_event();
    }

    /// Writes a TSC packet now, with a TMA if `MTCEn` is set and the crystal ratio is known. Writes
    /// nothing unless `TriggerEn` and `TSCEn` are set and the time is known.
    pub fn stamp(&mut self) {
        self.begin_event();
        self.put_tsc();
        self.end_event();
    }

    /// Writes TSC, TMA and CBR: the full time, as far as it is enabled and known; nothing while
    /// `TriggerEn` is clear. Whether control flow packets are enabled does not matter.
    pub(super) fn put_times(&mut self) {
        self.put_tsc();
        if let Some(ratio) = self.clock.core_bus_ratio.filter(|_| self.trigger_en()) {
            self.put(&Packet::Cbr(ratio));
        }
    }

    /// Writes a TSC packet, with a TMA if `MTCEn` is set and the crystal ratio is known. Writes
    /// neither unless `TriggerEn` and `TSCEn` are set and the time is known.
    fn put_tsc(&mut self) {
        let ctl = self.config.ctl;
        let Some(tsc) = self.clock.tsc.filter(|_| self.trigger_en() && ctl.has(RtitCtl::TSC_EN))
        else {
            return;
        };
        self.put(&Packet::Tsc(tsc.0 & 0x00ff_ffff_ffff_ffff));
        if !ctl.has(RtitCtl::MTC_EN) {
            return;
        }
        if let Some((counter, since)) = self.clock.crystal_clock() {
            let [low, high, ..] = counter.to_le_bytes();
            let ctc = u16::from_le_bytes([low, high]);
            let fast_counter = u16::try_from(since & 0x1ff).unwrap_or_default();
            self.put(&Packet::Tma { ctc, fast_counter });
        }
    }

    /// Writes a CYC with the core clocks since the last one, if `CYCEn` is set and these reach the
    /// threshold. Leaves the buffered branch outcomes in the buffer.
    pub(super) fn put_cyc(&mut self) {
        let ctl = self.config.ctl;
        let threshold = match ctl.cyc_thresh() {
            0 => 1,
            n => 1 << (n - 1),
        };
        let lost = self.overflow.is_on();
        if !ctl.has(RtitCtl::CYC_EN) || !self.trigger_en() || lost || self.clock.cycles < threshold
        {
            return;
        }
        self.put_unflushed(&Packet::Cyc(self.clock.cycles));
        self.clock.restart_cycles();
    }

    /// Returns the number of MTC periods so far: the crystal clock counter without the bits below
    /// those of MTC. `None` if the time or the ratio is unknown.
    fn crystal_periods(&self) -> Option<u64> {
        let (counter, _) = self.clock.crystal_clock()?;
        Some(counter >> self.config.ctl.mtc_freq())
    }
}
