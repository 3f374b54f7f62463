// How this visitor says to an agent who they are, by what its card asks for.
import { html, useId, useRef, useState } from "../lib/preact.js";
import { call } from "../lib/a2a.js";
import { isObject, list } from "../lib/schema.js";
import { cards, credentials, loadCard, session, setCredential, signInAddress } from "../lib/session.js";
import { announce, Dialog, Name } from "./base.js";
import { ForeignLink, LongText } from "./text.js";

const MEMBERS = {
  httpAuthSecurityScheme: "http", apiKeySecurityScheme: "apiKey", oauth2SecurityScheme: "oauth2",
  openIdConnectSecurityScheme: "openIdConnect", mtlsSecurityScheme: "mutualTLS",
};
// What is typed for a kind of scheme: the name, label and type of each field.
const FIELDS = {
  basic: [["name", "Name", "text"], ["password", "Password", "password"]],
  bearer: [["token", "Token", "password"]],
  key: [["key", "Key", "password"]],
};
const short = (value, limit = 40) => String(value ?? "").slice(0, limit);

/** The security schemes of a card, 1.0 or 0.3: {name, kind, words, about, …}. `kind` decides what is typed. */
export function schemesOf(card) {
  const found = isObject(card?.securitySchemes) ? Object.entries(card.securitySchemes) : [];
  return found.slice(0, 50).filter(([, scheme]) => isObject(scheme)).map(([name, scheme]) => {
    const member = Object.keys(MEMBERS).find((each) => isObject(scheme[each]));
    const inner = member ? scheme[member] : scheme;
    return { name, about: String(inner.description ?? ""), ...describe(member ? MEMBERS[member] : scheme.type, inner) };
  });
}

function describe(type, scheme) {
  if (type === "http") {
    const name = short(scheme.scheme);
    if (/^basic$/i.test(name)) return { kind: "basic", words: "Name and password (HTTP Basic)" };
    if (!/^bearer$/i.test(name)) return { kind: "other", words: `HTTP ${name}` };
    return { kind: "bearer", words: `Bearer token${scheme.bearerFormat ? ` (${short(scheme.bearerFormat)})` : ""}` };
  }
  if (type === "apiKey") {
    const place = short(scheme.location ?? scheme.in);
    const key = short(scheme.name, 100);
    if (place === "cookie") return { kind: "cookie", words: `Sign-in (cookie ${key})` };
    return { kind: place === "header" ? "key" : "other", key, words: `Key in the ${place} ${key}` };
  }
  if (type === "oauth2") {
    const flows = Object.entries(isObject(scheme.flows) ? scheme.flows : {}).filter(([, flow]) => isObject(flow));
    const urls = flows.flatMap(([, flow]) => [flow.authorizationUrl, flow.tokenUrl, flow.deviceAuthorizationUrl]).filter(Boolean);
    return { kind: "bearer", urls, words: `OAuth 2.0 (${flows.map(([name]) => short(name)).join(", ")})` };
  }
  if (type === "openIdConnect") return { kind: "bearer", urls: [scheme.openIdConnectUrl].filter(Boolean), words: "OpenID Connect" };
  return { kind: "other", words: type === "mutualTLS" ? "Client certificate (mutual TLS)" : "Unknown" };
}

/** What one of has to be sent: lists of {name, scopes}, each an alternative. Empty when the agent is open to all. */
export function requirementsOf(card) {
  return list(card?.securityRequirements ?? card?.security).slice(0, 50).filter(isObject).map((requirement) =>
    Object.entries(isObject(requirement.schemes) ? requirement.schemes : requirement).map(([name, scopes]) => (
      { name, scopes: list(scopes?.list ?? scopes).map((each) => short(each, 100)) }
    )));
}

/** Says whether the agent knows this visitor, with the button to change that. Shows nothing where it asks nobody. */
export function CredentialsBar({ agent }) {
  const [isOpen, setOpen] = useState(false);
  const card = cards.value[agent.name]?.card;
  const isSet = Boolean(credentials.value[agent.name]);
  const user = session.value?.user;
  if (!requirementsOf(card).length) return null;
  function forget() {
    setCredential(agent.name, null);
    loadCard(agent, { again: true });
    announce("Credentials forgotten");
  }
  const text = isSet ? "Your credentials for this agent are kept in this page until you close it." : user ? "This agent knows you by your sign-in." : "This agent wants to know who calls it.";
  return html`<div class="row ${isSet || user ? "" : "note"}">
    <span>${text}</span>
    <button type="button" class="small" onClick=${() => setOpen(true)}>${isSet ? "Change credentials" : "Enter credentials"}</button>
    ${isSet && html`<button type="button" class="small" onClick=${forget}>Forget credentials</button>`}
    ${isOpen && html`<${CredentialsDialog} agent=${agent} onClose=${() => setOpen(false)} />`}
  </div>`;
}

/** A dialog that asks for what one of the agent's security schemes needs, and tries it before it is kept. */
export function CredentialsDialog({ agent, onClose }) {
  const schemes = schemesOf(cards.value[agent.name]?.card);
  const [index, setIndex] = useState(() => Math.max(0, schemes.findIndex((each) => each.kind !== "other")));
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const id = useId();
  const form = useRef(null);
  const scheme = schemes[index];
  const fields = FIELDS[scheme?.kind];
  async function save(event) {
    event.preventDefault();
    event.stopPropagation(); // the dialog may stand inside a form that would be sent too
    const headers = headersOf(scheme, new FormData(form.current));
    if (typeof headers === "string") {
      setError(headers);
      return form.current.querySelector("input").focus();
    }
    setBusy(true);
    setError("");
    const before = credentials.value[agent.name] ?? null;
    setCredential(agent.name, headers);
    try {
      await call(agent, "ListTasks", { pageSize: 1 });
    } catch (problem) {
      if (problem.status === 401 || !problem.status) {
        setCredential(agent.name, before);
        setBusy(false);
        return setError(problem.status ? `The agent refused them: ${problem.message.slice(0, 300)}` : problem.message);
      }
    }
    loadCard(agent, { again: true });
    announce("Credentials accepted");
    onClose();
  }
  const address = signInAddress();
  return html`<${Dialog} title="Credentials" onClose=${onClose}>
    ${!scheme && html`<p>The card names no security scheme.</p>`}
    ${scheme && html`<form ref=${form} class="form" onSubmit=${save} noValidate>
      <p class="muted">For <${Name} text=${agent.name} limit=${60} />. They are sent to this agent only, kept in this page's memory, and gone when you close it.</p>
      <div class="field"><div class="label"><label for="${id}-scheme">How</label></div>
        <select id="${id}-scheme" value=${String(index)} onChange=${(event) => { setIndex(Number(event.currentTarget.value)); setError(""); }}>
          ${schemes.map((each, position) => html`<option key=${position} value=${String(position)}>${each.words}</option>`)}
        </select></div>
      ${scheme.about && html`<p class="help"><${LongText} text=${scheme.about} limit=${300} /></p>`}
      ${scheme.urls?.length > 0 && html`<p class="help">Get an access token from the provider, and paste it here. ${scheme.urls.slice(0, 6).map((url) => html`<span class="block"><${ForeignLink} url=${url} /></span>`)}</p>`}
      ${fields?.map(([name, label, type]) => html`<div class="field" key="${index} ${name}"><div class="label"><label for="${id}-${name}">${label}</label></div>
        <input id="${id}-${name}" name=${name} type=${type} autocomplete="off" spellcheck=${false} required
          aria-invalid=${error ? "true" : undefined} aria-describedby=${error ? "credentials-error" : undefined} /></div>`)}
      ${scheme.kind === "cookie" && (address
        ? html`<p><a class="button primary" href=${address}>Sign in</a></p>`
        : html`<p>This server has no sign-in page.</p>`)}
      ${scheme.kind === "other" && html`<p>A page cannot send these. Use <code>dragoman chat</code>, or another way of the list.</p>`}
      ${error && html`<p class="error" id="credentials-error" role="alert">${error}</p>`}
      ${fields && html`<div class="row"><button type="submit" class="primary" disabled=${isBusy}>${isBusy ? "Checking …" : "Use"}</button></div>`}
    </form>`}
  </${Dialog}>`;
}

/** The headers for what was typed, or a text that says what is wrong with it. */
function headersOf({ kind, key }, typed) {
  const first = typed.get(FIELDS[kind][0][0]).trim();
  if (!first) return `Enter the ${FIELDS[kind][0][0]}.`;
  if (kind === "basic") {
    const bytes = new TextEncoder().encode(`${first}:${typed.get("password")}`);
    return { Authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` };
  }
  const secret = first.replace(/^Bearer\s+/i, "");
  if (!/^[\x21-\x7e]+$/.test(secret)) return "This has spaces or characters that no credential has.";
  if (kind === "bearer") return { Authorization: `Bearer ${secret}` };
  if (!/^[\w!#$%&'*+.^`|~-]+$/.test(key)) return "The card names a header that cannot be sent.";
  return { [key]: secret };
}
