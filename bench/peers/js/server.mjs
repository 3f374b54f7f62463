// The benchmark's agent served by @a2a-js/sdk on Express, with the settings the SDK has by itself; over gRPC when its
// argument is `grpc`.
//
// It listens on a free port of 127.0.0.1, prints {"port": PORT}, and ends when its standard input does.
// The packages are those of .peers/js.

import { createRequire } from "node:module";
import { createServer } from "node:http";

const load = createRequire(new URL("../../../.peers/js/", import.meta.url));
const express = load("express");
const { AgentCard, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } = load("@a2a-js/sdk");
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = load("@a2a-js/sdk/server");
const { UserBuilder, jsonRpcHandler } = load("@a2a-js/sdk/server/express");

const card = AgentCard.fromJSON({
  name: "bench",
  description: "Echoes, counts",
  version: "1.0.0",
  supportedInterfaces: [
    { url: "http://127.0.0.1/", protocolBinding: "JSONRPC", protocolVersion: "1.0" },
    { url: "127.0.0.1:443", protocolBinding: "GRPC", protocolVersion: "1.0" }, // else it refuses the version
  ],
  capabilities: { streaming: true },
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "echo", name: "echo", description: "Say it again", tags: ["bench"] }],
});

/** Echoes a text; asked for the skill `count`, it sends that many chunks, and lets others work between them. */
class Agent {
  execute = async (request, bus) => {
    const { taskId, contextId, userMessage } = request;
    const status = (state) => ({ state: `TASK_STATE_${state}`, timestamp: new Date().toISOString() });
    const update = (state) =>
      bus.publish(
        AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ taskId, contextId, status: status(state) })),
      );
    const artifact = (name, text, append, lastChunk) => {
      const result = { artifactId: name, name, parts: [{ text }] };
      const event = { taskId, contextId, artifact: result, append, lastChunk };
      bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(event)));
    };

    const task = Task.fromJSON({ id: taskId, contextId, status: status("SUBMITTED") });
    task.history = [userMessage];
    bus.publish(AgentEvent.task(task));
    update("WORKING");
    const { $case, value } = userMessage.parts[0].content;
    if ($case === "data") {
      const chunks = value.arguments.n;
      for (let number = 0; number < chunks; number += 1) {
        artifact("count", `w${String(number).padStart(5, "0")} `, number > 0, number === chunks - 1);
        await new Promise(setImmediate);
      }
    } else {
      artifact("echo", value, false, true);
    }
    update("COMPLETED");
    bus.finished();
  };

  cancelTask = async () => {};
}

const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
const options = { requestHandler, userBuilder: UserBuilder.noAuthentication };
const say = (port) => console.log(JSON.stringify({ port }));

function serveGrpc() {
  const grpc = load("@grpc/grpc-js");
  const { A2AService, grpcService } = load("@a2a-js/sdk/server/grpc");
  const server = new grpc.Server();
  server.addService(A2AService, grpcService(options));
  server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    say(port);
  });
}

function serveHttp() {
  const app = express();
  app.use("/", jsonRpcHandler(options));
  const server = createServer(app);
  server.listen(0, "127.0.0.1", () => say(server.address().port));
}

(process.argv.includes("grpc") ? serveGrpc : serveHttp)();
process.stdin.on("end", () => process.exit(0)).resume();
