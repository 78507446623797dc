//! Intel PT packets: decoding, encoding, synchronization (finding a PSB, the packet at which
//! decoding can start), time, and a model of the PT unit. Knows nothing of ELF or processes.

mod clock;
mod decode;
mod encode;
mod errata;
mod flawed;
mod last_ip;
mod overlap;
mod packet;
mod packets;
mod sync;
pub mod unit;

pub use crate::insn::ExecMode;
pub use clock::{Clock, ClockConfig, CrystalRatio, TimeEstimate, TscToNs};
pub use decode::{BlockContext, PacketError, decode, decode_in};
pub use encode::encode;
pub use errata::{BadCpu, Cpu, Errata, Erratum, Vendor};
pub use flawed::{Located, decode_flawed};
pub use last_ip::LastIp;
pub use overlap::overlap;
pub use packet::{IpCompression, IpPayload, Packet, PayloadIp, PayloadSize, Tnt};
pub use packets::Packets;
pub use sync::{PSB, find_psb, find_psb_back};

#[cfg(test)]
mod captures;
#[cfg(test)]
mod tests;
