//! Links through a gate: a socket on this machine that leads to the controller's, for a machine that
//! reaches nothing by itself. The gate there connects on to processes of the run, and to nothing
//! else.
//!
//! Owns what is said to a gate before a link begins: the address, and the gate's answer. Which
//! addresses it lets through is the gate's to decide.

use crate::error::Error;
use crate::socket::Socket;
use crate::ticks::{TICK, Ticks};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Longest address, and longest reason, in bytes: a length is one byte.
const BYTES_MAX: usize = u8::MAX as usize;

/// Connects to `address` through the gate at a path of this machine.
pub(crate) fn connect(gate: &str, address: &str, ticks: &mut Ticks) -> Result<Socket, Error> {
    let failed = |why: String| Error::Connect { address: address.to_owned(), why };
    if address.len() > BYTES_MAX || address.is_empty() {
        return Err(failed(format!("an address has 1 to {BYTES_MAX} bytes")));
    }
    let stream =
        UnixStream::connect(gate).map_err(|e| failed(format!("the gate `{gate}`: {e}")))?;
    let mut stream = Socket::from(stream);
    stream.set_read_timeout(Some(TICK)).map_err(Error::io("setting a time-out"))?;
    stream.set_write_timeout(Some(TICK)).map_err(Error::io("setting a time-out"))?;
    stream.write_all(&with_length(address)).map_err(Error::io("writing to the gate"))?;
    let mut length = [0];
    ticks.read_exact(&mut stream, &mut length, "the gate's answer")?;
    let mut why = vec![0; usize::from(length[0])];
    ticks.read_exact(&mut stream, &mut why, "the gate's answer")?;
    match why.is_empty() {
        true => Ok(stream),
        false => Err(failed(format!("the gate says: {}", String::from_utf8_lossy(&why)))),
    }
}

/// The gate's end: the address that is asked for. The caller bounds how long a read may take.
pub fn asked(from: &mut dyn Read) -> io::Result<String> {
    let mut length = [0];
    from.read_exact(&mut length)?;
    let mut address = vec![0; usize::from(length[0])];
    from.read_exact(&mut address)?;
    String::from_utf8(address).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// The gate's answer: the link may begin, or why not.
pub fn answer(to: &mut dyn Write, found: Result<(), &str>) -> io::Result<()> {
    let why = match found {
        Ok(()) => "",
        Err("") => "no reason",
        Err(why) => why,
    };
    to.write_all(&with_length(why))
}

/// A length, and so much of the text.
fn with_length(text: &str) -> Vec<u8> {
    let most = text.len().min(BYTES_MAX);
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    [&[end as u8], &text.as_bytes()[..end]].concat()
}
