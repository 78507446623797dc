//! Remedies that a debugger's user has for errors of the session.

use super::frame;
use crate::session::Error;

/// Returns the reply to a packet that failed: a sentence for the user, with the remedy if there is
/// one.
pub(super) fn error_reply(error: &Error) -> Vec<u8> {
    let remedy = remedy(error).map(|remedy| format!("; {remedy}")).unwrap_or_default();
    frame::error_text(&format!("{error}{remedy}"))
}

/// Returns the remedy for an error; `None` if there is none.
fn remedy(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::LivePastIsFixed => {
            "go forward to the live end first (monitor seek end, or continue)"
        }
        Error::NotRunAgain => "`contraflow serve` runs programs",
        Error::TwoProcesses => "detach one of them first (set detach-on-fork on)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_name_the_remedy() {
        let text = |error| String::from_utf8(error_reply(&error)).unwrap();
        assert_eq!(text(Error::Gone), "E.the program is gone");
        assert_eq!(
            text(Error::NotRunAgain),
            "E.a recording cannot run again; `contraflow serve` runs programs"
        );
    }
}
