// Small parts that every view uses.
import { html, signal, useEffect, useRef, useState } from "../lib/preact.js";
import { count, oneLine, stateKind, stateLabel, time } from "../lib/format.js";

/** The state of a task as a colored word. */
export function StateBadge({ state }) {
  return html`<span class="badge ${stateKind(state)}">${stateLabel(state)}</span>`;
}

/** A time that machines can read; `title` has all of it. */
export function Time({ iso, milliseconds = false, children }) {
  if (!iso) return html`<span class="muted">–</span>`;
  return html`<time datetime=${iso} title=${iso}>${children ?? time(iso, { milliseconds })}</time>`;
}

/** A foreign name: on one line, isolated from the direction of the text around it, cut where there is no room. */
export function Name({ text, limit = 200, class: extra = "" }) {
  return html`<bdi class="name ${extra}" title=${oneLine(text, 1000)}>${oneLine(text, limit)}</bdi>`;
}

/** A button that copies a text, and says so. `text` may be a function. */
export function CopyButton({ text, label = "Copy", class: extra = "" }) {
  const [done, setDone] = useState(false);
  async function copy() {
    await copyText(typeof text === "function" ? text() : text);
    setDone(true);
    announce("Copied");
    setTimeout(() => setDone(false), 1500);
  }
  return html`<button type="button" class="small ${extra}" onClick=${copy}>${done ? "Copied" : label}</button>`;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages that came over plain HTTP from another machine have no clipboard.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "offscreen";
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

/** What is said to screen readers and shown for a moment. `kind` is "note" or "bad". */
export const announcement = signal({ text: "", kind: "note", number: 0 });

export function announce(text, kind = "note") {
  announcement.value = { text, kind, number: announcement.value.number + 1 };
}

export function Announcer() {
  const { text, kind, number } = announcement.value;
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    if (!number) return undefined;
    setVisible(true);
    const timer = setTimeout(() => setVisible(false), kind === "bad" ? 8000 : 2500);
    return () => clearTimeout(timer);
  }, [number]);
  return html`<div class="toast ${kind} ${visible ? "visible" : ""}" role="status" aria-live="polite">${visible ? text : ""}</div>`;
}

/** An error where the thing it is about would be; `retry` is called by its button. */
export function Problem({ error, retry, children }) {
  return html`<div class="problem" role="alert">
    <p>${typeof error === "string" ? error : error?.message ?? "Something went wrong."}</p>
    ${children}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** What a view shows when there is nothing to show. */
export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}

export function Spinner({ label = "Loading" }) {
  return html`<p class="spinner" role="status"><span aria-hidden="true"></span>${label} …</p>`;
}

/** A table that scrolls sideways by itself where it is too wide; its children are the rows. */
export function Table({ label, heads, children }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${heads.map((each) => html`<th key=${each}>${each}</th>`)}</tr></thead><tbody>${children}</tbody>
  </table></div>`;
}

/** A modal dialog. The browser keeps the focus inside and returns it; Escape closes. */
export function Dialog({ title, onClose, children, class: extra = "" }) {
  const ref = useRef(null);
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  const onClick = (event) => {
    if (event.target === ref.current) onClose();
  };
  return html`<dialog ref=${ref} class=${extra} aria-label=${title} onCancel=${(event) => { event.preventDefault(); onClose(); }} onClick=${onClick}>
    <header><h2>${title}</h2><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    <div class="body">${children}</div>
  </dialog>`;
}

/**
 * Tabs by the keyboard pattern of ARIA: arrow keys move, Home and End jump.
 * `tabs` is a list of {id, label}; the caller renders the panel with id `panel-${name}` beside it.
 */
export function Tabs({ name, tabs, current, onSelect, label }) {
  function onKeyDown(event) {
    const index = tabs.findIndex((tab) => tab.id === current);
    const moves = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = tabs[(moves[event.key] + tabs.length) % tabs.length];
    onSelect(next.id);
    event.currentTarget.querySelector(`[data-tab="${CSS.escape(next.id)}"]`)?.focus();
  }
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
    ${tabs.map((tab) => html`<button type="button" key=${tab.id} role="tab" id="tab-${name}-${tab.id}" data-tab=${tab.id}
      aria-selected=${tab.id === current} aria-controls="panel-${name}" tabindex=${tab.id === current ? 0 : -1}
      onClick=${() => onSelect(tab.id)}>${tab.label}</button>`)}
  </div>`;
}

/** A long list, shown in steps: [how many are shown, the button for more of them, a function that sets how many]. */
export function usePage(total, what, step) {
  const [limit, setLimit] = useState(step);
  const more = total > limit && html`<button type="button" class="small" onClick=${() => setLimit(limit + step)}>Show ${Math.min(step, total - limit)} more of ${count(total)} ${what}</button>`;
  return [limit, more, setLimit];
}

/** Run `action` every `ms` while the page is visible. */
export function useInterval(action, ms) {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, ms);
    return () => clearInterval(timer);
  }, [ms]);
}
