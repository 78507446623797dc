//! `contraflow replay`: gdb on a recording, or a server for another debugger.

use super::temporary::Temporary;
use super::{Failure, arguments, open, quoted, say};
use crate::gdb::{self, Listener, Options};
use crate::recording::{Reader, Store};
use crate::session::{Recorded, Recording, Session};
use crate::sideband::{Event, FileId, ImageId};
use crate::timeline::Images;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, io};

pub(super) fn run(arguments: &arguments::Replay) -> Result<ExitCode, Failure> {
    let listener = match (&arguments.listen, arguments.stdio) {
        (_, true) => Listener::Stdio,
        (Some(address), false) => listener(address)?,
        (None, false) => return debug(arguments),
    };
    let recording = open::recording(arguments.recording.as_deref())?;
    let options = Options {
        edge_as_trap: arguments.edge_as_trap,
        once: arguments.once,
        announce: Box::new(|line| say(&line)),
        ..Options::default()
    };
    gdb::serve(listener, session(recording), options)?;
    Ok(ExitCode::SUCCESS)
}

fn session(recording: Recording) -> Session<Recorded<Recording>> {
    Session::new(Recorded::at_end(recording))
}

/// A socket at `:PORT`, `HOST:PORT`, or `unix:PATH`.
pub(super) fn listener(address: &str) -> Result<Listener, Failure> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(Listener::unix(Path::new(path))?);
    }
    let wrong = || format!("{address}: give :PORT, HOST:PORT or unix:PATH");
    if let Some(port) = address.strip_prefix(':') {
        let port = port.parse().map_err(|_| wrong())?;
        return Ok(Listener::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?);
    }
    let found = address.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)?;
    if !found.ip().is_loopback() {
        say(&format!(
            "warning: {found} can be reached from other machines, and whoever connects reads the \
             recording, or controls the program"
        ));
    }
    Ok(Listener::tcp(found)?)
}

/// Runs gdb on the recording, with its files in the places where gdb looks for them.
fn debug(arguments: &arguments::Replay) -> Result<ExitCode, Failure> {
    let dir = Store::of_user().find(arguments.recording.as_deref())?;
    let dir = fs::canonicalize(&dir)?;
    let reader = Reader::open(&dir)?;
    let place = Place::make(&reader)?;
    let mut gdb = Command::new(arguments.gdb.clone().unwrap_or_else(|| "gdb".into()));
    gdb.arg("-q").args(place.commands(&dir)?).args(&arguments.gdb_arguments);
    let status = gdb.status().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "gdb is not installed; install it (apt-get install gdb), or \
             serve another debugger with --listen :PORT"
            .to_owned(),
        _ => format!("gdb does not start: {error}"),
    })?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// A directory that shows the recording's files under their own paths. Lives as long as gdb.
struct Place {
    dir: Temporary,
    program: Option<PathBuf>,
}

impl Place {
    fn make(reader: &Reader) -> Result<Self, Failure> {
        let mut place = Self { dir: Temporary::make()?, program: None };
        fs::write(place.script(), gdb::SCRIPT)?;
        let records = reader.sideband()?;
        let mut paths: HashMap<FileId, String> = HashMap::new();
        let mut stored: HashMap<String, ImageId> = HashMap::new();
        let mut last_exec = reader.manifest().program.clone();
        for record in &records {
            match &record.event {
                Event::File { file, path } => {
                    paths.insert(*file, path.clone());
                }
                Event::Image { file, image } => {
                    if let Some(path) = paths.get(file) {
                        stored.insert(path.clone(), image.clone());
                    }
                }
                Event::Exec { path } => last_exec.clone_from(path),
                _ => {}
            }
        }
        // What is damaged is not shown; the server says that it is.
        let (images, _) = Images::load(reader, &records)?;
        stored.retain(|path, _| images.file(path).is_some());
        for (path, image) in &stored {
            place.show(reader.dir(), path, image)?;
        }
        // The dynamic linker, and so gdb, knows libraries by other names than the kernel.
        let last = images.last().cloned().unwrap_or_default();
        let state = open::final_state(reader).unwrap_or_default();
        let named = |library: &crate::state::Library| !library.map.name.is_empty();
        for library in state.libraries(&last).unwrap_or_default().into_iter().filter(named) {
            if let Some(image) = stored.get(&*library.file) {
                place.show(reader.dir(), &library.map.name, image)?;
            }
        }
        // What the kernel maps has the canonical path.
        let canonical = fs::canonicalize(&last_exec).unwrap_or_else(|_| last_exec.clone().into());
        let shown = [canonical, PathBuf::from(last_exec)].map(|path| place.inside(&path));
        place.program = shown.into_iter().find(|path| path.exists());
        Ok(place)
    }

    fn script(&self) -> PathBuf {
        self.dir.dir().join("contraflow.py")
    }

    fn inside(&self, path: &Path) -> PathBuf {
        let relative = path.strip_prefix("/").unwrap_or(path);
        // A path of a hostile recording must not lead out of the directory.
        let normal =
            relative.components().filter(|part| matches!(part, std::path::Component::Normal(_)));
        self.dir.dir().join("root").join(normal.collect::<PathBuf>())
    }

    fn show(&self, recording: &Path, path: &str, image: &ImageId) -> io::Result<()> {
        let link = self.inside(Path::new(path));
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        // The last of several files of one path stays.
        let _ = fs::remove_file(&link);
        symlink(recording.join("images").join(&image.0), link)
    }

    fn commands(&self, recording: &Path) -> Result<Vec<OsString>, Failure> {
        let command = |words: &[&OsStr]| words.join(OsStr::new(" "));
        let root = self.dir.dir().join("root");
        let mut commands = vec![
            // Of its own it waits 2 s for an answer, and takes one that comes late for that to its next
            // question.
            "set remotetimeout 60".into(),
            command(&["set sysroot".as_ref(), root.as_os_str()]),
        ];
        if let Some(program) = &self.program {
            commands.push(command(&["file".as_ref(), &quoted::given(program.as_os_str())]));
        }
        commands.push(command(&["source".as_ref(), self.script().as_os_str()]));
        let this = quoted::given(std::env::current_exe()?.as_os_str());
        let recording = quoted::given(recording.as_os_str());
        let server = ["target remote |".as_ref(), &*this, "replay --stdio".as_ref(), &*recording];
        commands.push(command(&server));
        Ok(commands.into_iter().flat_map(|command| ["-ex".into(), command]).collect())
    }
}
