// Markdown of an agent as elements: nothing it says becomes HTML that it chose.
import { h, html, memo, useEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { MarkdownText, codeText } from "../lib/markdown.js";
import { size } from "../lib/format.js";
import { CopyButton } from "./base.js";

const FIRST = 60_000; // characters shown before somebody asks for more
const MAX_STREAMED = 2_000_000; // a text that is seen growing is shown up to here
const GROUP = 3000; // characters that are drawn, laid out and left alone together
const LOOK = 10_000; // characters per millisecond between two looks at a growing text
const FRAME_MS = 4; // spent on parsing per frame
const FRAME_WINDOWS = 3; // parsed per frame: drawing takes longer than parsing

/** Render a text as Markdown. It may grow at its end. */
export function Markdown({ text = "" }) {
  const [limit, setLimit] = useState(FIRST);
  const [, setFrame] = useState(0);
  const kept = useRef(null);
  const current = (kept.current ??= { parser: new MarkdownText(), text: "", due: 0, seen: text.length, shown: FIRST });
  // Who watches a text grow keeps seeing its end; a long text that comes at once is cut.
  if (current.seen <= current.shown) current.shown = Math.max(FIRST, Math.min(text.length, MAX_STREAMED));
  current.seen = text.length;
  const shown = Math.min(text.length, Math.max(limit, current.shown));
  const now = performance.now();
  // To look into a text that has grown, the browser copies all of it: into a long one, it looks less often.
  if (now >= current.due) Object.assign(current, { text: text.slice(0, shown), due: now + text.length / LOOK });
  const isParsed = current.parser.update(current.text, now + FRAME_MS, FRAME_WINDOWS) && current.text.length === shown;
  useEffect(() => {
    if (isParsed) return undefined;
    const frame = requestAnimationFrame(() => setFrame((number) => number + 1));
    return () => cancelAnimationFrame(frame);
  });
  const { done, open } = current.parser;
  return html`<div class="markdown" dir="auto">
    <${Blocks} done=${done} count=${done.length} open=${open} />
    ${isParsed && shown < text.length && html`<p><button type="button" class="small" onClick=${() => setLimit(shown + FIRST)}>
      Show more (${size(text.length - shown)} left)</button></p>`}
  </div>`;
}

/** Blocks that are done are drawn in groups: a full one is never looked at again. The last one holds what is open. */
function Blocks({ done, count, open }) {
  const groups = useMemo(() => ({ full: [], last: [], size: 0, seen: 0 }), [done]);
  for (; groups.seen < count; groups.seen += 1) {
    const block = done[groups.seen];
    groups.last.push(block);
    groups.size += block.size;
    if (groups.size < GROUP) continue;
    groups.full.push(groups.last);
    Object.assign(groups, { last: [], size: 0 });
  }
  return [...groups.full, [...groups.last, ...open]].map((blocks, index) => html`<${Group} key=${index} blocks=${blocks} />`);
}

const Group = memo(({ blocks }) => html`<div class="blocks">${blocks.map((block, index) => html`<${Block} key=${index} block=${block} />`)}</div>`);
const Block = memo(({ block }) => draw(block));

function draw(block) {
  switch (block.type) {
    case "heading":
      // The page and the view have the first two levels.
      return h(`h${Math.min(6, block.level + 2)}`, { class: `level-${block.level}` }, inline(block.inlines));
    case "paragraph":
      return h("p", null, inline(block.inlines));
    case "rule":
      return h("hr");
    case "code":
      return html`<${Code} block=${block} />`;
    case "quote":
      return h("blockquote", null, block.blocks.map(draw));
    case "list":
      return h(block.ordered ? "ol" : "ul", { start: block.ordered ? block.start : undefined }, block.items.map((item) => listItem(item, block.tight)));
    default:
      return table(block);
  }
}

function listItem({ checked, blocks }, tight) {
  const inner = blocks.map((block) => (tight && block.type === "paragraph" ? inline(block.inlines) : draw(block)));
  if (checked === null) return h("li", null, inner);
  return h("li", { class: "task" }, h("input", { type: "checkbox", checked, disabled: true, "aria-label": checked ? "done" : "to do" }), " ", inner);
}

function table({ align, head, rows }) {
  const cells = (row, name) => row.map((cell, index) => h(name, { class: align[index] ? `to-${align[index]}` : undefined, scope: name === "th" ? "col" : undefined }, inline(cell)));
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" },
    h("table", null, head && h("thead", null, h("tr", null, cells(head, "th"))), h("tbody", null, rows.map((row) => h("tr", null, cells(row, "td"))))));
}

function Code({ block }) {
  if (block.continued) return html`<pre class="continued" tabindex="0"><code>${block.text}</code></pre>`;
  return html`<div class="code">
    <div class="head"><span>${block.language || "text"}</span><${CopyButton} text=${() => codeText(block)} /></div>
    <pre tabindex="0"><code>${block.text}</code></pre>
  </div>`;
}

function inline(inlines) {
  return inlines.map((each) => {
    if (typeof each === "string") return each;
    switch (each.type) {
      case "code": return h("code", null, each.text);
      case "break": return h("br");
      case "link": return html`<${Link} href=${each.href}>${inline(each.children)}</${Link}>`;
      default: return h(each.type, null, inline(each.children)); // em, strong, del
    }
  });
}

/** A link to elsewhere. `href` has been checked by `safeUrl`; the tooltip tells where it really leads. */
export function Link({ href, class: extra, children }) {
  return html`<a href=${href} title=${href} class=${extra} target="_blank" rel="noopener noreferrer nofollow" referrerpolicy="no-referrer">${children}</a>`;
}
