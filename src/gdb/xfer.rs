//! `qXfer`: the documents that a client reads in parts. A document is made at the read of its first
//! part, and kept, so that all parts are of the same moment.

use super::supported::ClientFeatures;
use super::target::Served;
use super::{btrace, frame, hex, remedies};
use crate::common::{Tid, Visible};
use crate::session::{Library, Run, Session, ThreadInfo};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// The maximum number of document bytes in one reply: even with all of them escaped, it fits a
/// packet.
const PIECE_BYTES: u64 = frame::PACKET_SIZE_BYTES as u64 / 2 - 16;

/// A `qXfer` document, as it was at its first read.
#[derive(Debug)]
pub(super) struct Document {
    /// The object and the annex, `OBJECT:ANNEX`, and the thread.
    key: (Vec<u8>, Tid),
    bytes: Vec<u8>,
}

/// Returns the reply to `qXfer:OBJECT:read:ANNEX:OFFSET,LENGTH`, or writes the siginfo of thread
/// `tid` for `qXfer:siginfo:write`, and drops the document that was read last. The reply is empty
/// for an unknown object, `E00` if the document does not exist or the packet is malformed, and
/// `E01` for a malformed write. Returns `None` for other packets. A read at offset 0, or of another
/// document than the last, makes the document anew.
pub(super) fn answer<R: Run>(
    served: &mut Served<R>,
    client: ClientFeatures,
    tid: Tid,
    body: &[u8],
) -> Option<Vec<u8>> {
    let request = body.strip_prefix(b"qXfer:")?;
    if let Some(write) = request.strip_prefix(b"siginfo:write::") {
        served.document = None;
        return Some(write_siginfo(&mut served.session, tid, write));
    }
    let Some((object, annex, offset, length)) = parse(request) else {
        return Some(b"E00".to_vec());
    };
    let key = ([object, b":", annex].concat(), tid);
    if offset == 0 || served.document.as_ref().is_none_or(|document| document.key != key) {
        served.document = match current_document(served, client, tid, object, annex) {
            Produced::Bytes(bytes) => Some(Document { key, bytes }),
            Produced::Absent => return Some(b"E00".to_vec()),
            Produced::NoSuchObject => return Some(Vec::new()),
        };
    }
    let bytes = served.document.as_ref().map_or(&[][..], |document| &document.bytes);
    Some(part_reply(bytes, offset, length.min(PIECE_BYTES)))
}

/// Writes `OFFSET:DATA` to the `siginfo_t` of a thread, or replaces the whole if the data is longer
/// and begins at 0. Returns the reply: an error if the data exceeds it otherwise, if the packet is
/// malformed, or if the session refuses it.
fn write_siginfo<R: Run>(session: &mut Session<R>, tid: Tid, write: &[u8]) -> Vec<u8> {
    let parsed = hex::split(write, b':').and_then(|(offset, data)| {
        let offset = usize::try_from(hex::number(offset)?).ok()?;
        Some((offset, frame::unescape(data)))
    });
    let Some((offset, data)) = parsed else { return b"E01".to_vec() };
    let mut info = session.run().siginfo(tid).unwrap_or_default();
    let end = offset.saturating_add(data.len());
    if end > info.len() {
        if offset != 0 {
            return b"E01".to_vec();
        }
        info.clone_from(&data);
    } else {
        info[offset..end].copy_from_slice(&data);
    }
    match session.run_mut().write_siginfo(tid, &info) {
        Ok(()) => format!("{:x}", data.len()).into_bytes(),
        Err(error) => remedies::error_reply(&error),
    }
}

/// Parses `OBJECT:read:ANNEX:OFFSET,LENGTH` into object, annex, offset and length; `None` if it is
/// malformed. An annex may contain colons.
fn parse(request: &[u8]) -> Option<(&[u8], &[u8], u64, u64)> {
    let (object, rest) = hex::split(request, b':')?;
    let rest = rest.strip_prefix(b"read:")?;
    let colon = rest.iter().rposition(|byte| *byte == b':')?;
    let (offset, length) = hex::split(&rest[colon + 1..], b',')?;
    Some((object, &rest[..colon], hex::number(offset)?, hex::number(length)?))
}

/// Returns the reply with a part of a document, at most `length` bytes from `offset` on, escaped:
/// after `l` if it is the last one, and after `m` otherwise.
fn part_reply(bytes: &[u8], offset: u64, length: u64) -> Vec<u8> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(start).min(bytes.len());
    let more = if end < bytes.len() { b"m" } else { b"l" };
    [more, &*frame::escape(&bytes[start..end])].concat()
}

/// The result of making a document.
enum Produced {
    Bytes(Vec<u8>),
    /// The document is not available in this run.
    Absent,
    /// The server has no documents of this name.
    NoSuchObject,
}

impl From<Option<Vec<u8>>> for Produced {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Absent, Self::Bytes)
    }
}

/// Returns a document, made from the current state of the session. Without a program, the list of
/// threads is empty.
fn current_document<R: Run>(
    served: &mut Served<R>,
    client: ClientFeatures,
    tid: Tid,
    object: &[u8],
    annex: &[u8],
) -> Produced {
    if object == b"btrace" {
        return btrace::document(served, tid, annex).into();
    }
    let run = served.session.run();
    match object {
        b"features" if annex == b"target.xml" => {
            Produced::Bytes(served.target_xml.clone().into_bytes())
        }
        b"features" => Produced::Absent,
        b"threads" => Produced::Bytes(if run.process().is_none() {
            threads(&[], &|_| String::new())
        } else {
            threads(&served.session.threads(), &|tid| client.thread_id(&served.session, tid))
        }),
        b"auxv" => run.auxv().into(),
        b"exec-file" => run.exec_file().map(|path| path.as_os_str().as_bytes().to_vec()).into(),
        b"libraries-svr4" => run.libraries().map(|list| libraries(&list, client)).into(),
        b"siginfo" => run.siginfo(tid).into(),
        b"btrace-conf" => Produced::Bytes(btrace::configuration_document(served)),
        _ => Produced::NoSuchObject,
    }
}

/// Returns the document `threads`. `id` formats a thread ID for the client.
fn threads(threads: &[ThreadInfo], id: &dyn Fn(Tid) -> String) -> Vec<u8> {
    let mut xml = String::from(r#"<?xml version="1.0"?><threads>"#);
    for thread in threads {
        let id = id(thread.tid);
        // Writes to a string cannot fail.
        let _ = write!(xml, r#"<thread id="{id}""#);
        if !thread.name.is_empty() {
            let _ = write!(xml, r#" name="{}""#, attribute(&Visible(&thread.name).to_string()));
        }
        xml.push_str("/>");
    }
    xml.push_str("</threads>");
    xml.into_bytes()
}

/// Returns the document `libraries-svr4`. The program itself, which has no path in the linker's
/// list, is the attribute `main-lm`. LLDB does not get this attribute, since it would read it as
/// the address of the pointer to `r_debug`.
fn libraries(libraries: &[Library], client: ClientFeatures) -> Vec<u8> {
    let mut xml = String::from(r#"<library-list-svr4 version="1.0""#);
    let main = libraries.iter().find(|library| library.path.is_empty());
    if let Some(main) = main.filter(|_| !client.lldb) {
        let _ = write!(xml, r#" main-lm="{:#x}""#, main.link_map.0);
    }
    xml.push('>');
    for library in libraries.iter().filter(|library| !library.path.is_empty()) {
        let _ = write!(
            xml,
            r#"<library name="{}" lm="{:#x}" l_addr="{:#x}" l_ld="{:#x}" lmid="{:#x}"/>"#,
            attribute(&library.path),
            library.link_map.0,
            library.load_bias.0,
            library.dynamic.0,
            library.namespace,
        );
    }
    xml.push_str("</library-list-svr4>");
    xml.into_bytes()
}

/// Returns text for a double-quoted XML attribute: escaped, with `?` for each control character,
/// which XML does not allow.
fn attribute(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            c if c.is_control() => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}
