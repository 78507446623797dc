//! A place in the trace that moves packet by packet and can look one packet ahead.

use super::item::GapReason;
use super::psb::Fault;
use crate::pt::{BlockContext, Packet, decode_in};

/// Reads packets in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'t> {
    trace: &'t [u8],
    offset: usize,
    context: BlockContext,
}

/// A packet that was looked at and not yet taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peeked {
    pub(super) packet: Packet,
    /// Where it starts.
    pub(super) offset: usize,
    end: usize,
    context: BlockContext,
}

impl<'t> Cursor<'t> {
    pub(super) const fn at(trace: &'t [u8], offset: usize) -> Self {
        Self { trace, offset, context: BlockContext::None }
    }

    /// The offset of the next packet.
    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    /// The next packet, or None at the end.
    #[inline]
    pub(super) fn peek(&self) -> Result<Option<Peeked>, Fault> {
        let rest = self.trace.get(self.offset..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let (offset, mut context) = (self.offset, self.context);
        match decode_in(rest, &mut context) {
            Ok((packet, len)) => Ok(Some(Peeked { packet, offset, end: offset + len, context })),
            Err(error) => Err((offset, GapReason::Packet(error))),
        }
    }

    /// Moves behind a packet that [`Self::peek`] gave.
    #[inline]
    pub(super) const fn pass(&mut self, peeked: &Peeked) {
        self.offset = peeked.end;
        self.context = peeked.context;
    }

    /// The next packet and its offset, or None at the end; moves behind it.
    pub(super) fn take(&mut self) -> Result<Option<(usize, Packet)>, Fault> {
        let Some(peeked) = self.peek()? else { return Ok(None) };
        self.pass(&peeked);
        Ok(Some((peeked.offset, peeked.packet)))
    }
}
