//! The agent under test, seen through one client of one interface, and what a case expects of it.

use std::sync::Arc;

use a2a::*;
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::auth::AuthInterceptor;
use a2a_client::{A2AClient, A2AClientFactory, Transport};
use futures::stream::{BoxStream, StreamExt};
use serde_json::{Value, json};

/// What a case saw, or what is wrong.
pub type Outcome<T> = Result<T, String>;
pub type Events = BoxStream<'static, Result<StreamResponse, A2AError>>;

pub struct Peer {
    pub url: String,
    pub card: AgentCard,
    pub client: A2AClient<Box<dyn Transport>>,
}

pub fn expect(condition: bool, complaint: impl FnOnce() -> String) -> Outcome<()> {
    if condition { Ok(()) } else { Err(complaint()) }
}

/// What the SDK returned, or the complaint that it could not.
pub fn got<T>(result: Result<T, A2AError>) -> Outcome<T> {
    result.map_err(|error| format!("{} ({})", error.message, error.code))
}

/// The SDK returned one of these errors.
pub fn refused<T>(result: Result<T, A2AError>, wanted: &[i32]) -> Outcome<()> {
    match result {
        Ok(_) => Err(format!("nothing was refused, wanted {wanted:?}")),
        Err(error) if wanted.contains(&error.code) => Ok(()),
        Err(error) => Err(format!(
            "refused with {:?} ({}), wanted {wanted:?}",
            error.message, error.code
        )),
    }
}

pub fn saying(text: &str) -> Vec<Part> {
    vec![Part::text(text)]
}

pub fn calling(skill: &str, arguments: Value) -> Vec<Part> {
    vec![Part::data(json!({"tool": skill, "arguments": arguments}))]
}

pub fn request_of(parts: Vec<Part>) -> SendMessageRequest {
    SendMessageRequest {
        message: Message::new(Role::User, parts),
        configuration: None,
        metadata: None,
        tenant: None,
    }
}

pub fn to_task(parts: Vec<Part>, task: &str, context: Option<&str>) -> SendMessageRequest {
    let mut request = request_of(parts);
    request.message.task_id = Some(task.into());
    request.message.context_id = context.map(Into::into);
    request
}

impl Peer {
    /// Reads the card and makes a client of the one interface to test.
    pub async fn discover(url: &str, binding: &str, version: &str) -> Outcome<Peer> {
        let mut card = got(AgentCardResolver::new(None).resolve(url).await)?;
        let offered = card.supported_interfaces.clone();
        card.supported_interfaces
            .retain(|each| each.protocol_binding == binding && each.protocol_version == version);
        let narrow = card.supported_interfaces.first();
        let url = narrow
            .ok_or_else(|| format!("the card offers {offered:?}, not {binding} {version}"))?
            .url
            .clone();
        let client = got(A2AClientFactory::builder()
            .build()
            .create_from_card(&card)
            .await)?;
        Ok(Peer { url, card, client })
    }

    /// A client that says who calls.
    pub async fn with_token(&self) -> Outcome<A2AClient<Box<dyn Transport>>> {
        let factory = A2AClientFactory::builder()
            .with_interceptor(Arc::new(AuthInterceptor::bearer("open-sesame")));
        got(factory.build().create_from_card(&self.card).await)
    }

    pub async fn send(&self, request: SendMessageRequest) -> Outcome<Task> {
        match got(self.client.send_message(&request).await)? {
            SendMessageResponse::Task(task) => Ok(task),
            SendMessageResponse::Message(message) => Err(format!("wanted a task, got {message:?}")),
        }
    }

    pub async fn send_parts(&self, parts: Vec<Part>) -> Outcome<Task> {
        self.send(request_of(parts)).await
    }

    pub async fn send_at_once(&self, parts: Vec<Part>) -> Outcome<Task> {
        let mut request = request_of(parts);
        request.configuration = Some(SendMessageConfiguration {
            accepted_output_modes: None,
            task_push_notification_config: None,
            history_length: None,
            return_immediately: Some(true),
        });
        self.send(request).await
    }

    pub async fn stream(&self, request: SendMessageRequest) -> Outcome<Vec<StreamResponse>> {
        drained(got(self.client.send_streaming_message(&request).await)?).await
    }

    pub async fn subscribe(&self, id: &str) -> Result<Events, A2AError> {
        self.client
            .subscribe_to_task(&SubscribeToTaskRequest {
                id: id.into(),
                tenant: None,
            })
            .await
    }

    pub async fn get(&self, id: &str, history_length: Option<i32>) -> Result<Task, A2AError> {
        self.client
            .get_task(&GetTaskRequest {
                id: id.into(),
                history_length,
                tenant: None,
            })
            .await
    }

    pub async fn cancel(&self, id: &str) -> Result<Task, A2AError> {
        self.client
            .cancel_task(&CancelTaskRequest {
                id: id.into(),
                metadata: None,
                tenant: None,
            })
            .await
    }

    /// A task that is working and stays so until it is canceled.
    pub async fn start_slow(&self) -> Outcome<Task> {
        let mut task = self.send_at_once(calling("slow", json!({}))).await?;
        while task.status.state != TaskState::Working {
            expect(!task.status.state.is_terminal(), || {
                format!("slow became {:?}", task.status.state)
            })?;
            task = got(self.get(&task.id, None).await)?;
        }
        Ok(task)
    }

    /// A task that waits for the answer to its question.
    pub async fn ask_name(&self) -> Outcome<Task> {
        let task = self.send_parts(calling("ask_name", json!({}))).await?;
        expect_state(&task, TaskState::InputRequired)?;
        expect(text_of(&task) == "Your name?", || {
            format!("it asks {:?}", text_of(&task))
        })?;
        Ok(task)
    }
}

pub async fn drained(mut events: Events) -> Outcome<Vec<StreamResponse>> {
    let mut all = vec![];
    while let Some(event) = events.next().await {
        all.push(got(event)?);
    }
    Ok(all)
}

pub fn expect_state(task: &Task, wanted: TaskState) -> Outcome<()> {
    let state = &task.status.state;
    expect(*state == wanted, || {
        format!("state is {state:?}, wanted {wanted:?}: {:?}", text_of(task))
    })
}

pub fn expect_ids(events: &[StreamResponse], task: &str, context: &str) -> Outcome<()> {
    for event in events {
        let (own_task, own_context) = match event {
            StreamResponse::Task(each) => (&each.id, &each.context_id),
            StreamResponse::StatusUpdate(each) => (&each.task_id, &each.context_id),
            StreamResponse::ArtifactUpdate(each) => (&each.task_id, &each.context_id),
            StreamResponse::Message(each) => {
                return Err(format!("a message in the stream: {each:?}"));
            }
        };
        expect(own_task == task && own_context == context, || {
            format!("{event:?} has other ids than {task}, {context}")
        })?;
    }
    Ok(())
}

pub fn text_of_parts(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect()
}

/// All a human would read: the artifacts, else the message of the status.
pub fn text_of(task: &Task) -> String {
    let artifacts = task.artifacts.iter().flatten();
    let text: String = artifacts.map(|each| text_of_parts(&each.parts)).collect();
    let said = task
        .status
        .message
        .as_ref()
        .map(|message| text_of_parts(&message.parts));
    if text.is_empty() {
        said.unwrap_or_default()
    } else {
        text
    }
}

/// The artifacts as a caller assembles them: a snapshot, then chunks that append or replace.
pub fn streamed_text(events: &[StreamResponse]) -> String {
    let mut texts: Vec<(ArtifactId, String)> = vec![];
    let mut put = |artifact: &Artifact, append: bool| {
        let text = text_of_parts(&artifact.parts);
        match texts.iter_mut().find(|(id, _)| *id == artifact.artifact_id) {
            Some((_, before)) if append => before.push_str(&text),
            Some((_, before)) => *before = text,
            None => texts.push((artifact.artifact_id.clone(), text)),
        }
    };
    for event in events {
        match event {
            StreamResponse::Task(task) => task
                .artifacts
                .iter()
                .flatten()
                .for_each(|each| put(each, false)),
            StreamResponse::ArtifactUpdate(update) => {
                put(&update.artifact, update.append.unwrap_or(false))
            }
            _ => {}
        }
    }
    texts.into_iter().map(|(_, text)| text).collect()
}

pub fn last_state(events: &[StreamResponse]) -> Option<TaskState> {
    match events.last()? {
        StreamResponse::Task(task) => Some(task.status.state.clone()),
        StreamResponse::StatusUpdate(update) => Some(update.status.state.clone()),
        _ => None,
    }
}
