//! `HttpClient`: sends requests over one pool of connections, and names the reason of a request without an answer.
//!
//! Redirects and proxies of the environment are not followed. The library sends a request again only if the
//! connection was closed before the request was written to it.

use std::error::Error as StdError;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::http::uri::Scheme;
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::{Instant, timeout_at};

/// Idle connections are closed after this time, since services close theirs without notice.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// Most idle connections to one host.
const IDLE_CONNECTIONS_MAX: usize = 10_000;
/// Most bytes of the head of a request or an answer, and of the read buffer of a connection.
pub(crate) const HEAD_MAX: usize = 16 << 10;

type Body = Full<Bytes>;
type Secured = Client<HttpsConnector<HttpConnector>, Body>;

/// The connections of a runner to all services.
#[derive(Debug)]
pub(crate) struct HttpClient {
    plain: Client<HttpConnector, Body>,
    /// Made at the first request over TLS, since it reads the certificates that the system trusts.
    secured: OnceLock<Result<Secured, String>>,
}

/// Reason for which a request has no complete answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    Late,
    /// The head of the answer, or its body, is too large.
    Large,
    /// The other side of a connection for TLS does not speak TLS.
    NoTls,
    NoHttp(String),
    Failed(String),
}

impl HttpClient {
    pub(crate) fn new() -> Self {
        Self { plain: client(tcp()), secured: OnceLock::new() }
    }

    /// Sends a request. Returns the head of the answer; its body follows.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, Unanswered> {
        let response = if request.uri().scheme() == Some(&Scheme::HTTPS) {
            let secured = self.secured.get_or_init(secured).as_ref();
            secured.map_err(|why| Unanswered::Failed(why.clone()))?.request(request)
        } else {
            self.plain.request(request)
        };
        response.await.map_err(|error| Unanswered::of(&error))
    }
}

impl Unanswered {
    /// The reason in an error of the library, which wraps the errors of connections, TLS and HTTP.
    pub(crate) fn of(error: &(dyn StdError + 'static)) -> Self {
        let mut innermost = error;
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<hyper::Error>() {
                if error.is_parse_too_large() {
                    return Self::Large;
                }
                if error.is_parse() {
                    return Self::NoHttp(error.to_string());
                }
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return Self::of_connection(error);
            }
            innermost = error;
            next = error.source();
        }
        Self::Failed(innermost.to_string())
    }

    fn of_connection(error: &io::Error) -> Self {
        match tls_error(error) {
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => Self::NoTls,
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// The outcome of `future`, unless the time is over.
pub(crate) async fn within<T>(
    until: Option<Instant>,
    future: impl Future<Output = T>,
) -> Result<T, Unanswered> {
    match until {
        Some(until) => timeout_at(until, future).await.map_err(|_| Unanswered::Late),
        None => Ok(future.await),
    }
}

/// The error of TLS in an error of a connection, which may be wrapped several times.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    let cause = error.get_ref()?;
    cause.downcast_ref().or_else(|| tls_error(cause.downcast_ref()?))
}

/// The roots that the system trusts are those that its administrator maintains.
fn secured() -> Result<Secured, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.and_then(BuilderVerifierExt::with_platform_verifier);
    let config = config.map_err(|error| error.to_string())?.with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1();
    Ok(client(connector.wrap_connector(tcp())))
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    tcp
}

fn client<C: Connect + Clone>(connector: C) -> Client<C, Body> {
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_MAX)
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .http1_max_buf_size(HEAD_MAX)
        .build(connector)
}
