// Texts and addresses of agents.
import { html, useState } from "../lib/preact.js";
import { count } from "../lib/format.js";

const STEP = 50_000;

/** A foreign text with its line breaks: cut at `limit`, the rest on demand and in pieces, since it may have megabytes. */
export function LongText({ text, limit = 500, class: extra = "", id }) {
  const [shown, setShown] = useState(limit);
  const all = String(text ?? "");
  const more = all.length - shown;
  return html`<span id=${id} class="long-text ${extra}" dir="auto">${more > 0 ? `${all.slice(0, shown)}… ` : all}${
    more > 0 && html`<button type="button" class="link" onClick=${() => setShown(shown + STEP)}>Show ${more > STEP ? "more" : "all"} (${count(more)} characters)</button>`
  }</span>`;
}

/** An address of an agent: a link where its scheme is harmless, else text. */
export function ForeignLink({ url, children }) {
  const address = String(url ?? "");
  const harmless = address.length < 4000 && URL.canParse(address) && ["http:", "https:", "mailto:"].includes(new URL(address).protocol);
  if (!harmless) return html`<${LongText} text=${address} limit=${200} />`;
  return html`<a href=${address} target="_blank" rel="noopener noreferrer nofollow" referrerpolicy="no-referrer" dir="ltr">${children ?? address}</a>`;
}
