//! The drawn text, as it looks.

use super::*;

fn frame() -> Frame {
    Frame { name: "digits".into(), epochs: 8, steps: 768, validation_loss: None }
}

fn pulse(workers: u32, servers: u32) -> Pulse {
    let worker = |worker: u32| WorkerPulse {
        worker,
        state: Doing::Computing,
        shards: if worker == 2 { 1 } else { 3 },
        examples_per_second: Some(8402.4 - f64::from(worker)),
        busy: Some(0.91 - 0.4 * f64::from(worker % 2)),
        machine: None,
        slot: None,
        rows: None,
    };
    let server = |server| ServerPulse {
        server,
        state: Doing::Serving,
        busy: Some(0.38),
        bytes_per_second: Some(4.12e8),
        machine: None,
    };
    Pulse {
        activity: Activity::Training,
        phase: "training".into(),
        seconds: 3.0,
        epoch: 3,
        step: 241,
        loss: Some(0.0413),
        accuracy: Some(0.987),
        examples_per_second: Some(19_138.2),
        seconds_left: Some(3.2),
        workers: (0..workers).map(worker).collect(),
        servers: (0..servers).map(server).collect(),
    }
}

#[track_caller]
fn check(pulse: &Pulse, columns: usize, rows: usize, expect: &str) {
    let drawn = lines(&frame(), pulse, Room { columns, rows });
    assert_eq!(drawn.join("\n"), expect.trim_matches('\n'), "{columns} by {rows}");
    assert!(drawn.iter().all(|line| line.chars().count() < columns), "{columns} by {rows}");
    assert!(drawn.len() < rows.max(2), "{columns} by {rows}");
}

#[test]
fn a_run_on_several_processes() {
    check(
        &pulse(3, 1),
        100,
        30,
        "
digits · epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7% · 19,138 ex/s · 0:03 left
  worker-0  computing   3 shards  8,402 ex/s  ███████░  91% busy
  worker-1  computing   3 shards  8,401 ex/s  ████░░░░  51% busy
  worker-2  computing    1 shard  8,400 ex/s  ███████░  91% busy
  server-0  serving     38% of a core  412.0 MB/s
",
    );
}

#[test]
fn totals_that_are_not_known_are_left_out() {
    let unknown = Frame { name: "digits".into(), epochs: 0, steps: 0, validation_loss: None };
    let line = headline(&unknown, &pulse(3, 1), 100);
    assert_eq!(line, "digits · step 241 · loss 0.0413 · acc 98.7% · 19,138 ex/s · 0:03 left");
}

#[test]
fn machines_have_a_column_where_there_are_any() {
    let mut pulse = pulse(3, 1);
    pulse.workers[0].machine = Some("lab-1".into());
    pulse.workers[1].machine = Some("lab-20".into());
    pulse.servers[0].machine = Some("\x1b[31mlab".into());
    check(
        &pulse,
        100,
        30,
        "
digits · epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7% · 19,138 ex/s · 0:03 left
  worker-0  computing   lab-1     3 shards  8,402 ex/s  ███████░  91% busy
  worker-1  computing   lab-20    3 shards  8,401 ex/s  ████░░░░  51% busy
  worker-2  computing              1 shard  8,400 ex/s  ███████░  91% busy
  server-0  serving     ·[31mlab  38% of a core  412.0 MB/s
",
    );
}

#[test]
fn narrow_terminals_lose_the_least_important() {
    check(
        &pulse(2, 1),
        60,
        30,
        "
digits · epoch 3/8 · loss 0.0413 · acc 98.7% · 0:03 left
  worker-0  computing   3 shards  8,402 ex/s
  worker-1  computing   3 shards  8,401 ex/s
  server-0  serving     38% of a core  412.0 MB/s
",
    );
    check(
        &pulse(2, 1),
        38,
        30,
        "
epoch 3/8 · loss 0.0413 · acc 98.7%
  worker-0  computing   3 shards
  worker-1  computing   3 shards
  server-0  serving     38% of a core
",
    );
    check(
        &pulse(1, 0),
        20,
        30,
        "
loss 0.0413
  worker-0  computi
",
    );
}

#[test]
fn more_workers_than_rows_are_summed_up() {
    let mut many = pulse(60, 1);
    many.workers[59].state = Doing::Standby;
    check(
        &many,
        80,
        7,
        "
digits · epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7% · 0:03 left
  worker-0  computing   3 shards  8,402 ex/s  ███████░  91% busy
  worker-1  computing   3 shards  8,401 ex/s  ████░░░░  51% busy
  worker-2  computing    1 shard  8,400 ex/s  ███████░  91% busy
  … and 57 more: 56 computing, 1 standby
  server-0  serving     38% of a core  412.0 MB/s
",
    );
    check(
        &pulse(4000, 9),
        80,
        4,
        "
digits · epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7% · 0:03 left
  4,000 workers: 4,000 computing
  9 servers: 9 serving
",
    );
    check(
        &pulse(3, 1),
        80,
        2,
        "
digits · epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7% · 0:03 left
",
    );
}

#[test]
fn phases_are_said() {
    let mut starting = Pulse {
        activity: Activity::Gathering,
        phase: "waiting for 1 of 2 workers".into(),
        epoch: 1,
        workers: vec![
            WorkerPulse { state: Doing::Ready, ..WorkerPulse::default() },
            WorkerPulse { worker: 1, state: Doing::GettingReady, ..WorkerPulse::default() },
        ],
        servers: vec![ServerPulse { state: Doing::Serving, ..ServerPulse::default() }],
        ..Pulse::default()
    };
    check(
        &starting,
        100,
        30,
        "
digits · waiting for 1 of 2 workers · epoch 1/8 · step 0/768
  worker-0  ready
  worker-1  getting ready
  server-0  serving
",
    );
    (starting.activity, starting.phase) = (Activity::Scoring, "testing".into());
    starting.epoch = 9;
    let line = headline(&frame(), &starting, 100);
    assert_eq!(line, "digits · testing · epoch 8/8 · step 0/768");
}

#[test]
fn one_process_has_one_line() {
    let one = pulse(0, 0);
    let full = "epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7% · 19,138 ex/s · 0:03 left";
    for (columns, expect) in [
        (200, full),
        (75, "epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7% · 0:03 left"),
        (50, "epoch 3/8 · loss 0.0413 · acc 98.7% · 0:03 left"),
        (12, "loss 0.0413"),
        (3, ""),
    ] {
        assert_eq!(lines(&frame(), &one, Room { columns, rows: 24 }), [expect]);
    }
}

#[test]
fn the_loss_of_the_last_validation_stands_beside_that_of_training() {
    let frame = Frame { validation_loss: Some(0.05), ..frame() };
    let line = |columns| headline(&frame, &pulse(0, 0), columns);
    let full = "epoch 3/8 · step 241/768 · loss 0.0413 · val loss 0.0500 · acc 98.7% · \
                19,138 ex/s · 0:03 left";
    assert_eq!(line(200), full);
    assert_eq!(
        line(90),
        "epoch 3/8 · step 241/768 · loss 0.0413 · val loss 0.0500 · acc 98.7% · 0:03 left"
    );
    assert_eq!(line(40), "epoch 3/8 · loss 0.0413 · acc 98.7%");
}

#[test]
fn colours_are_of_states_and_change_no_text() {
    let mut run = pulse(60, 1);
    (run.workers[1].state, run.workers[2].state) = (Doing::Late, Doing::Standby);
    let room = Room { columns: 80, rows: 12 };
    let painted = coloured(&frame(), &run, room);
    let plain: Vec<String> = painted.iter().map(|line| bare(line)).collect();
    assert_eq!(plain, lines(&frame(), &run, room));
    assert!(painted[0].starts_with("\x1b[1mdigits\x1b[0m · epoch 3/8"), "{:?}", painted[0]);
    for (line, words) in [
        (1, "  worker-0  \x1b[32mcomputing\x1b[0m   3 shards"),
        (2, "  worker-1  \x1b[31mlate\x1b[0m        3 shards"),
        (3, "  worker-2  \x1b[33mstandby\x1b[0m      1 shard"),
    ] {
        assert!(painted[line].starts_with(words), "{:?}", painted[line]);
    }
    assert!(painted[1].ends_with("\x1b[36m███████░\x1b[0m  91% busy"), "{:?}", painted[1]);
}

#[test]
fn names_cannot_steer_the_terminal() {
    let mut one = pulse(1, 0);
    one.workers[0].machine = Some("\x1b[2Jgone".into());
    let name = "a\x1b[31m\nb".to_owned();
    let drawn = lines(&Frame { name, ..frame() }, &one, Room::ENDLESS);
    assert!(!drawn.concat().contains('\x1b'), "{drawn:?}");
}

#[test]
fn losses_are_seen() {
    let mut paused = pulse(2, 1);
    paused.activity = Activity::Paused;
    paused.phase = "paused, have 1, need 2: waiting for the pool".into();
    paused.workers[1] = WorkerPulse { worker: 1, state: Doing::CutOff, ..WorkerPulse::default() };
    check(
        &paused,
        120,
        30,
        "
digits · paused, have 1, need 2: waiting for the pool · epoch 3/8 · step 241/768 · loss 0.0413 · acc 98.7%
  worker-0  computing   3 shards  8,402 ex/s  ███████░  91% busy
  worker-1  cut off
  server-0  serving     38% of a core  412.0 MB/s
",
    );
}
