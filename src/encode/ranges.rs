//! Which code is traced, by address, with the meaning that ranges have for a PT unit (SDM section
//! "Filtering by IP").

use crate::common::{Addr, AddrRange};
use crate::pt::unit::{Config, IpRange};

/// The PT unit's address ranges: `IA32_RTIT_ADDR0_A` to `IA32_RTIT_ADDR3_B`.
pub const MOST_RANGES: usize = 4;
/// A range that holds no address.
const NOTHING: IpRange = IpRange { first: Addr(1), last: Addr(0) };

/// The code that is traced, and the code that ends a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// There is a filter, though its code may not be there yet.
    filters: bool,
    only: Vec<AddrRange>,
    stop: Vec<AddrRange>,
}

impl Ranges {
    /// Returns the ranges that are known so far. With `filters` set only the code of `only` is
    /// traced, even where that is empty yet. A branch to the code of `stop` ends a trace.
    pub fn new(filters: bool, only: Vec<AddrRange>, stop: Vec<AddrRange>) -> Self {
        Self { filters, only, stop }
    }

    /// Adds a range, unless it is there: to the code that ends a trace, or else to what is traced.
    pub fn add(&mut self, range: AddrRange, is_stop: bool) {
        let known = if is_stop { &mut self.stop } else { &mut self.only };
        if !known.contains(&range) {
            known.push(range);
        }
    }

    /// The PT unit's configuration for them.
    pub fn configure(&self, mut config: Config) -> Config {
        let mut number = 0..MOST_RANGES;
        let placeholder = (self.filters && self.only.is_empty()).then_some(NOTHING);
        for range in self.only.iter().map(inclusive).chain(placeholder) {
            let Some(number) = number.next() else { break };
            config = config.with_filter(number, range);
        }
        for (range, number) in self.stop.iter().map(inclusive).zip(number) {
            config = config.with_trace_stop(number, range);
        }
        config
    }

    /// Whether all is traced.
    pub fn are_none(&self) -> bool {
        !self.filters && self.stop.is_empty()
    }

    /// Whether only some code is traced, though it may not be there yet.
    pub fn has_filter(&self) -> bool {
        self.filters
    }

    /// The code that is traced.
    pub fn only(&self) -> &[AddrRange] {
        &self.only
    }

    /// The code that ends a trace.
    pub fn stop(&self) -> &[AddrRange] {
        &self.stop
    }

    /// Where what is traced begins.
    pub fn starts(&self) -> impl Iterator<Item = Addr> {
        self.only.iter().map(|range| range.start)
    }

    /// Whether there is code that ends a trace.
    pub fn stops(&self) -> bool {
        !self.stop.is_empty()
    }

    /// Whether a branch to `ip` ends the trace.
    pub fn stop_at(&self, ip: u64) -> bool {
        self.stop.iter().any(|range| range.contains(Addr(ip)))
    }

    /// Whether a trace says nothing of the addresses from `low` to `high`, but where it is in
    /// their midst already.
    pub fn skip(&self, low: u64, high: u64) -> bool {
        let meets = |range: &AddrRange| range.start.0 <= high && low < range.end.0;
        self.filters && !self.only.iter().chain(&self.stop).any(meets)
    }
}

fn inclusive(range: &AddrRange) -> IpRange {
    IpRange { first: range.start, last: Addr(range.end.0.saturating_sub(1)) }
}
