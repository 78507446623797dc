//! Opens regular files only. Other kinds might block on open (a FIFO), never end (a device), or
//! have side effects.

use nix::fcntl::OFlag;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The treatment of a path whose last part is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Open the file to which it leads: the user named the path.
    Follow,
    /// Fail: no recording contains links, and they could lead to any file.
    Refuse,
}

/// Opens a regular file for reading. Fails for all other kinds of files. Never blocks.
pub fn open_regular(path: &Path, links: Links) -> io::Result<File> {
    let (metadata, no_follow) = match links {
        Links::Follow => (fs::metadata(path)?, OFlag::empty()),
        Links::Refuse => (fs::symlink_metadata(path)?, OFlag::O_NOFOLLOW),
    };
    must_be_regular(metadata.file_type())?;
    // Another file may have taken the place of the checked one since.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | no_follow;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    must_be_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Fails if `path` exists but is not a directory, or is a link.
pub(super) fn must_be_directory(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?.file_type(),
    };
    if kind.is_dir() { Ok(()) } else { Err(refused(kind, "a directory")) }
}

/// Creates a new file that only its owner may read: a recording contains its program's memory, and
/// its directory may be readable by all. Fails if the file exists.
pub fn create_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Creates a new file that only its owner may read, and replaces an existing one.
pub(super) fn replace_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create_private(path),
    }
}

/// Reopens a file that this process writes, to append to it. Fails if a link has replaced it.
pub(super) fn open_own_for_append(path: &Path) -> io::Result<File> {
    File::options().append(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

/// Reads a whole regular file of a recording, which must not be a link. Fails if it has more than
/// `limit_bytes`.
pub(super) fn read_limited(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, Links::Refuse)?.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(io::Error::other("larger than any such file of a recording"));
    }
    Ok(bytes)
}

fn must_be_regular(kind: FileType) -> io::Result<()> {
    if kind.is_file() { Ok(()) } else { Err(refused(kind, "a file")) }
}

fn refused(kind: FileType, wanted: &str) -> io::Error {
    let what = match kind {
        kind if kind.is_file() => "a file",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_symlink() => "a symbolic link",
        _ => "a device",
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}, not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn private_files_are_new_and_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        fs::write(path("other"), "text").unwrap();
        symlink("other", path("link")).unwrap();
        assert!(create_private(&path("link")).is_err());
        let file = replace_private(&path("link")).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(path("other")).unwrap(), b"text");
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_never_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        let refusal = |path: &Path, links| open_regular(path, links).unwrap_err().to_string();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        fs::write(path("file"), "text").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("fifo", path("to-fifo")).unwrap();
        assert_eq!(refusal(&path("fifo"), Links::Refuse), "a FIFO, not a file");
        assert_eq!(refusal(&path("to-fifo"), Links::Follow), "a FIFO, not a file");
        assert_eq!(refusal(&path("socket"), Links::Follow), "a socket, not a file");
        assert_eq!(refusal(dir.path(), Links::Follow), "a directory, not a file");
        assert_eq!(refusal(Path::new("/dev/zero"), Links::Follow), "a device, not a file");
        assert_eq!(refusal(&path("link"), Links::Refuse), "a symbolic link, not a file");
        assert!(open_regular(&path("link"), Links::Follow).is_ok());
        assert_eq!(read_limited(&path("file"), 4).unwrap(), b"text");
        assert!(read_limited(&path("file"), 3).is_err());
        symlink(".", path("to-dir")).unwrap();
        let refusal = |name| must_be_directory(&path(name)).unwrap_err().to_string();
        assert_eq!(refusal("to-dir"), "a symbolic link, not a directory");
        assert_eq!(refusal("file"), "a file, not a directory");
        assert!(must_be_directory(&path("none")).is_ok() && must_be_directory(dir.path()).is_ok());
    }
}
