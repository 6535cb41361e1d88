//! Rows cross in pieces; cut off, changed or foreign ones are not believed.

use super::rows::{Ask, Wanted};
use super::*;
use crate::link;
use std::net::{TcpListener, TcpStream};

type Ends = (Sender, Receiver);

/// The two ends of a link: the source's and the worker's.
fn link() -> (Ends, Ends) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    let over = |stream| link::over(Box::new(stream), 1).unwrap();
    (over(far), over(near))
}

fn sealed(ask: &Ask, first: u64, bytes: &[u8]) -> Option<Sha256> {
    Some(ask.seal().of(first, bytes))
}

fn ask(first: u64) -> Ask {
    Ask { coding: "c0".into(), wanted: Wanted::Block { slot: 2 }, first }
}

/// Row n is n, as 16 bytes 1,000 times: 65 rows make a piece.
fn row(n: u64) -> Vec<u8> {
    u128::from(n).to_le_bytes().repeat(1000)
}

const LENGTH: Length = Length { units: 200, unit_bytes: 16_000 };

/// Serves `giver` until the other end hangs up.
fn serve(mut giver: Line<Ask>) -> Result<(), Fault> {
    while let Some(ask) = giver.hear()? {
        giver.say_preparing()?;
        giver.give(&ask, LENGTH, b"head", |rows, out| {
            rows.for_each(|n| out.extend(row(n)));
            Ok(())
        })?;
    }
    Ok(())
}

fn piece(taker: &mut Line<Ask>, ask: &Ask, length: Length, first: u64) -> Result<Vec<u8>, Fault> {
    taker.take_piece(first, length, Some(ask.seal()), |piece| Ok(piece.to_vec()))
}

/// All rows from `first` on.
fn take(taker: &mut Line<Ask>, ask: &Ask) -> Result<Vec<u8>, Fault> {
    taker.ask(ask.clone())?;
    let (length, head) = taker.hear_comes()?;
    assert_eq!((length, head.as_slice()), (LENGTH, b"head".as_slice()));
    let (mut next, mut all) = (ask.first, Vec::new());
    while next < length.units {
        let piece = piece(taker, ask, length, next)?;
        next += piece.len() as u64 / length.unit_bytes;
        all.extend(piece);
    }
    Ok(all)
}

#[test]
fn rows_come_whole_from_any_place_on() {
    let ((sender, receiver), worker) = link();
    let giver = Line::<Ask>::new(sender, receiver).unwrap();
    let serving = std::thread::spawn(move || serve(giver));
    let mut taker = Line::<Ask>::new(worker.0, worker.1).unwrap();
    for first in [0, 77, 199, 200] {
        let all = take(&mut taker, &ask(first)).unwrap();
        assert!(all == (first..200).flat_map(row).collect::<Vec<u8>>(), "from {first}");
    }
    drop(taker);
    serving.join().unwrap().unwrap();
}

#[test]
fn what_is_not_there_is_refused_with_its_reason() {
    let ((sender, receiver), worker) = link();
    let mut giver = Line::<Ask>::new(sender, receiver).unwrap();
    let serving = std::thread::spawn(move || {
        let ask = giver.hear().unwrap().unwrap();
        match giver.give(&ask, LENGTH, b"", |_, _| Ok(())) {
            Err(Fault::Refused(trouble)) => giver.refuse(trouble),
            other => panic!("{other:?}"),
        }
    });
    let mut taker = Line::<Ask>::new(worker.0, worker.1).unwrap();
    taker.ask(ask(201)).unwrap();
    match taker.hear_comes() {
        Err(Fault::Refused(trouble)) => assert_eq!(trouble.message, "there is no row 201 of 200"),
        other => panic!("{other:?}"),
    }
    drop(taker);
    serving.join().unwrap();
}

#[test]
fn a_changed_or_foreign_or_short_piece_is_not_believed() {
    let length = Length { units: 2, unit_bytes: 3 };
    let rows = b"abcdef";
    let foreign = Ask { wanted: Wanted::Block { slot: 3 }, ..ask(0) };
    let elsewhere = Ask { coding: "c1".into(), ..ask(0) };
    for (sha256, bytes) in [
        (sealed(&ask(0), 0, rows), b"abcdeg".as_slice()),
        (sealed(&foreign, 0, rows), rows),
        (sealed(&elsewhere, 0, rows), rows),
        (sealed(&ask(0), 1, rows), rows),
        (sealed(&ask(0), 0, b"abc"), b"abc"),
        (sealed(&ask(0), 0, b""), b""),
        (None, rows),
    ] {
        let ((sender, _receiver), worker) = link();
        let mut taker = Line::<Ask>::new(worker.0, worker.1).unwrap();
        sender.send(&Word::<Ask>::Comes(length)).unwrap();
        sender.send_with(&Word::<Ask>::Piece(sha256), bytes).unwrap();
        assert_eq!(taker.hear_comes().unwrap().0, length);
        let found = piece(&mut taker, &ask(0), length, 0);
        assert!(matches!(found, Err(Fault::Changed { first: 0 } | Fault::OutOfTurn(_))));
    }
}

#[test]
fn what_is_cut_off_is_an_error_and_the_rest_can_be_asked_for() {
    let ((sender, receiver), worker) = link();
    let mut giver = Line::<Ask>::new(sender, receiver).unwrap();
    let serving = std::thread::spawn(move || {
        let ask = giver.hear().unwrap().unwrap();
        let given = giver.give(&ask, LENGTH, b"head", |rows, out| match rows.start {
            0 => {
                rows.for_each(|n| out.extend(row(n)));
                Ok(())
            }
            _ => Err(Trouble::new("the machine was switched off")),
        });
        assert!(matches!(given, Err(Fault::Refused(_))));
        // It hangs up without a word.
    });
    let mut taker = Line::<Ask>::new(worker.0, worker.1).unwrap();
    taker.ask(ask(0)).unwrap();
    let (length, _) = taker.hear_comes().unwrap();
    let had = piece(&mut taker, &ask(0), length, 0).unwrap();
    assert_eq!(had.len() % 16_000, 0);
    assert!(had.len() <= PIECE_BYTES);
    let next = had.len() as u64 / 16_000;
    assert!(matches!(piece(&mut taker, &ask(0), length, next), Err(Fault::Link(_))));
    serving.join().unwrap();

    let ((sender, receiver), worker) = link();
    let giver = Line::<Ask>::new(sender, receiver).unwrap();
    let serving = std::thread::spawn(move || serve(giver));
    let mut taker = Line::<Ask>::new(worker.0, worker.1).unwrap();
    let rest = take(&mut taker, &ask(next)).unwrap();
    assert!([had, rest].concat() == (0..200).flat_map(row).collect::<Vec<u8>>());
    drop(taker);
    serving.join().unwrap().unwrap();
}

#[test]
fn a_row_may_be_longer_than_a_piece() {
    assert_eq!(Length { units: 5, unit_bytes: 3 << 20 }.at_once(), 1);
    assert_eq!(Length { units: 5, unit_bytes: 0 }.at_once(), PIECE_BYTES as u64);
}
