//! Traces without a recording: decoding on several cores gives the same as one decoder.

use super::machine::run;
use super::program::Random;
use crate::common::{Addr, AddrRange};
use crate::flow::{Code, Config, Decoder, FlowItem};
use crate::image::{Image, Section};
use crate::timeline::{RawTrace, Visit};
use proptest::prelude::*;
use std::ops::ControlFlow;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns the items with the numbers of the next instructions, and all addresses.
fn serial(trace: &[u8], image: &Image) -> (Vec<(u64, FlowItem)>, Vec<Addr>) {
    let mut code = Code::new(image);
    let mut decoder = Decoder::new(trace, Config::new());
    let (mut items, mut addrs, mut index) = (Vec::new(), Vec::new(), 0);
    while let Some(item) = decoder.next(&mut code) {
        items.push((index, item));
        if let FlowItem::Block(span) = item {
            index += u64::from(span.insns);
            addrs.extend(code.addrs(span.ip, span.mode, span.insns));
        }
    }
    (items, addrs)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn workers_change_nothing(seed: u64, workers in 1_usize..5, damaged: bool, cut in 0_usize..200) {
        let ran = run(seed, 1, 3000);
        let mut trace = ran.threads[0].trace.repeat(4);
        let mut random = Random::new(seed);
        if damaged {
            let at = random.below(trace.len());
            trace[at] ^= 1 << random.below(8);
        }
        let code = ran.program.bytes();
        let range = AddrRange::sized(ran.program.addrs[0], code.len() as u64);
        let image = Image::new([Section { range, bytes: code.into(), ..Section::default() }]);
        let (items, addrs) = serial(&trace, &image);
        let limit = if cut < 100 { items.len() } else { items.len().min(cut) };
        let raw = RawTrace { bytes: &trace, image: &image, config: &Config::new(), workers, with_addrs: true };
        let (mut seen, mut walked) = (Vec::new(), Vec::new());
        let flow = raw.visit(&mut |_| (), &mut |visit| {
            if seen.len() == limit {
                return ControlFlow::Break(());
            }
            match visit {
                Visit::Block { index, span, code, .. } => {
                    walked.extend_from_slice(code.addrs());
                    seen.push((index, FlowItem::Block(span)));
                }
                Visit::Event { index, event, .. } => seen.push((index, FlowItem::Event(event))),
                Visit::Gap { index, gap, .. } => seen.push((index, FlowItem::Gap(gap))),
            }
            ControlFlow::Continue(())
        });
        prop_assert_eq!(flow.is_break(), limit < items.len());
        prop_assert_eq!(&seen[..], &items[..limit]);
        prop_assert_eq!(&walked[..], &addrs[..walked.len()]);
    }
}
