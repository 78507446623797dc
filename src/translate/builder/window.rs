//! The program's code, fetched by more than an instruction at a time.

use super::super::insn::MAX_INSN_BYTES;
use super::ProgramCode;

const WINDOW_BYTES: usize = 128;
const PAGE_BYTES: u64 = 0x1000;

/// Code that was fetched.
pub(super) struct Window {
    start: u64,
    known: usize,
    bytes: [u8; WINDOW_BYTES],
}

impl Default for Window {
    fn default() -> Self {
        Self { start: 0, known: 0, bytes: [0; WINDOW_BYTES] }
    }
}

impl Window {
    /// The bytes of the instruction at `ip`, and maybe some that follow. No page is looked at but
    /// those that the longest instruction there would be on.
    pub(super) fn at(&mut self, ip: u64, code: &mut dyn ProgramCode) -> &[u8] {
        let offset = usize::try_from(ip.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        let is_inside = offset < self.known && self.known - offset >= MAX_INSN_BYTES;
        if is_inside {
            return &self.bytes[offset..offset + MAX_INSN_BYTES];
        }
        let in_page = usize::try_from(PAGE_BYTES - ip % PAGE_BYTES).unwrap_or(0);
        let len = in_page.clamp(MAX_INSN_BYTES, WINDOW_BYTES);
        self.start = ip;
        self.known = code.fetch(ip, &mut self.bytes[..len]);
        &self.bytes[..self.known.min(MAX_INSN_BYTES)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte is the low one of its address; nothing is at and behind `end`.
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
        let mut window = Window::default();
        for ip in (0x0f00..0x3000).step_by(3) {
            let expected: Vec<u8> = (ip..code.end.max(ip)).map(|at| at.to_le_bytes()[0]).collect();
            let bytes = window.at(ip, &mut code);
            assert_eq!(bytes, &expected[..expected.len().min(MAX_INSN_BYTES)], "at {ip:#x}");
        }
        assert!(code.fetched < 0x2100 / 3 / 10, "{} times", code.fetched);
    }
}
