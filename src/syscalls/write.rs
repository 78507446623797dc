//! The vocabulary of the table for the memory that a call writes. Rows use the functions of this
//! file, so that a row reads like the man page: `filled(1, 2)` is "the buffer at argument 1, of
//! which the result says how much was filled, at most argument 2". Arguments count from 0. Each
//! function returns a [`Write`]: of a whole buffer, or of the part that a count states after the
//! call.

use super::value::Value;

/// The maximum number of bytes that the kernel transfers in one call (include/linux/fs.h,
/// `MAX_RW_COUNT`).
pub(super) const MAX_RW_BYTES: u64 = 0x7fff_f000;

/// Memory that a call writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write {
    /// One buffer.
    Buffer(Buffer),
    /// The buffers of a `struct iovec` array.
    Vector { pointer: Value, count: Value, extent: Extent },
    /// A `struct msghdr`, and the buffers that it points to.
    Message { arg: usize },
    /// An array of `struct mmsghdr`, and the buffers that it points to.
    Messages { arg: usize, count: Value },
}

/// A buffer of `header_bytes + count * unit_bytes`, at `pointer + offset`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) pointer: Value,
    pub(super) offset: u64,
    pub(super) header_bytes: u64,
    pub(super) count: Value,
    pub(super) unit_bytes: u64,
    pub(super) extent: Extent,
    pub(super) when: When,
    /// If set, the call writes the buffer only if this value has one of these bits.
    pub(super) condition: Option<(Value, u64)>,
}

/// The part of a buffer that is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    /// The whole buffer.
    Whole,
    /// As many units as the result says.
    Result,
    /// As many units as this field says after the call.
    Length(Value),
}

/// The results with which a call has written a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// With success, and with errors that the kernel may find after it has written a part.
    Success,
    /// Also when a signal ends the call.
    Interrupted,
    /// Whatever the result.
    Always,
}

/// Returns the write of a buffer that starts at its pointer and is written if the call succeeds;
/// the modifiers below change both.
const fn buffer(pointer: Value, count: Value, unit_bytes: u64, extent: Extent) -> Write {
    Write::Buffer(Buffer {
        pointer,
        offset: 0,
        header_bytes: 0,
        count,
        unit_bytes,
        extent,
        when: When::Success,
        condition: None,
    })
}

/// Returns the write of a whole structure of a fixed size, at the pointer in argument `arg`.
pub(super) const fn structure(arg: usize, size_bytes: u64) -> Write {
    buffer(Value::Arg(arg), Value::Constant(size_bytes), 1, Extent::Whole)
}

/// Returns the write of a whole buffer, of which argument `size_arg` is the size in bytes.
pub(super) const fn sized(arg: usize, size_arg: usize) -> Write {
    array(arg, size_arg, 1)
}

/// Returns the write of a whole array, of which argument `count_arg` is the number of elements,
/// each of `unit_bytes`.
pub(super) const fn array(arg: usize, count_arg: usize, unit_bytes: u64) -> Write {
    buffer(Value::Arg(arg), Value::Arg(count_arg), unit_bytes, Extent::Whole)
}

/// Returns the write of a whole array, like [`array`]; argument `count_arg` is an `unsigned int`.
pub(super) const fn int_array(arg: usize, count_arg: usize, unit_bytes: u64) -> Write {
    buffer(Value::Arg(arg), Value::Int(count_arg), unit_bytes, Extent::Whole)
}

/// Returns the write of a whole buffer, like [`sized`]; argument `size_arg` is an `unsigned int`.
pub(super) const fn int_sized(arg: usize, size_arg: usize) -> Write {
    int_array(arg, size_arg, 1)
}

/// Returns the write of a whole buffer; `size_bytes` computes its size from the arguments.
pub(super) const fn computed(arg: usize, size_bytes: fn(&[u64; 6]) -> u64) -> Write {
    buffer(Value::Arg(arg), Value::Computed(size_bytes), 1, Extent::Whole)
}

/// Returns the write of the start of a buffer: as many bytes as the result says, at most argument
/// `size_arg`.
pub(super) const fn filled(arg: usize, size_arg: usize) -> Write {
    filled_array(arg, size_arg, 1)
}

/// Returns the write of the start of an array: as many elements as the result says, each of
/// `unit_bytes`, at most argument `count_arg`.
pub(super) const fn filled_array(arg: usize, count_arg: usize, unit_bytes: u64) -> Write {
    buffer(Value::Arg(arg), Value::Arg(count_arg), unit_bytes, Extent::Result)
}

/// Returns the write of a 4-byte length, which the caller sets to the size of its buffer, and the
/// kernel to the size of the answer. The kernel may write it whatever the result is.
pub(super) const fn length_word(arg: usize) -> Write {
    structure(arg, 4).always()
}

/// Returns the write of an answer to a buffer, whose size is the 4-byte length that argument
/// `length_arg` points to. The kernel replaces this length by the size of the answer, of which it
/// writes only as much as fits. The write of the length itself is [`length_word`], which belongs to
/// the same row.
pub(super) const fn by_length(arg: usize, length_arg: usize) -> Write {
    let length = super::value::u32_at(length_arg, 0);
    buffer(Value::Arg(arg), length, 1, Extent::Length(length))
}

/// Returns the write of a whole buffer whose pointer and number of units are any values, such as
/// fields of a structure.
pub(super) const fn at_pointer(pointer: Value, count: Value, unit_bytes: u64) -> Write {
    buffer(pointer, count, unit_bytes, Extent::Whole)
}

/// Returns the write to the buffers of a `struct iovec` array, in order: as many bytes in all as
/// the result says.
pub(super) const fn vector(arg: usize, count_arg: usize) -> Write {
    let (pointer, count) = (Value::Arg(arg), Value::Arg(count_arg));
    Write::Vector { pointer, count, extent: Extent::Result }
}

/// Returns the write of all the buffers of a `struct iovec` array, whole.
pub(super) const fn whole_vector(pointer: Value, count: Value) -> Write {
    Write::Vector { pointer, count, extent: Extent::Whole }
}

/// Returns the writes of recvmsg(2), whose `struct msghdr` argument `arg` points to.
pub(super) const fn message(arg: usize) -> Write {
    Write::Message { arg }
}

/// Returns the writes of recvmmsg(2), whose `struct mmsghdr` array argument `arg` points to.
pub(super) const fn messages(arg: usize, count_arg: usize) -> Write {
    Write::Messages { arg, count: Value::Arg(count_arg) }
}

/// The modifiers of a row, for single buffers only.
impl Write {
    /// Returns the buffer to modify. Panics, at compile time in a table, for other writes.
    const fn as_buffer(self) -> Buffer {
        match self {
            Self::Buffer(buffer) => buffer,
            _ => panic!("only a buffer can be modified"),
        }
    }

    /// Limits the write to as many units as the result says.
    pub(super) const fn counted_by_result(self) -> Self {
        Self::Buffer(Buffer { extent: Extent::Result, ..self.as_buffer() })
    }

    /// Limits the write to as many units as the field `length` says after the call.
    pub(super) const fn counted_by(self, length: Value) -> Self {
        Self::Buffer(Buffer { extent: Extent::Length(length), ..self.as_buffer() })
    }

    /// Puts a header of this size before the units. The call writes the header, too.
    pub(super) const fn after_header(self, header_bytes: u64) -> Self {
        Self::Buffer(Buffer { header_bytes, ..self.as_buffer() })
    }

    /// Moves the buffer to this many bytes after the pointer's target, whatever it was before.
    pub(super) const fn at_offset(self, offset: u64) -> Self {
        Self::Buffer(Buffer { offset, ..self.as_buffer() })
    }

    /// Makes the call write the buffer whatever the result is.
    pub(super) const fn always(self) -> Self {
        Self::Buffer(Buffer { when: When::Always, ..self.as_buffer() })
    }

    /// Makes the call write the buffer also when a signal ends it.
    pub(super) const fn also_interrupted(self) -> Self {
        Self::Buffer(Buffer { when: When::Interrupted, ..self.as_buffer() })
    }

    /// Makes the call write the buffer only if the value has one of these bits.
    pub(super) const fn if_bits(self, value: Value, bits: u64) -> Self {
        Self::Buffer(Buffer { condition: Some((value, bits)), ..self.as_buffer() })
    }
}
