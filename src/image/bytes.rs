//! Shared bytes of a file or of memory. Never opens or maps anything: the caller supplies them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that many sections share without copying: a mapped file, or a vector. Cloning is cheap.
#[derive(Clone)]
pub struct Bytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Bytes {
    /// Shares the bytes of `owner`, which lives until the last clone is dropped. `owner` must
    /// return the same bytes each time.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(owner))
    }

    /// Returns the same bytes at an 8-byte aligned address, as required to read the tables of ELF
    /// files; copies them if they are not aligned.
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
