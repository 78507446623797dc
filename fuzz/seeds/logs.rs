//! Logs with an entry of each kind, in one chunk and in several.

use contraflow::common::{Addr, AddrRange, Pid, Tid};
use contraflow::insn::Registers;
use contraflow::recording::log::{
    Bytes, CallEffects, Content, Entry, LogEvent, MapChange, Mapped, PlaceInTick, Shared, Start,
    ThreadState, Words, Write, check_of, encode,
};
use contraflow::sideband::{ImageId, Protection};

/// Inputs of the target `log`.
pub(crate) fn logs() -> Vec<Vec<u8>> {
    let entries = entries();
    let single = entries.iter().map(|entry| encode([entry]));
    let several: Vec<u8> = single.clone().flatten().collect();
    let noise = Bytes((0..600_u32).map(|i| (i.wrapping_mul(i) >> 3).to_le_bytes()[0]).collect());
    let memory = LogEvent::Memory(Write { addr: Addr(0x2000), bytes: noise });
    let large = encode(&[entry(0, memory)]);
    single.chain([encode(&entries), several, large]).collect()
}

fn entry(ticks: u64, event: LogEvent) -> Entry {
    Entry { tid: Tid(1), ticks, check: check_of(&registers()), event }
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
    let place = PlaceInTick { ip: Addr(0x40_1000), rcx: 3 };
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
    let effects = CallEffects { result: -2, writes: writes.clone(), maps, state: None };
    let sets_all =
        CallEffects { state: Some(Box::new(state.clone())), maps: vec![], ..effects.clone() };
    let signal = |handler| LogEvent::Signal {
        place,
        siginfo: Bytes(vec![11; 128]),
        handler,
        writes: writes.clone(),
    };
    let events = vec![
        LogEvent::Start(Box::new(start)),
        LogEvent::Memory(writes[0].clone()),
        LogEvent::Call { number: 9, effects },
        LogEvent::Enters { number: 202 },
        LogEvent::Returns { effects: sets_all },
        LogEvent::Executes {
            registers: Box::new(words),
            extended: Some(Bytes(vec![7; 32])),
            writes: writes.clone(),
        },
        signal(Some(Box::new(state.clone()))),
        signal(None),
        LogEvent::Switch { place },
        LogEvent::Changed { place, state: Some(Box::new(state.clone())), writes: writes.clone() },
        LogEvent::Born { state: Box::new(state), writes: writes.clone() },
        LogEvent::Ends { writes },
        LogEvent::Finish { place: Some(place) },
        LogEvent::Finish { place: None },
    ];
    (0..).zip(events).map(|(ticks, event)| entry(1000 * ticks, event)).collect()
}
