//! gdbstub's access to the session: registers, memory writes, breakpoints, the thread list. Nothing
//! here returns a fatal error to gdbstub, whatever the client sent.

use super::arch::{Amd64, RegisterFile, RegisterId};
use super::btrace::Btrace;
use super::files::OpenFiles;
use super::target_xml::{self, Vectors};
use super::xfer::Document;
use crate::common::{self, Addr, Visible};
use crate::session::{
    Access, BreakpointKind, Error, Forks, Register, Run, Session, Value, Watchpoint,
};
use gdbstub::common::Tid;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::MultiThreadBase;
use gdbstub::target::ext::base::single_register_access::{
    SingleRegisterAccess, SingleRegisterAccessOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, HwWatchpoint, HwWatchpointOps,
    SwBreakpoint, SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::host_io::HostIoOps;
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use std::convert::Infallible;

/// `EROFS`: a refused write of registers or memory, as in a recording.
const READ_ONLY: u8 = 30;
/// `ESRCH`: no such thread now.
const NO_THREAD: u8 = 3;

/// A session and the state that one client has set.
pub(super) struct Served<R> {
    pub(super) session: Session<R>,
    /// The registers of the target description.
    pub(super) registers: Vec<Register>,
    /// The target description.
    pub(super) target_xml: String,
    /// The reason why the last write was refused.
    pub(super) refusal: Option<Error>,
    /// The document that `qXfer` reads.
    pub(super) document: Option<Document>,
    /// The branch trace; `None` if the client has enabled none.
    pub(super) btrace: Option<Btrace>,
    pub(super) files: OpenFiles,
    /// True if the program existed before the client: gdb detaches from it by default.
    pub(super) attached: bool,
    /// True if the server ends when the client leaves.
    pub(super) ends_with_client: bool,
}

impl<R: Run> Served<R> {
    pub(super) fn new(session: Session<R>) -> Self {
        let mut served = Self {
            session,
            registers: Vec::new(),
            target_xml: String::new(),
            refusal: None,
            document: None,
            btrace: None,
            files: OpenFiles::default(),
            attached: true,
            ends_with_client: false,
        };
        served.update_target_description();
        served
    }

    /// Determines the available registers, by those of the last stop's thread, and writes the
    /// target description anew: after the start of a program. Forgets the document that was being
    /// read.
    pub(super) fn update_target_description(&mut self) {
        let tid = self.session.last_stop().thread;
        let vectors = Vectors::of(&self.session.run().registers(tid));
        self.registers = target_xml::registers_of(vectors);
        self.target_xml = target_xml::describe(vectors);
        self.document = None;
    }

    /// Calls `act` while insertions and removals of breakpoints are for the process of thread
    /// `tid`: the program, or the process beside it ([`Session::swap_breakpoints_if_beside`]).
    /// Afterwards they are for the program again.
    pub(super) fn with_breakpoints_of<T>(
        &mut self,
        tid: common::Tid,
        act: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.session.swap_breakpoints_if_beside(tid);
        let result = act(self);
        self.session.swap_breakpoints_if_beside(tid);
        result
    }

    /// Removes the state of a client that has gone: its breakpoints, its wish for stops at forks,
    /// and its open files. The branch trace stays enabled. The next client finds the same program
    /// and position.
    pub(super) fn forget_client(&mut self) {
        self.session.clear_breakpoints();
        self.session.run_mut().catch_forks(Forks::default());
        if let Some(btrace) = &mut self.btrace {
            btrace.forget_client();
        }
        self.refusal = None;
        self.document = None;
        self.files = OpenFiles::default();
    }

    /// Returns the session's ID of a thread that exists now; fails with [`NO_THREAD`] for others.
    fn existing_thread(&self, tid: Tid) -> TargetResult<common::Tid, Self> {
        let tid = from_gdbstub(tid).filter(|tid| self.session.is_alive(*tid));
        tid.ok_or(TargetError::Errno(NO_THREAD))
    }

    /// Notes why a write was refused, for the reply to the client, and returns the error for
    /// gdbstub.
    fn note_refusal(&mut self, error: Error) -> TargetError<Infallible> {
        self.refusal = Some(error);
        TargetError::Errno(READ_ONLY)
    }
}

/// Returns gdbstub's thread ID; `None` for 0 and negative IDs, which no thread has.
pub(super) fn to_gdbstub(tid: common::Tid) -> Option<Tid> {
    usize::try_from(tid.0).ok().and_then(Tid::new)
}

/// Returns the session's ID of a thread, which may not exist; `None` if it is too large for one.
fn from_gdbstub(tid: Tid) -> Option<common::Tid> {
    i32::try_from(tid.get()).ok().map(common::Tid)
}

impl<R: Run> Target for Served<R> {
    type Arch = Amd64;
    type Error = Infallible;

    fn base_ops(&mut self) -> BaseOps<'_, Amd64, Infallible> {
        BaseOps::MultiThread(self)
    }

    fn use_rle(&self) -> bool {
        false
    }

    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_host_io(&mut self) -> Option<HostIoOps<'_, Self>> {
        Some(self)
    }
}

impl<R: Run> MultiThreadBase for Served<R> {
    fn read_registers(&mut self, regs: &mut RegisterFile, tid: Tid) -> TargetResult<(), Self> {
        let tid = self.existing_thread(tid)?;
        regs.values = self.session.run().registers(tid);
        regs.served.clone_from(&self.registers);
        Ok(())
    }

    fn write_registers(&mut self, regs: &RegisterFile, tid: Tid) -> TargetResult<(), Self> {
        let tid = self.existing_thread(tid)?;
        for register in Register::all() {
            let Some(value) = regs.values.value(register) else { continue };
            let written = self.session.run_mut().write_register(tid, register, value);
            written.map_err(|error| self.note_refusal(error))?;
        }
        Ok(())
    }

    fn support_single_register_access(&mut self) -> Option<SingleRegisterAccessOps<'_, Tid, Self>> {
        Some(self)
    }

    fn read_addrs(&mut self, addr: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        let tid = self.existing_thread(tid)?;
        Ok(self.session.run().read_memory(tid, Addr(addr), data))
    }

    fn write_addrs(&mut self, addr: u64, data: &[u8], tid: Tid) -> TargetResult<(), Self> {
        let tid = self.existing_thread(tid)?;
        // gdb probes with an empty write whether binary writes are supported.
        if data.is_empty() {
            return Ok(());
        }
        let written = self.session.run_mut().write_memory(tid, Addr(addr), data);
        written.map_err(|error| self.note_refusal(error))
    }

    fn list_active_threads(&mut self, register: &mut dyn FnMut(Tid)) -> Result<(), Infallible> {
        let threads = self.session.threads();
        threads.iter().filter_map(|thread| to_gdbstub(thread.tid)).for_each(register);
        Ok(())
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl<R: Run> SingleRegisterAccess<Tid> for Served<R> {
    fn read_register(
        &mut self,
        tid: Tid,
        id: RegisterId,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let tid = self.existing_thread(tid)?;
        // gdbstub writes `xx`, unavailable, for no bytes.
        let bytes = self.session.run().registers(tid).bytes(id.0).unwrap_or_default();
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write_register(&mut self, tid: Tid, id: RegisterId, value: &[u8]) -> TargetResult<(), Self> {
        let tid = self.existing_thread(tid)?;
        let written = self.session.run_mut().write_register(tid, id.0, Value::new(value));
        written.map_err(|error| self.note_refusal(error))
    }
}

impl<R: Run> ThreadExtraInfo for Served<R> {
    fn thread_extra_info(&self, tid: Tid, buf: &mut [u8]) -> Result<usize, Infallible> {
        let threads = self.session.threads();
        let thread = threads.iter().find(|thread| to_gdbstub(thread.tid) == Some(tid));
        let name = thread.map_or(String::new(), |thread| Visible(&thread.name).to_string());
        let name = name.as_bytes();
        let count = name.len().min(buf.len());
        buf[..count].copy_from_slice(&name[..count]);
        Ok(count)
    }
}

impl<R: Run> Breakpoints for Served<R> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    // Without watchpoints, gdb steps instead.
    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        if self.session.run().can_watch(&[]) { Some(self) } else { None }
    }
}

impl<R: Run> HwWatchpoint for Served<R> {
    fn add_hw_watchpoint(
        &mut self,
        addr: u64,
        size_bytes: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        Ok(self.session.insert_watchpoint(watchpoint(addr, size_bytes, kind)))
    }

    fn remove_hw_watchpoint(
        &mut self,
        addr: u64,
        size_bytes: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        self.session.remove_watchpoint(watchpoint(addr, size_bytes, kind));
        Ok(true)
    }
}

/// Returns the session's form of a watchpoint; inserts nothing.
fn watchpoint(addr: u64, size_bytes: u64, kind: WatchKind) -> Watchpoint {
    let access = match kind {
        WatchKind::Write => Access::Write,
        WatchKind::Read => Access::Read,
        WatchKind::ReadWrite => Access::Any,
    };
    Watchpoint { addr: Addr(addr), size_bytes, access }
}

// Removing a missing breakpoint is not an error: gdb removes again after a reconnect.
impl<R: Run> SwBreakpoint for Served<R> {
    fn add_sw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.session.insert_breakpoint(BreakpointKind::Software, Addr(addr)))
    }

    fn remove_sw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        self.session.remove_breakpoint(BreakpointKind::Software, Addr(addr));
        Ok(true)
    }
}

impl<R: Run> HwBreakpoint for Served<R> {
    fn add_hw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.session.insert_breakpoint(BreakpointKind::Hardware, Addr(addr)))
    }

    fn remove_hw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        self.session.remove_breakpoint(BreakpointKind::Hardware, Addr(addr));
        Ok(true)
    }
}
