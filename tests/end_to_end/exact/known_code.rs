//! Lists of code that earlier runs executed: recordings are the same with them, without them, and with
//! wrong ones.

use super::WHOLE;
use crate::support::{Random, Scene, contraflow, have, recordings_in, text};
use contraflow::recording::{KnownCode, Store};
use contraflow::sideband::ImageId;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A program whose path is the same each time.
const COMMAND: [&str; 2] = ["sha256sum", "/etc/services"];

/// Records the program into a directory, with the lists of the scene's store, and adds to these.
fn record(scene: &Scene, options: &[&str], name: &str) -> PathBuf {
    let dir = scene.path(name);
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-q"]).args(options);
    let output = record.arg("-o").arg(&dir).args(COMMAND).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    dir
}

fn said(scene: &Scene, command: &[&str], dir: &Path) -> String {
    let mut contraflow = contraflow();
    contraflow.env("CONTRAFLOW_HOME", scene.path("store")).args(command).arg(dir);
    let output = contraflow.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the files of a recording.
fn images(dir: &Path) -> Vec<ImageId> {
    let names = std::fs::read_dir(dir.join("images")).unwrap().map(|entry| entry.unwrap());
    names.map(|entry| ImageId(entry.file_name().to_string_lossy().into_owned())).collect()
}

#[test]
fn recordings_are_the_same_with_and_without_lists() {
    if !have(COMMAND[0]) {
        return;
    }
    let scene = Scene::new();
    let known = KnownCode::of(&Store::new(scene.path("store")));
    let first = record(&scene, &["--path", "--full"], "first");
    let list = images(&first).iter().map(|image| known.load(image)).max_by_key(Vec::len).unwrap();
    assert!(list.len() > 100, "{} addresses", list.len());
    let path = said(&scene, &["dump", "insns", "--addresses"], &first);
    let again = record(&scene, &["--path", "--full"], "again");
    assert!(path == said(&scene, &["dump", "insns", "--addresses"], &again));
    // In the midst of instructions, in data, out of the file.
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for image in images(&first) {
        let wrong: Vec<u64> = (0..3000).map(|_| random.below(2 << 20) as u64).collect();
        let near = known.load(&image).into_iter().flat_map(|at| [at + 1, at + 3]);
        known.add(&image, &near.chain(wrong).collect::<Vec<_>>());
    }
    let misled = record(&scene, &["--path", "--full"], "misled");
    assert!(path == said(&scene, &["dump", "insns", "--addresses"], &misled));
    let exact = record(&scene, &[], "exact");
    assert!(said(&scene, &["check"], &exact).starts_with(WHOLE));
    assert!(recordings_in(&scene.path("store")).is_empty());
}

/// The recordings of a store have one file of each library, until something writes to it.
#[test]
fn recordings_share_their_images() {
    if !have(COMMAND[0]) {
        return;
    }
    let scene = Scene::new();
    let inode = |dir: &Path, image: &ImageId| {
        std::fs::metadata(dir.join("images").join(&image.0)).map(|m| m.ino()).ok()
    };
    let [first, second] = ["first", "second"].map(|name| record(&scene, &[], name));
    let is_shared = |image: &&ImageId| inode(&first, image) == inode(&second, image);
    let all = images(&first);
    let shared: Vec<&ImageId> = all.iter().filter(is_shared).collect();
    // The vdso is no file, and one that was just written is not shared.
    assert!(shared.len() + 2 >= all.len() && shared.len() >= 2, "{shared:?} of {all:?}");
    // What one loses, the others keep.
    std::fs::remove_dir_all(&first).unwrap();
    assert!(said(&scene, &["check"], &second).starts_with(WHOLE));
    let image = shared[0];
    std::fs::write(second.join("images").join(&image.0), "damaged").unwrap();
    let third = record(&scene, &["--path"], "third");
    let fourth = record(&scene, &[], "fourth");
    assert_ne!(inode(&second, image), inode(&fourth, image));
    assert_eq!(inode(&third, image), inode(&fourth, image));
    assert!(said(&scene, &["check"], &fourth).starts_with(WHOLE));
    let mut check = contraflow();
    let output = check.arg("check").arg(&second).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output.stdout));
}
