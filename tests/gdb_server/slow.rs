//! A history whose searches never find anything, and never end by themselves.

use contraflow::common::{Addr, Tid};
use contraflow::session::{
    CallFrame, Description, Found, GapInfo, History, KnownRegisters, Scripted, Search, ThreadInfo,
};
use std::thread::sleep;
use std::time::Duration;

pub(crate) struct Slow(pub(crate) Scripted);

impl History for Slow {
    fn threads(&self) -> Vec<ThreadInfo> {
        self.0.threads()
    }

    fn total(&self) -> u64 {
        self.0.total()
    }

    fn running_at(&self, g: u64) -> Option<Tid> {
        self.0.running_at(g)
    }

    fn index_of(&self, tid: Tid, g: u64) -> u64 {
        self.0.index_of(tid, g)
    }

    fn position_of(&self, tid: Tid, index: u64) -> Option<u64> {
        self.0.position_of(tid, index)
    }

    fn pc(&self, tid: Tid, g: u64) -> Option<Addr> {
        self.0.pc(tid, g)
    }

    fn find(&self, search: &Search<'_>, interrupted: &dyn Fn() -> bool) -> Found {
        while !interrupted() {
            sleep(Duration::from_millis(1));
        }
        Found::Interrupted(search.within.start)
    }

    fn call_stack(&self, tid: Tid, g: u64) -> Vec<CallFrame> {
        self.0.call_stack(tid, g)
    }

    fn registers(&self, tid: Tid, g: u64) -> KnownRegisters {
        self.0.registers(tid, g)
    }

    fn read_memory(&self, tid: Tid, g: u64, addr: Addr, buf: &mut [u8]) -> usize {
        self.0.read_memory(tid, g, addr, buf)
    }

    fn time_ns(&self, g: u64) -> Option<u64> {
        self.0.time_ns(g)
    }

    fn gaps(&self) -> Vec<GapInfo> {
        self.0.gaps()
    }

    fn describe(&self) -> Description {
        self.0.describe()
    }
}
