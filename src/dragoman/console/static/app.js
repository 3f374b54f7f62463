// The shell: sidebar, top bar, keyboard, and the view of the current route.
import { Fragment, html, render, signal, useEffect } from "./lib/preact.js";
import { href, navigate, route } from "./lib/router.js";
import { agentOf, agents, isAdmin, loadCard, loadSession, seesTasks, session, sessionError, signInAddress, signOut } from "./lib/session.js";
import { exchanges, wireVersion } from "./lib/wire.js";
import { nextTheme, theme } from "./lib/preferences.js";
import { Announcer, Dialog, Empty, Name, Problem, Spinner } from "./ui/base.js";
import { AgentView } from "./views/agent.js";
import { ChatView } from "./views/chat.js";
import { ServerView } from "./views/server.js";
import { TaskView } from "./views/task.js";
import { TasksView } from "./views/tasks.js";
import { WireView } from "./views/wire.js";

const helpOpen = signal(false);
// The server takes a right token out of the address: one that is still there was not accepted.
const tokenRefused = signal(new URLSearchParams(location.search).has("token"));
if (tokenRefused.value) history.replaceState(null, "", location.pathname + location.hash);
const menuOpen = signal(false);

const KEYS = [
  ["/", "search tasks, or the field that filters this view"],
  ["?", "this help"],
  ["g then a, c, t, w, s", "go to agent, chat, tasks, wire, server"],
  ["↑ ↓ Home End", "move in a list; Enter opens"],
  ["← →", "move between tabs; the slider of a task moves by one event"],
  ["Enter, Shift+Enter", "send a message; a new line in it"],
  ["Esc", "close a dialog, leave a field"],
];

function Help() {
  return html`<${Dialog} title="Keyboard" onClose=${() => (helpOpen.value = false)}>
    <dl class="facts">${KEYS.map(([keys, what]) => html`<${Fragment} key=${keys}><dt><kbd>${keys}</kbd></dt><dd>${what}</dd></${Fragment}>`)}</dl>
  </${Dialog}>`;
}

function currentAgent() {
  const { path, query } = route.value;
  return agentOf(path[0] === "agents" ? path[1] : query.agent || undefined) ?? agents.value[0];
}

function NavLink({ to, query, current, children }) {
  return html`<a href=${href(to, query)} aria-current=${current ? "page" : undefined} onClick=${() => (menuOpen.value = false)}>${children}</a>`;
}

function Sidebar() {
  const { path } = route.value;
  const agent = currentAgent();
  const onAgents = path[0] === undefined || path[0] === "agents";
  wireVersion.value; // counts exchanges
  return html`<nav class="sidebar ${menuOpen.value ? "open" : ""}" id="sidebar" aria-label="Console">
    <h2>Agents</h2>
    <ul>
      ${agents.value.map((each) => html`<li key=${each.name}>
        <${NavLink} to=${["agents", each.name]} current=${onAgents && agent?.name === each.name && path[2] !== "chat"}>
          <${Name} text=${each.name} limit=${60} />
        </${NavLink}>
        ${agent?.name === each.name && html`<ul><li><${NavLink} to=${["agents", each.name, "chat"]} current=${path[0] === "agents" && path[2] === "chat"}>Chat</${NavLink}></li></ul>`}
      </li>`)}
    </ul>
    <h2>Server</h2>
    <ul>
      <li><${NavLink} to=${["tasks"]} current=${path[0] === "tasks"}>Tasks</${NavLink}></li>
      <li><${NavLink} to=${["wire"]} current=${path[0] === "wire"}>Wire <span class="count" aria-label="${exchanges.length} exchanges">${exchanges.length || ""}</span></${NavLink}></li>
      <li><${NavLink} to=${["server"]} current=${path[0] === "server"}>Server</${NavLink}></li>
    </ul>
    <p class="version">Dragoman ${session.value?.version ?? ""}</p>
  </nav>`;
}

function WhoAmI() {
  const { user, token, admin } = session.value;
  if (!user && !token) {
    const address = signInAddress();
    return address
      ? html`<a class="button" href=${address}>Sign in</a>`
      : html`<span class="muted who">visitor</span>`;
  }
  const name = user ? user.name : "operator";
  return html`<span class="who"><span class="label">Signed in as </span><b><${Name} text=${name} limit=${40} /></b>${admin && user ? " (admin)" : ""}</span>
    <button type="button" class="small" onClick=${signOut}>Sign out</button>`;
}

function TopBar() {
  const themes = { system: "System theme", light: "Light theme", dark: "Dark theme" };
  const signs = { system: "◐", light: "☀", dark: "☾" };
  function search(event) {
    event.preventDefault();
    navigate(["tasks"], { text: new FormData(event.currentTarget).get("text") });
  }
  return html`<header class="topbar">
    <button type="button" class="icon menu" aria-label="Menu" aria-expanded=${menuOpen.value} aria-controls="sidebar" onClick=${() => (menuOpen.value = !menuOpen.value)}>☰</button>
    <a class="brand" href=${href([])}><img src="console/icon.svg" alt="" width="24" height="24" /> Dragoman</a>
    ${seesTasks.value && html`<form role="search" onSubmit=${search}>
      <input type="search" name="text" id="search" placeholder="Search tasks" aria-label="Search tasks" aria-keyshortcuts="/" autocomplete="off" />
    </form>`}
    <span class="grow"></span>
    <${WhoAmI} />
    <button type="button" class="icon" aria-label=${themes[theme.value]} title=${themes[theme.value]} onClick=${nextTheme}>${signs[theme.value]}</button>
    <button type="button" class="icon" aria-label="Keyboard help" aria-keyshortcuts="?" title="Keyboard help" onClick=${() => (helpOpen.value = true)}>?</button>
  </header>`;
}

function TokenRefused() {
  return html`<div class="view"><div class="problem" role="alert">
    <p>This token is not valid: the server makes a new one each time it starts. Open the address that it printed last, or run <code>dragoman open</code>.</p>
    <button type="button" onClick=${() => (tokenRefused.value = false)}>Dismiss</button>
  </div></div>`;
}

/** What stands where a view would be that this visitor may not see. */
function Locked({ what }) {
  const { mode } = session.value;
  const address = signInAddress();
  return html`<${Empty} title="${what} need a key">
    ${mode === "token"
      ? html`<p>Open the address that <code>dragoman serve</code> printed (it ends with <code>?token=…</code>), or run <code>dragoman open</code> on that machine.</p>`
      : html`<p>Sign in to see them.</p>`}
    ${address && html`<p><a class="button" href=${address}>Sign in</a></p>`}
  </${Empty}>`;
}

function View() {
  const { path } = route.value;
  const [section = "agents"] = path;
  const agent = currentAgent();
  if (section === "agents") {
    if (path[1] !== undefined && !agentOf(path[1])) {
      return html`<${Empty} title="There is no such agent"><p>The agents of this server are in the sidebar.</p></${Empty}>`;
    }
    if (!agent) return html`<${Empty} title="No agents" />`;
    return path[2] === "chat"
      ? html`<${ChatView} key="${agent.name}" agent=${agent} contextId=${path[3]} />`
      : html`<${AgentView} key=${agent.name} agent=${agent} section=${path[2]} item=${path[3]} />`;
  }
  if (section === "tasks") {
    if (!seesTasks.value) return html`<${Locked} what="Tasks" />`;
    return path[1] === undefined ? html`<${TasksView} />` : html`<${TaskView} key=${path[1]} id=${path[1]} />`;
  }
  if (section === "wire") return html`<${WireView} number=${path[1]} />`;
  if (section === "server") return isAdmin.value ? html`<${ServerView} />` : html`<${Locked} what="Figures of the server" />`;
  return html`<${Empty} title="There is no such page"><p><a href=${href([])}>Go to the first agent</a></p></${Empty}>`;
}

const isField = (element) => element?.matches?.("input, textarea, select, [contenteditable]");
let goesUntil = 0; // a letter until then says where to go

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && isField(document.activeElement)) return void document.activeElement.blur();
  if (isField(event.target)) return;
  const agent = currentAgent();
  if (event.timeStamp < goesUntil) {
    goesUntil = 0;
    const places = { a: ["agents", agent?.name], c: ["agents", agent?.name, "chat"], t: ["tasks"], w: ["wire"], s: ["server"] };
    if (places[event.key]) {
      event.preventDefault();
      navigate(places[event.key]);
    }
    return;
  }
  if (event.key === "g") {
    goesUntil = event.timeStamp + 1500;
  } else if (event.key === "?") {
    helpOpen.value = true;
  } else if (event.key === "/") {
    // A view may have a filter of its own, which is nearer than the search of the top bar.
    const field = document.querySelector("main [data-search]") ?? document.getElementById("search");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select?.();
  }
}

function App() {
  useEffect(() => {
    loadSession();
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const agent = currentAgent();
  useEffect(() => {
    if (agent) loadCard(agent);
  }, [agent?.name]);
  useEffect(() => {
    document.title = agent ? `${agent.name} · Dragoman` : "Dragoman";
  }, [agent?.name]);
  if (sessionError.value && !session.value) return html`<${Problem} error=${sessionError.value} retry=${loadSession} />`;
  if (!session.value) return html`<${Spinner} label="Loading the console" />`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <${TopBar} />
    <${Sidebar} />
    ${menuOpen.value && html`<div class="scrim" onClick=${() => (menuOpen.value = false)}></div>`}
    <main id="main" tabindex="0">${tokenRefused.value && html`<${TokenRefused} />`}<${View} /></main>
    ${helpOpen.value && html`<${Help} />`}
    <${Announcer} />`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
