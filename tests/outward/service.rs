//! An HTTP service on a port of its own, for tests: it keeps what it was asked, and answers as it is told.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The first line, without the version.
    pub(crate) line: String,
    /// Names in lowercase.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Which connection it came on, from 1.
    pub(crate) connection: usize,
}

/// What it does about it.
pub(crate) enum Act {
    Say(Vec<u8>),
    /// Says this much, and nothing more until the other end gives up.
    Hang(Vec<u8>),
    /// Says this much, and closes the connection.
    Close(Vec<u8>),
}

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Service {
    /// `act` is told what is asked, and how many requests there were before it.
    pub(crate) fn start(act: impl Fn(&Asked, usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, act) = (Arc::clone(&asked), Arc::new(act));
        // They end with the test's process.
        std::thread::spawn(move || {
            let count = Arc::new(AtomicUsize::new(0));
            for (connection, stream) in (1..).zip(listener.incoming()) {
                let (seen, act, count) = (Arc::clone(&seen), Arc::clone(&act), Arc::clone(&count));
                let Ok(stream) = stream else { continue };
                std::thread::spawn(move || serve(stream, connection, &seen, &count, &*act));
            }
        });
        Self { address, asked }
    }

    /// The same for every request.
    pub(crate) fn saying(status: &str, headers: &str, body: &str) -> Self {
        let answer = answer(status, headers, body);
        Self::start(move |_, _| Act::Say(answer.clone()))
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("nobody panics with it").clone()
    }
}

impl Asked {
    /// The value of a header; nothing where it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

/// An answer with its length. `headers` are whole lines.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn serve(
    stream: TcpStream,
    connection: usize,
    seen: &Mutex<Vec<Asked>>,
    count: &AtomicUsize,
    act: &dyn Fn(&Asked, usize) -> Act,
) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader, connection) {
        let before = count.fetch_add(1, Ordering::Relaxed);
        seen.lock().expect("nobody panics with it").push(asked.clone());
        let stream = reader.get_mut();
        // The other end may be gone, which is its business.
        match act(&asked, before) {
            Act::Say(bytes) => drop(stream.write_all(&bytes)),
            Act::Hang(bytes) => {
                let _ = stream.write_all(&bytes);
                let _ = stream.read(&mut [0]);
                return;
            }
            Act::Close(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut asked = Asked { line, headers, body: String::new(), connection };
    let mut body = vec![0; asked.header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    asked.body = String::from_utf8(body).ok()?;
    Some(asked)
}
