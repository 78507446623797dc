//! The gdb server over a connection in memory. An input is text: a line is the body of a packet,
//! and one that begins with `!` is sent as it stands, without a frame. Whatever the client sends,
//! each reply is framed and bounded, and the next client is served.

use crate::traits::Traits;
use contraflow::common::{Addr, Tid};
use contraflow::gdb::{Options, serve_streams};
use contraflow::session::{
    Ending, GapInfo, Instruction, KnownRegisters, Library, Recorded, Register, Scripted, Session,
    Transfer,
};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// Beginnings of packets, and pieces of them.
pub(crate) const WORDS: &[&[u8]] = &[
    b"\n",
    b"\n!",
    b"\n!\x03\n",
    b"\n!-\n",
    b"\n!$",
    b"#00",
    b"qSupported:",
    b"qSupported",
    b"swbreak+;",
    b"hwbreak+;",
    b"qRelocInsn+",
    b"xmlRegisters=i386",
    b"multiprocess+",
    b"?",
    b"g",
    b"G",
    b"p",
    b"P",
    b"m",
    b"M",
    b"x",
    b"X",
    b"Z0,",
    b"Z1,",
    b"z0,",
    b"z1,",
    b"Z2,",
    b"vCont",
    b"vCont?",
    b"vCont;c",
    b"vCont;s",
    b"vCont;r",
    b";c:",
    b";s:",
    b"bc",
    b"bs",
    b"c",
    b"s",
    b"C05",
    b"S05",
    b"Hg",
    b"Hc",
    b"T",
    b"qC",
    b"qfThreadInfo",
    b"qsThreadInfo",
    b"qThreadExtraInfo,",
    b"qRcmd,",
    b"7365656b20",
    b"7768656e",
    b"67617073",
    b"696e666f",
    b"qXfer:",
    b"features:read:",
    b"target.xml:",
    b"threads:read::",
    b"auxv:read::",
    b"exec-file:read::",
    b"libraries-svr4:",
    b"siginfo:read::",
    b"btrace:read:all:",
    b"btrace-conf:read::",
    b"vFile:open:",
    b"vFile:pread:",
    b"vFile:fstat:",
    b"vFile:close:",
    b"vFile:setfs:",
    b"2f62696e2f74727565,0,0",
    b"qContraflow.stack:",
    b"qContraflow.select:",
    b"qContraflow.line:",
    b"Qbtrace:pt",
    b"Qbtrace:off",
    b"Qbtrace-conf:",
    b"QStartNoAckMode",
    b"D",
    b"k",
    b"vKill;",
    b"0,ffffffffffffffff",
    b"ffffffffffffffff",
    b"-1",
    b"p1.1",
    b"p0.0",
    b"p-1.-1",
    b"1000",
    b"2000",
    b"1010",
    b"0,fff",
    b"}\x03",
    b"*",
    b"qAttached",
    b"qOffsets",
    b"qCRC:",
    b"QThreadEvents:1",
    b"vMustReplyEmpty",
    b"qSymbol::",
    b"R00",
    b"!",
    b"t",
    b"i",
    b"I",
    b"A",
    b"b",
    b"B",
    b"d",
    b"r",
    b"_M",
    b"QPassSignals:",
    b"QProgramSignals:",
    b"qSearch:memory:1000;20;",
    b"qRcmd,66696e6420",
    b"686973746f7279",
    b"6d61726b20",
    b"7374617473",
    b"7365656b2d6f6e2d636f6e74696e756520",
    b"323525",
    b"317573",
    b";X1,27",
    b";X4,26001027",
    b"vRun;",
    b"vAttach;",
    b"QEnvironmentHexEncoded:",
    b"QEnvironmentUnset:",
    b"QSetWorkingDir:",
    b"QDisableRandomization:",
    b"QStartupWithShell:1",
    b"QCatchSyscalls:1",
    b"QListThreadsInStopReply",
    b"qThreadStopInfo",
    b"qMemoryRegionInfo:",
    b"jThreadsInfo",
    b"qHostInfo",
    b"qProcessInfo",
    b"QSaveRegisterState",
    b"_M1000,rw",
    b"_m410000000000",
    b"QRestoreRegisterState:1",
    b"jLLDBTraceSupported",
    b"jLLDBTraceStart:{\"type\":\"intel-pt\"}]",
    b"jLLDBTraceGetState:{\"type\":\"intel-pt\"}]",
    b"jLLDBTraceGetBinaryData:{\"type\":\"intel-pt\",\"kind\":\"iptTrace\",\"tid\":1}]",
];

/// Replies to one packet never come to more: two of the largest, and console output.
const REPLY_LIMIT_BYTES: usize = 1 << 20;

pub(crate) fn feed(bytes: &[u8], _: &Path, traits: &mut Traits) {
    let mut hostile = Client::new(bytes.split(|byte| *byte == b'\n').collect());
    let mut next = Client::new(vec![b"?", b"m1000,1", b"bc"]);
    let options = Options { edge_as_trap: bytes.len() % 2 == 1, ..Options::default() };
    let session = Session::new(Recorded::at_end(history()));
    serve_streams([&mut hostile, &mut next], session, &options);
    hostile.hang_up();
    next.hang_up();
    for (sent, replies) in &hostile.exchanges {
        assert!(replies.len() <= REPLY_LIMIT_BYTES, "{} bytes", replies.len());
        let mut before = command(sent);
        for body in bodies(replies) {
            let class = class(body);
            traits.note((before, class));
            before = class;
        }
    }
    let may_kill = bytes.contains(&b'k') || bytes.windows(5).any(|word| word == b"vKill");
    if next.exchanges.is_empty() {
        assert!(may_kill, "the next client is not served");
        return;
    }
    let replies: Vec<_> = next.exchanges.iter().flat_map(|(_, bytes)| bodies(bytes)).collect();
    let [stop, memory, edge] = replies.as_slice() else { panic!("{} replies", replies.len()) };
    let arrived = stop.starts_with(b"T0bthread:") || stop.starts_with(b"T05thread:");
    assert!(arrived);
    assert_eq!(memory, b"90");
    assert!(edge.starts_with(b"T05thread:"));
}

/// Which word a packet begins with: the longest, by its number.
fn command(body: &[u8]) -> usize {
    let begins = WORDS.iter().enumerate().filter(|(_, word)| body.starts_with(word));
    begins.max_by_key(|(_, word)| word.len()).map_or(0, |(number, _)| 1 + number)
}

/// What kind of reply it is.
fn class(body: &[u8]) -> usize {
    const STOPS: [&[u8]; 5] = [b"swbreak", b"hwbreak", b"begin", b"end", b"reason"];
    let has = |word: &[u8]| body.windows(word.len()).any(|part| part == word);
    let size = 10 * (usize::BITS - body.len().leading_zeros()) as usize;
    match body {
        [] => 1000,
        b"OK" => 1001,
        [b'E', b'.', ..] => 1002,
        [b'E', code @ ..] => 1100 + usize::from(code.iter().fold(0_u8, |a, b| a.wrapping_add(*b))),
        [b'T', ..] => STOPS.iter().fold(1, |bits, word| 2 * bits + usize::from(has(word))) + 2000,
        [b'O', ..] => 1003,
        [b'm' | b'l', ..] => 3000 + size + usize::from(body[0] == b'm'),
        _ => 4000 + size,
    }
}

/// The bodies in what the server sent. Nothing but framed packets and acknowledgements is there.
fn bodies(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut bodies = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        if matches!(first, b'+' | b'-') {
            continue;
        }
        assert_eq!(*first, b'$', "no packet");
        let end = rest.iter().position(|byte| *byte == b'#').expect("a whole packet");
        let sum = rest[..end].iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(rest.get(end + 1..end + 3), Some(format!("{sum:02x}").as_bytes()));
        bodies.push(&rest[..end]);
        bytes = &rest[end + 3..];
    }
    bodies
}

/// A client that sends its packets one at a time, whatever the server says.
struct Client<'a> {
    packets: std::vec::IntoIter<&'a [u8]>,
    /// What is being sent, and how far it is.
    sending: (Vec<u8>, usize),
    sent: Option<&'a [u8]>,
    replies: Vec<u8>,
    /// What was sent, and what came back.
    exchanges: Vec<(&'a [u8], Vec<u8>)>,
}

impl<'a> Client<'a> {
    fn new(packets: Vec<&'a [u8]>) -> Self {
        let packets = packets.into_iter();
        let (sending, replies) = ((Vec::new(), 0), Vec::new());
        Self { packets, sending, sent: None, replies, exchanges: Vec::new() }
    }

    /// Keeps what came back for what was sent last.
    fn hang_up(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.exchanges.push((sent, std::mem::take(&mut self.replies)));
        }
    }
}

impl Read for Client<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.sending.1 == self.sending.0.len() {
            self.hang_up();
            let Some(packet) = self.packets.next() else { return Ok(0) };
            self.sent = Some(packet);
            self.sending = (framed(packet), 0);
        }
        let (bytes, from) = &mut self.sending;
        let count = (bytes.len() - *from).min(buf.len());
        buf[..count].copy_from_slice(&bytes[*from..*from + count]);
        *from += count;
        Ok(count)
    }
}

impl Write for Client<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.replies.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn framed(packet: &[u8]) -> Vec<u8> {
    if let Some(raw) = packet.strip_prefix(b"!") {
        return raw.to_vec();
    }
    let sum = packet.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    [b"$", packet, format!("#{sum:02x}").as_bytes()].concat()
}

/// Two threads, and all that a run can have besides.
fn history() -> Scripted {
    let mut history = Scripted::default();
    let mut add = |tid, pc, transfer| {
        let instruction = Instruction { tid: Tid(tid), pc: Addr(pc), size_bytes: 2, transfer };
        history.instructions.push(instruction);
    };
    for _ in 0..8 {
        add(1, 0x1000, Transfer::None);
        add(1, 0x1002, Transfer::Call);
        add(2, 0x2000, Transfer::None);
        add(1, 0x1010, Transfer::None);
        add(2, 0x2002, Transfer::None);
        add(1, 0x1012, Transfer::Return);
        add(2, 0x2004, Transfer::None);
        add(1, 0x1004, Transfer::None);
    }
    let mut registers = KnownRegisters::default();
    registers.set(Register::RIP, Some(0x1006));
    registers.set(Register::RSP, Some(0x7fff_0000));
    history.final_registers.insert(Tid(1), registers);
    history.final_thread = Some(Tid(1));
    history.names.insert(Tid(2), "a<b".to_owned());
    history.constant_memory.push((Addr(0x1000), Arc::from([0x90; 0x20])));
    history.final_memory.push((Addr(0x7fff_0000), Arc::from([7; 8])));
    history.exec_file = Some("/bin/true".into());
    history.files.insert("/bin/true".into(), Arc::from(*b"#$}*elf"));
    history.auxv = Some(vec![3; 64]);
    history.libraries = Some(vec![Library {
        path: "/lib/libc.so".to_owned(),
        namespace: 0,
        link_map: Addr(0x10),
        load_bias: Addr(0x20),
        dynamic: Addr(0x30),
    }]);
    history.traces.insert(Tid(1), vec![2, 0x82]);
    history.description.ending = Ending::Signal(11);
    history.gaps.push(GapInfo {
        position: 8,
        tid: Tid(2),
        offset_bytes: 1,
        last_ip: None,
        reason: "no code is known at 0x0".to_owned(),
    });
    history.index()
}
