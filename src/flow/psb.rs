//! PSB+: the packets from a PSB to its PSBEND, which report the CPU's state and not events (SDM
//! section "PSB+"). Only reads them; the decoder applies the state.

use super::cursor::Cursor;
use super::item::GapReason;
use crate::common::{Addr, Tsc};
use crate::insn::ExecMode;
use crate::pt::{Errata, Erratum, LastIp, Packet};

/// The CPU state that a PSB+ reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct PsbPlus {
    /// The address of the next instruction; `None` if tracing is off.
    pub(super) ip: Option<Addr>,
    /// The width of the code, and RFLAGS.IF; `None` without a MODE.Exec.
    pub(super) mode: Option<(ExecMode, bool)>,
    /// CR3, bits 51 to 5; `None` without a PIP.
    pub(super) cr3: Option<u64>,
    /// The offset of the TSC packet, and its time; `None` without one.
    pub(super) tsc: Option<(u64, Tsc)>,
    /// The last IP after the PSB+, for the packets that follow.
    pub(super) last_ip: LastIp,
    /// True if an OVF replaced the PSBEND, so that packets between them may be lost.
    pub(super) cut: bool,
    /// The offset after the PSBEND, or of the OVF.
    pub(super) end: usize,
}

/// The offset of a fault, and its reason.
pub(super) type Fault = (usize, GapReason);

impl PsbPlus {
    /// Reads the PSB+ at `cursor`. Returns `None` if the trace ends in it. Fails at a packet that
    /// cannot be there, such as a TIP or another PSB.
    pub(super) fn read(mut cursor: Cursor<'_>, errata: Errata) -> Result<Option<Self>, Fault> {
        match cursor.take_packet()? {
            Some((_, Packet::Psb)) => {}
            Some((at, other)) => return Err((at, GapReason::Unexpected(other))),
            None => return Ok(None),
        }
        let mut state = Self {
            ip: None,
            mode: None,
            cr3: None,
            tsc: None,
            last_ip: LastIp::new(),
            cut: false,
            end: cursor.offset(),
        };
        while let Some((at, packet)) = cursor.take_packet()? {
            if state.accept(at, packet)? {
                state.end = if state.cut { at } else { cursor.offset() };
                if errata.has(Erratum::Bdm70) && !state.cut && is_before_enable(cursor) {
                    state.ip = None;
                    state.last_ip.reset();
                }
                return Ok(Some(state));
            }
        }
        Ok(None)
    }

    /// Adds the state that a packet at offset `at` reports. Returns true if the packet ends the
    /// PSB+: a PSBEND or OVF. Fails at a packet that cannot be there, and at a FUP without an
    /// address.
    fn accept(&mut self, at: usize, packet: Packet) -> Result<bool, Fault> {
        match packet {
            Packet::PsbEnd => return Ok(true),
            Packet::Ovf => {
                self.cut = true;
                return Ok(true);
            }
            Packet::Fup(payload) => match self.last_ip.reconstruct(payload) {
                Some(ip) => self.ip = Some(ip),
                None => return Err((at, GapReason::NoAddress(packet))),
            },
            Packet::ModeExec { mode, interrupts } => self.mode = Some((mode, interrupts)),
            Packet::Pip { cr3, .. } => self.cr3 = Some(cr3),
            Packet::Tsc(tsc) => self.tsc = Some((at as u64, Tsc(tsc))),
            Packet::ModeTsx { .. }
            | Packet::Vmcs(_)
            | Packet::Mnt(_)
            | Packet::Cbr(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Pad => {}
            other => return Err((at, GapReason::Unexpected(other))),
        }
        Ok(false)
    }
}

/// Returns true if a TIP.PGE is the next packet that is not about time or the CPU's state. With
/// erratum BDM70, the FUP of the PSB+ is then from the code that is about to be enabled.
fn is_before_enable(mut cursor: Cursor<'_>) -> bool {
    while let Ok(Some((_, packet))) = cursor.take_packet() {
        match packet {
            Packet::TipPge(_) => return true,
            Packet::Pad
            | Packet::Tsc(_)
            | Packet::Cbr(_)
            | Packet::Pip { .. }
            | Packet::ModeExec { .. }
            | Packet::ModeTsx { .. }
            | Packet::Vmcs(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Mnt(_) => {}
            _ => return false,
        }
    }
    false
}
