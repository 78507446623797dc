//! Finds the program that a user named, and reports why it cannot be recorded. Examines the file
//! only; runs nothing.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The reason why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The program is not in `PATH`, or there is no such file.
    #[error("{}: no such program", .0.display())]
    Missing(PathBuf),
    /// A directory, or without execute permission.
    #[error("{}: not executable", .0.display())]
    NotExecutable(PathBuf),
    /// The file cannot be opened or read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of opening or reading it.
        error: std::io::Error,
    },
    /// A script whose interpreter cannot be recorded.
    #[error("{}: a script, whose interpreter cannot be recorded: {error}", path.display())]
    Interpreter {
        /// The script.
        path: PathBuf,
        /// The reason why the interpreter, which the first line names, cannot be recorded.
        error: Box<ProgramError>,
    },
    /// A chain of scripts as interpreters that is longer than the kernel follows.
    #[error("{}: too many interpreters that are scripts", .0.display())]
    Nested(PathBuf),
    /// Not an ELF file.
    #[error("{}: not an ELF program", .0.display())]
    NotElf(PathBuf),
    /// An ELF file that is not a program, such as an object file or a core.
    #[error("{}: an ELF file, but not a program", .0.display())]
    NotAProgram(PathBuf),
    /// A 32-bit program.
    #[error("{}: a 32-bit program; contraflow records 64-bit x86 programs only", .0.display())]
    Bits32(PathBuf),
    /// A program for another CPU.
    #[error(
        "{}: a program for another CPU (ELF machine {machine}); contraflow records x86-64 only",
        path.display()
    )]
    Machine {
        /// The program.
        path: PathBuf,
        /// The CPU that the ELF header names (`e_machine`).
        machine: u16,
    },
    /// A set-user-ID or set-group-ID program: under ptrace the kernel withholds its privileges.
    #[error(
        "{}: a set-user-ID or set-group-ID program, whose privileges the kernel withholds under \
         ptrace; run a copy without the bit",
        .0.display()
    )]
    SetId(PathBuf),
}

/// The number of interpreters that execve(2) follows before it fails with ELOOP (fs/exec.c,
/// `exec_binprm`).
const INTERPRETERS_LIMIT: usize = 5;
/// Bytes of a file in which execve(2) looks for a script's first line (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: u64 = 256;

/// Returns the absolute path of the program that a shell would run for `name`, or the reason why it
/// cannot be recorded. Symbolic links stay as they are. For a script, returns its own path,
/// although the kernel runs its interpreter; see [`image_of`]. execve(2) can still fail, for
/// instance if only other users may execute the file.
pub fn resolve(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let found = find_in_path(name)?;
    check(&found, INTERPRETERS_LIMIT)?;
    // Not the canonical path: busybox and others look at the name they are called by.
    std::path::absolute(&found).map_err(|error| ProgramError::Io { path: found, error })
}

/// Returns the ELF file that the kernel runs for a program: the file itself or, for a script, its
/// interpreter. Follows as many interpreters as the kernel does; a relative one starts at this
/// process's working directory. Checks nothing: a file that cannot be read, or does not exist,
/// counts as ELF.
pub fn image_of(program: &Path) -> PathBuf {
    let mut image = program.to_owned();
    for _ in 0..INTERPRETERS_LIMIT {
        match read_head(&image).ok().and_then(|head| interpreter(&head)) {
            Some(next) => image = next,
            None => break,
        }
    }
    image
}

/// Checks that a file can be executed and recorded, and its interpreter if it is a script. Follows
/// at most `interpreters` of them.
fn check(found: &Path, interpreters: usize) -> Result<(), ProgramError> {
    let io = |error| ProgramError::Io { path: found.to_owned(), error };
    let path = fs::canonicalize(found).map_err(io)?;
    let metadata = fs::metadata(&path).map_err(io)?;
    let head = read_head(&path).map_err(io);
    let Some(interpreter) = head.as_ref().ok().and_then(|head| interpreter(head)) else {
        check_permissions(&path, &metadata)?;
        return check_header(&path, &head?);
    };
    // The kernel ignores a script's set-user-ID bit.
    check_executable(&path, &metadata)?;
    let Some(rest) = interpreters.checked_sub(1) else {
        return Err(ProgramError::Nested(path));
    };
    let checked = if interpreter.exists() {
        check(&interpreter, rest)
    } else {
        Err(ProgramError::Missing(interpreter))
    };
    checked.map_err(|error| ProgramError::Interpreter { path, error: Box::new(error) })
}

/// Reads the start of a file, up to [`HEAD_BYTES`].
fn read_head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns the interpreter that a script's first line names, without its argument; `None` if the
/// file is no script, or the line names none.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let mut words = line.split(|b| b" \t".contains(b)).filter(|word| !word.is_empty());
    Some(PathBuf::from(OsStr::from_bytes(words.next()?)))
}

/// Finds the file that a shell would execute: the first executable one in `PATH`, or a path if the
/// name contains a slash, which may be any file that exists. Without `PATH`, searches `/bin` and
/// `/usr/bin`.
fn find_in_path(name: &OsStr) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if path.exists() { Ok(path) } else { Err(ProgramError::Missing(path)) };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut candidates = std::env::split_paths(&path).map(|dir| dir.join(name));
    let executable = |p: &PathBuf| {
        fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if let Some(found) = candidates.find(executable) {
        return Ok(found);
    }
    let here = Path::new(name);
    let in_path = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file());
    in_path.map_or_else(
        || Err(ProgramError::Missing(here.to_owned())),
        |p| Err(ProgramError::NotExecutable(p)),
    )
}

/// Checks that a file is a regular file with an execute bit, for anyone.
fn check_executable(path: &Path, metadata: &Metadata) -> Result<(), ProgramError> {
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(ProgramError::NotExecutable(path.to_owned()));
    }
    Ok(())
}

/// Checks as [`check_executable`] does, and that the set-user-ID and set-group-ID bits would not
/// change the effective user or group. Whether this user may execute the file is left to the
/// kernel.
fn check_permissions(path: &Path, metadata: &Metadata) -> Result<(), ProgramError> {
    check_executable(path, metadata)?;
    let mode = metadata.permissions().mode();
    let me = nix::unistd::geteuid().as_raw();
    let changes_user = mode & 0o4000 != 0 && metadata.uid() != me;
    let changes_group =
        mode & 0o2010 == 0o2010 && metadata.gid() != nix::unistd::getegid().as_raw();
    if changes_user || changes_group {
        return Err(ProgramError::SetId(path.to_owned()));
    }
    Ok(())
}

/// Checks that an ELF header is that of an x86-64 program: its identification, type and machine
/// (System V ABI, "ELF Header"). A shared library counts as a program: position-independent
/// programs have the same type.
fn check_header(path: &Path, head: &[u8]) -> Result<(), ProgramError> {
    const X86_64: u16 = 62;
    const I386: u16 = 3;
    const EXEC: u16 = 2;
    const DYN: u16 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    match (head.get(..5), half(16), half(18)) {
        (Some(b"\x7fELF\x02"), Some(EXEC | DYN), Some(X86_64)) => Ok(()),
        (Some(b"\x7fELF\x01"), _, Some(I386 | X86_64)) => {
            Err(ProgramError::Bits32(path.to_owned()))
        }
        (Some(b"\x7fELF\x02"), Some(_), Some(X86_64)) => {
            Err(ProgramError::NotAProgram(path.to_owned()))
        }
        (Some([0x7f, b'E', b'L', b'F', _]), _, Some(machine)) => {
            Err(ProgramError::Machine { path: path.to_owned(), machine })
        }
        _ => Err(ProgramError::NotElf(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(mode: u32, content: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let text = resolve(path.as_os_str()).unwrap_err().to_string();
        text.strip_prefix(dir.path().to_str().unwrap()).unwrap().to_owned()
    }

    #[test]
    fn each_refusal_is_one_clear_sentence() {
        assert_eq!(refusal(0o644, b""), "/p: not executable");
        assert_eq!(refusal(0o755, b""), "/p: not an ELF program");
        assert!(refusal(0o755, b"#!/no-such -e\n").ends_with("/no-such: no such program"));
        assert!(refusal(0o755, b"#! /etc/passwd\n").ends_with("/etc/passwd: not executable"));
        assert_eq!(refusal(0o755, b"#!\n"), "/p: not an ELF program");
        let mut elf = b"\x7fELF\x02".to_vec();
        elf.resize(64, 0);
        (elf[16], elf[18]) = (2, 183);
        assert!(refusal(0o755, &elf).contains("another CPU (ELF machine 183)"));
        (elf[16], elf[18]) = (4, 62);
        assert!(refusal(0o755, &elf).contains("not a program"));
        (elf[4], elf[18]) = (1, 3);
        assert!(refusal(0o755, &elf).contains("32-bit"));
        assert!(resolve(OsStr::new("/nowhere")).unwrap_err().to_string().contains("no such"));
        assert!(resolve(OsStr::new("no-such-program-here")).is_err());
        assert!(resolve(OsStr::new("ls")).unwrap().is_absolute());
    }

    #[test]
    fn a_script_is_run_by_the_interpreter_at_the_end_of_its_chain() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, line: &str| {
            let path = dir.path().join(name);
            fs::write(&path, format!("{line}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let inner = script("inner", "#! \t/bin/sh\t-e -x");
        let outer = script("outer", &format!("#!{}", inner.display()));
        assert_eq!(resolve(outer.as_os_str()).unwrap(), outer);
        assert_eq!(image_of(&outer), Path::new("/bin/sh"));
        let itself = script("itself", &format!("#!{}", dir.path().join("itself").display()));
        let refused = resolve(itself.as_os_str()).unwrap_err().to_string();
        assert!(refused.ends_with("too many interpreters that are scripts"), "{refused}");
        assert_eq!(image_of(Path::new("/bin/sh")), Path::new("/bin/sh"));
    }
}
