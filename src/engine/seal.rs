//! Seals of the shared memory. A program that finds the memory, through `/proc/self/map_files` or
//! another mapping, can neither truncate it, which would raise a SIGBUS in the recorder, nor map it
//! writable once more.

use crate::tracee;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use std::fs::File;

/// Seals a memfd once all its writable mappings are made, which stay so. Its size stays, and no
/// more writable mappings can be made; kernels before 5.1 still allow these.
pub(super) fn seal(file: &File) -> Result<(), tracee::Error> {
    let size = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    let writes = SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);
    let add = |seals| fcntl(file, FcntlArg::F_ADD_SEALS(seals));
    let result = match add(size | writes) {
        // Kernels before 5.1 do not know `F_SEAL_FUTURE_WRITE` (fcntl(2)).
        Err(Errno::EINVAL) => add(size),
        result => result,
    };
    result.map(drop).map_err(|errno| tracee::Error::System { call: "fcntl", errno })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    #[test]
    fn nobody_cuts_or_writes_a_sealed_file() {
        let fd = memfd_create("sealed", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        let file = File::from(fd);
        file.set_len(8192).unwrap();
        seal(&file).unwrap();
        for len in [0, 4096, 16384] {
            assert!(file.set_len(len).is_err());
        }
        assert!(std::os::unix::fs::FileExt::write_at(&file, &[1], 0).is_err());
        assert!(fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)).is_err());
    }
}
