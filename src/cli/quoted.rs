//! Words of commands, such as paths, quoted for shells and for gdb.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Quotes one word of a command for the user to type, in the syntax of bash and zsh: unchanged if
/// it is plain, and not empty. A word with control characters, or one that is not UTF-8, is
/// escaped, so that the result can be printed.
pub(super) fn for_user(word: &OsStr) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    match word.to_str() {
        // zsh takes `=name` for the path of a command.
        Some(text) if !text.is_empty() && !text.starts_with('=') && text.chars().all(plain) => {
            text.to_owned()
        }
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => {
            let escaped = word.as_bytes().iter().flat_map(|b| std::ascii::escape_default(*b));
            format!("$'{}'", escaped.map(char::from).collect::<String>())
        }
    }
}

/// Puts one word of a command for gdb or `sh` in single quotes. All bytes are kept.
pub(super) fn for_gdb(word: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => bytes.extend_from_slice(b"'\\''"),
            byte => bytes.push(*byte),
        }
    }
    bytes.push(b'\'');
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_reads_the_word_that_was_quoted() {
        let words: [&[u8]; 7] =
            [b"/a/b-1.x", b"", b"a b", b"it's", b"\xff\xfe'\"$x", b"a\nb", b"\\"];
        for word in words {
            let word = OsStr::from_bytes(word);
            let mut script = OsString::from("printf %s ");
            script.push(for_gdb(word));
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(output.stdout, word.as_bytes());
        }
        assert_eq!(for_user(OsStr::new("/a/b-1.x")), "/a/b-1.x");
        assert_eq!(for_user(OsStr::new("it's")), "'it'\\''s'");
        assert_eq!(for_user(OsStr::from_bytes(b"\xff'\n")), "$'\\xff\\'\\n'");
    }
}
