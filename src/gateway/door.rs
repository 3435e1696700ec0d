//! Who may knock: which `Host` the gateway answers to, which web pages may use it, and what a connection too many is told.
//!
//! Invariant: without keys nobody but this machine reaches the listener; a page of another origin reaches nothing.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, header};

use super::{problem::Problem, settings::GatewayOptions};
use crate::listen::{self, Protection};

pub(super) fn protection(options: &GatewayOptions) -> Protection {
    if options.settings.keys.is_empty() { Protection::ThisMachine(None) } else { Protection::Keys }
}

/// The answer to a connection that is one too many.
pub(super) fn too_many_connections(max: usize) -> Bytes {
    let message = format!("there are {max} connections already (gateway.maxConnections); try again in a moment");
    let body = Problem::new(503, "server_error", "too_many_connections", message).body().to_string();
    Bytes::from(format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// By which names we are addressed, and from which pages.
pub(super) struct Door {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Door {
    pub(super) fn new(options: &GatewayOptions, address: SocketAddr) -> Self {
        let mut hosts = listen::own_hosts(address);
        hosts.extend(options.settings.hosts.iter().map(|host| host.to_lowercase()));
        let origins = options.settings.origins.iter().map(|origin| origin.to_lowercase());
        let origins = listen::own_origins(address).into_iter().chain(origins);
        Self { hosts, origins: origins.collect() }
    }

    pub(super) fn refuses(&self, headers: &HeaderMap) -> Option<Problem> {
        let refused = |code: &str, message: &str| Some(Problem::new(403, "invalid_request_error", code, message));
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_lowercase();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => &host,
        };
        if !self.hosts.iter().any(|known| known == name) {
            return refused("host_not_allowed", "this gateway does not answer to that Host; see gateway.hosts");
        }
        let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or_default().to_lowercase();
        if self.origins.contains(&origin) {
            return None;
        }
        refused("origin_not_allowed", "pages of that origin may not use this gateway; see gateway.origins")
    }
}
