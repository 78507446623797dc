//! Descriptions of LLDB trace bundles: good ones are parsed, all others rejected with the place of
//! the fault.

use super::{Bundle, BundleCpu, Module};
use crate::common::{Addr, Pid, Tid};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a description like those of `thread trace save`, of threads or of CPUs.
fn description(of_cpus: bool) -> Value {
    let thread = |tid: i32| {
        if of_cpus { json!({"tid": tid}) } else { json!({"tid": tid, "iptTrace": "t"}) }
    };
    let mut value = json!({
        "type": "intel-pt",
        "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 85, "stepping": 4},
        "processes": [{
            "pid": 7,
            "triple": "x86_64-unknown-linux-gnu",
            "threads": [thread(7), thread(8)],
            "modules": [{
                "file": "modules/p", "systemPath": "/p", "loadAddress": 4_194_304,
                "uuid": "00FF-10",
            }],
        }],
    });
    if of_cpus {
        value["cpus"] = json!([{"id": 3, "iptTrace": "t", "contextSwitchTrace": "s"}]);
        value["tscPerfZeroConversion"] =
            json!({"timeMult": 5, "timeShift": 31, "timeZero": "18446744073709551615"});
    }
    value
}

fn parse(value: &Value) -> Result<Bundle, String> {
    Bundle::parse(value.to_string().as_bytes()).map_err(|bad| bad.to_string())
}

#[test]
fn a_bundle_reads() {
    let bundle = parse(&description(true)).unwrap();
    assert_eq!(bundle.pid, Pid(7));
    assert_eq!(bundle.threads.iter().map(|t| t.tid).collect::<Vec<_>>(), [Tid(7), Tid(8)]);
    let (trace, switches) = ("t".to_owned(), "s".to_owned());
    assert_eq!(bundle.cpus, [BundleCpu { id: 3, trace, switches }]);
    let module = Module {
        file: "modules/p".to_owned(),
        system_path: "/p".to_owned(),
        addr: Addr(0x40_0000),
        build_id: Some(vec![0, 0xff, 0x10]),
    };
    assert_eq!(bundle.modules, [module]);
    assert_eq!(bundle.clock.map(|clock| clock.zero_ns), Some(u64::MAX));
    let bundle = parse(&description(false)).unwrap();
    assert_eq!((bundle.cpus.len(), bundle.clock), (0, None));
    assert_eq!(bundle.threads[1].trace.as_deref(), Some("t"));
}

/// Sets or removes the value at a JSON pointer.
fn with(mut value: Value, pointer: &str, to: Option<Value>) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap();
    match (parent, to) {
        (Value::Object(map), Some(to)) => drop(map.insert(name.to_owned(), to)),
        (Value::Object(map), None) => drop(map.remove(name)),
        (Value::Array(list), Some(to)) => list[name.parse::<usize>().unwrap()] = to,
        _ => unreachable!("a place of the description"),
    }
    value
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let huge = json!(1e300);
    let process = description(true)["processes"][0].clone();
    let cases: [(&str, Option<Value>, &str); 24] = [
        ("/type", None, "type is missing"),
        ("/type", Some(json!("arm")), "type is \"arm\", but only intel-pt is known"),
        ("/cpuInfo/vendor", Some(json!("AMD")), "cpuInfo.vendor is \"AMD\""),
        ("/cpuInfo/family", Some(json!("6")), "cpuInfo.family must be a whole number from 0 to"),
        ("/cpuInfo/stepping", Some(json!(16)), "cpuInfo.stepping must be"),
        ("/cpuInfo/model", Some(json!(-1)), "cpuInfo.model must be"),
        ("/kernel", Some(json!({"file": "k"})), "kernel exists"),
        ("/processes", Some(json!([])), "processes has 0 processes"),
        ("/processes", Some(json!([process, process])), "processes has 2 processes"),
        ("/processes/0", Some(json!(123)), "processes[0] must be an object, but is 123"),
        ("/processes/0/pid", Some(huge), "processes[0].pid must be"),
        ("/processes/0/pid", Some(json!(0)), "processes[0].pid must be"),
        ("/processes/0/triple", Some(json!("aarch64-linux")), "only x86_64 is supported"),
        ("/processes/0/threads", Some(json!([])), "processes[0].threads is empty"),
        ("/processes/0/threads/1/tid", Some(json!(7)), "processes[0].threads[1].tid is 7, as an"),
        ("/processes/0/threads/0/iptTrace", Some(json!("t")), "have traces, and so have CPUs"),
        ("/processes/0/modules", Some(json!({})), "processes[0].modules must be an array"),
        ("/processes/0/modules/0/loadAddress", Some(json!("x")), "must be a number of 64 bits"),
        ("/processes/0/modules/0/uuid", Some(json!("0x")), "not a UUID"),
        ("/cpus", Some(json!([])), "cpus is empty"),
        ("/cpus", None, "processes[0].threads have no traces, and neither have CPUs"),
        ("/cpus/0/iptTrace", None, "cpus[0].iptTrace is missing"),
        ("/tscPerfZeroConversion", None, "tscPerfZeroConversion is missing"),
        ("/tscPerfZeroConversion/timeMult", Some(json!(0)), "timeMult must be a whole number"),
    ];
    for (pointer, to, expected) in cases {
        let found = parse(&with(description(true), pointer, to.clone())).unwrap_err();
        assert!(found.contains(expected), "{pointer} {to:?}: {found:?} is not {expected:?}");
        assert_eq!(found.lines().count(), 1);
    }
}

#[test]
fn what_is_no_json_is_refused() {
    for bytes in ["", "{", "nonsense", "\u{0}", &"[".repeat(100_000)] {
        let bad = Bundle::parse(bytes.as_bytes()).unwrap_err();
        assert!(bad.to_string().starts_with("the description is not JSON"), "{bad}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[{}], 1, "x"])),
    ]
}

fn places(value: &Value, here: &str, places: &mut Vec<String>) {
    let names: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(number, value)| (number.to_string(), value)).collect()
        }
        _ => return,
    };
    for (name, value) in names {
        let place = format!("{here}/{name}");
        places.push(place.clone());
        self::places(value, &place, places);
    }
}

proptest! {
    #[test]
    fn any_value_in_any_place_reads_or_is_refused(
        of_cpus: bool, place in any::<prop::sample::Index>(), value in any_value(),
    ) {
        let whole = description(of_cpus);
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        let place: &String = place.get(&all);
        let changed = with(whole, place, Some(value));
        if let Err(bad) = parse(&changed) {
            prop_assert!(bad.len() < 300, "{}", bad);
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>) {
        prop_assert!(Bundle::parse(&bytes).is_err());
    }
}
