//! `target extended-remote`: programs that the client runs, their environment, and processes to
//! attach to.

use super::hex;
use crate::common::Pid;
use crate::session::{Launch, Start};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The maximum number of environment edits.
const EDITS_LIMIT: usize = 10_000;

/// The client's settings for the next program.
#[derive(Clone, Debug, Default)]
pub(super) struct Preparation {
    /// Variables to set or to unset (`None`), in the order of the packets.
    environment: Vec<(OsString, Option<OsString>)>,
    /// The working directory; `None` for the server's.
    directory: Option<PathBuf>,
    /// True to randomize addresses; `None` if the client has not chosen.
    aslr: Option<bool>,
}

impl Preparation {
    /// Notes a packet that prepares a start: about the environment, the directory, or
    /// randomization. Returns true if it is understood, false if it is malformed; `None` for other
    /// packets.
    pub(super) fn note_packet(&mut self, body: &[u8]) -> Option<bool> {
        let text = std::str::from_utf8(body).ok()?;
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let understood = match name {
            "QEnvironmentReset" => {
                self.environment.clear();
                true
            }
            "QEnvironmentHexEncoded" => self.edit_environment(hex::decode(value.as_bytes()), true),
            "QEnvironmentUnset" => self.edit_environment(hex::decode(value.as_bytes()), false),
            "QSetWorkingDir" => {
                let path = hex::decode(value.as_bytes());
                if let Some(path) = &path {
                    let named = Some(path).filter(|path| !path.is_empty());
                    self.directory =
                        named.map(|path| PathBuf::from(OsString::from_vec(path.clone())));
                }
                path.is_some()
            }
            "QDisableRandomization" => {
                let is_known = matches!(value, "0" | "1");
                if is_known {
                    self.aslr = Some(value == "0");
                }
                is_known
            }
            // Arguments arrive separately, so a shell is not needed.
            "QStartupWithShell" => matches!(value, "0" | "1"),
            _ => return None,
        };
        Some(understood)
    }

    /// Notes a variable to set, as `NAME=VALUE`, or to unset. Returns false if it is malformed, or
    /// after too many edits.
    fn edit_environment(&mut self, variable: Option<Vec<u8>>, sets: bool) -> bool {
        let Some(variable) = variable.filter(|_| self.environment.len() < EDITS_LIMIT) else {
            return false;
        };
        let at = variable.iter().position(|byte| *byte == b'=');
        let (name, value) = match (sets, at) {
            (true, Some(at)) => (variable[..at].to_vec(), Some(variable[at + 1..].to_vec())),
            (true, None) => return false,
            (false, _) => (variable, None),
        };
        if name.is_empty() || name.contains(&0) {
            return false;
        }
        self.environment.push((OsString::from_vec(name), value.map(OsString::from_vec)));
        true
    }

    /// Returns the server's own environment with the client's edits.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<_> = std::env::vars_os().collect();
        for (name, value) in &self.environment {
            variables.retain(|(known, _)| known != name);
            variables.extend(value.clone().map(|value| (name.clone(), value)));
        }
        variables
    }

    /// Returns the start that `vRun;PROGRAM;ARGUMENT...` or `vAttach;PID` asks for, with the
    /// client's settings, or an error message if the packet is malformed. An empty PROGRAM means
    /// the previous one. Starts nothing. Returns `None` for other packets.
    pub(super) fn parse_start(&self, body: &[u8]) -> Option<Result<Start, &'static str>> {
        if let Some(pid) = body.strip_prefix(b"vAttach;") {
            let pid =
                hex::number(pid).and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
            return Some(pid.map(|pid| Start::Process(Pid(pid))).ok_or("that is not a process"));
        }
        let words = body.strip_prefix(b"vRun;")?;
        let word = |word: &[u8]| hex::decode(word).map(OsString::from_vec);
        let words: Option<Vec<OsString>> = words.split(|byte| *byte == b';').map(word).collect();
        let Some(mut words) = words else { return Some(Err("malformed")) };
        let program = words.remove(0);
        Some(Ok(Start::Program(Launch {
            program: (!program.is_empty()).then_some(program),
            arguments: words,
            environment: self.environment(),
            directory: self.directory.clone(),
            aslr: self.aslr,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> String {
        hex::encode(text.as_bytes())
    }

    #[test]
    fn a_program_is_prepared() {
        let mut preparation = Preparation::default();
        let set = format!("QEnvironmentHexEncoded:{}", encoded("CONTRAFLOW_TEST=a=b"));
        let unset = format!("QEnvironmentUnset:{}", encoded("PATH"));
        let directory = format!("QSetWorkingDir:{}", encoded("/tmp"));
        for packet in [&set, &unset, &directory, "QDisableRandomization:0", "QStartupWithShell:1"] {
            assert_eq!(preparation.note_packet(packet.as_bytes()), Some(true), "{packet}");
        }
        let run = format!("vRun;{};{};", encoded("/bin/ls"), encoded("-l"));
        let Some(Ok(Start::Program(launch))) = preparation.parse_start(run.as_bytes()) else {
            panic!()
        };
        assert_eq!(launch.program, Some("/bin/ls".into()));
        assert_eq!(launch.arguments, ["-l", ""]);
        assert!(launch.environment.contains(&("CONTRAFLOW_TEST".into(), "a=b".into())));
        assert!(launch.environment.iter().all(|(name, _)| name != "PATH"));
        assert_eq!((launch.directory, launch.aslr), (Some("/tmp".into()), Some(true)));
        let Some(Ok(Start::Program(again))) = preparation.parse_start(b"vRun;") else { panic!() };
        assert_eq!((again.program, again.arguments.len()), (None, 0));
        assert_eq!(preparation.parse_start(b"vAttach;1f"), Some(Ok(Start::Process(Pid(31)))));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let mut preparation = Preparation::default();
        for packet in ["QEnvironmentHexEncoded:zz", "QEnvironmentHexEncoded:61", "QSetWorkingDir:1"]
        {
            assert_eq!(preparation.note_packet(packet.as_bytes()), Some(false), "{packet}");
        }
        assert_eq!(preparation.note_packet(b"QElse"), None);
        assert!(matches!(preparation.parse_start(b"vRun;1"), Some(Err(_))));
        assert!(matches!(preparation.parse_start(b"vAttach;0"), Some(Err(_))));
        assert_eq!(preparation.parse_start(b"vCont"), None);
    }
}
