//! The cases. Each is given the peer, and tells what it saw or what is wrong.

use a2a::error_code::*;
use a2a::*;
use futures::stream::StreamExt;
use serde_json::json;

use crate::peer::*;

const ONLY_FOR_THE_LOG: &str = "swordfish";
const HOOK: &str = "https://example.com/hook";
const REFUSALS: [i32; 5] = [
    INVALID_REQUEST,
    INVALID_PARAMS,
    TASK_NOT_FOUND,
    TASK_NOT_CANCELABLE,
    UNSUPPORTED_OPERATION,
];

pub const NAMES: [&str; 22] = [
    "send",
    "send_reply",
    "stream",
    "stream_reply",
    "return_immediately",
    "get_task",
    "get_unknown",
    "list_tasks",
    "cancel",
    "cancel_finished",
    "subscribe",
    "subscribe_terminal",
    "multi_turn",
    "wrong_context",
    "terminal_message",
    "failed",
    "rejected",
    "data_roundtrip",
    "file_roundtrip",
    "push_config",
    "push_list_delete",
    "extended_card",
];

pub async fn run(name: &str, peer: &Peer) -> Outcome<String> {
    match name {
        "send" => send(peer).await,
        "send_reply" => send_reply(peer).await,
        "stream" => stream(peer).await,
        "stream_reply" => stream_reply(peer).await,
        "return_immediately" => return_immediately(peer).await,
        "get_task" => get_task(peer).await,
        "get_unknown" => get_unknown(peer).await,
        "list_tasks" => list_tasks(peer).await,
        "cancel" => cancel(peer).await,
        "cancel_finished" => cancel_finished(peer).await,
        "subscribe" => subscribe(peer).await,
        "subscribe_terminal" => subscribe_terminal(peer).await,
        "multi_turn" => multi_turn(peer).await,
        "wrong_context" => wrong_context(peer).await,
        "terminal_message" => terminal_message(peer).await,
        "failed" => failed(peer).await,
        "rejected" => rejected(peer).await,
        "data_roundtrip" => data_roundtrip(peer).await,
        "file_roundtrip" => file_roundtrip(peer).await,
        "push_config" => push_config(peer).await,
        "push_list_delete" => push_list_delete(peer).await,
        "extended_card" => extended_card(peer).await,
        _ => Err(format!("no case is named {name}")),
    }
}

async fn send(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(saying("hello")).await?;
    expect_state(&task, TaskState::Completed)?;
    expect(text_of(&task) == "hello", || {
        format!("echo answered {:?}", text_of(&task))
    })?;
    expect(task.artifacts.is_some(), || {
        "the text is not in an artifact".into()
    })?;
    Ok(format!("task {} completed", task.id))
}

async fn send_reply(peer: &Peer) -> Outcome<String> {
    match got(peer
        .client
        .send_message(&request_of(calling("reply", json!({"text": "hi"}))))
        .await)?
    {
        SendMessageResponse::Message(message) if text_of_parts(&message.parts) == "hi" => {
            Ok("a bare message".into())
        }
        other => Err(format!("wanted a message, got {other:?}")),
    }
}

async fn stream(peer: &Peer) -> Outcome<String> {
    let events = peer
        .stream(request_of(calling("count", json!({"n": 3}))))
        .await?;
    let Some(StreamResponse::Task(task)) = events.first() else {
        return Err(format!("the first event must be a task: {events:?}"));
    };
    expect(streamed_text(&events) == "1 2 3 ", || {
        format!("the chunks make {:?}", streamed_text(&events))
    })?;
    expect(last_state(&events) == Some(TaskState::Completed), || {
        format!("it ends with {:?}", events.last())
    })?;
    expect_ids(&events, &task.id, &task.context_id)?;
    Ok(format!("{} events", events.len()))
}

async fn stream_reply(peer: &Peer) -> Outcome<String> {
    let events = peer
        .stream(request_of(calling("reply", json!({"text": "hi"}))))
        .await?;
    match events.as_slice() {
        [StreamResponse::Message(message)] if text_of_parts(&message.parts) == "hi" => {
            Ok("one message".into())
        }
        _ => Err(format!("wanted one message, got {events:?}")),
    }
}

async fn return_immediately(peer: &Peer) -> Outcome<String> {
    let task = peer.send_at_once(calling("slow", json!({}))).await?;
    expect(!task.status.state.is_terminal(), || {
        format!("state is {:?}", task.status.state)
    })?;
    expect_state(&got(peer.cancel(&task.id).await)?, TaskState::Canceled)?;
    Ok(format!("came back {:?}", task.status.state))
}

async fn get_task(peer: &Peer) -> Outcome<String> {
    let sent = peer.send_parts(saying("hello")).await?;
    let whole = got(peer.get(&sent.id, None).await)?;
    expect_state(&whole, TaskState::Completed)?;
    expect(
        (&whole.id, &whole.context_id) == (&sent.id, &sent.context_id),
        || "other ids".into(),
    )?;
    expect(text_of(&whole) == "hello", || {
        format!("its text is {:?}", text_of(&whole))
    })?;
    let count = |task: Task| task.history.map_or(0, |history| history.len());
    let (none, one) = (
        count(got(peer.get(&sent.id, Some(0)).await)?),
        count(got(peer.get(&sent.id, Some(1)).await)?),
    );
    expect((none, one) == (0, 1), || {
        format!("history lengths 0 and 1 gave {none} and {one}")
    })?;
    Ok(format!("{} messages in the whole history", count(whole)))
}

async fn get_unknown(peer: &Peer) -> Outcome<String> {
    refused(peer.get(&new_task_id(), None).await, &[TASK_NOT_FOUND])?;
    Ok("TaskNotFound".into())
}

async fn list_tasks(peer: &Peer) -> Outcome<String> {
    let stranger = peer.send_parts(saying("another context")).await?;
    let first = peer.send_parts(saying("one")).await?;
    let mut request = request_of(saying("two"));
    request.message.context_id = Some(first.context_id.clone());
    let second = peer.send(request).await?;
    expect(
        second.context_id == first.context_id && second.id != first.id,
        || "the second is not beside it".into(),
    )?;

    let mut wanted = vec![first.id, second.id];
    let mut listing = ListTasksRequest {
        context_id: Some(first.context_id),
        status: None,
        page_size: Some(1),
        page_token: None,
        history_length: None,
        status_timestamp_after: None,
        include_artifacts: None,
        tenant: None,
    };
    for last in [false, true] {
        let page = got(peer.client.list_tasks(&listing).await)?;
        let sizes = (page.total_size, page.page_size, page.tasks.len());
        expect(sizes == (2, 1, 1), || {
            format!("total size, page size and tasks are {sizes:?}")
        })?;
        expect(page.next_page_token.is_empty() == last, || {
            format!("the next page is {:?}", page.next_page_token)
        })?;
        expect(
            page.tasks[0].artifacts.as_ref().is_none_or(Vec::is_empty),
            || "artifacts without being asked".into(),
        )?;
        wanted.retain(|id| *id != page.tasks[0].id);
        listing.page_token = Some(page.next_page_token);
    }
    expect(wanted.is_empty(), || format!("not listed: {wanted:?}"))?;

    (listing.context_id, listing.page_size, listing.page_token) =
        (Some(stranger.context_id), None, None);
    listing.include_artifacts = Some(true);
    let detailed = got(peer.client.list_tasks(&listing).await)?.tasks;
    let right = detailed.len() == 1
        && detailed[0].id == stranger.id
        && text_of(&detailed[0]) == "another context";
    expect(right, || format!("the filter gave {detailed:?}"))?;
    Ok("two pages of one".into())
}

async fn cancel(peer: &Peer) -> Outcome<String> {
    let task = peer.start_slow().await?;
    expect_state(&got(peer.cancel(&task.id).await)?, TaskState::Canceled)?;
    expect_state(&got(peer.get(&task.id, None).await)?, TaskState::Canceled)?;
    refused(peer.cancel(&task.id).await, &[TASK_NOT_CANCELABLE])?;
    Ok("canceled, then TaskNotCancelable".into())
}

async fn cancel_finished(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(saying("hello")).await?;
    refused(peer.cancel(&task.id).await, &[TASK_NOT_CANCELABLE])?;
    Ok("TaskNotCancelable".into())
}

async fn subscribe(peer: &Peer) -> Outcome<String> {
    let task = peer.start_slow().await?;
    let mut reader = got(peer.subscribe(&task.id).await)?;
    let first = reader.next().await.ok_or("the stream is empty")?;
    let mut events = vec![got(first)?];
    expect(matches!(events[0], StreamResponse::Task(_)), || {
        format!("the first event is {:?}", events[0])
    })?;
    got(peer.cancel(&task.id).await)?;
    events.extend(drained(reader).await?);
    expect(last_state(&events) == Some(TaskState::Canceled), || {
        format!("it ends with {:?}", events.last())
    })?;
    expect_ids(&events, &task.id, &task.context_id)?;
    Ok(format!("{} events", events.len()))
}

async fn subscribe_terminal(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(saying("hello")).await?;
    // The refusal may be the answer to the call, or all that its stream has.
    let refusal = match peer.subscribe(&task.id).await {
        Ok(mut events) => events.next().await.transpose(),
        Err(error) => Err(error),
    };
    refused(refusal, &[UNSUPPORTED_OPERATION])?;
    Ok("refused".into())
}

async fn multi_turn(peer: &Peer) -> Outcome<String> {
    let asked = peer.ask_name().await?;
    let answered = peer.send(to_task(saying("Ada"), &asked.id, None)).await?;
    expect_state(&answered, TaskState::Completed)?;
    expect(
        (&answered.id, &answered.context_id) == (&asked.id, &asked.context_id),
        || "other ids".into(),
    )?;
    expect(text_of(&answered) == "Hello Ada", || {
        format!("it answered {:?}", text_of(&answered))
    })?;

    let asked = peer.ask_name().await?;
    let events = peer.stream(to_task(saying("Ada"), &asked.id, None)).await?;
    expect(
        matches!(events.first(), Some(StreamResponse::Task(_))),
        || "the stream does not begin with the task".into(),
    )?;
    expect_ids(&events, &asked.id, &asked.context_id)?;
    expect(streamed_text(&events) == "Hello Ada", || {
        format!("the stream says {:?}", streamed_text(&events))
    })?;
    expect(last_state(&events) == Some(TaskState::Completed), || {
        format!("it ends with {:?}", events.last())
    })?;
    Ok("asked and answered, sent and streamed".into())
}

async fn wrong_context(peer: &Peer) -> Outcome<String> {
    let asked = peer.ask_name().await?;
    let request = to_task(saying("Ada"), &asked.id, Some(&new_context_id()));
    refused(peer.client.send_message(&request).await, &REFUSALS)?;
    expect_state(
        &got(peer.get(&asked.id, None).await)?,
        TaskState::InputRequired,
    )?;
    expect_state(&got(peer.cancel(&asked.id).await)?, TaskState::Canceled)?;
    Ok("refused, and the task still waits".into())
}

async fn terminal_message(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(saying("hello")).await?;
    let request = to_task(saying("more"), &task.id, Some(&task.context_id));
    refused(
        peer.client.send_message(&request).await,
        &[UNSUPPORTED_OPERATION],
    )?;
    Ok("refused".into())
}

async fn failed(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(calling("boom", json!({}))).await?;
    expect_state(&task, TaskState::Failed)?;
    expect(!text_of(&task).contains(ONLY_FOR_THE_LOG), || {
        "the text of the exception reached the caller".into()
    })?;
    Ok(text_of(&task))
}

async fn rejected(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(calling("deny", json!({}))).await?;
    expect_state(&task, TaskState::Rejected)?;
    expect(text_of(&task) == "not today", || {
        format!("it says {:?}", text_of(&task))
    })?;
    Ok("not today".into())
}

async fn data_roundtrip(peer: &Peer) -> Outcome<String> {
    // The SDK sends and reads every number as a float.
    let value = json!({
        "number": 7.0, "half": 0.5, "yes": true, "none": null, "list": [1.0, "two", {"three": 3.0}], "text": "ünï",
    });
    let task = peer
        .send_parts(calling("same", json!({"value": value})))
        .await?;
    let artifacts = task.artifacts.unwrap_or_default();
    let seen: Vec<_> = artifacts
        .iter()
        .flat_map(|each| &each.parts)
        .map(|part| &part.content)
        .collect();
    expect(seen == [&PartContent::Data(value.clone())], || {
        format!("{value} came back as {seen:?}")
    })?;
    Ok("equal".into())
}

/// No skill of the agent returns files: the one that was sent must stand in the history as it came.
async fn file_roundtrip(peer: &Peer) -> Outcome<String> {
    let file = Part::raw(b"\x00\x01dragoman".to_vec());
    let file = file
        .with_filename("blob.bin")
        .with_media_type("application/octet-stream");
    let sent = peer
        .send_parts(vec![Part::text("hello"), file.clone()])
        .await?;
    let history = got(peer.get(&sent.id, None).await)?
        .history
        .unwrap_or_default();
    let seen = history.first().and_then(|message| message.parts.get(1));
    expect(seen == Some(&file), || {
        format!("{file:?} came back as {seen:?}")
    })?;
    Ok("equal in the history".into())
}

fn hook_of(task: &Task) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        url: HOOK.into(),
        id: Some("hook".into()),
        task_id: task.id.clone(),
        token: Some("secret".into()),
        authentication: None,
        tenant: None,
    }
}

async fn push_config(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(saying("hello")).await?;
    let made = got(peer.client.create_push_config(&hook_of(&task)).await)?;
    expect(made.url == HOOK, || {
        format!("the address is {:?}", made.url)
    })?;
    let wanted = GetTaskPushNotificationConfigRequest {
        task_id: task.id,
        id: "hook".into(),
        tenant: None,
    };
    let found = got(peer.client.get_push_config(&wanted).await)?;
    expect(found.id.as_deref() == Some("hook"), || {
        format!("the id is {:?}", found.id)
    })?;
    expect(found.token.is_none_or(|token| token.is_empty()), || {
        "the token is shown".into()
    })?;
    Ok("created and read".into())
}

async fn push_list_delete(peer: &Peer) -> Outcome<String> {
    let task = peer.send_parts(saying("hello")).await?;
    got(peer.client.create_push_config(&hook_of(&task)).await)?;
    let listing = ListTaskPushNotificationConfigsRequest {
        task_id: task.id.clone(),
        page_size: None,
        page_token: None,
        tenant: None,
    };
    let listed = got(peer.client.list_push_configs(&listing).await)?.configs;
    expect(
        listed.len() == 1 && listed[0].id.as_deref() == Some("hook"),
        || format!("listed {listed:?}"),
    )?;
    let gone = DeleteTaskPushNotificationConfigRequest {
        task_id: task.id,
        id: "hook".into(),
        tenant: None,
    };
    got(peer.client.delete_push_config(&gone).await)?;
    let left = got(peer.client.list_push_configs(&listing).await)?.configs;
    expect(left.is_empty(), || format!("left are {left:?}"))?;
    Ok("listed and deleted".into())
}

async fn extended_card(peer: &Peer) -> Outcome<String> {
    expect(
        peer.card.capabilities.extended_agent_card == Some(true),
        || "the card claims no extended card".into(),
    )?;
    let client = peer.with_token().await?;
    let extended = got(client
        .get_extended_agent_card(&GetExtendedAgentCardRequest { tenant: None })
        .await)?;
    let listed = |id: &str| peer.card.skills.iter().any(|skill| skill.id == id);
    let more: Vec<_> = extended
        .skills
        .iter()
        .map(|skill| skill.id.as_str())
        .filter(|id| !listed(id))
        .collect();
    expect(more == ["vault"], || {
        format!("beyond the public card it has {more:?}")
    })?;
    Ok("one skill more".into())
}
