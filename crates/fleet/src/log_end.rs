//! The end of an agent's log: what it said last.

use planaria_store::plain;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of a log's end is read to find its last line.
const END_BYTES: u64 = 4096;

/// The last line of a log, without its time.
pub fn last_line(log: &Path) -> Option<String> {
    let mut file = plain::open(log).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(END_BYTES))).ok()?;
    let mut end = Vec::new();
    file.take(END_BYTES).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    // What follows the message of a panic says where the program was, which helps no user.
    let end = end.split("\nstack backtrace:").next().unwrap_or_default();
    let line = end.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let text = match line.split_once("Z ") {
        Some((time, text)) if time.len() == 23 => text,
        _ => line,
    };
    let text = text.strip_prefix("ended: ").unwrap_or(text);
    Some(text.chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_log_is_what_it_ended_with() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.log");
        assert_eq!(last_line(&log), None);
        for (text, expect) in [
            ("", None),
            (
                "2001-09-09T01:46:40.000Z started\n2001-09-09T01:46:41.000Z ended: error: no data\n\n",
                Some("error: no data"),
            ),
            ("thread panicked", Some("thread panicked")),
            (
                "a\nindex 7 is out of range\nstack backtrace:\n  0: x\nnote: details",
                Some("index 7 is out of range"),
            ),
            ("a\nended: no\u{1b} room\n\n", Some("no room")),
        ] {
            std::fs::write(&log, text).unwrap();
            assert_eq!(last_line(&log).as_deref(), expect);
        }
        std::fs::write(&log, "x".repeat(10_000)).unwrap();
        assert_eq!(last_line(&log).unwrap().len(), END_BYTES as usize);
    }
}
