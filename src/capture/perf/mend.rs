//! Repairs the trace at our INT3s. To the PT unit an INT3 is a far transfer, which generates a
//! TIP.PGD and no FUP (SDM section "Far Transfers"). In the recording, the original byte is in its
//! place, which is no far transfer. So a FUP with the INT3's address is inserted before that
//! TIP.PGD, as for a fault there. The CPU does not know of this FUP, so the next IP after it, which
//! the CPU compressed against its own last IP, is written in full.

use crate::common::Addr;
use crate::pt::{IpCompression, IpPayload, LastIp, Packet, Packets, encode};

/// The repair of one thread's packets before they are written.
#[derive(Debug, Default)]
pub(super) struct Mender {
    /// The last IP of the CPU, for the decompression of IPs.
    last_ip: LastIp,
    /// True if the last IP of the recording differs from the CPU's, since a FUP was inserted.
    last_ip_differs: bool,
    /// The last TIP.PGD and the packets since, held back until it is known if an INT3 of ours
    /// caused it.
    held: Vec<u8>,
}

impl Mender {
    /// Takes the next packets, which are whole. Returns those that are known to be right, repaired,
    /// also those of earlier calls: a TIP.PGD and the packets after it are held back until the next
    /// TIP.PGE, TIP.PGD or OVF, or until [`Self::take_held`] or [`Self::take_held_at_int3`].
    pub(super) fn repair(&mut self, packets: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = Packets::new(packets);
        let mut from = 0;
        while let Some((_, packet)) = rest.next() {
            let bytes = &packets[from..rest.offset()];
            from = rest.offset();
            match packet {
                Ok(packet) => self.add(packet, bytes, &mut out),
                // A stitched trace contains no invalid bytes.
                Err(_) => self.held.extend_from_slice(bytes),
            }
        }
        out
    }

    /// Adds a packet, encoded as `bytes`, to those held back if it is a TIP.PGD or if some are held
    /// back, otherwise to `out`. A TIP.PGD, TIP.PGE or OVF first moves those held back to `out`.
    /// Writes the packet's IP in full if it is the first IP after an inserted FUP.
    fn add(&mut self, packet: Packet, bytes: &[u8], out: &mut Vec<u8>) {
        let leaves = matches!(packet, Packet::TipPgd(_));
        let enters = matches!(packet, Packet::TipPge(_) | Packet::Ovf);
        // If tracing went on, no INT3 of ours caused the TIP.PGD that is held back.
        if leaves || enters {
            out.append(&mut self.held);
        }
        let into = if leaves || !self.held.is_empty() { &mut self.held } else { out };
        match packet {
            Packet::Psb => {
                self.last_ip.reset();
                self.last_ip_differs = false;
            }
            Packet::Tip(payload)
            | Packet::TipPge(payload)
            | Packet::TipPgd(payload)
            | Packet::Fup(payload) => {
                if let Some(ip) = self.last_ip.reconstruct(payload)
                    && std::mem::take(&mut self.last_ip_differs)
                {
                    return encode(&with_full_ip(packet, ip), into);
                }
            }
            _ => {}
        }
        into.extend_from_slice(bytes);
    }

    /// Takes and returns the packets held back, for a thread that is stopped elsewhere than at our
    /// INT3s.
    pub(super) fn take_held(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Takes and returns the packets held back, for a thread that is stopped at our INT3 at `at`,
    /// after a FUP with this address; nothing if none are held back.
    pub(super) fn take_held_at_int3(&mut self, at: Addr) -> Vec<u8> {
        let held = self.take_held();
        // If the TIP.PGD is lost, so is the address.
        if held.is_empty() {
            return held;
        }
        let mut out = Vec::new();
        encode(&Packet::Fup(full(at)), &mut out);
        self.last_ip_differs = true;
        out.extend(held);
        out
    }
}

/// Returns an IP that is written in full.
fn full(ip: Addr) -> IpPayload {
    IpPayload { compression: IpCompression::Full, value: ip.0 }
}

/// Returns a TIP, TIP.PGE or TIP.PGD with the IP `ip` in full; any other packet becomes a FUP with
/// it.
fn with_full_ip(packet: Packet, ip: Addr) -> Packet {
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
    fn the_place_of_a_stop_is_reported_and_the_next_address_is_whole() {
        let mut mender = Mender::default();
        let before =
            bytes(&[Packet::Psb, Packet::PsbEnd, Packet::TipPge(full(Addr(0x7fff_f7ec_d34e)))]);
        assert_eq!(mender.repair(&before), before);
        // Packets after the TIP.PGD are held back with it, even in separate calls.
        assert!(mender.repair(&bytes(&[Packet::TipPgd(NONE)])).is_empty());
        assert!(mender.repair(&bytes(&[Packet::Pad])).is_empty());
        let stop = mender.take_held_at_int3(Addr(0x40_1000));
        let reported = [Packet::Fup(full(Addr(0x40_1000))), Packet::TipPgd(NONE), Packet::Pad];
        assert_eq!(stop, bytes(&reported));
        let on = mender.repair(&bytes(&[Packet::TipPge(SHORT), Packet::Tip(SHORT)]));
        let whole = [Packet::TipPge(full(Addr(0x7fff_f7ec_1234))), Packet::Tip(SHORT)];
        assert_eq!(on, bytes(&whole));
    }

    #[test]
    fn a_psb_in_between_starts_afresh_and_other_stops_are_as_they_were() {
        let mut mender = Mender::default();
        let all =
            [Packet::Psb, Packet::PsbEnd, Packet::TipPge(full(Addr(0x5000))), Packet::TipPgd(NONE)];
        let mut out = mender.repair(&bytes(&all));
        out.extend(mender.take_held());
        assert_eq!(out, bytes(&all));
        assert_eq!(
            mender.repair(&bytes(&[Packet::TipPge(SHORT), Packet::TipPgd(NONE)])),
            bytes(&[Packet::TipPge(SHORT)])
        );
        mender.take_held_at_int3(Addr(0x7fff_0000_0000));
        let following = bytes(&[Packet::Psb, Packet::PsbEnd, Packet::TipPge(SHORT)]);
        assert_eq!(mender.repair(&following), following);
        // A lost stop has no address.
        assert!(mender.take_held_at_int3(Addr(1)).is_empty());
    }
}
