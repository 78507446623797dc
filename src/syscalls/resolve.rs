//! Resolves a row of the table to the areas of one call: the ranges of memory that the call may
//! write.

use super::area::{Area, Count, Counted, Size};
use super::call::Call;
use super::ioctl;
use super::memory::CallerMemory;
use super::message;
use super::model::{Model, Writes};
use super::write::{Buffer, Extent, Write};
use crate::common::Addr;

/// The certainty of a call's areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The call writes nothing outside of its areas.
    Known,
    /// The call writes nothing else if its ioctl request keeps to the rules for numbers.
    Assumed,
    /// The call may write anything.
    Unknown,
}

/// Returns the areas that a call may write to, and whether it may write elsewhere. Reads memory as
/// it is before the call.
pub(super) fn resolve(call: &Call, memory: &dyn CallerMemory) -> (Vec<Area>, Knowledge) {
    let Some(model) = Model::by_number(call.number) else {
        return (Vec::new(), Knowledge::Unknown);
    };
    let mut areas = Vec::new();
    let knowledge = match model.writes {
        Writes::List(writes) => add_all(call, writes, memory, &mut areas),
        Writes::ByOperation(operations) => match operations.writes_of(call, memory) {
            Some(writes) => add_all(call, writes, memory, &mut areas),
            None => Knowledge::Unknown,
        },
        Writes::Ioctl => {
            let request = ioctl::writes_of(call.args[1]);
            add_all(call, request.writes(), memory, &mut areas);
            request.knowledge()
        }
        Writes::Unknown => Knowledge::Unknown,
    };
    (areas, knowledge)
}

/// Adds the areas of `writes`, outside of which the call writes nothing; so returns
/// [`Knowledge::Known`].
fn add_all(
    call: &Call,
    writes: &[Write],
    memory: &dyn CallerMemory,
    areas: &mut Vec<Area>,
) -> Knowledge {
    for write in writes {
        add_areas(call, write, memory, areas);
    }
    Knowledge::Known
}

/// Adds the areas of one write of a row. Where its pointers or lengths cannot be read, the kernel
/// fails (EFAULT) before it writes.
fn add_areas(call: &Call, write: &Write, memory: &dyn CallerMemory, areas: &mut Vec<Area>) {
    match *write {
        Write::Buffer(ref buffer) => areas.extend(area_of(call, buffer, memory)),
        Write::Vector { pointer, count, extent } => {
            let values = pointer.read(call, memory).zip(count.read(call, memory));
            let Some((pointer, count)) = values else { return };
            let by_result = matches!(extent, Extent::Result).then_some(Count::Result);
            message::add_vector(Addr(pointer), count, by_result, memory, areas);
        }
        Write::Message { arg } => {
            message::add_message(Addr(call.args[arg]), Count::Result, memory, areas);
        }
        Write::Messages { arg, count } => {
            let count = count.read(call, memory).unwrap_or(0);
            message::add_messages(Addr(call.args[arg]), count, memory, areas);
        }
    }
}

/// Returns the area of a buffer; `None` if its condition is not met, its pointer is null, or one of
/// its values cannot be read.
fn area_of(call: &Call, buffer: &Buffer, memory: &dyn CallerMemory) -> Option<Area> {
    if let Some((value, bits)) = buffer.condition
        && value.read(call, memory)? & bits == 0
    {
        return None;
    }
    let pointer = buffer.pointer.read(call, memory).filter(|pointer| *pointer != 0)?;
    let counted_bytes = buffer.count.read(call, memory)?.saturating_mul(buffer.unit_bytes);
    Some(Area {
        start: Addr(pointer).wrapping_add(buffer.offset),
        limit_bytes: buffer.header_bytes.saturating_add(counted_bytes),
        size: written_size(call, buffer),
        when: buffer.when,
        least_result: 0,
    })
}

/// Returns how much of a buffer a successful call writes: as much as its result or a length in
/// memory says; the whole buffer if nothing says it, or if the length has no address.
fn written_size(call: &Call, buffer: &Buffer) -> Size {
    let count = match buffer.extent {
        Extent::Whole => None,
        Extent::Result => Some(Count::Result),
        Extent::Length(value) => {
            value.address(call).map(|at| Count::Word { at, width_bytes: value.width_bytes() })
        }
    };
    count.map_or(Size::Whole, |count| {
        Size::Counted(Counted {
            count,
            header_bytes: buffer.header_bytes,
            unit_bytes: buffer.unit_bytes,
            skip_bytes: 0,
        })
    })
}
