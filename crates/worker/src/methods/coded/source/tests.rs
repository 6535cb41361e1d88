//! A source that is cut off is asked again for the rest; one that refuses is believed; one that is
//! away is not waited for for ever.

use super::*;
use planaria_protocol::Secret;
use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::Agent;
use planaria_protocol::methods::coded::Travel;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Rows of 1,000 values, 131 to a piece.
const LENGTH: Length = Length { units: 400, unit_bytes: 8000 };

fn value(row: u64, column: u64) -> f64 {
    (row * 1000 + column) as f64
}

/// What a source does when it is asked for rows from a first one on.
type Does = dyn Fn(u64) -> Result<(), Trouble> + Send + Sync;

/// A source that listens, and the first rows that it was asked for.
fn source(does: Box<Does>) -> (Source, Listening, Arc<Mutex<Vec<u64>>>) {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let firsts = asked.clone();
    let serve = move |join: Join, sender, receiver| {
        assert_eq!(join.purpose, LinkPurpose::Blocks);
        let mut giver = Line::<Ask>::new(sender, receiver).unwrap();
        while let Ok(Some(ask)) = giver.hear() {
            firsts.lock().unwrap().push(ask.first);
            let given = giver.give(&ask, LENGTH, b"{}", |rows, out| {
                does(rows.start)?;
                for row in rows {
                    out.extend(f64::bytes(&(0..1000).map(|c| value(row, c)).collect::<Vec<_>>()));
                }
                Ok(())
            });
            match given {
                Ok(()) => {}
                Err(Fault::Refused(trouble)) if trouble.fix_input => return giver.refuse(trouble),
                Err(_) => return,
            }
        }
    };
    let generation = Arc::new(AtomicU64::new(1));
    let listening =
        listen::serve(listener, credentials.clone(), generation, serve, |_| {}).unwrap();
    let join = Join::new(Agent::Worker(0), "test", 1);
    (Source::new(&address, &credentials, &join, "c0"), listening, asked)
}

fn fetch(source: &Source, into: &mut Download<f64>, is_over: bool) -> Result<(), Missed> {
    let log: Log = Arc::new(|_: &str| {});
    source.fetch(Wanted::Block { slot: 1 }, into, Watch { log: &log, is_over: &|| is_over })
}

fn download() -> Download<f64> {
    Download::new(400, 1000, 8, f64::take)
}

#[test]
fn the_rest_is_asked_for_and_nothing_twice() {
    let cuts = AtomicU64::new(0);
    let (source, _listening, asked) = source(Box::new(move |first| {
        match first > 0 && cuts.fetch_add(1, Ordering::SeqCst) == 0 {
            true => Err(Trouble::new("cut off")),
            false => Ok(()),
        }
    }));
    let mut rows = download();
    fetch(&source, &mut rows, false).unwrap();
    assert_eq!(*asked.lock().unwrap(), [0, 131]);
    assert_eq!(rows.take_bytes(), 400 * 8000 + 4, "the rows once, the head twice");
    let (values, head) = rows.finish().unwrap();
    assert_eq!(head, b"{}");
    let expected = (0..400).flat_map(|row| (0..1000).map(move |column| value(row, column)));
    assert!(values.into_iter().eq(expected));
}

#[test]
fn what_is_refused_is_not_asked_for_again() {
    let no = || Trouble { fix_input: true, ..Trouble::new("line 7 has no label") };
    let (source, _listening, asked) = source(Box::new(move |_| Err(no())));
    let mut rows = download();
    assert_eq!(fetch(&source, &mut rows, false), Err(Missed::Refused(no())));
    assert_eq!(*asked.lock().unwrap(), [0]);
    assert!(rows.finish().is_none(), "what is not whole is nothing");
}

#[test]
fn a_source_that_is_away_is_given_up_and_rows_that_came_stay() {
    let (source, _listening, asked) = source(Box::new(|first| match first {
        0 => Ok(()),
        _ => Err(Trouble::new("cut off")),
    }));
    let mut rows = download();
    assert_eq!(fetch(&source, &mut rows, false), Err(Missed::Away));
    assert_eq!(rows.rows(), 131);
    assert_eq!(*asked.lock().unwrap(), [0, 131, 131, 131, 131]);
    assert_eq!(
        fetch(&source, &mut rows, true),
        Err(Missed::Away),
        "the rows are not wanted any more"
    );
}

#[test]
fn rows_of_another_length_are_not_taken() {
    let (source, _listening, _) = source(Box::new(|_| Ok(())));
    let mut rows = Download::new(399, 1000, 8, f64::take);
    assert_eq!(fetch(&source, &mut rows, true), Err(Missed::Away));
    assert_eq!(rows.rows(), 0);
}
