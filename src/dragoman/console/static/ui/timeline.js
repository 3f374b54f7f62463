// The timeline of a task: every event of its journal, by run, with the gaps between them.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { count, duration, isWaiting, oneLine, size, time } from "../lib/format.js";
import { rowOf, timelineRows } from "../lib/journal.js";
import { Problem, Spinner, StateBadge } from "./base.js";
import { JsonView } from "./json.js";
import { useLoaded } from "./loaded.js";
import { Strip } from "./strip.js";
import { useNarrow, VirtualGrid } from "./virtual.js";

const KINDS = new Map([["task", "Task"], ["status", "Status"], ["artifact", "Artifact"], ["message", "Message"]]);
const NOTES = new Map([
  ["request", "Request"], ["message", "Message came in"], ["ask", "Question"], ["answer", "Answer"],
  ["begun", "Step began"], ["once", "Step done"], ["attempt", "Attempt"],
]);
const HEADER = ["#", "Time", "Since last", "Event", "State", "Content", "Size"].map(
  (name, index) => html`<span key=${name} role="columnheader" class="c${index}">${name}</span>`,
);

const iso = (at) => (at === null ? "" : new Date(at).toISOString());
const date = (at) => time(iso(at), { milliseconds: true });
const clock = (at) => date(at).split(" ").at(-1); // the day is in the row of the run
const cell = (name, content, title) => html`<span role="gridcell" class=${name} title=${title}>${content}</span>`;

const excerpt = (text) => cell("c5", html`<bdi>${oneLine(text, 200)}</bdi>`, oneLine(text, 200));
const kindOf = (event) => KINDS.get(event.kind) ?? oneLine(event.kind, 20);

const waitOf = (ms) => (ms >= 1 ? "+" : "") + duration(ms);

function Toggle({ isOpen, onToggle, tab, children }) {
  return html`<button type="button" class="toggle" aria-expanded=${isOpen} tabindex=${tab} onClick=${onToggle}>
    <span aria-hidden="true">${isOpen ? "▾ " : "▸ "}</span>${children}</button>`;
}

function cellsOf(row, tab, toggle) {
  switch (row.type) {
    case "run": {
      const lasted = duration(row.at && row.until - row.at);
      const events = row.events === 1 ? "1 event" : `${count(row.events)} events`;
      return html`${cell("c-run", html`<${Toggle} isOpen=${row.isOpen} tab=${tab} onToggle=${() => toggle(row)}>
          <b>Run ${row.run}</b></${Toggle}>`)}
        ${cell("c-rest", [lasted, events, size(row.size), date(row.at)].join(" · "))}
        ${cell("c-state", html`<${StateBadge} state=${row.state} />`)}`;
    }
    case "fold":
      return html`${cell("c0", `${row.first}–${row.last}`)}${cell("c1", clock(row.event.at), iso(row.event.at))}
        ${cell("c2", waitOf(row.waited))}
        ${cell("c-wide", html`<${Toggle} isOpen=${row.isOpen} tab=${tab} onToggle=${() => toggle(row)}>
          <b>${count(row.events)} chunks</b>, ${size(row.size)}, ${duration(row.duration)}
          <bdi class="muted"> ${oneLine(row.event.text, 80)}</bdi></${Toggle}>`)}${cell("c6", size(row.size))}`;
    case "gap": {
      const words = isWaiting(row.state) ? `waited ${duration(row.waited)} for an answer` : row.isNewRun
        ? `${duration(row.waited)} until the next run` : `${duration(row.waited)} without events`;
      // Ten times the time is one step longer.
      const width = `${Math.min(24, Math.max(1, Math.log10(row.waited / 100)) * 3.2)}rem`;
      return cell("c-gap", html`<span class="gapbar" style=${{ width }}></span>${words}`);
    }
    case "missing":
      return cell("c-gap", row.first === row.last ? `Event ${row.first} is no longer stored (compacted)`
        : `Events ${count(row.first)} to ${count(row.last)} are no longer stored (compacted)`);
    case "note":
      return html`${cell("c0", "")}${cell("c1", "")}${cell("c2", "")}
        ${cell("c3", html`<i>${NOTES.get(row.note.kind) ?? oneLine(row.note.kind, 20)}</i>`)}
        ${cell("c4", html`<span class="tag">note</span>`)}${excerpt(row.note.text)}${cell("c6", size(row.note.size))}`;
    default: {
      const { event } = row;
      return html`${cell("c0", count(event.generation))}${cell("c1", clock(event.at), iso(event.at))}
        ${cell("c2", waitOf(row.waited))}${cell("c3", kindOf(event))}
        ${cell("c4", event.state && html`<${StateBadge} state=${event.state} />`)}
        ${excerpt(event.text)}${cell("c6", size(event.size))}`;
    }
  }
}

/**
 * `at` is the generation that is looked at, null for the newest; `onSelect(generation)` is called when another one is
 * chosen here. While `isLive`, the list stays at its end if the reader is there.
 */
export function Timeline({ journal, at, onSelect, isLive }) {
  const [closed, setClosed] = useState(() => new Set());
  const [open, setOpen] = useState(() => new Set());
  const [active, setActive] = useState(-1);
  const narrow = useNarrow();
  const control = useRef(null);
  const chosen = useRef(null); // what was chosen here is where the reader looks: the list stays
  const atEnd = useRef(isLive);
  const rows = useMemo(() => timelineRows(journal, { closed, open }), [journal, journal.version, closed, open]);
  const isLoaded = at !== null && at <= (journal.events.at(-1)?.generation ?? 0);
  const marked = isLoaded ? rowOf(rows, at) : -1;

  useLayoutEffect(() => {
    if (at === null && isLive && atEnd.current) control.current?.scrollTo(rows.length - 1);
  }, [rows.length, isLive, at]);
  useEffect(() => {
    if (at === null || marked < 0 || chosen.current === at) return;
    chosen.current = null;
    control.current?.scrollTo(marked, { center: true });
  }, [at, marked]);

  function toggle(row) {
    const [set, change, key] = row.type === "run" ? [closed, setClosed, row.run] : [open, setOpen, row.first];
    const next = new Set(set);
    if (!next.delete(key)) next.add(key);
    change(next);
  }
  function onOpen(index) {
    const row = rows[index];
    setActive(index);
    if (row.isOpen !== undefined) toggle(row);
    else if (row.type === "event" || row.type === "note") onSelect((chosen.current = row.first));
  }
  function onKey(event, index) {
    const row = rows[index];
    if (row?.isOpen !== undefined && (event.key === (row.isOpen ? "ArrowLeft" : "ArrowRight") || event.key === " ")) {
      event.preventDefault();
      toggle(row);
    }
  }
  const runs = rows.filter((row) => row.type === "run");
  const loaded = journal.isLoading && journal.hasMore ? `Loading: ${count(journal.events.length)} of ` : "";
  const tool = (label, onClick, disabled = false) => html`<button type="button" class="small" disabled=${disabled}
    onClick=${onClick}>${label}</button>`;
  return html`<div class="timeline">
    <${Strip} journal=${journal} at=${at} onSelect=${onSelect} />
    ${journal.error && html`<${Problem} error=${journal.error} retry=${() => journal.load()} />`}
    <div class="row tools">
      <span class="muted" role="status">${loaded}${count(journal.newest)} events</span>
      ${runs.length > 1 && html`${tool("Collapse runs", () => setClosed(new Set(runs.map((row) => row.run))))}
        ${tool("Expand runs", () => setClosed(new Set()), !closed.size)}`}
      ${journal.isCut && tool("Load more events", () => journal.more())}
    </div>
    <div class="split ${at === null ? "" : "chosen"}">
      ${rows.length === 0 && journal.isLoading ? html`<${Spinner} label="Loading the journal" />` : html`<${VirtualGrid}
        name="event" label="Events" class="events" isFitted control=${control} count=${rows.length}
        rowHeight=${narrow ? 54 : 32} active=${active} header=${narrow ? undefined : HEADER}
        onActive=${setActive} onOpen=${onOpen} onKey=${onKey}
        onRange=${() => (atEnd.current = control.current?.isAtEnd() ?? true)}
        row=${(index, isActive) => {
          const row = rows[index];
          const later = at !== null && row.first > at && row.type !== "gap" ? "later" : "";
          return {
            cells: cellsOf(row, isActive ? 0 : -1, toggle),
            class: `t-${row.type} ${later} ${row.isFolded ? "folded" : ""} ${index === marked ? "marked" : ""}`,
            current: index === marked,
          };
        }} />`}
      ${at !== null && html`<${Detail} journal=${journal} generation=${at} />`}
    </div>
  </div>`;
}

/** One event in full. */
function Detail({ journal, generation }) {
  const { data: event, error } = useLoaded(generation, (signal) => journal.body(generation, signal));
  const facts = event && [kindOf(event), time(event.at, { milliseconds: true }), size(event.size), `run ${event.run}`];
  return html`<aside class="detail card" aria-label="Event ${generation}">
    <h2>Event ${count(generation)}</h2>
    ${error ? html`<${Problem} error=${error} />` : event === undefined ? html`<${Spinner} />` : !event
      ? html`<p class="muted">This event is no longer stored.
          The tabs History, Artifacts and JSON show the task as it was then.</p>`
      : html`<p class="muted">${facts.join(" · ")}
          ${event.state && html` <${StateBadge} state=${event.state} />`}</p>
        ${event.json === null ? html`<p>It is too large to be shown here.</p>`
          : html`<${JsonView} text=${event.json} label="Event ${event.generation}" />`}`}
  </aside>`;
}
