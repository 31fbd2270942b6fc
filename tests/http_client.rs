//! `Client`: one connection to a runner's port, with its requests.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::running::Running;

/// A connection that stays open.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// The answer of the runner.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

pub(crate) const JSON: &str = "content-type: application/json";
pub(crate) const NDJSON: &str = "content-type: application/x-ndjson";

/// Waits until the runner listens. Returns its address.
pub(crate) fn address(running: &mut Running) -> String {
    running.wait_until_it_says("listening address=");
    let said = running.stderr();
    let address = said.split("listening address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    address.expect("the address is logged").to_owned()
}

/// An address for a runner that is known before its start, and stays over restarts. No other test uses it. A port of
/// `127.0.0.1` that was free a moment before may be taken meanwhile.
pub(crate) fn own_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let number = (std::process::id() << 3).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
    let [_, high, middle, low] = number.to_be_bytes();
    // Neither 127.0.x.x, where other tests listen, nor the last network, which has the broadcast address.
    SocketAddr::from((Ipv4Addr::new(127, 1 + high % 254, middle, low), 8484))
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the runner listens");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("time-outs can be set");
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes unchanged.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends one request and waits for the answer.
    pub(crate) fn try_request(&mut self, line: &str, headers: &[&str], body: &[u8]) -> io::Result<Answer> {
        let mut head = format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
        for header in headers {
            head.extend([header, "\r\n"]);
        }
        head += "\r\n";
        self.send(&[head.as_bytes(), body].concat())?;
        self.answer()
    }

    pub(crate) fn request(&mut self, line: &str, headers: &[&str], body: &str) -> Answer {
        self.try_request(line, headers, body.as_bytes()).expect("the runner answers")
    }

    /// Pushes one job, and asserts that it was accepted. Returns its address.
    pub(crate) fn push(&mut self, source: &str, job: &str) -> String {
        let answer = self.request(&format!("POST /sources/{source}"), &[JSON], job);
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.job()
    }

    /// The outcome of the job at this address.
    pub(crate) fn job(&mut self, job: &str) -> Value {
        let answer = self.request(&format!("GET /jobs/{job}"), &[], "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut line = String::new();
        let mut read = |line: &mut String| {
            line.clear();
            match self.stream.read_line(line)? {
                0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                _ => Ok(()),
            }
        };
        read(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut headers = Vec::new();
        loop {
            read(&mut line)?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().expect("a number"))];
        self.stream.read_exact(&mut body)?;
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
        Ok(Answer { status, headers, body })
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| &**value)
    }

    /// The address of its job.
    pub(crate) fn job(&self) -> String {
        self.body["job"].as_str().unwrap_or_else(|| panic!("no job: {self:?}")).to_owned()
    }

    pub(crate) fn error(&self) -> &str {
        self.body["error"].as_str().unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}
