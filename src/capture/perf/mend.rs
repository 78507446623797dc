//! Stops at INT3s of ours. To the PT unit an INT3 is a far transfer, which gives a TIP.PGD and no
//! FUP (SDM section "Far Transfers"); the recording has the byte in its place, which is none. So the
//! place is told in front of that TIP.PGD, as of a fault there. The CPU knows nothing of this
//! address: the next one that it compresses against its last is given in full.

use crate::common::Addr;
use crate::pt::{IpCompression, IpPayload, LastIp, Packet, Packets, encode};

/// A thread's whole packets, on their way into the recording.
#[derive(Debug, Default)]
pub(super) struct Mender {
    /// The CPU's last IP.
    last_ip: LastIp,
    /// The recording has another one.
    is_apart: bool,
    /// The TIP.PGD by which the thread left the program, and what followed, while it is there.
    held: Vec<u8>,
}

impl Mender {
    /// Whole packets that follow. Gives those that can be no end before a stop.
    pub(super) fn pass(&mut self, packets: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = Packets::new(packets);
        let mut from = 0;
        while let Some((_, packet)) = rest.next() {
            let bytes = &packets[from..rest.offset()];
            from = rest.offset();
            match packet {
                Ok(packet) => self.one(packet, bytes, &mut out),
                // The stitching gives none.
                Err(_) => self.held.extend_from_slice(bytes),
            }
        }
        out
    }

    fn one(&mut self, packet: Packet, bytes: &[u8], out: &mut Vec<u8>) {
        let leaves = matches!(packet, Packet::TipPgd(_));
        let enters = matches!(packet, Packet::TipPge(_) | Packet::Ovf);
        if leaves || enters {
            out.append(&mut self.held);
        }
        let into = if leaves || !self.held.is_empty() { &mut self.held } else { out };
        match packet {
            Packet::Psb => {
                self.last_ip.reset();
                self.is_apart = false;
            }
            Packet::Tip(payload)
            | Packet::TipPge(payload)
            | Packet::TipPgd(payload)
            | Packet::Fup(payload) => {
                if let Some(ip) = self.last_ip.reconstruct(payload)
                    && std::mem::take(&mut self.is_apart)
                {
                    return encode(&with(packet, ip), into);
                }
            }
            _ => {}
        }
        into.extend_from_slice(bytes);
    }

    /// The thread stands still, and not at an INT3 of ours. Gives what was held back.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// It stands at one of ours, in the place of `at`.
    pub(super) fn stop_at(&mut self, at: Addr) -> Vec<u8> {
        let held = self.rest();
        // Where the end is lost, so is the place.
        if held.is_empty() {
            return held;
        }
        let mut out = Vec::new();
        encode(&Packet::Fup(full(at)), &mut out);
        self.is_apart = true;
        out.extend(held);
        out
    }
}

fn full(ip: Addr) -> IpPayload {
    IpPayload { compression: IpCompression::Full, value: ip.0 }
}

fn with(packet: Packet, ip: Addr) -> Packet {
    match packet {
        Packet::Tip(_) => Packet::Tip(full(ip)),
        Packet::TipPge(_) => Packet::TipPge(full(ip)),
        Packet::TipPgd(_) => Packet::TipPgd(full(ip)),
        _ => Packet::Fup(full(ip)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(packets: &[Packet]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for packet in packets {
            encode(packet, &mut bytes);
        }
        bytes
    }

    const NONE: IpPayload = IpPayload { compression: IpCompression::Suppressed, value: 0 };
    const SHORT: IpPayload = IpPayload { compression: IpCompression::Update16, value: 0x1234 };

    #[test]
    fn the_place_of_a_stop_is_told_and_the_next_address_is_whole() {
        let mut mender = Mender::default();
        let before =
            bytes(&[Packet::Psb, Packet::PsbEnd, Packet::TipPge(full(Addr(0x7fff_f7ec_d34e)))]);
        assert_eq!(mender.pass(&before), before);
        // What comes behind the TIP.PGD waits with it, however it comes.
        assert!(mender.pass(&bytes(&[Packet::TipPgd(NONE)])).is_empty());
        assert!(mender.pass(&bytes(&[Packet::Pad])).is_empty());
        let stop = mender.stop_at(Addr(0x40_1000));
        let told = [Packet::Fup(full(Addr(0x40_1000))), Packet::TipPgd(NONE), Packet::Pad];
        assert_eq!(stop, bytes(&told));
        let on = mender.pass(&bytes(&[Packet::TipPge(SHORT), Packet::Tip(SHORT)]));
        let whole = [Packet::TipPge(full(Addr(0x7fff_f7ec_1234))), Packet::Tip(SHORT)];
        assert_eq!(on, bytes(&whole));
    }

    #[test]
    fn a_psb_in_between_starts_afresh_and_other_stops_are_as_they_were() {
        let mut mender = Mender::default();
        let all =
            [Packet::Psb, Packet::PsbEnd, Packet::TipPge(full(Addr(0x5000))), Packet::TipPgd(NONE)];
        let mut out = mender.pass(&bytes(&all));
        out.extend(mender.rest());
        assert_eq!(out, bytes(&all));
        assert_eq!(
            mender.pass(&bytes(&[Packet::TipPge(SHORT), Packet::TipPgd(NONE)])),
            bytes(&[Packet::TipPge(SHORT)])
        );
        mender.stop_at(Addr(0x7fff_0000_0000));
        let behind = bytes(&[Packet::Psb, Packet::PsbEnd, Packet::TipPge(SHORT)]);
        assert_eq!(mender.pass(&behind), behind);
        // What is lost has no place.
        assert!(mender.stop_at(Addr(1)).is_empty());
    }
}
