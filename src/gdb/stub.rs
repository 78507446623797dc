//! gdbstub's state machine, restarted after every failure, which is answered with an error. It is
//! always in no-ack mode, since the client side handles acknowledgements.

use super::frame::{self, PACKET_SIZE_BYTES};
use super::target::Served;
use super::thread_id;
use crate::common::Tid;
use crate::session::Run;
use gdbstub::conn::Connection;
use gdbstub::stub::GdbStub;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use std::convert::Infallible;

/// A buffer for the output of gdbstub.
#[derive(Debug, Default)]
struct Output(Vec<u8>);

impl Connection for Output {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> Result<(), Infallible> {
        self.0.push(byte);
        Ok(())
    }

    fn write_all(&mut self, buf: &[u8]) -> Result<(), Infallible> {
        self.0.extend_from_slice(buf);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

type Machine<R> = GdbStubStateMachine<'static, Served<R>, Output>;

/// gdbstub for one client.
pub(super) struct Stub<R: Run> {
    /// gdbstub's state; `None` before the first packet and after a failure.
    machine: Option<Machine<R>>,
    /// The thread that the last `Hg` chose in gdbstub; `None` if another `Hg` must be sent first.
    thread: Option<Tid>,
}

impl<R: Run> Stub<R> {
    pub(super) fn new() -> Self {
        Self { machine: None, thread: None }
    }

    /// Returns the framed answer of gdbstub to one packet, with `thread` chosen for it. gdbstub's
    /// failure is an error packet.
    pub(super) fn answer(&mut self, served: &mut Served<R>, thread: Tid, body: &[u8]) -> Vec<u8> {
        if self.machine.is_none() {
            self.thread = None;
            self.machine = start(served);
            self.feed(served, b"QStartNoAckMode");
        }
        if self.thread != Some(thread) {
            let select = format!("Hg{}", thread_id::format(thread));
            let reply = self.feed(served, select.as_bytes());
            // Refused for a thread that does not exist now, but may exist after a seek.
            self.thread = (reply == frame::encode(b"OK")).then_some(thread);
        }
        self.feed(served, body)
    }

    /// Passes one packet to gdbstub byte by byte, and returns its framed answer. After a failure
    /// there is no machine, so that the next packet starts another one.
    fn feed(&mut self, served: &mut Served<R>, body: &[u8]) -> Vec<u8> {
        for byte in frame::encode(body) {
            let next = match self.machine.take() {
                Some(GdbStubStateMachine::Idle(idle)) => idle.incoming_data(served, byte).ok(),
                _ => None,
            };
            // The packet was malformed, or gdbstub ended the session for it.
            let Some(next) = next else { return frame::encode(b"E01") };
            self.machine = Some(next);
        }
        self.take_output()
    }

    /// Takes the answer that gdbstub has written. If its session has ended, drops it, and returns
    /// an error packet.
    fn take_output(&mut self) -> Vec<u8> {
        if let Some(GdbStubStateMachine::Idle(idle)) = &mut self.machine {
            return std::mem::take(&mut idle.borrow_conn().0);
        }
        // gdbstub never runs the program here: in any other state, its session has ended.
        self.machine = None;
        frame::encode(b"E01")
    }
}

/// Starts gdbstub on an empty buffer; `None` if it refuses.
fn start<R: Run>(served: &mut Served<R>) -> Option<Machine<R>> {
    let builder = GdbStub::builder(Output::default()).packet_buffer_size(PACKET_SIZE_BYTES);
    builder.build().ok()?.run_state_machine(served).ok()
}
