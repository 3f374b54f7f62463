// The parts of a message or an artifact.
import { html } from "../lib/preact.js";
import { safeUrl } from "../lib/inline.js";
import { oneLine } from "../lib/format.js";
import { Name } from "./base.js";
import { FileCard } from "./file.js";
import { JsonView } from "./json.js";
import { Link, Markdown } from "./markdown.js";
import { LongText } from "./text.js";

const MAX_PARTS = 200;

/** Render A2A parts. They may grow in place. */
export function Parts({ parts }) {
  const all = Array.isArray(parts) ? parts : [];
  const shown = all.slice(0, MAX_PARTS);
  return html`<div class="parts">
    ${shown.map((part, index) => html`<${Part} key=${index} part=${part} />`)}
    ${all.length > shown.length && html`<p class="muted">${all.length - shown.length} more parts are not shown.</p>`}
  </div>`;
}

function Part({ part }) {
  if (part === null || typeof part !== "object") return null;
  const { text } = part;
  if (typeof text === "string") {
    const type = typeof part.mediaType === "string" ? part.mediaType.toLowerCase() : "";
    if (part.filename) return html`<${FileCard} part=${part} />`;
    if (type.includes("json")) return html`<${JsonView} text=${text} label="JSON" />`;
    if (type.startsWith("text/") && !/^text\/(plain|markdown|x-markdown)\b/.test(type)) return html`<pre tabindex="0"><${LongText} text=${text} limit=${4000} /></pre>`;
    return html`<${Markdown} text=${text} />`;
  }
  if (typeof part.raw === "string") return html`<${FileCard} part=${part} />`;
  if (typeof part.url === "string") return html`<${UrlPart} part=${part} />`;
  if ("data" in part) return html`<${JsonView} value=${part.data} label="Data" />`;
  return html`<p class="muted">An empty part</p>`;
}

/** A file elsewhere: a link that names its host, and nothing that loads by itself. */
function UrlPart({ part }) {
  const href = safeUrl(part.url);
  const name = part.filename ? html`<${Name} text=${part.filename} limit=${80} />` : "Link";
  if (!href) return html`<p class="file">${name} <span class="muted">at an address that is not opened from here:</span> <code>${oneLine(part.url, 200)}</code></p>`;
  const { host, pathname } = new URL(href);
  return html`<p class="file"><${Link} href=${href}>${part.filename ? name : oneLine(host + pathname, 80)}</${Link}> <span class="muted">on ${host || pathname}</span></p>`;
}
