//! Both ends show that they know a secret of the run, before anything is said: members theirs, consoles
//! another.
//!
//! Client and server send each a hello (`PLNR`, version, generation, 32 random bytes), then each a
//! code over
//! both hellos under the secret, the client first. A stranger learns the version and a random
//! number. A recording is of no use: the random numbers are new each time. Neither code can be sent
//! back as the other: each is made for its side.

use crate::error::Error;
use crate::message::VERSION;
use crate::secret::{Secret, random};
pub use crate::ticks::LIMIT;
use crate::ticks::{TICK, Ticks};
use crate::transport::Transport;
use ring::hmac;

pub(crate) const MAGIC: [u8; 4] = *b"PLNR";
const HELLO_BYTES: usize = 46;

type Hello = [u8; HELLO_BYTES];

/// The end that connected, which may insist on a generation. Gives the generation of the other end,
/// which the link is of.
pub(crate) fn client(
    stream: &mut dyn Transport,
    secret: &Secret,
    generation: Option<u64>,
    ticks: &mut Ticks,
) -> Result<u64, Error> {
    begin(stream)?;
    let ours = hello(generation.unwrap_or(ANY))?;
    write(stream, &ours)?;
    let theirs = hear(stream, ticks)?;
    check(&theirs)?;
    write(stream, &code(secret, CLIENT, &ours, &theirs))?;
    let mut answer = [0; 32];
    ticks.read_exact(stream, &mut answer, "its proof of the secret")?;
    verify(secret, SERVER, (&ours, &theirs), &answer)?;
    let found = generation_of(&theirs);
    match generation {
        Some(expected) if expected != found => Err(Error::Generation { found, expected }),
        _ => Ok(found),
    }
}

/// Whose secret the other end knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knows {
    Members,
    Consoles,
}

/// The end that was connected to, which is of this generation; where it knows the consoles' secret,
/// the other end may show that. Says which one it has shown.
pub(crate) fn server(
    stream: &mut dyn Transport,
    secret: &Secret,
    consoles: Option<&Secret>,
    generation: u64,
    ticks: &mut Ticks,
) -> Result<Knows, Error> {
    begin(stream)?;
    let theirs = hear(stream, ticks)?;
    // Answered even where the version is another, so that both ends can name both.
    let known = check(&theirs);
    if let Err(error @ (Error::Stranger(_) | Error::Sealed)) = known {
        return Err(error);
    }
    let ours = hello(generation)?;
    write(stream, &ours)?;
    known?;
    let mut proof = [0; 32];
    ticks.read_exact(stream, &mut proof, "its proof of the secret")?;
    let knows = |secret: &&Secret| verify(secret, CLIENT, (&theirs, &ours), &proof).is_ok();
    let (secret, known) = match consoles.filter(knows) {
        Some(secret) => (secret, Knows::Consoles),
        None => (Some(secret).filter(knows).ok_or(Error::WrongSecret)?, Knows::Members),
    };
    write(stream, &code(secret, SERVER, &theirs, &ours))?;
    match generation_of(&theirs) {
        found if found == generation || found == ANY => Ok(known),
        found => Err(Error::Generation { found, expected: generation }),
    }
}

/// What a client says that takes the generation of the other end.
const ANY: u64 = u64::MAX;

const CLIENT: &[u8] = b"planaria client";
const SERVER: &[u8] = b"planaria server";

fn hello(generation: u64) -> Result<Hello, Error> {
    let mut hello = [0; HELLO_BYTES];
    hello[..4].copy_from_slice(&MAGIC);
    hello[4..6].copy_from_slice(&VERSION.to_le_bytes());
    hello[6..14].copy_from_slice(&generation.to_le_bytes());
    hello[14..].copy_from_slice(&random()?);
    Ok(hello)
}

/// The other end's hello. A stranger is known by its first bytes, however few follow.
fn hear(stream: &mut dyn Transport, ticks: &mut Ticks) -> Result<Hello, Error> {
    let mut hello = [0; HELLO_BYTES];
    let (first, rest) = hello.split_at_mut(MAGIC.len());
    ticks.read_exact(stream, first, "its hello")?;
    if first == MAGIC {
        ticks.read_exact(stream, rest, "its hello")?;
    }
    Ok(hello)
}

fn generation_of(hello: &Hello) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| hello[6 + i]))
}

fn check(hello: &Hello) -> Result<(), Error> {
    let [a, b, c, d, v0, v1, ..] = *hello;
    match [a, b, c, d] {
        MAGIC => {}
        // A handshake's first record, or the alert that ends one.
        [21 | 22, 3, ..] => return Err(Error::Sealed),
        other => return Err(Error::Stranger(other)),
    }
    match u16::from_le_bytes([v0, v1]) {
        VERSION => Ok(()),
        theirs => Err(Error::Version { ours: VERSION, theirs }),
    }
}

fn code(secret: &Secret, side: &[u8], client: &Hello, server: &Hello) -> [u8; 32] {
    let code = hmac::sign(&secret.key(), &[side, client, server].concat());
    code.as_ref().try_into().expect("a code of SHA-256 has 32 bytes")
}

/// Takes the same time wherever the two differ.
fn verify(
    secret: &Secret,
    side: &[u8],
    (client, server): (&Hello, &Hello),
    found: &[u8; 32],
) -> Result<(), Error> {
    hmac::verify(&secret.key(), &[side, client, server].concat(), found)
        .map_err(|_| Error::WrongSecret)
}

fn begin(stream: &dyn Transport) -> Result<(), Error> {
    stream.set_timeout(Some(TICK)).map_err(Error::io("setting a time-out"))
}

fn write(stream: &mut dyn Transport, bytes: &[u8]) -> Result<(), Error> {
    // A new connection takes these few bytes at once.
    stream.write_all(bytes).map_err(Error::io("writing to the other end"))
}
