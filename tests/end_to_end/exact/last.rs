//! `cf-last`: the last change of a value, and the changes before it.

use super::record;
use crate::support::{Scene, answer, assert_in_order, contraflow, have, run_gdb};

/// Writers of a balance and of a name, each found from the one after it; also when the frame of a
/// caller is selected.
#[test]
fn the_writers_of_a_value_are_found_one_by_one() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/last.c", &["-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(
        replay,
        "frame function main
         cf-last a->balance
         info args
         up
         cf-last
         cf-last
         cf-last
         cf-when
         frame function opened
         cf-seek end
         frame function main
         cf-last a->owner
         cf-last
         python position = gdb.execute('cf-when', to_string=True)
         cf-last balance_of_bank
         python print(position == gdb.execute('cf-when', to_string=True))
         cf-last 5
         cf-last nothing",
    );
    // Not the write that changes nothing.
    let first = answer(&said, "cf-last a->balance", 0);
    assert_in_order(
        first,
        &["in pay (", "sum=30)", "a->balance -= sum", "it is 70, and becomes 40"],
    );
    assert!(answer(&said, "info args", 0).ends_with("sum = 30"), "{said}");
    for (number, (place, change)) in [
        ("sum=20)", "it is 90, and becomes 70"),
        ("sum=10)", "it is 100, and becomes 90"),
        ("opened (", "and becomes 100"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_in_order(answer(&said, "cf-last", number), &["position ", place, change]);
    }
    let name = answer(&said, "cf-last a->owner", 0);
    assert_in_order(name, &["in rename_to (", "it is \"grace"]);
    assert!(!name.contains("becomes"), "{said}");
    assert_in_order(answer(&said, "cf-last", 3), &["strcpy", "it is "]);
    let never = answer(&said, "cf-last balance_of_bank", 0);
    assert!(never.contains("it was not changed before"), "{said}");
    assert!(
        said.contains(">>> python print(position == gdb.execute('cf-when', to_string=True))\nTrue")
    );
    assert!(answer(&said, "cf-last 5", 0).contains("has no address"), "{said}");
    assert!(answer(&said, "cf-last nothing", 0).contains("No symbol \"nothing\""), "{said}");
}
