//! Drives an agent through the official Rust SDK, one JSON line per case.
//!
//!     client URL JSONRPC|HTTP+JSON 1.0 [CASE]
//!
//! The agent must have the skills of tests/interop/agents.py. Exit code 1: a case failed.

mod cases;
mod peer;

use std::time::Duration;

use peer::{Outcome, Peer};
use serde_json::json;

const CASE_TIMEOUT: Duration = Duration::from_secs(20);

/// Plays a case and reports it. None: it failed.
async fn play<T>(
    name: &str,
    case: impl Future<Output = Outcome<T>>,
    detail: impl FnOnce(&T) -> String,
) -> Option<T> {
    let outcome = tokio::time::timeout(CASE_TIMEOUT, case).await;
    let outcome = outcome.unwrap_or_else(|_| Err(format!("no end after {CASE_TIMEOUT:?}")));
    let detail = outcome.as_ref().map_or_else(Clone::clone, detail);
    println!(
        "{}",
        json!({"case": name, "ok": outcome.is_ok(), "detail": detail})
    );
    outcome.ok()
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, binding, version, only @ ..] = arguments.as_slice() else {
        panic!("usage: client URL JSONRPC|HTTP+JSON 1.0 [CASE]");
    };
    let found = play("card", Peer::discover(url, binding, version), |peer| {
        peer.url.clone()
    })
    .await;
    let Some(peer) = found else {
        std::process::exit(1)
    };
    let mut healthy = true;
    for name in cases::NAMES
        .iter()
        .filter(|name| only.is_empty() || only[0] == **name)
    {
        healthy &= play(name, cases::run(name, &peer), String::clone)
            .await
            .is_some();
    }
    std::process::exit(i32::from(!healthy));
}
