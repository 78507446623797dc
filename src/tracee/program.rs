//! Finds the program that a user named, and says what about it cannot be recorded. Looks at the
//! file only; runs nothing.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Not in `PATH`, or no such file.
    #[error("{}: no such program", .0.display())]
    Missing(PathBuf),
    /// A directory, or without execute permission.
    #[error("{}: not executable", .0.display())]
    NotExecutable(PathBuf),
    /// The file does not open.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A script.
    #[error(
        "{}: a script; record its interpreter instead: contraflow record {interpreter} {}",
        path.display(),
        path.display()
    )]
    Script {
        /// The script.
        path: PathBuf,
        /// What its first line names.
        interpreter: String,
    },
    /// Not an ELF file.
    #[error("{}: not an ELF program", .0.display())]
    NotElf(PathBuf),
    /// An ELF file that is no program, such as an object file or a core.
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
        /// `e_machine`.
        machine: u16,
    },
    /// The kernel drops the privileges of a traced set-user-ID program, so it would run otherwise.
    #[error(
        "{}: a set-user-ID or set-group-ID program, whose privileges the kernel withholds under \
         ptrace; run a copy without the bit",
        .0.display()
    )]
    SetId(PathBuf),
}

/// The absolute path of the program that a shell would run for `name`, if it can be recorded.
pub fn resolve(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let found = find(name)?;
    let path = fs::canonicalize(&found)
        .map_err(|error| ProgramError::Io { path: found.clone(), error })?;
    let metadata =
        fs::metadata(&path).map_err(|error| ProgramError::Io { path: path.clone(), error })?;
    check_permissions(&path, &metadata)?;
    check_header(&path)?;
    // Not the canonical one: busybox and friends look at the name they are called by.
    std::path::absolute(&found).map_err(|error| ProgramError::Io { path: found, error })
}

fn find(name: &OsStr) -> Result<PathBuf, ProgramError> {
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

fn check_permissions(path: &Path, metadata: &Metadata) -> Result<(), ProgramError> {
    let mode = metadata.permissions().mode();
    if !metadata.is_file() || mode & 0o111 == 0 {
        return Err(ProgramError::NotExecutable(path.to_owned()));
    }
    let me = nix::unistd::geteuid().as_raw();
    let changes_user = mode & 0o4000 != 0 && metadata.uid() != me;
    let changes_group =
        mode & 0o2010 == 0o2010 && metadata.gid() != nix::unistd::getegid().as_raw();
    if changes_user || changes_group {
        return Err(ProgramError::SetId(path.to_owned()));
    }
    Ok(())
}

/// The ELF identification, type and machine (System V ABI, "ELF Header"), or a script's line.
fn check_header(path: &Path) -> Result<(), ProgramError> {
    const X86_64: u16 = 62;
    const I386: u16 = 3;
    const EXEC: u16 = 2;
    const DYN: u16 = 3;
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(256).read_to_end(&mut head))
        .map_err(|error| ProgramError::Io { path: path.to_owned(), error })?;
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
        _ => Err(script_of(path, &head).unwrap_or_else(|| ProgramError::NotElf(path.to_owned()))),
    }
}

fn script_of(path: &Path, head: &[u8]) -> Option<ProgramError> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let interpreter = String::from_utf8_lossy(line).trim().to_owned();
    Some(ProgramError::Script { path: path.to_owned(), interpreter })
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
        assert!(refusal(0o755, b"#!/bin/sh -e\n").contains("contraflow record /bin/sh -e /"));
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
}
