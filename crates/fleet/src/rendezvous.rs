//! Where processes of Horovod find each other: a store of keys and values over HTTP, as its gloo
//! controller asks for it.
//!
//! `PUT /SCOPE/KEY` keeps a value, `GET` gives it or says 404 until it is there, `DELETE` forgets it.
//! Holds nothing else, and nothing once it ends. Any process that reaches the port can read and write it, as
//! Horovod's own: it knows no secret. Requests are bounded in length and number.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest head of a request.
const HEAD_BYTES_MAX: u64 = 16 << 10;
/// Longest value.
const VALUE_BYTES_MAX: usize = 16 << 20;
/// Values at a time, and their length together.
const VALUES_MAX: usize = 100_000;
const BYTES_MAX: usize = 512 << 20;
/// Bytes of values that may be on their way at a time: any process may announce one.
const COMING_BYTES_MAX: usize = 256 << 20;
/// How long a request may take.
const WITHIN: Duration = Duration::from_secs(30);
/// Connections at a time.
const CONNECTIONS_MAX: usize = 4096;

type Values = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Bytes of values that are on their way, over all connections.
type Coming = Arc<AtomicUsize>;

/// Room for a value on its way, given back when this is dropped.
struct Room(Coming, usize);

impl Room {
    fn take(coming: &Coming, bytes: usize) -> io::Result<Self> {
        let room = Self(coming.clone(), bytes);
        match coming.fetch_add(bytes, Ordering::SeqCst) + bytes <= COMING_BYTES_MAX {
            true => Ok(room),
            false => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// Serves until the process ends.
pub fn serve(listener: &TcpListener) {
    let (values, coming) = (Values::default(), Coming::default());
    let connections = Arc::new(());
    for stream in listener.incoming().flatten() {
        if Arc::strong_count(&connections) > CONNECTIONS_MAX {
            continue;
        }
        let (values, coming, held) = (values.clone(), coming.clone(), connections.clone());
        let work = move || {
            // The connection of one that breaks the protocol is closed.
            let _ = answer(&stream, &values, &coming);
            drop(held);
        };
        // Without a thread its connection is closed, and it asks again.
        let _ = std::thread::Builder::new().name("request".into()).spawn(work);
    }
}

/// Answers the requests of one connection.
fn answer(stream: &TcpStream, values: &Values, coming: &Coming) -> io::Result<()> {
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    let mut reader = BufReader::new(stream);
    while let Some((request, room)) = read(&mut reader, coming)? {
        let (status, body) = act(&request, values);
        drop(room);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: {}\r\n\r\n",
            body.len(),
            if request.is_last { "close" } else { "keep-alive" }
        );
        let mut to = stream;
        to.write_all(head.as_bytes())?;
        to.write_all(&body)?;
        to.flush()?;
        if request.is_last {
            break;
        }
    }
    Ok(())
}

struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
    is_last: bool,
}

/// The next request; nothing at the end of the connection.
fn read(reader: &mut impl BufRead, coming: &Coming) -> io::Result<Option<(Request, Room)>> {
    let mut head = reader.take(HEAD_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path), Some(version)) = (words.next(), words.next(), words.next())
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let (mut length, mut is_last) = (0_usize, version == "HTTP/1.0");
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", value) => {
                length = value.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            }
            ("connection", value) => is_last = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    if length > VALUE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let room = Room::take(coming, length)?;
    let mut body = Vec::new();
    reader.take(length as u64).read_to_end(&mut body)?;
    match body.len() == length {
        true => Ok(Some((Request { method, path, body, is_last }, room))),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn act(request: &Request, values: &Values) -> (&'static str, Vec<u8>) {
    let mut values = values.lock().expect("no thread panics with them");
    match request.method.as_str() {
        "GET" => match values.get(&request.path) {
            Some(value) => ("200 OK", value.clone()),
            None => ("404 Not Found", Vec::new()),
        },
        "PUT" | "POST" => {
            let held: usize = values.values().map(Vec::len).sum();
            if values.len() >= VALUES_MAX || held + request.body.len() > BYTES_MAX {
                return ("507 Insufficient Storage", Vec::new());
            }
            values.insert(request.path.clone(), request.body.clone());
            ("200 OK", Vec::new())
        }
        "DELETE" => {
            values.remove(&request.path);
            ("200 OK", Vec::new())
        }
        _ => ("405 Method Not Allowed", Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(port: u16, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request).unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    }

    #[test]
    fn values_that_are_announced_take_a_bounded_room() {
        let coming = Coming::default();
        let rooms: Vec<_> = (0..COMING_BYTES_MAX / VALUE_BYTES_MAX)
            .map(|_| Room::take(&coming, VALUE_BYTES_MAX).expect("room"))
            .collect();
        assert!(Room::take(&coming, 1).is_err());
        drop(rooms);
        assert_eq!(coming.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn values_are_kept_and_forgotten() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || serve(&listener));
        let closing = "Connection: close\r\n\r\n";
        let get = format!("GET /global/rank_0 HTTP/1.1\r\n{closing}");
        assert!(ask(port, get.as_bytes()).starts_with("HTTP/1.1 404"));
        let put = format!("PUT /global/rank_0 HTTP/1.1\r\nContent-Length: 5\r\n{closing}hello");
        assert!(ask(port, put.as_bytes()).starts_with("HTTP/1.1 200"));
        assert!(ask(port, get.as_bytes()).ends_with("\r\n\r\nhello"));
        let delete = format!("DELETE /global/rank_0 HTTP/1.1\r\n{closing}");
        assert!(ask(port, delete.as_bytes()).starts_with("HTTP/1.1 200"));
        assert!(ask(port, get.as_bytes()).starts_with("HTTP/1.1 404"));
        // Two on one connection.
        let two = format!(
            "PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\nxGET /a/b HTTP/1.1\r\n{closing}"
        );
        assert!(ask(port, two.as_bytes()).ends_with("\r\n\r\nx"));
        assert_eq!(ask(port, b"PUT /a HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"), "");
        assert_eq!(ask(port, b"nonsense\r\n\r\n"), "");
    }
}
