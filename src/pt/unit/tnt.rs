//! The branch outcomes that wait for a full TNT packet.

use super::TntForm;
use crate::pt::{Packet, Tnt};

#[derive(Clone, Copy, Debug)]
pub(super) struct TntBuffer {
    form: TntForm,
    pending: Tnt,
}

impl TntBuffer {
    pub(super) const fn new(form: TntForm) -> Self {
        Self { form, pending: Tnt { bits: 0, len: 0 } }
    }

    /// Adds an outcome and gives the packet that it fills, if it does.
    pub(super) fn push(&mut self, taken: bool) -> Option<Packet> {
        let Tnt { bits, len } = self.pending;
        self.pending = Tnt { bits: bits << 1 | u64::from(taken), len: len + 1 };
        if self.pending.len < self.form.capacity() { None } else { self.take() }
    }

    /// The outcomes that wait, if any do.
    pub(super) fn take(&mut self) -> Option<Packet> {
        let tnt = std::mem::replace(&mut self.pending, Tnt { bits: 0, len: 0 });
        match tnt.len {
            0 => None,
            1..=6 => Some(Packet::TntShort(tnt)),
            _ => Some(Packet::TntLong(tnt)),
        }
    }
}
