//! A folder that is mirrored becomes the same folder elsewhere, and nothing else.

use super::*;
use planaria_fleet::messages::write_message;

fn told(run: &Path, known: &Known, is_live: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_message(&mut bytes, &Told::Run { is_live, ended: None, host: HostState::default() })
        .unwrap();
    let is_more = tell(run, known, is_live, |word| write_message(&mut bytes, &word)).unwrap();
    write_message(&mut bytes, &Told::Over { is_more }).unwrap();
    bytes
}

fn put(run: &Path, name: &str, bytes: &[u8]) {
    let path = run.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_run_is_told_as_it_grows_and_whole_when_it_has_ended() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (there, here) = (there.path(), here.path());
    put(there, "events.jsonl", b"one\n");
    put(there, "logs/worker-0.log", b"a");
    put(there, "control.json", b"secret");
    put(there, "resources.jsonl", b"theirs");
    put(there, "report.json", b"{}");
    put(there, "tensorboard/train/events.out.tfevents.1.planaria", b"t");
    take(here, &told(there, &known(here, true), true)).unwrap();
    assert_eq!(fs::read(here.join("events.jsonl")).unwrap(), b"one\n");
    assert!(!here.join("report.json").exists() && !here.join("control.json").exists());
    put(there, "events.jsonl", b"one\ntwo\n");
    put(there, "checkpoints/step-1/part-0.bin", &[7; 3_000_000]);
    put(there, "checkpoints/step-1/empty", b"");
    symlink("step-1", there.join("checkpoints/last")).unwrap();
    for _ in 0..2 {
        take(here, &told(there, &known(here, false), false)).unwrap();
        assert_eq!(fs::read(here.join("events.jsonl")).unwrap(), b"one\ntwo\n");
        assert_eq!(fs::read(here.join("checkpoints/last/part-0.bin")).unwrap(), [7; 3_000_000]);
        assert!(here.join("checkpoints/last/empty").exists());
        assert_eq!(fs::read(here.join("report.json")).unwrap(), b"{}");
        let curves = here.join("tensorboard/train/events.out.tfevents.1.planaria");
        assert_eq!(fs::read(curves).unwrap(), b"t");
        assert!(!here.join("resources.jsonl").exists());
    }
    assert_eq!(
        told(there, &known(here, false), false).len(),
        told(here, &known(there, false), false).len()
    );
}

#[test]
fn what_is_long_is_told_in_several_calls() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let long = vec![3; (BYTES_MAX + 5) as usize];
    put(there.path(), "model.safetensors", &long);
    let first = take(here.path(), &told(there.path(), &known(here.path(), false), false)).unwrap();
    assert!(first.is_more && !here.path().join("model.safetensors").exists());
    let known = known(here.path(), false);
    assert_eq!(known["model.safetensors"], BYTES_MAX);
    assert!(!take(here.path(), &told(there.path(), &known, false)).unwrap().is_more);
    assert_eq!(fs::read(here.path().join("model.safetensors")).unwrap(), long);
}

#[test]
fn nothing_is_written_outside_the_run() {
    let here = tempfile::tempdir().unwrap();
    let run = here.path().join("run");
    fs::create_dir(&run).unwrap();
    let outside = here.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, run.join(CHECKPOINTS)).unwrap();
    let piece = |name: &str| Told::Piece { name: name.into(), at: 0, bytes: vec![1], length: 1 };
    let link = |name: &str, target: &str| Told::Link { name: name.into(), target: target.into() };
    for word in [
        piece("../outside/x"),
        piece("/tmp/x"),
        piece("logs/../../x.log"),
        piece("recipe.yaml"),
        piece("control.json"),
        piece("checkpoints/x"),
        piece("logs/.hidden.log"),
        link("checkpoints/last", "../.."),
        link("events.jsonl", "recipe.yaml"),
        link("checkpoints/last", "step-1"),
    ] {
        let mut bytes = Vec::new();
        write_message(
            &mut bytes,
            &Told::Run { is_live: false, ended: None, host: HostState::default() },
        )
        .unwrap();
        write_message(&mut bytes, &word).unwrap();
        write_message(&mut bytes, &Told::Over { is_more: false }).unwrap();
        assert!(take(&run, &bytes).is_err(), "{word:?}");
    }
    let long = |name: &str, at: u64, length: u64| {
        let bytes = vec![1];
        Told::Piece { name: name.into(), at, bytes, length }
    };
    for word in [
        long("model.safetensors", 0, 1 << 60),
        long("events.jsonl", 1 << 40, (1 << 40) + 1),
        long("logs/worker-0.log", u64::MAX, u64::MAX),
    ] {
        let mut bytes = Vec::new();
        write_message(
            &mut bytes,
            &Told::Run { is_live: false, ended: None, host: HostState::default() },
        )
        .unwrap();
        write_message(&mut bytes, &word).unwrap();
        write_message(&mut bytes, &Told::Over { is_more: false }).unwrap();
        let refused = take(&run, &bytes).unwrap_err().to_string();
        assert!(refused.contains("more bytes than there is room for"), "{refused}");
    }
    let folders = fs::read_dir(&run).unwrap();
    folders.for_each(|entry| assert!(!entry.unwrap().file_type().unwrap().is_file()));
    let _ = fs::remove_dir(run.join("logs"));
    assert!(take(&run, b"").is_err() && take(&run, b"garbage, more of it").is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&run).unwrap().count(), 1);
}
