//! Fetching from a server on the loopback, by the programs that this machine has.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A small file and the SHA-256 of its bytes.
const HELLO: &[u8] = b"hello\n";
const SET: Set = Set {
    name: "hello",
    about: "",
    fetched: &[piece(
        "a.txt",
        6,
        "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    )],
    unpacked: &[],
    mirrors: &[],
};

/// How a server answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    /// As servers do.
    Good,
    /// All of it, whatever part was asked for.
    WithoutRanges,
    /// Other bytes.
    Wrong,
    /// There is no such file.
    Absent,
}

/// What a server was asked: paths, and the byte to begin with.
type Asked = Arc<Mutex<Vec<(String, u64)>>>;

/// A server of [`HELLO`] in one manner, and what it was asked.
fn serve(manner: Manner) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/set", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away is its own affair.
            let _ = answer(&stream, manner, &log);
        }
    });
    (url, asked)
}

fn answer(
    stream: &TcpStream,
    manner: Manner,
    log: &Mutex<Vec<(String, u64)>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut start = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            start = range.split('-').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    log.lock().unwrap().push((path, start));
    let body = if manner == Manner::Wrong { b"olleh\n" } else { HELLO };
    let (status, body) = match manner {
        Manner::Absent => ("404 Not Found", &body[..0]),
        Manner::Good if start > 0 => ("206 Partial Content", &body[start as usize..]),
        _ => ("200 OK", body),
    };
    let range = match status.starts_with("206") {
        true => format!("Content-Range: bytes {start}-5/6\r\n"),
        false => String::new(),
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{range}Connection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)
}

#[expect(clippy::disallowed_macros, reason = "a test that is skipped says so")]
fn skipped(needs: &str) {
    println!("skipped: needs {needs}");
}

fn has_program() -> bool {
    let has = Program::find().is_ok();
    if !has {
        skipped("curl or wget");
    }
    has
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_has_its_name_once_its_hash_was_right() {
    if !has_program() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (url, asked) = serve(Manner::Good);
    SET.get(folder.path(), Some(&format!("{url}/")), Talk::QUIET).unwrap();
    assert_eq!(fs::read(folder.path().join("a.txt")).unwrap(), HELLO);
    assert_eq!(names(folder.path()), ["a.txt"]);
    SET.get(folder.path(), Some(&url), Talk::QUIET).unwrap();
    assert_eq!(*asked.lock().unwrap(), [("/set/a.txt".to_owned(), 0)], "fetched once");
    fs::write(folder.path().join("a.txt"), "other").unwrap();
    let refused = SET.get(folder.path(), Some(&url), Talk::QUIET).unwrap_err();
    assert!(refused.message.contains("is not the published file"), "{refused}");
}

#[test]
fn what_has_come_is_gone_on_with() {
    if !has_program() {
        return;
    }
    let (good, asked) = serve(Manner::Good);
    let (whole, _) = serve(Manner::WithoutRanges);
    for (url, part) in [(&good, "he"), (&whole, "he"), (&good, "hello\n"), (&good, "hello\n..")] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt.part"), part).unwrap();
        SET.get(folder.path(), Some(url), Talk::QUIET).unwrap();
        assert_eq!(fs::read(folder.path().join("a.txt")).unwrap(), HELLO, "{url} {part}");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }
    let asked: Vec<u64> = asked.lock().unwrap().iter().map(|(_, start)| *start).collect();
    assert_eq!(asked, [2, 0], "the rest; nothing of what is whole; all anew of what is too long");
}

#[test]
fn mirrors_are_tried_in_turn_and_wrong_bytes_are_not_kept() {
    if !has_program() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (wrong, _) = serve(Manner::Wrong);
    let (absent, _) = serve(Manner::Absent);
    let (good, _) = serve(Manner::Good);
    let mut progress = Progress::new(Talk::QUIET);
    let get = |mirrors: &[&str], progress: &mut Progress| {
        SET.fetched[0].get(folder.path(), mirrors, progress)
    };
    let refused = get(&[&absent, &wrong], &mut progress).unwrap_err();
    for said in [&absent, "404", &wrong, "6 bytes came that are not the published file"] {
        assert!(refused.message.contains(said), "{said} is missing in {refused}");
    }
    assert!(names(folder.path()).is_empty());
    get(&[&absent, &wrong, &good], &mut progress).unwrap();
    assert_eq!(names(folder.path()), ["a.txt"]);
}

#[test]
fn names_and_mirrors_that_are_none_are_refused() {
    let said = Set::named("fashion_mnist").unwrap_err();
    assert_eq!(said.hint.as_deref(), Some("did you mean `fashion-mnist`?"));
    assert!(
        Set::named("imagenet").unwrap_err().hint.unwrap().contains("mnist, fashion-mnist, cifar10")
    );
    let folder = tempfile::tempdir().unwrap();
    for url in ["file:///etc", "--output", "mirror.org"] {
        let refused = SET.get(folder.path(), Some(url), Talk::QUIET).unwrap_err();
        assert!(refused.message.contains("is no URL of a folder"), "{refused}");
    }
}

#[test]
fn archives_are_unpacked_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("a.txt"), HELLO).unwrap();
    let archive = folder.path().join("set.tar.gz");
    let mut tar = std::process::Command::new("tar");
    tar.arg("-czf").arg(&archive).arg("-C").arg(folder.path()).arg("inner");
    if !tar.status().is_ok_and(|status| status.success()) {
        skipped("tar");
        return;
    }
    fs::remove_dir_all(&inner).unwrap();
    const PACKED: Set =
        Set { fetched: &[piece("set.tar.gz", 0, "")], unpacked: SET.fetched, ..SET };
    let set = PACKED;
    set.unpack(folder.path(), &mut Progress::new(Talk::QUIET)).unwrap();
    assert_eq!(names(folder.path()), ["a.txt"]);
    assert!(set.is_there(folder.path()).unwrap());
}
