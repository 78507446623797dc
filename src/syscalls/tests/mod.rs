//! Tests of the table, by families.

mod buffers;
mod header;
mod hostile;
mod messages;
mod requests;
mod threads;

use super::{Call, Effects, Model, OpenCall};
use crate::common::{Addr, AddrRange};
use std::cell::RefCell;

/// Memory that begins at `BASE`, in which a test writes in place of the kernel.
struct FakeMemory {
    bytes: RefCell<Vec<u8>>,
}

const BASE: u64 = 0x1_0000;
const SIZE: usize = 0x1000;

impl FakeMemory {
    fn new() -> Self {
        Self { bytes: RefCell::new(vec![0; SIZE]) }
    }

    fn put(&self, at: u64, value: &[u8]) -> &Self {
        let at = usize::try_from(at - BASE).unwrap();
        self.bytes.borrow_mut()[at..at + value.len()].copy_from_slice(value);
        self
    }

    fn put32(&self, at: u64, value: u32) -> &Self {
        self.put(at, &value.to_le_bytes())
    }

    fn put64(&self, at: u64, value: u64) -> &Self {
        self.put(at, &value.to_le_bytes())
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let bytes = self.bytes.borrow();
        let at = addr.0.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
        let rest = at.and_then(|at| bytes.get(at..)).unwrap_or_default();
        let size = rest.len().min(buf.len());
        buf[..size].copy_from_slice(&rest[..size]);
        size
    }

    fn begin(&self, name: &str, args: &[u64]) -> OpenCall {
        call(name, args).begin(&|addr, buf: &mut [u8]| self.read(addr, buf))
    }

    fn end(&self, open: &OpenCall, result: i64) -> Vec<(u64, u64)> {
        known(&open.end(result, &|addr, buf: &mut [u8]| self.read(addr, buf)))
    }

    /// Returns the ranges that a call writes, if the memory does not change during the call.
    fn whole(&self, name: &str, args: &[u64], result: i64) -> Vec<(u64, u64)> {
        self.end(&self.begin(name, args), result)
    }
}

/// Returns a call by its name.
fn call(name: &str, args: &[u64]) -> Call {
    let model: &Model = super::models().find(|model| model.name == name).expect(name);
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    Call { number: model.number as u64, args: all }
}

/// Returns the address and the size of each range, which must be known.
fn known(effects: &Effects) -> Vec<(u64, u64)> {
    let Effects::Known(ranges) = effects else { panic!("{effects:?}") };
    ranges.iter().map(|range: &AddrRange| (range.start.0, range.size_bytes())).collect()
}

/// Returns the ranges that a call writes, if its buffers do not depend on memory.
fn written(name: &str, args: &[u64], result: i64) -> Vec<(u64, u64)> {
    FakeMemory::new().whole(name, args, result)
}
