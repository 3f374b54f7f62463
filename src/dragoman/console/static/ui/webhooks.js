// The webhooks of a task: how far each has been delivered, and what can be done about it.
import { html, useEffect, useState } from "../lib/preact.js";
import * as api from "../lib/api.js";
import { call } from "../lib/a2a.js";
import { count, oneLine } from "../lib/format.js";
import { announce, Dialog, Empty, Name, Problem, Spinner, Time, useInterval } from "./base.js";

const STATES = new Map([
  ["open", ["delivering", "active"]], ["done", ["delivered", "good"]], ["dead", ["given up", "bad"]],
]);
const COLUMNS = ["State", "Address", "Delivered", "Tries", "Next try", "Last error", "Created", "Actions"];

/** `agent` is null when its tasks cannot be changed by this visitor; `newest` is the last event of the task. */
export function Webhooks({ taskId, agent, newest }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [isAdding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState(null);
  const path = `tasks/${api.pathOf(taskId)}/webhooks`;

  async function load() {
    try {
      setFound((await api.get(path)).webhooks);
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  }
  useEffect(() => void load(), [taskId]);
  useInterval(load, 3000);

  async function attempt(action, done) {
    try {
      await action();
      announce(done);
    } catch (failure) {
      announce(failure.message, "bad");
    }
    await load();
  }
  const retry = ({ id }) => attempt(() => api.post(`${path}/${api.pathOf(id)}/retry`), "Delivery starts again");
  function remove({ id }) {
    setDeleting(null);
    attempt(() => call(agent, "DeleteTaskPushNotificationConfig", { taskId, id }), "Webhook deleted");
  }
  function onAdded() {
    setAdding(false);
    load();
  }
  if (!found) return error ? html`<${Problem} error=${error} retry=${load} />` : html`<${Spinner} label="Loading webhooks" />`;
  return html`${error && html`<${Problem} error=${error} />`}
    ${found.length === 0
      ? html`<${Empty} title="No webhooks"><p>A webhook gets the events of the task as HTTP requests.</p></${Empty}>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label="Webhooks"><table class="webhooks">
          <thead><tr>${COLUMNS.map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
          <tbody>${found.map((webhook) => html`<${Row} key=${webhook.id} webhook=${webhook} newest=${newest}
            retry=${retry} remove=${agent && setDeleting} />`)}</tbody>
        </table></div>`}
    ${agent && html`<p><button type="button" onClick=${() => setAdding(true)}>Add a webhook</button></p>`}
    ${isAdding && html`<${Add} agent=${agent} taskId=${taskId} onClose=${onAdded} />`}
    ${deleting && html`<${Dialog} title="Delete the webhook?" onClose=${() => setDeleting(null)}>
      <p>No further events will be delivered to <${Name} text=${deleting.url} limit=${120} />.</p>
      <div class="row"><button type="button" class="danger" onClick=${() => remove(deleting)}>Delete</button>
        <button type="button" onClick=${() => setDeleting(null)}>Keep</button></div>
    </${Dialog}>`}`;
}

function Row({ webhook, newest, retry, remove }) {
  const { id, url, version, state, cursor, tries, due, failingSince, error, created } = webhook;
  const [label, kind] = STATES.get(state) ?? [oneLine(state, 20), "quiet"];
  return html`<tr>
    <td><span class="badge ${kind}">${label}</span></td>
    <td class="url"><${Name} text=${url} limit=${100} /><br />
      <span class="muted mono">${oneLine(id, 60)} · ${oneLine(version, 10)}</span></td>
    <td class="nowrap">${count(cursor)} of ${count(Math.max(newest, cursor))}</td>
    <td>${count(tries)}${failingSince && html`<br /><span class="muted">failing since <${Time} iso=${failingSince} /></span>`}</td>
    <td><${Time} iso=${due} /></td>
    <td class="error">${error ? oneLine(error, 300) : "–"}</td>
    <td><${Time} iso=${created} /></td>
    <td><div class="row">
      ${(state === "dead" || tries > 0) && html`<button type="button" class="small" onClick=${() => retry(webhook)}>
        Retry now</button>`}
      ${remove && html`<button type="button" class="small danger" onClick=${() => remove(webhook)}>Delete</button>`}
    </div></td>
  </tr>`;
}

function Add({ agent, taskId, onClose }) {
  const [error, setError] = useState(null);
  async function submit(event) {
    event.preventDefault();
    const { url, token } = Object.fromEntries(new FormData(event.currentTarget));
    try {
      await call(agent, "CreateTaskPushNotificationConfig", { taskId, url, ...(token ? { token } : {}) });
      announce("Webhook added");
      onClose();
    } catch (failure) {
      setError(failure);
    }
  }
  return html`<${Dialog} title="Add a webhook" onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      <label class="stacked">Address
        <input type="url" name="url" required placeholder="https://example.com/hook" autocomplete="off" /></label>
      <label class="stacked">Token <span class="muted">sent along, so that the receiver knows who calls; optional</span>
        <input type="password" name="token" autocomplete="off" /></label>
      ${error && html`<${Problem} error=${error} />`}
      <div class="row"><button type="submit" class="primary">Add</button>
        <button type="button" onClick=${onClose}>Cancel</button></div>
    </form>
  </${Dialog}>`;
}
