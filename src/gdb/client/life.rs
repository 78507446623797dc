//! Starts and ends of programs on a client's request, and the packets of clients that query each
//! thread.

use super::{Answer, Client, ConnectionEnd};
use crate::common::{Pid, Tid};
use crate::gdb::chosen::Chosen;
use crate::gdb::conditions::Conditions;
use crate::gdb::resume::Resume;
use crate::gdb::signals::Numbering;
use crate::gdb::{frame, lldb, stop_reply};
use crate::session::{Run, Start};

impl<R: Run> Client<'_, R> {
    /// Kills process `pid` if it is one beside the program (a forked child that the session also
    /// has); else, for any other `pid` or none, kills the program. `reply` is the answer to
    /// `vKill`; `k` has none. With the program the connection ends, too, unless the client is in
    /// extended mode and gets a reply: then it may start another program.
    pub(super) fn kill(&mut self, pid: Option<Pid>, reply: Option<&'static [u8]>) -> Answer {
        if let Some(pid) = pid
            && self.served.session.run().is_beside(Tid(pid.0))
        {
            self.served.session.run_mut().kill_process(pid);
            return Answer::Reply(b"OK".to_vec());
        }
        self.served.btrace = None;
        self.served.session.run_mut().kill();
        match reply.filter(|_| self.extended) {
            Some(reply) => Answer::Reply(reply.to_vec()),
            None => Answer::End(reply, ConnectionEnd::Killed),
        }
    }

    /// Detaches from process `pid` if the session has several processes; the others stay, and so
    /// does the connection. Else, whatever `pid` is, or without `pid`, detaches from all, and the
    /// connection ends unless the client is in extended mode.
    pub(super) fn detach(&mut self, pid: Option<Pid>) -> Answer {
        let others = |tid| self.served.session.run().is_beside(tid);
        let threads = self.served.session.threads();
        if let Some(pid) = pid
            && threads.iter().any(|thread| others(thread.tid))
        {
            return self.detach_one(pid);
        }
        self.served.btrace = None;
        self.served.session.run_mut().detach();
        if self.extended {
            return Answer::ok();
        }
        Answer::End(Some(b"OK"), ConnectionEnd::Detached)
    }

    /// Detaches from one process of several. Chooses the thread of the last stop if the chosen one
    /// is gone. Returns an error if there is no such process, or if the session cannot detach from
    /// it.
    fn detach_one(&mut self, pid: Pid) -> Answer {
        let session = &mut self.served.session;
        if session.threads().iter().all(|thread| thread.pid != pid) {
            return Answer::Reply(format!("E.there is no process {pid} here").into_bytes());
        }
        if let Err(error) = session.detach_process(pid) {
            return Answer::Reply(frame::error_text(&error.to_string()));
        }
        if !session.is_alive(self.chosen.thread_to_read()) {
            self.chosen = Chosen::stopped_at(session.last_stop().thread);
        }
        self.served.document = None;
        Answer::ok()
    }

    /// Replaces the thread of a resume by the first thread of the process that the packet names,
    /// unless it is one of that process already. Does nothing if the packet names no process, or
    /// one that has no thread.
    pub(super) fn choose_thread_of_process(&self, resume: &mut Resume) {
        let Some(pid) = resume.process else { return };
        let threads = self.served.session.threads();
        let mut of_process = threads.iter().filter(|thread| thread.pid == pid).map(|t| t.tid);
        if of_process.clone().all(|tid| tid != resume.order.thread)
            && let Some(first) = of_process.next()
        {
            resume.order.thread = first;
        }
    }

    /// Handles `?`: gdb considers the thread in the reply as chosen. LLDB requests the libraries if
    /// the reply mentions them.
    pub(super) fn first_stop(&mut self) -> Answer {
        let stop = self.served.session.last_stop();
        self.chosen.note_stop(stop.thread);
        let mut reply = self.stop_reply(stop);
        let libraries = self.served.session.run().libraries().filter(|_| self.features.lldb);
        if libraries.is_some_and(|libraries| !libraries.is_empty()) {
            reply.extend_from_slice(b"library:1;");
        }
        Answer::Reply(reply)
    }

    /// Returns the thread that `Hc` chose if it does not exist now and the run control packet
    /// `body` is about it: all are but `vCont`, which names its threads. `None` otherwise.
    pub(super) fn missing_thread(&self, body: &[u8]) -> Option<Tid> {
        let names_threads = body.starts_with(b"vCont");
        let chosen = self.chosen.only_resumed().filter(|_| !names_threads);
        chosen.filter(|tid| !self.served.session.is_alive(*tid))
    }

    /// Returns true if there is no program.
    pub(super) fn has_no_program(&self) -> bool {
        self.served.session.run().process().is_none()
    }

    /// Starts a program or attaches to a process, in place of the current program, and forgets what
    /// was asked about that one: the conditions of breakpoints, the choices of threads, a position
    /// to go to, the branch trace, the script's `line` and `finish`. Returns the stop reply, or an
    /// error for the client, with nothing forgotten, although the current program may be gone.
    pub(super) fn start(&mut self, start: &Result<Start, &'static str>) -> Vec<u8> {
        let start = match start {
            Ok(start) => start,
            Err(why) => return frame::error_text(why),
        };
        match self.served.session.start(start) {
            Ok(stop) => {
                self.conditions = Conditions::default();
                self.interrupted = false;
                (self.pending_seek, self.finish, self.source_line) = (None, None, None);
                self.served.btrace = None;
                self.served.update_target_description();
                self.served.attached = !matches!(start, Start::Program(_) | Start::Again);
                self.chosen = Chosen::stopped_at(stop.thread);
                self.stop_reply(stop)
            }
            Err(error) => frame::error_text(&error.to_string()),
        }
    }

    /// Handles packets that prepare or start programs; `qAttached` and `QProgramSignals`; and the
    /// thread list (`qfThreadInfo`, `qsThreadInfo`) of a session without a program, or for a client
    /// that knows several processes. Returns the reply; `None` for other packets, and for a
    /// malformed `QProgramSignals`, which then counts as unsupported.
    pub(super) fn answer_program_packet(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        if let Some(understood) = self.preparation.note_packet(body) {
            return Some(if understood { b"OK".to_vec() } else { b"E01".to_vec() });
        }
        if let Some(start) = self.preparation.parse_start(body) {
            return Some(self.start(&start));
        }
        match body {
            b"qfThreadInfo" if self.has_no_program() => Some(b"l".to_vec()),
            b"qfThreadInfo" if self.features.multiprocess => {
                let session = &self.served.session;
                let threads = session.threads();
                let ids = threads.iter().map(|thread| self.features.thread_id(session, thread.tid));
                Some(format!("m{}", ids.collect::<Vec<_>>().join(",")).into_bytes())
            }
            b"qsThreadInfo" if self.features.multiprocess => Some(b"l".to_vec()),
            _ if body.starts_with(b"qAttached") => {
                Some(u8::from(self.served.attached).to_string().into_bytes())
            }
            // The list is for servers that deliver the signals of a detached program. Here the
            // kernel does that, so the list is only checked.
            _ if body.starts_with(b"QProgramSignals:") => {
                let list = &body[b"QProgramSignals:".len()..];
                self.features.signals.parse_set(list).map(|_| b"OK".to_vec())
            }
            _ => None,
        }
    }

    /// Handles packets that only LLDB sends, and returns the reply; `None` for other packets. Two
    /// of them turn features of the client on.
    pub(super) fn answer_lldb_packet(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        if body == b"QListThreadsInStopReply" {
            self.features.lists_threads = true;
            return Some(b"OK".to_vec());
        }
        if body == b"QThreadSuffixSupported" {
            // LLDB takes a server with this packet for lldb-server, which sends kernel numbers.
            (self.features.names_threads, self.features.signals) = (true, Numbering::Kernel);
            return Some(b"OK".to_vec());
        }
        if let Some(id) = body.strip_prefix(b"qThreadStopInfo") {
            return Some(self.thread_stop(lldb::single_thread(id)));
        }
        lldb::answer(&self.served.session, self.features.signals, body)
    }

    /// Returns a thread's stop reply: the session's last stop if it was this thread's, else a stop
    /// without a reason. An error if the thread does not exist now, or for `None`, which a
    /// malformed ID gives.
    fn thread_stop(&self, tid: Option<Tid>) -> Vec<u8> {
        let last = self.served.session.last_stop();
        match tid.filter(|tid| self.served.session.is_alive(*tid)) {
            None => b"E03".to_vec(),
            Some(tid) if tid == last.thread => self.stop_reply(last),
            Some(thread) => stop_reply::without_reason(&self.served.session, thread, self.features),
        }
    }
}
