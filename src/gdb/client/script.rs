//! Reports of the gdb script about gdb's state, and their effect on replies.

use super::{Answer, Client};
use crate::gdb::{catches, finish, frame, hex, source_line, stop_reply};
use crate::session::{Run, Stop};

impl<R: Run> Client<'_, R> {
    /// Handles a report of the gdb script. Returns false if it is malformed; `None` for other
    /// packets.
    pub(super) fn take_of_script(&mut self, body: &[u8]) -> Option<bool> {
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

    /// Returns the answer to a resume that ended with `stop`, with notes for the user.
    pub(super) fn report(&mut self, stop: Stop) -> Answer {
        let ended = self.finish.take_if(|finish| finish.ends_at(&self.served.session, stop));
        let (reply, mut note) = if ended.is_some() {
            let reply = stop_reply::quiet(&self.served.session, stop.thread, self.features);
            (reply, finish::NOTE.to_owned())
        } else {
            (self.stop_reply(stop), String::new())
        };
        note.push_str(&catches::note(&self.served.session, stop).unwrap_or_default());
        if note.is_empty() {
            return Answer::Reply(reply);
        }
        let note = frame::encode(format!("O{}", hex::encode(note.as_bytes())).as_bytes());
        Answer::Framed([note, frame::encode(&reply)].concat())
    }
}
