//! Copies of string instructions with a REP prefix, each before an INT3: a thread executes one of
//! them with all its repetitions, where single steps would stop it after each (SDM volume 3,
//! "Single-Step Exception Condition").

use super::emit::Emitter;

/// Instructions that have copies: MOVS and STOS of the usual sizes. Where RCX is 0 they do nothing.
/// So a thread that a signal stops after a copy, before its INT3, can be moved back to the
/// instruction.
const COPIED: [&[u8]; 6] = [
    &[0xf3, 0xa4],
    &[0xf3, 0xa5],
    &[0xf3, 0x48, 0xa5],
    &[0xf3, 0xaa],
    &[0xf3, 0xab],
    &[0xf3, 0x48, 0xab],
];
const INT3: u8 = 0xcc;

/// The copy, in a zone, of a string instruction with a REP prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatCopy {
    /// The copy's address.
    pub start: u64,
    /// The copy's size in bytes. An INT3 follows.
    pub size_bytes: u64,
}

/// Emits the copies of all instructions of [`COPIED`], each before an INT3.
pub(super) fn emit_repeats(emitter: &mut Emitter) {
    for insn in COPIED {
        emitter.put(insn);
        emitter.put(&[INT3]);
    }
}

/// Returns the copy of the instruction that `code` begins with; `None` if it has none, or is
/// encoded otherwise, as with more prefixes. `base` is the address of the code of [`emit_repeats`].
pub(super) fn repeat_copy(base: u64, code: &[u8]) -> Option<RepeatCopy> {
    let number = COPIED.iter().position(|insn| code.starts_with(insn))?;
    let before: usize = COPIED[..number].iter().map(|insn| insn.len() + 1).sum();
    Some(RepeatCopy { start: base + before as u64, size_bytes: COPIED[number].len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_copy_is_before_an_int3() {
        let mut emitter = Emitter::new(0x1000, Vec::new());
        emit_repeats(&mut emitter);
        for insn in COPIED {
            let code = [insn, &[0x90, 0x90]].concat();
            let copy = repeat_copy(0x1000, &code).unwrap();
            let at = usize::try_from(copy.start - 0x1000).unwrap();
            let end = at + usize::try_from(copy.size_bytes).unwrap();
            assert_eq!((&emitter.bytes[at..end], emitter.bytes[end]), (insn, INT3));
        }
        assert_eq!(repeat_copy(0x1000, &[0xf3, 0x0f, 0x10]), None);
        assert_eq!(repeat_copy(0x1000, &[0xf3]), None);
    }
}
