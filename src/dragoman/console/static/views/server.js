// The server as its operator sees it: nodes, work under way, rates and latencies of the last minutes, errors.
import { html, useEffect, useState } from "../lib/preact.js";
import * as api from "../lib/api.js";
import { ago, count, duration, oneLine, size } from "../lib/format.js";
import { href } from "../lib/router.js";
import { Name, Problem, Spinner, StateBadge, Table, Time, useInterval } from "../ui/base.js";
import { Chart } from "../ui/chart.js";

const REFRESH = 2500;

export function ServerView() {
  const [state, setState] = useState({ data: null, error: null });
  const load = () =>
    api.get("server").then(
      (data) => setState({ data, error: null }),
      (error) => setState((before) => ({ data: before.data, error })),
    );
  useEffect(() => void load(), []);
  useInterval(load, REFRESH);
  const { data, error } = state;
  if (!data) return html`<div class="view">${error ? html`<${Problem} error=${error} retry=${load} />` : html`<${Spinner} />`}</div>`;
  const points = data.series.map((bucket) => ratesOf(bucket, data.bucketSeconds));
  // The title, how a value is written, and the lines: key, and label where it is another.
  const charts = [
    ["Requests per second", rate, [["requests", "all"], ["errors"]]],
    ["Latency", seconds, [["p50"], ["p95"]]],
    ["Runs and commits per second", rate, [["runs"], ["commits"]]],
    ["Streams open", count, [["streams"]]],
  ];
  return html`<div class="view server">
    <header><h1>Server</h1></header>
    ${error && html`<${Problem} error=${error} retry=${load} />`}
    ${data.store.error && html`<p class="note" role="alert">The store does not answer: ${oneLine(data.store.error, 300)}</p>`}
    <${Figures} data=${data} />
    <p class="muted">Measured since <${Time} iso=${data.measuredSince} />: the server counts only while somebody looks.</p>
    <div class="charts">${charts.map(([title, format, lines]) => html`<${Chart} key=${title} title=${title} points=${points} format=${format} lines=${
      lines.map(([key, label = key], index) => ({ key, label, class: key === "errors" ? "bad" : "ab"[index] }))} />`)}</div>
    <${Methods} methods=${data.methods} />
    <${Errors} errors=${data.errors} />
    <${Running} running=${data.running} total=${data.runningTotal} />
    <${Nodes} data=${data} />
    ${data.limits.length > 0 && html`<${Section} title="Limits hit"><ul class="row">${data.limits.map((each) => html`<li key=${each.limit} class="badge bad">${each.limit}: ${count(each.count)}</li>`)}</ul></${Section}>`}
  </div>`;
}

/** A bucket of the series with numbers per second. */
function ratesOf(bucket, length) {
  const { requests, errors, runs, commits } = bucket;
  return { ...bucket, requests: requests / length, errors: errors / length, runs: runs / length, commits: commits / length };
}

const rate = (value) => (value >= 100 ? count(Math.round(value)) : value.toFixed(value >= 10 ? 0 : 1));
const seconds = (value) => duration(value === null ? null : value * 1000);
const name = (text) => (text ? html`<${Name} text=${text} limit=${60} />` : "–");

function Figures({ data }) {
  const { node, store } = data;
  const states = Object.entries(store.tasks ?? {}).filter(([, number]) => number > 0);
  const total = states.reduce((sum, [, number]) => sum + number, 0);
  const figures = [
    ["Running", count(data.runningTotal)],
    ["Streams open", count(data.streams)],
    ["Webhooks owed", count(data.webhooks?.owed)],
    ["… and late", count(data.webhooks?.late)],
    ["Threads busy", data.threads ? `${count(data.threads.busy)} / ${count(data.threads.size)}` : "–"],
    ["Tasks", count(total)],
    ["Store", size(store.bytes)],
    ["Up for", duration(node.uptime * 1000).split(" ").slice(0, 2).join(" ")],
  ];
  return html`<dl class="figures">${figures.map(([label, value]) => html`<div key=${label} class="card"><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
    ${states.length > 0 && html`<ul class="states row" aria-label="Tasks by state">
      ${states.map(([state, number]) => html`<li key=${state}><a href=${href(["tasks"], { state })}><${StateBadge} state=${state} /> ${count(number)}</a></li>`)}
    </ul>`}
    <p class="muted"><${Name} text=${node.name} /> · process ${node.pid} · Dragoman ${node.version} · started <${Time} iso=${node.started} /> · store: ${store.kind}, <${Name} text=${store.location ?? ""} limit=${120} /></p>`;
}

function Section({ title, count: number, children }) {
  return html`<section class="card block"><h2>${title} ${number !== undefined && html`<span class="muted">${count(number)}</span>`}</h2>${children}</section>`;
}

function Methods({ methods }) {
  if (!methods.length) return null;
  return html`<${Section} title="Methods"><${Table} label="Methods" heads=${["Method", "Agent", "Calls", "Errors", "p50", "p95"]}>
    ${methods.map((each) => html`<tr key="${each.method} ${each.agent}"><td>${each.method || "–"}</td><td>${name(each.agent)}</td><td>${count(each.count)}</td>
      <td class=${each.errors ? "bad" : ""}>${count(each.errors)}</td><td>${seconds(each.p50)}</td><td>${seconds(each.p95)}</td></tr>`)}
  </${Table}></${Section}>`;
}

function Errors({ errors }) {
  return html`<${Section} title="Recent errors" count=${errors.length}>
    ${errors.length === 0
      ? html`<p class="muted">None since the server started. An error that a caller got with a reference is found here by it.</p>`
      : html`<${Table} label="Recent errors" heads=${["Time", "Reference", "What", "Agent", "Task"]}>
        ${errors.map((each, index) => html`<tr key=${`${each.at} ${index}`}><td><${Time} iso=${each.at} /></td><td class="mono">${each.reference ?? "–"}</td>
          <td class="what">${oneLine(each.message, 400)}</td><td>${name(each.agent)}</td>
          <td>${each.task ? html`<a href=${href(["tasks", each.task])}>${oneLine(each.task, 13)}</a>` : "–"}</td></tr>`)}
      </${Table}>`}
  </${Section}>`;
}

function Running({ running, total }) {
  return html`<${Section} title="At work now" count=${total}>
    ${running.length === 0
      ? html`<p class="muted">Nothing.</p>`
      : html`<${Table} label="At work now" heads=${["Task", "Agent", "Skill", "Since"]}>
        ${running.map((each) => html`<tr key=${each.id}><td><a class="mono" href=${href(["tasks", each.id])}>${oneLine(each.id, 60)}</a></td>
          <td>${name(each.agent)}</td><td>${name(each.skill)}</td><td>${ago(each.since ?? undefined)}</td></tr>`)}
      </${Table}>`}
  </${Section}>`;
}

const NODE_KINDS = { alive: "good", dead: "bad", late: "bad" };

function Nodes({ data }) {
  return html`<${Section} title="Nodes" count=${data.nodes.length}>
    ${data.waiting !== null && html`<p>${count(data.waiting)} tasks wait for a node.</p>`}
    <${Table} label="Nodes" heads=${["Name", "State", "Version", "Agents", "Running", "Webhooks", "Seen"]}>
      ${data.nodes.map((node, index) => html`<tr key=${index}><td>${name(node.name)}</td><td><span class="badge ${NODE_KINDS[node.state] ?? ""}">${node.state}</span></td>
        <td>${node.version || "–"}</td><td>${(node.agents ?? []).map((each) => oneLine(each, 40)).join(", ") || "–"}</td><td>${count(node.running)}</td><td>${count(node.webhooks)}</td>
        <td>${node.age === null || node.age === undefined ? "–" : `${duration(node.age * 1000)} ago`}</td></tr>`)}
    </${Table}>
  </${Section}>`;
}
