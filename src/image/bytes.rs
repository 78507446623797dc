//! Shared bytes of a file or of memory. Never opens or maps anything: the caller brings them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that many sections share without copying: a mapped file, or a vector. Cloning is cheap.
#[derive(Clone)]
pub struct Bytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Bytes {
    /// Shares `owner`'s bytes; `owner` lives until the last clone is dropped. What it gives must
    /// not change from one call to the next.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(owner))
    }

    /// The same bytes at an address that the tables of ELF files, of 8-byte words, can be read at:
    /// a copy where they lie at an odd one.
    #[must_use]
    pub fn aligned(self) -> Self {
        if self.as_ptr().addr().is_multiple_of(8) { self } else { self.to_vec().into() }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::new([0_u8; 0])
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({:#x})", self.len())
    }
}
