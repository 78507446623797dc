//! Reports of the gdb script about gdb's state, and their effect on replies.

use super::{Answer, Client};
use crate::gdb::{catches, finish, frame, hex, source_line, stop_reply};
use crate::session::{Run, Stop};

impl<R: Run> Client<'_, R> {
    /// Notes a report of the gdb script (`qContraflow.line`, `finish`, `interrupt` or `data`).
    /// Returns true if it is understood; false if it is malformed, which also withdraws the last
    /// report of its kind; `None` for other packets. `line` and `finish` without a text only
    /// withdraw it.
    pub(super) fn note_script_report(&mut self, body: &[u8]) -> Option<bool> {
        let (name, text) = hex::split(body.strip_prefix(b"qContraflow.")?, b':')?;
        match name {
            b"line" => {
                self.source_line = source_line::parse(text);
                Some(text.is_empty() || self.source_line.is_some())
            }
            b"finish" => {
                self.finish = finish::parse(text);
                Some(text.is_empty() || self.finish.is_some())
            }
            // gdb drops a Ctrl-C that arrives while a handler of the script runs.
            b"interrupt" => {
                self.interrupted = true;
                Some(true)
            }
            b"data" => {
                self.hides_data = text == b"hide";
                Some(matches!(text, b"hide" | b"show"))
            }
            _ => None,
        }
    }

    /// Returns the answer to a resume that ended with `stop`: the stop reply, after a note for the
    /// user if there is one. At the end of a `finish` whose returned value is unknown, the stop has
    /// no reason.
    pub(super) fn answer_with_notes(&mut self, stop: Stop) -> Answer {
        let ended =
            self.finish.take_if(|finish| finish.ends_without_value_at(&self.served.session, stop));
        let (reply, mut note) = if ended.is_some() {
            let reply =
                stop_reply::without_reason(&self.served.session, stop.thread, self.features);
            (reply, finish::NOTE.to_owned())
        } else {
            (self.stop_reply(stop), String::new())
        };
        note.push_str(&catches::unknown_calls_note(&self.served.session, stop).unwrap_or_default());
        if note.is_empty() {
            return Answer::Reply(reply);
        }
        let note = frame::encode(format!("O{}", hex::encode(note.as_bytes())).as_bytes());
        Answer::Framed([note, frame::encode(&reply)].concat())
    }
}
