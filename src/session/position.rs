//! Positions in a history, as numbers and as text.
//!
//! In a path, the number of a position is the number of instructions before it. In an exact
//! recording, instructions are not numbered. Its log has *entries*, one for each event such as a
//! system call; *ticks* are branches, which a replay counts. The *moment* of a position is the
//! number of entries and ticks before it, and its number is its moment times 65536, plus the number
//! of instructions since the last entry or tick. Both kinds of numbers grow with time.

/// The position of a run in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The position: the number of instructions that all threads executed so far in a path, and a
    /// number of [`Position::exact`] in an exact recording.
    pub at: u64,
    /// The last position. In a path: the number of instructions in the history. In an exact
    /// recording: a number of [`Position::exact`], without the instructions of the last moment as
    /// long as these are unknown.
    pub total: u64,
}

impl Position {
    const INSTRUCTION_BITS: u32 = 16;

    /// Returns the number of a position in an exact recording (`Run::is_exact`), by its moment and
    /// the number of instructions since the moment began, of which at most 65535 count.
    pub fn exact(moment: u64, instructions: u64) -> u64 {
        let most = (1 << Self::INSTRUCTION_BITS) - 1;
        moment << Self::INSTRUCTION_BITS | instructions.min(most)
    }

    /// Splits a number of [`Position::exact`] into its moment and the number of instructions since
    /// the moment began.
    pub fn parts(number: u64) -> (u64, u64) {
        (number >> Self::INSTRUCTION_BITS, number & ((1 << Self::INSTRUCTION_BITS) - 1))
    }

    /// Formats the number of a position; in an exact recording as `MOMENT` or
    /// `MOMENT.INSTRUCTIONS`.
    pub fn text(number: u64, is_exact: bool) -> String {
        match Self::parts(number) {
            _ if !is_exact => number.to_string(),
            (moment, 0) => moment.to_string(),
            (moment, instructions) => format!("{moment}.{instructions}"),
        }
    }

    /// Parses a text of [`Position::text`] to the number of the position; `None` if it is malformed
    /// or the number is too large. Does not check that the history has this position.
    pub fn parse(text: &str, is_exact: bool) -> Option<u64> {
        let number =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
        if !is_exact {
            return number(text);
        }
        let (moment, instructions) = text.split_once('.').unwrap_or((text, "0"));
        let (moment, instructions) = (number(moment)?, number(instructions)?);
        let fits = moment >> (u64::BITS - Self::INSTRUCTION_BITS) == 0
            && instructions >> Self::INSTRUCTION_BITS == 0;
        fits.then(|| Self::exact(moment, instructions))
    }
}
