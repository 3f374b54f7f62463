// A scripted agent served by @a2a-js/sdk: JSON-RPC and HTTP+JSON on one port, gRPC on another, protocol 1.0 and 0.3.
//
//     node server.mjs PORT      (0: any free port)
//
// Prints {"url": ...} once it listens. The first word of the user's text chooses what the agent does.
// The packages are those of .peers/js, installed from the package files beside this one.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";

const load = createRequire(new URL("../../../../.peers/js/", import.meta.url));
const express = load("express");
const grpc = load("@grpc/grpc-js");
const { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent } = load("@a2a-js/sdk");
const { AgentEvent, DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore } =
  load("@a2a-js/sdk/server");
const { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } = load("@a2a-js/sdk/server/express");
const { A2AService, grpcService } = load("@a2a-js/sdk/server/grpc");
const { LegacyA2AService, legacyGrpcService } = load("@a2a-js/sdk/compat/v0_3/server/grpc");
const { createLegacyAwarePushNotificationSender } = load("@a2a-js/sdk/compat/v0_3/server");

const NAME = "interop-js";
const CHUNK_PAUSE_MS = 5;
const DATA = { n: 1, list: [1, 2.5, "x"], deep: { ok: true } };
const FILE = {
  raw: Buffer.concat([Buffer.from([0, 1]), Buffer.from("dragoman")]).toString("base64"),
  filename: "blob.bin",
  mediaType: "application/octet-stream",
};

// --- what a command may say

/** One turn of one task: its events, written as they look on the 1.0 wire. */
class Turn {
  constructor(taskId, contextId, bus) {
    this.ids = { taskId, contextId };
    this.bus = bus;
  }

  /** The SDK wants a task as the first event of every turn, also of a follow-up. */
  open() {
    const { taskId: id, contextId } = this.ids;
    const status = this.#status("SUBMITTED");
    this.bus.publish(AgentEvent.task(Task.fromJSON({ id, contextId, status })));
  }

  status(state, text) {
    this.bus.publish(
      AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ ...this.ids, status: this.#status(state, text) })),
    );
  }

  artifact(part, { artifactId = "result", append = false, lastChunk = true } = {}) {
    const artifact = { artifactId, name: artifactId, parts: [part] };
    this.bus.publish(
      AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON({ ...this.ids, artifact, append, lastChunk })),
    );
  }

  complete(part) {
    this.artifact(part);
    this.status("COMPLETED");
  }

  message(text) {
    const { contextId } = this.ids;
    this.bus.publish(AgentEvent.message(Message.fromJSON({ ...this.#says(text), contextId })));
  }

  #status(state, text) {
    const message = text === undefined ? undefined : { ...this.#says(text), ...this.ids };
    return { state: `TASK_STATE_${state}`, timestamp: new Date().toISOString(), message };
  }

  #says(text) {
    return { messageId: randomUUID(), role: "ROLE_AGENT", parts: [{ text }] };
  }
}

// --- the commands

const COMMANDS = {
  echo: (turn, rest) => turn.complete({ text: rest }),

  stream: async (turn, rest, canceled) => {
    const count = Number(rest);
    turn.status("WORKING");
    for (let index = 0; index < count; index += 1) {
      if (canceled.aborted) return;
      turn.artifact({ text: `chunk-${index} ` }, { append: index > 0, lastChunk: index === count - 1 });
      await pause(CHUNK_PAUSE_MS);
    }
    if (!canceled.aborted) turn.status("COMPLETED");
  },

  ask: (turn) => turn.status("INPUT_REQUIRED", "What is your name?"),

  fail: (turn) => turn.status("FAILED", "it broke"),

  slow: (turn, _rest, canceled) => {
    turn.status("WORKING");
    return new Promise((resolve) => canceled.addEventListener("abort", resolve));
  },

  data: (turn) => turn.complete({ data: DATA }),

  file: (turn) => turn.complete(FILE),
};

class ScriptedAgent {
  // The SDK tells cancelTask no more than the id, so each turn is kept, with the means to stop it.
  #latest = new Map();

  execute = async (request, bus) => {
    const turn = new Turn(request.taskId, request.contextId, bus);
    const canceler = new AbortController();
    const text = textOf(request.userMessage);
    const [word] = text.split(" ", 1);
    const rest = text.slice(word.length + 1);
    if (word === "message" && !request.task) {
      turn.message("just a message");
      return;
    }
    this.#latest.set(request.taskId, { turn, canceler });
    turn.open();
    if (request.task?.status?.state === TaskState.TASK_STATE_INPUT_REQUIRED) {
      turn.complete({ text: `Hello ${text}` });
    } else if (Object.hasOwn(COMMANDS, word)) {
      await COMMANDS[word](turn, rest, canceler.signal);
    } else {
      turn.status("REJECTED", `no such command: ${word}`);
    }
  };

  cancelTask = async (taskId) => {
    const { turn, canceler } = this.#latest.get(taskId);
    turn.status("CANCELED");
    canceler.abort();
  };
}

function textOf(message) {
  return message.parts.find((part) => part.content?.$case === "text")?.content.value ?? "";
}

// --- serving

function cardAt(url, grpcAddress, name = NAME) {
  const interfaces = ["1.0", "0.3"].flatMap((protocolVersion) => [
    { url: `${url}/jsonrpc`, protocolBinding: "JSONRPC", protocolVersion },
    { url: `${url}/rest`, protocolBinding: "HTTP+JSON", protocolVersion },
    { url: grpcAddress, protocolBinding: "GRPC", protocolVersion },
  ]);
  const skills = [...Object.keys(COMMANDS), "message"].map((id) => ({ id, name: id, description: id, tags: ["test"] }));
  return AgentCard.fromJSON({
    name,
    description: "Does what the first word of the text says",
    version: "1.0.0",
    supportedInterfaces: interfaces,
    capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain", "application/json", "application/octet-stream"],
    skills,
  });
}

function handlerAt(url, grpcAddress) {
  const pushConfigs = new InMemoryPushNotificationStore();
  return new DefaultRequestHandler(
    cardAt(url, grpcAddress),
    new InMemoryTaskStore(),
    new ScriptedAgent(),
    undefined,
    pushConfigs,
    createLegacyAwarePushNotificationSender(pushConfigs),
    // A function: a plain card would be kept back from callers who are not authenticated.
    async () => cardAt(url, grpcAddress, `${NAME}-extended`),
  );
}

function appOf(requestHandler) {
  const legacyCompat = { enabled: true };
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat };
  const app = express();
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
  app.use("/jsonrpc", jsonRpcHandler(options));
  app.use("/rest", restHandler(options));
  return app;
}

function addServices(grpcServer, requestHandler) {
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication };
  grpcServer.addService(A2AService, grpcService(options));
  grpcServer.addService(LegacyA2AService, legacyGrpcService(options));
}

// The card names both ports, so it is made when they are known.
const server = createServer();
const grpcServer = new grpc.Server();
grpcServer.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, grpcPort) => {
  if (error) throw error;
  server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
    const url = `http://127.0.0.1:${server.address().port}`;
    const requestHandler = handlerAt(url, `127.0.0.1:${grpcPort}`);
    server.on("request", appOf(requestHandler));
    addServices(grpcServer, requestHandler);
    console.log(JSON.stringify({ url }));
  });
});
