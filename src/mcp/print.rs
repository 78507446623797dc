//! The tool `print`: values of expressions at the current position, by the debug information, or by
//! gdb where the debug information is not enough. Expressions are evaluated in whole activations
//! ([`Activation`]: a call with its stack frame, which `backtrace` shows as one frame, and one more
//! for each function that is inlined there). An activation goes by the number of its innermost
//! frame.

use super::answer::Answer;
use super::frames::Activation;
use super::host::{GdbQuestion, Host};
use super::machine::ThreadMachine;
use super::open_recording::OpenRecording;
use super::requests;
use crate::common::{Addr, AddrRange, Tid};
use crate::symbols::{FrameRegisters, Piece};
use crate::values::{Error, Evaluator, Frame, Located, Question, Shown};
use serde_json::{Value, json};

/// The maximum number of activations in which a name is sought.
const MOST_FRAMES: usize = 100;
/// The maximum number of bytes of a value whose changes are watched.
const MOST_WATCHED_BYTES: u64 = 4096;

impl OpenRecording {
    /// Answers `print`: a row for each expression. Asks gdb about one that has no meaning here, but
    /// not for an unknown value; if gdb fails too, its row has the errors of both.
    pub(super) fn print(
        &self,
        host: &dyn Host,
        wanted: &requests::Print,
        interrupted: &dyn Fn() -> bool,
    ) -> Answer {
        let tid = self.thread(wanted.thread)?;
        let texts = match Question::parse(&wanted.expressions) {
            Ok(question) if question.is_empty() => return Err("give an expression".to_owned()),
            Ok(question) => question.texts().map(str::to_owned).collect(),
            // The text may have a meaning for gdb, as a whole.
            Err(_) => vec![wanted.expressions.clone()],
        };
        let activations = self.activations(tid);
        if let Some(frame) = wanted.frame
            && !activations.iter().any(|one| one.contains(frame))
        {
            return Err(format!("there is no frame {frame}"));
        }
        let mut rows = Vec::new();
        for text in texts {
            let found = self.evaluate(tid, &activations, &text, wanted.frame);
            let row = match found {
                Ok((frame, value)) => json!({
                    "expression": text,
                    "value": value.to_json(),
                    "text": value.to_string(),
                    "frame": frame,
                }),
                Err(why) => {
                    let frame = wanted.frame.unwrap_or(0);
                    let text_of_gdb = self.ask_gdb(host, tid, frame, &text, interrupted);
                    let (shown, error) = match text_of_gdb {
                        Ok(shown) => (Some(shown), None),
                        Err(also) => (None, Some(format!("{why}; gdb: {also}"))),
                    };
                    json!({
                        "expression": text,
                        "value": Value::Null,
                        "text": shown,
                        "frame": frame,
                        "error": error,
                    })
                }
            };
            rows.push(row);
        }
        Ok(json!({"position": self.position(), "thread": tid.0, "values": rows}))
    }

    /// Evaluates an expression in frame number `frame`, or else in the innermost frame in which its
    /// names have a meaning. A value that is unknown there is [`Shown::Missing`], no error. Also
    /// returns the number of the frame that was used.
    fn evaluate(
        &self,
        tid: Tid,
        activations: &[Activation],
        text: &str,
        frame: Option<usize>,
    ) -> Result<(usize, Shown), String> {
        let question = Question::parse(text).map_err(|error| error.to_string())?;
        self.evaluate_in_frames(tid, activations, frame, &|evaluator, at, frame| {
            let bound = evaluator.bind(&question, at)?;
            let mut values = evaluator.answer(&bound, frame)?;
            values.pop().ok_or(Error::NotOneValue)
        })
    }

    /// Calls `evaluate` in the activation whose innermost frame is number `frame`, or without it in
    /// the innermost of [`MOST_FRAMES`] activations in which it succeeds. Also returns the number
    /// of that frame. Fails with the innermost frame's error, or if `frame` is another frame of an
    /// activation. The caller has checked that `frame` exists.
    fn evaluate_in_frames<T>(
        &self,
        tid: Tid,
        activations: &[Activation],
        frame: Option<usize>,
        evaluate: &dyn Fn(&Evaluator<'_>, Addr, &Frame<'_>) -> Result<T, Error>,
    ) -> Result<(usize, T), String> {
        let evaluator = Evaluator::new(self.asked.symbols());
        let machine = ThreadMachine::new(self.run(), tid);
        // The error if no frame is tried:
        let untried = match frame {
            Some(frame) => {
                format!("another function is inlined into frame {frame}: ask for the frame of that")
            }
            None => "the thread has no registers here".to_owned(),
        };
        let mut first_error = None;
        for activation in activations.iter().take(frame.map_or(MOST_FRAMES, |_| usize::MAX)) {
            if frame.is_some_and(|frame| frame != activation.first_frame) {
                continue;
            }
            // Without registers, the values that depend on them are unknown.
            let unknown = FrameRegisters { words: [None; 17], is_interrupted: true };
            let registers = activation.registers.as_ref().unwrap_or(&unknown);
            let is_innermost = activation.first_frame == 0;
            let of = Frame { registers, machine: &machine, is_innermost };
            match evaluate(&evaluator, activation.lookup_pc, &of) {
                Ok(value) => return Ok((activation.first_frame, value)),
                // The error of the innermost frame is the one to show.
                Err(error) => {
                    first_error.get_or_insert_with(|| error.to_string());
                }
            }
        }
        Err(first_error.unwrap_or(untried))
    }

    /// Returns true if all expressions of a question are known and not 0 in the innermost frame of
    /// a thread. Fails if they have no meaning there.
    pub(super) fn is_condition_true(&self, tid: Tid, question: &Question) -> Result<bool, String> {
        let at = self.run().pc(tid).ok_or("the thread has no next instruction")?;
        let evaluator = Evaluator::new(self.asked.symbols());
        let machine = ThreadMachine::new(self.run(), tid);
        let registers = FrameRegisters::innermost(&machine);
        let frame = Frame { registers: &registers, machine: &machine, is_innermost: true };
        let bound = evaluator.bind(question, at).map_err(|error| error.to_string())?;
        let values = evaluator.answer(&bound, &frame).map_err(|error| error.to_string())?;
        Ok(values.iter().all(is_true))
    }

    /// Returns the address range of the value of an expression, to be watched: in the innermost
    /// frame of the stopped thread in which it has a meaning. Fails if the value is not in one
    /// range of memory, is larger than [`MOST_WATCHED_BYTES`], or has an unknown size.
    pub(super) fn memory_range(&self, text: &str) -> Result<AddrRange, String> {
        let tid = self.session.last_stop().thread;
        let question = Question::parse(text).map_err(|error| error.to_string())?;
        let activations = self.activations(tid);
        let (_, located): (_, Located) =
            self.evaluate_in_frames(tid, &activations, None, &|evaluator, at, frame| {
                let bound = evaluator.bind(&question, at)?;
                evaluator.locate(&bound, frame)
            })?;
        let size_bytes = located
            .size_bytes
            .ok_or_else(|| format!("the size of {text} is unknown: watch a part of it"))?;
        match located.home.pieces.as_slice() {
            [(_, Piece::Memory(addr))] if (1..=MOST_WATCHED_BYTES).contains(&size_bytes) => {
                Ok(AddrRange::sized(*addr, size_bytes))
            }
            [(_, Piece::Memory(_))] => {
                Err(format!("{text} has {size_bytes} bytes: watch a part of it"))
            }
            _ => Err(format!(
                "{text} is not in memory here, and only memory is watched: ask for its origin"
            )),
        }
    }

    /// Asks gdb for the value of an expression in a frame of thread `tid`, waits, and returns gdb's
    /// text. Fails if this is not the thread that stopped, and for all expressions with `$_` or a
    /// control character, such as a tab: some of them could execute commands.
    fn ask_gdb(
        &self,
        host: &dyn Host,
        tid: Tid,
        frame: usize,
        expression: &str,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<String, String> {
        if self.session.last_stop().thread != tid {
            return Err("only the thread that stopped is shown by it".to_owned());
        }
        // `$_shell` runs commands of the shell, and a newline ends the expression.
        if expression.contains("$_") || expression.contains(char::is_control) {
            return Err("gdb is not asked for its convenience functions and variables".to_owned());
        }
        let position = self.position().ok_or("there is no history")?;
        let question = GdbQuestion { dir: &self.dir, position: &position, frame, expression };
        host.gdb_value(&question, interrupted)
    }
}

/// Returns true if a value is known, and not 0.
fn is_true(value: &Shown) -> bool {
    match value {
        Shown::Missing(_) => false,
        Shown::Integer(value) | Shown::Character(value) | Shown::Enumerator { value, .. } => {
            *value != 0
        }
        Shown::Boolean(value) => *value,
        Shown::Float(value) => *value != 0.0,
        Shown::Pointer { addr, .. } => addr.0 != 0,
        Shown::Scalar(value) => *value != '\0',
        Shown::Text(_) | Shown::Structure { .. } | Shown::Array { .. } | Shown::Frames(_) => true,
    }
}
