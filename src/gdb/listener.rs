//! Where the server waits for a client. One client is served at a time; see [`door`](super::door).

use super::server::Error;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where to wait for a client.
#[derive(Debug)]
pub enum Listener {
    /// A socket, which can be connected to from now on.
    Socket(Bound),
    /// The standard streams, as gdb's `target remote | COMMAND` connects them.
    Stdio,
    /// Streams that are open already: what comes in, and what goes out.
    Streams(File, File),
}

impl Listener {
    /// A socket at a TCP address; port 0 lets the system choose.
    pub fn tcp(addr: SocketAddr) -> Result<Self, Error> {
        let bound = TcpListener::bind(addr).map(|socket| Self::Socket(Bound::Tcp(socket)));
        bound.map_err(|source| Error::Listen { on: addr.to_string(), source })
    }

    /// A Unix socket, which only the owner may connect to.
    pub fn unix(path: &Path) -> Result<Self, Error> {
        let bound = bind_unix(path);
        let bound =
            bound.map_err(|source| Error::Listen { on: path.display().to_string(), source })?;
        Ok(Self::Socket(Bound::Unix(bound, path.to_owned())))
    }
}

/// A socket that clients can connect to.
#[derive(Debug)]
pub enum Bound {
    /// At a TCP address.
    Tcp(TcpListener),
    /// In the file system, from where it is removed in the end.
    Unix(UnixListener, PathBuf),
}

impl Bound {
    /// What to tell gdb's `target remote`.
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
            // Somebody else may have removed it already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Binds, in place of a socket that a server left behind.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
