//! `Service`: an HTTP service on a port of its own, which records its requests and answers as the test
//! controls.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The first line, without the version.
    pub(crate) line: String,
    /// Names in lowercase.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The number of its connection, from 1.
    pub(crate) connection: usize,
}

/// The reaction of the service.
pub(crate) enum Act {
    Say(Vec<u8>),
    /// Sends these bytes, then nothing until the client closes.
    Hang(Vec<u8>),
    /// Sends these bytes, and closes the connection.
    Close(Vec<u8>),
}

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Service {
    /// `act` receives the request, and the number of requests before it.
    pub(crate) fn start(act: impl Fn(&Asked, usize) -> Act + Send + Sync + 'static) -> Self {
        Self::over(Some, act)
    }

    /// Over TLS, as `localhost`, with a certificate signed by `tls/authority.pem`.
    pub(crate) fn secured(act: impl Fn(&Asked, usize) -> Act + Send + Sync + 'static) -> Self {
        let certificate =
            CertificateDer::from_pem_slice(include_bytes!("tls/service.pem")).expect("it is one");
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/service.key")).expect("it is one");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("it knows them").with_no_client_auth();
        let config =
            Arc::new(builder.with_single_cert(vec![certificate], key).expect("they belong together"));
        let secure = move |stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
            Some(StreamOwned::new(connection, stream))
        };
        Self::over(secure, act)
    }

    fn over<S: Read + Write>(
        wrap: impl Fn(TcpStream) -> Option<S> + Send + Sync + 'static,
        act: impl Fn(&Asked, usize) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, act, wrap) = (Arc::clone(&asked), Arc::new(act), Arc::new(wrap));
        // They end with the test's process.
        std::thread::spawn(move || {
            let count = Arc::new(AtomicUsize::new(0));
            for (connection, stream) in (1..).zip(listener.incoming()) {
                let (seen, act, count) = (Arc::clone(&seen), Arc::clone(&act), Arc::clone(&count));
                let wrap = Arc::clone(&wrap);
                let Ok(stream) = stream else { continue };
                std::thread::spawn(move || {
                    if let Some(stream) = wrap(stream) {
                        serve(stream, connection, &seen, &count, &*act);
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// The same answer for every request.
    pub(crate) fn answering(status: &str, headers: &str, body: &str) -> Self {
        let answer = answer(status, headers, body);
        Self::start(move |_, _| Act::Say(answer.clone()))
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no thread panics with it").clone()
    }
}

impl Asked {
    /// The value of a header; empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

/// An answer with its length. `headers` are complete lines.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn serve(
    stream: impl Read + Write,
    connection: usize,
    seen: &Mutex<Vec<Asked>>,
    count: &AtomicUsize,
    act: &dyn Fn(&Asked, usize) -> Act,
) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader, connection) {
        let before = count.fetch_add(1, Ordering::Relaxed);
        seen.lock().expect("no thread panics with it").push(asked.clone());
        let stream = reader.get_mut();
        // The client may be gone, which is allowed.
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

fn read(reader: &mut BufReader<impl Read>, connection: usize) -> Option<Asked> {
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
