//! A host that says what is not so: what it says is bounded here.

use super::*;
use crate::messages::questions::{Ask, Said};
use crate::messages::{FromHost, PIECE_BYTES, read_message, write_message};

/// A machine whose host answers questions about files as it likes.
fn lying(answer: impl Fn(&Ask) -> Said + Send + 'static) -> Remote {
    let (mut host_reads, to_host) = std::io::pipe().unwrap();
    let (from_host, mut host_writes) = std::io::pipe().unwrap();
    std::thread::spawn(move || {
        let _ = write_message(&mut host_writes, &FromHost::Hello(hello("liar")));
        while let Ok(Some(message)) = read_message(&mut host_reads) {
            let ToHost::Ask { task, ask } = message else { continue };
            let said = FromHost::Said { task, said: answer(&ask) };
            if write_message(&mut host_writes, &said).is_err() {
                return;
            }
        }
    });
    let channel = Channel {
        reading: Box::new(from_host),
        writing: Box::new(to_host),
        closing: Arc::new(|| {}),
        stderr_tail: StderrTail::default(),
    };
    Remote::meet("liar", channel, "b", |_| {}).expect("it says hello")
}

fn announced(path: &str, bytes: u64) -> Found {
    Found { path: path.into(), bytes, mtime_ns: 1, age_ns: 100_000_000_000 }
}

#[test]
fn a_file_is_no_longer_than_was_announced() {
    for came in [6, 4, PIECE_BYTES * 2, 0] {
        let remote = lying(move |ask| match ask {
            Ask::Find { .. } => Said::Found { files: vec![announced("out/x", 5)], is_cut: false },
            _ => Said::Piece(vec![7; came]),
        });
        let folder = temporary();
        let mut outputs = Outputs::new(&folder.path().join("o"), Patterns::new(&["out"]).unwrap());
        let round = outputs.round(&[("liar", &remote)], true, &|| Duration::ZERO);
        assert_eq!((round.fetched.len(), round.faults.len(), outputs.files()), (0, 1, 0));
        let said = round.faults[0].what.as_str();
        let expect = format!("it sent {came} bytes of `out/x` where 5 were due");
        assert!(said.starts_with(&expect), "{said}");
        assert!(fs::read_dir(folder.path().join("o")).unwrap().next().is_none(), "nothing is left");
    }
}

#[test]
fn no_more_files_are_taken_than_there_may_be() {
    let remote = lying(|_| {
        let files = (0..=find::FOUND_MAX).map(|n| announced(&n.to_string(), 1)).collect();
        Said::Found { files, is_cut: false }
    });
    let (files, is_cut) = remote.find(&Patterns::new(&["out"]).unwrap()).unwrap();
    assert_eq!((files.len(), is_cut), (find::FOUND_MAX, true));
}
