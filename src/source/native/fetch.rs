//! `fetch`: text from the hosts of a list.
//!
//! Every hop of a redirect is checked like the first URL. A name is resolved here, once, and the connection goes to exactly
//! the addresses that were checked, so that a second answer of the name service can not lead elsewhere. An address that is
//! not public is reached only when the list names it as an address.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures::{StreamExt, future::BoxFuture};
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{CONTENT_TYPE, LOCATION},
    redirect::Policy,
};
use serde_json::json;

use super::{MAX_DURATION, Work, address::is_public, failed, text_argument};
use crate::{catalog::ToolOutput, policy::Pattern, tool_error::ToolError};

/// Hops of redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// Bytes of a body that are given.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Bytes of an image: a model looks at no larger one.
const MAX_IMAGE_BYTES: usize = 5 * 1024 * 1024;

/// Finds the addresses of a host name.
type Resolve = Arc<dyn Fn(String, u16) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// One entry of the list: a host, `*.domain`, or either with a port.
struct Allowed {
    host: Pattern,
    port: Option<u16>,
    /// The entry is an address (or localhost) and so means it, public or not.
    literal: bool,
}

struct Fetcher {
    allowed: Vec<Allowed>,
    resolve: Resolve,
}

pub(super) fn fetch(hosts: &[String]) -> Work {
    let resolve: Resolve = Arc::new(|host, port| {
        Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) })
    });
    let fetcher = Arc::new(Fetcher::new(hosts, resolve));
    Box::new(move |args| {
        let fetcher = fetcher.clone();
        Box::pin(async move { fetcher.get(text_argument(&args, "url")).await })
    })
}

/// Fetches images, from the same hosts by the same rules.
pub(super) fn fetch_image(hosts: &[String]) -> Work {
    let resolve: Resolve = Arc::new(|host, port| {
        Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) })
    });
    let fetcher = Arc::new(Fetcher::new(hosts, resolve));
    Box::new(move |args| {
        let fetcher = fetcher.clone();
        Box::pin(async move {
            let (url, response) = fetcher.response(text_argument(&args, "url")).await?;
            image(&url, response).await
        })
    })
}

impl Fetcher {
    fn new(hosts: &[String], resolve: Resolve) -> Self {
        // An entry that is no pattern allows nothing.
        Self { allowed: hosts.iter().filter_map(|entry| Allowed::new(entry)).collect(), resolve }
    }

    async fn get(&self, url: &str) -> Result<ToolOutput, ToolError> {
        let (url, response) = self.response(url).await?;
        answer(&url, response).await
    }

    /// What stands at the end of all redirects.
    async fn response(&self, url: &str) -> Result<(Url, Response), ToolError> {
        let mut url = Url::parse(url).map_err(|error| failed(format!("the URL can not be read: {error}")))?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.hop(&url).await?;
            match target(&url, &response)? {
                None => return Ok((url, response)),
                Some(next) => url = next,
            }
        }
        Err(failed(format!("more than {MAX_REDIRECTS} redirects")))
    }

    /// One request to a checked URL at checked addresses.
    async fn hop(&self, url: &Url) -> Result<Response, ToolError> {
        let (host, addresses) = self.checked(url).await?;
        // Under exactly the name that the addresses are pinned for: a final dot would be another name to the client.
        let mut url = url.clone();
        let pinned = url.set_host(Some(&host));
        pinned.map_err(|_| failed("the URL names no host"))?;
        crate::source::choose_tls_provider();
        // Each hop has its own client: pinned addresses, no proxy that would resolve again, nothing kept between requests.
        let client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .timeout(MAX_DURATION)
            .user_agent(concat!("toolbridge/", env!("CARGO_PKG_VERSION")))
            .resolve_to_addrs(&host, &addresses)
            .build()
            .map_err(|_| failed("no connection can be made"))?;
        client.get(url).send().await.map_err(|error| {
            let why = if error.is_timeout() {
                "it took too long"
            } else if error.is_connect() {
                "no connection"
            } else {
                "the request failed"
            };
            failed(format!("{host} could not be reached: {why}"))
        })
    }

    async fn checked(&self, url: &Url) -> Result<(String, Vec<SocketAddr>), ToolError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(failed(format!("only http and https are fetched, not {}", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(failed("a URL with user and password is not fetched"));
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(failed("the URL names no host"));
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_lowercase();
        let Some(entry) = self.allowed.iter().find(|entry| entry.fits(&bare, port, url.port().is_none())) else {
            return Err(failed(format!("{host}:{port} is not on the list of hosts (native.hosts)")));
        };
        let addresses = match bare.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => (self.resolve)(bare.clone(), port).await.map_err(|_| failed(format!("{host} has no address")))?,
        };
        if addresses.is_empty() {
            return Err(failed(format!("{host} has no address")));
        }
        if !entry.literal && !addresses.iter().all(|address| is_public(address.ip())) {
            return Err(failed(format!("{host} leads to an address that is not public; it is not reached")));
        }
        Ok((if bare.contains(':') { host.to_owned() } else { bare }, addresses))
    }
}

impl Allowed {
    fn new(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_lowercase();
        if let Ok(address) = entry.parse::<IpAddr>() {
            return Some(Self { host: Pattern::new(&address.to_string()).ok()?, port: None, literal: true });
        }
        if let Ok(address) = entry.parse::<SocketAddr>() {
            return Some(Self {
                host: Pattern::new(&address.ip().to_string()).ok()?,
                port: Some(address.port()),
                literal: true,
            });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (entry.as_str(), None),
        };
        Some(Self { host: Pattern::new(host).ok()?, port, literal: host == "localhost" })
    }

    /// An entry without port allows the scheme's own port.
    fn fits(&self, host: &str, port: u16, default_port: bool) -> bool {
        self.host.matches(host) && self.port.map_or(default_port, |allowed| allowed == port)
    }
}

/// Where a redirect leads; `None` when it is none.
fn target(url: &Url, response: &Response) -> Result<Option<Url>, ToolError> {
    if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let next = location.to_str().ok().and_then(|location| url.join(location).ok());
    next.map(Some).ok_or_else(|| failed("a redirect leads to something that is no URL"))
}

fn content_type(response: &Response) -> (String, String) {
    let whole =
        response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("text/plain").to_owned();
    let kind = whole.split(';').next().unwrap_or_default().trim().to_lowercase();
    (whole, kind)
}

/// The body up to its cap, and whether there is more.
async fn body(response: Response, max_bytes: usize) -> Result<(Vec<u8>, bool), ToolError> {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| failed("the connection broke off in the middle"))?;
        let room = max_bytes - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok((body, true));
        }
    }
    Ok((body, false))
}

async fn image(url: &Url, response: Response) -> Result<ToolOutput, ToolError> {
    let (_, kind) = content_type(&response);
    let status = response.status();
    if !status.is_success() {
        return Err(failed(format!("{url} answered {}", status.as_u16())));
    }
    if !["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&kind.as_str()) {
        return Err(failed(format!("{url} is {kind}, not an image (PNG, JPEG, GIF or WebP)")));
    }
    let (bytes, more) = body(response, MAX_IMAGE_BYTES).await?;
    if more {
        return Err(failed(format!("{url} is larger than {} MiB", MAX_IMAGE_BYTES >> 20)));
    }
    let block = json!({ "type": "image", "data": base64(&bytes), "mimeType": kind });
    Ok(ToolOutput { content: vec![block], ..ToolOutput::default() })
}

/// The standard alphabet, padded.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let joined =
            group.iter().fold(0_usize, |joined, byte| joined << 8 | usize::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = joined >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

async fn answer(url: &Url, response: Response) -> Result<ToolOutput, ToolError> {
    let status = response.status().as_u16();
    let (content_type, kind) = content_type(&response);
    let is_text = kind.starts_with("text/")
        || ["json", "xml", "javascript", "yaml", "x-www-form-urlencoded"].iter().any(|ending| kind.ends_with(ending));
    if !is_text {
        return Err(failed(format!("{url} is {kind}, not text")));
    }
    let (body, truncated) = body(response, MAX_BODY_BYTES).await?;
    let text = String::from_utf8_lossy(&body).into_owned();
    Ok(json!({ "status": status, "url": url.as_str(), "contentType": content_type, "text": text, "truncated": truncated }).into())
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A server on this machine that answers every request with `answer(path)`.
    async fn server(answer: fn(&str, u16) -> String) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = vec![0; 4096];
                let read = stream.read(&mut buffer).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&buffer[..read]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let _ = stream.write_all(answer(&path, port).as_bytes()).await;
            }
        });
        port
    }

    fn page(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn redirect(to: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    }

    /// Every name is this machine, as after a rebinding.
    fn fetcher(hosts: &[String]) -> Fetcher {
        Fetcher::new(
            hosts,
            Arc::new(|_, port| Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })),
        )
    }

    async fn refusal(fetcher: &Fetcher, url: &str) -> String {
        fetcher.get(url).await.map(|output| format!("{output:?}")).unwrap_err().message
    }

    #[tokio::test]
    async fn a_listed_address_is_fetched_and_only_that() {
        let port = server(|path, _| page(&format!("you asked for {path}"))).await;
        let fetcher = fetcher(&[format!("127.0.0.1:{port}")]);
        let output = fetcher.get(&format!("http://127.0.0.1:{port}/a?b")).await.unwrap();
        assert_eq!(output.structured_content.unwrap()["text"], "you asked for /a?b");
        for url in [
            format!("http://127.0.0.1:{}/", port ^ 1),
            "http://127.0.0.1/".to_owned(),
            format!("http://localhost:{port}/"),
            "http://example.com/".to_owned(),
            format!("http://example.com@127.0.0.1:{port}/"),
            "file:///etc/hostname".to_owned(),
            "nonsense".to_owned(),
        ] {
            assert!(!refusal(&fetcher, &url).await.is_empty(), "{url}");
        }
        // Other ways to write the same address are the same address.
        assert!(fetcher.get(&format!("http://2130706433:{port}/")).await.is_ok());
    }

    #[tokio::test]
    async fn a_listed_name_that_leads_to_this_machine_is_not_reached() {
        let port = server(|_, _| page("inside")).await;
        let fetcher = fetcher(&[format!("api.example.com:{port}"), format!("*.example.org:{port}")]);
        for host in ["api.example.com", "x.example.org", "API.example.com."] {
            let refused = refusal(&fetcher, &format!("http://{host}:{port}/")).await;
            assert!(refused.contains("not public"), "{refused}");
        }
        assert!(refusal(&fetcher, &format!("http://example.org:{port}/")).await.contains("not on the list"));
    }

    #[tokio::test]
    async fn redirects_are_checked_hop_by_hop_and_end() {
        let port = server(|path, port| match path {
            "/away" => redirect("http://169.254.169.254/latest"),
            "/file" => redirect("file:///etc/hostname"),
            "/round" => redirect("/round"),
            "/name" => redirect(&format!("http://internal.example.com:{port}/")),
            "/here" => redirect("/there"),
            _ => page("there"),
        })
        .await;
        let fetcher = fetcher(&[format!("127.0.0.1:{port}")]);
        let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
        assert_eq!(fetcher.get(&at("/here")).await.unwrap().structured_content.unwrap()["url"], at("/there"));
        assert!(refusal(&fetcher, &at("/away")).await.contains("not on the list"));
        assert!(refusal(&fetcher, &at("/file")).await.contains("only http and https"));
        assert!(refusal(&fetcher, &at("/name")).await.contains("not on the list"));
        assert!(refusal(&fetcher, &at("/round")).await.contains("redirects"));
    }

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("\u{ff}?", "w78/")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[tokio::test]
    async fn an_image_is_given_as_one_and_text_is_none() {
        let port = server(|path, _| match path {
            "/a.png" => {
                "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 3\r\nconnection: close\r\n\r\npng"
                    .to_owned()
            }
            _ => page("text"),
        })
        .await;
        let work = fetch_image(&[format!("127.0.0.1:{port}")]);
        let at = |path: &str| json!({ "url": format!("http://127.0.0.1:{port}{path}") }).as_object().unwrap().clone();
        let output = work(at("/a.png")).await.unwrap();
        assert_eq!(output.content, [json!({ "type": "image", "data": "cG5n", "mimeType": "image/png" })]);
        assert!(work(at("/text")).await.unwrap_err().message.contains("not an image"));
    }

    #[tokio::test]
    async fn a_large_body_is_cut_and_a_picture_is_refused() {
        let port = server(|path, _| match path {
            "/large" => page(&"x".repeat(MAX_BODY_BYTES + 10)),
            _ => "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                .to_owned(),
        })
        .await;
        let fetcher = fetcher(&[format!("127.0.0.1:{port}")]);
        let large = fetcher.get(&format!("http://127.0.0.1:{port}/large")).await.unwrap().structured_content.unwrap();
        assert_eq!((large["text"].as_str().unwrap().len(), &large["truncated"]), (MAX_BODY_BYTES, &json!(true)));
        assert!(refusal(&fetcher, &format!("http://127.0.0.1:{port}/picture")).await.contains("image/png"));
    }
}
