//! Questions that the user interrupts.

use super::record;
use crate::support::{Scene, have};
use contraflow::ask::{Asked, CallsQuestion, FollowedValue, OriginQuestion, Recorded};
use contraflow::recording::Reader;
use contraflow::replay::path_of;
use contraflow::values::Question;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// An exact recording of many calls, open for questions.
fn opened(scene: &Scene) -> Asked {
    let program = scene.compile("fib.c", &["-O0", "-DN=29"]);
    let (dir, _) = record(scene, &[], &program);
    let exact = Reader::open(&dir).unwrap();
    let path = path_of(&exact, &mut |_, _| true).unwrap();
    Asked::open(Recorded { path, exact: Some(exact) }).unwrap()
}

/// A search that is interrupted on the way to the end shows no value of that place as the last one.
#[test]
fn an_interrupted_search_for_an_origin_shows_no_value() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let mut asked = opened(&scene);
    let text = Question::parse("$rax").unwrap();
    let value = FollowedValue::Expression { text: &text, frame: None };
    let question = OriginQuestion { value, at: None, thread: None };
    let mut steps = 0;
    let mut sink = |_| {
        steps += 1;
        Ok(ControlFlow::Continue(()))
    };
    asked.origin(&question, &mut sink, &|| true).unwrap();
    assert_eq!(steps, 0);
}

/// The walk that finds where calls begin and return ends soon.
#[test]
fn an_interrupted_question_for_values_of_calls_ends_soon() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let mut asked = opened(&scene);
    let functions = ["main".to_owned()];
    let question = CallsQuestion {
        functions: &functions,
        arguments: true,
        returns: true,
        duration: false,
        in_program_file: false,
    };
    let mut time = |is_interrupted: bool| -> (Duration, usize) {
        let began = Instant::now();
        let mut calls = 0;
        let mut sink = |_| {
            calls += 1;
            Ok(ControlFlow::Continue(()))
        };
        asked.calls(question, &mut sink, &|_| {}, &|| is_interrupted).unwrap();
        (began.elapsed(), calls)
    };
    let (whole, calls) = time(false);
    let (interrupted, none) = time(true);
    assert_eq!((calls, none), (1, 0));
    assert!(interrupted * 4 < whole, "{interrupted:?} of {whole:?}");
}
