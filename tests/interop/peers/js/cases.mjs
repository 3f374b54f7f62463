// What the client of @a2a-js/sdk must see when it drives the agent of tests/interop/agents.py: see client.mjs.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { isDeepStrictEqual } from "node:util";

const load = createRequire(new URL("../../../../.peers/js/", import.meta.url));
const { ListTasksRequest, Role, SendMessageRequest, TaskState } = load("@a2a-js/sdk");
const { A2AError } = load("@a2a-js/sdk/errors");

const NOT_IN_0_3 = "not in 0.3";
const TOLD_ONLY_TO_THE_LOG = "swordfish";
const ANY_REFUSAL = "any A2A error";
const UNREADABLE_CODES = [-32601, -32700];
const TERMINAL = ["COMPLETED", "FAILED", "CANCELED", "REJECTED"];

/** The agent's answer is not what the case asks for. */
export class CaseFailed extends Error {}

// --- asking and expecting

export function expect(condition, complaint) {
  if (!condition) throw new CaseFailed(complaint);
}

export function expectEqual(seen, wanted, what) {
  expect(isDeepStrictEqual(seen, wanted), `${what} is ${JSON.stringify(seen)}, wanted ${JSON.stringify(wanted)}`);
}

function expectState(task, wanted) {
  expect(stateOf(task) === wanted, `state is ${stateOf(task)}, wanted ${wanted}: ${JSON.stringify(textOf(task))}`);
}

let requestsSent = 0;

/** The SDK refuses some calls without asking the agent, which would prove nothing: so its requests are counted. */
export function countingFetch(...request) {
  requestsSent += 1;
  return fetch(...request);
}

/** The same for gRPC: an interceptor of its calls. */
export function countingCall(options, nextCall) {
  requestsSent += 1;
  return nextCall(options);
}

/** The call must reach the agent and throw an error of one of these names, the SDK's own. */
async function refusing(call, ...wanted) {
  const before = requestsSent;
  let thrown;
  try {
    await call();
  } catch (error) {
    thrown = error;
  }
  expect(thrown !== undefined, `nothing was thrown, wanted ${wanted.join(" or ")}`);
  // Inside a stream of 0.3 the SDK throws a plain Error, with its own error as the cause.
  const refusal = thrown instanceof A2AError ? thrown : thrown.cause;
  const named = refusal instanceof A2AError && (isNamed(refusal, wanted) || isAnyRefusal(refusal, wanted));
  expect(named, `threw ${described(thrown)}, wanted ${wanted.join(" or ")}`);
  expect(requestsSent > before, `the SDK refused by itself: ${described(thrown)}`);
  return refusal.name;
}

function isNamed(refusal, wanted) {
  return wanted.includes(refusal.name);
}

// The SDK also throws these when it could not read the answer, or when the agent does not know the method (which
// becomes a RequestMalformedError), so they never prove that the agent refused for the right reason.
function isAnyRefusal(refusal, wanted) {
  const isUnreadable = refusal.reason === "INTERNAL_ERROR" || UNREADABLE_CODES.includes(refusal.envelopeCode);
  return wanted.includes(ANY_REFUSAL) && !isUnreadable;
}

export function described(error) {
  return `${error.name}: ${error.message}${error.cause ? ` (${error.cause})` : ""}`;
}

const calling = (tool, args = {}) => [{ data: { tool, arguments: args } }];

const saying = (text) => [{ text }];

function requestOf(parts, { taskId, contextId, returnImmediately = false } = {}) {
  const message = { messageId: randomUUID(), role: "ROLE_USER", parts, taskId, contextId };
  return SendMessageRequest.fromJSON({ message, configuration: { returnImmediately } });
}

async function sendForTask(peer, parts, options) {
  const answer = await peer.client.sendMessage(requestOf(parts, options));
  expect("status" in answer, `wanted a task, got ${JSON.stringify(answer)}`);
  expect(answer.id && answer.contextId, "the task lacks its id or context id");
  return answer;
}

/** A task that is working and stays so until it is cancelled. */
async function startSlow(peer) {
  let task = await sendForTask(peer, calling("slow"), { returnImmediately: true });
  while (stateOf(task) !== "WORKING") {
    expect(!TERMINAL.includes(stateOf(task)), `slow became ${stateOf(task)}`);
    task = await getTask(peer, task.id);
  }
  return task;
}

/** A task that waits for the answer to its question. */
async function askName(peer) {
  const task = await sendForTask(peer, calling("ask_name"));
  expectState(task, "INPUT_REQUIRED");
  expectEqual(partsText(task.status.message.parts), "Your name?", "the question");
  return task;
}

const getTask = (peer, id, historyLength) => peer.client.getTask({ tenant: "", id, historyLength });

const cancelTask = (peer, id) => peer.client.cancelTask({ tenant: "", id, metadata: undefined });

const streaming = (peer, parts, options) => drained(peer.client.sendMessageStream(requestOf(parts, options)));

async function drained(events) {
  const all = [];
  for await (const event of events) all.push(event.payload);
  return all;
}

// --- reading

const nameOf = (state) => (TaskState[state] ?? `unknown ${state}`).replace("TASK_STATE_", "");

const stateOf = (task) => nameOf(task.status.state);

const partsText = (parts) => parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");

/** All a human would read: the artifacts, else the message of the status. */
function textOf(task) {
  const artifacts = task.artifacts.map((artifact) => partsText(artifact.parts)).join("");
  return artifacts || partsText(task.status.message?.parts ?? []);
}

function lastStateOf(events) {
  const last = events.at(-1);
  expect(["statusUpdate", "task"].includes(last?.$case), `the last event is ${last?.$case}`);
  return stateOf(last.value);
}

const idsOf = ({ $case, value }) => `${$case === "task" ? value.id : value.taskId} ${value.contextId}`;

/** The artifacts as a caller assembles them: a snapshot, then chunks that append or replace. */
function streamedText(events) {
  const texts = new Map();
  for (const { $case, value } of events) {
    for (const each of $case === "task" ? value.artifacts : []) texts.set(each.artifactId, partsText(each.parts));
    if ($case === "artifactUpdate") {
      const { artifactId, parts } = value.artifact;
      texts.set(artifactId, (value.append ? (texts.get(artifactId) ?? "") : "") + partsText(parts));
    }
  }
  return [...texts.values()].join("");
}

// --- the cases, each returning a detail for the report

export const CASES = {
  async send(peer) {
    const task = await sendForTask(peer, saying("hello"));
    expectState(task, "COMPLETED");
    expectEqual(textOf(task), "hello", "the echo");
    expect(task.artifacts.length > 0, "the text is not in an artifact");
    return `task ${task.id} completed`;
  },

  async send_reply(peer) {
    const answer = await peer.client.sendMessage(requestOf(calling("reply", { text: "hi" })));
    expect("messageId" in answer, `wanted a message, got ${JSON.stringify(answer)}`);
    expectEqual(answer.role, Role.ROLE_AGENT, "the role");
    expectEqual(partsText(answer.parts), "hi", "the message");
    return "a bare message";
  },

  async stream(peer) {
    const events = await streaming(peer, calling("count", { n: 3 }));
    const kinds = events.map((event) => event.$case);
    expectEqual(kinds[0], "task", `of the events ${kinds} the first`);
    expect(kinds.includes("artifactUpdate"), `no artifact chunk in ${kinds}`);
    expectEqual(streamedText(events), "1 2 3 ", "the text of the chunks");
    expectEqual(lastStateOf(events), "COMPLETED", "the last state");
    expectEqual(new Set(events.map(idsOf)).size, 1, "the number of different task and context ids");
    return kinds.join(", ");
  },

  async stream_reply(peer) {
    const events = await streaming(peer, calling("reply", { text: "hi" }));
    expectEqual(events.map((event) => event.$case), ["message"], "the list of events");
    expectEqual(partsText(events[0].value.parts), "hi", "the message");
    return "one message";
  },

  async return_immediately(peer) {
    const task = await sendForTask(peer, calling("slow"), { returnImmediately: true });
    expect(!TERMINAL.includes(stateOf(task)), `state is ${stateOf(task)}`);
    expectState(await cancelTask(peer, task.id), "CANCELED");
    return `came back ${stateOf(task)}`;
  },

  async get_task(peer) {
    const sent = await sendForTask(peer, saying("hello"));
    const whole = await getTask(peer, sent.id);
    expectState(whole, "COMPLETED");
    expectEqual([whole.id, whole.contextId], [sent.id, sent.contextId], "the pair of ids");
    expectEqual(textOf(whole), "hello", "the text");
    const all = whole.history.length;
    expect(all >= 1, "the history lacks the user's message");

    // What 0 means in 0.3 was never settled, see a2a_sdk_driver.py.
    const none = (await getTask(peer, sent.id, 0)).history.length;
    expect(none === 0 || (peer.isLegacy && none === all), `historyLength 0 gave ${none} messages of ${all}`);
    expectEqual((await getTask(peer, sent.id, 1)).history.length, 1, "the history of historyLength 1");
    return `${all} messages in the whole history`;
  },

  async get_unknown(peer) {
    return refusing(() => getTask(peer, randomUUID()), "TaskNotFoundError");
  },

  async list_tasks(peer) {
    if (peer.isLegacy) return NOT_IN_0_3;
    const list = (query) => peer.client.listTasks(ListTasksRequest.fromJSON(query));
    const stranger = await sendForTask(peer, saying("another context"));
    const first = await sendForTask(peer, saying("one"));
    const { contextId } = first;
    const second = await sendForTask(peer, saying("two"), { contextId });
    expectEqual(second.contextId, contextId, "the context id of the second task");
    expect(second.id !== first.id, "a message with only a context id continued the old task");

    const listed = [];
    let pageToken = "";
    for (const isLast of [false, true]) {
      const page = await list({ contextId, pageSize: 1, pageToken });
      const { totalSize, pageSize, tasks, nextPageToken } = page;
      expectEqual([totalSize, pageSize, tasks.length], [2, 1, 1], "[totalSize, pageSize, tasks]");
      expect((nextPageToken === "") === isLast, `nextPageToken is ${nextPageToken}, last=${isLast}`);
      listed.push(...tasks);
      pageToken = nextPageToken;
    }
    expectEqual(listed.map((task) => task.id).sort(), [first.id, second.id].sort(), "what the two pages list");
    expect(listed.every((task) => task.artifacts.length === 0), "artifacts were listed without being asked for");

    const detailed = await list({ contextId: stranger.contextId, includeArtifacts: true });
    expectEqual(detailed.tasks.map((task) => task.id), [stranger.id], "what the filter by context id lists");
    expectEqual(textOf(detailed.tasks[0]), "another context", "the listed artifact");
    return "two pages of one";
  },

  async cancel(peer) {
    const task = await startSlow(peer);
    expectState(await cancelTask(peer, task.id), "CANCELED");
    expectState(await getTask(peer, task.id), "CANCELED");
    return `canceled, then ${await refusing(() => cancelTask(peer, task.id), "TaskNotCancelableError")}`;
  },

  async cancel_finished(peer) {
    const task = await sendForTask(peer, saying("hello"));
    return refusing(() => cancelTask(peer, task.id), "TaskNotCancelableError");
  },

  async subscribe(peer) {
    const task = await startSlow(peer);
    const events = peer.client.resubscribeTask({ tenant: "", id: task.id });
    const first = (await events.next()).value?.payload;
    expectEqual(first?.$case, "task", "the first event");
    await cancelTask(peer, task.id);
    const rest = await drained(events);
    expect(rest.length > 0, "the stream ended without telling that the task was canceled");
    expectEqual(lastStateOf(rest), "CANCELED", "the last state");
    const ids = [...new Set([first, ...rest].map(idsOf))];
    expectEqual(ids, [`${task.id} ${task.contextId}`], "the set of task and context ids");
    return `${1 + rest.length} events`;
  },

  async subscribe_terminal(peer) {
    const task = await sendForTask(peer, saying("hello"));
    const subscribing = () => drained(peer.client.resubscribeTask({ tenant: "", id: task.id }));
    return refusing(subscribing, peer.isLegacy ? ANY_REFUSAL : "UnsupportedOperationError");
  },

  async multi_turn(peer) {
    const asked = await askName(peer);
    const answered = await sendForTask(peer, saying("Ada"), { taskId: asked.id });
    expectState(answered, "COMPLETED");
    expectEqual([answered.id, answered.contextId], [asked.id, asked.contextId], "the pair of ids");
    expectEqual(textOf(answered), "Hello Ada", "the answer");

    const again = await askName(peer);
    const events = await streaming(peer, saying("Ada"), { taskId: again.id, contextId: again.contextId });
    expectEqual(streamedText(events), "Hello Ada", "the streamed answer");
    expectEqual(lastStateOf(events), "COMPLETED", "the last state");
    return "asked and answered, sent and streamed";
  },

  async wrong_context(peer) {
    const asked = await askName(peer);
    const options = { taskId: asked.id, contextId: randomUUID() };
    const refusal = await refusing(() => sendForTask(peer, saying("Ada"), options), ANY_REFUSAL);
    expectState(await getTask(peer, asked.id), "INPUT_REQUIRED");
    expectState(await cancelTask(peer, asked.id), "CANCELED");
    return `${refusal}, and the task still waits`;
  },

  async terminal_message(peer) {
    const { id: taskId, contextId } = await sendForTask(peer, saying("hello"));
    const sending = () => sendForTask(peer, saying("more"), { taskId, contextId });
    return refusing(sending, peer.isLegacy ? ANY_REFUSAL : "UnsupportedOperationError");
  },

  async failed(peer) {
    const task = await sendForTask(peer, calling("boom"));
    expectState(task, "FAILED");
    expect(!JSON.stringify(task).includes(TOLD_ONLY_TO_THE_LOG), "the text of the exception reached the caller");
    return textOf(task);
  },

  async rejected(peer) {
    const task = await sendForTask(peer, calling("deny"));
    expectState(task, "REJECTED");
    expectEqual(textOf(task), "not today", "the reason");
    return "not today";
  },

  async data_roundtrip(peer) {
    const value = { number: 7, half: 0.5, yes: true, none: null, list: [1, "two", { three: 3 }], text: "ünï" };
    const task = await sendForTask(peer, calling("same", { value }));
    expectState(task, "COMPLETED");
    const parts = task.artifacts.flatMap((artifact) => artifact.parts);
    const seen = parts.filter((part) => part.content?.$case === "data").map((part) => part.content.value);
    expectEqual(seen, [value], "the data that came back");
    return "equal";
  },

  /** A file goes in with the user's message and comes back, byte for byte, in the task's history. */
  async file_roundtrip(peer) {
    const raw = Buffer.concat([Buffer.from([0, 1, 255]), Buffer.from("dragoman")]);
    const file = { raw: raw.toString("base64"), filename: "blob.bin", mediaType: "application/octet-stream" };
    const sent = await sendForTask(peer, [...saying("hello"), file]);
    expectState(sent, "COMPLETED");
    const task = await getTask(peer, sent.id);
    const parts = task.history.flatMap((message) => message.parts);
    const [seen] = parts.filter((part) => part.content?.$case === "raw");
    expect(seen, `no file in the history: ${JSON.stringify(task.history)}`);
    expect(raw.equals(seen.content.value), `the bytes came back as ${seen.content.value.toString("hex")}`);
    expectEqual(seen.mediaType, file.mediaType, "the media type");
    // The SDK's proto of 0.3 has no field for the name, neither to send nor to read it.
    const isNamed = !(peer.isLegacy && peer.transport !== "JSONRPC");
    expectEqual(seen.filename, isNamed ? file.filename : "", "the file name");
    return isNamed ? "equal" : "equal but for the name, which the SDK does not send";
  },

  async push_config(peer) {
    const task = await sendForTask(peer, saying("hello"));
    const config = { tenant: "", taskId: task.id, id: "hook", url: "https://example.com/hook", token: "secret" };
    const made = await peer.claiming.createTaskPushNotificationConfig({ ...config, authentication: undefined });
    expectEqual(made.url, config.url, "the address");
    const found = await peer.claiming.getTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "hook" });
    expectEqual(found.id, "hook", "the id");
    expectEqual(found.token ?? "", "", "the token, which nobody is shown again");
    return "created and read";
  },

  async push_list_delete(peer) {
    const task = await sendForTask(peer, saying("hello"));
    const config = { tenant: "", taskId: task.id, id: "hook", url: "https://example.com/hook", token: "" };
    await peer.claiming.createTaskPushNotificationConfig({ ...config, authentication: undefined });
    const listing = { tenant: "", taskId: task.id, pageSize: 0, pageToken: "" };
    const listed = await peer.claiming.listTaskPushNotificationConfig(listing);
    expectEqual(listed.configs.map((each) => each.id).join(), "hook", "the list");
    await peer.claiming.deleteTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "hook" });
    const left = await peer.claiming.listTaskPushNotificationConfig(listing);
    expectEqual(left.configs.length, 0, "what is left");
    return "listed and deleted";
  },

  async extended_card(peer) {
    // Without the claim the client answers from its own copy, and nothing would be tested.
    expect(peer.card.capabilities.extendedAgentCard, "the card claims no extended card");
    const before = requestsSent;
    const extended = await peer.known.getAgentCard();
    expect(requestsSent > before, "nothing was asked");
    const listed = new Set(peer.card.skills.map((skill) => skill.id));
    const more = extended.skills.map((skill) => skill.id).filter((id) => !listed.has(id));
    expectEqual(more.join(), "vault", "what it has beyond the public card");
    return "one skill more";
  },
};
