//! The `monitor` commands: queries and seeks for which the protocol has no packet. The answers are
//! text for the user.

pub(crate) mod about;
mod back;
mod calls;
pub(crate) mod clock;
mod marks;
mod path;
mod seek;

use crate::session::{Run, Session};
use std::time::{Duration, Instant};

const HELP: &str = "\
when                 show the position in the history, the thread, the time and the share
seek N | +N | -N     go to position N, or N instructions later or earlier
seek N%              go to that percentage of the history
seek TIME            go to a time, like 1.5s, 20ms, 300us or 7ns; +TIME and -TIME from here
seek start | end     go to the beginning or the end of the history
seek MARK            go to a mark
back TID into | over | out FRAME RETURN
                     step back by a line, or out of a function, without the debugger's help
on-continue COMMAND  the same at the next continue, for debuggers that cache what they read
mark NAME            mark this position; `unmark NAME` removes the mark
marks                list the marks
history [N]          show the calls around here, N before and N after
find WHAT [N]        list the last N executions of FUNCTION, FILE:LINE or *ADDRESS,
                     newest first
last ADDRESS SIZE    go back to the last change of so many bytes
home                 go back out of libraries, to the last call by the program's own code
caller               go back to the call of this function
return               go forward to the return of this function
info                 show the program and how it ended
stats                show the size of each thread's history
gaps                 list the gaps in the history
exit                 end the server when this debugger leaves
help                 show this
After a seek, gdb still shows old values: type `maintenance flush register-cache` and
`maintenance flush dcache`, or use the command cf-seek of contraflow's gdb script.
";

/// The answer of a run without a history.
const NO_HISTORY: &str = "there is no history: no program has run here yet\n";
/// The answer of an exact recording, which has values instead, to a command that needs a path.
const NO_PATH: &str = "only recordings of the path have that: in an exact recording `history`, `find`, \
                       breakpoints, watchpoints and reverse-continue answer\n";
/// The time between two reports of progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// The minimum progress between two reports, in percent of the whole.
const PROGRESS_PERCENT: u64 = 5;
/// The commands that move. If one of them has moved, its answer ends with the text of `when`.
const MOVING: [&str; 6] = ["seek", "back", "last", "home", "caller", "return"];

/// The result of a `monitor` command.
pub(super) struct Answer {
    /// The text to show.
    pub(super) text: String,
    /// True if the command has moved in the history.
    pub(super) has_moved: bool,
    /// The position to move to when the client resumes, instead of running (`on-continue`).
    pub(super) repeat_at_resume: Option<u64>,
    /// True if the server shall end when the client leaves.
    pub(super) exits: bool,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, has_moved: false, repeat_at_resume: None, exits: false }
    }
}

/// Executes a command, which may move in the history, and returns its answer. Calls `interrupted`
/// regularly, and stops if it returns true; calls `say` with reports of progress. A command after
/// `on-continue` is executed at once; if the last line of its answer starts with "position ", the
/// client's next resume moves to where the run is after the command, instead of running
/// ([`Answer::repeat_at_resume`]).
pub(super) fn answer<R: Run>(
    session: &mut Session<R>,
    command: &str,
    interrupted: &dyn Fn() -> bool,
    say: &dyn Fn(&str),
) -> Answer {
    let (mut said, mut last) = (Instant::now(), 0);
    let mut goes_on = |done: u64, total: u64| {
        let percent = done.saturating_mul(100) / total.max(1);
        if said.elapsed() > PROGRESS_PERIOD && percent >= last + PROGRESS_PERCENT {
            (said, last) = (Instant::now(), percent);
            say(&format!("the path of the run is made, once: {percent}% done\n"));
        }
        !interrupted()
    };
    if let Some(command) = command.trim_start().strip_prefix("on-continue ")
        && !command.trim_start().starts_with("on-continue")
    {
        let answer = answer(session, command, interrupted, say);
        let here = session.run().position().filter(|_| answer.has_moved);
        return Answer { repeat_at_resume: here.map(|here| here.at), ..answer };
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    let text = match words.as_slice() {
        [] | ["help"] => HELP.to_owned(),
        ["when"] => about::when(session),
        ["info"] => about::info(session),
        ["gaps"] => about::gaps(session),
        ["stats"] => about::stats(session),
        ["seek", to] => seek::seek(session, to, interrupted),
        ["back", thread, how @ ..] => back::back(session, thread, how, interrupted),
        ["seek", ..] => "seek where? For example: monitor seek 1000\n".to_owned(),
        ["mark", name] => marks::mark(session, name),
        ["unmark", name] => marks::unmark(session, name),
        ["mark" | "unmark", ..] => "give one name, for example: monitor mark here\n".to_owned(),
        ["marks"] => marks::list(session),
        ["history"] => path::calls_around(session, None, &mut goes_on),
        ["history", count] => path::calls_around(session, Some(count), &mut goes_on),
        ["find"] => "find what? For example: monitor find main\n".to_owned(),
        ["find", what @ ..] => path::find(session, &what.join(" "), interrupted),
        ["last", address, size] => seek::seek_last_change(session, address, size, interrupted),
        ["last", ..] => "last change of what? For example: monitor last 0x7fff1230 8\n".to_owned(),
        ["home"] => calls::home(session),
        ["caller"] => calls::caller(session),
        ["return"] => calls::return_from(session, interrupted),
        ["exit"] => {
            let text = "the server ends when this debugger leaves\n".to_owned();
            return Answer { exits: true, ..text.into() };
        }
        _ => format!("no such command: {}; try: monitor help\n", command.trim()),
    };
    let has_moved = words.first().is_some_and(|command| MOVING.contains(command))
        && text.lines().last().is_some_and(|last| last.starts_with("position "));
    Answer { has_moved, ..text.into() }
}

/// Returns the answer to a question that needs a path, where there is none: in an exact recording,
/// or without any history.
fn no_path<R: Run>(session: &Session<R>) -> String {
    if session.run().is_exact() { NO_PATH } else { NO_HISTORY }.to_owned()
}
