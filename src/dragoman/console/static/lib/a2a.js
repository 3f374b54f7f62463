// A client of A2A 1.0 for the agents of this server: JSON-RPC or HTTP+JSON by fetch, streams as server-sent events.
import { signal } from "./preact.js";
import { cookieMode, credentialHeaders } from "./session.js";
import { isFinal, uuid } from "./format.js";
import { Exchange } from "./wire.js";

/** How this page calls agents: "JSONRPC" or "HTTP+JSON". */
export const binding = signal(localStorage.getItem("dragoman.binding") === "HTTP+JSON" ? "HTTP+JSON" : "JSONRPC");
const VERSION = "1.0";
const RETRIES = 6;

export function setBinding(name) {
  binding.value = name;
  localStorage.setItem("dragoman.binding", name);
}

/** An error that the agent answered with, or a connection that failed (`code` is 0 then). */
export class A2AError extends Error {
  constructor(message, { code = 0, reason = "", status = 0 } = {}) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.status = status;
  }
}

const webhooks = (params) => `/tasks/${encodeURIComponent(params.taskId)}/pushNotificationConfigs`;
const PATHS = {
  SendMessage: ["POST", () => "/message:send"],
  SendStreamingMessage: ["POST", () => "/message:stream"],
  GetTask: ["GET", (params) => `/tasks/${encodeURIComponent(params.id)}`, ["id"]],
  ListTasks: ["GET", () => "/tasks"],
  CancelTask: ["POST", (params) => `/tasks/${encodeURIComponent(params.id)}:cancel`, ["id"]],
  SubscribeToTask: ["POST", (params) => `/tasks/${encodeURIComponent(params.id)}:subscribe`, ["id"]],
  CreateTaskPushNotificationConfig: ["POST", webhooks, ["taskId"]],
  ListTaskPushNotificationConfigs: ["GET", webhooks, ["taskId"]],
  DeleteTaskPushNotificationConfig: [
    "DELETE",
    (params) => `${webhooks(params)}/${encodeURIComponent(params.id)}`,
    ["taskId", "id"],
  ],
};

function build(agent, operation, params, headers) {
  const secret = credentialHeaders(agent.name);
  const base = agent.path.replace(/\/$/, "");
  const all = { "A2A-Version": VERSION, ...headers, ...secret };
  const request = { agent: agent.name, operation, params, binding: binding.value, version: VERSION };
  request.secretHeaders = Object.keys(secret);
  if (binding.value === "JSONRPC") {
    const body = JSON.stringify({ jsonrpc: "2.0", id: uuid(), method: operation, params });
    return { ...request, method: "POST", url: base || "./", headers: { ...all, "Content-Type": "application/json" }, body };
  }
  const [method, path, inPath = []] = PATHS[operation];
  const rest = Object.fromEntries(Object.entries(params).filter(([key]) => !inPath.includes(key)));
  const address = base + (base ? path(params) : path(params).slice(1));
  if (method !== "POST") {
    const search = new URLSearchParams(rest).toString();
    return { ...request, method, url: search ? `${address}?${search}` : address, headers: all };
  }
  const body = JSON.stringify(rest);
  return { ...request, method, url: address, headers: { ...all, "Content-Type": "application/json" }, body };
}

async function open(request, signal) {
  const exchange = new Exchange({ ...request, url: new URL(request.url, document.baseURI).href });
  try {
    const { method, headers } = request;
    // A text of megabytes would be copied several times before it is sent.
    const body = request.body && new Blob([request.body]);
    const response = await fetch(request.url, { method, headers, body, signal, credentials: cookieMode(request.agent) });
    exchange.respond(response);
    return [exchange, response];
  } catch (error) {
    exchange.end(error.name === "AbortError" ? "aborted" : "cannot be reached");
    if (error.name === "AbortError") throw error;
    throw new A2AError("The agent cannot be reached. Is the server still running?");
  }
}

function unwrap(request, response, text) {
  let data;
  try {
    data = text ? JSON.parse(text) : {};
  } catch {
    throw new A2AError(`The response is not JSON (HTTP ${response.status})`, { status: response.status });
  }
  const error = data?.error;
  if (error) {
    const details = error.data ?? error.details;
    const info = Array.isArray(details) ? details.find((each) => each?.reason) : undefined;
    const message = typeof error === "string" ? error : String(error.message ?? "unknown error");
    throw new A2AError(message, { code: error.code ?? 0, reason: info?.reason ?? "", status: response.status });
  }
  if (!response.ok) throw new A2AError(`HTTP ${response.status}`, { status: response.status });
  return request.binding === "JSONRPC" ? data.result : data;
}

/** Perform an operation, such as GetTask; returns its result. Throws A2AError, and AbortError when aborted. */
export async function call(agent, operation, params, { signal } = {}) {
  const request = build(agent, operation, params, {});
  const [exchange, response] = await open(request, signal);
  let text;
  try {
    text = await response.text();
  } catch (error) {
    exchange.end("broken");
    throw error.name === "AbortError" ? error : new A2AError("The connection broke");
  }
  exchange.receive(text);
  return unwrap(request, response, text);
}

/**
 * Perform SendStreamingMessage or SubscribeToTask; yields {id, event} as they come, where `event` is one of
 * {task}, {message}, {statusUpdate}, {artifactUpdate}. Throws A2AError, and AbortError when aborted.
 */
export async function* stream(agent, operation, params, { signal, after } = {}) {
  const headers = { Accept: "text/event-stream", ...(after === undefined ? {} : { "Last-Event-ID": String(after) }) };
  const request = build(agent, operation, params, headers);
  const [exchange, response] = await open(request, signal);
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    const text = await response.text();
    exchange.receive(text);
    unwrap(request, response, text);
    throw new A2AError("The agent did not answer with a stream", { status: response.status });
  }
  try {
    for await (const { id, data } of sse(response.body)) {
      exchange.event(id, data);
      yield { id, event: unwrap(request, response, data) };
    }
    exchange.end();
  } catch (error) {
    exchange.end(error.name === "AbortError" ? "aborted" : error.message);
    if (error instanceof A2AError || error.name === "AbortError") throw error;
    throw new A2AError("The connection broke");
  } finally {
    if (exchange.duration === null) exchange.end("left");
  }
}

/**
 * Send a message and follow its task to its end or its next question, across broken connections: the stream is taken
 * up behind the last event that arrived. Yields as `stream` does.
 */
export async function* follow(agent, operation, params, { signal, after } = {}) {
  let last = after;
  let taskId = operation === "SubscribeToTask" ? params.id : undefined;
  let state;
  for (let attempt = 0; ; attempt += 1) {
    try {
      const again = taskId !== undefined && (attempt > 0 || operation === "SubscribeToTask");
      const events = again
        ? stream(agent, "SubscribeToTask", { id: taskId }, { signal, after: last })
        : stream(agent, operation, params, { signal });
      for await (const item of events) {
        attempt = 0;
        if (item.id) last = Number(item.id);
        const { task, statusUpdate, artifactUpdate, message } = item.event;
        taskId = task?.id ?? statusUpdate?.taskId ?? artifactUpdate?.taskId ?? taskId;
        state = task?.status?.state ?? statusUpdate?.status?.state ?? (message ? "TASK_STATE_COMPLETED" : state);
        yield item;
      }
      if (taskId === undefined || isFinal(state) || state === "TASK_STATE_INPUT_REQUIRED") return;
    } catch (error) {
      // What the agent refuses is final; what broke on the way may be taken up again, once the task is known.
      if (error.name === "AbortError" || error.code || error.status || taskId === undefined || attempt >= RETRIES) throw error;
    }
    await pause(Math.min(8000, 250 * 2 ** attempt), signal);
  }
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("aborted", "AbortError"));
    });
  });
}

/** Parse server-sent events; yields {id, data}. */
async function* sse(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let pieces = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const piece = decoder.decode(value, { stream: true });
      const isEnd = piece.includes("\n\n") || (piece.startsWith("\n") && pieces.at(-1)?.endsWith("\n"));
      pieces.push(piece);
      // An event may have megabytes: only what has arrived is searched, and they are joined once it is whole.
      if (!isEnd) continue;
      const buffer = pieces.join("");
      let end;
      let start = 0;
      while ((end = buffer.indexOf("\n\n", start)) >= 0) {
        const parsed = parseEvent(buffer.slice(start, end));
        if (parsed) yield parsed;
        start = end + 2;
      }
      pieces = [buffer.slice(start)];
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseEvent(block) {
  let id = "";
  const lines = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("data:")) lines.push(line.slice(line[5] === " " ? 6 : 5).trimEnd());
    else if (line.startsWith("id:")) id = line.slice(3).trim();
  }
  return lines.length ? { id, data: lines.join("\n") } : null;
}

/** A message of the user. `extra` may have taskId, contextId, metadata. */
export function userMessage(parts, extra = {}) {
  return { messageId: uuid(), role: "ROLE_USER", parts, ...extra };
}
