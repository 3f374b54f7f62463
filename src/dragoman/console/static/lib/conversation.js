// A conversation with an agent: its turns, each a task put together from the events of its stream.
import { isFinal, isWaiting } from "./format.js";

const PAGE = 50; // tasks asked for at once
const SLICE_MS = 8; // spent on events before the page gets its turn

const isPlainText = (part) =>
  typeof part?.text === "string" && [part.mediaType, part.filename, part.metadata].every((each) => each === undefined);
const isProgress = (message) => message?.role === "ROLE_AGENT" && Boolean(message.metadata?.["dragoman/progress"]);
const list = (value) => (Array.isArray(value) ? value : []);

/** The text of a message or an artifact. */
export const textOf = (holder) => list(holder?.parts).map((part) => part?.text).filter((text) => typeof text === "string").join("\n");

/** One exchange with the agent: a task, or a message that was answered with a message. */
export class Turn {
  id = null; // of the task, once it is known
  contextId = null;
  state = "TASK_STATE_SUBMITTED";
  updated = null; // ISO time of the last status
  messages = []; // of the user and the agent, in order
  artifacts = new Map(); // by id: {artifactId, name, description, parts, revision, complete}
  statusMessage = null; // the question, the reason of a failure, or the closing words
  progress = null; // {text, done, total} while the agent says how far it is
  live = false; // events are being received
  error = null; // why it could not be sent or followed
  exchange = null; // number of the newest exchange on the wire
  version = 0; // changes with everything else
  unsent = null; // the parameters of a message that the agent has not reacted to yet
  streams = 0; // how often events were asked for; only the newest stream counts

  /** A turn that begins with what the user sends. */
  static of(message) {
    return Object.assign(new Turn(), { messages: [message], updated: new Date().toISOString() });
  }

  /** Whether the agent waits for an answer, or for a sign-in elsewhere. */
  get isWaiting() {
    return this.id !== null && isWaiting(this.state);
  }

  get isFinal() {
    return isFinal(this.state);
  }

  /** Take up an event: {task}, {message}, {statusUpdate} or {artifactUpdate}. Others are left alone. */
  apply({ task, message, statusUpdate, artifactUpdate }) {
    const update = task ?? message ?? statusUpdate ?? artifactUpdate;
    this.version += 1;
    this.contextId = update?.contextId ?? this.contextId;
    if (!message) this.id ??= task?.id ?? update?.taskId ?? null;
    if (task) {
      this.#mergeHistory(list(task.history));
      this.artifacts = new Map();
      for (const artifact of list(task.artifacts)) this.#replace(artifact, true);
      this.#setStatus(task.status);
    } else if (message) {
      this.#add(message);
      this.state = "TASK_STATE_COMPLETED";
      this.updated = new Date().toISOString();
    } else if (statusUpdate) {
      this.#setStatus(statusUpdate.status);
    } else if (artifactUpdate?.artifact) {
      const { artifact, append = false, lastChunk = false } = artifactUpdate;
      const known = append && this.artifacts.get(artifact.artifactId);
      if (!known) return this.#replace(artifact, lastChunk);
      extend(known.parts, list(artifact.parts));
      known.complete = lastChunk;
    }
    return undefined;
  }

  #replace(artifact, complete) {
    const revision = (this.artifacts.get(artifact.artifactId)?.revision ?? 0) + 1;
    const parts = list(artifact.parts).map((part) => ({ ...part })); // they will grow
    this.artifacts.set(artifact.artifactId, { ...artifact, parts, complete, revision });
  }

  #setStatus(status) {
    if (!status) return;
    const before = this.statusMessage;
    this.state = status.state ?? this.state;
    this.updated = status.timestamp ?? this.updated;
    this.statusMessage = isProgress(status.message) ? null : status.message ?? null;
    if (isProgress(status.message)) {
      const [done, total] = ["done", "total"].map((name) => {
        const value = status.message.metadata["dragoman/progress"][name];
        return Number.isFinite(value) ? value : null;
      });
      this.progress = { text: textOf(status.message), done, total };
    }
    // A remark or a question stays where it was said, once something else follows.
    if (before && before.messageId !== this.statusMessage?.messageId) this.#add(before);
    if (this.isFinal || isWaiting(this.state)) this.progress = null;
  }

  /** The server's history wins; what it does not have (yet) stays at the end. */
  #mergeHistory(history) {
    const known = new Set(history.map((message) => message?.messageId));
    const own = this.messages.filter((message) => !known.has(message.messageId));
    this.messages = [...history.filter((message) => message && !isProgress(message)), ...own];
    if (known.has(this.statusMessage?.messageId)) this.statusMessage = null;
  }

  #add(message) {
    if (!this.messages.some((each) => each.messageId === message.messageId)) this.messages.push(message);
  }
}

/** Append parts to parts: adjacent plain texts are one text. */
function extend(parts, more) {
  for (const part of more) {
    const last = parts.at(-1);
    if (isPlainText(last) && isPlainText(part)) last.text += part.text;
    else parts.push({ ...part });
  }
}

/**
 * A conversation: the turns of one context. `client` performs operations: `call(operation, params)`,
 * `follow(operation, params, {signal})`, and `exchange(operation, params)`, the number of that exchange on the wire.
 * `onChange` is called after each change, which may be thousands of times a second.
 */
export class Conversation {
  turns = [];
  loading = false;
  error = null; // why the turns before could not be loaded
  earlier = ""; // page token of the turns before these; empty when there are none
  #client;
  #onChange;
  #abort = new AbortController();

  constructor(client, contextId, onChange) {
    this.#client = client;
    this.contextId = contextId ?? null;
    this.#onChange = onChange;
  }

  /** Whether events of any turn are being received. */
  get isLive() {
    return this.turns.some((turn) => turn.live);
  }

  /** Whether an agent works on any turn: one that waits for somebody does not. */
  get isBusy() {
    return this.turns.some((turn) => turn.live && !turn.isWaiting);
  }

  /** The turn whose question the next message answers; undefined if there is none. */
  get open() {
    const last = this.turns.at(-1);
    return last?.isWaiting ? last : undefined;
  }

  /** Stop receiving. The tasks go on. */
  close() {
    this.#abort.abort();
  }

  /**
   * Load the newest turns, or those before the ones that are there. Where tasks cannot be listed, those with the ids
   * `remembered` are read one by one.
   */
  async load(remembered = []) {
    this.loading = true;
    this.error = null;
    this.#onChange();
    try {
      this.#show(await this.#page(remembered));
    } catch (error) {
      this.error = error;
    }
    this.loading = false;
    this.#onChange();
  }

  async #page(remembered) {
    const params = { contextId: this.contextId, includeArtifacts: true, pageSize: PAGE };
    if (this.earlier) params.pageToken = this.earlier;
    try {
      const page = await this.#client.call("ListTasks", params);
      this.earlier = page?.nextPageToken ?? "";
      if (list(page?.tasks).length || !remembered.length) return list(page?.tasks).reverse();
    } catch (error) {
      if (!remembered.length) throw error;
    }
    const found = await Promise.allSettled(remembered.slice(-PAGE).map((id) => this.#client.call("GetTask", { id })));
    const tasks = found.filter((each) => each.status === "fulfilled").map((each) => each.value);
    if (!tasks.length) throw found[0].reason;
    return tasks;
  }

  #show(tasks) {
    const known = new Set(this.turns.map((turn) => turn.id));
    const turns = tasks.filter((task) => task?.id && !known.has(task.id)).map((task) => {
      const turn = new Turn();
      turn.apply({ task });
      return turn;
    });
    this.turns = [...turns, ...this.turns];
    for (const turn of turns) {
      const isEnd = turn.isFinal || turn.state === "TASK_STATE_INPUT_REQUIRED";
      if (!isEnd) this.#follow(turn, "SubscribeToTask", { id: turn.id });
    }
  }

  /** Send a message: to the task whose question is open, else as a new task of this conversation. */
  send(message, { to = this.open } = {}) {
    const whole = { ...message };
    if (to) whole.taskId = to.id;
    if (this.contextId) whole.contextId = this.contextId;
    const turn = to ?? Turn.of(whole);
    if (to) {
      turn.messages = [...turn.messages, ...(turn.statusMessage ? [turn.statusMessage] : []), whole];
      Object.assign(turn, { statusMessage: null, state: "TASK_STATE_SUBMITTED" });
    } else {
      this.turns = [...this.turns, turn];
    }
    turn.unsent = { message: whole };
    return this.retry(turn);
  }

  /** After an error: send the message again (it has the same id, so it counts once), or follow the task again. */
  retry(turn) {
    if (turn.unsent) return this.#follow(turn, "SendStreamingMessage", turn.unsent);
    return this.#follow(turn, "SubscribeToTask", { id: turn.id });
  }

  /** Ask the agent to stop. Throws what the client throws. */
  async cancel(turn) {
    const task = await this.#client.call("CancelTask", { id: turn.id });
    // The stream brings the end as well; whichever is first.
    if (task?.id && !turn.live) turn.apply({ task });
    this.#onChange();
  }

  /** Receive events until the task ends or asks. */
  async #follow(turn, operation, params) {
    const number = (turn.streams += 1);
    const change = (changes) => {
      if (turn.streams === number) Object.assign(turn, changes, { version: turn.version + 1 });
      this.#onChange();
    };
    change({ live: true, error: null });
    let since = performance.now();
    let exchange = null;
    try {
      for await (const { event } of this.#client.follow(operation, params, { signal: this.#abort.signal })) {
        // An answer has been sent meanwhile: its own stream brings what follows.
        if (turn.streams !== number) return;
        exchange ??= this.#client.exchange(operation, params) ?? turn.exchange;
        Object.assign(turn, { exchange, unsent: null });
        if (event) turn.apply(event);
        this.contextId ??= turn.contextId;
        this.#onChange();
        if (performance.now() - since > SLICE_MS) {
          await nextTask();
          since = performance.now();
        }
      }
    } catch (error) {
      if (error.name !== "AbortError" && turn.streams === number) await this.#fail(turn, operation, params, error);
    } finally {
      change({ live: false });
    }
  }

  async #fail(turn, operation, params, error) {
    turn.error = error;
    turn.exchange = this.#client.exchange(operation, params) ?? turn.exchange;
    if (operation !== "SubscribeToTask" || !error.code) return;
    // A task that has ended meanwhile has no stream any more.
    try {
      turn.apply({ task: await this.#client.call("GetTask", params) });
      if (turn.isFinal) turn.error = null;
    } catch {
      // The first error says more.
    }
  }
}

/** Let the page draw and react: events that have arrived already would otherwise be read in one go. */
function nextTask() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(port1.close());
    port2.postMessage(null);
  });
}
