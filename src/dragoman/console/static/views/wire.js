// The exchanges of this page as they went over the wire, and the same call in every version and binding.
import { html, useEffect, useMemo, useState } from "../lib/preact.js";
import { binding, setBinding } from "../lib/a2a.js";
import * as api from "../lib/api.js";
import { count, duration, oneLine, time } from "../lib/format.js";
import { href, navigate, route, setQuery } from "../lib/router.js";
import { agentOf } from "../lib/session.js";
import { command, curl, pythonProgram } from "../lib/snippets.js";
import { clearWire, exchanges, wireVersion } from "../lib/wire.js";
import { CopyButton, Empty, Name, Problem, Spinner, Tabs } from "../ui/base.js";
import { JsonView } from "../ui/json.js";

const SHOWN_EVENTS = 200;
// What `console/api/calls` is sent of a stream or a response: enough to show the form.
const MAX_SENT = 150_000;

const BINDINGS = { JSONRPC: "JSON-RPC", "HTTP+JSON": "HTTP+JSON", GRPC: "gRPC as JSON" };
const took = (exchange) => (exchange.duration === null ? "open" : duration(exchange.duration));

export function WireView({ number }) {
  // Exchanges change in place, and what is given the same again is not rendered again.
  const version = wireVersion.value;
  const selected = exchanges.find((each) => String(each.number) === number);
  return html`<div class="view wide wire">
    <header>
      <h1>Wire</h1>
      <span class="grow"></span>
      <fieldset class="switch"><legend class="visually-hidden">Binding of this page's calls</legend>
        ${["JSONRPC", "HTTP+JSON"].map((name) => html`<label key=${name}><input type="radio" name="binding" checked=${binding.value === name} onChange=${() => setBinding(name)} /> ${BINDINGS[name]}</label>`)}
      </fieldset>
      <button type="button" onClick=${download} disabled=${!exchanges.length}>Download</button>
      <button type="button" onClick=${() => { clearWire(); navigate(["wire"]); }} disabled=${!exchanges.length}>Clear</button>
    </header>
    ${exchanges.length === 0
      ? html`<${Empty} title="Nothing has been sent yet"><p>Every A2A request of this page appears here with its response and its events, as they went over the wire. Secrets are masked.</p></${Empty}>`
      : html`<div class="split ${selected ? "open" : ""}">
          <${ExchangeList} selected=${selected} version=${version} />
          ${selected ? html`<${ExchangeDetail} key=${selected.number} exchange=${selected} version=${version} />` : html`<p class="muted hint">Choose an exchange.</p>`}
        </div>`}
  </div>`;
}

function ExchangeList({ selected }) {
  const filter = (route.value.query.filter ?? "").toLowerCase();
  const shown = exchanges.filter((each) => !filter || `${each.operation} ${each.agent} ${each.status} ${each.requestBody}`.toLowerCase().includes(filter)).reverse();
  function onKeyDown(event) {
    const index = shown.indexOf(selected);
    const moves = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: shown.length - 1 };
    const target = shown[moves[event.key]];
    if (!target) return;
    event.preventDefault();
    navigate(["wire", String(target.number)], route.value.query, { replace: true });
    requestAnimationFrame(() => document.getElementById(`exchange-${target.number}`)?.focus());
  }
  return html`<div class="exchanges">
    <input type="search" data-search aria-label="Filter exchanges" placeholder="Filter" value=${route.value.query.filter ?? ""} onInput=${(event) => setQuery({ filter: event.currentTarget.value })} />
    <ul class="plain" aria-label="Exchanges" onKeyDown=${onKeyDown}>
      ${shown.map((each) => html`<li key=${each.number}>
        <a id="exchange-${each.number}" href=${href(["wire", String(each.number)], route.value.query)} aria-current=${each === selected ? "true" : undefined}>
          <b>${each.operation}</b>
          <span class="status ${each.error || each.status >= 400 ? "bad" : ""}">${each.status || (each.error ? "–" : "…")}</span>
          <span class="muted"><${Name} text=${each.agent} limit=${40} /> · ${time(each.at)} · ${took(each)}${each.isStream ? ` · ${count(each.eventCount)} events` : ""}</span>
        </a>
      </li>`)}
    </ul>
    ${!shown.length && html`<p class="muted">No exchange matches.</p>`}
  </div>`;
}

const TABS = [
  { id: "raw", label: "As it went" },
  { id: "versions", label: "Every version" },
  { id: "copy", label: "To copy" },
];

function ExchangeDetail({ exchange, version }) {
  const tab = route.value.query.tab ?? "raw";
  return html`<section class="detail card" aria-label="Exchange ${exchange.number}">
    <p class="row"><a class="back" href=${href(["wire"], { filter: route.value.query.filter })}>← All exchanges</a></p>
    <h2>${exchange.operation} <span class="muted">A2A ${exchange.version}, ${exchange.binding}</span></h2>
    <${Tabs} name="wire" label="Exchange" tabs=${TABS} current=${tab} onSelect=${(id) => setQuery({ tab: id })} />
    <div id="panel-wire" role="tabpanel" aria-labelledby="tab-wire-${tab}">
      ${tab === "raw" && html`<${Raw} exchange=${exchange} version=${version} />`}
      ${tab === "versions" && html`<${Versions} exchange=${exchange} isOpen=${exchange.duration === null} />`}
      ${tab === "copy" && html`<${Snippets} exchange=${exchange} isOpen=${exchange.duration === null} />`}
    </div>
  </section>`;
}

/** A request or a response: its first line, its headers, and its body as the text or the value that it is. */
function Half({ title, line, headers = {}, text, value }) {
  return html`<h3>${title}</h3>
    ${line && html`<p class="mono line">${line}</p>`}
    <dl class="headers mono">${Object.entries(headers).map(([name, each]) => html`<div key=${name}><dt>${name}:</dt> <dd>${each}</dd></div>`)}</dl>
    ${(text || (value !== null && value !== undefined)) && html`<${JsonView} text=${text} value=${value} label="${title} body" />`}`;
}

function Raw({ exchange }) {
  const { events, eventCount, status } = exchange;
  const [all, setAll] = useState(false);
  const shown = all ? events : events.slice(-SHOWN_EVENTS);
  const answer = status
    ? html`<span class="status ${status >= 400 ? "bad" : ""}">HTTP ${status}</span> <span class="muted">${took(exchange)}</span>`
    : html`<span class="muted">${exchange.error ? "None." : "Not yet."}</span>`;
  return html`
    <${Half} title="Request" line="${exchange.method} ${exchange.url}" headers=${exchange.requestHeaders} text=${exchange.requestBody} />
    <${Half} title="Response" line=${answer} headers=${status ? exchange.responseHeaders : {}} text=${exchange.responseBody} />
    ${exchange.error && html`<p class="note">The exchange ended early: ${exchange.error}</p>`}
    ${exchange.isStream && html`<h3>Events <span class="muted">${count(eventCount)}</span></h3>
      ${events.length > shown.length && html`<p><button type="button" class="small" onClick=${() => setAll(true)}>Show the first ${count(events.length - shown.length)} too</button></p>`}
      ${eventCount > events.length && html`<p class="muted">Only the first ${count(events.length)} are kept.</p>`}
      <ol class="plain" aria-label="Events">
        ${shown.map((each, index) => html`<${WireEvent} key=${events.length - shown.length + index} event=${each} />`)}
      </ol>`}`;
}

/** What an event is, in a few words: its kind, its state, and its text. Empty for what is none, or large. */
function summaryOf(data) {
  if (data.length > 20_000) return "";
  try {
    const event = JSON.parse(data);
    const [kind, inner] = Object.entries(event.result ?? event).find(([, value]) => value !== null && typeof value === "object");
    const parts = inner.artifact?.parts ?? inner.status?.message?.parts ?? inner.parts;
    const texts = Array.isArray(parts) ? parts.map((part) => part?.text ?? part?.filename) : [inner.message];
    const words = [kind, inner.status?.state, ...texts].filter((each) => typeof each === "string" && each !== "");
    return oneLine(words.join(" "), 160);
  } catch {
    return "";
  }
}

function WireEvent({ event }) {
  const [open, setOpen] = useState(false);
  const summary = useMemo(() => summaryOf(event.data), [event.data]);
  return html`<li>
    <button type="button" class="event mono" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class="muted">+${duration(event.at)}</span> <span class="muted">id ${event.id || "–"}</span> <span class="excerpt">${summary || event.data.slice(0, 160)}</span>
    </button>
    ${open && html`<${JsonView} text=${event.data} label="Event ${event.id}" />`}
  </li>`;
}

// -- in every version ----------------------------------------------------------------------------------------------

function bodyOf(exchange) {
  const request = { agent: exchange.agent, operation: exchange.operation, params: exchange.params };
  const parse = (text) => {
    try {
      const data = JSON.parse(text);
      return exchange.binding === "JSONRPC" ? data.result : data;
    } catch {
      return undefined;
    }
  };
  if (exchange.isStream) {
    const events = [];
    let size = 0;
    for (const { data } of exchange.events.slice(0, 50)) {
      size += data.length;
      const event = parse(data);
      if (size > MAX_SENT || event === undefined) break;
      events.push(event);
    }
    if (events.length) request.events = events;
  } else if (exchange.status >= 200 && exchange.status < 300 && exchange.responseBody.length < MAX_SENT) {
    const result = parse(exchange.responseBody);
    if (result !== undefined) request.result = result;
  }
  return request;
}

function useCalls(exchange) {
  const [state, setState] = useState({});
  const load = () => {
    setState({});
    api.post("calls", bodyOf(exchange)).then(setState, (error) => setState({ error }));
  };
  // Again once its response is there.
  useEffect(load, [exchange.number, exchange.duration === null]);
  return { ...state, load };
}

function Versions({ exchange }) {
  const { calls, error, load } = useCalls(exchange);
  const { query } = route.value;
  if (error) return html`<${Problem} error=${error} retry=${load} />`;
  if (!calls) return html`<${Spinner} />`;
  const versions = [...new Set(calls.map((call) => call.version))].reverse();
  const version = versions.includes(query.version) ? query.version : exchange.version;
  const bindings = calls.filter((call) => call.version === version).map((call) => call.binding);
  const chosen = bindings.includes(query.binding) ? query.binding : bindings[0];
  const call = calls.find((each) => each.version === version && each.binding === chosen);
  const choice = (key, label, value, values, nameOf) => html`<label>${label} <select value=${value} onChange=${(event) => setQuery({ [key]: event.currentTarget.value })}>
    ${values.map((each) => html`<option key=${each} value=${each}>${nameOf(each)}</option>`)}</select></label>`;
  return html`<div class="row chooser">
      ${choice("version", "Version", version, versions, (each) => `A2A ${each}`)}
      ${choice("binding", "Binding", chosen, bindings, (each) => BINDINGS[each] ?? each)}
    </div>
    ${call?.missing ? html`<p class="note">${call.missing}</p>` : call && html`<${Call} call=${call} />`}`;
}

function Call({ call }) {
  const hasResponse = call.response !== null && call.response !== undefined;
  return html`
    <${Half} title="Request" line=${call.binding === "GRPC" ? `${call.service}/${call.rpc}` : `${call.method} ${call.url}`} headers=${call.headers} value=${call.body} />
    ${hasResponse && html`<${Half} title="Response" value=${call.response} />`}
    ${call.events?.length > 0 && html`<h3>Events <span class="muted">the first ${count(call.events.length)}</span></h3>
      <ol class="plain">${call.events.map((event, index) => html`<li key=${index}><pre>${JSON.stringify(event)}</pre></li>`)}</ol>`}
    <h3>As a command</h3>
    <${Snippet} text=${curl(call)} />`;
}

// -- to copy -------------------------------------------------------------------------------------------------------

function Snippet({ text }) {
  return html`<div class="snippet"><pre>${text}</pre><${CopyButton} text=${text} /></div>`;
}

function Snippets({ exchange }) {
  const { calls, error, load } = useCalls(exchange);
  const agent = agentOf(exchange.agent);
  const url = useMemo(() => new URL((agent?.path ?? "").replace(/\/$/, "") || "./", document.baseURI).href.replace(/\/$/, ""), [agent]);
  const asCommand = command(url, exchange.operation, exchange.params);
  const asPython = pythonProgram(url, exchange.operation, exchange.params);
  const call = calls?.find((each) => each.version === exchange.version && each.binding === exchange.binding);
  return html`
    ${asCommand && html`<h3>In the shell</h3><${Snippet} text=${asCommand} />`}
    ${asPython && html`<h3>In Python</h3><${Snippet} text=${asPython} />`}
    <h3>With curl</h3>
    ${error ? html`<${Problem} error=${error} retry=${load} />` : call ? html`<${Snippet} text=${curl(call)} />` : html`<${Spinner} />`}
    <p class="muted">Credentials are not part of these: add yours. Every other version is under “Every version”.</p>`;
}

function download() {
  const blob = new Blob([JSON.stringify(exchanges, null, 2)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `dragoman-wire-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
