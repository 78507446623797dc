//! Logs with an entry of each kind, in one chunk and in several.

use contraflow::common::{Addr, AddrRange, Pid, Tid};
use contraflow::insn::Registers;
use contraflow::recording::log::{
    Bytes, Content, Done, Entry, Happening, MapChange, Mapped, Place, Shared, Start, ThreadState,
    Words, Write, check_of, encode,
};
use contraflow::sideband::{ImageId, Protection};

/// Inputs of the target `log`.
pub(crate) fn logs() -> Vec<Vec<u8>> {
    let entries = entries();
    let single = entries.iter().map(|entry| encode([entry]));
    let several: Vec<u8> = single.clone().flatten().collect();
    let noise = Bytes((0..600_u32).map(|i| (i.wrapping_mul(i) >> 3).to_le_bytes()[0]).collect());
    let memory = Happening::Memory(Write { addr: Addr(0x2000), bytes: noise });
    let large = encode(&[entry(0, memory)]);
    single.chain([encode(&entries), several, large]).collect()
}

fn entry(ticks: u64, happening: Happening) -> Entry {
    Entry { tid: Tid(1), ticks, check: check_of(&registers()), happening }
}

fn registers() -> Registers {
    Registers { rip: 0x40_1000, rsp: 0x7fff_0000, ..Registers::default() }
}

fn entries() -> Vec<Entry> {
    let range = AddrRange::sized(Addr(0x40_0000), 0x2000);
    let to = AddrRange::sized(Addr(0x50_0000), 0x3000);
    let protection = Protection { read: true, execute: true, ..Protection::default() };
    let words = Words::from(registers());
    let state = ThreadState { registers: words, extended: Bytes(vec![0; 64]) };
    let place = Place { ip: Addr(0x40_1000), rcx: 3 };
    let writes = vec![Write { addr: Addr(0x7fff_0000), bytes: Bytes(vec![1, 2, 3]) }];
    let mapped = |content| Mapped {
        range,
        protection,
        grows_down: true,
        content,
        name: "[stack]".to_owned(),
        shared: Some(Shared { file: 7, offset: 0x1000 }),
    };
    let file = Content::File { image: ImageId("0123abcd".to_owned()), offset: 0x1000 };
    let start = Start {
        pid: Pid(1),
        program: "/program".to_owned(),
        auxv: Bytes(vec![6, 0, 0, 0, 0, 0, 0, 0]),
        state: state.clone(),
        mappings: vec![mapped(Content::Zeros), mapped(file.clone())],
    };
    let maps = vec![
        MapChange::Map(mapped(file)),
        MapChange::Unmap(range),
        MapChange::Protect { range, protection },
        MapChange::Move { from: range, to },
        MapChange::Discard(range),
    ];
    let done = Done { result: -2, writes: writes.clone(), maps, state: None };
    let sets_all = Done { state: Some(Box::new(state.clone())), maps: vec![], ..done.clone() };
    let signal = |handler| Happening::Signal {
        place,
        siginfo: Bytes(vec![11; 128]),
        handler,
        writes: writes.clone(),
    };
    let happenings = vec![
        Happening::Start(Box::new(start)),
        Happening::Memory(writes[0].clone()),
        Happening::Call { number: 9, done },
        Happening::Enters { number: 202 },
        Happening::Returns { done: sets_all },
        Happening::Executes {
            registers: Box::new(words),
            extended: Some(Bytes(vec![7; 32])),
            writes: writes.clone(),
        },
        signal(Some(Box::new(state.clone()))),
        signal(None),
        Happening::Switch { place },
        Happening::Changed { place, state: Some(Box::new(state.clone())), writes: writes.clone() },
        Happening::Born { state: Box::new(state), writes: writes.clone() },
        Happening::Ends { writes },
        Happening::Finish { place: Some(place) },
        Happening::Finish { place: None },
    ];
    (0..).zip(happenings).map(|(ticks, happening)| entry(1000 * ticks, happening)).collect()
}
