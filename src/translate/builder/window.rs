//! Fetches the program's code for more than one instruction at a time.

use super::super::insn::MAX_INSN_BYTES;
use super::ProgramCode;

const WINDOW_BYTES: usize = 128;
const PAGE_BYTES: u64 = 0x1000;

/// A run of fetched code.
pub(super) struct Window {
    start: u64,
    known: usize,
    bytes: [u8; WINDOW_BYTES],
}

impl Window {
    /// Fetches the bytes of the instruction at `ip`, and maybe some that follow. Touches only the
    /// pages that the longest instruction there could span. There are fewer bytes where code is not
    /// known.
    pub(super) fn fetch(ip: u64, code: &mut dyn ProgramCode) -> Self {
        let mut bytes = [0; WINDOW_BYTES];
        let in_page = usize::try_from(PAGE_BYTES - ip % PAGE_BYTES).unwrap_or(0);
        let len = in_page.clamp(MAX_INSN_BYTES, WINDOW_BYTES);
        let known = code.fetch(ip, &mut bytes[..len]);
        Self { start: ip, known, bytes }
    }

    /// Returns the fetched bytes; the first one is at the address given to `fetch`.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.known]
    }

    /// Returns the offset in [`Self::bytes`] of the instruction at `ip`; `None` unless the longest
    /// instruction there would be among the fetched bytes.
    pub(super) fn find(&self, ip: u64) -> Option<usize> {
        let offset = usize::try_from(ip.wrapping_sub(self.start)).ok()?;
        (offset < self.known && self.known - offset >= MAX_INSN_BYTES).then_some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code in which each byte is the low byte of its address, and which stops at `end`.
    struct Numbers {
        end: u64,
        fetched: usize,
    }

    impl ProgramCode for Numbers {
        fn fetch(&mut self, ip: u64, buf: &mut [u8]) -> usize {
            self.fetched += 1;
            let known = usize::try_from(self.end.saturating_sub(ip)).unwrap().min(buf.len());
            for (at, byte) in (ip..).zip(&mut buf[..known]) {
                *byte = at.to_le_bytes()[0];
            }
            known
        }
    }

    #[test]
    fn each_instruction_has_its_bytes() {
        let mut code = Numbers { end: 0x2ffa, fetched: 0 };
        let mut window = Window::fetch(0x0f00, &mut code);
        for ip in (0x0f00..0x3000).step_by(3) {
            let expected: Vec<u8> = (ip..code.end.max(ip)).map(|at| at.to_le_bytes()[0]).collect();
            let offset = window.find(ip).unwrap_or_else(|| {
                window = Window::fetch(ip, &mut code);
                0
            });
            let bytes = &window.bytes()[offset..];
            let len = expected.len().min(MAX_INSN_BYTES);
            assert_eq!(bytes[..len.min(bytes.len())], expected[..len], "at {ip:#x}");
        }
        assert!(code.fetched < 0x2100 / 3 / 10, "{} times", code.fetched);
    }
}
