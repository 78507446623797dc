//! Programs in a terminal of their own, by script(1): what is typed there, keys for signals
//! included, reaches all of the foreground process group.

use crate::support::{Scene, contraflow, have};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const PROMPT: &str = "(gdb) ";
const CTRL_C: &str = "\x03";
const CTRL_BACKSLASH: &str = "\x1c";

/// A terminal with a program in its foreground.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// What was shown since the last thing that was waited for.
    shown: String,
}

impl Terminal {
    fn running(command: &Command) -> Self {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let mut script = Command::new("script");
        // A shell that stayed would get the signals as well, and some (dash) die of them.
        let line = format!("exec {}", words.join(" "));
        script.args(["-qefc", &line, "/dev/null"]).env("TERM", "dumb");
        for (name, value) in command.get_envs() {
            script.env(name, value.unwrap_or_default());
        }
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().expect("script runs");
        let keys = script.stdin.take().unwrap();
        let mut output = script.stdout.take().unwrap();
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { script, keys, screen, shown: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal is there");
        self.keys.flush().unwrap();
    }

    /// Waits for a text, and returns what was shown before it.
    fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.screen.recv_timeout(left) else {
                panic!("no {text:?} in:\n{}", self.shown)
            };
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// Types a command, and returns what it shows before the next prompt.
    fn command(&mut self, line: &str) -> String {
        self.press(&format!("{line}\n"));
        // The terminal's echo.
        self.wait_for("\n");
        self.wait_for(PROMPT)
    }

    /// Waits for the end, and returns the exit status.
    fn status(mut self) -> Option<i32> {
        self.script.wait().expect("script ends").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal goes with it, and so do the programs in it.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn replay(scene: &Scene, program: &str) -> Command {
    let program = scene.compile(program, &["-O0"]);
    let recording = scene.path("recording");
    let mut record = contraflow();
    record.args(["record", "-q", "--full", "-o"]).arg(&recording).arg(program);
    assert!(record.status().expect("contraflow runs").success());
    let mut replay = contraflow();
    replay.arg("replay").arg(recording).args(["--", "-nx", "-ex", "set pagination off"]);
    replay.env_remove("DEBUGINFOD_URLS");
    replay
}

#[test]
fn keys_for_signals_are_gdbs() {
    if !have("script") {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::running(&replay(&scene, "often.c"));
    terminal.wait_for(PROMPT);
    for _ in 0..3 {
        terminal.press(CTRL_C);
        terminal.wait_for(PROMPT);
        // gdb shows nothing for this one.
        terminal.press(CTRL_BACKSLASH);
        let place = terminal.command("cf-when");
        assert!(place.contains("the end: exited with status 0"), "{place}");
    }
    terminal.command("set confirm off");
    terminal.press("quit\n");
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn a_long_command_backwards_is_interrupted() {
    if !have("script") {
        return;
    }
    let scene = Scene::new();
    let mut terminal = Terminal::running(&replay(&scene, "often.c"));
    terminal.wait_for(PROMPT);
    // It holds in no call, so each of them is a stop that gdb passes over.
    terminal.command("break often if $_caller_is(\"nobody\")");
    terminal.press("reverse-continue\n");
    terminal.wait_for("Continuing.");
    // gdb loses a key that comes just as it calls the script, before it resumes.
    thread::sleep(Duration::from_secs(1));
    terminal.press(CTRL_C);
    terminal.wait_for(PROMPT);
    let place = terminal.command("cf-when");
    assert!(place.contains("position ") && !place.contains("position 0 of"), "{place}");
    terminal.command("set confirm off");
    terminal.press("quit\n");
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn the_first_prompt_comes_however_many_libraries_there_are() {
    if !have("script") {
        return;
    }
    let scene = Scene::new();
    let mut command = replay(&scene, "often.c");
    // gdb would ask for a key before it shows more lines than that.
    command.args(["-iex", "set height 9"]);
    let mut terminal = Terminal::running(&command);
    let shown = terminal.wait_for(PROMPT);
    assert!(shown.contains("100.00% of the history"), "{shown}");
    assert!(!shown.contains("libc.so.6"), "{shown}");
}
