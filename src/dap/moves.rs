//! Moves of the program in both directions, and their ends.

use super::adapter::Adapter;
use super::inbox::Input;
use super::mi::Record;
use super::protocol::{Fault, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The time within which an interrupted program has to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// No thread: gdb resumes the one that it has selected.
const NO_THREAD: i64 = 0;

/// gdb's error for a step by line in code without symbols: such code is stepped by instruction.
const NO_LINES: &str = "Cannot find bounds of current function";

/// A move of the program that has not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Motion {
    /// True for a continue, which ends only at a breakpoint or another stop.
    is_continue: bool,
    /// True if the program goes back.
    pub(super) is_back: bool,
    /// True if the client asked to pause the program during the move: then its stop is a pause.
    pub(super) is_pausing: bool,
}

/// The arguments of steps and continues. All threads run, whatever `singleThread` says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Arguments {
    thread_id: Option<i64>,
    granularity: Option<String>,
}

/// The kinds of moves, as commands of gdb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveKind {
    Continue,
    Next,
    Step,
    NextInstruction,
    StepInstruction,
    Finish,
}

impl MoveKind {
    /// Returns the step by instruction that corresponds to a step by line; `None` for other moves.
    fn by_instruction(self) -> Option<Self> {
        match self {
            Self::Next => Some(Self::NextInstruction),
            Self::Step => Some(Self::StepInstruction),
            _ => None,
        }
    }

    /// Returns gdb's command for the move.
    fn command(self) -> &'static str {
        match self {
            Self::Continue => "-exec-continue",
            Self::Next => "-exec-next",
            Self::Step => "-exec-step",
            Self::NextInstruction => "-exec-next-instruction",
            Self::StepInstruction => "-exec-step-instruction",
            Self::Finish => "-exec-finish",
        }
    }
}

impl Adapter<'_> {
    /// Returns true if a request moves the program.
    pub(super) fn is_move(command: &str) -> bool {
        kind_of_move(command, false).is_some()
            || matches!(command, "restart" | "restartFrame" | "goto" | "contraflow/seek")
    }

    /// Starts a move, whose stop is reported later. A move to a place in the history is over when
    /// this returns, and its stop is reported after the response.
    pub(super) fn start_move(&mut self, request: &Request) -> Result<Value, Fault> {
        match request.command.as_str() {
            "restart" => return self.seek("start").map(|_| Value::Null),
            "contraflow/seek" => {
                let to = &request.arguments["to"];
                let to = to.as_str().map_or_else(|| to.to_string(), str::to_owned);
                return self.seek(&to);
            }
            "goto" => return self.go_to_target(request),
            "restartFrame" => {
                let frame = request.arguments["frameId"].clone();
                return self.move_by_module("restart_frame", json!({"frame": frame}));
            }
            _ => {}
        }
        let arguments: Arguments = request.arguments()?;
        let by_instruction = arguments.granularity.as_deref() == Some("instruction");
        let Some((kind, is_back)) = kind_of_move(&request.command, by_instruction) else {
            return Err(Fault::new(format!("there is no request {}", request.command)));
        };
        self.resume_for_move(kind, is_back, arguments.thread_id)?;
        if request.command.starts_with("contraflow/") {
            self.report_continued();
        }
        Ok(match request.command.as_str() {
            "continue" => json!({"allThreadsContinued": true}),
            _ => Value::Null,
        })
    }

    /// Starts to continue the program forwards.
    pub(super) fn continue_forward(&mut self) -> Result<(), Fault> {
        self.resume_for_move(MoveKind::Continue, false, None)
    }

    /// Resumes the program for a move, which becomes the current one, without waiting for its stop.
    /// Steps by instruction where the code has no lines. `thread` is the one to step; `None` for
    /// that of the last stop. If it fails, there is no current move.
    fn resume_for_move(
        &mut self,
        kind: MoveKind,
        is_back: bool,
        thread: Option<i64>,
    ) -> Result<(), Fault> {
        let is_continue = kind == MoveKind::Continue;
        // From now on, a pause is one of this move, and waits for it to begin.
        self.current_move = Some(Motion { is_continue, is_back, is_pausing: false });
        let resumed = self.resume_gdb(kind, is_back, thread);
        if resumed.is_err() {
            self.current_move = None;
        }
        resumed
    }

    /// Makes gdb resume the program for [`Self::resume_for_move`], by instruction where the code
    /// has no lines. `thread` is `None` for that of the last stop.
    fn resume_gdb(
        &mut self,
        kind: MoveKind,
        is_back: bool,
        thread: Option<i64>,
    ) -> Result<(), Fault> {
        let is_back_by_line = is_back && matches!(kind, MoveKind::Next | MoveKind::Step);
        let thread = thread.unwrap_or(self.thread);
        if thread != NO_THREAD {
            // Selects the thread. For a step back by lines, gdb also sends the current line, which
            // the server steps over at once.
            self.ask_module("prepare", json!({"thread": thread, "line": is_back_by_line}))?;
        }
        let reverse = if is_back { " --reverse" } else { "" };
        let mut resumed = self.mi_command(&format!("{}{reverse}", kind.command()));
        if let (Err(fault), Some(by_instruction)) = (&resumed, kind.by_instruction())
            && fault.text.contains(NO_LINES)
        {
            resumed = self.mi_command(&format!("{}{reverse}", by_instruction.command()));
        }
        if let Err(fault) = resumed {
            if is_back_by_line {
                // No stop follows, at which gdb would forget the line.
                self.ask_module("settled", Value::Null)?;
            }
            return Err(fault);
        }
        // The client knows already that the program runs: drop gdb's record.
        let runs = |input: &Input| matches!(input, Input::Gdb(Record::Exec { class, .. }) if class == "running");
        self.inbox.take_deferred(runs);
        Ok(())
    }

    /// Reports after the response that the program runs. After the moves of the protocol, clients
    /// know this; after ours, VS Code would show the reason of an older stop without the event.
    fn report_continued(&mut self) {
        let body = json!({"threadId": self.thread, "allThreadsContinued": true});
        self.events_after_response.push(("continued", body));
    }

    /// Moves to a position of the history, or to `start`, and reports the stop after the response.
    pub(super) fn seek(&mut self, to: &str) -> Result<Value, Fault> {
        let answer = self.ask_module("seek", json!({"to": to}))?;
        self.report_continued();
        self.stop_after_response =
            Some((Motion::default(), json!({"reason": "contraflow-arrived"})));
        Ok(answer)
    }

    /// Moves by request `name` of our Python module, which answers after the move, and reports the
    /// stop after the response. If the request fails, it may have moved the program before: then
    /// the last stop is also reported.
    pub(super) fn move_by_module(&mut self, name: &str, arguments: Value) -> Result<Value, Fault> {
        let before = self.here()?;
        let answer = self.ask_module(name, arguments);
        let stops =
            self.inbox.take_deferred(|input| matches!(input, Input::Gdb(Record::Exec { .. })));
        if !self.here()?.is_same_place(&before) || answer.is_ok() {
            let last = stops.into_iter().rev().find_map(stop_of);
            let is_arrival = answer.is_ok() || last.is_none();
            let arrived = json!({"reason": "contraflow-arrived"});
            let stop = if is_arrival { arrived } else { last.unwrap_or(arrived) };
            self.stop_after_response = Some((Motion::default(), stop));
        }
        answer
    }

    /// Interrupts the current move, if there is one, unless that was done before: gdb would keep a
    /// second interrupt for the next move. The move's stop is reported later.
    pub(super) fn pause(&mut self) {
        if let Some(motion) = self.current_move.as_mut().filter(|motion| !motion.is_pausing) {
            motion.is_pausing = true;
            // It may have stopped already.
            let _ = self.mi_command("-exec-interrupt");
        }
    }

    /// Waits for the stop of a running program, and returns it without reporting it. The current
    /// move is over then. Returns `None` after [`STOP_PATIENCE`]: the move is not over.
    pub(super) fn await_stop(&mut self) -> Option<Value> {
        let is_stop = |input: &Input| matches!(input, Input::Gdb(Record::Exec { class, .. }) if class == "stopped");
        let deferred = self.inbox.take_deferred(is_stop);
        let mut stop = deferred.into_iter().find_map(stop_of);
        let deadline = std::time::Instant::now() + STOP_PATIENCE;
        while stop.is_none() {
            let left = deadline.checked_duration_since(std::time::Instant::now())?;
            let input = self.inbox.receive_within(left)?;
            if is_stop(&input) {
                stop = stop_of(input);
            } else {
                self.inbox.defer(input);
            }
        }
        self.current_move = None;
        stop
    }

    /// Calls `work` with the program stopped. A continue is interrupted, and resumed after `work`
    /// in the same direction, unless the program stopped for another reason: then this stop is
    /// reported after the response. Fails during a step.
    pub(super) fn while_stopped<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let Some(motion) = self.current_move else { return work(self) };
        if !motion.is_continue {
            // A step ends soon, and an interrupted step could not go on.
            return Err(Fault::not_stopped());
        }
        self.mi_command("-exec-interrupt")?;
        let stop = self.await_stop();
        let stop = stop.ok_or_else(|| Fault::new("the program does not stop"))?;
        // A pause from now on is for the time after `work`.
        self.current_move = Some(motion);
        let done = work(self);
        let is_our_interrupt = stop["signal-name"] == "SIGINT" && !motion.is_pausing;
        // All threads go on. That of the last reported stop may be gone, so none is selected.
        let goes_on = is_our_interrupt
            && self.resume_for_move(MoveKind::Continue, motion.is_back, Some(NO_THREAD)).is_ok();
        if !goes_on {
            self.current_move = None;
            self.stop_after_response = Some((motion, stop));
        }
        done
    }
}

/// Returns the results of gdb's `*stopped` record; `None` for other inputs.
pub(super) fn stop_of(input: Input) -> Option<Value> {
    match input {
        Input::Gdb(Record::Exec { class, results }) if class == "stopped" => Some(results),
        _ => None,
    }
}

/// Returns a request's kind of move, and true if it goes back; `None` for other requests.
fn kind_of_move(command: &str, by_instruction: bool) -> Option<(MoveKind, bool)> {
    let next = if by_instruction { MoveKind::NextInstruction } else { MoveKind::Next };
    let step = if by_instruction { MoveKind::StepInstruction } else { MoveKind::Step };
    Some(match command {
        "continue" => (MoveKind::Continue, false),
        "reverseContinue" => (MoveKind::Continue, true),
        "next" => (next, false),
        // The counterpart of `next`: clients show it as a step over.
        "stepBack" => (next, true),
        "stepIn" => (step, false),
        "contraflow/stepBackInto" => (step, true),
        "stepOut" => (MoveKind::Finish, false),
        "contraflow/stepBackOut" => (MoveKind::Finish, true),
        _ => return None,
    })
}
