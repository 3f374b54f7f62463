// One task: its timeline, what it was at any of its events, and what can be done with it.
import { html, useEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { href, route, setQuery } from "../lib/router.js";
import * as api from "../lib/api.js";
import { call } from "../lib/a2a.js";
import { agents, isAdmin } from "../lib/session.js";
import { ago, count, duration, isFinal, isWaiting, oneLine } from "../lib/format.js";
import { Journal } from "../lib/journal.js";
import {
  announce, CopyButton, Dialog, Empty, Name, Problem, Spinner, StateBadge, Tabs, Time, useInterval,
} from "../ui/base.js";
import { Answer } from "../ui/answer.js";
import { JsonView } from "../ui/json.js";
import { useLoaded } from "../ui/loaded.js";
import { Parts } from "../ui/parts.js";
import { Slider } from "../ui/slider.js";
import { Timeline } from "../ui/timeline.js";
import { Webhooks } from "../ui/webhooks.js";

const TABS = ["timeline", "history", "artifacts", "webhooks", "json"];
const POLL = 1000;
const MIN_REFRESH = 600; // ms between two reads of a task that changes fast
const BATCH = 50;

/** The JSON of the task in a response of the API, with every number as it is. */
const textOf = (data) => api.textBetween(data, '{"task":', ',"row":{');

/** The `at` of the route, and a function to change it. The address follows later: browsers limit its changes. */
function useAt() {
  const written = route.value.query.at;
  const parse = (text) => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : null);
  const [at, setAt] = useState(parse(written));
  const timer = useRef(0);
  useEffect(() => {
    clearTimeout(timer.current);
    setAt(parse(written));
    return () => clearTimeout(timer.current);
  }, [written]);
  function change(next) {
    setAt(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ at: next }), 250);
  }
  return [at, change];
}

export function TaskView({ id }) {
  const { query } = route.value;
  const tab = TABS.includes(query.tab) ? query.tab : "timeline";
  const path = `tasks/${api.pathOf(id)}`;
  const [data, setData] = useState(null);
  const [error, setError] = useState(null);
  const [, setVersion] = useState(0);
  const draw = () => setVersion((version) => version + 1);
  const [at, setAt] = useAt();
  const journal = useMemo(() => new Journal(id, draw), []);
  const isReading = useRef(false);

  async function refresh() {
    if (isReading.current) return;
    isReading.current = true;
    const started = performance.now();
    try {
      setData(await api.get(path));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
    // A large task that changes fast is read less often than it changes.
    setTimeout(() => {
      isReading.current = false;
      draw();
    }, Math.max(MIN_REFRESH, 3 * (performance.now() - started)));
  }
  const readAll = () => {
    refresh();
    journal.load();
  };
  useEffect(() => {
    readAll();
    return () => journal.close();
  }, []);

  const row = data?.row;
  const agent = agents.value.find(({ name }) => name === row?.agent);
  const state = (!journal.hasMore && journal.events.at(-1)?.current) || row?.state;
  const newest = Math.max(data?.newest ?? 0, journal.newest);
  const oldest = data?.oldest ?? 1;
  const isLive = Boolean(row) && !isFinal(state);
  useInterval(() => isLive && journal.load(), POLL);
  useEffect(() => {
    // What the journal says first, the header and the other tabs have to catch up with.
    const isBehind = newest > data?.newest && (tab !== "timeline" || isWaiting(state));
    if (data && !error && (isBehind || state !== row.state)) refresh();
  });

  const clamped = at === null || !newest ? at : Math.max(oldest, Math.min(newest, at));
  const then = useLoaded(newest ? clamped : null, (signal) => api.get(path, { generation: clamped }, { signal }));
  if (error?.status === 404 && !data) {
    return html`<${Empty} title="There is no such task">
      <p>It may have been deleted, or it belongs to somebody else.</p>
      <p><a class="button" href=${href(["tasks"])}>All tasks</a></p></${Empty}>`;
  }
  if (!data) {
    return error ? html`<div class="view"><${Problem} error=${error} retry=${readAll} /></div>`
      : html`<${Spinner} label="Loading the task" />`;
  }

  const shown = clamped === null ? data : then.data;
  const task = shown?.task;
  const isPast = clamped !== null && ["history", "artifacts", "json"].includes(tab);
  const counted = (label, items) => (items?.length ? `${label} (${count(items.length)})` : label);
  const labels = ["Timeline", counted("History", task?.history), counted("Artifacts", task?.artifacts), "Webhooks", "JSON"];
  const own = row.own && agent ? agent : null;
  return html`<div class="view task">
    <${Header} data=${data} state=${state} agent=${agent} own=${own} newest=${newest} refresh=${readAll} />
    ${error && html`<${Problem} error=${error} retry=${readAll} />`}
    ${own && isWaiting(state) && isWaiting(data.task.status.state) && html`<${Answer} task=${data.task} agent=${own}
      key=${data.task.status.message?.messageId} onSent=${readAll} />`}
    <${Slider} oldest=${oldest} newest=${newest} at=${clamped} event=${journal.event(clamped ?? newest)}
      onChange=${setAt} />
    <${Tabs} name="task" label="Task" tabs=${TABS.map((each, index) => ({ id: each, label: labels[index] }))}
      current=${tab} onSelect=${(next) => setQuery({ tab: next === "timeline" ? "" : next })} />
    <div role="tabpanel" id="panel-task" aria-labelledby="tab-task-${tab}">
      ${isPast && html`<p class="then">
        As it was after event ${count(clamped)} of ${count(newest)}
        ${task && html`<${StateBadge} state=${task.status.state} />`}
        <button type="button" class="small" onClick=${() => setAt(null)}>Show it as it is now</button></p>
        ${then.error ? html`<${Problem} error=${then.error} />` : !task && html`<${Spinner} label="Loading" />`}`}
      ${tab === "timeline" && html`<${Timeline} journal=${journal} at=${clamped} onSelect=${setAt} isLive=${isLive} />`}
      ${tab === "history" && task && html`<${History} task=${task} />`}
      ${tab === "artifacts" && task && html`<${Artifacts} task=${task} isLive=${isLive && clamped === null} />`}
      ${tab === "webhooks" && html`<${Webhooks} taskId=${id} agent=${own} newest=${newest} />`}
      ${tab === "json" && task && html`<${JsonView} text=${textOf(shown)} label="Task" />`}
    </div>
  </div>`;
}

const named = (text) => html`<${Name} text=${text} limit=${100} />`;
const fact = (label, content) => html`<div><dt>${label}</dt><dd>${content}</dd></div>`;

function Header({ data, state, agent, own, newest, refresh }) {
  const { row, origin, traceId } = data;
  const [isCanceling, setCanceling] = useState(false);
  const isOver = isFinal(state);
  const end = isOver ? Date.parse(row.updated) : Date.now();

  async function cancel() {
    setCanceling(false);
    try {
      if (own) await call(own, "CancelTask", { id: row.id });
      else await api.post(`tasks/${api.pathOf(row.id)}/cancel`);
      announce("Task canceled");
    } catch (error) {
      announce(error.message, "bad");
    }
    refresh();
  }
  function download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([textOf(data)], { type: "application/json" }));
    link.download = `task-${row.id.replace(/[^\w-]/g, "_").slice(0, 80)}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
  return html`<header class="taskhead">
    <div class="headline">
      <h1>${row.title ? html`<${Name} text=${row.title} />` : "Task"}</h1><${StateBadge} state=${state} />
    </div>
    <div class="row">
      ${!isOver && (own || isAdmin.value) && html`<button type="button" class="danger"
        onClick=${() => setCanceling(true)}>Cancel task</button>`}
      ${agent && html`<a class="button" href=${href(["agents", row.agent, "chat", row.contextId])}>Open in chat</a>`}
      <button type="button" onClick=${download}>Download JSON</button>
    </div>
    <dl class="facts card">
      ${fact("Task", html`<code>${oneLine(row.id, 100)}</code><${CopyButton} text=${row.id} />`)}
      ${fact("Context", html`<a href=${href(["tasks"], { context: row.contextId })} title="All tasks of this context">
        <code>${named(row.contextId)}</code></a><${CopyButton} text=${row.contextId} />`)}
      ${fact("Agent", html`${agent ? html`<a href=${href(["agents", row.agent])}>${named(row.agent)}</a>` : named(row.agent)}
        ${row.owner && html`<span class="muted">for</span>${named(row.owner)}`}
        ${row.tenant && html`<span class="muted">tenant</span>${named(row.tenant)}`}`)}
      ${fact("Created", html`<${Time} iso=${row.created} milliseconds /><span class="muted">${ago(row.created)}</span>`)}
      ${fact("Updated", html`<${Time} iso=${row.updated} milliseconds />
        <span class="muted">${isOver ? "took" : "for"} ${duration(end - Date.parse(row.created))}</span>`)}
      ${fact("Version", html`A2A ${oneLine(origin, 20)}<span class="muted">· ${count(newest)} events</span>`)}
      ${traceId && fact("Trace", html`<code>${oneLine(traceId, 64)}</code><${CopyButton} text=${traceId} />`)}
    </dl>
    ${isCanceling && html`<${Dialog} title="Cancel this task?" onClose=${() => setCanceling(false)}>
      <p>The agent stops working on it. This cannot be undone.</p>
      ${!row.own && html`<p class="note">
        The task belongs to ${named(row.owner || "somebody else")}. The cancellation is logged.</p>`}
      <div class="row">
        <button type="button" class="danger" onClick=${cancel}>Cancel the task</button>
        <button type="button" onClick=${() => setCanceling(false)}>Let it run</button>
      </div>
    </${Dialog}>`}
  </header>`;
}

/** Long lists of unequal height: the newest come into the document first, the rest on demand. */
function useBatch(items) {
  const [shown, setShown] = useState(BATCH);
  const hidden = Math.max(0, items.length - shown);
  const more = hidden > 0 && html`<p><button type="button" onClick=${() => setShown(shown + BATCH)}>
    Show ${Math.min(BATCH, hidden)} earlier of ${count(hidden)}</button></p>`;
  return [items.slice(hidden), more];
}

function History({ task }) {
  const current = task.status.message;
  const messages = task.history ?? [];
  const isNew = current && !messages.some((each) => each.messageId === current.messageId);
  const [shown, more] = useBatch(isNew ? [...messages, current] : messages);
  if (!shown.length) return html`<${Empty} title="No messages" />`;
  return html`${more}<ol class="turns">
    ${shown.map((message) => html`<li key=${message.messageId} class="card ${message.role === "ROLE_USER" ? "user" : ""}">
      <p class="muted"><b>${message.role === "ROLE_USER" ? "User" : "Agent"}</b>
        ${isNew && message === current && " · Current status"} · <code>${oneLine(message.messageId, 60)}</code></p>
      <${Parts} parts=${message.parts ?? []} />
    </li>`)}
  </ol>`;
}

function Artifacts({ task, isLive }) {
  const [shown, more] = useBatch(task.artifacts ?? []);
  if (!shown.length) {
    return html`<${Empty} title="No artifacts">
      <p>${isFinal(task.status.state) ? "The agent made none." : "None yet."}</p></${Empty}>`;
  }
  return html`${more}<ul class="turns">
    ${shown.map(({ artifactId, name, description, parts = [] }) => html`<li key=${artifactId} class="card">
      <h2><${Name} text=${name || artifactId || "Artifact"} limit=${120} /></h2>
      ${description && html`<p class="muted">${oneLine(description, 500)}</p>`}
      <p class="muted"><code>${oneLine(artifactId, 80)}</code>${" · "}
        ${parts.length === 1 ? "1 part" : `${count(parts.length)} parts`}</p>
      <${Parts} parts=${parts} streaming=${isLive} />
    </li>`)}
  </ul>`;
}
