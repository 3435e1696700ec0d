//! OAuth 2.1 for HTTP servers: a person signs in once with a browser, the tokens are kept in a file that only the user may
//! read, and are renewed when they run out.
//!
//! The flow itself (discovery, registration, PKCE, issuer checks, refresh) is the library's. Here are the browser, the page
//! it comes back to on 127.0.0.1, and the store. Tokens are in no message, log or error.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use async_trait::async_trait;
use rmcp::transport::{
    AuthClient, AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, CredentialRefreshGuard,
    CredentialStore, StoredCredentials, auth::OAuthClientConfig,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout_at},
};

use super::{http, tolerant::TolerantClient};
use crate::config::{HttpSettings, ServerSettings, ServerTransport, replace_private_file};

/// How long a person may take to sign in.
const SIGN_IN_TIMEOUT: Duration = Duration::from_mins(5);
/// How long another process may take to renew the same tokens.
const REFRESH_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest request that the browser may come back with, bytes.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Where the browser comes back to.
const CALLBACK_PATH: &str = "/callback";

/// Why a sign-in came to nothing, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SignInError(String);

/// Signs in to an HTTP server: `open` is given the address that a person has to visit. Returns when the tokens are stored.
pub async fn sign_in(settings: &ServerSettings, open: impl FnOnce(&str)) -> Result<(), SignInError> {
    let failed = |reason: String| SignInError(reason);
    let ServerTransport::Http(http) = &settings.transport else {
        return Err(failed(format!("\"{}\" is started by a command and needs no sign-in", settings.name)));
    };
    let file = token_file(http).map_err(failed)?;
    let port = http.oauth.as_ref().and_then(|oauth| oauth.redirect_port).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener = listener.map_err(|_| failed(format!("port {port} of 127.0.0.1 is taken")))?;
    let port = listener.local_addr().map_err(|error| failed(error.to_string()))?.port();
    let redirect = format!("http://127.0.0.1:{port}{CALLBACK_PATH}");

    let mut manager = manager(http).await.map_err(|error| failed(describe(&error)))?;
    manager.set_credential_store(TokenFile { file });
    let resolved = manager.resolve_metadata().await.map_err(|error| failed(describe(&error)))?;
    manager.set_metadata(resolved.metadata);
    let mut request =
        AuthorizationRequest::new(&redirect).with_client_name("toolbridge").with_initial_scope_selection();
    if let Some(oauth) = &http.oauth {
        request = request.with_scopes(oauth.scopes.iter().cloned());
        if let Some(client_id) = &oauth.client_id {
            request = request.with_preregistered_client(client_id);
        }
        if let Some(secret) = &oauth.client_secret {
            request = request.with_client_secret(secret.expose());
        }
    }
    let session = AuthorizationSession::new(manager, request).await.map_err(|(_, error)| failed(describe(&error)))?;
    open(session.get_authorization_url());

    let deadline = Instant::now() + SIGN_IN_TIMEOUT;
    loop {
        let accepted = timeout_at(deadline, listener.accept()).await;
        let (mut stream, _) = accepted
            .map_err(|_| failed("nobody signed in within 5 minutes".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        // Browsers also ask for icons, and anything on this machine may knock.
        let Ok(Some(target)) = timeout_at(deadline, requested(&mut stream)).await else { continue };
        if !target.starts_with(CALLBACK_PATH) {
            let _ = answer(&mut stream, "404 Not Found", "There is nothing here.").await;
            continue;
        }
        let url = format!("http://127.0.0.1:{port}{target}");
        return match session.handle_callback_url(&url).await {
            Ok(_) => {
                let _ = answer(&mut stream, "200 OK", "Signed in. You can close this page.").await;
                Ok(())
            }
            Err(error) => {
                let _ = answer(&mut stream, "400 Bad Request", "The sign-in failed. You can close this page.").await;
                Err(failed(describe(&error)))
            }
        };
    }
}

/// Forgets the tokens of a server; tells whether there were any.
pub fn sign_out(settings: &ServerSettings) -> io::Result<bool> {
    let ServerTransport::Http(http) = &settings.transport else { return Ok(false) };
    match http.token_file.as_ref().map(fs::remove_file) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Some(Ok(())) => Ok(true),
        _ => Ok(false),
    }
}

/// Shows a page in the user's browser, if there is one; does not wait for it.
pub fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    #[allow(clippy::disallowed_methods)] // a source may start processes
    let browser = std::process::Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut browser) = browser {
        // Reaped whenever it ends.
        std::thread::spawn(move || browser.wait());
    }
}

/// An HTTP client that sends the stored tokens and renews them; none when nobody has signed in.
pub(super) async fn authorized(settings: &HttpSettings) -> Result<Option<AuthClient<TolerantClient>>, String> {
    let Some(file) = settings.token_file.as_ref().filter(|file| file.exists()) else { return Ok(None) };
    let mut manager = manager(settings).await.map_err(|error| describe(&error))?;
    manager.set_credential_store(TokenFile { file: file.clone() });
    if !manager.initialize_from_store().await.map_err(|error| describe(&error))? {
        return Ok(None);
    }
    let registered =
        settings.oauth.as_ref().and_then(|oauth| Some((oauth.client_id.as_ref()?, oauth.client_secret.as_ref()?)));
    if let Some((client_id, secret)) = registered {
        let config = OAuthClientConfig::new(client_id, format!("http://127.0.0.1{CALLBACK_PATH}"));
        manager.configure_client(config.with_client_secret(secret.expose())).map_err(|error| describe(&error))?;
    }
    Ok(Some(AuthClient::new(http::tolerant_client()?, manager)))
}

async fn manager(settings: &HttpSettings) -> Result<AuthorizationManager, AuthError> {
    // Installs the TLS provider that the library's own client needs.
    http::client().map_err(AuthError::InternalError)?;
    AuthorizationManager::new(settings.url.expose()).await
}

fn token_file(settings: &HttpSettings) -> Result<PathBuf, String> {
    settings.token_file.clone().ok_or_else(|| "HOME is not set, so there is nowhere to keep tokens".to_owned())
}

fn describe(error: &AuthError) -> String {
    match error {
        AuthError::AuthorizationRequired => "has to be signed in to".to_owned(),
        AuthError::NoAuthorizationSupport => "offers no sign-in".to_owned(),
        AuthError::RegistrationFailed(_) => {
            "does not register new clients; give it an `oauth.clientId` that its operator has registered".to_owned()
        }
        AuthError::PkceUnsupported => "offers only a sign-in without PKCE, which is not safe".to_owned(),
        AuthError::AuthorizationServerMismatch { .. } | AuthError::AuthorizationServerMissingIssuer { .. } => {
            "answered in the name of another authorization server".to_owned()
        }
        AuthError::HttpError(_) | AuthError::DiscoveryRequestFailed { .. } => {
            "its authorization server can not be reached".to_owned()
        }
        AuthError::CredentialStoreError(reason) => reason.clone(),
        AuthError::TokenRefreshRejected(_) | AuthError::TokenExpired => "has to be signed in to again".to_owned(),
        _ => "the sign-in was refused".to_owned(),
    }
}

/// The path and query that a browser asks for.
async fn requested(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(2).any(|end| end == b"\r\n") && request.len() < MAX_REQUEST_BYTES {
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) => request.extend_from_slice(&buffer[..length]),
            _ => return None,
        }
    }
    let line = String::from_utf8_lossy(&request).lines().next()?.to_owned();
    let mut words = line.split(' ');
    (words.next()? == "GET").then(|| words.next().map(str::to_owned))?
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let page = format!("<!doctype html><meta charset=utf-8><title>toolbridge</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}

/// Tokens of one server, in a file of mode 0600 that is replaced whole.
struct TokenFile {
    file: PathBuf,
}

fn store_failed(_: impl std::error::Error) -> AuthError {
    AuthError::CredentialStoreError("the stored tokens can not be read or written".to_owned())
}

#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        match fs::read(&self.file) {
            // What can not be understood is as good as not there: a person signs in again.
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(store_failed(error)),
        }
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let text = serde_json::to_vec(&credentials).map_err(store_failed)?;
        replace_private_file(&self.file, &text).map_err(store_failed)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(store_failed(error)),
            _ => Ok(()),
        }
    }

    /// Two processes that renew the same token at once would make one of the two tokens worthless.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = open_lock(&self.file.with_extension("lock")).map_err(store_failed)?;
        let deadline = Instant::now() + REFRESH_LOCK_TIMEOUT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Some(CredentialRefreshGuard::new(lock))),
                Err(TryLockError::Error(error)) => return Err(store_failed(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(AuthError::CredentialStoreError(
                        "another process keeps the stored tokens locked".to_owned(),
                    ));
                }
                Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

fn open_lock(file: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)
}
