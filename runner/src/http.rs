//! HTTP port of a runner: accepts jobs for HTTP sources, and reports the outcome of jobs.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /sources/PIPELINE/SOURCE` | 202 once the job is on disk, with its address; 200 if it is a duplicate |
//! | `GET /jobs/PIPELINE/SOURCE` | jobs by key, handle, status, step and lane |
//! | `GET /jobs/PIPELINE/SOURCE/INDEX` | the outcome of the job at each step |
//! | `DELETE /jobs/PIPELINE/SOURCE/INDEX` | the job is cancelled |
//! | `GET` and `DELETE /jobs/PIPELINE/SOURCE/due/NUMBER` | the same for a job that is due later |
//! | `POST /jobs/PIPELINE/QUEUE/INDEX/complete` | 202 once the completion by an external system is on disk |
//! | `POST /monitor/PIPELINE/STEP` | the time of the next poll of the step's pending jobs |
//! | `POST /steps/PIPELINE/STEP/pause` and `…/resume` | the step, a lane of it or its monitor is paused or resumed |
//! | `POST /reload` | the configuration that is in force after its files were read again |
//! | `GET /healthz` | whether the runner accepts jobs |
//! | `GET /ready` | whether the runner works: it has started, and no step has stopped |
//!
//! One thread carries all connections. Large bodies and queries of the store run on other threads. Jobs wait
//! in the engine's inbox for the next commit. Connections, requests in work, bodies, the memory for parsing
//! them, and queries of the store are each bounded.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod cancel;
pub(crate) mod complete;
pub(crate) mod find_jobs;
pub(crate) mod host;
pub(crate) mod job_status;
pub(crate) mod late_jobs;
pub(crate) mod parameters;
pub(crate) mod parse_body;
pub(crate) mod pause;
pub(crate) mod poll;
pub(crate) mod push;
pub(crate) mod ready;
pub(crate) mod reload;
pub(crate) mod response;
pub(crate) mod route;
pub(crate) mod schemas;
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

use self::accept::AcceptThreads;
use self::host::Hosts;
use self::parameters::Parameters;
use self::response::{HttpRefusal, Response};
use self::route::{JobAddress, Route};
use self::schemas::Schemas;
use self::wire::Wire;
use crate::client::ipc::RunnerContext;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::query::late::LateAddress;
use tidegate_model::Address;
use tidegate_model::log_target;

/// Requests that are worked on at a time. The limit is lower if few files may be open.
const WORKS_MAX: u64 = 1024;
const WORKS_MIN: u64 = 4;
/// One connection per this many open files: sources, sinks and commands need the others.
const FILES_PER_CONNECTION: u64 = 4;
/// One more connection per this many may ask for answers that need no work.
const WORKS_PER_SPARE: u64 = 16;
/// How long a client may take for the head of a request, and how long a connection may be idle. Both are
/// shorter if connections are scarce: see [`crate::connection_limit`].
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of bodies in memory at one time, over all connections.
const BODIES_BYTES: usize = 256 << 20;
/// Bytes of parsed jobs that wait for their commit.
const PARSED_BYTES: usize = 256 << 20;
/// Queries of the store at a time: each may load pages into memory.
const LOOKS: usize = 4;
/// How long the end of a run waits for answers in progress.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// An open port that serves until it is finished.
pub(crate) struct Server {
    address: SocketAddr,
    /// Dropped to stop the server.
    stop: watch::Sender<()>,
    over: std::sync::mpsc::Receiver<()>,
}

/// The context of every request.
#[derive(Clone)]
pub(crate) struct HttpContext {
    context: RunnerContext,
    hosts: Arc<Hosts>,
    /// Permits for bytes of bodies.
    room: Arc<Semaphore>,
    /// Permits for bytes of parsed jobs.
    parsed: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    schemas: Arc<Schemas>,
    accepts: Arc<AcceptThreads>,
}

impl Server {
    /// Opens the port, and serves it on a thread of its own. `files` is the limit of open files.
    pub(crate) fn start(listen: SocketAddr, context: RunnerContext, files: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(());
        let (ended, over) = std::sync::mpsc::sync_channel(1);
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let http = HttpContext {
            hosts: Arc::new(Hosts::new(address, &context.configuration().settings.hosts)),
            context,
            room: semaphore(BODIES_BYTES),
            parsed: semaphore(PARSED_BYTES),
            looks: semaphore(LOOKS),
            schemas: Arc::default(),
            accepts: Arc::default(),
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
            // A query of the store that still runs is not awaited.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, stop, over })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more requests, and waits up to a second for answers in progress.
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

/// Accepts connections until it is stopped, then waits until the open ones have ended.
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
            // Out of file handles, most likely; waiting clients are accepted later.
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
    // Answers are short, and clients wait for them.
    let _ = stream.set_nodelay(true);
    let wire = Wire::new(stream, Arc::clone(&place));
    let asked = Arc::clone(&place);
    let service = service_fn(move |request| {
        let (http, place) = (http.clone(), Arc::clone(&asked));
        async move { Ok::<_, Infallible>(response::dated(answer(request, &http, &place).await)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The crate's clock has no time before 1970.
        .auto_date_header(false)
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(wire), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = place.has_to_leave() => {
            tracing::debug!(target: log_target::HTTP, "an idle connection was closed to make room for another one");
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
        // Checks of health always have a place.
        Ok(Route::Health) => only(&request, &[Method::GET, Method::HEAD]).map(|()| health(http)),
        Ok(Route::Ready) => {
            only(&request, &[Method::GET, Method::HEAD]).map(|()| ready::ready(&http.context))
        }
        Ok(_) if !place.begin() => Err(crowded()),
        Ok(route) => carry_out(route, request, http, place).await,
        Err(refusal) => Err(refusal),
    };
    let mut response = outcome.unwrap_or_else(HttpRefusal::into_response);
    if place.is_sending() {
        // The unread rest must not be parsed as another request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    place.rest();
    response
}

/// The route of the request, if it is permitted.
fn admit(request: &Request<Incoming>, http: &HttpContext) -> Result<Route, HttpRefusal> {
    http.hosts.admit(request.uri(), request.headers())?;
    let route = Route::of(request.uri().path())?;
    route.check(request.method(), request.uri().query())?;
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
        Route::Jobs(queue) => find(&request, queue, http).await,
        Route::Job(asked) => look(&request, asked, http).await,
        Route::Late(asked) => look_at_late(&request, asked, http).await,
        Route::Complete(asked) => complete::complete(request, asked, http, place).await,
        Route::Monitor(step) => poll(&request, step, http).await,
        Route::Pause { step, paused } => pause(&request, (step, paused), http).await,
        Route::Reload => {
            only(&request, &[Method::GET, Method::HEAD, Method::POST])?;
            let (context, reads) = (http.context.clone(), *request.method() != Method::POST);
            aside(move || if reads { Ok(reload::get(&context)) } else { reload::post(&context) }).await
        }
        Route::Health => only(&request, &[Method::GET, Method::HEAD]).map(|()| health(http)),
        Route::Ready => only(&request, &[Method::GET, Method::HEAD]).map(|()| ready::ready(&http.context)),
    }
}

fn health(http: &HttpContext) -> Response {
    response::health(http.context.handle.stats().full())
}

fn crowded() -> HttpRefusal {
    let error = "the limit of requests in work is reached; nothing was accepted";
    HttpRefusal::later(StatusCode::SERVICE_UNAVAILABLE, error).closing()
}

async fn look(
    request: &Request<Incoming>,
    asked: JobAddress,
    http: &HttpContext,
) -> Result<Response, HttpRefusal> {
    let context = http.context.clone();
    if admit_look(request, &asked.queue, http)? {
        let parameters = Parameters::of(request.uri().query())?;
        return aside(move || cancel::cancel(&asked, &parameters, &context)).await;
    }
    let _turn = http.looks.acquire().await;
    aside(move || job_status::status(&asked, &context)).await
}

async fn look_at_late(
    request: &Request<Incoming>,
    asked: LateAddress,
    http: &HttpContext,
) -> Result<Response, HttpRefusal> {
    let context = http.context.clone();
    if admit_look(request, &asked.queue, http)? {
        return aside(move || late_jobs::cancel(&asked, &context)).await;
    }
    let _turn = http.looks.acquire().await;
    aside(move || late_jobs::status(&asked, &context)).await
}

/// Admits a request for the state of a job on this queue. Returns whether it cancels the job.
fn admit_look(request: &Request<Incoming>, queue: &Address, http: &HttpContext) -> Result<bool, HttpRefusal> {
    only(request, &[Method::GET, Method::HEAD, Method::DELETE])?;
    admit_reader(request, queue, http)?;
    let cancels = *request.method() == Method::DELETE;
    if cancels {
        push::find(queue, &http.context.configuration())?;
        push::refuse_while_full(&http.context)?;
    }
    Ok(cancels)
}

async fn find(
    request: &Request<Incoming>,
    queue: Address,
    http: &HttpContext,
) -> Result<Response, HttpRefusal> {
    only(request, &[Method::GET, Method::HEAD])?;
    admit_reader(request, &queue, http)?;
    let parameters = Parameters::of(request.uri().query())?;
    let context = http.context.clone();
    let _turn = http.looks.acquire().await;
    aside(move || find_jobs::find(&queue, &parameters, &context)).await
}

/// Refuses a request about jobs of a source or a queue without a token for them.
fn admit_reader(request: &Request<Incoming>, queue: &Address, http: &HttpContext) -> Result<(), HttpRefusal> {
    push::admit_reader(request.headers(), queue, &http.context.configuration())
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

async fn pause(
    request: &Request<Incoming>,
    (step, paused): (Address, bool),
    http: &HttpContext,
) -> Result<Response, HttpRefusal> {
    only(request, &[Method::POST])?;
    // A step is guarded like the jobs of its pipeline.
    admit_reader(request, &step, http)?;
    push::refuse_while_full(&http.context)?;
    let parameters = Parameters::of(request.uri().query())?;
    let context = http.context.clone();
    aside(move || pause::pause(&step, paused, &parameters, &context)).await
}

/// Runs slow work on another thread, so that no other request waits for it.
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
