//! The addresses of the server. It serves one client at a time; see [`door`](super::door).

use super::inquiry::Inquired;
use super::server::Error;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// An address at which to wait for clients.
#[derive(Debug)]
pub enum Listener {
    /// A socket that already accepts connections.
    Socket(Bound),
    /// The standard streams, as gdb's `target remote | COMMAND` connects them.
    Stdio,
    /// Open streams for input and output.
    Streams(File, File),
    /// Open streams, and questions of other threads of this process.
    Inquired(Inquired),
}

impl Listener {
    /// Opens a socket at a TCP address; port 0 lets the system choose.
    pub fn tcp(addr: SocketAddr) -> Result<Self, Error> {
        let bound = TcpListener::bind(addr).map(|socket| Self::Socket(Bound::Tcp(socket)));
        bound.map_err(|source| Error::Listen { on: addr.to_string(), source })
    }

    /// Opens a Unix socket that only its owner may connect to. Replaces a socket at `path` that no
    /// server uses any more; fails if one does, or if another file is there. The socket is removed
    /// on drop.
    pub fn unix(path: &Path) -> Result<Self, Error> {
        let bound = bind_unix(path);
        let bound =
            bound.map_err(|source| Error::Listen { on: path.display().to_string(), source })?;
        Ok(Self::Socket(Bound::Unix(bound, path.to_owned())))
    }
}

/// A bound socket.
#[derive(Debug)]
pub enum Bound {
    /// A socket at a TCP address.
    Tcp(TcpListener),
    /// A socket in the file system, which is removed on drop.
    Unix(UnixListener, PathBuf),
}

impl Bound {
    /// Returns the socket's address as text for gdb's `target remote`; `unknown` if the system does
    /// not say.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "unknown".to_owned(), |addr| addr.to_string())
            }
            Self::Unix(_, path) => path.display().to_string(),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Another process may have removed it already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Binds a socket at `path` that only its owner may use. Replaces a socket there that no server
/// uses any more; fails if one does, or if there is another file.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let found = fs::symlink_metadata(path).map(|metadata| metadata.file_type().is_socket());
    match found {
        Ok(true) if UnixStream::connect(path).is_err() => fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(_) => {}
    }
    // A bound socket accepts connections at once, so it gets its permissions in a private
    // directory.
    let private = private_directory(path)?;
    let listener = bind_in(&private, path);
    fs::remove_dir_all(&private)?;
    listener
}

/// Creates a directory beside `path` that only its owner may enter. The caller removes it. Fails if
/// there is one of this process already.
fn private_directory(path: &Path) -> io::Result<PathBuf> {
    let name = format!(".contraflow-socket-{}", std::process::id());
    let private = path.parent().unwrap_or(Path::new("")).join(name);
    DirBuilder::new().mode(0o700).create(&private)?;
    Ok(private)
}

/// Binds a socket in the directory `private`, restricts it to its owner, and moves it to `path`.
fn bind_in(private: &Path, path: &Path) -> io::Result<UnixListener> {
    let directory = File::open(private)?;
    // The name of a socket is short; that of the directory may be long.
    let short = format!("/proc/self/fd/{}/socket", directory.as_raw_fd());
    let listener = UnixListener::bind(&short)?;
    fs::set_permissions(&short, fs::Permissions::from_mode(0o600))?;
    fs::rename(private.join("socket"), path)?;
    Ok(listener)
}
