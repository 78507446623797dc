//! The address ranges of traced code, as a PT unit interprets them (SDM section "Filtering by IP").

use crate::common::{Addr, AddrRange};
use crate::pt::unit::{Config, IpRange};

/// The number of address ranges of a PT unit: `IA32_RTIT_ADDR0_A` to `IA32_RTIT_ADDR3_B`.
pub const MOST_RANGES: usize = 4;
/// An empty range.
const EMPTY_RANGE: IpRange = IpRange { first: Addr(1), last: Addr(0) };

/// The address ranges of the code that is traced, and of the code that ends a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// True if there is a filter, even if none of its code is mapped yet.
    filters: bool,
    /// The code that is traced, if `filters` is set.
    only: Vec<AddrRange>,
    /// The code that ends a trace when a branch leads to it.
    stop: Vec<AddrRange>,
}

impl Ranges {
    /// Returns the ranges known so far. With `filters` set, only the code of `only` is traced, even
    /// while `only` is empty; without it, `only` must be empty. A branch to the code of `stop` ends
    /// a trace.
    pub fn new(filters: bool, only: Vec<AddrRange>, stop: Vec<AddrRange>) -> Self {
        Self { filters, only, stop }
    }

    /// Adds a range to the code that ends a trace, or else to that of the filter: only if there is
    /// one, which is not checked. Ignores a range that is there already; ranges may overlap.
    pub fn add(&mut self, range: AddrRange, is_stop: bool) {
        let known = if is_stop { &mut self.stop } else { &mut self.only };
        if !known.contains(&range) {
            known.push(range);
        }
    }

    /// Returns a PT unit's configuration with these ranges in its registers, from number 0 on: the
    /// filter's come first. Ignores those beyond [`MOST_RANGES`]. Registers of `config` that these
    /// ranges do not fill stay as they are. A filter without a range traces no code.
    pub fn configure(&self, mut config: Config) -> Config {
        let mut number = 0..MOST_RANGES;
        let placeholder = (self.filters && self.only.is_empty()).then_some(EMPTY_RANGE);
        for range in self.only.iter().map(inclusive).chain(placeholder) {
            let Some(number) = number.next() else { break };
            config = config.with_filter(number, range);
        }
        for (range, number) in self.stop.iter().map(inclusive).zip(number) {
            config = config.with_trace_stop(number, range);
        }
        config
    }

    /// Returns true if all code is traced, and none ends a trace: there is no filter and no range
    /// that stops.
    pub fn trace_everything(&self) -> bool {
        !self.filters && self.stop.is_empty()
    }

    /// Returns true if there is a filter, even if none of its code is mapped yet.
    pub fn has_filter(&self) -> bool {
        self.filters
    }

    /// Returns the ranges of the filter, without those that end a trace; empty if there is no
    /// filter, or if none of its code is mapped yet.
    pub fn only(&self) -> &[AddrRange] {
        &self.only
    }

    /// Returns the ranges of code that ends a trace.
    pub fn stop(&self) -> &[AddrRange] {
        &self.stop
    }

    /// Returns the start of each range of the filter ([`Self::only`]), without those that end a
    /// trace.
    pub fn starts(&self) -> impl Iterator<Item = Addr> {
        self.only.iter().map(|range| range.start)
    }

    /// Returns true if some code ends a trace.
    pub fn has_trace_stop(&self) -> bool {
        !self.stop.is_empty()
    }

    /// Returns true if a branch to `ip` ends the trace: it is in a range that does.
    pub fn is_trace_stop(&self, ip: u64) -> bool {
        self.stop.iter().any(|range| range.contains(Addr(ip)))
    }

    /// Returns true if there is a filter, and no range of it or of the code that ends a trace
    /// contains an address from `low` to `high`, both included. While tracing is off, execution
    /// there adds nothing to the trace.
    pub fn is_all_outside(&self, low: u64, high: u64) -> bool {
        let meets = |range: &AddrRange| range.start.0 <= high && low < range.end.0;
        self.filters && !self.only.iter().chain(&self.stop).any(meets)
    }
}

/// Returns the same range with its last address in place of its end. An empty one stays empty,
/// except at address 0.
fn inclusive(range: &AddrRange) -> IpRange {
    IpRange { first: range.start, last: Addr(range.end.0.saturating_sub(1)) }
}
