//! The client of a model provider: any server that speaks OpenAI's HTTP API.
//!
//! Nothing here knows of tools or of the bridge: a request goes out as it was written and an answer comes back as it is.
//! Invariant: a request is sent again only while nothing of its answer has been passed on, only after a 429, a 5xx or a
//! failed connection, and never more often or later than configured. What goes wrong is a [`ProviderError`], whose text holds
//! no key and no prompt. Dropping a call or a stream closes its connection.

pub mod chat;
mod error;
mod shape;
mod stream;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use futures::StreamExt;
use reqwest::{
    Client, Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;

pub use error::ProviderError;
pub use stream::EventStream;

use crate::{
    config::{GatewaySettings, ModelSettings, ProviderSettings},
    telemetry::Redactor,
};

/// Bytes of an answer that is not streamed.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of an error's body that are looked at.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// Characters of a media type that are told.
const MAX_MEDIA_TYPE_CHARS: usize = 64;
/// First pause before another attempt; it doubles, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Connections that wait for the next request.
const IDLE_CONNECTIONS: usize = 256;

/// What is asked of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `POST /chat/completions`
    ChatCompletions,
    /// `POST /responses`
    Responses,
}

impl Endpoint {
    /// Its path below the base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat/completions",
            Self::Responses => "responses",
        }
    }
}

/// One provider. Clones are the same provider and share its connections.
#[derive(Clone)]
pub struct Provider(Arc<Inner>);

struct Inner {
    name: String,
    base: Url,
    authorization: Option<HeaderValue>,
    settings: ProviderSettings,
    client: Client,
    redactor: Redactor,
}

/// An answer and how it came about.
#[derive(Debug)]
pub struct Answered<T> {
    /// The answer.
    pub answer: T,
    /// How often the request was sent, from 1.
    pub attempts: u32,
}

impl Provider {
    /// A provider as the configuration describes it.
    pub fn from_settings(name: &str, settings: &ProviderSettings) -> Result<Self, ProviderError> {
        let unusable =
            |problem: &str| ProviderError::Unusable { provider: name.to_owned(), problem: problem.to_owned() };
        let base = format!("{}/", settings.base_url.trim().trim_end_matches('/'));
        let base = Url::parse(&base).ok().filter(|base| ["http", "https"].contains(&base.scheme()) && base.has_host());
        let base = base.ok_or_else(|| unusable("its baseUrl is not an http or https address"))?;
        let authorization = settings.api_key.as_ref().map(|key| {
            let value = HeaderValue::from_str(&format!("Bearer {}", key.expose()));
            value.map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let authorization =
            authorization.transpose().map_err(|_| unusable("its key holds characters that no key has"))?;
        crate::source::choose_tls_provider();
        let client = Client::builder()
            .connect_timeout(settings.connect_timeout)
            .redirect(reqwest::redirect::Policy::none()) // requests hold keys and prompts
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .tcp_nodelay(true)
            .user_agent(concat!("toolbridge/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|_| unusable("no HTTP client can be made on this machine"))?;
        let redactor = Redactor::new(settings.api_key.iter().map(|key| key.expose().to_owned()));
        let (name, settings) = (name.to_owned(), settings.clone());
        Ok(Self(Arc::new(Inner { name, base, authorization, settings, client, redactor })))
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// As configured.
    pub fn settings(&self) -> &ProviderSettings {
        &self.0.settings
    }

    /// Sends a request and reads its whole answer. `body` is the JSON text of the request.
    pub async fn send(&self, endpoint: Endpoint, body: Bytes) -> Result<Answered<Value>, ProviderError> {
        let deadline = Instant::now() + self.0.settings.timeout;
        let Answered { answer, attempts } = self.begin(endpoint, &body, deadline).await?;
        let kind = media_type(&answer);
        let bytes = self.read(answer, MAX_ANSWER_BYTES, deadline).await?;
        let name = self.name();
        if bytes.len() > MAX_ANSWER_BYTES {
            return Err(ProviderError::malformed(name, "it is too large"));
        }
        let answer: Value = crate::protocol::read_json(&bytes).map_err(|_| match kind {
            Some(kind) if kind != "application/json" => {
                ProviderError::malformed(name, format!("it is {kind}, not JSON"))
            }
            _ => ProviderError::malformed(name, "it is not JSON"),
        })?;
        if is_error(&answer) {
            return Err(error::refused(name, 200, None, &bytes, &body, &self.0.redactor));
        }
        shape::whole(endpoint, &answer).map_err(|fault| ProviderError::malformed(name, fault.to_string()))?;
        Ok(Answered { answer, attempts })
    }

    /// Sends a request whose answer is a stream of events. `body` is the JSON text of the request, with `stream: true`.
    pub async fn stream(&self, endpoint: Endpoint, body: Bytes) -> Result<Answered<EventStream>, ProviderError> {
        let deadline = Instant::now() + self.0.settings.timeout;
        let Answered { answer, attempts } = self.begin(endpoint, &body, deadline).await?;
        // A server that can not stream, or a page of somebody in between; others are taken at their word.
        if let Some(kind) = media_type(&answer).filter(|kind| ["application/json", "text/html"].contains(&&**kind)) {
            let bytes = self.read(answer, MAX_ERROR_BYTES, deadline).await?;
            if serde_json::from_slice(&bytes).is_ok_and(|answer| is_error(&answer)) {
                return Err(error::refused(self.name(), 200, None, &bytes, &body, &self.0.redactor));
            }
            let reason = format!("it is {kind}, and a stream of events was asked for");
            return Err(ProviderError::malformed(self.name(), reason));
        }
        let answer = EventStream::new(self.clone(), endpoint, answer, body);
        Ok(Answered { answer, attempts })
    }

    /// Sends, again if need be, until the head of a good answer is there.
    async fn begin(
        &self,
        endpoint: Endpoint,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Answered<Response>, ProviderError> {
        let settings = &self.0.settings;
        let attempts = AtomicU32::new(0);
        let attempt = || {
            attempts.fetch_add(1, Ordering::Relaxed);
            self.attempt(endpoint, body.clone(), deadline)
        };
        let pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE.min(settings.max_retry_wait))
            .with_max_delay(settings.max_retry_wait)
            .with_max_times(settings.max_retries as usize)
            .with_jitter();
        let answer = attempt
            .retry(pauses)
            .when(ProviderError::is_retryable)
            .adjust(|error, pause| {
                let pause = pause?;
                let wait = error.retry_after().map_or(pause, |asked| asked.max(Duration::from_millis(1)));
                let in_time = Instant::now() + wait < deadline;
                (wait <= settings.max_retry_wait && in_time).then_some(wait)
            })
            .await?;
        Ok(Answered { answer, attempts: attempts.load(Ordering::Relaxed) })
    }

    async fn attempt(&self, endpoint: Endpoint, body: Bytes, deadline: Instant) -> Result<Response, ProviderError> {
        let Inner { name, base, authorization, client, redactor, .. } = &*self.0;
        let unusable =
            |_| ProviderError::Unusable { provider: name.clone(), problem: "its address can not be used".into() };
        let mut request = client
            .post(base.join(endpoint.path()).map_err(unusable)?)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body.clone());
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let response = match tokio::time::timeout_at(deadline.into(), request.send()).await {
            Err(_) => return Err(self.timed_out("did not answer")),
            Ok(Err(error)) => return Err(self.failed(&error)),
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| seconds_or_date(value.to_str().ok()?));
        let words = self.read(response, MAX_ERROR_BYTES, deadline).await.unwrap_or_default();
        Err(error::refused(name, status.as_u16(), retry_after, &words, &body, redactor))
    }

    /// Reads a body up to a little over `max` bytes.
    async fn read(&self, response: Response, max: usize, deadline: Instant) -> Result<Vec<u8>, ProviderError> {
        let mut chunks = response.bytes_stream();
        let mut bytes = Vec::new();
        loop {
            match tokio::time::timeout_at(deadline.into(), chunks.next()).await {
                Err(_) => return Err(self.timed_out("did not answer")),
                Ok(None) => return Ok(bytes),
                Ok(Some(Err(_))) => return Err(ProviderError::Interrupted { provider: self.0.name.clone() }),
                Ok(Some(Ok(chunk))) => bytes.extend_from_slice(&chunk),
            }
            if bytes.len() > max {
                return Ok(bytes);
            }
        }
    }

    fn timed_out(&self, what: &'static str) -> ProviderError {
        let waited = if what == "was silent" { self.0.settings.idle_timeout } else { self.0.settings.timeout };
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        ProviderError::TimedOut { provider: self.0.name.clone(), what, waited_ms }
    }

    /// A request that got no answer. Only one that was never sent may be sent again.
    fn failed(&self, error: &reqwest::Error) -> ProviderError {
        let provider = self.0.name.clone();
        if error.is_connect() {
            let reason = if error.is_timeout() { "the connection took too long" } else { "no connection" };
            return ProviderError::Unreachable { provider, reason };
        }
        ProviderError::Interrupted { provider }
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// What an answer says that it is, when that is a word that can be told.
fn media_type(answer: &Response) -> Option<String> {
    let kind = answer.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/+-.".contains(c);
    (!kind.is_empty() && kind.len() <= MAX_MEDIA_TYPE_CHARS && kind.chars().all(plain)).then_some(kind)
}

/// Whether it is an error that stands where an answer should.
fn is_error(answer: &Value) -> bool {
    let given = |key: &str| answer.get(key).is_some_and(|value| !value.is_null());
    given("error") && !given("choices") && !given("output")
}

/// `Retry-After`: seconds, or a date.
fn seconds_or_date(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate(text.trim())?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`; days from a date as in Howard Hinnant's `days_from_civil`.
fn httpdate(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut time = words.next()?.split(':').map(str::parse::<u64>);
    let (hour, minute, second) = (time.next()?.ok()?, time.next()?.ok()?, time.next()?.ok()?);
    let shifted_year = year - u64::from(month <= 2);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day.checked_sub(1)?;
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400 + hour * 3_600 + minute * 60 + second))
}

/// All providers, and which of them has a model.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    providers: BTreeMap<String, Provider>,
}

/// A model at its provider.
#[derive(Debug, Clone)]
pub struct Model {
    /// Who has it.
    pub provider: Provider,
    /// The provider's own name for it.
    pub name: String,
    /// Context window in tokens, where configured.
    pub context_window: Option<u64>,
}

impl Providers {
    /// The providers of a configuration.
    pub fn from_settings(settings: &GatewaySettings) -> Result<Self, ProviderError> {
        let providers = settings
            .providers
            .iter()
            .map(|(name, settings)| Ok((name.clone(), Provider::from_settings(name, settings)?)))
            .collect::<Result<_, ProviderError>>()?;
        Ok(Self { providers })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// Whether a provider lists a model under exactly this name.
    pub fn lists(&self, model: &str) -> bool {
        self.providers.values().any(|provider| provider.settings().models.contains_key(model))
    }

    /// The names of all configured models, each with its provider, in order.
    pub fn models(&self) -> Vec<(String, &Provider)> {
        let of = |provider: &Provider| provider.settings().models.keys().cloned().collect::<Vec<_>>();
        self.providers
            .values()
            .flat_map(|provider| of(provider).into_iter().map(move |model| (model, provider)))
            .collect()
    }

    /// Who has a model: the provider that lists it, the one that `provider/model` names, else the only one there is.
    pub fn model(&self, wanted: &str) -> Result<Model, ProviderError> {
        let known = |provider: &Provider, name: &str| {
            let known: Option<&ModelSettings> = provider.settings().models.get(name);
            Model {
                provider: provider.clone(),
                name: known.and_then(|model| model.name.clone()).unwrap_or_else(|| name.to_owned()),
                context_window: known.and_then(|model| model.context_window),
            }
        };
        if let Some(provider) = self.providers.values().find(|provider| provider.settings().models.contains_key(wanted))
        {
            return Ok(known(provider, wanted));
        }
        if let Some((name, model)) = wanted.split_once('/')
            && let Some(provider) = self.providers.get(name)
        {
            return Ok(known(provider, model));
        }
        let mut all = self.providers.values();
        if let (Some(only), None) = (all.next(), all.next()) {
            return Ok(known(only, wanted));
        }
        let names: Vec<String> = self.models().into_iter().map(|(model, _)| model).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(ProviderError::UnknownModel { model: wanted.chars().take(100).collect(), known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(seconds_or_date("2"), Some(Duration::from_secs(2)));
        assert_eq!(seconds_or_date("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(seconds_or_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO), "it has passed");
        assert_eq!(
            httpdate("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777))
        );
        for nonsense in ["", "-1", "soon", "NaN", "Sun, 00 Nov 1994 08:49:37 GMT", "inf"] {
            assert_eq!(seconds_or_date(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_model_is_found_by_list_by_prefix_or_because_there_is_one_provider() {
        let mut settings = GatewaySettings::default();
        let mut one = ProviderSettings::new("http://127.0.0.1:1/v1");
        let mut small = ModelSettings::default();
        (small.context_window, small.name) = (Some(8_000), Some("vendor-small".to_owned()));
        one.models.insert("small".to_owned(), small);
        settings.providers.insert("one".to_owned(), one);
        let found = |settings: &GatewaySettings, model: &str| {
            let model = Providers::from_settings(settings).unwrap().model(model);
            model.map(|model| (model.provider.name().to_owned(), model.name, model.context_window))
        };
        let listed = ("one".to_owned(), "vendor-small".to_owned(), Some(8_000));
        assert_eq!(found(&settings, "small"), Ok(listed.clone()));
        assert_eq!(found(&settings, "other"), Ok(("one".to_owned(), "other".to_owned(), None)));
        settings.providers.insert("two".to_owned(), ProviderSettings::new("http://127.0.0.1:2/v1"));
        assert_eq!(found(&settings, "one/small"), Ok(listed));
        assert_eq!(found(&settings, "two/x/y"), Ok(("two".to_owned(), "x/y".to_owned(), None)));
        assert_eq!(
            found(&settings, "other").unwrap_err().to_string(),
            "no provider has the model \"other\"; configured are: small"
        );
    }

    #[test]
    fn an_address_that_is_none_is_told_by_name() {
        for address in ["", "127.0.0.1:1", "ftp://x/v1", "http://"] {
            let error = Provider::from_settings("p", &ProviderSettings::new(address)).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the provider p can not be used: its baseUrl is not an http or https address"
            );
        }
    }
}
