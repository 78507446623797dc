//! The functions and lines of code addresses. Lookups are cached, as most addresses are asked for
//! again.

use super::place::Place;
use crate::common::Addr;
use crate::symbols::Symbols;
use crate::translate::AddressMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The number of addresses in a cache at which it is cleared.
const CACHE_LIMIT: usize = 1 << 20;

/// A function: its name, and the address of its first instruction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: Arc<str>,
    pub(super) start: Addr,
}

/// The functions of a recording's code, by address, as a cache over its symbols.
pub(super) struct Functions<'s> {
    symbols: &'s Symbols,
    by_address: RefCell<AddressMap<Addr, Option<Rc<Function>>>>,
    by_start: RefCell<AddressMap<Addr, Rc<Function>>>,
    places: RefCell<AddressMap<Addr, Arc<Place>>>,
}

impl<'s> Functions<'s> {
    pub(super) fn new(symbols: &'s Symbols) -> Self {
        let (by_address, by_start) = (RefCell::default(), RefCell::default());
        Self { symbols, by_address, by_start, places: RefCell::default() }
    }

    /// Returns the function that contains an address; `None` if the code has no symbols.
    pub(super) fn at(&self, addr: Addr) -> Option<Rc<Function>> {
        if let Some(known) = self.by_address.borrow().get(&addr) {
            return known.clone();
        }
        let found = self.symbols.function_at(addr).map(|found| {
            let mut by_start = self.by_start.borrow_mut();
            let new = || Rc::new(Function { name: found.name.into(), start: found.start });
            by_start.entry(found.start).or_insert_with(new).clone()
        });
        let mut by_address = self.by_address.borrow_mut();
        if by_address.len() >= CACHE_LIMIT {
            by_address.clear();
        }
        by_address.insert(addr, found.clone());
        found
    }

    /// Returns the name of the function that contains an address; `None` if the code has no
    /// symbols.
    pub(super) fn name_at(&self, addr: Addr) -> Option<Arc<str>> {
        self.at(addr).map(|function| function.name.clone())
    }

    /// Returns the function and line of an address, as far as they are known.
    pub(super) fn place(&self, addr: Addr) -> Arc<Place> {
        if let Some(known) = self.places.borrow().get(&addr) {
            return known.clone();
        }
        let found = Arc::new(Place::new(self.name_at(addr), self.symbols.location_at(addr)));
        let mut places = self.places.borrow_mut();
        if places.len() >= CACHE_LIMIT {
            places.clear();
        }
        places.insert(addr, found.clone());
        found
    }
}
