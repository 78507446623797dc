//! Skimming a segment for the index gives the same as walking it block by block: instructions,
//! times, gaps, effects on the call stack, and blocks; for any bytes of the trace.

use super::machine::run;
use super::program::Random;
use crate::common::{Addr, AddrRange, Tsc};
use crate::flow::{Bounds, Config, ExecutedCode};
use crate::image::{AddressSpace, Image, Section};
use crate::timeline::digest::{Content, segments_in};
use crate::timeline::images::{Epoch, Images};
use crate::timeline::piece::{DecodeContext, Part, Piece};
use crate::timeline::segment::Segment;
use crate::timeline::walk::{BlockCaches, Walker};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

fn blocks(tally: &ExecutedCode) -> BTreeSet<Bounds> {
    tally.blocks().map(|number| tally.numbered()[number as usize]).collect()
}

fn walked(
    part: &Part<'_>,
    inputs: DecodeContext<'_>,
    execs: &[Tsc],
) -> (Content, BTreeSet<Bounds>) {
    let (mut caches, mut tally) = (BlockCaches::default(), ExecutedCode::new());
    let segment = Segment::decode(&mut Walker::new(part, inputs, &mut caches));
    let content = Content::from_segment(&segment, &mut tally, execs);
    (content, blocks(&tally))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn skimmed_is_walked(seed: u64, threads in 1_usize..3, damages in 0_usize..4) {
        compare(seed, threads, damages)?;
    }
}

/// Tests a damaged TIP that the code after a call would have consumed.
#[test]
fn a_broken_tip_is_found_before_what_leads_to_it() {
    compare(3_777_240_293_618_289_452, 1, 2).unwrap();
}

fn compare(seed: u64, threads: usize, damages: usize) -> Result<(), TestCaseError> {
    let ran = run(seed, threads, 3000);
    let mut random = Random::new(seed);
    let bytes = ran.program.bytes();
    let range = AddrRange::sized(ran.program.addrs[0], bytes.len() as u64);
    let mut space = AddressSpace::new();
    let section = Section { range, bytes: bytes.clone().into(), ..Section::default() };
    space.map(Tsc(0), section.clone());
    // The same code as another image, for which cached blocks are invalid.
    space.map(Tsc(1000 + random.below(300) as u64), section);
    let epoch = |(generation, (start, image)): (u32, &(Tsc, Arc<Image>))| Epoch {
        start: *start,
        image: image.clone(),
        generation,
    };
    let epochs = (0..).zip(space.epochs()).map(epoch).collect();
    let images = Images::new(epochs, HashMap::new());
    let config = Config::new();
    let context = DecodeContext { images: &images, config: &config };
    let execs = [Tsc(1000 + random.below(300) as u64)];
    // One segment after the other, with the state from the segments before.
    let (mut caches, mut tally) = (BlockCaches::default(), ExecutedCode::new());
    for notes in &ran.threads {
        // Twice, so that all chains are known the second time.
        let mut trace = notes.trace.repeat(2);
        for _ in 0..damages {
            let at = random.below(trace.len().max(1));
            if let Some(byte) = trace.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        let piece = Piece::whole(0, trace.len());
        for (psb, end) in segments_in(&trace, 0..trace.len()) {
            let part = piece.part(&trace, psb, end);
            let mut walker = Walker::new(&part, context, &mut caches);
            let skimmed = Content::from_tally(&mut walker, &mut tally, &execs);
            drop(walker);
            let (expected, executed) = walked(&part, context, &execs);
            prop_assert_eq!(skimmed, expected);
            prop_assert_eq!(blocks(&tally), executed);
        }
    }
    Ok(())
}

/// Blocks keep their numbers when the tally restarts, and then only blocks added since are listed.
#[test]
fn a_tally_counts_in_rounds() {
    let block = |at: u64| (Addr(at), Addr(at + 1));
    let mut tally = ExecutedCode::new();
    for at in [10, 20, 10] {
        tally.add(block(at));
    }
    assert!(tally.blocks().eq([0, 1]));
    tally.restart();
    assert_eq!(tally.blocks().count(), 0);
    for at in [30, 20, 30] {
        tally.add(block(at));
    }
    assert!(tally.blocks().eq([1, 2]));
    assert_eq!(tally.numbered(), [block(10), block(20), block(30)]);
}
