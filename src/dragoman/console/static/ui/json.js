// JSON as people read it: indented, folded, and with every number as it is written.
import { html, useMemo, useState } from "../lib/preact.js";
import { count, size } from "../lib/format.js";
import { CopyButton } from "./base.js";
import { LongText } from "./text.js";

const PAGE = 300; // lines
const MAX_LINE = 400; // characters of one value
const MAX_LINES = 10_000; // what is laid out
const MAX_CHECKED = 2_000_000; // characters that are parsed, to see whether they are JSON
const IDENTIFIER = /^[A-Za-z_][\w-]*$/;
const TOKEN = /[{}[\],:]|"[^"\\]*(?:\\[\s\S][^"\\]*)*"?|[^\s{}[\],:"]+/g;

/**
 * JSON with folding and a copy button: of a `text`, which is copied as it is and whose numbers do not change, or of a
 * `value`. Only a page of lines is shown at once. `marks` is a Map from a path such as `skills[0].id` to the problems
 * of what stands there: {level, rule, message}.
 */
export function JsonView({ text, value, label = "JSON", marks }) {
  const source = useMemo(() => text ?? JSON.stringify(value, null, 2) ?? "null", [text, value]);
  const lines = useMemo(() => layOut(source, Boolean(marks?.size)), [source, marks]);
  const marked = useMemo(() => place(lines, marks), [lines, marks]);
  const [folded, setFolded] = useState(() => new Set());
  const [limit, setLimit] = useState(PAGE);
  const toggle = (index) => {
    const next = new Set(folded);
    if (!next.delete(index)) next.add(index);
    setFolded(next);
  };
  const shown = [];
  let index = 0;
  for (; index < lines.length && shown.length < limit; index = folded.has(index) ? lines[index].end + 1 : index + 1) {
    const line = lines[index];
    const isFolded = folded.has(index);
    shown.push(html`<${Line} key=${index} line=${line} isFolded=${isFolded} comma=${(isFolded ? lines[line.end] : line).comma}
      problems=${marked.get(index)} onToggle=${toggle.bind(null, index)} />`);
  }
  const left = lines.length - index;
  return html`<div class="json">
    <div class="bar"><${CopyButton} text=${source} />${source.length > 2000 && html`<span class="muted">${size(source.length)}</span>`}</div>
    <div class="lines" role="group" aria-label=${label} tabindex="0">${shown}</div>
    ${left > 0 && html`<button type="button" class="small" onClick=${() => setLimit(limit + PAGE)}>Show more of ${count(left)} lines</button>`}
    ${lines.length >= MAX_LINES && html`<p class="muted">Only the first ${count(MAX_LINES)} lines are shown. Copy has all.</p>`}
  </div>`;
}

function Line({ line, isFolded, comma, problems, onToggle }) {
  const { depth, name, text, end, members } = line;
  return html`<div class="line ${problems?.[0].level ?? ""}" style=${{ paddingInlineStart: `${1.4 + Math.min(depth, 40)}em` }}>
    ${end !== undefined && html`<button type="button" class="fold" aria-expanded=${!isFolded} aria-label="${isFolded ? "Unfold" : "Fold"} ${name ?? "value"}" onClick=${onToggle}>${isFolded ? "▸" : "▾"}</button>`}
    ${name !== undefined && html`<${LongText} class="key" text=${name} limit=${MAX_LINE} />: `}<${LongText} class=${kindOf(text)} text=${text} limit=${MAX_LINE} />${
      isFolded && html`<span class="muted"> ${count(members)} … ${text === "{" ? "}" : "]"}</span>`}${comma && ","}
    ${problems?.map((each) => html`<span class="mark ${each.level}">${each.level}: ${each.message}</span>`)}
  </div>`;
}

function kindOf(text) {
  if (text[0] === '"') return "string";
  if (/^[-\d]/.test(text)) return "number";
  return /^[tfn]/.test(text) ? "word" : "sign";
}

/**
 * The lines of a JSON text: {depth, name, text, path, comma}, with `end`, the index of the line that closes them. What
 * is not JSON has its own lines.
 */
function layOut(source, hasMarks) {
  if (source.length <= MAX_CHECKED && !isJson(source)) return source.split("\n", MAX_LINES).map((each) => ({ depth: 0, text: each, path: "" }));
  const lines = [];
  const open = []; // the lines that are open, with the number of their members
  let name;
  let last;
  const pathOf = () => {
    const parent = open.at(-1);
    if (!parent || !hasMarks || open.length > 50) return "";
    if (parent.line.text === "[") return `${parent.line.path}[${parent.members}]`;
    if (name === undefined) return parent.line.path;
    const bare = name.slice(1, -1);
    if (!IDENTIFIER.test(bare)) return `${parent.line.path}[${name}]`;
    return parent.line.path ? `${parent.line.path}.${bare}` : bare;
  };
  const push = (token) => {
    last = { depth: open.length, name, text: token, path: pathOf() };
    if (open.length) open.at(-1).members += 1;
    name = undefined;
    lines.push(last);
    return last;
  };
  const scan = source.matchAll(TOKEN);
  const read = () => scan.next().value?.[0];
  for (let token = read(), next; token !== undefined && lines.length < MAX_LINES; token = next) {
    next = read();
    if (token === ",") {
      if (last) last.comma = true;
    } else if (token[0] === '"' && next === ":") {
      name = token;
      next = read();
    } else if (token === "{" || token === "[") {
      if (next === (token === "{" ? "}" : "]")) {
        push(token + next);
        next = read();
      } else {
        open.push({ line: push(token), members: 0 });
      }
    } else if ((token === "}" || token === "]") && open.length) {
      const { line, members } = open.pop();
      line.end = lines.length;
      line.members = members;
      last = { depth: open.length, text: token, path: "" };
      lines.push(last);
    } else {
      push(token);
    }
  }
  return lines;
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Which lines have problems. What is missing has no line: its problem stands at the nearest thing around it. */
function place(lines, marks) {
  const placed = new Map();
  if (!marks?.size) return placed;
  const byPath = new Map();
  lines.forEach((line, index) => line.text !== "}" && line.text !== "]" && byPath.set(line.path, index));
  for (const [path, problems] of marks) {
    let near = path;
    while (near && !byPath.has(near)) near = near.slice(0, Math.max(near.lastIndexOf("."), near.lastIndexOf("["), 0));
    const index = byPath.get(near) ?? 0;
    placed.set(index, [...(placed.get(index) ?? []), ...problems]);
  }
  return placed;
}
