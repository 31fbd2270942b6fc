//! The port of a runner: HTTP sources, and what became of the jobs that came through them.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /sources/PIPELINE/SOURCE` | 202 once the job is on disk, with its address; 200 where it came before |
//! | `GET /jobs/PIPELINE/SOURCE/INDEX` | what each step has made of it |
//! | `POST /jobs/PIPELINE/QUEUE/INDEX/complete` | that an outside system is through with it is on disk |
//! | `POST /monitor/PIPELINE/STEP` | when the step's pending jobs are asked for |
//! | `GET /healthz` | whether the runner takes jobs |
//!
//! One thread carries all connections. What takes long, large bodies and looks into the store, is done
//! on others; jobs wait in the engine's inbox for the next commit. Connections, requests in work, bodies, what
//! parsing makes of them, and looks into the store are each bounded.

pub(crate) mod body;
pub(crate) mod complete;
pub(crate) mod host;
pub(crate) mod job_status;
pub(crate) mod parse_body;
pub(crate) mod poll;
pub(crate) mod push;
pub(crate) mod response;
pub(crate) mod route;
pub(crate) mod wire;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use self::host::Hosts;
use self::response::{HttpRefusal, Response};
use self::route::{JobAddress, Route};
use self::wire::Wire;
use crate::client::ipc::RunnerContext;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use tidegate_engine::PendingIndex;
use tidegate_model::Address;
use tidegate_model::log_target;

/// Requests that are worked on at a time. There are fewer where few files may be open.
const WORKS_MAX: u64 = 1024;
const WORKS_MIN: u64 = 4;
/// One open file of so many may be a connection: sources, sinks and commands need the others.
const FILES_PER_CONNECTION: u64 = 4;
/// Of so many connections, one more may ask for what needs no work.
const WORKS_PER_SPARE: u64 = 16;
/// How long a client may take for the head of a request, and how long one may have nothing to ask. Where places
/// are short, it is less: see [`crate::connection_limit`].
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of bodies that are in memory at one time, over all connections.
const BODIES_BYTES: usize = 256 << 20;
/// Bytes that parsing makes of them, and that wait for their commit.
const PARSED_BYTES: usize = 256 << 20;
/// Looks into the store at a time: each may bring pages of it into memory.
const LOOKS: usize = 4;
/// How long the end of a run waits for the answers that it owes.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// An open port that serves until it is finished.
pub(crate) struct Server {
    address: SocketAddr,
    /// Dropped when it shall end.
    stop: watch::Sender<()>,
    over: std::sync::mpsc::Receiver<()>,
}

/// What every request may need.
#[derive(Clone)]
pub(crate) struct HttpContext {
    context: RunnerContext,
    hosts: Arc<Hosts>,
    /// Bytes of bodies that there is room for.
    room: Arc<Semaphore>,
    /// Bytes of jobs that there is room for.
    parsed: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    whereabouts: Arc<PendingIndex>,
}

impl Server {
    /// Opens the port, and serves it on a thread of its own. So many `files` may be open.
    pub(crate) fn start(listen: SocketAddr, context: RunnerContext, files: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(());
        let (ended, over) = std::sync::mpsc::sync_channel(1);
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let http = HttpContext {
            hosts: Arc::new(Hosts::new(address, &context.configuration.settings.hosts)),
            context,
            room: semaphore(BODIES_BYTES),
            parsed: semaphore(PARSED_BYTES),
            looks: semaphore(LOOKS),
            whereabouts: Arc::default(),
        };
        let places = places(files);
        thread::Builder::new().name("http".into()).spawn(move || {
            runtime.block_on(async {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener, http, places, stopped).await,
                    Err(error) => {
                        tracing::error!(target: log_target::HTTP, %error, "the port cannot be served");
                    }
                }
            });
            let _ = ended.send(());
            // A look into the store that goes on is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, stop, over })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests, and waits a moment for the answers to those that it has.
    pub(crate) fn finish(self) {
        drop(self.stop);
        let _ = self.over.recv_timeout(LAST_WORDS);
    }
}

fn places(files: u64) -> ConnectionLimit {
    let works = (files / FILES_PER_CONNECTION).clamp(WORKS_MIN, WORKS_MAX);
    let spare = (works / WORKS_PER_SPARE).max(WORKS_MIN);
    let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
    ConnectionLimit::new(count(works + spare), count(works))
}

/// Accepts connections until it is stopped, and waits then until those that there are have ended.
async fn serve(
    listener: tokio::net::TcpListener,
    http: HttpContext,
    places: ConnectionLimit,
    mut stopped: watch::Receiver<()>,
) {
    loop {
        let next = async {
            let place = places.take().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            _ = stopped.changed() => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file handles, most likely; those who wait will be accepted later.
            drop(place);
            places.make_room();
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        place.accepted();
        tokio::spawn(converse(stream, http.clone(), Arc::new(place), stopped.clone()));
    }
    drop(listener);
    places.empty().await;
}

async fn converse(
    stream: TcpStream,
    http: HttpContext,
    place: Arc<ConnectionPermit>,
    mut stopped: watch::Receiver<()>,
) {
    // Answers are short, and are waited for.
    let _ = stream.set_nodelay(true);
    let wire = Wire::new(stream, Arc::clone(&place));
    let asked = Arc::clone(&place);
    let service = service_fn(move |request| {
        let (http, place) = (http.clone(), Arc::clone(&asked));
        async move { Ok::<_, Infallible>(response::dated(answer(request, &http, &place).await)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // It knows no time before 1970.
        .auto_date_header(false)
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(wire), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = place.has_to_leave() => {
            tracing::debug!(target: log_target::HTTP, "a connection that was silent made room for another one");
            return;
        }
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(target: log_target::HTTP, %error, "a connection broke off");
    }
}

async fn answer(request: Request<Incoming>, http: &HttpContext, place: &Arc<ConnectionPermit>) -> Response {
    place.asks(!request.body().is_end_stream());
    let outcome = match admit(&request, http) {
        // There is always a place for that.
        Ok(Route::Health) => only(&request, &[Method::GET, Method::HEAD]).map(|()| health(http)),
        Ok(_) if !place.begin() => Err(crowded()),
        Ok(route) => carry_out(route, request, http, place).await,
        Err(refusal) => Err(refusal),
    };
    let mut response = outcome.unwrap_or_else(HttpRefusal::into_response);
    if place.is_sending() {
        // What still comes is not read as another request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    place.rest();
    response
}

/// What is asked for, if it may be.
fn admit(request: &Request<Incoming>, http: &HttpContext) -> Result<Route, HttpRefusal> {
    http.hosts.admit(request.uri(), request.headers())?;
    let route = Route::of(request.uri().path())?;
    route.check(request.uri().query())?;
    Ok(route)
}

async fn carry_out(
    route: Route,
    request: Request<Incoming>,
    http: &HttpContext,
    place: &ConnectionPermit,
) -> Result<Response, HttpRefusal> {
    match route {
        Route::Source(address) => push::take(request, &address, http, place).await,
        Route::Job(asked) => look(&request, asked, http).await,
        Route::Complete(asked) => complete::complete(request, asked, http, place).await,
        Route::Monitor(step) => poll(&request, step, http).await,
        Route::Health => only(&request, &[Method::GET, Method::HEAD]).map(|()| health(http)),
    }
}

fn health(http: &HttpContext) -> Response {
    response::health(http.context.handle.stats().full())
}

fn crowded() -> HttpRefusal {
    let error = "the runner has as many requests in hand as it works on at a time; nothing was taken";
    HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error).closing()
}

async fn look(
    request: &Request<Incoming>,
    asked: JobAddress,
    http: &HttpContext,
) -> Result<Response, HttpRefusal> {
    only(request, &[Method::GET, Method::HEAD])?;
    let (_, source) = push::find(&asked.queue, &http.context.configuration)?;
    push::admit(request.headers(), source)?;
    let context = http.context.clone();
    let _turn = http.looks.acquire().await;
    aside(move || job_status::status(&asked, &context)).await
}

async fn poll(
    request: &Request<Incoming>,
    step: Address,
    http: &HttpContext,
) -> Result<Response, HttpRefusal> {
    only(request, &[Method::POST])?;
    let context = http.context.clone();
    aside(move || poll::poll(&step, &context)).await
}

/// Does what may take a while where no other request waits for it.
async fn aside<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, HttpRefusal> + Send + 'static,
) -> Result<T, HttpRefusal> {
    let done = tokio::task::spawn_blocking(task).await;
    done.unwrap_or_else(|error| Err(HttpRefusal::broken(&error.to_string())))
}

fn only(request: &Request<Incoming>, methods: &[Method]) -> Result<(), HttpRefusal> {
    if methods.contains(request.method()) {
        Ok(())
    } else {
        Err(HttpRefusal::method(request.method(), methods))
    }
}
