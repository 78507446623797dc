//! Any call with any arguments and any memory.

use super::{BASE, Effects};
use crate::common::Addr;
use crate::syscalls::{Call, Registered, ioctl_requests};
use proptest::prelude::*;

/// Returns addresses at the memory's start, small numbers, and anything.
fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![BASE..BASE + 0x200, 0..2000_u64, any::<u64>(), Just(u64::MAX)]
}

fn request() -> impl Strategy<Value = u64> {
    let listed: Vec<u64> = ioctl_requests().map(|row| u64::from(row.number)).collect();
    prop_oneof![proptest::sample::select(listed), any::<u64>()]
}

fn check(call: Call, memory: &[u8], result: i64) {
    let reader = |addr: Addr, buf: &mut [u8]| {
        let at = addr.0.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
        let rest = at.and_then(|at| memory.get(at..)).unwrap_or_default();
        let size = rest.len().min(buf.len());
        buf[..size].copy_from_slice(&rest[..size]);
        size
    };
    let open = call.begin(&reader);
    for effects in [open.limit(), open.end(result, &reader)] {
        if let Effects::Known(ranges) | Effects::Assumed(ranges) = effects {
            assert!(ranges.iter().all(|range| range.end.0 <= 1 << 56 && !range.is_empty()));
        }
    }
    let mut registered = Registered::of_child(&call, &reader);
    registered.note_call(&call, result);
    registered.robust_list = Some(Addr(call.args[0]));
    assert!(registered.written_at_end(&reader).len() < 2100);
}

proptest! {
    #[test]
    fn calls_never_panic(
        number in 0..480_u64,
        args in proptest::array::uniform6(argument()),
        memory in proptest::collection::vec(any::<u8>(), 0x400),
        result in prop_oneof![-600..0_i64, 0..5000_i64, any::<i64>()],
    ) {
        check(Call { number, args }, &memory, result);
    }

    #[test]
    fn requests_never_panic(
        request in request(),
        argument in argument(),
        memory in proptest::collection::vec(any::<u8>(), 0x400),
        result in prop_oneof![-600..0_i64, 0..5000_i64, any::<i64>()],
    ) {
        check(Call { number: 16, args: [3, request, argument, 0, 0, 0] }, &memory, result);
    }
}
