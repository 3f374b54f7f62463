// The conversations with an agent: from the server where this visitor may list tasks, else from this browser's memory.
import { html, useEffect, useState } from "../lib/preact.js";
import { get } from "../lib/api.js";
import { textOf } from "../lib/conversation.js";
import { ago, oneLine } from "../lib/format.js";
import { href } from "../lib/router.js";
import { seesTasks } from "../lib/session.js";
import { StateBadge } from "./base.js";

const MAX_REMEMBERED = 30;
const MAX_TASKS = 50;
const MIN_SHOWN = 12;
const storageKey = (agent) => `dragoman.chats.${agent.name}`;

function remembered(agent) {
  try {
    const kept = JSON.parse(localStorage.getItem(storageKey(agent)));
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

function remember(agent, kept) {
  try {
    localStorage.setItem(storageKey(agent), JSON.stringify(kept.slice(0, MAX_REMEMBERED)));
  } catch {
    // Full, or switched off: then nothing is remembered.
  }
}

/** The ids of the tasks of a context that this browser remembers. */
export const rememberedTasks = (agent, contextId) =>
  remembered(agent).find((each) => each.contextId === contextId)?.tasks ?? [];

/** Remember a conversation in this browser, for visitors whom the server does not know. */
function note(agent, { contextId, turns }) {
  if (!contextId || !turns.length) return;
  const before = remembered(agent);
  const known = before.find((each) => each.contextId === contextId);
  const title = known?.title || oneLine(textOf(turns[0].messages[0]), 80);
  const ids = new Set([...(known?.tasks ?? []), ...turns.map((turn) => turn.id).filter(Boolean)]);
  const { updated, state } = turns.at(-1);
  const entry = { contextId, title, updated, state, tasks: [...ids].slice(-MAX_TASKS) };
  remember(agent, [entry, ...before.filter((each) => each !== known)]);
}

/** Rows of tasks, newest first, as conversations: the first task names it, the last one has its state. */
function grouped(rows) {
  const found = new Map();
  for (const row of rows.filter((each) => each.own !== false && each.contextId)) {
    const known = found.get(row.contextId);
    if (known) known.title = row.title || known.title;
    else found.set(row.contextId, { ...row });
  }
  return [...found.values()];
}

/** The list beside a conversation, which changes in place: `turns` and `isBusy` are handed over to say so. */
export function ConversationList({ agent, conversation, turns, isBusy }) {
  const { contextId } = conversation;
  const [{ rows, next, isRead }, setPage] = useState({ rows: [], next: null, isRead: false });
  const [kept, setKept] = useState([]);
  const read = async (after) => {
    let found = after ? rows : [];
    let cursor = after;
    const enough = grouped(found).length + MIN_SHOWN;
    // A page is bounded by what the server looks at, so it may hold few conversations.
    for (let pages = 0; pages < 4 && grouped(found).length < enough && cursor !== null; pages += 1) {
      const page = await get("tasks", { agent: agent.name, limit: 100, after: cursor });
      found = [...found, ...page.tasks];
      cursor = page.next;
    }
    setPage({ rows: found, next: cursor, isRead: true });
  };
  useEffect(() => {
    if (!seesTasks.value) {
      note(agent, conversation);
      setKept(remembered(agent));
      return undefined;
    }
    // A conversation that has just begun gets its row a moment later.
    const timer = setTimeout(() => read().catch(() => {}), 150);
    return () => clearTimeout(timer);
  }, [agent.name, contextId, turns.length, isBusy, seesTasks.value]);
  const all = seesTasks.value ? grouped(rows) : kept;
  const forget = () => {
    remember(agent, []);
    setKept([]);
  };
  return html`<aside id="conversations" class="conversations" aria-label="Conversations">
    <h2>Conversations</h2>
    ${!all.length && (isRead || !seesTasks.value) && html`<p class="muted">None yet.</p>`}
    <ul>${all.map((each) => html`<li key=${each.contextId}>
      <a href=${href(["agents", agent.name, "chat", each.contextId])} aria-current=${each.contextId === contextId ? "page" : undefined}>
        <bdi class="title">${oneLine(each.title, 80) || "Without words"}</bdi>
        <${StateBadge} state=${(each.contextId === contextId && turns.at(-1)?.state) || each.state} />${" "}
        <span class="muted">${ago(each.updated)}</span>
      </a></li>`)}</ul>
    ${next && html`<button type="button" class="small" onClick=${() => read(next).catch(() => {})}>Show earlier ones</button>`}
    ${!seesTasks.value && kept.length > 0 && html`<button type="button" class="small" onClick=${forget}>Forget these</button>`}
  </aside>`;
}
