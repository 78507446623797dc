//! One client: reads its packets, answers each, and resumes the session on request.

mod life;
mod script;

use super::chosen::Chosen;
use super::conditions::Conditions;
use super::finish::Finish;
use super::frame::{self, Framer, Unit};
use super::patience::{self, Patience};
use super::remedies;
use super::resume;
use super::saved::Saved;
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
use crate::session::{AnySession, Forks, Run, Start, Stop, StopReason};
use std::cell::{Cell, RefCell};
use std::io;
use std::time::{Duration, Instant};

/// The maximum number of bytes of console output in one packet.
const CONSOLE_BYTES: usize = 1000;
/// The period at which a running search checks for Ctrl-C.
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// The end of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
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
    End(Option<&'static [u8]>, Ended),
}

impl Answer {
    fn ok() -> Self {
        Self::Reply(b"OK".to_vec())
    }

    fn malformed() -> Self {
        Self::Reply(b"E01".to_vec())
    }
}

/// Returns packets that print a text on the client's console.
fn console(text: &str) -> Vec<u8> {
    let pieces = text.as_bytes().chunks(CONSOLE_BYTES);
    pieces.flat_map(|piece| frame::encode(format!("O{}", hex::encode(piece)).as_bytes())).collect()
}

/// A client's connection: receives units (packets, acknowledgements, Ctrl-C), sends bytes.
struct Line<'a> {
    transport: &'a mut dyn Transport,
    options: &'a Options,
    framer: Framer,
    /// The time of the last check for Ctrl-C.
    polled: Instant,
    /// True if the client has gone.
    broken: bool,
}

impl Line<'_> {
    /// Returns the next unit; `None` if the client has gone, or the server shall end. Puts
    /// questions of other threads to the session if they arrive before the unit.
    fn next(&mut self, session: &mut dyn AnySession) -> io::Result<Option<Unit>> {
        loop {
            while let Some(question) = self.transport.question() {
                question(session);
            }
            if let Some(unit) = self.framer.take() {
                return Ok(Some(unit));
            }
            if self.broken || (self.options.is_to_end)() {
                return Ok(None);
            }
            match self.transport.wait() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.idle(session),
                Ok(bytes) if bytes.is_empty() => return Ok(None),
                bytes => self.framer.push(&bytes?),
            }
        }
    }

    /// Lets the run prepare data for later commands until input or a question arrives.
    fn idle(&mut self, session: &mut dyn AnySession) {
        if !self.has_news() {
            let line = RefCell::new(self);
            session.run_mut().use_idle_time(&|| line.borrow_mut().has_news());
        }
    }

    /// Returns true if there is input or a question, the client has gone, or the server shall end.
    fn has_news(&mut self) -> bool {
        self.poll();
        let has_input = self.framer.has_input() || self.transport.has_question();
        self.broken || has_input || (self.options.is_to_end)()
    }

    /// Returns true if the user pressed Ctrl-C, the client has gone, or the server shall end.
    fn is_interrupted(&mut self) -> bool {
        if self.polled.elapsed() < POLL_PERIOD {
            return false;
        }
        self.polled = Instant::now();
        self.poll();
        self.broken || self.framer.take_interrupt() || (self.options.is_to_end)()
    }

    /// Reads the bytes that have arrived, without waiting.
    fn poll(&mut self) {
        match self.transport.poll() {
            Ok(Some(bytes)) => {
                self.broken = bytes.is_empty();
                self.framer.push(&bytes);
            }
            Ok(None) => {}
            Err(_) => self.broken = true,
        }
    }
}

/// A client being served.
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(super) struct Client<'a, R: Run> {
    served: &'a mut Served<R>,
    options: &'a Options,
    stub: Stub<R>,
    line: RefCell<Line<'a>>,
    chosen: Chosen,
    features: ClientFeatures,
    /// The source line over which gdb steps back.
    source_line: Option<SourceLine>,
    /// The end of gdb's current `finish`.
    finish: Option<Finish>,
    /// True if the client requested that writable memory is hidden.
    hides_data: bool,
    acknowledges: bool,
    /// True for `target extended-remote`, which stays connected after the program's end.
    extended: bool,
    /// The client's settings for the next program.
    preparation: Preparation,
    conditions: Conditions,
    saved: Saved,
    /// The position to move to at the next resume.
    seeks: Option<u64>,
    /// True once LLDB has read a register with `p`.
    probed: bool,
    /// True after a Ctrl-C that no stop has reported: the next resume reports it, and runs nothing.
    interrupted: bool,
    last_sent: Vec<u8>,
}

impl<'a, R: Run> Client<'a, R> {
    pub(super) fn new(
        served: &'a mut Served<R>,
        transport: &'a mut dyn Transport,
        options: &'a Options,
    ) -> Self {
        let stopped = served.session.last_stop().thread;
        let polled = Instant::now();
        let framer = Framer::default();
        let line = Line { transport, options, framer, polled, broken: false };
        Self {
            served,
            options,
            stub: Stub::new(),
            line: RefCell::new(line),
            chosen: Chosen::stopped_at(stopped),
            features: ClientFeatures::default(),
            source_line: None,
            finish: None,
            hides_data: false,
            acknowledges: true,
            extended: false,
            preparation: Preparation::default(),
            conditions: Conditions::default(),
            saved: Saved::default(),
            seeks: None,
            probed: false,
            interrupted: false,
            last_sent: Vec::new(),
        }
    }

    /// Serves the client until it leaves.
    pub(super) fn serve(mut self) -> io::Result<Ended> {
        loop {
            let Some(unit) = self.line.get_mut().next(&mut self.served.session)? else {
                return Ok(Ended::Gone);
            };
            match unit {
                Unit::Packet(body) => {
                    self.acknowledge(b"+")?;
                    let patience = self.ask_patience(&body);
                    let answer = self.answer(&body);
                    drop(patience);
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
                Unit::Nack => self.line.get_mut().transport.send(&self.last_sent)?,
                // gdb often resumes automatically after a stop, as at a breakpoint with commands,
                // and may send Ctrl-C between any two packets then. LLDB sends it to running
                // programs only, and accepts any stop as the answer.
                Unit::Interrupt => self.interrupted |= !self.features.lldb,
                Unit::Ack => {}
            }
        }
    }

    /// Returns a guard that keeps gdb waiting for the reply to a slow packet; `None` for others.
    fn ask_patience(&self, body: &[u8]) -> Option<Patience> {
        let takes_long = [&b"vAttach;"[..], b"vRun;", b"vKill", b"D", b"Qbtrace:pt"];
        if self.features.lldb || !takes_long.iter().any(|packet| body.starts_with(packet)) {
            return None;
        }
        let sender = self.line.borrow().transport.sender()?;
        Some(Patience::asking(sender, patience::PERIOD))
    }

    fn acknowledge(&mut self, sign: &[u8]) -> io::Result<()> {
        if self.acknowledges { self.line.get_mut().transport.send(sign) } else { Ok(()) }
    }

    fn send(&mut self, packets: Vec<u8>) -> io::Result<()> {
        self.last_sent =
            if self.features.expands_runs { frame::compress(packets) } else { packets };
        self.line.get_mut().transport.send(&self.last_sent)
    }

    fn answer(&mut self, body: &[u8]) -> Answer {
        match body {
            b"?" if self.is_vacant() => Answer::Reply(b"W00".to_vec()),
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
            b"qTStatus" => Answer::Framed(hints::without_script()),
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

    /// Handles `qRcmd`, a monitor command.
    fn monitor(&mut self, command: &[u8]) -> Answer {
        let Some(command) = hex::decode(command) else { return Answer::malformed() };
        let command = String::from_utf8_lossy(&command).into_owned();
        self.line.get_mut().polled = Instant::now();
        let line = &self.line;
        let interrupted = || line.borrow_mut().is_interrupted();
        // A client that has gone is noticed later.
        let say = |text: &str| drop(line.borrow_mut().transport.send(&console(text)));
        let answer = monitor::answer(&mut self.served.session, &command, &interrupted, &say);
        self.seeks = answer.seek.or(self.seeks);
        self.served.exits |= answer.exits;
        let mut packets = console(&answer.text);
        packets.extend(frame::encode(b"OK"));
        Answer::Framed(packets)
    }

    /// Handles packets that read or write, without choosing or running anything.
    fn answer_data(&mut self, body: &[u8]) -> Answer {
        let named = Some(body).filter(|_| self.features.names_threads).and_then(lldb::with_thread);
        let (body, tid) = named.unwrap_or((body, self.chosen.general()));
        let needs_thread = named.is_some() || lldb::is_of_thread(body);
        if needs_thread && !self.served.session.is_alive(tid) {
            return Answer::malformed();
        }
        if body == b"qfThreadInfo" || body.starts_with(b"qXfer:threads:") {
            self.chosen.note_listing();
        }
        if let Some(id) = body.strip_prefix(b"qContraflow.select:") {
            return self.select_thread(id);
        }
        if let Some(reply) = self.answer_of_life(body) {
            return Answer::Reply(reply);
        }
        if let Some(list) = body.strip_prefix(b"QPassSignals:") {
            let signals = self.features.signals.set(list);
            let Some(signals) = signals else { return Answer::malformed() };
            self.served.session.run_mut().set_passed_signals(signals);
            return Answer::ok();
        }
        if let Some(understood) = self.take_of_script(body) {
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
        let line = &self.line;
        let interrupted = || line.borrow_mut().is_interrupted();
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
        if let Some(reply) = self.answer_lldb(body) {
            return Answer::Reply(reply);
        }
        // The CPU stops at reads and writes alike. gdb then watches both, and compares values.
        if body.starts_with(b"Z3,") && !self.features.lldb {
            return Answer::Reply(Vec::new());
        }
        // Breakpoints removed from a child after its fork stay in its parent.
        let of_child = body.starts_with(b"z") && self.served.session.run().is_beside(tid);
        let noted = if of_child { Some(body) } else { self.conditions.note(body) };
        let Some(body) = noted else { return Answer::malformed() };
        let stub = &mut self.stub;
        let packets = self.served.with_breakpoints_of(tid, |served| stub.answer(served, tid, body));
        match self.served.refusal.take() {
            Some(error) => Answer::Reply(remedies::reply(&error)),
            None if self.hides_unavailable(body, &packets) => Answer::Reply(b"E45".to_vec()),
            None => Answer::Framed(packets),
        }
    }

    /// Returns true if a register read must fail: LLDB reads an unavailable register (`xx`) as
    /// bytes of 0xcc, but understands an error. Its first `p` only probes for the packet.
    fn hides_unavailable(&mut self, body: &[u8], packets: &[u8]) -> bool {
        let asks_register = self.features.lldb && body.starts_with(b"p");
        let probes = asks_register && !std::mem::replace(&mut self.probed, true);
        asks_register && !probes && packets.starts_with(b"$xx")
    }

    /// Handles `qSupported`.
    fn negotiate(&mut self, body: &[u8]) -> Answer {
        // LLDB sends the packet again after others that announced features.
        let ClientFeatures { lists_threads, names_threads, signals, .. } = self.features;
        let said = supported::parse(body);
        self.features = ClientFeatures { lists_threads, names_threads, signals, ..said };
        let packets =
            self.stub.answer(self.served, self.chosen.general(), b"qSupported:xmlRegisters=i386");
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

    /// Handles `Hg` and `Hc`. Keeps the choice even if it is refused; see [`Chosen`].
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
            Some(tid) if !exists => self.chosen.look_at_missing(tid),
            _ => self.chosen.look_at(named.unwrap_or(stopped)),
        }
        if exists { Answer::ok() } else { Answer::malformed() }
    }

    /// Handles `T`, which gdb sends when its user selects a thread.
    fn select_thread(&mut self, id: &[u8]) -> Answer {
        match thread_id::parse(id) {
            Some(ThreadChoice::One(tid)) if self.served.session.is_alive(tid) => {
                self.chosen.select(tid);
                Answer::ok()
            }
            _ => Answer::malformed(),
        }
    }

    /// Handles run control. A pending Ctrl-C, or a position to move to, takes the place of the run.
    fn resume(&mut self, body: &[u8]) -> Answer {
        let Some(mut resume) = resume::parse(body, &self.chosen, self.features.signals) else {
            return Answer::malformed();
        };
        self.aim(&mut resume);
        if let Some(tid) = self.missing_thread(body) {
            return Answer::Reply(format!("E.thread {tid} does not exist here").into_bytes());
        }
        if let Some(error) = self.served.session.refusal(&resume.order) {
            return Answer::Reply(remedies::reply(&error));
        }
        self.served.document = None;
        if std::mem::take(&mut self.interrupted) {
            let thread = self.served.session.last_stop().thread;
            let stop = Stop { thread, reason: StopReason::Interrupted };
            return Answer::Reply(self.stop_reply(stop));
        }
        if let Some(target) = self.seeks.take()
            && let Ok(stop) = self.served.session.seek(target)
        {
            self.chosen.stop(stop.thread);
            return Answer::Reply(self.stop_reply(stop));
        }
        self.line.get_mut().polled = Instant::now();
        let line = &self.line;
        let asked = Cell::new(false);
        let interrupted = || {
            asked.set(line.borrow_mut().is_interrupted() || asked.get());
            asked.get()
        };
        let session = &mut self.served.session;
        let over = self.source_line.filter(|line| line.is_left_by(session, &resume.order));
        let mut stop = resume.run(session, &self.conditions, &interrupted);
        while over.is_some_and(|line| line.goes_on(session, stop)) {
            if interrupted() {
                stop.reason = StopReason::Interrupted;
                break;
            }
            stop = resume.run(session, &self.conditions, &interrupted);
        }
        self.chosen.stop(stop.thread);
        // The run may have stopped for another reason at the moment of the interrupt.
        let is_over = matches!(stop.reason, StopReason::Interrupted | StopReason::Gone(_));
        self.interrupted = asked.get() && !is_over && !self.features.lldb;
        self.report(stop)
    }

    fn stop_reply(&self, stop: Stop) -> Vec<u8> {
        stop_reply::format(&self.served.session, stop, self.features, self.options.edge_as_trap)
    }
}
