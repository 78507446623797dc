//! Run control over hand-made histories: two threads, each with instructions at distinct addresses
//! or in a small loop, so that breakpoints hit often.

mod hardware;
mod hardware_live;
mod interrupts;

use super::*;
use crate::common::{Addr, Tid};
use proptest::prelude::*;

const NEVER: fn() -> bool = || false;

/// Returns a history of (thread, address) pairs; both threads live to the end.
fn history(steps: &[(i32, u64)]) -> Recorded<Scripted> {
    let mut scripted = Scripted::default();
    for &(tid, pc) in steps {
        let tid = Tid(tid);
        let transfer = Transfer::None;
        scripted.instructions.push(Instruction { tid, pc: Addr(pc), size_bytes: 1, transfer });
        let mut registers = KnownRegisters::default();
        registers.set(Register::RIP, Some(u128::from(pc) + 1));
        scripted.final_registers.insert(tid, registers);
    }
    scripted.final_thread = steps.last().map(|step| Tid(step.0));
    Recorded::at_end(scripted.index())
}

fn order(action: Action, direction: Direction, tid: i32) -> Order {
    Order { action, direction, thread: Tid(tid), locked: false, signal: 0 }
}

fn back(action: Action, tid: i32) -> Order {
    order(action, Direction::Backward, tid)
}

fn forth(action: Action, tid: i32) -> Order {
    order(action, Direction::Forward, tid)
}

fn at(session: &Session<Recorded<Scripted>>) -> u64 {
    session.run().position().unwrap().at
}

#[test]
fn continues_stop_at_breakpoints_and_edges() {
    let mut session = Session::new(history(&[(1, 10), (1, 11), (1, 12), (1, 11), (1, 13)]));
    session.insert_breakpoint(BreakpointKind::Software, Addr(11));
    let stop = session.resume(back(Action::Continue, 1), &NEVER);
    assert_eq!((at(&session), stop.reason), (3, StopReason::Breakpoint(BreakpointKind::Software)));
    session.resume(back(Action::Continue, 1), &NEVER);
    assert_eq!(at(&session), 1);
    let stop = session.resume(back(Action::Continue, 1), &NEVER);
    assert_eq!((at(&session), stop.reason), (0, StopReason::Edge(Edge::Begin)));
    session.resume(forth(Action::Continue, 1), &NEVER);
    assert_eq!(at(&session), 1);
    assert!(session.remove_breakpoint(BreakpointKind::Software, Addr(11)));
    let stop = session.resume(forth(Action::Continue, 1), &NEVER);
    assert_eq!((at(&session), stop.reason), (5, StopReason::Edge(Edge::End)));
}

#[test]
fn a_step_back_stops_at_another_threads_breakpoint_on_the_way() {
    let mut session = Session::new(history(&[(1, 10), (2, 20), (2, 21), (1, 11)]));
    session.seek(3).unwrap();
    session.insert_breakpoint(BreakpointKind::Hardware, Addr(20));
    let stop = session.resume(back(Action::Step, 1), &NEVER);
    let reason = StopReason::Breakpoint(BreakpointKind::Hardware);
    assert_eq!((at(&session), stop), (1, Stop { thread: Tid(2), reason }));
    session.seek(3).unwrap();
    let stop = session.resume(Order { locked: true, ..back(Action::Step, 1) }, &NEVER);
    assert_eq!((at(&session), stop), (0, Stop { thread: Tid(1), reason: StopReason::Step }));
}

#[test]
fn a_breakpoint_of_a_thread_that_was_not_looked_at_is_hit_before_it_executes() {
    let mut session = Session::new(history(&[(1, 10), (2, 20), (1, 11)]));
    session.insert_breakpoint(BreakpointKind::Software, Addr(20));
    session.seek(0).unwrap();
    assert_eq!(session.resume(forth(Action::Step, 1), &NEVER).reason, StopReason::Step);
    let stop = session.resume(forth(Action::Step, 1), &NEVER);
    assert_eq!((at(&session), stop.thread), (1, Tid(2)));
    session.resume(forth(Action::Step, 1), &NEVER);
    assert_eq!(at(&session), 3);
}

#[test]
fn a_thread_has_its_own_beginning() {
    let mut session = Session::new(history(&[(1, 10), (1, 11), (2, 20), (1, 12)]));
    session.seek(2).unwrap();
    let stop = session.resume(back(Action::Step, 2), &NEVER);
    assert_eq!((at(&session), stop.reason), (2, StopReason::Edge(Edge::Begin)));
    session.seek(4).unwrap();
    let locked = Order { locked: true, ..back(Action::Continue, 2) };
    let stop = session.resume(locked, &NEVER);
    assert_eq!((at(&session), stop.thread), (2, Tid(2)));
}

#[test]
fn an_interrupted_search_stops_where_it_got_to() {
    let mut session = Session::new(history(&[(1, 10), (1, 11), (1, 12), (1, 13)]));
    session.insert_breakpoint(BreakpointKind::Software, Addr(10));
    let stop = session.resume(back(Action::Continue, 1), &|| true);
    assert_eq!((at(&session), stop.reason), (3, StopReason::Interrupted));
}

#[test]
fn the_past_refuses_writes() {
    let mut session = Session::new(history(&[(1, 10)]));
    let refused = session.run_mut().write_register(Tid(1), Register::RAX, 0.into());
    assert_eq!(refused, Err(Error::PastIsFixed));
    assert!(matches!(session.seek(2), Err(Error::NoSuchPosition { position: 2, total: 1 })));
}

#[test]
fn register_names_and_sizes_agree() {
    // Size of the largest register: the upper half of a ZMM register.
    const ZMM_HIGH_BYTES: usize = 32;
    for register in Register::all() {
        assert_eq!(Register::from_name(&register.name()), Some(register));
        assert!(register.size_bytes() <= ZMM_HIGH_BYTES);
    }
    assert_eq!(Register::from_name("rsp"), Some(Register::RSP));
    assert_eq!(Register::from_name("gs_base"), Some(Register::GS_BASE));
}

fn steps() -> impl Strategy<Value = Vec<(i32, u64)>> {
    prop::collection::vec((1..3u8, 10..16u64), 1..60).prop_map(|steps| {
        steps.into_iter().map(|(t, pc)| (i32::from(t), pc + 100 * u64::from(t))).collect()
    })
}

proptest! {
    /// Checks that stepping a thread back and forward again returns it to the same address.
    #[test]
    fn back_then_forth_returns(steps in steps(), walk in 1..20usize) {
        let mut session = Session::new(history(&steps));
        let tid = session.last_stop().thread;
        let start = session.run().pc(tid);
        let mut seen = Vec::new();
        for _ in 0..walk {
            seen.push(session.run().pc(tid));
            if matches!(session.resume(back(Action::Step, tid.0), &NEVER).reason, StopReason::Edge(_)) {
                seen.pop();
            }
        }
        while let Some(pc) = seen.pop() {
            session.resume(forth(Action::Step, tid.0), &NEVER);
            prop_assert_eq!(session.run().pc(tid), pc);
        }
        prop_assert_eq!(session.run().pc(tid), start);
    }

    /// Checks that continuing back and forward visits the same breakpoint hits.
    #[test]
    fn both_ways_stop_at_the_same_positions(steps in steps(), wanted in prop::collection::btree_set(110..120u64, 0..4)) {
        let mut session = Session::new(history(&steps));
        for pc in &wanted {
            session.insert_breakpoint(BreakpointKind::Software, Addr(*pc));
        }
        let mut backward = Vec::new();
        while !matches!(session.resume(back(Action::Continue, 1), &NEVER).reason, StopReason::Edge(_)) {
            backward.push(at(&session));
        }
        backward.reverse();
        let expected: Vec<u64> =
            (0..).zip(&steps).filter(|(_, step)| wanted.contains(&step.1)).map(|(g, _)| g).collect();
        prop_assert_eq!(&backward, &expected);
        let mut forward = Vec::new();
        while !matches!(session.resume(forth(Action::Continue, 1), &NEVER).reason, StopReason::Edge(_)) {
            forward.push(at(&session));
        }
        let from_begin = expected.iter().copied().filter(|g| *g > 0).collect::<Vec<_>>();
        prop_assert_eq!(forward, from_begin);
    }
}
