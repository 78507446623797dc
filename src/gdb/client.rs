//! One client: reads its packets, answers each, and resumes the session on request. The bytes come
//! through its [`Connection`]; `life` has the starts and ends of programs, and `script` the packets
//! of contraflow's script for gdb. Packets that need none of the client's state are in files of
//! `gdb`.

mod connection;
mod life;
mod script;

use super::chosen::Chosen;
use super::conditions::Conditions;
use super::finish::Finish;
use super::frame::{self, Unit};
use super::keep_alive::{self, KeepAlive};
use super::remedies;
use super::resume;
use super::saved::SavedRegisters;
use super::server::Options;
use super::source_line::SourceLine;
use super::start::Preparation;
use super::stub::Stub;
use super::supported::{self, ClientFeatures};
use super::target::Served;
use super::thread_id::{self, ThreadChoice};
use super::transport::Transport;
use super::{
    allocation, btrace, catches, hex, hints, lldb, lldb_trace, memory, monitor, search, stack,
    stop_reply, thread_local, xfer,
};
use crate::session::{Forks, Run, Start, Stop, StopReason};
use connection::Connection;
use std::cell::{Cell, RefCell};
use std::io;

/// The maximum number of bytes of console output in one packet.
const CONSOLE_BYTES: usize = 1000;

/// The end of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The client detached.
    Detached,
    /// The client killed the program.
    Killed,
    /// The client closed the connection, or the server shall end.
    Gone,
}

/// The reaction to a packet.
enum Answer {
    /// Send this body.
    Reply(Vec<u8>),
    /// Send these packets, which are framed already.
    Framed(Vec<u8>),
    /// Send nothing.
    Nothing,
    /// Send this body, if any, and end the connection.
    End(Option<&'static [u8]>, ConnectionEnd),
}

impl Answer {
    fn ok() -> Self {
        Self::Reply(b"OK".to_vec())
    }

    /// Returns the error reply `E01`, for a malformed packet or a thread that does not exist.
    fn malformed() -> Self {
        Self::Reply(b"E01".to_vec())
    }
}

/// Returns framed packets that print a text on the client's console; none for an empty text.
fn console(text: &str) -> Vec<u8> {
    let pieces = text.as_bytes().chunks(CONSOLE_BYTES);
    pieces.flat_map(|piece| frame::encode(format!("O{}", hex::encode(piece)).as_bytes())).collect()
}

/// A client being served.
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(super) struct Client<'a, R: Run> {
    served: &'a mut Served<R>,
    options: &'a Options,
    stub: Stub<R>,
    connection: RefCell<Connection<'a>>,
    chosen: Chosen,
    features: ClientFeatures,
    /// The source line over which gdb steps back.
    source_line: Option<SourceLine>,
    /// The end of gdb's current `finish`.
    finish: Option<Finish>,
    /// True if the client requested that writable memory is hidden.
    hides_data: bool,
    /// True until the client turns acknowledgements off.
    acknowledges: bool,
    /// True for `target extended-remote`, which stays connected after the program's end.
    extended: bool,
    /// The client's settings for the next program.
    preparation: Preparation,
    conditions: Conditions,
    saved: SavedRegisters,
    /// The position to move to at the next resume, instead of running.
    pending_seek: Option<u64>,
    /// True once LLDB has read a register with `p`.
    probed: bool,
    /// True after a Ctrl-C that no stop has reported: the next resume reports it, and runs nothing.
    interrupted: bool,
    /// The last reply as sent, for a client that asks for it again.
    last_sent: Vec<u8>,
}

impl<'a, R: Run> Client<'a, R> {
    pub(super) fn new(
        served: &'a mut Served<R>,
        transport: &'a mut dyn Transport,
        options: &'a Options,
    ) -> Self {
        let stopped = served.session.last_stop().thread;
        let connection = Connection::new(transport, options);
        Self {
            served,
            options,
            stub: Stub::new(),
            connection: RefCell::new(connection),
            chosen: Chosen::stopped_at(stopped),
            features: ClientFeatures::default(),
            source_line: None,
            finish: None,
            hides_data: false,
            acknowledges: true,
            extended: false,
            preparation: Preparation::default(),
            conditions: Conditions::default(),
            saved: SavedRegisters::default(),
            pending_seek: None,
            probed: false,
            interrupted: false,
            last_sent: Vec::new(),
        }
    }

    /// Serves the client until it leaves, and returns how it left. Fails if the connection breaks.
    pub(super) fn serve(mut self) -> io::Result<ConnectionEnd> {
        loop {
            let Some(unit) = self.connection.get_mut().next_unit(&mut self.served.session)? else {
                return Ok(ConnectionEnd::Gone);
            };
            match unit {
                Unit::Packet(body) => {
                    self.acknowledge(b"+")?;
                    let keep_alive = self.keep_alive_during(&body);
                    let answer = self.answer(&body);
                    drop(keep_alive);
                    match answer {
                        Answer::Reply(body) => self.send(frame::encode(&body))?,
                        Answer::Framed(packets) => self.send(packets)?,
                        Answer::Nothing => {}
                        Answer::End(reply, ended) => {
                            reply.map_or(Ok(()), |body| self.send(frame::encode(body)))?;
                            return Ok(ended);
                        }
                    }
                }
                Unit::Damaged => self.acknowledge(b"-")?,
                Unit::Nack => self.connection.get_mut().send(&self.last_sent)?,
                // gdb often resumes automatically after a stop, as at a breakpoint with commands,
                // and may send Ctrl-C between any two packets then. LLDB sends it to running
                // programs only, and accepts any stop as the answer.
                Unit::Interrupt => self.interrupted |= !self.features.lldb,
                Unit::Ack => {}
            }
        }
    }

    /// Starts to keep gdb waiting if packet `body` may take long; the caller drops the returned
    /// guard before it sends the reply. Returns `None` for other packets, for LLDB, and for a
    /// transport that cannot send from another thread.
    fn keep_alive_during(&self, body: &[u8]) -> Option<KeepAlive> {
        let takes_long = [&b"vAttach;"[..], b"vRun;", b"vKill", b"D", b"Qbtrace:pt"];
        if self.features.lldb || !takes_long.iter().any(|packet| body.starts_with(packet)) {
            return None;
        }
        let sender = self.connection.borrow().sender()?;
        Some(KeepAlive::start(sender, keep_alive::PERIOD))
    }

    /// Sends an acknowledgement, unless the client has turned them off.
    fn acknowledge(&mut self, sign: &[u8]) -> io::Result<()> {
        if self.acknowledges { self.connection.get_mut().send(sign) } else { Ok(()) }
    }

    /// Sends framed packets, with run lengths if the client expands them, and keeps them in case
    /// that the client asks for them again.
    fn send(&mut self, packets: Vec<u8>) -> io::Result<()> {
        self.last_sent =
            if self.features.expands_runs { frame::encode_run_lengths(packets) } else { packets };
        self.connection.get_mut().send(&self.last_sent)
    }

    /// Handles a packet. Of those that are not about run control or the connection, most are left
    /// to [`Self::answer_data`].
    fn answer(&mut self, body: &[u8]) -> Answer {
        match body {
            b"?" if self.has_no_program() => Answer::Reply(b"W00".to_vec()),
            b"?" => self.first_stop(),
            b"!" => {
                self.extended = true;
                Answer::ok()
            }
            [b'R', unused @ ..] if hex::number(unused).is_some() => {
                // The packet has no reply; the client sends `?` next.
                self.start(&Ok(Start::Again));
                Answer::Nothing
            }
            b"k" => self.kill(None, None),
            b"D" => self.detach(None),
            b"QStartNoAckMode" => {
                self.acknowledges = false;
                Answer::ok()
            }
            b"qC" => {
                let (session, features) = (&self.served.session, self.features);
                let tid = features.thread_id(session, session.last_stop().thread);
                Answer::Reply(format!("QC{tid}").into_bytes())
            }
            // An exact recording needs no script.
            b"qTStatus" if self.served.session.run().is_exact() => Answer::Reply(Vec::new()),
            b"qTStatus" => Answer::Framed(hints::script_hint()),
            b"vCont?" => Answer::Reply(resume::ACTIONS.to_vec()),
            [b'H', kind @ (b'g' | b'c'), id @ ..] => self.choose_thread(*kind, id),
            [b'T', id @ ..] => self.select_thread(id),
            _ if body.starts_with(b"vKill") => {
                let pid = body.strip_prefix(b"vKill;").and_then(thread_id::process);
                self.kill(pid, Some(b"OK"))
            }
            _ if body.starts_with(b"D;") => self.detach(thread_id::process(&body[2..])),
            _ if body.starts_with(b"qRcmd,") => self.monitor(&body[b"qRcmd,".len()..]),
            _ if body.starts_with(b"qSupported") => self.negotiate(body),
            _ if resume::is_resume(body) => self.resume(body),
            _ => self.answer_data(body),
        }
    }

    /// Executes the monitor command of `qRcmd`, and replies with its text. Notes a move to repeat
    /// at the next resume, which any later move replaces, and whether the server ends when the client
    /// leaves.
    fn monitor(&mut self, command: &[u8]) -> Answer {
        let Some(command) = hex::decode(command) else { return Answer::malformed() };
        let command = String::from_utf8_lossy(&command).into_owned();
        self.connection.get_mut().put_off_poll();
        let connection = &self.connection;
        let interrupted = || connection.borrow_mut().is_interrupted();
        // A client that has gone is noticed later.
        let say = |text: &str| drop(connection.borrow_mut().send(&console(text)));
        let answer = monitor::answer(&mut self.served.session, &command, &interrupted, &say);
        if answer.has_moved {
            self.pending_seek = answer.repeat_at_resume;
        }
        self.served.ends_with_client |= answer.exits;
        let mut packets = console(&answer.text);
        packets.extend(frame::encode(b"OK"));
        Answer::Framed(packets)
    }

    /// Handles the packets that are neither about run control nor about the connection: asks each
    /// file that handles some of them, and passes the rest to gdbstub. A packet about a thread that
    /// does not exist now gets an error, and gdb's `Z3` the empty reply of an unsupported packet.
    fn answer_data(&mut self, body: &[u8]) -> Answer {
        let named =
            Some(body).filter(|_| self.features.names_threads).and_then(lldb::split_thread_suffix);
        let (body, tid) = named.unwrap_or((body, self.chosen.thread_to_read()));
        let needs_thread = named.is_some() || lldb::concerns_one_thread(body);
        if needs_thread && !self.served.session.is_alive(tid) {
            return Answer::malformed();
        }
        if body == b"qfThreadInfo" || body.starts_with(b"qXfer:threads:") {
            self.chosen.note_listing();
        }
        if let Some(id) = body.strip_prefix(b"qContraflow.select:") {
            return self.select_thread(id);
        }
        if let Some(reply) = self.answer_program_packet(body) {
            return Answer::Reply(reply);
        }
        if let Some(list) = body.strip_prefix(b"QPassSignals:") {
            let signals = self.features.signals.parse_set(list);
            let Some(signals) = signals else { return Answer::malformed() };
            self.served.session.run_mut().set_passed_signals(signals);
            return Answer::ok();
        }
        if let Some(understood) = self.note_script_report(body) {
            return if understood { Answer::ok() } else { Answer::malformed() };
        }
        if body == b"qContraflow.exact:" {
            let is_exact = self.served.session.run().is_exact();
            return Answer::Reply(u8::from(is_exact).to_string().into_bytes());
        }
        if let Some(text) = body.strip_prefix(b"qContraflow.stack:") {
            let reply = stack::answer(&self.served.session, text);
            return reply.map_or_else(Answer::malformed, Answer::Reply);
        }
        if body.starts_with(b"m") || body.starts_with(b"x") {
            let reply = memory::answer(&self.served.session, tid, body, self.hides_data);
            return reply.map_or_else(Answer::malformed, Answer::Reply);
        }
        if let Some(reply) = xfer::answer(self.served, self.features, tid, body) {
            return Answer::Reply(reply);
        }
        let connection = &self.connection;
        let interrupted = || connection.borrow_mut().is_interrupted();
        if let Some(reply) = search::answer(&self.served.session, tid, body, &interrupted)
            .or_else(|| btrace::answer(self.served, body, &interrupted))
            .or_else(|| catches::answer(&mut self.served.session, body))
            .or_else(|| thread_local::answer(&self.served.session, body))
            .or_else(|| lldb_trace::answer(&self.served.session, body, &interrupted))
            .or_else(|| self.saved.answer(&mut self.served.session, tid, body))
            .or_else(|| allocation::answer(&mut self.served.session, body))
        {
            return Answer::Reply(reply);
        }
        if let Some(reply) = self.answer_lldb_packet(body) {
            return Answer::Reply(reply);
        }
        // The CPU stops at reads and writes alike. gdb then watches both, and compares values.
        if body.starts_with(b"Z3,") && !self.features.lldb {
            return Answer::Reply(Vec::new());
        }
        // Breakpoints removed from a child after its fork stay in its parent.
        let of_child = body.starts_with(b"z") && self.served.session.run().is_beside(tid);
        let noted =
            if of_child { Some(body) } else { self.conditions.note_breakpoint_packet(body) };
        let Some(body) = noted else { return Answer::malformed() };
        let stub = &mut self.stub;
        let packets = self.served.with_breakpoints_of(tid, |served| stub.answer(served, tid, body));
        match self.served.refusal.take() {
            Some(error) => Answer::Reply(remedies::error_reply(&error)),
            None if self.hides_unavailable(body, &packets) => Answer::Reply(b"E45".to_vec()),
            None => Answer::Framed(packets),
        }
    }

    /// Returns true if the answer to a register read is replaced by an error: LLDB reads an
    /// unavailable register (`xx`) as bytes of 0xcc, but understands an error. Notes LLDB's first
    /// `p`, which only probes for the packet, and returns false for it.
    fn hides_unavailable(&mut self, body: &[u8], packets: &[u8]) -> bool {
        let asks_register = self.features.lldb && body.starts_with(b"p");
        let probes = asks_register && !std::mem::replace(&mut self.probed, true);
        asks_register && !probes && packets.starts_with(b"$xx")
    }

    /// Handles `qSupported`: notes the client's features and returns the server's. Keeps those that
    /// other packets announced. If the run cannot stop at forks, drops these, and multiprocess too
    /// unless gdb looks at an exact run. From now on the run stops at the client's forks.
    fn negotiate(&mut self, body: &[u8]) -> Answer {
        // LLDB sends the packet again after others that announced features.
        let ClientFeatures { lists_threads, names_threads, signals, .. } = self.features;
        let said = supported::parse(body);
        self.features = ClientFeatures { lists_threads, names_threads, signals, ..said };
        let packets = self.stub.answer(
            self.served,
            self.chosen.thread_to_read(),
            b"qSupported:xmlRegisters=i386",
        );
        let features = frame::first_body(&packets).unwrap_or_default();
        let run = self.served.session.run_mut();
        if !run.can_catch_forks() {
            self.features.forks = Forks::default();
            // gdb reads the mappings of a process whose number it knows.
            self.features.multiprocess &= run.is_exact() && !self.features.lldb;
        }
        run.catch_forks(self.features.forks);
        Answer::Reply(supported::extend(&features, self.features, run.can_catch_calls()))
    }

    /// Handles `Hg` and `Hc`. Refuses a thread that does not exist now, but keeps the choice (see
    /// [`Chosen`]). `Hg` for any or all threads chooses the thread of the last stop.
    fn choose_thread(&mut self, kind: u8, id: &[u8]) -> Answer {
        let Some(choice) = thread_id::parse(id) else { return Answer::malformed() };
        let session = &self.served.session;
        let (named, exists) = match choice {
            ThreadChoice::One(tid) => (Some(tid), session.is_alive(tid)),
            ThreadChoice::All | ThreadChoice::Any => (None, true),
        };
        let stopped = session.last_stop().thread;
        match named {
            _ if kind == b'c' => self.chosen.resume_only(named),
            Some(tid) if !exists => self.chosen.read_from_missing(tid),
            _ => self.chosen.read_from(named.unwrap_or(stopped)),
        }
        if exists { Answer::ok() } else { Answer::malformed() }
    }

    /// Handles `T`, which gdb sends when its user selects a thread, and a script's request to
    /// select one. The reply is an error for a thread that does not exist now, and for an ID that
    /// does not name a single thread.
    fn select_thread(&mut self, id: &[u8]) -> Answer {
        match thread_id::parse(id) {
            Some(ThreadChoice::One(tid)) if self.served.session.is_alive(tid) => {
                self.chosen.select(tid);
                Answer::ok()
            }
            _ => Answer::malformed(),
        }
    }

    /// Handles a run control packet: runs until a stop to report, and returns the stop reply. A
    /// pending Ctrl-C, or a position to move to, takes the place of the run; if the move fails, the
    /// run takes place. Returns an error, and runs nothing, if the packet is malformed, the chosen
    /// thread does not exist now, or the session refuses the order.
    fn resume(&mut self, body: &[u8]) -> Answer {
        let Some(mut resume) = resume::parse(body, &self.chosen, self.features.signals) else {
            return Answer::malformed();
        };
        self.choose_thread_of_process(&mut resume);
        if let Some(tid) = self.missing_thread(body) {
            return Answer::Reply(format!("E.thread {tid} does not exist here").into_bytes());
        }
        if let Some(error) = self.served.session.refusal(&resume.order) {
            return Answer::Reply(remedies::error_reply(&error));
        }
        self.served.document = None;
        if std::mem::take(&mut self.interrupted) {
            let thread = self.served.session.last_stop().thread;
            let stop = Stop { thread, reason: StopReason::Interrupted };
            return Answer::Reply(self.stop_reply(stop));
        }
        if let Some(target) = self.pending_seek.take()
            && let Ok(stop) = self.served.session.seek(target)
        {
            self.chosen.note_stop(stop.thread);
            return Answer::Reply(self.stop_reply(stop));
        }
        self.connection.get_mut().put_off_poll();
        let connection = &self.connection;
        let asked = Cell::new(false);
        let interrupted = || {
            asked.set(connection.borrow_mut().is_interrupted() || asked.get());
            asked.get()
        };
        let session = &mut self.served.session;
        let over = self.source_line.filter(|line| line.applies_to(session, &resume.order));
        let mut stop = resume.run(session, &self.conditions, &interrupted);
        while over.is_some_and(|line| line.would_step_on(session, stop)) {
            if interrupted() {
                stop.reason = StopReason::Interrupted;
                break;
            }
            stop = resume.run(session, &self.conditions, &interrupted);
        }
        self.chosen.note_stop(stop.thread);
        // The run may have stopped for another reason at the moment of the interrupt.
        let is_over = matches!(stop.reason, StopReason::Interrupted | StopReason::Gone(_));
        self.interrupted = asked.get() && !is_over && !self.features.lldb;
        self.answer_with_notes(stop)
    }

    /// Returns the reply for a stop, in terms that the client understands.
    fn stop_reply(&self, stop: Stop) -> Vec<u8> {
        stop_reply::format(&self.served.session, stop, self.features, self.options.edge_as_trap)
    }
}
