// One call as a command line of curl or grpcurl, as Python with Dragoman's client, and as a `dragoman` command.

/** A word of a shell command. */
function shellQuote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A call of `console/api/calls` as a command: curl over HTTP, grpcurl over gRPC. */
export function curl(call) {
  const body = call.body === null || call.body === undefined ? "" : JSON.stringify(call.body);
  if (call.binding === "GRPC") {
    const address = call.url.replace(/^\w+:\/\//, "");
    const plain = call.url.startsWith("https:") || call.url.startsWith("grpcs:") ? [] : ["-plaintext"];
    return lines(["grpcurl", ...plain], [...headerFlags(call.headers), ["-d", shellQuote(body || "{}")]], [address, `${call.service}/${call.rpc}`]);
  }
  const flags = headerFlags(call.headers);
  if (body) flags.push(["-d", shellQuote(body)]);
  if (call.method !== (body ? "POST" : "GET")) flags.unshift(["-X", call.method]);
  return lines(["curl", "-N", shellQuote(call.url)], flags, []);
}

function headerFlags(headers) {
  return Object.entries(headers ?? {}).map(([name, value]) => ["-H", shellQuote(`${name}: ${value}`)]);
}

function lines(start, flags, end) {
  return [start.join(" "), ...flags.map((flag) => flag.join(" ")), ...(end.length ? [end.map(shellQuote).join(" ")] : [])].join(" \\\n  ");
}

// -- what a message holds ----------------------------------------------------------------------------------------

function contentOf(params) {
  const parts = params.message?.parts ?? [];
  const text = parts.filter((part) => typeof part.text === "string").map((part) => part.text).join("\n\n");
  const data = parts.find((part) => part.data !== undefined)?.data;
  const isCall = data !== null && typeof data === "object" && typeof data.tool === "string";
  return {
    text,
    tool: isCall ? data.tool : params.message?.metadata?.skillId,
    args: isCall ? data.arguments ?? {} : undefined,
    data: isCall ? undefined : data,
    files: parts.filter((part) => part.raw !== undefined || part.url !== undefined).map((part) => part.filename || "file"),
    task: params.message?.taskId,
    context: params.message?.taskId ? undefined : params.message?.contextId,
  };
}

// -- Python ------------------------------------------------------------------------------------------------------

/** A JSON value as Python writes it. */
function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return `{${Object.entries(value).map(([key, inner]) => `${python(key)}: ${python(inner)}`).join(", ")}}`;
}

function pythonBody(operation, params) {
  const keywords = (pairs) => Object.entries(pairs).filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => `${name}=${python(value)}`);
  if (operation === "SendMessage" || operation === "SendStreamingMessage") {
    const { text, tool, args, data, files, task, context } = contentOf(params);
    const values = [...(text ? [python(text)] : []), ...keywords({ tool, arguments: args, data, task, context })];
    if (files.length) values.push(`files=${python(files)}`);
    if (operation === "SendMessage") {
      if (params.configuration?.returnImmediately) values.push("wait=False");
      return [`reply = await client.send(${values.join(", ")})`, "print(reply.text)"];
    }
    return [`async for piece in client.stream(${values.join(", ")}).text():`, '    print(piece, end="", flush=True)'];
  }
  const task = python(params.id ?? params.taskId);
  const calls = {
    GetTask: [`task = await client.get_task(${task})`, "print(task.status.state, task.text)"],
    CancelTask: [`task = await client.cancel_task(${task})`, "print(task.status.state)"],
    SubscribeToTask: [`async for event in client.subscribe(${task}):`, '    print(event.text, end="", flush=True)'],
    ListTasks: [
      `async for task in client.list_tasks(${keywords({ context: params.contextId, state: params.status, since: params.statusTimestampAfter }).join(", ")}):`,
      "    print(task.id, task.status.state)",
    ],
    ListTaskPushNotificationConfigs: [`print(await client.list_push_configs(${task}))`],
    DeleteTaskPushNotificationConfig: [`await client.delete_push_config(${python(params.taskId)}, ${python(params.id)})`],
    CreateTaskPushNotificationConfig: [`await client.create_push_config(${python(params.taskId)}, ${python(params.url)})`],
  };
  return calls[operation] ?? null;
}

/** A call as a Python program; null for an operation that the client has no method for. */
export function pythonProgram(url, operation, params) {
  const body = pythonBody(operation, params);
  if (!body) return null;
  return `import asyncio

from dragoman import Client


async def main() -> None:
    async with Client(${python(url)}) as client:
${body.map((line) => `        ${line}`).join("\n")}


asyncio.run(main())
`;
}

// -- dragoman ----------------------------------------------------------------------------------------------------

/** A call as a `dragoman` command; null for an operation that has no verb. */
export function command(url, operation, params) {
  const flag = (name, value) => (value === undefined || value === "" ? [] : [name, shellQuote(String(value))]);
  const words = (verb, ...rest) => ["dragoman", verb, shellQuote(url), ...rest].join(" ");
  if (operation === "SendMessage" || operation === "SendStreamingMessage") {
    const { text, tool, args, data, files, task, context } = contentOf(params);
    return words(
      "send",
      ...flag("--tool", tool),
      ...flag("--arguments", args === undefined ? undefined : JSON.stringify(args)),
      ...flag("--data", data === undefined ? undefined : JSON.stringify(data)),
      ...files.flatMap((name) => ["--file", shellQuote(name)]),
      ...flag("--context", context),
      ...flag("--task", task),
      ...(params.configuration?.returnImmediately ? ["--no-wait"] : []),
      // Behind `--`, a text that begins with a dash is no option.
      ...(text ? [...(text.startsWith("-") ? ["--"] : []), shellQuote(text)] : []),
    );
  }
  const id = shellQuote(String(params.id ?? ""));
  const verbs = {
    GetTask: () => words("get", id),
    CancelTask: () => words("cancel", id),
    SubscribeToTask: () => words("watch", id),
    ListTasks: () =>
      words(
        "tasks",
        ...flag("--state", params.status?.replace("TASK_STATE_", "").toLowerCase().replaceAll("_", "-")),
        ...flag("--context", params.contextId),
        ...flag("--since", params.statusTimestampAfter),
        ...flag("--limit", params.pageSize),
      ),
  };
  return verbs[operation]?.() ?? null;
}
