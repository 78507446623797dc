//! Texts that many cells have in common, such as names of functions. Each is stored once.

use super::columns::Cell;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum number of texts; beyond it, all are forgotten.
const MOST: usize = 1 << 16;

/// The texts of cells that were made, by the addresses of their bytes.
#[derive(Default)]
pub(super) struct Texts {
    known: HashMap<*const u8, (Arc<str>, Cell)>,
}

impl Texts {
    /// Returns the cell of a text ([`Cell::text`]): the same one for each clone of the `Arc`.
    pub(super) fn cell(&mut self, text: &Arc<str>) -> Cell {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        // The text is kept, so that no other one gets its address.
        let new = || (text.clone(), Cell::text(&**text));
        self.known.entry(text.as_ptr()).or_insert_with(new).1.clone()
    }
}
