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

/// The last point at which the time was known, and the core clocks counted since.
#[derive(Clone, Copy, Debug)]
struct KnownTime {
    /// The time.
    tsc: u64,
    /// Core clocks since `tsc`.
    cycles: u64,
    /// True if a CYC was bound to this point, so that `cycles` is complete.
    cycle_exact: bool,
}

/// The core's speed: the ratio of TSC ticks to core clocks.
#[derive(Clone, Copy, Debug)]
struct Speed {
    ticks: u64,
    cycles: u64,
}

impl Speed {
    /// Returns the TSC ticks in a number of core clocks.
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
    /// `None` before the first TSC packet, and after a loss that the clocks cannot express.
    known: Option<KnownTime>,
    /// The time of the last TSC packet, until its TMA is read.
    last_tsc: Option<u64>,
    /// `None` before the first TMA after a TSC packet.
    crystal: Option<Crystal>,
    speed: Option<Speed>,
    core_bus_ratio: Option<u8>,
    /// Core clocks since the clock was created.
    cycles: u64,
    cyc: Cyc,
    /// True if MTC packets may have been lost since the last TSC packet.
    may_lack_mtc: bool,
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
            known: None,
            last_tsc: None,
            crystal: None,
            speed: None,
            core_bus_ratio: None,
            cycles: 0,
            cyc: Cyc::None,
            may_lack_mtc: false,
        }
    }

    /// Sets the processor's errata, and forgets those of earlier calls. With SKL168 a CYC can be
    /// missing before a PSB, so the core's speed is not derived from the cycles around one.
    #[must_use]
    pub const fn with_errata(self, errata: Errata) -> Self {
        Self { errata, ..self }
    }

    /// Handles the next packet of the trace. Every packet must be passed, in order.
    #[inline]
    pub fn packet(&mut self, packet: &Packet) {
        match *packet {
            Packet::Cyc(cycles) => self.add_cycles(cycles),
            Packet::Psb => self.handle_psb(),
            // No CYC binds to these: one that was read waits for a later packet. MODE.Exec has the
            // time of the packet after it.
            Packet::Pad | Packet::PsbEnd | Packet::Fup(_) | Packet::ModeExec { .. } => {}
            Packet::Mtc(mtc) => self.bind_cyc_then(|clock| clock.handle_mtc(mtc)),
            Packet::Tsc(tsc) => self.bind_cyc_then(|clock| clock.handle_tsc(tsc)),
            Packet::Ovf => self.bind_cyc_then(Self::handle_overflow),
            Packet::Tma { ctc, fast_counter } => {
                let tsc = self.last_tsc.take();
                self.crystal =
                    tsc.and_then(|tsc| Crystal::aligned(&self.config, tsc, ctc, fast_counter));
            }
            Packet::Cbr(ratio) => {
                self.core_bus_ratio = Some(ratio);
                self.speed = self.speed_by_ratio(ratio);
            }
            _ => self.bind_cyc_then(|_| {}),
        }
    }

    /// Returns an estimate, with bounds, of the time of the last packet's event; `None` if it is
    /// unknown, as before the first TSC packet.
    #[must_use]
    pub fn now(&self) -> Option<TimeEstimate> {
        let known = self.known?;
        let latest =
            self.crystal.filter(|_| !self.may_lack_mtc).map(|crystal| crystal.next_edge_tsc());
        let passed = self.speed.map_or(0, |speed| speed.ticks_in(known.cycles));
        let estimate = known.tsc.saturating_add(passed);
        let tsc = latest.map_or(estimate, |latest| estimate.min(latest).max(known.tsc));
        Some(TimeEstimate { tsc: Tsc(tsc), earliest: Tsc(known.tsc), latest: latest.map(Tsc) })
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

    /// Handles a CYC packet: counts its core clocks, and lets it bind to the next packet.
    fn add_cycles(&mut self, cycles: u64) {
        self.cycles = self.cycles.saturating_add(cycles);
        if let Some(known) = &mut self.known {
            known.cycles = known.cycles.saturating_add(cycles);
        }
        self.cyc = Cyc::Before;
    }

    /// Binds the CYC just before the current packet, if there is one, to this packet, and then
    /// handles the packet by `effect`.
    #[inline]
    fn bind_cyc_then(&mut self, effect: impl FnOnce(&mut Self)) {
        self.cyc = if self.cyc == Cyc::Before { Cyc::Bound } else { Cyc::None };
        effect(self);
    }

    /// Handles a TSC packet: the time is known. The crystal clock is unknown until the next TMA.
    fn handle_tsc(&mut self, tsc: u64) {
        self.last_tsc = Some(tsc);
        self.crystal = None;
        self.may_lack_mtc = false;
        self.set_known_time(tsc);
    }

    /// Handles a PSB: with erratum SKL168, the cycles around it are not exact.
    fn handle_psb(&mut self) {
        if let Some(known) = &mut self.known {
            known.cycle_exact &= !self.errata.has(Erratum::Skl168);
        }
    }

    /// Sets the known time to `tsc`, that of the current packet, and counts core clocks from 0.
    fn set_known_time(&mut self, tsc: u64) {
        self.known = Some(KnownTime { tsc, cycles: 0, cycle_exact: self.cyc == Cyc::Bound });
    }

    /// Handles an MTC packet: the time at its edge is known, and may also determine the core's
    /// speed. Ignores the packet without a TMA, or if it does not advance the clock.
    fn handle_mtc(&mut self, mtc: u8) {
        let Some(tsc) = self.crystal.as_mut().and_then(|crystal| crystal.advance(mtc)) else {
            return;
        };
        if let Some(known) = self.known {
            self.calibrate(known, tsc);
        }
        self.set_known_time(tsc);
    }

    /// Derives the core's speed from `known` to `tsc`, if the core clocks at both are known
    /// exactly.
    fn calibrate(&mut self, known: KnownTime, tsc: u64) {
        let exact = known.cycle_exact && self.cyc == Cyc::Bound && !self.may_lack_mtc;
        let ticks = tsc.saturating_sub(known.tsc);
        if exact && known.cycles > 0 && ticks > 0 {
            self.speed = Some(Speed { ticks, cycles: known.cycles });
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
    fn handle_overflow(&mut self) {
        let is_ambiguous = match (self.known, self.speed, self.crystal) {
            (Some(known), Some(speed), Some(crystal)) => {
                speed.ticks_in(known.cycles) >= crystal.wrap_tsc()
            }
            _ => false,
        };
        if is_ambiguous {
            (self.known, self.crystal) = (None, None);
        }
        self.may_lack_mtc = true;
    }
}
