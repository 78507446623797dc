//! Interrupts of live programs: every backend reports the instructions executed by then.

use super::hardware::{bare, request};
use super::hardware_live::{Debugged, SOFTWARE, symbol};
use super::*;
use crate::capture::{Backend, History as Kept, Request};
use std::path::Path;

const SIGUSR1: i32 = 10;

fn debugged(scene: &Path, program: &Path, backend: Backend) -> Debugged {
    let request = request(scene, program, &format!("{backend:?}"), Kept::Full);
    if backend == Backend::Perf {
        return Debugged::start(request);
    }
    let request = Request { step_log: None, ..request };
    let mut live = Live::new(backend, request.clone());
    live.start(&Start::Again).unwrap();
    Debugged { session: Session::new(live), request }
}

#[test]
fn a_step_that_is_done_is_not_interrupted() {
    let Some((_one, scene, program)) = bare() else { return };
    let (handler, count) = (symbol(&program, "handler"), symbol(&program, "handled"));
    let watchpoint = Watchpoint { addr: count, size_bytes: 4, access: Access::Write };
    for backend in [Backend::Soft, Backend::Step, Backend::Perf] {
        let mut it = debugged(scene.path(), &program, backend);
        it.session.insert_breakpoint(BreakpointKind::Software, handler);
        assert_eq!(it.forth(Action::Continue), StopReason::Signal(SIGUSR1));
        let order = it.order(Action::Continue, Direction::Forward);
        assert_eq!(it.go(Order { signal: SIGUSR1, ..order }), SOFTWARE);
        assert!(it.session.insert_watchpoint(watchpoint));
        let mut hits = 0;
        let mut interrupts = true;
        while hits < SIGUSR1 {
            let (order, before) = (it.order(Action::Step, Direction::Forward), it.pc());
            // Every other step completes.
            interrupts = !interrupts;
            match it.session.resume(order, &|| interrupts).reason {
                StopReason::Interrupted => assert_eq!(it.pc(), before, "{backend:?}"),
                StopReason::Watchpoint(_) => hits += 1,
                reason => assert_eq!(reason, StopReason::Step, "{backend:?}"),
            }
            assert!(it.pc() != symbol(&program, "restore"), "{backend:?}: {hits} hits");
        }
        it.session.run_mut().kill();
    }
}
