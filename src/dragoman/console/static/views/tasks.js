// The list of all tasks that the visitor may see.
import { html, useEffect, useRef, useState } from "../lib/preact.js";
import { href, navigate, route } from "../lib/router.js";
import * as api from "../lib/api.js";
import { agents, isAdmin } from "../lib/session.js";
import { ago, count, isFinal, oneLine, STATE_NAMES, stateLabel } from "../lib/format.js";
import { Empty, Name, Problem, Spinner, StateBadge, Time, useInterval } from "../ui/base.js";
import { useNarrow, VirtualGrid } from "../ui/virtual.js";

const PAGE = 100;
const MAX_ROWS = 100_000; // in memory; older tasks are a list of their own
const POLL = 2000;
const TOP = 8; // pixels; whoever has scrolled further reads, and is not to lose the place
const FILTERS = ["state", "agent", "context", "owner", "text", "since", "until"];
const PRESETS = new Map([
  ["1h", ["Last hour", 3_600_000]], ["1d", ["Last day", 86_400_000]], ["7d", ["Last week", 604_800_000]],
]);

const isoOf = (text) => {
  const at = new Date(text ?? NaN);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString();
};
const before = (ms) => new Date(Date.now() - ms).toISOString();

/** The filters of a route as the API takes them; a preset counts back from now. */
function paramsOf(query) {
  const params = Object.fromEntries(FILTERS.map((name) => [name, query[name]]));
  const preset = PRESETS.get(params.since);
  return { ...params, since: preset ? before(preset[1]) : isoOf(params.since), until: isoOf(params.until) };
}

const keyOf = (query) => JSON.stringify(FILTERS.map((name) => query[name] ?? ""));

/** A list as it was when the reader left it for a task: the way back leads to the same place. */
let kept = null;

class TaskList {
  rows = [];
  total = null;
  examined = 0;
  next = null; // the cursor of the next page
  isStarted = false;
  isPaused = false; // a search looks through a bounded number of tasks per request
  error = null;
  waiting = new Set(); // ids of tasks that came while the reader was elsewhere
  active = -1;
  scrollTop = 0;
  onChange = () => {};
  #newest = ""; // the time of the newest status that is known
  #abort = null;

  constructor(query) {
    this.key = keyOf(query);
    this.query = query;
    this.read(null);
  }

  close() {
    this.#abort?.abort();
  }

  get isLoading() {
    return this.#abort !== null;
  }

  /** Load a page, the first one if `after` is null. What there is stays until it is there, and with it the focus. */
  async read(after) {
    this.close();
    const abort = new AbortController();
    this.#abort = abort;
    if (after === null) this.params = paramsOf(this.query);
    try {
      const query = { ...this.params, after, limit: PAGE };
      const { tasks, next, total, examined } = await api.get("tasks", query, { signal: abort.signal });
      if (after === null) {
        const current = this.rows[this.active]?.id;
        this.rows = tasks;
        this.active = tasks.findIndex((row) => row.id === current);
        this.total = total;
        this.examined = 0;
        this.waiting.clear();
        this.isStarted = true;
        this.#remember(tasks);
        // Where nothing was found, not everything is searched again for what is new.
        if (!tasks.length && next) this.#newest ||= before(60_000);
      } else this.rows.push(...tasks);
      this.examined += examined;
      this.next = next;
      this.isPaused = Boolean(this.params.text && next) && tasks.length < PAGE;
      this.error = null;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error;
    }
    this.#abort = null;
    this.onChange();
  }

  /** Load what follows, if rows up to `last` are seen. */
  want(last) {
    const isNear = last > this.rows.length - PAGE / 2 && this.rows.length < MAX_ROWS;
    if (isNear && this.next && !this.isLoading && !this.error && !this.isPaused) this.read(this.next);
  }

  #remember(tasks) {
    for (const { updated } of tasks) if (updated > this.#newest) this.#newest = updated;
  }

  /** Ask for what changed. New rows are put in front, and the list stays where it is; with `isAway`, they wait. */
  async poll(isAway) {
    if (this.params.until || !this.isStarted || this.isLoading || this.isPolling) return;
    this.isPolling = true;
    const { rows } = this;
    // A task that leaves an unfinished state leaves the filter, too: its row says so only if everything is asked for.
    const { state, ...rest } = this.params;
    const since = [this.#newest, this.params.since].sort().at(-1);
    try {
      const query = { ...(state && isFinal(state) ? this.params : rest), since, limit: PAGE };
      const { tasks, next } = await api.get("tasks", query);
      if (tasks.some((row) => row.updated > since)) {
        this.total = (await api.get("tasks", { ...this.params, limit: 1 })).total;
      }
      this.error = null;
      if (rows !== this.rows || this.isLoading) return;
      this.#remember(tasks);
      const changed = new Map(tasks.map((row) => [row.id, row]));
      rows.forEach((row, index) => {
        if (!changed.has(row.id)) return;
        rows[index] = changed.get(row.id);
        changed.delete(row.id);
      });
      const fresh = [...changed.values()].filter((row) => !state || row.state === state);
      if (isAway) fresh.forEach((row) => this.waiting.add(row.id));
      else if (next && fresh.length) this.read(null);
      else {
        rows.unshift(...fresh);
        if (this.active >= 0) this.active += fresh.length;
      }
    } catch (error) {
      this.error = error;
    } finally {
      this.isPolling = false;
      this.onChange();
    }
  }
}

/** Go to the list with other filters; typing replaces the address, all else can be gone back from. */
function filter(changes, { replace = false } = {}) {
  navigate(["tasks"], { ...route.value.query, ...changes }, { replace });
}

/** A field whose value is in the route, and changes it a moment after the typing stops. */
function TextFilter({ name, label, ...rest }) {
  const value = route.value.query[name] ?? "";
  const input = useRef(null);
  const timer = useRef(0);
  useEffect(() => {
    if (!timer.current && input.current.value.trim() !== value) input.current.value = value;
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  function send() {
    clearTimeout(timer.current);
    timer.current = 0;
    const next = input.current.value.trim();
    const sent = route.value.query[name] ?? "";
    if (next !== sent) filter({ [name]: next }, { replace: sent !== "" });
  }
  function onInput() {
    clearTimeout(timer.current);
    timer.current = setTimeout(send, 300);
  }
  return html`<label class="field ${name}"><span>${label}</span>
    <input ref=${input} defaultValue=${value} autocomplete="off" spellcheck=${false} ...${rest}
      onInput=${onInput} onKeyDown=${(event) => event.key === "Enter" && send()} />
  </label>`;
}

/** `options` are pairs of a value and its text. */
function Choice({ label, value, options, onSelect }) {
  return html`<label class="field"><span>${label}</span>
    <select value=${value} onChange=${(event) => onSelect(event.currentTarget.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}
    </select></label>`;
}

function TimeFilter() {
  const { since = "", until = "" } = route.value.query;
  const [isCustom, setCustom] = useState(false);
  const custom = isCustom || Boolean(until) || (since !== "" && !PRESETS.has(since));
  function onSelect(value) {
    setCustom(value === "custom");
    if (value !== "custom") filter({ since: value, until: "" });
    else if (PRESETS.has(since)) filter({ since: before(PRESETS.get(since)[1]) });
  }
  const date = (name, label, iso) => {
    const at = new Date(isoOf(iso));
    const local = iso && new Date(at - at.getTimezoneOffset() * 60_000);
    return html`<label class="field"><span>${label}</span>
      <input type="datetime-local" value=${isoOf(local).slice(0, 16)}
        onChange=${(event) => filter({ [name]: isoOf(event.currentTarget.value) })} /></label>`;
  };
  const presets = [...PRESETS].map(([key, [text]]) => [key, text]);
  return html`<${Choice} label="Time" value=${custom ? "custom" : since} onSelect=${onSelect}
      options=${[["", "Any time"], ...presets, ["custom", "From … to …"]]} />
    ${custom && html`${date("since", "From", PRESETS.has(since) ? "" : since)}${date("until", "To", until)}`}`;
}

function Filters() {
  const { query } = route.value;
  const narrow = useNarrow();
  const [isOpen, setOpen] = useState(false);
  const states = STATE_NAMES.map((state) => [state, stateLabel(state)]);
  const names = agents.value.map(({ name }) => [name, oneLine(name, 60)]);
  return html`<div class="filters" role="search" aria-label="Filter tasks">
    <${TextFilter} name="text" label="Text" type="search" placeholder="words, task id or context id"
      data-search aria-keyshortcuts="/" />
    ${narrow && html`<button type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Filters</button>`}
    ${(!narrow || isOpen) && html`
      <${Choice} label="State" value=${query.state ?? ""} options=${[["", "Any state"], ...states]}
        onSelect=${(state) => filter({ state })} />
      ${names.length > 1 && html`<${Choice} label="Agent" value=${query.agent ?? ""}
        options=${[["", "Any agent"], ...names]} onSelect=${(agent) => filter({ agent })} />`}
      <${TimeFilter} />
      <${TextFilter} name="context" label="Context" placeholder="context id" />
      ${isAdmin.value && html`<${TextFilter} name="owner" label="Owner" placeholder="user" />`}`}
  </div>`;
}

const COLUMNS = [
  ["state", "State"], ["title", "Task"], ["agent", "Agent"], ["owner", "Owner"], ["context", "Context"],
  ["updated", "Updated"], ["generation", "Events"],
];

function cellsOf(row, isActive) {
  const tab = isActive ? 0 : -1; // the links of the current row follow the grid in the order of Tab
  const name = (text) => html`<${Name} text=${text} limit=${60} />`;
  const cell = (kind, content) => html`<span role="gridcell" class=${kind}>${content}</span>`;
  const only = href(["tasks"], { ...route.value.query, context: row.contextId });
  return html`${cell("state", html`<${StateBadge} state=${row.state} />`)}
    ${cell("title", html`<a href=${href(["tasks", row.id])} tabindex=${tab}>
      ${row.title ? html`<${Name} text=${row.title} />` : html`<span class="mono">${oneLine(row.id, 60)}</span>`}</a>`)}
    ${cell("agent", name(row.agent))}
    ${isAdmin.value && cell("owner", name(row.owner || "–"))}
    ${cell("context", html`<a class="mono" tabindex=${tab} title="Only tasks of this context" href=${only}>
      ${name(row.contextId)}</a>`)}
    ${cell("updated", html`<${Time} iso=${row.updated}>${ago(row.updated)}</${Time}>`)}
    ${cell("generation", count(row.generation))}`;
}

export function TasksView() {
  const { query } = route.value;
  const key = keyOf(query);
  const narrow = useNarrow();
  const [, setVersion] = useState(0);
  const draw = () => setVersion((version) => version + 1);
  const list = useRef(null);
  const control = useRef(null);
  if (list.current?.key !== key) {
    list.current?.close();
    list.current = kept?.key === key ? kept : new TaskList(query);
    kept = null;
  }
  const tasks = list.current;
  const { rows, total } = tasks;
  tasks.onChange = () => {
    if (list.current === tasks) draw();
  };
  useEffect(() => {
    tasks.poll(tasks.scrollTop > TOP); // a list that was kept is as it was when the reader left it
    if (tasks.active >= 0) control.current?.element().focus({ preventScroll: true });
    return () => {
      kept = list.current;
    };
  }, []);
  useInterval(() => tasks.poll((control.current?.element()?.scrollTop ?? 0) > TOP), POLL);

  function onRange(first, last) {
    tasks.scrollTop = control.current.element().scrollTop;
    if (first === 0 && tasks.waiting.size && !tasks.isLoading) tasks.read(null);
    else tasks.want(last);
  }
  function showNew() {
    tasks.active = -1;
    control.current.element().scrollTop = 0;
    tasks.read(null);
  }
  function open(index) {
    tasks.active = index;
    navigate(["tasks", rows[index].id]);
  }
  const isSet = FILTERS.some((name) => query[name]);
  const header = COLUMNS.filter(([kind]) => isAdmin.value || kind !== "owner").map(
    ([kind, name]) => html`<span key=${kind} role="columnheader" class=${kind}>${name}</span>`,
  );
  const found = rows.length > 0 && `${count(rows.length)}${tasks.next ? " or more" : ""}`;
  const waiting = tasks.waiting.size;
  return html`<div class="view tasks">
    <header><h1>Tasks</h1>
      <span class="muted" role="status">${total === null ? found : count(total)}</span>
      ${isSet && html`<button type="button" class="small" onClick=${() => navigate(["tasks"])}>Clear filters</button>`}
    </header>
    <${Filters} />
    ${tasks.error && (tasks.isStarted
      ? html`<p class="note" role="status">Live updates have stopped: ${tasks.error.message}</p>`
      : html`<${Problem} error=${tasks.error} retry=${() => tasks.read(null)} />`)}
    ${waiting > 0 && html`<div class="fresh"><button type="button" class="primary small" onClick=${showNew}>
      ${count(waiting)}${waiting >= PAGE ? " or more" : ""} new or changed ${waiting === 1 ? "task" : "tasks"}
    </button></div>`}
    ${rows.length > 0
      ? html`<${VirtualGrid} key=${key} name="task" label="Tasks" class="tasklist ${isAdmin.value ? "owners" : ""}"
          control=${control} count=${rows.length} total=${total ?? (tasks.next ? null : rows.length)}
          initialTop=${tasks.scrollTop} rowHeight=${narrow ? 64 : 44} active=${tasks.active}
          header=${narrow ? undefined : header} onOpen=${open} onRange=${onRange}
          onActive=${(index) => { tasks.active = index; draw(); }}
          row=${(index, isActive) => ({ cells: cellsOf(rows[index], isActive) })} />`
      : tasks.isStarted ? !tasks.isPaused && html`<${Nothing} isSet=${isSet} />`
        : !tasks.error && html`<${Spinner} label="Loading tasks" />`}
    <${Foot} tasks=${tasks} draw=${draw} />
  </div>`;
}

function Nothing({ isSet }) {
  if (isSet) {
    return html`<${Empty} title="No task matches">
      <p>Use other words, choose a longer time, or clear the filters.</p></${Empty}>`;
  }
  const [agent] = agents.value;
  return html`<${Empty} title="No tasks yet">
    <p>Every message that an agent works on becomes a task, and appears here by itself.</p>
    ${agent && html`<p><a class="button primary" href=${href(["agents", agent.name, "chat"])}>Send a message</a></p>
      <p>or on the command line: <code>dragoman send "hello"</code></p>`}
  </${Empty}>`;
}

/** How far a search has come, and the way to what is older than the rows in memory. */
function Foot({ tasks, draw }) {
  const { rows, next, isStarted, isPaused, isLoading } = tasks;
  const isSearch = Boolean(tasks.params.text);
  if (!isStarted || (!isSearch && rows.length < MAX_ROWS)) return null;
  function further() {
    tasks.read(next);
    draw();
  }
  function older() {
    filter({ until: new Date(Date.parse(rows.at(-1).updated) + 1).toISOString() });
  }
  return html`<div class="foot" role="status">
    ${isSearch && html`<span>${count(rows.length)} found in ${count(tasks.examined)} tasks${
      isPaused ? "" : next ? " so far" : ", which is all"}.</span>`}
    ${isPaused && html`<button type="button" disabled=${isLoading} onClick=${further}>
      ${isLoading ? "Searching …" : "Search further"}</button>`}
    ${next && rows.length >= MAX_ROWS && html`<button type="button" onClick=${older}>Show older tasks</button>`}
  </div>`;
}
