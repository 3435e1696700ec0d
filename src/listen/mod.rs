//! The listener of the two HTTP front doors, `gateway` and `serve --http`: on which address, and what a connection may cost
//! before anything of it is understood.
//!
//! Invariant: an address that others can reach is never listened on without a key. A client that is slow has a stated time
//! for the head of a request, for its body and for taking more of its answer, and holds one of a stated number of connections;
//! who comes beyond that number is told so. Dropping [`Connections`] ends every connection.

mod timed_writes;

use std::{
    convert::Infallible,
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::Sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use timed_writes::Stalled;
use timed_writes::TimedWrites;

/// Connections beyond the cap that are told so at the same time; others are closed without a word.
const MAX_REFUSALS: usize = 64;
/// How long such a connection is kept until it has taken its answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause when the system has no connection to give: out of descriptors, most likely, and others end in time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why an address can not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Anybody could connect; whoever configured it is at fault.
    #[error(
        "{address} can be reached from other machines and no key is configured; add one to gateway.keys{}, or listen on \
         127.0.0.1", also.map(|also| format!(" ({also})")).unwrap_or_default()
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
        /// Another way to configure a key.
        also: Option<&'static str>,
    },
    /// The system does not give the address.
    #[error("can not listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        reason: String,
    },
}

impl ListenError {
    fn system(address: impl Into<String>, error: &std::io::Error) -> Self {
        Self::Listen { address: address.into(), reason: crate::system_error::words_of_listening(error) }
    }
}

/// What connections may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at once.
    pub max_connections: usize,
    /// Until the head of a request is there, from the moment when the connection stands or the last answer has been given.
    pub head_timeout: Duration,
    /// Until the body of a request is there, from the moment when it is waited for.
    pub body_timeout: Duration,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        crate::config::GatewaySettings::default().connections()
    }
}

/// Who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Whoever bears a key.
    Keys,
    /// Whoever sits at this machine; keys could also be configured in this way.
    ThisMachine(Option<&'static str>),
}

impl Protection {
    fn refuses(self, address: SocketAddr) -> Option<ListenError> {
        match self {
            Self::ThisMachine(also) if !address.ip().to_canonical().is_loopback() => {
                Some(ListenError::Unprotected { address, also })
            }
            _ => None,
        }
    }
}

/// Opens a listener. An address that others can reach is refused when no key protects it.
pub(crate) async fn listen(address: &str, protection: Protection) -> Result<TcpListener, ListenError> {
    let failed = |error: std::io::Error| ListenError::system(address, &error);
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host(address).await.map_err(failed)?.collect();
    if let Some(refused) = resolved.iter().find_map(|address| protection.refuses(*address)) {
        return Err(refused);
    }
    TcpListener::bind(&*resolved).await.map_err(failed)
}

/// The address of a listener that somebody else may have opened; refused as by [`listen`].
pub(crate) fn address(listener: &TcpListener, protection: Protection) -> Result<SocketAddr, ListenError> {
    let address = listener.local_addr().map_err(|error| ListenError::system("the listener", &error))?;
    protection.refuses(address).map_or(Ok(address), Err)
}

/// The names by which a listener is addressed, as they stand in a `Host` without its port.
pub(crate) fn own_hosts(address: SocketAddr) -> Vec<String> {
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
    match address.ip() {
        ip if ip.is_unspecified() => {}
        IpAddr::V4(ip) => hosts.push(ip.to_string()),
        IpAddr::V6(ip) => hosts.push(format!("[{ip}]")),
    }
    hosts
}

/// The web origins of a listener itself.
pub(crate) fn own_origins(address: SocketAddr) -> [String; 3] {
    let port = address.port();
    ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{port}"))
}

/// Connections that were accepted and have not ended.
pub(crate) struct Connections {
    open: TaskTracker,
    /// Cancelled, each connection ends with what it is sending.
    drain: CancellationToken,
    /// Cancelled, each connection ends.
    end: CancellationToken,
}

impl Connections {
    /// Lets connections end with what they are sending, and waits for that. Whether all have ended.
    pub(crate) async fn drain(&self, within: Duration) -> bool {
        self.drain.cancel();
        self.open.close();
        tokio::time::timeout(within, self.open.wait()).await.is_ok()
    }

    /// Ends every connection that is left, and with each what was done for it.
    pub(crate) async fn end(self) {
        self.end.cancel();
        self.open.close();
        self.open.wait().await;
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Accepts connections until `stop` is cancelled; requests go to `service`. `full` is the whole HTTP answer for a connection
/// beyond the cap.
pub(crate) async fn accept<S, B>(
    listener: TcpListener,
    limits: ConnectionLimits,
    full: Bytes,
    service: S,
    stop: &CancellationToken,
) -> Connections
where
    S: Service<Request<TimedBody>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (drain, end) = (CancellationToken::new(), CancellationToken::new());
    let connections = Connections { open: TaskTracker::new(), drain, end };
    let places = Arc::new(Semaphore::new(limits.max_connections.min(Semaphore::MAX_PERMITS)));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return connections,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            if let Ok(refusal) = refusals.clone().try_acquire_owned() {
                let full = full.clone();
                connections.open.spawn(async move {
                    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refuse(stream, &full)).await;
                    drop(refusal);
                });
            }
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (service, drain, end) = (service.clone(), connections.drain.clone(), connections.end.clone());
        connections.open.spawn(async move {
            tokio::select! {
                biased;
                () = serve(stream, limits, service, drain) => {}
                () = end.cancelled() => {}
            }
            drop(place);
        });
    }
}

async fn serve<S, B>(stream: TcpStream, limits: ConnectionLimits, service: S, drain: CancellationToken)
where
    S: Service<Request<TimedBody>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TimedWrites::new(stream, limits.write_timeout);
    let stalled = stream.stalled();
    let timed = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(stalled.clone());
        service.call(request.map(|body| TimedBody { inner: body, within: limits.body_timeout, deadline: None }))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .serve_connection(TokioIo::new(stream), timed);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        _ = &mut connection => true,
        () = drain.cancelled() => false,
    };
    if !ended {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// Answers whatever comes; what the client is still sending is read, or it would never see the answer.
async fn refuse(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    let mut unread = [0_u8; 4096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Why a body can not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// It took too long.
    #[error("the body did not come in time")]
    Late,
    /// The connection broke, or what came is no HTTP.
    #[error("the body broke off")]
    Broken(#[source] hyper::Error),
}

/// The body of a request, as long as it comes in time.
#[derive(Debug)]
pub(crate) struct TimedBody {
    inner: Incoming,
    within: Duration,
    /// Begun when the body is waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        let within = self.within;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        deadline.as_mut().poll(cx).map(|()| Some(Err(BodyError::Late)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
