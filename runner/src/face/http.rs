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
//! on others; jobs wait in the engine's inbox for the next commit.

mod answer;
mod body;
mod complete;
mod intake;
mod jobs;
mod monitor;
mod route;
mod sources;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use self::answer::{Refusal, Response};
use self::route::{Asked, Route};
use super::control::Desk;
use crate::engine::Whereabouts;
use crate::words::Address;

/// So many connections at one time; others wait to be accepted.
const CONNECTIONS_MAX: u32 = 1024;
/// How long a client may take for the head of a request, and how long one may have nothing to ask.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of bodies that are in memory at one time, over all connections.
const BODIES_BYTES: usize = 256 << 20;
/// How long the end of a run waits for the answers that it owes.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// An open port that serves until it is finished.
pub(super) struct Server {
    address: SocketAddr,
    /// Dropped when it shall end.
    stop: watch::Sender<()>,
    over: std::sync::mpsc::Receiver<()>,
}

/// What every request may need.
#[derive(Clone)]
struct Shop {
    desk: Desk,
    /// Bytes of bodies that there is room for.
    room: Arc<Semaphore>,
    whereabouts: Arc<Whereabouts>,
}

impl Server {
    /// Opens the port, and serves it on a thread of its own.
    pub(super) fn start(listen: SocketAddr, desk: Desk) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(());
        let (ended, over) = std::sync::mpsc::sync_channel(1);
        let (room, whereabouts) = (Arc::new(Semaphore::new(BODIES_BYTES)), Arc::default());
        let shop = Shop { desk, room, whereabouts };
        thread::Builder::new().name("http".into()).spawn(move || {
            runtime.block_on(async {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener, shop, stopped).await,
                    Err(error) => tracing::error!(%error, "the port cannot be served"),
                }
            });
            let _ = ended.send(());
            // A look into the store that goes on is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, stop, over })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests, and waits a moment for the answers to those that it has.
    pub(super) fn finish(self) {
        drop(self.stop);
        let _ = self.over.recv_timeout(LAST_WORDS);
    }
}

/// Accepts connections until it is stopped, and waits then until those that there are have ended.
async fn serve(listener: tokio::net::TcpListener, shop: Shop, mut stopped: watch::Receiver<()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            _ = stopped.changed() => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file handles, most likely; those who wait will be accepted later.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (shop, stopped) = (shop.clone(), stopped.clone());
        tokio::spawn(async move {
            converse(stream, shop, stopped).await;
            drop(place);
        });
    }
    drop(listener);
    // All places are free when the last connection has ended.
    let _ = places.acquire_many(CONNECTIONS_MAX).await;
}

async fn converse(stream: TcpStream, shop: Shop, mut stopped: watch::Receiver<()>) {
    // Answers are short, and are waited for.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shop = shop.clone();
        async move { Ok::<_, Infallible>(answer(request, &shop).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke off");
    }
}

async fn answer(request: Request<Incoming>, shop: &Shop) -> Response {
    let outcome = match Route::of(request.uri().path()) {
        Ok(Route::Source(address)) => sources::take(request, &address, shop).await,
        Ok(Route::Job(asked)) => look(&request, asked, shop).await,
        Ok(Route::Complete(asked)) => complete::complete(request, asked, shop).await,
        Ok(Route::Monitor(step)) => poll(&request, step, shop).await,
        Ok(Route::Health) => only(&request, &[Method::GET, Method::HEAD]).map(|()| answer::healthy()),
        Err(refusal) => Err(refusal),
    };
    outcome.unwrap_or_else(Refusal::into_response)
}

async fn look(request: &Request<Incoming>, asked: Asked, shop: &Shop) -> Result<Response, Refusal> {
    only(request, &[Method::GET, Method::HEAD])?;
    let (_, source) = sources::find(&asked.queue, &shop.desk.configuration)?;
    sources::admit(request.headers(), source)?;
    let desk = shop.desk.clone();
    aside(move || jobs::status(&asked, &desk)).await
}

async fn poll(request: &Request<Incoming>, step: Address, shop: &Shop) -> Result<Response, Refusal> {
    only(request, &[Method::POST])?;
    let desk = shop.desk.clone();
    aside(move || monitor::poll(&step, &desk)).await
}

/// Does what may take a while where no other request waits for it.
async fn aside<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(task).await;
    done.unwrap_or_else(|error| Err(Refusal::broken(&error.to_string())))
}

fn only(request: &Request<Incoming>, methods: &[Method]) -> Result<(), Refusal> {
    if methods.contains(request.method()) { Ok(()) } else { Err(Refusal::method(request.method(), methods)) }
}
