//! The server without gdb: packets in, packets out, over a history of two threads.

mod control;
mod data;
mod wire;

use super::client::{Client, ConnectionEnd};
use super::frame::{self, Framer, Unit};
use super::hex;
use super::server::Options;
use super::target::Served;
use super::transport::Transport;
use crate::common::{Addr, Tid};
use crate::session::{
    CodeLocation, Ending, Instruction, KnownRegisters, Library, Recorded, Register, Scripted,
    Session, Transfer,
};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Returns a history: thread 1 runs at 0x1000 and up and calls 0x1010, thread 2 at 0x2000 and up.
fn history() -> Scripted {
    let mut history = Scripted::default();
    let mut add = |tid, pc, transfer| {
        let instruction = Instruction { tid: Tid(tid), pc: Addr(pc), size_bytes: 2, transfer };
        history.instructions.push(instruction);
    };
    add(1, 0x1000, Transfer::None);
    add(1, 0x1002, Transfer::Call);
    add(2, 0x2000, Transfer::None);
    add(1, 0x1010, Transfer::None);
    add(2, 0x2002, Transfer::None);
    add(1, 0x1012, Transfer::Return);
    add(2, 0x2004, Transfer::None);
    add(1, 0x1004, Transfer::None);
    for (tid, rip) in [(1, 0x1006), (2, 0x2006)] {
        let mut registers = KnownRegisters::default();
        registers.set(Register::RIP, Some(rip));
        registers.set(Register::RSP, Some(0x7fff_0000));
        history.final_registers.insert(Tid(tid), registers);
    }
    history.final_thread = Some(Tid(1));
    history.names.insert(Tid(2), "a<b".to_owned());
    history.constant_memory.push((Addr(0x1000), Arc::from([0x90; 0x20])));
    // As much as a search reads at once.
    history.constant_memory.push((Addr(0x10_0000), Arc::from(vec![0x90; 1 << 16])));
    history.final_memory.push((Addr(0x7fff_0000), Arc::from([7; 8])));
    history.exec_file = Some("/bin/true".into());
    history.files.insert("/bin/true".into(), Arc::from(*b"#$}*elf"));
    history.libraries = Some(vec![Library {
        path: "/lib/libc.so".to_owned(),
        namespace: 0,
        link_map: Addr(0x10),
        load_bias: Addr(0x20),
        dynamic: Addr(0x30),
    }]);
    history.traces.insert(Tid(1), vec![2, 0x82]);
    history.step_ns = Some(1000);
    history.started_unix_ns = Some(1_000_000_000);
    let place = |offset| CodeLocation {
        function: "callee".to_owned(),
        offset,
        line: Some(("call.c".to_owned(), 7)),
    };
    history.places = [(Addr(0x1010), place(0)), (Addr(0x1012), place(2))].into();
    history.index()
}

/// A connection with prepared input, which collects the output.
#[derive(Default)]
struct Wire {
    input: VecDeque<Vec<u8>>,
    output: Vec<u8>,
}

impl Transport for Wire {
    fn wait_for_bytes(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.input.pop_front().unwrap_or_default())
    }

    fn poll(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.input.pop_front())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.extend_from_slice(bytes);
        Ok(())
    }
}

fn exchange_bytes(options: &Options, input: Vec<Vec<u8>>) -> (Vec<u8>, ConnectionEnd) {
    let mut served = Served::new(Session::new(Recorded::at_end(history())));
    let mut wire = Wire { input: input.into(), output: Vec::new() };
    let ended = Client::new(&mut served, &mut wire, options).serve().unwrap();
    (wire.output, ended)
}

fn bodies(bytes: &[u8]) -> Vec<String> {
    let mut framer = Framer::default();
    framer.push(bytes);
    std::iter::from_fn(|| framer.take_unit())
        .filter_map(|unit| match unit {
            Unit::Packet(body) => Some(String::from_utf8_lossy(&body).into_owned()),
            _ => None,
        })
        .collect()
}

fn exchange_with(options: &Options, packets: &[&[u8]]) -> Vec<String> {
    let input = packets.iter().map(|packet| frame::encode(packet)).collect();
    bodies(&exchange_bytes(options, input).0)
}

/// Returns the replies to packets, one each, without console output.
fn exchange(packets: &[&str]) -> Vec<String> {
    let packets: Vec<&[u8]> = packets.iter().map(|packet| packet.as_bytes()).collect();
    let mut replies = exchange_with(&Options::default(), &packets);
    replies.retain(|reply| reply == "OK" || !reply.starts_with('O'));
    assert_eq!(replies.len(), packets.len(), "{replies:?}");
    replies
}

/// Returns the reply to the last of some packets.
fn last(packets: &[&str]) -> String {
    exchange(packets).pop().unwrap()
}

fn hex_text(reply: &str) -> String {
    let bytes: Vec<u8> = reply
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| hex::number(pair).unwrap().to_le_bytes()[0])
        .collect();
    String::from_utf8(bytes).unwrap()
}
