//! What engines may say, and what they should not.

use super::*;
use proptest::prelude::*;
use std::io::Cursor;

/// Status and body of an answer in these bytes.
fn read(bytes: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut reader = Cursor::new(bytes);
    let (status, framing) = head(&mut reader)?;
    let mut body = Vec::new();
    Framed { from: reader, framing }.read_to_end(&mut body)?;
    Ok((status, body))
}

#[test]
fn answers_are_read_however_they_are_framed() {
    let check = |answer: &str, status, body: &str| {
        let (read_status, read_body) = read(answer.as_bytes()).unwrap();
        assert_eq!((read_status, read_body.as_slice()), (status, body.as_bytes()), "{answer:?}");
    };
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore", 200, "ok");
    check("HTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n", 404, "");
    check("HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end");
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
        200,
        "abc0123456789",
    );
}

#[test]
fn answers_that_make_no_sense_are_errors() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (answer, kind) in [
        ("", ErrorKind::UnexpectedEof),
        ("SSH-2.0-x\r\n\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 abc\r\n\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", ErrorKind::InvalidData),
        (&format!("{chunked}zz\r\n"), ErrorKind::InvalidData),
        (&format!("{chunked}3\r\nabcd\r\n"), ErrorKind::InvalidData),
        (&format!("{chunked}3\r\nab"), ErrorKind::UnexpectedEof),
        (&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20)), ErrorKind::InvalidData),
    ] {
        assert_eq!(read(answer.as_bytes()).unwrap_err().kind(), kind, "{answer:.60}");
    }
}

#[test]
fn a_refusal_keeps_the_engines_words() {
    assert_eq!(message(br#"{"message":"No such image:\n x"}"#), "No such image: x");
    assert_eq!(message(b"page not found\n"), "page not found");
}

#[test]
fn words_are_encoded() {
    assert_eq!(encoded("a-b_c.d~e"), "a-b_c.d~e");
    assert_eq!(encoded("../x?y=z&ä"), "..%2Fx%3Fy%3Dz%26%C3%A4");
}

#[test]
fn a_deadline_ends_a_read() {
    let (near, _far) = UnixStream::pair().unwrap();
    let deadline = Deadline::set(&near, Duration::from_millis(20)).unwrap();
    assert_eq!((&near).read(&mut [0; 8]).unwrap(), 0);
    assert!(deadline.is_over());
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
        let chunked = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes[..]].concat();
        let _ = read(&chunked);
        let _ = message(&bytes);
    }
}
