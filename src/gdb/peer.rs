//! The owner of the other end of a TCP connection. A TCP port of this machine is open to all of its
//! users, and a client can run programs as the server's user. The kernel's tables of sockets have
//! the owners (proc(5), `/proc/net/tcp`).

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

/// The state of an open connection (the kernel's `TCP_ESTABLISHED`).
const ESTABLISHED: &str = "01";

/// The owner of the client's end of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// The server's own user, or root.
    Own,
    /// Another machine: the server's user chose an address that it can reach.
    Remote,
    /// Another user of this machine with this ID; `None` if the tables lack the connection.
    Foreign(Option<u32>),
}

impl Peer {
    /// Returns the owner of the other end of a connection. Fails if the connection is broken.
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        let (here, there) = (stream.local_addr()?, stream.peer_addr()?);
        let tables = || ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
        let tables: Vec<String> = tables().into_iter().flatten().collect();
        // A socket of this machine is in the tables; one of another machine is not.
        let server_uid = owner(&tables, here, there);
        let client_uid = owner(&tables, there, here);
        Ok(match client_uid {
            Some(uid) if server_uid == Some(uid) || uid == 0 => Self::Own,
            None if !there.ip().to_canonical().is_loopback() && there.ip() != here.ip() => {
                Self::Remote
            }
            _ => Self::Foreign(client_uid),
        })
    }
}

/// Returns true if a client may be served: one of the server's user, of root, or of another
/// machine. It may not if it is another user of this machine, or if its owner cannot be determined.
pub(crate) fn is_own_client(stream: &TcpStream) -> bool {
    matches!(Peer::of(stream), Ok(Peer::Own | Peer::Remote))
}

/// Returns the ID of the user whose open socket is at `local`, connected to `remote`; `None` if the
/// tables lack this socket.
fn owner(tables: &[String], local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let wanted = [local, remote].map(canonical);
    tables.iter().flat_map(|table| table.lines()).find_map(|line| {
        // sl local remote state queues timer retransmits uid timeout inode
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, remote, ESTABLISHED, _, _, _, uid, _, inode, ..] = fields[..] else {
            return None;
        };
        // The tables list a closed socket with root as its owner and inode 0.
        let found = [address(local)?, address(remote)?];
        (found == wanted && inode != "0").then(|| uid.parse().ok()).flatten()
    })
}

/// Returns the IP address and port; of an IPv4 address in an IPv6 one, the former.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Parses an address as the kernel prints it: words in the machine's byte order, and the port.
/// `None` if it is malformed. An IPv4 address in an IPv6 one becomes the former.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = (0..ip.len().div_ceil(8))
        .map(|at| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes))
        .collect();
    let ip = match words?[..] {
        [v4] => IpAddr::V4(Ipv4Addr::from(v4)),
        [a, b, c, d] => {
            let mut bytes = [0; 16];
            for (to, from) in bytes.chunks_exact_mut(4).zip([a, b, c, d]) {
                to.copy_from_slice(&from);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0 100
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 18 1 0 20
   2: 0100007F:C351 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20
   3: 0100007F:C352 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20
   4: 0000000000000000FFFF00000100007F:C353 0000000000000000FFFF00000100007F:1F90 01 \
   00000000:00000000 00:00000000 00000000  1002        0 19 1 0 20
";

    #[test]
    fn the_table_names_who_has_a_connection_open() {
        let tables = [TABLE.to_owned()];
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let owner = |port| owner(&tables, local(port), local(8080));
        assert_eq!([50000, 50003].map(owner), [Some(1001), Some(1002)]);
        // Closed by its owner and listed as root's, or not listed at all.
        assert_eq!([50001, 50002, 50004].map(owner), [None; 3]);
    }

    #[test]
    fn ones_own_connection_is_let_in() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(ip) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            assert_eq!(Peer::of(&stream).unwrap(), Peer::Own);
            drop(client);
            assert!(matches!(Peer::of(&stream), Err(_) | Ok(Peer::Foreign(None))));
        }
    }
}
