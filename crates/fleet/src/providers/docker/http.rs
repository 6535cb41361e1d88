//! Requests to an engine and its answers: HTTP/1.1 over a unix socket, a connection for each.
//!
//! Owns what is said on the socket, its bounds and its time-outs. Never knows what is asked for.

use super::tar::Archive;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// Longest head of an answer, in bytes.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Longest line between two chunks, in bytes.
const CHUNK_LINE_BYTES_MAX: u64 = 4 << 10;
/// Heads that only announce another one (`100 Continue`).
const ANNOUNCEMENTS_MAX: usize = 8;
/// Bytes of an error's text that are kept.
const MESSAGE_BYTES_MAX: usize = 2000;

/// Why there is no answer, or not the one that was wanted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No engine listens there, or this user may not connect.
    #[error("cannot connect to `{socket}`: {why}")]
    Connect { socket: String, why: io::Error },
    /// The connection broke, or nothing came in time.
    #[error("{}", lost(.0))]
    Lost(io::Error),
    /// This is no engine, or one of another world.
    #[error("the engine's answer makes no sense: {0}")]
    Garbled(String),
    /// The engine refused the request.
    #[error("{message} (status {status})")]
    Refused { status: u16, message: String },
}

fn lost(why: &io::Error) -> String {
    match why.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "the engine did not answer in time".into(),
        _ => format!("the engine closed the connection: {why}"),
    }
}

impl From<io::Error> for Error {
    fn from(why: io::Error) -> Self {
        match why.kind() {
            ErrorKind::InvalidData => Self::Garbled(why.to_string()),
            _ => Self::Lost(why),
        }
    }
}

pub struct Request<'a> {
    pub method: &'static str,
    /// Path and query, encoded.
    pub target: String,
    /// What goes with it.
    pub body: Body<'a>,
    /// How long nothing may happen.
    pub patience: Duration,
}

/// What goes with a request.
pub enum Body<'a> {
    Nothing,
    Json(Value),
    Tar(&'a Archive),
}

/// An answer whose head has been read.
pub struct Answer {
    pub status: u16,
    body: Framed<BufReader<UnixStream>>,
}

impl Answer {
    /// The rest of it, up to a bound.
    pub fn read(self, bytes_max: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.body.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(Error::Garbled(format!("it is longer than {bytes_max} bytes")));
        }
        Ok(bytes)
    }

    /// The answer, line by line, as it comes.
    pub fn lines(self) -> impl BufRead {
        BufReader::new(self.body)
    }

    /// The answer, if the engine did as it was asked.
    pub fn granted(self) -> Result<Self, Error> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let status = self.status;
        let text = self.read(HEAD_BYTES_MAX).unwrap_or_default();
        Err(Error::Refused { status, message: message(&text) })
    }
}

/// The engine's own words for a refusal: `{"message": "…"}`, or just text.
pub fn message(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let said = parsed.as_ref().and_then(|value| value["message"].as_str());
    let text = said.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(MESSAGE_BYTES_MAX).collect()
}

/// Asks, and reads the head of the answer.
pub fn ask(socket: &Path, request: &Request<'_>) -> Result<Answer, Error> {
    let (status, framing, reader) = exchange(socket, request, false)?;
    Ok(Answer { status, body: Framed { from: reader, framing } })
}

/// A connection that has become a stream of the container's.
pub struct Stream {
    /// From it. Something may have come with the head already.
    pub reading: BufReader<UnixStream>,
    pub writing: UnixStream,
}

/// Asks for the connection itself.
pub fn hijack(socket: &Path, request: &Request<'_>) -> Result<Stream, Error> {
    let (status, framing, reader) = exchange(socket, request, true)?;
    let taken_over = status == 101 || (status == 200 && matches!(framing, Framing::UntilEnd));
    if !taken_over {
        let answer = Answer { status, body: Framed { from: reader, framing } };
        let status = answer.granted()?.status;
        return Err(Error::Garbled(format!("status {status} instead of a stream")));
    }
    let writing = reader.get_ref().try_clone()?;
    Ok(Stream { reading: reader, writing })
}

type Exchanged = (u16, Framing, BufReader<UnixStream>);

fn exchange(socket: &Path, request: &Request<'_>, upgrade: bool) -> Result<Exchanged, Error> {
    let stream = UnixStream::connect(socket)
        .map_err(|why| Error::Connect { socket: socket.display().to_string(), why })?;
    stream.set_read_timeout(Some(request.patience))?;
    stream.set_write_timeout(Some(request.patience))?;
    match send(&stream, request, upgrade) {
        // It may have answered before it had heard everything.
        Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
        sent => sent?,
    }
    let mut reader = BufReader::new(stream);
    for _ in 0..ANNOUNCEMENTS_MAX {
        let (status, mut framing) = head(&mut reader)?;
        if request.method == "HEAD" || matches!(status, 204 | 304) {
            framing = Framing::Ended;
        }
        if status == 101 || status >= 200 {
            return Ok((status, framing, reader));
        }
    }
    Err(Error::Garbled("there is no end to its announcements".into()))
}

fn send(mut stream: &UnixStream, request: &Request<'_>, upgrade: bool) -> io::Result<()> {
    let connection = if upgrade { "Upgrade\r\nUpgrade: tcp" } else { "close" };
    let (kind, bytes) = match &request.body {
        Body::Nothing => ("", Vec::new()),
        Body::Json(value) => ("Content-Type: application/json\r\n", serde_json::to_vec(value)?),
        Body::Tar(_) => ("Content-Type: application/x-tar\r\n", Vec::new()),
    };
    let length = match &request.body {
        Body::Tar(archive) => archive.bytes(),
        _ => bytes.len() as u64,
    };
    let (method, target) = (request.method, &request.target);
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: docker\r\nUser-Agent: planaria\r\n\
         Connection: {connection}\r\n{kind}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), &bytes].concat())?;
    if let Body::Tar(archive) = &request.body {
        archive.write(&mut stream)?;
    }
    stream.flush()
}

/// Reads a head: the status, and how the end of what follows is found.
fn head(reader: &mut impl BufRead) -> io::Result<(u16, Framing)> {
    let mut limited = reader.take(HEAD_BYTES_MAX);
    let first = line(&mut limited)?;
    let mut words = first.split(' ');
    let status = match (words.next(), words.next().map(str::parse::<u16>)) {
        (Some(version), Some(Ok(status))) if version.starts_with("HTTP/1.") => status,
        _ => return Err(garbled("no HTTP")),
    };
    let mut framing = Framing::UntilEnd;
    loop {
        let line = line(&mut limited)?;
        if line.is_empty() {
            return Ok((status, framing));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| garbled("a bad header"))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(garbled("an unknown transfer encoding"));
            }
            framing = Framing::Between;
        } else if name.eq_ignore_ascii_case("content-length") {
            let length = value.parse().map_err(|_| garbled("a bad length"))?;
            if !matches!(framing, Framing::Between) {
                framing = Framing::Left(length);
            }
        }
    }
}

/// One line without its end; a line that the bound cuts off is none.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        return Err(match bytes.is_empty() {
            true => ErrorKind::UnexpectedEof.into(),
            false => garbled("a line without an end"),
        });
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| garbled("a line that is no text"))
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// So many bytes are left.
    Left(u64),
    /// A chunk's length comes next.
    Between,
    /// So many bytes of a chunk are left.
    InChunk(u64),
    /// It ends with the connection.
    UntilEnd,
    /// It has been read.
    Ended,
}

/// A body without what frames it.
struct Framed<R> {
    from: R,
    framing: Framing,
}

impl<R: BufRead> Framed<R> {
    /// Reads some of a piece; what is missing was promised.
    fn piece(&mut self, to: &mut [u8], left: u64) -> io::Result<u64> {
        let most = to.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match self.from.read(&mut to[..most])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            read => Ok(read as u64),
        }
    }

    fn next_chunk(&mut self) -> io::Result<Framing> {
        let mut limited = (&mut self.from).take(CHUNK_LINE_BYTES_MAX);
        let size = line(&mut limited)?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        let bytes = u64::from_str_radix(digits, 16).map_err(|_| garbled("a bad chunk"))?;
        if bytes > 0 {
            return Ok(Framing::InChunk(bytes));
        }
        // Trailers, which say nothing that is needed.
        while !line(&mut limited)?.is_empty() {}
        Ok(Framing::Ended)
    }
}

impl<R: BufRead> Read for Framed<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            match self.framing {
                Framing::Ended | Framing::Left(0) => return Ok(0),
                Framing::UntilEnd => return self.from.read(to),
                Framing::Left(left) => {
                    let read = self.piece(to, left)?;
                    self.framing = Framing::Left(left - read);
                    return Ok(read as usize);
                }
                Framing::Between => self.framing = self.next_chunk()?,
                Framing::InChunk(0) => {
                    let end = line(&mut (&mut self.from).take(CHUNK_LINE_BYTES_MAX))?;
                    if !end.is_empty() {
                        return Err(garbled("a chunk that does not end"));
                    }
                    self.framing = Framing::Between;
                }
                Framing::InChunk(left) => {
                    let read = self.piece(to, left)?;
                    self.framing = Framing::InChunk(left - read);
                    return Ok(read as usize);
                }
            }
        }
    }
}

/// Hangs up when the time is over, unless it is dropped before that.
pub struct Deadline {
    _held: Sender<()>,
    is_over: Arc<AtomicBool>,
}

impl Deadline {
    /// For this connection, from now.
    pub fn set(stream: &UnixStream, within: Duration) -> io::Result<Self> {
        let (held, released) = mpsc::channel::<()>();
        let (stream, is_over) = (stream.try_clone()?, Arc::new(AtomicBool::new(false)));
        let told = is_over.clone();
        let watch = move || {
            if released.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
                told.store(true, Ordering::Relaxed);
                // Readers and writers see the end of it.
                let _ = stream.shutdown(Shutdown::Both);
            }
        };
        std::thread::Builder::new().name("deadline".into()).spawn(watch)?;
        Ok(Self { _held: held, is_over })
    }

    /// Whether it has closed the connection.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// A word as it may stand in a path or query.
pub fn encoded(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let letter = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    word.bytes().map(letter).collect()
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
