//! The path that is kept with an exact recording. It is made once, by the process or thread that
//! needs it first; a lock makes others wait for it.

use super::super::error::Error;
use super::write_path;
use crate::recording::{DirectoryLock, Reader};
use std::thread::sleep;
use std::time::Duration;

/// The time between two checks whether another process or thread has released the lock.
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// Returns the path of an exact recording, as a recording of packets: the one that is kept with it,
/// or a new one, which takes a replay of the whole run and is kept from then on. If another process
/// or thread is making it, waits for that. Calls `goes_on` regularly with the ticks so far and of
/// the whole run, or (0, 1) while it waits; if it returns false, fails with [`Error::Interrupted`].
pub fn path_of(
    reader: &Reader,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Reader, Error> {
    if let Some(path) = reader.kept_path() {
        return Ok(path);
    }
    let _lock = wait_for_lock(reader, goes_on)?;
    // Another process or thread may have made it while it had the lock.
    if let Some(path) = reader.kept_path() {
        return Ok(path);
    }
    let dir = reader.remove_kept_path()?;
    write_path(Reader::open(reader.dir())?, &dir, goes_on)?;
    Ok(Reader::open(&dir)?)
}

/// Waits for the right to make the path, and returns the lock. Fails if `goes_on` returns false.
fn wait_for_lock(
    reader: &Reader,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<DirectoryLock, Error> {
    loop {
        if let Some(lock) = reader.lock_path() {
            return Ok(lock);
        }
        if !goes_on(0, 1) {
            return Err(Error::Interrupted);
        }
        sleep(POLL_PERIOD);
    }
}
