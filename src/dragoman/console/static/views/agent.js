// An agent as people read it, its skills to try, and its card as it is served.
import { html, useEffect, useId, useMemo, useRef, useState } from "../lib/preact.js";
import { count, duration, oneLine, size, stateKind, stateLabel } from "../lib/format.js";
import { href } from "../lib/router.js";
import { Run } from "../lib/run.js";
import { isObject, list, member } from "../lib/schema.js";
import { cards, loadCard, seesTasks } from "../lib/session.js";
import { announce, CopyButton, Empty, Name, Problem, Spinner, StateBadge, Table, useInterval, usePage } from "../ui/base.js";
import { CredentialsBar, CredentialsDialog, requirementsOf, schemesOf } from "../ui/credentials.js";
import { filePart } from "../ui/file.js";
import { focusFirstError, Form, initialValue, validate } from "../ui/form.js";
import { JsonView } from "../ui/json.js";
import { Parts } from "../ui/parts.js";
import { ForeignLink, LongText } from "../ui/text.js";

const PAGE = 25; // skills, interfaces
const MESSAGE = { type: "object", properties: { message: { type: "string" } }, required: ["message"] };
const words = (value) => list(value).filter((each) => typeof each === "string");
const levelKind = (isError) => (isError ? "bad" : "waiting");

/** `#/agents/NAME`, `#/agents/NAME/skills/ID` and `#/agents/NAME/card`. */
export function AgentView({ agent, section, item }) {
  const known = cards.value[agent.name];
  useEffect(() => document.getElementById("main")?.scrollTo(0, 0), [section, item]);
  if (!known) return html`<${Spinner} label="Loading the card" />`;
  if (known.error) return html`<div class="view"><header><h1><${Name} text=${agent.name} limit=${80} /></h1></header>
    <${Problem} error=${known.error} retry=${() => loadCard(agent, { again: true })} /></div>`;
  const { card, problems } = known;
  const skills = list(card.skills).filter(isObject);
  const places = [["Skills and card", []], ["Card as JSON", ["card"]]];
  return html`<div class="view agent">
    <header>
      <div class="grow">
        <h1><${Name} text=${card.name ?? agent.name} limit=${120} /> <span class="version muted">${oneLine(card.version, 40)}</span></h1>
        <p><${LongText} text=${card.description ?? agent.description} limit=${600} /></p>
      </div>
      <a class="button primary" href=${href(["agents", agent.name, "chat"])}>Chat</a>
    </header>
    <${CredentialsBar} agent=${agent} />
    <nav class="tabs" aria-label="Agent">${places.map(([name, [place]]) => html`<a key=${name} href=${href(["agents", agent.name, place].filter(Boolean))}
      aria-current=${(section === "card") === (place === "card") ? "page" : undefined}>${name}${place && problems.length > 0 && html` <span class="badge ${
      levelKind(problems.some((each) => each.level === "error"))}">${count(problems.length)} ${problems.length === 1 ? "problem" : "problems"}</span>`}</a>`)}</nav>
    ${section === "card"
      ? html`<${CardJson} agent=${agent} known=${known} />`
      : section === "skills"
        ? html`<${OneSkill} agent=${agent} known=${known} skills=${skills} id=${item} />`
        : html`<div class="columns"><${Skills} agent=${agent} known=${known} skills=${skills} /><${Facts} card=${card} /></div>`}
  </div>`;
}

// -- the card -----------------------------------------------------------------------------------------------------

function Facts({ card }) {
  const interfaces = list(card.supportedInterfaces);
  const can = card.capabilities ?? {};
  const abilities = [
    ["Streaming", can.streaming], ["Push notifications", can.pushNotifications],
    ["Extended card", can.extendedAgentCard ?? card.supportsAuthenticatedExtendedCard],
  ];
  const fact = (name, what) => Boolean(what) && html`<dt>${name}</dt><dd>${what}</dd>`;
  return html`<aside class="facts-side stack" aria-label="The agent's card">
    <section class="card"><h2>About</h2><dl class="facts">
      ${fact("Provider", card.provider && html`<${Name} text=${card.provider.organization} limit=${100} /> <${ForeignLink} url=${card.provider.url} />`)}
      ${fact("Documentation", card.documentationUrl && html`<${ForeignLink} url=${card.documentationUrl} />`)}
      ${fact("Takes", html`<${Tags} tags=${card.defaultInputModes} />`)}
      ${fact("Gives", html`<${Tags} tags=${card.defaultOutputModes} />`)}
      ${fact("Signatures", list(card.signatures).length)}
    </dl></section>
    <section class="card"><h2>Capabilities</h2>
      <ul class="plain">${abilities.map(([name, has]) => html`<li key=${name}><span class="badge ${has ? "good" : ""}">${has ? "yes" : "no"}</span> ${name}</li>`)}</ul>
      ${list(can.extensions).slice(0, PAGE).filter(isObject).map((each, index) => html`<p class="help" key=${index}><${ForeignLink} url=${each.uri} />${
        each.required && html` <span class="badge waiting">required</span>`} <${LongText} text=${each.description} limit=${200} /></p>`)}
    </section>
    <section class="card"><h2>Interfaces</h2>
      <${Table} label="Interfaces" heads=${["Version", "Binding", "URL"]}>${interfaces.slice(0, PAGE).map((each, index) => html`<tr key=${index}>
        <td>${oneLine(each?.protocolVersion, 20)}</td><td>${oneLine(each?.protocolBinding, 40)}</td><td class="mono"><${Name} text=${each?.url} limit=${300} /></td></tr>`)}</${Table}>
      ${interfaces.length > PAGE && html`<p class="help">And ${count(interfaces.length - PAGE)} more, in the card as JSON.</p>`}
    </section>
    <${Security} card=${card} />
  </aside>`;
}

function Security({ card }) {
  const requirements = requirementsOf(card);
  const text = (each) => `${each.name}${each.scopes.length ? ` (${each.scopes.join(", ")})` : ""}`;
  return html`<section class="card"><h2>Security</h2>
    ${requirements.length === 0
      ? html`<p>Open to every caller.</p>`
      : html`<p>A call needs ${requirements.length > 1 ? "one of" : ""}</p><ul>${requirements.map((all, index) => html`<li key=${index}>${oneLine(all.map(text).join(" and "), 300) || "nothing"}</li>`)}</ul>`}
    <dl class="facts">${schemesOf(card).map((each) => html`<dt key=${each.name}><${Name} text=${each.name} limit=${60} /></dt><dd>${each.words}
      ${each.about && html`<p class="help"><${LongText} text=${each.about} limit=${200} /></p>`}</dd>`)}</dl>
  </section>`;
}

function CardJson({ agent, known }) {
  const { problems } = known;
  const marks = useMemo(() => Map.groupBy(problems, (each) => each.path), [problems]);
  const command = `dragoman card ${new URL(agent.path, document.baseURI).href.replace(/\/$/, "")} --validate`;
  return html`<section class="stack">
    <div class="row"><code>${command}</code><${CopyButton} text=${command} label="Copy command" /></div>
    ${problems.length > 0
      ? html`<h2>Problems</h2><${Table} label="Problems of the card" heads=${["Level", "Where", "Found", "Rule"]}>
          ${problems.slice(0, 500).map((each, index) => html`<tr key=${index}><td><span class="badge ${levelKind(each.level === "error")}">${each.level}</span></td>
            <td class="mono"><${Name} text=${each.path} limit=${120} /></td><td><${LongText} text=${each.message} limit=${300} /></td><td>${oneLine(each.rule, 300)}</td></tr>`)}
        </${Table}>`
      : html`<p class="muted">${known.isChecked ? "No problems found: the card keeps the rules of A2A." : "The server could not check this card. The command above does."}</p>`}
    <${JsonView} text=${known.text} label="The card as it is served" marks=${marks} />
  </section>`;
}

// -- skills -------------------------------------------------------------------------------------------------------

function Tags({ tags }) {
  const all = words(tags);
  if (!all.length) return html`<span class="muted">–</span>`;
  return html`<span class="tags">${all.slice(0, 12).map((each, index) => html`<span class="tag" key=${index}>${oneLine(each, 60)}</span>`)}${all.length > 12 && html` and ${all.length - 12} more`}</span>`;
}

function Skills({ agent, known, skills }) {
  const [filter, setFilter] = useState("");
  const word = filter.trim().toLowerCase();
  const textOf = (each) => [each.id, each.name, each.description, ...words(each.tags)].map((text) => oneLine(text, 2000)).join("\n").toLowerCase();
  const found = word ? skills.filter((each) => textOf(each).includes(word)) : skills;
  const [limit, more] = usePage(found.length, "skills", PAGE);
  return html`<section class="stack" aria-label="Skills">
    <div class="row"><h2>Skills</h2><span class="muted">${count(skills.length)}</span>
      ${skills.length > 6 && html`<input type="search" data-search aria-label="Filter skills" placeholder="Filter skills" value=${filter} onInput=${(event) => setFilter(event.currentTarget.value)} />`}</div>
    ${found.length === 0 && html`<p class="muted">${word ? "No skill matches." : "The card names no skills. The chat may still work."}</p>`}
    ${found.slice(0, limit).map((skill) => html`<${Skill} key=${skills.indexOf(skill)} agent=${agent} known=${known} skill=${skill} />`)}
    ${more}
  </section>`;
}

function OneSkill({ agent, known, skills, id }) {
  const skill = skills.find((each) => each.id === id);
  return html`<p><a href=${href(["agents", agent.name])}>All skills</a></p>
    ${skill
      ? html`<${Skill} key=${id} agent=${agent} known=${known} skill=${skill} isAlone />`
      : html`<${Empty} title="There is no such skill"><p>It may need credentials to be seen, or be gone.</p></${Empty}>`}`;
}

function Skill({ agent, known, skill, isAlone = false }) {
  const [isOpen, setOpen] = useState(isAlone);
  const name = skill.name || skill.id;
  const modes = (title, own, usual) => words(own).length > 0 && words(own).join() !== words(usual).join() && html`<p class="help">${title} <${Tags} tags=${own} /></p>`;
  const output = member(member(known.schemas, skill.id), "outputSchema");
  const Title = isAlone ? "h2" : "h3";
  return html`<article class="card skill" aria-label="Skill ${oneLine(name, 80)}">
    <div class="row"><${Title}><a href=${href(["agents", agent.name, "skills", String(skill.id)])}><${Name} text=${name} limit=${120} /></a></${Title}>
      ${skill.id !== name && html`<code class="muted"><${Name} text=${skill.id} limit=${120} /></code>`}
      <span class="grow"></span>
      ${!isAlone && html`<button type="button" aria-expanded=${isOpen} aria-label="Try ${oneLine(name, 80)}" onClick=${() => setOpen(!isOpen)}>${isOpen ? "Close" : "Try"}</button>`}</div>
    <p><${LongText} text=${skill.description} limit=${isAlone ? 3000 : 400} /></p>
    ${words(skill.tags).length > 0 && html`<${Tags} tags=${skill.tags} />`}
    ${modes("Takes", skill.inputModes, known.card.defaultInputModes)}
    ${modes("Gives", skill.outputModes, known.card.defaultOutputModes)}
    ${words(skill.examples).length > 0 && html`<div class="row examples"><span class="muted">Ask in the chat</span>${words(skill.examples).slice(0, 10).map((text, index) =>
      html`<a class="button" key=${index} href=${href(["agents", agent.name, "chat"], { text: text.slice(0, 2000) })}>${oneLine(text, 100)}</a>`)}</div>`}
    ${isOpen && html`<${Try} key=${skill.id} agent=${agent} known=${known} skill=${skill} />`}
    ${isAlone && output && html`<details><summary>Schema of the result</summary><${JsonView} value=${output} label="Schema of the result" /></details>`}
  </article>`;
}

// -- try ----------------------------------------------------------------------------------------------------------

// What was typed and what came back stay while the page is open: people go to the task and come back.
const drafts = new Map();
const MAX_DRAFTS = 50;

function Try({ agent, known, skill }) {
  const given = member(member(known.schemas, skill.id), "inputSchema");
  const schema = isObject(given) ? given : MESSAGE;
  const key = JSON.stringify([agent.name, skill.id]);
  const fresh = () => ({ value: initialValue(schema), files: [], takesFiles: false, run: null });
  const [draft, setDraft] = useState(() => drafts.get(key) ?? fresh());
  const [errors, setErrors] = useState({});
  const checked = useRef(false);
  const form = useRef(null);
  const { value, files, takesFiles, run } = draft;
  const isRunning = Boolean(run?.running.value);
  drafts.set(key, draft);
  if (drafts.size > MAX_DRAFTS) drafts.delete(drafts.keys().next().value);
  const update = (part) => setDraft((before) => ({ ...before, ...part }));
  function change(next) {
    update({ value: next });
    if (checked.current) setErrors(validate(schema, next));
  }
  async function submit(event) {
    event.preventDefault();
    if (isRunning) return;
    const found = validate(schema, value);
    const wrong = Object.keys(found).length;
    checked.current = wrong > 0;
    setErrors(found);
    if (wrong) {
      announce(wrong === 1 ? "One field needs attention" : `${wrong} fields need attention`, "bad");
      setTimeout(() => focusFirstError(form.current));
      return;
    }
    const isWords = schema === MESSAGE;
    const parts = [isWords ? { text: value.message } : { data: { tool: skill.id, arguments: value ?? {} } }];
    try {
      for (const file of files) parts.push(await filePart(file));
    } catch (error) {
      return announce(error.message, "bad");
    }
    const next = new Run(agent);
    update({ run: next });
    next.start(parts, isWords ? { skillId: skill.id } : undefined);
  }
  function reset() {
    checked.current = false;
    setDraft(fresh());
    setErrors({});
  }
  return html`<form class="try stack" ref=${form} onSubmit=${submit} noValidate aria-label="Try ${oneLine(skill.name || skill.id, 80)}">
    ${schema === MESSAGE && html`<p class="help">This skill has no schema: it gets your words.</p>`}
    <${Form} schema=${schema} value=${value} onChange=${change} errors=${errors} />
    ${takesFiles && html`<${FileList} files=${files} onChange=${(next) => update({ files: next })} />`}
    <div class="row">
      <button type="submit" class="primary" disabled=${isRunning}>Run</button>
      ${!takesFiles && html`<button type="button" onClick=${() => update({ takesFiles: true })}>Add files</button>`}
      <button type="button" onClick=${reset} disabled=${isRunning}>Reset</button>
    </div>
    ${run && html`<${Result} agent=${agent} run=${run} />`}
  </form>`;
}

function FileList({ files, onChange }) {
  const id = useId();
  function add(event) {
    onChange([...files, ...event.currentTarget.files].slice(0, 50));
    event.currentTarget.value = "";
  }
  return html`<div class="field">
    <div class="label"><label for=${id}>Files</label><span class="muted">optional</span></div>
    <input type="file" id=${id} multiple onChange=${add} />
    <ul class="plain">${files.map((file, index) => html`<li key=${index}><${Name} text=${file.name} limit=${60} /> <span class="muted">${size(file.size)}</span>
      <button type="button" class="icon" aria-label="Remove ${oneLine(file.name, 60)}" onClick=${() => onChange(files.toSpliced(index, 1))}>✕</button></li>`)}</ul>
  </div>`;
}

function Result({ agent, run }) {
  run.version.value;
  const [asks, setAsks] = useState(false);
  const box = useRef(null);
  const { turn, error } = run;
  const isRunning = run.running.value;
  const state = turn.version > 0 ? turn.state : "";
  useEffect(() => {
    if (isRunning) box.current.scrollIntoView({ block: "nearest" });
    else announce(error ? "The call failed" : `Result: ${stateLabel(state)}`, error ? "bad" : "note");
  }, [isRunning, run]);
  const artifacts = [...turn.artifacts.values()].slice(0, PAGE);
  const messages = [...turn.messages.filter((each) => each.role !== "ROLE_USER"), turn.statusMessage].filter(Boolean);
  const chat = turn.contextId && href(["agents", agent.name, "chat", turn.contextId]);
  const kind = turn.isWaiting ? "note" : stateKind(state) === "bad" ? "problem" : "artifact";
  return html`<section class="result" ref=${box} aria-label="Result" aria-busy=${isRunning}>
    <div class="row">
      <b>Result</b>
      ${state ? html`<${StateBadge} state=${state} />` : isRunning && html`<span class="badge active">sending</span>`}
      <${Elapsed} run=${run} />
      <span class="grow"></span>
      ${isRunning && html`<button type="button" class="small danger" onClick=${() => run.cancel()}>Cancel</button>`}
      ${turn.id && seesTasks.value && html`<a href=${href(["tasks", turn.id])}>Task</a>`}
      ${chat && html`<a href=${chat}>Continue in chat</a>`}
    </div>
    ${isRunning && turn.progress && html`<${Progress} progress=${turn.progress} />`}
    ${artifacts.map((each) => html`<div class="artifact" key="${each.artifactId} ${each.revision}">
      ${artifacts.length > 1 && each.name && html`<b><${Name} text=${each.name} limit=${100} /></b>`}
      <${Parts} parts=${each.parts} streaming=${isRunning && !each.complete} /></div>`)}
    ${messages.map((each, index) => html`<div class=${each === turn.statusMessage ? kind : "artifact"} key=${index}><${Parts} parts=${each.parts} /></div>`)}
    ${turn.isWaiting && chat && html`<p><a class="button primary" href=${chat}>Answer in the chat</a></p>`}
    ${turn.isFinal && artifacts.length + messages.length === 0 && html`<p class="muted">It returned nothing.</p>`}
    ${error && html`<${Problem} error=${error}>${(error.status === 401 || error.status === 403) && html`<button type="button" onClick=${() => setAsks(true)}>Enter credentials</button>`}</${Problem}>`}
    ${asks && html`<${CredentialsDialog} agent=${agent} onClose=${() => setAsks(false)} />`}
  </section>`;
}

function Progress({ progress: { text, done, total } }) {
  const known = done !== null && total > 0;
  return html`<div class="progress"><progress aria-label="Progress" max=${known ? total : undefined} value=${known ? Math.min(done, total) : undefined}></progress>
    <span>${oneLine(text, 200)}${known ? ` (${done} of ${total})` : ""}</span></div>`;
}

function Elapsed({ run }) {
  const [now, setNow] = useState(Date.now());
  useInterval(() => !run.ended && setNow(Date.now()), 500);
  return html`<span class="muted">${duration(Math.max(0, (run.ended ?? now) - run.started))}</span>`;
}
