//! Estimates the time of each packet. Expects every packet in order and invents none: if packets
//! were lost for longer than the clocks can express, the time is unknown until the next TSC packet.

use super::ClockConfig;
use super::crystal::Crystal;
use crate::common::Tsc;
use crate::pt::{Errata, Erratum, Packet};

/// The time of a traced event, in ticks of the time-stamp counter (its low 56 bits). Exact to one
/// tick at a TSC, and to two at an MTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeEstimate {
    /// The best estimate, from core clocks if there are CYC packets.
    pub tsc: Tsc,
    /// The earliest possible time.
    pub earliest: Tsc,
    /// The latest possible time: when the next MTC was due. `None` if the trace does not determine
    /// it; the earliest time of a later event is then a bound.
    pub latest: Option<Tsc>,
}

impl TimeEstimate {
    /// Returns the difference between the latest and the earliest time, if both are known.
    #[must_use]
    pub fn uncertainty_ticks(&self) -> Option<u64> {
        self.latest.map(|latest| latest.0.saturating_sub(self.earliest.0))
    }
}

/// A known point in time, and the core clocks counted since.
#[derive(Clone, Copy, Debug)]
struct Base {
    tsc: u64,
    /// Core clocks since `tsc`.
    cycles: u64,
    /// True if a CYC was bound to this point, so that `cycles` is complete.
    cycle_exact: bool,
}

/// The ratio of TSC ticks to core clocks.
#[derive(Clone, Copy, Debug)]
struct Speed {
    ticks: u64,
    cycles: u64,
}

impl Speed {
    fn ticks_in(self, cycles: u64) -> u64 {
        let ticks = u128::from(cycles) * u128::from(self.ticks) / u128::from(self.cycles.max(1));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// The clock of a trace. Pass it every packet from a PSB on, and query it between them.
///
/// ```
/// use contraflow::common::Tsc;
/// use contraflow::pt::{Clock, ClockConfig, Packet};
/// let mut clock = Clock::new(ClockConfig::default());
/// assert_eq!(clock.now(), None);
/// clock.packet(&Packet::Tsc(1234));
/// assert_eq!(clock.now().map(|now| now.tsc), Some(Tsc(1234)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    config: ClockConfig,
    errata: Errata,
    base: Option<Base>,
    /// The TSC packet to which the next TMA belongs.
    last_tsc: Option<u64>,
    crystal: Option<Crystal>,
    speed: Option<Speed>,
    core_bus_ratio: Option<u8>,
    /// Core clocks since the clock was created.
    cycles: u64,
    cyc: Cyc,
    /// True if MTC packets may have been lost since the last TSC.
    lost: bool,
}

/// The state of the CYC of the current packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cyc {
    /// No CYC is bound to the current packet.
    None,
    /// A CYC was read, which binds to the next packet that can have one.
    Before,
    /// A CYC is bound to the current packet.
    Bound,
}

impl Clock {
    /// Creates a clock whose time is unknown.
    #[must_use]
    pub const fn new(config: ClockConfig) -> Self {
        Self {
            config,
            errata: Errata::NONE,
            base: None,
            last_tsc: None,
            crystal: None,
            speed: None,
            core_bus_ratio: None,
            cycles: 0,
            cyc: Cyc::None,
            lost: false,
        }
    }

    /// Sets the processor's errata. With SKL168 a CYC can be missing before a PSB, so the core's
    /// speed is not derived from the cycles around one.
    #[must_use]
    pub const fn with_errata(self, errata: Errata) -> Self {
        Self { errata, ..self }
    }

    /// Takes the next packet of the trace.
    #[inline]
    pub fn packet(&mut self, packet: &Packet) {
        match *packet {
            Packet::Cyc(cycles) => self.count(cycles),
            Packet::Psb => self.psb(),
            // No CYC binds to these: one that was read waits for a later packet. MODE.Exec has the
            // time of the packet after it.
            Packet::Pad | Packet::PsbEnd | Packet::Fup(_) | Packet::ModeExec { .. } => {}
            Packet::Mtc(mtc) => self.eligible(|clock| clock.mtc(mtc)),
            Packet::Tsc(tsc) => self.eligible(|clock| clock.tsc(tsc)),
            Packet::Ovf => self.eligible(Self::overflow),
            Packet::Tma { ctc, fast_counter } => {
                let tsc = self.last_tsc.take();
                self.crystal =
                    tsc.and_then(|tsc| Crystal::aligned(&self.config, tsc, ctc, fast_counter));
            }
            Packet::Cbr(ratio) => {
                self.core_bus_ratio = Some(ratio);
                self.speed = self.speed_by_ratio(ratio);
            }
            _ => self.eligible(|_| {}),
        }
    }

    /// Returns an estimate, with bounds, of the time of the last packet's event; `None` if it is
    /// unknown.
    #[must_use]
    pub fn now(&self) -> Option<TimeEstimate> {
        let base = self.base?;
        let latest = self.crystal.filter(|_| !self.lost).map(|crystal| crystal.next_edge_tsc());
        let passed = self.speed.map_or(0, |speed| speed.ticks_in(base.cycles));
        let guess = base.tsc.saturating_add(passed);
        let tsc = latest.map_or(guess, |latest| guess.min(latest).max(base.tsc));
        Some(TimeEstimate { tsc: Tsc(tsc), earliest: Tsc(base.tsc), latest: latest.map(Tsc) })
    }

    /// Returns the core clocks from the clock's start to the last packet, if a CYC is bound to it.
    /// The difference between two such values is the duration of the code between them, unless a
    /// PSB is between them on a processor with erratum SKL168.
    #[must_use]
    pub fn cycles(&self) -> Option<u64> {
        (self.cyc == Cyc::Bound).then_some(self.cycles)
    }

    /// Returns the last core:bus ratio; `None` before the first CBR.
    #[must_use]
    pub const fn core_bus_ratio(&self) -> Option<u8> {
        self.core_bus_ratio
    }

    fn count(&mut self, cycles: u64) {
        self.cycles = self.cycles.saturating_add(cycles);
        if let Some(base) = &mut self.base {
            base.cycles = base.cycles.saturating_add(cycles);
        }
        self.cyc = Cyc::Before;
    }

    /// Binds the CYC that was read last, if any, to the current packet, and then handles the packet
    /// by `effect`.
    #[inline]
    fn eligible(&mut self, effect: impl FnOnce(&mut Self)) {
        self.cyc = if self.cyc == Cyc::Before { Cyc::Bound } else { Cyc::None };
        effect(self);
    }

    /// Handles a TSC packet: the time is known. The crystal clock is unknown until the next TMA.
    fn tsc(&mut self, tsc: u64) {
        self.last_tsc = Some(tsc);
        self.crystal = None;
        self.lost = false;
        self.rebase(tsc);
    }

    fn psb(&mut self) {
        if let Some(base) = &mut self.base {
            base.cycle_exact &= !self.errata.has(Erratum::Skl168);
        }
    }

    fn rebase(&mut self, tsc: u64) {
        self.base = Some(Base { tsc, cycles: 0, cycle_exact: self.cyc == Cyc::Bound });
    }

    /// Handles an MTC packet: the time at its edge is known, and may also determine the core's
    /// speed. Ignores the packet without a TMA, or if it does not advance the clock.
    fn mtc(&mut self, mtc: u8) {
        let Some(tsc) = self.crystal.as_mut().and_then(|crystal| crystal.advance(mtc)) else {
            return;
        };
        if let Some(base) = self.base {
            self.calibrate(base, tsc);
        }
        self.rebase(tsc);
    }

    /// Derives the core's speed from `base` to `tsc`, if the core clocks at both are known exactly.
    fn calibrate(&mut self, base: Base, tsc: u64) {
        let exact = base.cycle_exact && self.cyc == Cyc::Bound && !self.lost;
        let ticks = tsc.saturating_sub(base.tsc);
        if exact && base.cycles > 0 && ticks > 0 {
            self.speed = Some(Speed { ticks, cycles: base.cycles });
        }
    }

    /// Returns the speed that the core:bus ratio `ratio` implies; `None` if it or the nominal ratio
    /// is 0 or unknown.
    fn speed_by_ratio(&self, ratio: u8) -> Option<Speed> {
        let nominal = self.config.nominal_ratio.filter(|nominal| *nominal != 0)?;
        (ratio != 0).then_some(Speed { ticks: nominal.into(), cycles: ratio.into() })
    }

    /// Handles a loss of packets. If the cycles since the last known time last longer than MTC's
    /// values take to repeat, the next MTC is ambiguous, so the time is unknown until the next TSC.
    /// A shorter loss only removes the latest time. Without known cycles, every loss counts as
    /// short.
    fn overflow(&mut self) {
        let wrapped = match (self.base, self.speed, self.crystal) {
            (Some(base), Some(speed), Some(crystal)) => {
                speed.ticks_in(base.cycles) >= crystal.wrap_tsc()
            }
            _ => false,
        };
        if wrapped {
            (self.base, self.crystal) = (None, None);
        }
        self.lost = true;
    }
}
