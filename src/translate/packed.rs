//! Paths and points in few bytes. There is one path for each superblock, and most are never looked
//! at: as vectors of [`Step`] and [`Point`] they would be larger than the code itself.

use super::superblock::{Outcome, Point, State, Step};

/// The bits of a step's first byte: the instruction's size, its outcome, and whether it ticks.
const LEN_BITS: u32 = 4;
const OUTCOME_BITS: u32 = 3;
const TICKS: u8 = 0x80;
/// The number of a plain outcome after which the path goes on elsewhere: at the expected target of
/// an indirect branch.
const PLAIN_ELSEWHERE: u8 = 6;
/// The outcomes, by number.
const OUTCOMES: [Outcome; 6] = [
    Outcome::Plain,
    Outcome::NotTaken,
    Outcome::Jump,
    Outcome::Taken,
    Outcome::Call,
    Outcome::Return,
];

/// Appends a number, 7 bits a byte, the lowest first (LEB128).
pub(super) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    to.push(number.to_le_bytes()[0]);
}

/// Removes a number from the front of `bytes`; `None` if they end in it, or if it has more than 10
/// bytes: then some are removed. Drops bits beyond 64.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Appends the distance from one address to another: short for short distances in both directions.
pub(super) fn put_distance(to: &mut Vec<u8>, from: u64, addr: u64) {
    let distance = addr.wrapping_sub(from).cast_signed();
    put_number(to, ((distance << 1) ^ (distance >> 63)).cast_unsigned());
}

/// Removes a distance from the front of `bytes`. Returns the address at that distance from `from`;
/// `None` where [`take_number`] does.
pub(super) fn take_distance(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let number = take_number(bytes)?;
    Some(from.wrapping_add((number >> 1) ^ (number & 1).wrapping_neg()))
}

/// Appends a path that begins at `start`: a byte for each step. The distance from the step's end to
/// the next one follows if the outcome may lead elsewhere. The place to which the last step leads
/// is not kept.
pub(super) fn put_path(to: &mut Vec<u8>, start: u64, path: &[Step]) {
    debug_assert!(path.first().is_none_or(|step| step.ip == start));
    for (index, step) in path.iter().enumerate() {
        let after = step.ip.wrapping_add(step.len.into());
        let next = path.get(index + 1).map_or(after, |next| next.ip);
        let number = match (0..).zip(OUTCOMES).find(|(_, outcome)| *outcome == step.outcome) {
            None | Some((0, _)) if next != after => PLAIN_ELSEWHERE,
            found => found.map_or(0, |(number, _)| number),
        };
        to.push(step.len | number << LEN_BITS | if step.ticks { TICKS } else { 0 });
        if number > 1 {
            put_distance(to, after, next);
        }
    }
}

/// The steps of a path that [`put_path`] packed. They end early if the bytes are damaged.
#[derive(Clone, Debug)]
pub(super) struct Steps<'a> {
    bytes: &'a [u8],
    ip: u64,
}

impl<'a> Steps<'a> {
    /// Returns the steps of the path in `bytes`, which [`put_path`] has packed and begins at the
    /// address `start`. Reads each only when it is asked for.
    pub(super) fn of(bytes: &'a [u8], start: u64) -> Self {
        Self { bytes, ip: start }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        let (ip, len) = (self.ip, first & ((1 << LEN_BITS) - 1));
        let number = first >> LEN_BITS & ((1 << OUTCOME_BITS) - 1);
        let outcome = OUTCOMES.get(usize::from(number)).copied().unwrap_or(Outcome::Plain);
        self.ip = ip.wrapping_add(len.into());
        if number > 1 {
            self.ip = take_distance(&mut self.bytes, self.ip)?;
        }
        Some(Step { ip, len, outcome, ticks: first & TICKS != 0 })
    }
}

/// Appends the points, by offset, of a superblock that starts at `start`, each relative to the one
/// before.
pub(super) fn put_points(to: &mut Vec<u8>, start: u64, points: &[Point]) {
    let (mut offset, mut index, mut ip) = (0, 0, start);
    for point in points {
        put_number(to, point.offset.wrapping_sub(offset).into());
        put_number(to, bits_of(point.state).into());
        put_distance(to, index, point.index.into());
        put_distance(to, ip, point.ip);
        (offset, index, ip) = (point.offset, point.index.into(), point.ip);
    }
}

/// The points of a superblock that [`put_points`] packed, by offset. They end early if the bytes
/// are damaged.
#[derive(Clone, Debug)]
pub(super) struct Points<'a> {
    bytes: &'a [u8],
    offset: u32,
    index: u64,
    ip: u64,
}

impl<'a> Points<'a> {
    /// Returns the points in `bytes`, which [`put_points`] has packed for a superblock that starts
    /// at the address `start`. Reads each only when it is asked for.
    pub(super) fn of(bytes: &'a [u8], start: u64) -> Self {
        Self { bytes, offset: 0, index: 0, ip: start }
    }
}

impl Iterator for Points<'_> {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        let distance = u32::try_from(take_number(&mut self.bytes)?).ok()?;
        self.offset = self.offset.wrapping_add(distance);
        let state = state_of(u16::try_from(take_number(&mut self.bytes)?).ok()?);
        self.index = take_distance(&mut self.bytes, self.index)?;
        self.ip = take_distance(&mut self.bytes, self.ip)?;
        let index = u16::try_from(self.index).ok()?;
        Some(Point { offset: self.offset, index, ip: self.ip, state })
    }
}

/// Returns a state as bits, for [`state_of`].
fn bits_of(state: State) -> u16 {
    let facts = [
        state.exact,
        state.r11_in_slot,
        state.rdx_in_slot,
        state.recorded,
        state.rcx_in_slot,
        state.rcx_is_ip,
        state.has_early_record,
        state.stops,
        state.is_amid_stores,
    ];
    (0..).zip(facts).fold(0, |bits, (number, fact)| bits | u16::from(fact) << number)
}

/// Returns the state with these bits ([`bits_of`]); ignores higher bits.
fn state_of(bits: u16) -> State {
    let fact = |number: u32| bits >> number & 1 != 0;
    State {
        exact: fact(0),
        r11_in_slot: fact(1),
        rdx_in_slot: fact(2),
        recorded: fact(3),
        rcx_in_slot: fact(4),
        rcx_is_ip: fact(5),
        has_early_record: fact(6),
        stops: fact(7),
        is_amid_stores: fact(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcomes() -> impl Strategy<Value = Outcome> {
        (0..OUTCOMES.len()).prop_map(|number| OUTCOMES[number])
    }

    fn paths() -> impl Strategy<Value = Vec<Step>> {
        let step = (0..16_u8, outcomes(), any::<bool>(), any::<Option<u64>>());
        (any::<u64>(), prop::collection::vec(step, 0..40)).prop_map(|(mut ip, steps)| {
            let step = |(len, outcome, ticks, elsewhere): (u8, Outcome, bool, Option<u64>)| {
                let step = Step { ip, len, outcome, ticks };
                // A branch that is not taken goes on after itself.
                let elsewhere = elsewhere.filter(|_| outcome != Outcome::NotTaken);
                ip = elsewhere.unwrap_or(ip.wrapping_add(len.into()));
                step
            };
            steps.into_iter().map(step).collect()
        })
    }

    fn points() -> impl Strategy<Value = Vec<Point>> {
        let point = (0..9000_u32, any::<u16>(), any::<u64>(), 0..1_u16 << 9);
        prop::collection::vec(point, 0..40).prop_map(|points| {
            let mut end = 0;
            let point = |(distance, index, ip, bits)| {
                end += distance;
                Point { offset: end, index, ip, state: state_of(bits) }
            };
            points.into_iter().map(point).collect()
        })
    }

    proptest! {
        #[test]
        fn paths_and_points_come_back(path in paths(), points in points(), start: u64) {
            let mut bytes = Vec::new();
            let from = path.first().map_or(0, |step| step.ip);
            put_path(&mut bytes, from, &path);
            let at = bytes.len();
            put_points(&mut bytes, start, &points);
            prop_assert_eq!(Steps::of(&bytes[..at], from).collect::<Vec<_>>(), path);
            prop_assert_eq!(Points::of(&bytes[at..], start).collect::<Vec<_>>(), points);
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>, start: u64) {
            prop_assert!(Steps::of(&bytes, start).count() <= bytes.len());
            prop_assert!(Points::of(&bytes, start).count() <= bytes.len());
        }
    }

    #[test]
    fn a_usual_step_takes_a_byte() {
        let step =
            |number: u64| Step { ip: 4 * number, len: 4, outcome: Outcome::Plain, ticks: false };
        let mut bytes = Vec::new();
        put_path(&mut bytes, 0, &(0..9).map(step).collect::<Vec<_>>());
        assert_eq!(bytes.len(), 9);
    }
}
