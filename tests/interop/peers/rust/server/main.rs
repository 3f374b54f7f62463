//! A scripted agent on the official Rust SDK, for our client to talk to.
//!
//!     server PORT
//!
//! PORT 0 picks a free one. Once it listens on 127.0.0.1 it prints one line, {"url": "http://127.0.0.1:PORT"}.
//! It speaks 1.0 over JSON-RPC and HTTP+JSON. What it does is in agent.rs.

mod agent;

use std::sync::Arc;
use std::time::Duration;

use a2a::{AgentCapabilities, AgentCard, AgentInterface, AgentSkill};
use a2a_server::agent_card::agent_card_router;
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use a2a_server::{
    DefaultRequestHandler, HttpPushSender, HttpPushSenderConfig, InMemoryPushConfigStore,
    InMemoryTaskStore, StaticAgentCard,
};

const NAME: &str = "rust-peer";
const SKILLS: [&str; 8] = [
    "echo", "stream", "ask", "fail", "message", "slow", "data", "file",
];

#[tokio::main]
async fn main() {
    let port = std::env::args().nth(1).expect("usage: server PORT");
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let app = routes_of(&base);
    println!("{}", serde_json::json!({ "url": base }));
    axum::serve(listener, app).await.expect("to serve");
}

fn routes_of(base: &str) -> axum::Router {
    let card = card_of(base);
    let mut extended = card.clone();
    extended.name = format!("{NAME}-extended");
    // Its guard refuses loopback, where the webhooks of tests are.
    let sender = HttpPushSender::new(Some(HttpPushSenderConfig {
        timeout: Duration::from_secs(5),
        validate_urls: false,
        ..Default::default()
    }));
    let handler = DefaultRequestHandler::new(agent::Scripted::default(), InMemoryTaskStore::new())
        .with_push_notifications(InMemoryPushConfigStore::new(), sender)
        .with_extended_agent_card(extended)
        .with_capabilities(card.capabilities.clone());
    let handler = Arc::new(handler);
    axum::Router::new()
        .merge(agent_card_router(Arc::new(StaticAgentCard::new(card))))
        .nest("/rpc", jsonrpc_router(handler.clone()))
        .merge(rest_router(handler))
}

fn card_of(base: &str) -> AgentCard {
    let skill = |id: &str| AgentSkill {
        id: id.into(),
        name: id.into(),
        description: format!("Chosen by the first word: {id}"),
        tags: vec!["interop".into()],
        examples: None,
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    };
    AgentCard {
        name: NAME.into(),
        description: "Behaves in every way a server may".into(),
        version: "1.0.0".into(),
        supported_interfaces: vec![
            AgentInterface::new(format!("{base}/rpc"), a2a::TRANSPORT_PROTOCOL_JSONRPC),
            AgentInterface::new(base, a2a::TRANSPORT_PROTOCOL_HTTP_JSON),
        ],
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(true),
            extensions: None,
            extended_agent_card: Some(true),
        },
        default_input_modes: vec!["text/plain".into()],
        default_output_modes: vec![
            "text/plain".into(),
            "application/json".into(),
            "application/octet-stream".into(),
        ],
        skills: SKILLS.map(skill).into(),
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    }
}
