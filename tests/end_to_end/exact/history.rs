//! What debuggers ask of the path of an exact recording: the calls around a position, which are at
//! positions of the replay, and the packets.

use super::record;
use crate::btrace::gdb_has_libipt;
use crate::support::{Scene, answer, contraflow, have, run_gdb};
use contraflow::common::Tid;
use contraflow::recording::Reader;
use contraflow::session::{FunctionArrival, Position, Replayed, Run};

/// The calls before and after a position that are looked at.
const CALLS: usize = 5;

fn open(source: &str, flags: &[&str]) -> Option<(Scene, Replayed)> {
    if !have("gcc") {
        return None;
    }
    let scene = Scene::new();
    let program = scene.compile(source, &[&["-w", "-g", "-pthread"], flags].concat());
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let (run, failure) = Replayed::at_end(Reader::open(&dir).unwrap(), &mut |_, _| ()).unwrap();
    assert_eq!(failure, None);
    run.prepare_path(&mut |_, _| true).expect("the path can be made");
    Some((scene, run))
}

/// Seeks to each call around some moments, and looks whether the thread is there.
fn look_at_calls(run: &mut Replayed) -> usize {
    let total = run.position().expect("it has a position").total;
    let (last, mut seen) = (Position::parts(total).0, 0);
    for share in [3, 10] {
        run.seek(Position::exact(last * share / 10, 0)).expect("it is a position");
        let tids: Vec<Tid> = run.threads().iter().map(|thread| thread.tid).collect();
        let here = run.position().unwrap().at;
        for tid in tids {
            run.seek(here).unwrap();
            let calls = run.calls_around(tid, CALLS);
            let order = calls.windows(2).all(|two| two[0].position < two[1].position);
            assert!(order, "{calls:?}");
            for FunctionArrival { position, ip, .. } in calls {
                run.seek(position).expect("a call is at a position");
                assert_eq!(run.position().unwrap().at, position, "thread {tid} at {here}");
                assert_eq!(run.pc(tid), Some(ip), "thread {tid} at {position}, from {here}");
                // From there it is the next one.
                let again = run.calls_around(tid, 1);
                let is_same =
                    |called: &FunctionArrival| called.position == position && called.ip == ip;
                assert!(again.iter().any(is_same), "{position}: {again:?}");
                seen += 1;
            }
        }
    }
    seen
}

#[test]
fn the_calls_of_a_path_are_at_positions_of_the_replay() {
    for source in ["exact/races.c", "exact/signals.c", "exact/epochs.c", "recursion.c"] {
        let Some((_scene, mut run)) = open(source, &["-O1"]) else { return };
        let seen = look_at_calls(&mut run);
        assert!(seen > 10, "{source}: {seen} calls");
    }
}

/// Also in the last moment, after the last tick and entry.
#[test]
fn positions_before_the_end_can_be_sought() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/last.c", &["-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let once = "python before, pc = position(), gdb.parse_and_eval('$pc')\n\
        cf-seek 100\n\
        python gdb.execute('cf-seek ' + before.split()[1])\n\
        python print('same', position() == before and pc == gdb.parse_and_eval('$pc'), before)\n\
        python print('end', is_first == ('the end:' in before))\n\
        python is_first = False\n\
        reverse-stepi\n";
    let begin = "python position = lambda: gdb.execute('cf-when', to_string=True)\n\
        python is_first = True\n";
    let said = run_gdb(replay, &(begin.to_owned() + &once.repeat(12)));
    assert_eq!(said.matches("same True").count(), 12, "{said}");
    assert_eq!(said.matches("end True").count(), 12, "{said}");
}

#[test]
fn gdb_shows_the_calls_and_decodes_the_packets() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/last.c", &["-g", "-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(
        replay,
        "break pay
             reverse-continue
             cf-history 4
             python text = gdb.execute('cf-history 4', to_string=True)
             python called = [line for line in text.splitlines() if '  pay at ' in line][-1]
             python gdb.execute('cf-seek ' + called.split()[0])
             cf-seek +3
             cf-seek -3
             cf-seek -0
             record btrace pt
             record instruction-history
             info record
             record stop",
    );
    let history = answer(&said, "cf-history 4", 0);
    assert!(history.contains("  => pay"), "{said}");
    let sought = answer(&said, "python gdb.execute('cf-seek ' + called.split()[0])", 0);
    assert!(sought.contains("pay ("), "{said}");
    let position = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let (on, back) = (answer(&said, "cf-seek +3", 0), answer(&said, "cf-seek -3", 0));
    assert_eq!(position(sought), position(back), "{said}");
    assert_ne!(position(sought), position(on), "{said}");
    if gdb_has_libipt() {
        let name = "record instruction-history";
        assert!(answer(&said, name, 0).contains("main+"), "{said}");
    }
}

const BACK_BY_LINES: &str = r"
thread = gdb.selected_thread().ptid[1]
lines = []
for _ in range(12):
    gdb.execute('maintenance flush register-cache', to_string=True)
    lines.append(gdb.newest_frame().find_sal().line)
    gdb.execute(f'monitor back {thread} over', to_string=True)
print('LINES', lines)
";

/// A line that control entered in its middle begins there, and has a line before it.
#[test]
fn steps_back_leave_a_line_that_was_entered_in_its_middle() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/midline.c", &["-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    std::fs::write(scene.path("back.py"), BACK_BY_LINES).unwrap();
    let mut gdb = contraflow();
    gdb.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let script = format!(
        "break midline.c:10\nreverse-continue\ndelete\nsource {}",
        scene.path("back.py").display()
    );
    let said = run_gdb(gdb, &script);
    // The jump back is of line 8, or of line 9, as the compiler likes.
    let expected = [[10, 8, 7, 6, 9, 8, 7, 6, 5], [10, 8, 7, 6, 8, 7, 6, 5, 5]];
    let is_expected =
        |lines: &[i32; 9]| said.contains(&format!("LINES {lines:?}").replace(']', ""));
    assert!(expected.iter().any(is_expected), "{said}");
}

/// A number that does not fit is no position, and is not cut to one.
#[test]
fn numbers_that_are_no_positions_are_refused() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/last.c", &["-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let texts = ["281474976710656", "281474976710661", "5.99999", "5.65536"];
    let commands = texts.map(|text| format!("monitor seek {text}\n")).concat();
    let said = run_gdb(replay, &commands);
    for text in texts {
        assert!(said.contains(&format!("not a position, a time or a mark: {text};")), "{said}");
    }
}
