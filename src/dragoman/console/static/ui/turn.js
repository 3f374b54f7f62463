// One turn of a conversation: what was sent, what came back, and what the agent asks.
import { html, useRef, useState } from "../lib/preact.js";
import { textOf } from "../lib/conversation.js";
import { oneLine } from "../lib/format.js";
import { safeUrl } from "../lib/inline.js";
import { href } from "../lib/router.js";
import { choicesOf, kindOf, resolve } from "../lib/schema.js";
import { seesTasks } from "../lib/session.js";
import { Name, Problem, StateBadge, Time } from "./base.js";
import { Form, focusFirstError, initialValue, validate } from "./form.js";
import { Link } from "./markdown.js";
import { Parts } from "./parts.js";

const MAX_ARTIFACTS = 50;
const MAX_RADIOS = 8;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** A turn. `isOpen` when the next answer goes to it; `onSend` gets the parts of an answer. */
export function TurnView({ turn, isOpen, onSend, onRetry }) {
  const artifacts = [...turn.artifacts.values()];
  const isGrowing = turn.live && !turn.isFinal && !turn.isWaiting;
  return html`<article class="turn" aria-label="Turn">
    ${turn.messages.map((message, index) => html`<${Message} key=${message.messageId ?? index} message=${message} />`)}
    ${artifacts.slice(0, MAX_ARTIFACTS).map((artifact) => html`<${Artifact} key="${artifact.artifactId} ${artifact.revision}" artifact=${artifact} />`)}
    ${artifacts.length > MAX_ARTIFACTS && html`<p class="muted">${artifacts.length - MAX_ARTIFACTS} more artifacts are on the page of the task.</p>`}
    ${turn.progress && html`<${Progress} progress=${turn.progress} />`}
    <${Status} turn=${turn} isOpen=${isOpen} onSend=${onSend} />
    ${turn.error && html`<${Problem} error=${turn.error} retry=${onRetry} />`}
    <footer>
      ${isGrowing && !turn.progress && html`<span class="dots" aria-hidden="true">•••</span>`}
      <${StateBadge} state=${turn.state} />
      <span class="muted"><${Time} iso=${turn.updated} /></span>
      ${turn.id && seesTasks.value && html`<a href=${href(["tasks", turn.id])}>Task</a>`}
      ${turn.exchange && html`<a href=${href(["wire", String(turn.exchange)])}>Wire</a>`}
    </footer>
  </article>`;
}

function Message({ message }) {
  const isUser = message.role === "ROLE_USER";
  const skill = isUser && typeof message.metadata?.skillId === "string" ? message.metadata.skillId : "";
  return html`<div class="message ${isUser ? "user" : ""}">
    <span class="visually-hidden">${isUser ? "You:" : "Agent:"}</span>
    ${skill && html`<span class="tag">${oneLine(skill, 60)}</span>`}
    <${Parts} parts=${visibleParts(message)} />
  </div>`;
}

/** The form of MCP in a part; it comes as data beside its words. */
const formOf = (part) => (isObject(part?.data?.requestedSchema) ? part.data : null);

/** The parts that people read. */
function visibleParts(message) {
  const parts = Array.isArray(message?.parts) ? message.parts : [];
  return message?.role === "ROLE_USER" ? parts : parts.filter((part) => !formOf(part));
}

function Artifact({ artifact: { name, artifactId, description, parts } }) {
  const isNamed = !String(name ?? "").endsWith("-result"); // as the answer itself is called
  return html`<div class="message ${isNamed ? "named" : ""}">
    ${isNamed && html`<h3><${Name} text=${name || artifactId} limit=${80} /></h3>`}
    ${description && html`<p class="muted">${oneLine(description, 300)}</p>`}
    <${Parts} parts=${parts} />
  </div>`;
}

function Progress({ progress: { text, done, total } }) {
  const isKnown = done !== null && total !== null && total > 0;
  const label = oneLine(text, 200) || "Working";
  return html`<div class="progress">
    <progress aria-label=${label} max=${isKnown ? total : undefined} value=${isKnown ? Math.min(Math.max(done, 0), total) : undefined}></progress>
    <span>${label}${isKnown && html` <span class="muted">${done} of ${total}</span>`}</span>
  </div>`;
}

/** The last words of the agent: a question, where to sign in, why it failed, or how it ended. */
function Status({ turn, isOpen, onSend }) {
  const { statusMessage: message, state } = turn;
  if (state === "TASK_STATE_AUTH_REQUIRED") return html`<${SignIn} message=${message} isOpen=${isOpen} onSend=${onSend} />`;
  if (state === "TASK_STATE_INPUT_REQUIRED") {
    return html`<div class="message question">
      ${message ? html`<${Parts} parts=${visibleParts(message)} />` : html`<p>The agent waits for an answer.</p>`}
      ${isOpen && html`<${Question} key=${message?.messageId} message=${message} onSend=${onSend} />`}
    </div>`;
  }
  // Some agents close with the words of their answer.
  if (!message || (state === "TASK_STATE_COMPLETED" && [...turn.artifacts.values()].some((each) => textOf(each) === textOf(message)))) return null;
  const isBad = state === "TASK_STATE_FAILED" || state === "TASK_STATE_REJECTED";
  return html`<div class="message ${isBad ? "problem" : ""}"><${Parts} parts=${visibleParts(message)} /></div>`;
}

/**
 * Where to sign in. The task goes on when the agent learns of it: nothing that is sent here counts as a sign-in. Only a
 * tool of MCP that wants to be told says so, with its link.
 */
export function SignIn({ message, isOpen, onSend }) {
  const parts = visibleParts(message);
  const isAsked = parts.some((part) => Array.isArray(part?.metadata?.actions) && part.metadata.actions.includes("accept"));
  const links = parts.map((part) => safeUrl(part?.url)).filter((url) => url?.startsWith("http"));
  return html`<div class="message question">
    <${Parts} parts=${parts.filter((part) => !links.includes(safeUrl(part?.url)))} />
    ${!message && html`<p>The agent needs a sign-in elsewhere before it goes on.</p>`}
    <div class="row">
      ${links.slice(0, 5).map((url) => html`<${Link} key=${url} href=${url} class="button primary">Open ${oneLine(new URL(url).host, 80)}</${Link}>`)}
      ${isOpen && isAsked && html`<button type="button" onClick=${() => onSend([{ text: "accept" }, { data: { action: "accept" } }])}>I have signed in</button>`}
    </div>
    ${isOpen && !isAsked && html`<p class="muted">The task continues by itself after the sign-in. What you write meanwhile is kept as a note.</p>`}
  </div>`;
}

// -- questions ---------------------------------------------------------------------------------------------------

/** The schema of the answer that a question asks for, and whether it can be declined; null where any text will do. */
function wanted(message) {
  const schema = message?.metadata?.["dragoman/answer"];
  if (isObject(schema)) return { schema, declines: false };
  const form = Array.isArray(message?.parts) ? message.parts.map(formOf).find(Boolean) : null;
  return form && { schema: form.requestedSchema, declines: Array.isArray(form.actions) && form.actions.includes("decline") };
}

/** An answer as it goes over the wire: text for what can be typed, data for the rest. */
function partsOf(value) {
  if (typeof value === "boolean") return [{ text: value ? "yes" : "no" }];
  if (typeof value === "string" || typeof value === "number") return [{ text: String(value) }];
  return [{ data: value }];
}

/** A form for the answer that a question asks for; nothing where words are enough. `onSend(parts)`. */
export function Question({ message, onSend }) {
  const found = wanted(message);
  if (!found) return null;
  const { schema, declines } = found;
  const root = resolve(schema, schema) ?? {};
  const kind = kindOf(root, schema);
  if (kind === "string" && !root.format) return null; // the field below is enough
  if (kind === "boolean") {
    return html`<div class="row" role="group" aria-label="Answer">
      <button type="button" class="primary" onClick=${() => onSend(partsOf(true))}>Yes</button>
      <button type="button" onClick=${() => onSend(partsOf(false))}>No</button>
    </div>`;
  }
  if (kind === "choice") {
    const choices = choicesOf(resolve(schema, schema), schema);
    if (choices.length && choices.length <= MAX_RADIOS) return html`<${Choices} choices=${choices} onSend=${onSend} />`;
  }
  return html`<${Answer} schema=${schema} declines=${declines} onSend=${onSend} />`;
}

function Choices({ choices, onSend }) {
  const [index, setIndex] = useState(-1);
  const submit = (event) => {
    event.preventDefault();
    const { value } = choices[index];
    // Choices are compared as text, except those that are no text.
    onSend(typeof value === "string" ? [{ text: value }] : [{ data: value }]);
  };
  return html`<form class="answer" onSubmit=${submit}>
    <fieldset class="choices"><legend class="visually-hidden">Answer</legend>
      ${choices.map((choice, position) => html`<label key=${position} class="choice">
        <input type="radio" name="answer" checked=${index === position} onChange=${() => setIndex(position)} /> ${oneLine(choice.label, 200)}</label>`)}
    </fieldset>
    <button type="submit" class="primary" disabled=${index < 0}>Send answer</button>
  </form>`;
}

function Answer({ schema, declines, onSend }) {
  const [value, setValue] = useState(() => initialValue(schema));
  const [errors, setErrors] = useState({});
  const form = useRef(null);
  const submit = (event) => {
    event.preventDefault();
    const wrong = validate(schema, value);
    setErrors(wrong);
    if (Object.keys(wrong).length) requestAnimationFrame(() => focusFirstError(form.current));
    else onSend(partsOf(value));
  };
  return html`<form class="answer" ref=${form} onSubmit=${submit} noValidate>
    <${Form} schema=${schema} value=${value} errors=${errors} label="Answer" onChange=${(next) => { setValue(next); setErrors({}); }} />
    <div class="row">
      <button type="submit" class="primary">Send answer</button>
      ${declines && html`<button type="button" onClick=${() => onSend([{ data: { action: "decline" } }])}>Decline</button>`}
    </div>
  </form>`;
}
