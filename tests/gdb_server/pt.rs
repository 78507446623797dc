//! A minimal writer of PT packets for recorded histories: enough for gdb's own decoder to follow
//! them. Packets are laid out as in SDM volume 3, "Packet Definitions".

use contraflow::common::{Addr, Tid};
use contraflow::session::{History, Recorded, Run, Scripted};

/// The packets of a thread of a history without system calls.
pub(crate) fn encode(run: &Recorded<Scripted>, tid: Tid) -> Vec<u8> {
    let history = run.history();
    let count = history.index_of(tid, history.total());
    let positions = (0..count).filter_map(|index| history.position_of(tid, index));
    let mut pcs: Vec<u64> = positions.filter_map(|g| history.pc(tid, g)).map(|pc| pc.0).collect();
    pcs.extend(history.pc(tid, history.total()).map(|pc| pc.0));
    // PSB, PSBEND, MODE.Exec with 64-bit code, TIP.PGE.
    let mut trace = [0x02, 0x82].repeat(8);
    trace.extend([0x02, 0x23, 0x99, 0x01]);
    trace.extend(with_ip(0x11, pcs[0]));
    for pair in pcs.windows(2) {
        let mut code = [0; 8];
        run.read_memory(tid, Addr(pair[0]), &mut code);
        trace.extend(branch(code, pair[0], pair[1]));
    }
    trace
}

/// What a branch leaves in the trace: a TNT packet with one bit, or a TIP.
fn branch(code: [u8; 8], pc: u64, next: u64) -> Vec<u8> {
    let code = code.strip_prefix(&[0xf2]).unwrap_or(&code);
    match *code {
        [0x70..=0x7f, ..] => vec![tnt(next != pc + 2)],
        [0x0f, 0x80..=0x8f, ..] => vec![tnt(next != pc + 6)],
        [0xc3, ..] => with_ip(0x0d, next),
        [0xff, modrm, ..] if matches!(modrm >> 3 & 7, 2 | 4) => with_ip(0x0d, next),
        _ => Vec::new(),
    }
}

fn tnt(taken: bool) -> u8 {
    (0b10 | u8::from(taken)) << 1
}

/// A packet with a six-byte sign-extended IP.
fn with_ip(opcode: u8, ip: u64) -> Vec<u8> {
    let mut packet = vec![opcode | 0b011 << 5];
    packet.extend(&ip.to_le_bytes()[..6]);
    packet
}
