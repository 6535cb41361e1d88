//! Processes that cannot start: one clear error at once, and nothing left behind.

use crate::binary::{Place, talk};
use crate::live::{Live, one_error, place, processes, until};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A run that was interrupted.
fn interrupted(place: &Place, more: &[&str]) -> PathBuf {
    let mut live = Live::train(place, more);
    live.reach(1, 10);
    live.signal("TERM");
    assert_eq!(live.end().status.code(), Some(130));
    place.only_run()
}

#[track_caller]
fn refused(output: &Output, run: &Path) -> String {
    let said = talk(output);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?} {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
    until("the end of all processes", || {
        processes(run.file_name().unwrap().to_str().unwrap()).is_empty().then_some(())
    });
    one_error(&said)
}

#[test]
fn files_in_the_way() {
    let place = place();
    let run = interrupted(&place, &[]);
    for (name, expected) in [
        ("logs/worker-1.log", "cannot write the log"),
        ("logs/coordinator.log", "cannot write the log"),
        ("events.jsonl", "events.jsonl"),
        ("control.json", "control.json"),
    ] {
        let path = run.join(name);
        let aside = run.join("aside");
        let moved = fs::rename(&path, &aside).is_ok();
        fs::create_dir(&path).unwrap();
        let error = refused(&place.run(&["resume", run.to_str().unwrap()]), &run);
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
        // What was in the way is taken away, and at the end it goes on.
        fs::remove_dir(&path).unwrap();
        if moved {
            fs::rename(&aside, &path).unwrap();
        }
    }
    crate::live::resume(&place, &run, "2", "1");
}

#[test]
fn too_few_open_files() {
    let place = place();
    for limit in ["7", "8", "9", "10", "11", "12", "13", "14"] {
        let binary = place.command(&["train", "net.yaml", "--workers", "3", "--servers", "2"]);
        let output = limited(&place, &format!("ulimit -n {limit}"), &binary);
        if output.status.success() {
            continue;
        }
        let error = refused(&output, Path::new("no-run"));
        assert!(error.contains("Too many open files"), "{limit}: {error}");
    }
}

#[test]
fn too_little_memory_for_a_worker() {
    let place = place();
    // The foreground finds enough for all; a worker's threads need more address space than that.
    let sets = ["--set", "train.batch=350", "--threads", "8", "--workers", "2", "--servers", "1"];
    let binary = place.command(&[&["train", "net.yaml"], &sets[..]].concat());
    for kilobytes in (24_000..60_000).step_by(4000) {
        let _ = fs::remove_dir_all(place.path().join("runs"));
        let output = limited(&place, &format!("ulimit -v {kilobytes}"), &binary);
        let said = talk(&output);
        if output.status.success() || !said.contains("run runs/") {
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{kilobytes}: {said}");
        let error = refused(&output, &place.only_run());
        assert!(error.contains("its log is `"), "{kilobytes}: {error}");
    }
}

/// Runs the binary under a limit of the shell.
fn limited(place: &Place, limit: &str, binary: &Command) -> Output {
    Command::new("sh")
        .args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")])
        .arg(binary.get_program())
        .args(binary.get_args())
        .current_dir(place.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Takes a run up again, does something when its first processes are there but not yet `agent`, and
/// waits for its end. A pipe in the place of the log holds the foreground.
fn meanwhile(place: &Place, run: &Path, program: &Path, agent: &str, act: impl FnOnce()) -> Output {
    let pipe = run.join("logs").join(format!("{agent}.log"));
    let _ = fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = Command::new(program)
        .args(["resume", run.to_str().unwrap(), "--workers", "2", "--servers", "1"])
        .current_dir(place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = run.file_name().unwrap().to_str().unwrap();
    until("the coordinator", || (!processes(id).is_empty()).then_some(()));
    act();
    let reading = pipe.clone();
    // Open for writing too, so that a process that is started again does not wait for a reader.
    let mut both = fs::OpenOptions::new().read(true).write(true).open(reading).unwrap();
    let mut end = both.try_clone().unwrap();
    let log = std::thread::spawn(move || {
        let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
        while !text.ends_with(&[0]) {
            let read = both.read(&mut bytes).unwrap();
            text.extend_from_slice(&bytes[..read]);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let output = child.wait_with_output().unwrap();
    end.write_all(&[0]).unwrap();
    let log = log.join().unwrap();
    assert!(!log.contains("panicked"), "{log}");
    fs::remove_file(&pipe).unwrap();
    output
}

#[test]
fn data_that_goes_away_between_planning_and_opening() {
    let place = place();
    let idx = |sizes: &[u32], values: Vec<u8>| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|d| d.to_be_bytes()).collect();
        [&[0, 0, 8, (sizes.len() / 4) as u8], &sizes[..], &values[..]].concat()
    };
    let pixels: Vec<u8> = (0..400 * 64).map(|i| (i * 7 % 251) as u8).collect();
    let labels: Vec<u8> = (0..400).map(|i| (i % 10) as u8).collect();
    let images = place.path().join("train-images-idx3-ubyte");
    fs::write(&images, idx(&[400, 8, 8], pixels.clone())).unwrap();
    fs::write(place.path().join("train-labels-idx1-ubyte"), idx(&[400], labels)).unwrap();
    let data = ["--set", "data={train: ., validation: 0.1, test: null}"];
    let run = interrupted(&place, &data);
    let program = Path::new(env!("CARGO_BIN_EXE_planaria"));

    let aside = place.path().join("aside");
    let output = meanwhile(&place, &run, program, "worker-0", || {
        fs::rename(&images, &aside).unwrap();
    });
    let error = refused(&output, &run);
    assert!(error.contains("worker-") && error.contains("cannot go on"), "{error}");

    // Other data in its place is refused as well.
    fs::write(&images, idx(&[400, 8, 8], pixels.iter().map(|p| p ^ 1).collect())).unwrap();
    fs::rename(&images, place.path().join("other")).unwrap();
    fs::rename(&aside, &images).unwrap();
    let output = meanwhile(&place, &run, program, "worker-0", || {
        fs::rename(place.path().join("other"), &images).unwrap();
    });
    let error = refused(&output, &run);
    assert!(error.contains("is not what the run began with"), "{error}");
    assert_eq!(output.status.code(), Some(2), "{error}");
}

#[test]
fn a_program_that_is_replaced_while_it_starts() {
    // Processes are of the program that runs, whatever has become of its file.
    for other in [Some("/bin/false"), None] {
        let place = place();
        let run = interrupted(&place, &[]);
        let program = place.path().join("planaria-copy");
        fs::copy(env!("CARGO_BIN_EXE_planaria"), &program).unwrap();
        let output = meanwhile(&place, &run, &program, "server-0", || {
            fs::remove_file(&program).unwrap();
            other.map(|other| fs::copy(other, &program).unwrap());
        });
        assert!(output.status.success(), "{other:?}: {}", talk(&output));
    }
}
