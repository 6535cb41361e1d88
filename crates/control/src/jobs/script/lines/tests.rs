//! Lines from bytes: tables of what programs write, and properties over any bytes.

use super::*;
use planaria_text::paint::bare;
use proptest::prelude::*;

/// What bytes come to: the finished lines, then the open ones.
fn read(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let mut lines = Lines::new();
    (lines.push(bytes), lines.open())
}

#[track_caller]
fn check(text: &str, finished: &[&str], open: &[&str]) {
    let (got_finished, got_open) = read(text.as_bytes());
    assert_eq!((got_finished, got_open), (owned(finished), owned(open)), "{text:?}");
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn lines_end_where_they_end() {
    check("", &[], &[]);
    check("a\nb\r\n\nc", &["a", "b", ""], &["c"]);
    check("a\tb\n", &["a       b"], &[]);
    check("tail  \n", &["tail"], &[]);
    check("\x0b\x0c\x07\0é\u{85}漢\n", &["é漢"], &[]);
}

#[test]
fn a_bar_is_what_it_shows_last() {
    check("\r  0%|    |\r 50%|██  |", &[], &[" 50%|██  |"]);
    check("\r  0%|    |\r100%|████|\nnext\n", &["100%|████|", "next"], &[]);
    check("12345\r\x1b[Kab", &[], &["ab"]);
    check("12345\rab", &[], &["ab345"]);
    check("12345\x08\x08xy\n", &["123xy"], &[]);
    check("12345\x1b[2K\rab\n", &["ab"], &[]);
    check("12345\x1b[3D\x1b[1KX\n", &["  X45"], &[]);
    check("1\x1b[5Gx\x1b[2Cy\n", &["1   x  y"], &[]);
    // Keras goes back over all it had written, then rewrites it.
    let bar = "\x1b[1m1/2\x1b[0m \x1b[32m━\x1b[0m loss: 0.5";
    let again = "\x1b[1m2/2\x1b[0m \x1b[32m━━\x1b[0m loss: 0.4";
    let text = format!("{bar}{}\r{again}\n", "\x08".repeat(40));
    let shown = "\x1b[0;1m2/2\x1b[0m \x1b[0;32m━━\x1b[0m loss: 0.4";
    check(&text, &[shown], &[]);
}

#[test]
fn colours_end_with_the_line_and_nothing_else_gets_through() {
    check(
        "\x1b[31mred\nstill\x1b[m no\n",
        &["\x1b[0;31mred\x1b[0m", "\x1b[0;31mstill\x1b[0m no"],
        &[],
    );
    check("\x1b[38;5;208;1;48;2;1;2;3mx\n", &["\x1b[0;1;38;5;208;48;2;1;2;3mx\x1b[0m"], &[]);
    check("\x1b[95;42mx\x1b[39;49my\n", &["\x1b[0;95;42mx\x1b[0my"], &[]);
    check("\x1b[5;8mhidden?\n", &["hidden?"], &[]);
    check("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1bPq#0\x1b\\c\n", &["abc"], &[]);
    check("\x1b[?25l\x1b[?1049ha\x1b(Bb\x1b7c\x1b[6nd\x1bce\x1b[>4;1mf\n", &["abcdef"], &[]);
    check("\x1b]52;c;never ended\nnext\n", &["", "next"], &[]);
    check("\x1b[12\nnext\n", &["", "next"], &[]);
    check("\u{202e}abc\u{2066}\u{9b}31m\n", &["abc31m"], &[]);
    check("one\x1b[2J\x1b[Htwo\n", &["one", "two"], &[]);
}

#[test]
fn several_bars_stay_where_they_are() {
    // As tqdm does for bars at positions 0 and 1.
    let mut lines = Lines::new();
    let mut finished = lines.push(b"\router 0/9");
    for step in 0..50 {
        finished.extend(lines.push(format!("\n\rinner {step}\x1b[A").as_bytes()));
        finished.extend(lines.push(format!("\router {step}/9").as_bytes()));
    }
    assert_eq!(finished, ["outer 0/9"], "only what had ended before it was known to go up");
    assert_eq!(lines.open(), ["outer 49/9", "inner 49"]);
    // After the bars plain lines come again, late at first, then at once.
    assert_eq!(lines.push(b"\n\nepoch done\n"), ["outer 49/9", "inner 49", "epoch done"]);
    assert_eq!(lines.push(b"plain\n"), ["plain"]);
}

#[test]
fn long_lines_are_cut_and_escapes_are_bounded() {
    let (finished, open) = read("x".repeat(LINE_MAX * 2 + 3).as_bytes());
    assert_eq!(finished.iter().map(String::len).collect::<Vec<_>>(), [LINE_MAX; 2]);
    assert_eq!(open, ["xxx"]);
    let (finished, _) =
        read(format!("\x1b[999999999999Gx\x1b[{}mx\n", "1;".repeat(9999)).as_bytes());
    assert!(finished.iter().all(|line| line.chars().count() <= LINE_MAX + 20));
    let (_, open) = read(format!("\x1b]{}", "x".repeat(ESCAPE_MAX + 10)).as_bytes());
    assert_eq!(open, ["x".repeat(10)]);
    assert!(read(&b"\x1b[99999A\n".repeat(999)).1.is_empty());
}

#[test]
fn bytes_that_are_no_text_are_marked() {
    assert_eq!(read(b"a\xff\xfeb\n").0, ["a\u{fffd}\u{fffd}b"]);
    let mut lines = Lines::new();
    assert_eq!(lines.push(b"\xe2\x94"), Vec::<String>::new());
    assert_eq!(lines.push(b"\x81\n"), ["━"]);
    lines.push(b"end\xe2\x94");
    assert_eq!(lines.end(), ["end\u{fffd}"]);
    assert!(!lines.is_open());
}

/// Bytes that programs write, and some that none should.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => "[a-z0-9 ]{0,12}".prop_map(String::into_bytes),
        2 => Just(b"\n".to_vec()),
        1 => Just(b"\r".to_vec()),
        1 => prop::sample::select(vec!["\x1b[A", "\x1b[K", "\x08", "━█漢", "\x1b[2J", "\x1b[3B", "\x1b[7C"])
            .prop_map(|s| s.as_bytes().to_vec()),
        1 => "\x1b\\[[0-9;]{0,6}[a-zA-Z]".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn where_bytes_are_cut_does_not_matter(bytes in output(), cuts in prop::collection::vec(0usize..400, 0..8)) {
        let mut whole = Lines::new();
        let mut expect = whole.push(&bytes);
        expect.extend(whole.end());
        let mut lines = Lines::new();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
        cuts.sort_unstable();
        let (mut got, mut from) = (Vec::new(), 0);
        for to in cuts.into_iter().chain([bytes.len()]) {
            got.extend(lines.push(&bytes[from..to]));
            from = to;
        }
        got.extend(lines.end());
        prop_assert_eq!(got, expect);
    }

    #[test]
    fn lines_steer_nothing(bytes in output()) {
        let mut lines = Lines::new();
        let mut all = lines.push(&bytes);
        all.extend(lines.open());
        for line in all {
            prop_assert!(!bare(&line).chars().any(char::is_control), "{:?}", line);
            prop_assert!(!line.contains('\x1b') || line.ends_with("\x1b[0m") || {
                let last = line.rfind('\x1b').unwrap();
                line[last..].starts_with("\x1b[0m")
            }, "{:?}", line);
        }
    }
}
