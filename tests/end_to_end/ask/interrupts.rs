//! Questions that the user interrupts.

use super::record;
use crate::support::{Scene, have};
use contraflow::ask::{Asked, FollowedValue, OriginQuestion, Recorded};
use contraflow::recording::Reader;
use contraflow::replay::path_of;
use contraflow::values::Question;
use std::ops::ControlFlow;

/// An exact recording of many calls, open for questions.
fn opened(scene: &Scene) -> Asked {
    let program = scene.compile("fib.c", &["-O0", "-DN=30"]);
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
