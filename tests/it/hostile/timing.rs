//! When things happen: after the end, at the deadline, never.

use std::time::Duration;

use serde_json::json;
use toolbridge::outcome::RunErrorCode::{Deadlock, Timeout, UnhandledRejection};

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::endless("T86", "await openclaw.tools.call('slow', {})"),
        Case::endless("T86", "await Promise.all(Array.from({ length: 40 }, () => openclaw.tools.call('slow', {})))"),
        Case::endless("T86", "openclaw.tools.call('slow', {}); return 1"),
        Case::code(
            "T86",
            "await Promise.race([openclaw.tools.call('slow', {}), openclaw.tools.call('echo', {})])",
            Timeout,
        )
        .with(|limits| limits.code_timeout = Duration::from_millis(200)),
        Case::code("T87", "await new Promise(() => {})", Deadlock),
        Case::code("T87", "await openclaw.tools.call('echo', {}); await new Promise(() => {})", Deadlock),
        Case::code("T89", "Promise.reject(new Error('x')); return 1", UnhandledRejection),
        Case::code("T89", "openclaw.tools.call('fail', {}); return 1", UnhandledRejection),
        Case::value("T89", "openclaw.tools.call('fail', {}).catch(() => {}); return 1", json!(1)),
        Case::value(
            "T89",
            "const registry = new FinalizationRegistry(() => openclaw.tools.call('echo', {})); for (let i = 0; i < 1e5; i++) registry.register({}, i); return 1",
            json!(1),
        ),
    ]
}
