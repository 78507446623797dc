//! The `monitor` commands: questions and seeks that the protocol has no packet for. The answers
//! are text for people.

mod about;
mod calls;
pub(crate) mod clock;
mod marks;
mod path;
mod seek;

use crate::session::{Run, Session};

const HELP: &str = "\
when                 show where in the history this is: position, thread, time, share
seek N | +N | -N     go to position N, or N instructions later or earlier
seek N%              go to that share of the history
seek TIME            go to a time, as 1.5s, 20ms, 300us or 7ns; +TIME and -TIME from here
seek start | end     go to the beginning or the end of the history
seek MARK            go to a place that was marked
seek-on-continue ..  the same, as soon as the debugger continues: for those that keep what they read
mark NAME            mark this place; `unmark NAME` forgets it
marks                list the marks
history [N]          show the calls around here, N before and N after
find WHAT [N]        list where the path comes to FUNCTION, FILE:LINE or *ADDRESS: the last N
                     places, the last one first
home                 go back to the last place in the program's own code, out of libraries
caller               go back to the call of this function
return               go forward to where this function returns
info                 show what was recorded and how it ended
stats                show how much of a history each thread has
gaps                 list the holes in the history
exit                 end the server when this debugger leaves
help                 show this
After a seek gdb still shows what it read before: type `maintenance flush register-cache` and
`maintenance flush dcache`, or use the command cf-seek of contraflow's gdb script.
";

/// What a command came to.
pub(super) struct Answer {
    /// Text to show.
    pub(super) text: String,
    /// Where to go as soon as the client resumes.
    pub(super) seek: Option<u64>,
    /// The server is to end when the client leaves.
    pub(super) exits: bool,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, seek: None, exits: false }
    }
}

/// Answers one command. `interrupted` is asked now and then.
pub(super) fn answer<R: Run>(
    session: &mut Session<R>,
    command: &str,
    interrupted: &dyn Fn() -> bool,
) -> Answer {
    let words: Vec<&str> = command.split_whitespace().collect();
    let text = match words.as_slice() {
        [] | ["help"] => HELP.to_owned(),
        ["when"] => about::when(session),
        ["info"] => about::info(session),
        ["gaps"] => about::gaps(session),
        ["stats"] => about::stats(session),
        ["seek", to] => seek::seek(session, to),
        ["seek-on-continue", to] => match seek::target(session, to) {
            Ok(target) => {
                let text = format!("position {target} comes with the next continue\n");
                return Answer { seek: Some(target), ..text.into() };
            }
            Err(why) => why,
        },
        ["seek" | "seek-on-continue", ..] => {
            "seek where? For example: monitor seek 1000\n".to_owned()
        }
        ["mark", name] => marks::mark(session, name),
        ["unmark", name] => marks::unmark(session, name),
        ["mark" | "unmark", ..] => "give one name, for example: monitor mark here\n".to_owned(),
        ["marks"] => marks::list(session),
        ["history"] => path::around(session, None),
        ["history", count] => path::around(session, Some(count)),
        ["find"] => "find what? For example: monitor find main\n".to_owned(),
        ["find", what @ ..] => path::find(session, &what.join(" "), interrupted),
        ["home"] => calls::home(session),
        ["caller"] => calls::caller(session),
        ["return"] => calls::return_from(session, interrupted),
        ["exit"] => {
            let text = "the server ends when this debugger leaves\n".to_owned();
            return Answer { exits: true, ..text.into() };
        }
        _ => format!("no such command: {}; try: monitor help\n", command.trim()),
    };
    text.into()
}

/// Where there is no history.
const NO_HISTORY: &str = "there is no history: no program has run here yet\n";
