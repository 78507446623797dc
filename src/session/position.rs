//! Places in a history, as numbers.

/// The position of a run in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The position: the number of instructions that all threads executed so far in a path, and a
    /// number of [`Position::exact`] in an exact recording.
    pub at: u64,
    /// The last position: the number of instructions in the history of a path, and a number of
    /// [`Position::exact`] in an exact recording.
    pub total: u64,
}

impl Position {
    const INSTRUCTION_BITS: u32 = 16;

    /// Returns the number of a place in an exact recording (`Run::is_exact`): so many instructions
    /// after a moment.
    pub fn exact(moment: u64, instructions: u64) -> u64 {
        let most = (1 << Self::INSTRUCTION_BITS) - 1;
        moment << Self::INSTRUCTION_BITS | instructions.min(most)
    }

    /// Returns the moment of such a number, and the instructions after it.
    pub fn parts(number: u64) -> (u64, u64) {
        (number >> Self::INSTRUCTION_BITS, number & ((1 << Self::INSTRUCTION_BITS) - 1))
    }

    /// Returns the number of a position as text: of an exact recording `MOMENT`, or
    /// `MOMENT.INSTRUCTIONS`.
    pub fn text(number: u64, is_exact: bool) -> String {
        match Self::parts(number) {
            _ if !is_exact => number.to_string(),
            (moment, 0) => moment.to_string(),
            (moment, instructions) => format!("{moment}.{instructions}"),
        }
    }

    /// Parses such a text.
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
