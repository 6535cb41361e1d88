//! The screen of a job as text: a small terminal applies what is written to it.

use super::*;
use crate::drawing::Drawing;
use planaria_text::paint::columns;

const ROOM: Room = Room { columns: 60, rows: 24 };

/// A terminal that knows what we write: text, `\r`, `\n`, `ESC [ n A`, `ESC [ K`, `ESC [ J`, and
/// colours, which it ignores.
struct Terminal {
    columns: usize,
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Terminal {
    fn new(columns: usize) -> Self {
        Self { columns, rows: vec![Vec::new()], row: 0, column: 0 }
    }

    fn write(&mut self, text: &str) {
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '\n' => self.down(),
                '\r' => self.column = 0,
                '\x1b' => {
                    assert_eq!(rest.next(), Some('['));
                    let mut parameters = String::new();
                    let last = loop {
                        match rest.next().expect("an escape ends") {
                            c @ ('0'..='9' | ';') => parameters.push(c),
                            c => break c,
                        }
                    };
                    self.escape(&parameters, last);
                }
                c => self.put(c),
            }
        }
    }

    fn escape(&mut self, parameters: &str, last: char) {
        match last {
            'm' => {}
            'A' => self.row = self.row.checked_sub(parameters.parse().unwrap()).unwrap(),
            'K' => self.rows[self.row].truncate(self.column),
            'J' => {
                self.rows[self.row].truncate(self.column);
                self.rows.truncate(self.row + 1);
            }
            other => panic!("no process writes {other}"),
        }
    }

    fn put(&mut self, c: char) {
        if self.column + columns(c) > self.columns {
            self.down();
        }
        let row = &mut self.rows[self.row];
        row.resize(row.len().max(self.column + 1), ' ');
        row[self.column] = c;
        self.column += columns(c);
        // The second half of a wide character.
        row.resize(row.len().max(self.column), '\0');
    }

    fn down(&mut self) {
        (self.row, self.column) = (self.row + 1, 0);
        if self.row == self.rows.len() {
            self.rows.push(Vec::new());
        }
    }

    fn text(&self) -> String {
        let row = |row: &Vec<char>| row.iter().filter(|c| **c != '\0').collect::<String>() + "\n";
        self.rows.iter().map(row).collect()
    }
}

fn name(process: &str, machine: &str) -> Name {
    Name { process: process.into(), machine: machine.into() }
}

fn two(style: Style, colours: bool) -> Show {
    Show::new(style, colours, vec![name("worker 0", "h1"), name("worker 1", "host-2")])
}

/// A show on a small terminal.
struct Stage {
    show: Show,
    drawing: Drawing,
    terminal: Terminal,
    room: Room,
    writes: usize,
}

impl Stage {
    fn new(show: Show, room: Room) -> Self {
        Self {
            show,
            drawing: Drawing::new(),
            terminal: Terminal::new(room.columns),
            room,
            writes: 0,
        }
    }

    /// Shows what there is, after it has been there for a moment.
    fn tick(&mut self, now: f64) {
        self.tick_once(now - 2.0 * OPEN_SECONDS);
        self.tick_once(now);
    }

    fn tick_once(&mut self, now: f64) {
        let update = self.show.tick(now, self.room);
        self.put(update);
    }

    fn put(&mut self, update: Update) {
        self.writes += usize::from(update != Update::default());
        let text = self.drawing.updated(&update.said, update.drawn, self.room.columns);
        self.terminal.write(&text);
    }
}

fn bar(step: usize) -> String {
    let full = step / 10;
    format!(
        "\r{step:>3}%|{}{}| {step}/100 [loss=0.{}]",
        "█".repeat(full),
        " ".repeat(10 - full),
        99 - step % 90
    )
}

#[test]
fn bars_stand_below_the_lines() {
    let mut stage = Stage::new(two(Style::Live, true), ROOM);
    stage.show.push(0, b"hello\n");
    stage.tick(0.0);
    stage.show.push(0, bar(10).as_bytes());
    stage.show.push(1, bar(20).as_bytes());
    stage.tick(1.0);
    let expect = "\
[worker 0 · h1]     hello
[worker 0 · h1]      10%|█         | 10/100 [loss=0.89]
[worker 1 · host-2]  20%|██        | 20/100 [loss=0.79]
";
    assert_eq!(stage.terminal.text(), expect);
    // A line of another process goes above; a bar that ends becomes one.
    stage.show.push(1, format!("{}\nsaved\n", bar(100)).as_bytes());
    stage.show.push(0, bar(30).as_bytes());
    stage.tick(2.0);
    let expect = "\
[worker 0 · h1]     hello
[worker 1 · host-2] 100%|██████████| 100/100 [loss=0.89]
[worker 1 · host-2] saved
[worker 0 · h1]      30%|███       | 30/100 [loss=0.69]
";
    assert_eq!(stage.terminal.text(), expect);
    // Somebody else says something meanwhile.
    let text = stage.drawing.said("note: machine `h3` is ready\n", ROOM.columns);
    stage.terminal.write(&text);
    let update = stage.show.close();
    stage.put(update);
    let expect = "\
[worker 0 · h1]     hello
[worker 1 · host-2] 100%|██████████| 100/100 [loss=0.89]
[worker 1 · host-2] saved
note: machine `h3` is ready
[worker 0 · h1]      30%|███       | 30/100 [loss=0.69]

";
    assert_eq!(stage.terminal.text(), expect);
}

#[test]
fn it_is_drawn_at_most_ten_times_a_second() {
    let mut stage = Stage::new(two(Style::Live, false), ROOM);
    stage.show.push(1, bar(0).as_bytes());
    stage.tick(-1.0);
    stage.writes = 0;
    for n in 0..1000usize {
        let now = n as f64 * 0.001;
        stage.show.push(n % 2, bar(n / 10).as_bytes());
        stage.show.push(0, format!("\rline {n}\x1b[K\n").as_bytes());
        stage.tick_once(now);
    }
    assert!((9..=11).contains(&stage.writes), "{}", stage.writes);
    let update = stage.show.close();
    stage.put(update);
    let text = stage.terminal.text();
    let lines = text.lines().filter(|line| line.contains("line "));
    assert_eq!(lines.count(), 1000, "every line is there once");
}

#[test]
fn a_line_and_its_end_may_come_apart() {
    let mut stage = Stage::new(two(Style::Live, false), ROOM);
    for n in 0..20 {
        let now = f64::from(n);
        stage.show.push(0, b"text");
        stage.tick_once(now);
        stage.show.push(0, b"\n");
        stage.tick_once(now + 0.01);
    }
    assert_eq!((stage.writes, stage.terminal.rows.len()), (20, 21), "nothing was drawn");
}

#[test]
fn narrow_and_low_terminals_are_not_overrun() {
    for (columns, rows) in [(60, 24), (30, 6), (21, 3), (10, 2), (3, 1), (1, 1)] {
        let room = Room { columns, rows };
        let names = (0..9).map(|n| name(&format!("worker {n}"), "漢字")).collect();
        let mut stage = Stage::new(Show::new(Style::Live, true, names), room);
        for step in 0..20 {
            for process in 0..9 {
                stage.show.push(process, bar(step * 5).as_bytes());
            }
            stage.tick(step as f64);
            let drawn = stage.terminal.text();
            assert!(drawn.lines().count() <= (rows / 3).max(1), "{columns}x{rows}:\n{drawn}");
            let fits = |line: &str| width(line) < columns.max(2);
            assert!(drawn.lines().all(fits), "{columns}x{rows}:\n{drawn}");
        }
    }
    let room = Room { columns: 44, rows: 6 };
    let names = (0..3).map(|n| name(&format!("worker {n}"), "")).collect();
    let mut stage = Stage::new(Show::new(Style::Live, false, names), room);
    (0..3).for_each(|process| drop(stage.show.push(process, bar(50).as_bytes())));
    stage.tick(0.0);
    assert_eq!(
        stage.terminal.text(),
        "[worker 0]  50%|█████     | 50/100 [loss=0…\n… and 2 more\n"
    );
}

#[test]
fn a_terminal_that_changes_its_width_keeps_no_rest() {
    let mut stage = Stage::new(two(Style::Live, true), ROOM);
    for (n, columns) in [60, 40, 80, 33, 60].into_iter().enumerate() {
        stage.show.push(0, bar(n * 10).as_bytes());
        stage.show.push(1, bar(n * 10).as_bytes());
        stage.room.columns = columns;
        // As terminals do: rows that no longer fit run over into the next.
        let text = stage.terminal.text();
        stage.terminal = Terminal::new(columns);
        stage.terminal.write(text.trim_end_matches('\n'));
        stage.tick(n as f64);
        assert_eq!(stage.terminal.rows.len(), 2, "{}", stage.terminal.text());
    }
}

#[test]
fn several_bars_of_a_process_have_rows_while_there_is_room() {
    let mut stage = Stage::new(two(Style::Live, false), ROOM);
    stage.show.push(0, b"a\n\x1b[A\router 1\n\rinner 2\x1b[A");
    stage.show.push(1, b"alone");
    stage.tick(0.0);
    let expect = "\
[worker 0 · h1]     a
[worker 0 · h1]     outer 1
[worker 0 · h1]     inner 2
[worker 1 · host-2] alone
";
    assert_eq!(stage.terminal.text(), expect);
}

#[test]
fn elsewhere_lines_are_plain() {
    let mut show = two(Style::Plain, true);
    let finished = show.push(0, b"\x1b[31mred\x1b[0m\n\nb");
    assert_eq!(finished, ["red", ""]);
    let said = |show: &mut Show, now| show.tick(now, Room::ENDLESS).said;
    assert_eq!(said(&mut show, 0.0), "[worker 0 · h1]     red\n[worker 0 · h1]\n");
    let mut all = String::new();
    for tenth in 1..=300 {
        show.push(1, bar(tenth / 3).as_bytes());
        all += &said(&mut show, f64::from(tenth as u32) * 0.1);
    }
    show.push(1, b"\n");
    all += &said(&mut show, 31.0);
    all += &said(&mut show, 99.0);
    let expect = "\
[worker 0 · h1]     b
[worker 1 · host-2]  33%|███       | 33/100 [loss=0.66]
[worker 1 · host-2]  67%|██████    | 67/100 [loss=0.32]
[worker 1 · host-2] 100%|██████████| 100/100 [loss=0.89]
";
    assert_eq!(all, expect);
    assert_eq!(show.end(0), ["b"]);
    assert_eq!(show.close(), Update { said: "[worker 0 · h1]     b\n".into(), drawn: None });
}

#[test]
fn a_quiet_show_still_gives_the_lines() {
    let mut show = two(Style::Quiet, true);
    assert_eq!(show.push(0, b"a\nb"), ["a"]);
    assert_eq!(show.end(0), ["b"]);
    assert_eq!((show.tick(0.0, ROOM), show.close()), (Update::default(), Update::default()));
}

#[test]
fn names_have_colours_and_steer_nothing() {
    let mut show = two(Style::Live, true);
    show.set_machine(0, "\x1b[2Jh");
    show.push(0, b"\x1b[1mx\n");
    show.push(1, b"y\n");
    let said = show.tick(0.0, ROOM).said;
    let expect = "\x1b[36m[worker 0 · ·[2Jh]\x1b[0m  \x1b[0;1mx\x1b[0m\n\x1b[33m[worker 1 · host-2]\x1b[0m y\n";
    assert_eq!(said, expect);
    assert_eq!(show.columns(ROOM), 60 - 19 - 2);
}

#[test]
fn a_log_is_shown_as_it_was_seen() {
    let bytes = b"start\r\n\r 10%\r100%\n\x1b[32mok\x1b[0m\nrest";
    let text = "[ps 1] start\n[ps 1] 100%\n[ps 1] ok\n[ps 1] rest\n";
    assert_eq!(log(&name("ps 1", ""), bytes, false), text);
    assert!(log(&name("ps 1", ""), bytes, true).contains("\x1b[0;32mok\x1b[0m"));
}
