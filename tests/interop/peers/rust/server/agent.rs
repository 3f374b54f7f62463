//! The script of tests/interop/peers/script.py.

use std::time::Duration;

use a2a::*;
use a2a_server::{AgentExecutor, ExecutorContext};
use futures::channel::mpsc;
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::json;
use tokio::sync::broadcast;

const PAUSE: Duration = Duration::from_millis(5);
const QUESTION: &str = "What is your name?";
const FAILURE: &str = "it broke";
const BARE: &str = "just a message";

type Events = BoxStream<'static, Result<StreamResponse, A2AError>>;

/// Plays the script. A task that works until it is canceled learns of it from `canceled`.
pub struct Scripted {
    canceled: broadcast::Sender<TaskId>,
}

impl Default for Scripted {
    fn default() -> Self {
        Scripted {
            canceled: broadcast::channel(16).0,
        }
    }
}

impl AgentExecutor for Scripted {
    fn execute(&self, ctx: ExecutorContext) -> Events {
        let (sender, events) = mpsc::unbounded();
        let play = Play {
            ids: (ctx.task_id.clone(), ctx.context_id.clone()),
            sender,
        };
        tokio::spawn(play.run(ctx, self.canceled.subscribe()));
        events.map(Ok).boxed()
    }

    fn cancel(&self, ctx: ExecutorContext) -> Events {
        let _ = self.canceled.send(ctx.task_id.clone());
        let play = status_of(&(ctx.task_id, ctx.context_id), TaskState::Canceled, None);
        stream::once(async move { Ok(play) }).boxed()
    }
}

/// One message, and where its events go.
struct Play {
    ids: (TaskId, String),
    sender: mpsc::UnboundedSender<StreamResponse>,
}

impl Play {
    async fn run(self, ctx: ExecutorContext, mut canceled: broadcast::Receiver<TaskId>) {
        let text = ctx
            .message
            .as_ref()
            .and_then(Message::text)
            .unwrap_or("")
            .trim()
            .to_owned();
        let asked = ctx
            .stored_task
            .is_some_and(|task| task.status.state == TaskState::InputRequired);
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        if word == "message" {
            self.send(StreamResponse::Message(self.saying(BARE)));
            return;
        }
        self.status(TaskState::Working, None);
        match word {
            _ if asked => self.artifact(Part::text(format!("Hello {text}"))),
            "echo" => self.artifact(Part::text(rest)),
            "stream" => self.chunks(rest.parse().unwrap_or(0)).await,
            "ask" => return self.status(TaskState::InputRequired, Some(QUESTION)),
            "fail" => return self.status(TaskState::Failed, Some(FAILURE)),
            "slow" => return while canceled.recv().await.is_ok_and(|id| id != self.ids.0) {},
            "data" => self.artifact(Part::data(
                json!({"n": 1, "list": [1, 2.5, "x"], "deep": {"ok": true}}),
            )),
            "file" => {
                let file = Part::raw(b"\x00\x01dragoman".to_vec());
                self.artifact(
                    file.with_filename("blob.bin")
                        .with_media_type("application/octet-stream"),
                );
            }
            _ => return self.status(TaskState::Rejected, Some("no such word")),
        }
        self.status(TaskState::Completed, None);
    }

    fn send(&self, event: StreamResponse) {
        let _ = self.sender.unbounded_send(event);
    }

    fn saying(&self, text: &str) -> Message {
        let mut message = Message::new(Role::Agent, vec![Part::text(text)]);
        (message.task_id, message.context_id) = (None, Some(self.ids.1.clone()));
        message
    }

    fn status(&self, state: TaskState, text: Option<&str>) {
        self.send(status_of(
            &self.ids,
            state,
            text.map(|text| self.saying(text)),
        ));
    }

    fn artifact(&self, part: Part) {
        self.update("result", part, false, true);
    }

    async fn chunks(&self, count: usize) {
        for number in 0..count {
            tokio::time::sleep(PAUSE).await;
            self.update(
                "stream",
                Part::text(format!("chunk-{number} ")),
                number > 0,
                number + 1 == count,
            );
        }
    }

    fn update(&self, id: &str, part: Part, append: bool, last: bool) {
        let artifact = Artifact {
            artifact_id: id.into(),
            name: None,
            description: None,
            parts: vec![part],
            metadata: None,
            extensions: None,
        };
        self.send(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.ids.0.clone(),
            context_id: self.ids.1.clone(),
            artifact,
            append: Some(append),
            last_chunk: Some(last),
            metadata: None,
        }));
    }
}

fn status_of(ids: &(TaskId, String), state: TaskState, message: Option<Message>) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: ids.0.clone(),
        context_id: ids.1.clone(),
        status: TaskStatus {
            state,
            message,
            timestamp: None,
        },
        metadata: None,
    })
}
