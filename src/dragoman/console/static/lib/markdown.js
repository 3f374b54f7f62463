// Markdown as a tree of plain objects. The text is an agent's: whatever it says becomes a tree of known nodes, HTML in it
// stays text, links go to http, https and mailto only, and the time it takes grows with its length and nothing else.
//
// Blocks:  {type: "heading", level, inlines} {type: "paragraph", inlines} {type: "rule"} {type: "quote", blocks}
//          {type: "code", language, text, whole, continued} {type: "list", ordered, start, tight, items: [{checked, blocks}]}
//          {type: "table", align, head: [inlines] | null, rows: [[inlines]]}
// Inlines: a string, {type: "em" | "strong" | "del", children} {type: "code", text} {type: "link", href, children}
//          {type: "break"}
import { parseInline } from "./inline.js";

const WINDOW = 4000; // no block is longer: what is longer is continued in another one
const MAX_DEPTH = 12; // of quotes and lists
const MAX_COLUMNS = 64;

// Each looks at one line, and takes a time that grows with its length only.
const FENCE = /^( *)(`{3,}|~{3,})([^]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: ([^]*))?$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^( *)([-*+]|\d{1,9}[.)])(?= |$)/;

/**
 * A text that grows at its end. `done` are the blocks that cannot change any more and are never parsed again, `open`
 * those that may. They are two arrays of blocks; `done` grows in place.
 */
export class MarkdownText {
  done = [];
  open = [];
  #text = "";
  #at = 0; // what stands before it is in `done`
  #within = null; // the block that goes on at #at

  /** How many characters of the text have been parsed. */
  parsed = 0;

  /**
   * Take up a text. It continues the one before, or the tree starts anew. Parses until `deadline` (as of
   * performance.now()), at least one window and at most `windows`; returns whether all of it is parsed.
   */
  update(text, deadline = Infinity, windows = Infinity) {
    // Comparing a slice is many times faster than startsWith.
    if (text.length < this.#text.length || text.slice(0, this.#text.length) !== this.#text) {
      this.done = [];
      this.#at = 0;
      this.#within = null;
    }
    this.#text = text;
    for (let count = 1; !this.#step(); count += 1) {
      if (count >= windows || performance.now() >= deadline) return false;
    }
    return true;
  }

  /** Parse one window behind what is done. */
  #step() {
    const text = this.#text;
    const start = this.#at;
    const isRest = text.length - start <= WINDOW;
    // A slice keeps all of the text alive that it was cut from; blocks are kept, texts are not.
    const piece = ` ${text.slice(start, isRest ? undefined : cutAt(text, start))}`.slice(1);
    const parsed = parse(piece, this.#within);
    if (isRest) {
      const settled = lastSettled(parsed, piece);
      if (settled > 0) this.#commit(parsed.splice(0, settled), parsed[0].start);
      this.open = parsed.map((each) => each.block);
      this.parsed = text.length;
      return true;
    }
    // All but the last block are complete. A single one that fills the window is ended here, and goes on in the next.
    if (parsed.length > 1) {
      const last = parsed.pop();
      this.#commit(parsed, last.start);
    } else {
      const within = parsed[0] ? continuation(parsed[0].block, piece) : null;
      this.#commit(parsed, piece.length);
      this.#within = within;
    }
    this.open = [];
    this.parsed = this.#at;
    return false;
  }

  #commit(parsed, length) {
    for (const [index, { start, block }] of parsed.entries()) {
      block.size = (parsed[index + 1]?.start ?? length) - start;
      this.done.push(block);
      if (block.type === "code") block.whole.done.push(block);
    }
    this.#at += length;
    this.#within = null;
  }
}

/** Where to end a window: at the end of a line, else behind a space, else anywhere but within a character. */
function cutAt(text, start) {
  const end = start + WINDOW;
  const line = text.lastIndexOf("\n", end - 1);
  if (line > start + WINDOW / 2) return line + 1;
  const space = text.lastIndexOf(" ", end - 1);
  if (space > start + WINDOW / 2) return space + 1;
  const code = text.charCodeAt(end - 1);
  return code >= 0xd800 && code <= 0xdbff ? end - 1 : end;
}

/** The text of a code block with that of its continuations. */
export function codeText(block) {
  const { done, last } = block.whole;
  return (done.includes(last) ? done : [...done, last]).map((each) => each.text).join("");
}

/** How many of the blocks at the end of a growing text cannot change: the line that follows them must be complete. */
function lastSettled(parsed, piece) {
  let last = parsed.length - 1;
  while (last > 0 && piece.indexOf("\n", parsed[last].start) < 0) last -= 1;
  return Math.max(last, 0);
}

function continuation(block, piece) {
  if (block.type === "code" && !block.closed) return block;
  if (block.type === "table") return block;
  if (block.type === "paragraph" && !piece.endsWith("\n")) return { type: "paragraph" };
  return block.type === "list" ? { type: "list" } : null;
}

/** Parse a whole text at once; for short ones. */
export function parseMarkdown(text) {
  const document = new MarkdownText();
  document.update(text);
  return [...document.done, ...document.open];
}

// -- blocks ------------------------------------------------------------------------------------------------------

/** Blocks of a piece of text with the offsets where they start: [{start, block}]. */
function parse(piece, within) {
  const offsets = [];
  let offset = 0;
  const lines = piece.split("\n").map((line) => {
    offsets.push(offset);
    offset += line.length + 1;
    return line.replace(/\r$/, "").replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
  });
  return parseBlocks(lines, 0, within).map(({ line, block }) => ({ start: offsets[line], block }));
}

const indentOf = (line) => line.search(/[^ ]|$/);
const isBlank = (line) => line.trim() === "";

function parseBlocks(lines, depth, within = null) {
  const found = [];
  let index = 0;
  const add = ([block, end]) => {
    found.push({ line: index, block });
    index = end;
  };
  if (within?.type === "code") add(readCode(lines, 0, within));
  else if (within?.type === "table" && isRow(lines[0])) add(readRows(lines, 0, within.align, null));
  else if (within?.type === "paragraph") add(readParagraph(lines, 0, depth));
  // The rest of a list that was cut is indented, but is no code.
  let isList = within?.type === "list";
  while (index < lines.length) {
    const line = lines[index];
    const indent = indentOf(line);
    const fence = fenceOf(line);
    const heading = HEADING.exec(line);
    isList &&= indent > 0 || isBlank(line);
    if (isBlank(line)) index += 1;
    else if (indent >= 4 && !isList && depth === 0) add(readIndented(lines, index));
    else if (fence) add(readCode(lines, index + 1, fence));
    else if (heading) add([headingOf(heading), index + 1]);
    else if (RULE.test(line)) add([{ type: "rule" }, index + 1]);
    else if (depth < MAX_DEPTH && QUOTE.test(line)) add(readQuote(lines, index, depth));
    else if (depth < MAX_DEPTH && MARKER.test(line)) add(readList(lines, index, depth));
    else if (isTable(lines, index)) add(readRows(lines, index + 2, alignOf(lines[index + 1]), cellsOf(line)));
    else add(readParagraph(lines, index, depth));
  }
  return found;
}

const blocksOf = (lines, depth) => parseBlocks(lines, depth).map((each) => each.block);

/** Whether a line ends the paragraph before it. */
function interrupts(lines, index, depth) {
  const line = lines[index];
  if (isBlank(line) || fenceOf(line) || HEADING.test(line) || RULE.test(line)) return true;
  if (depth >= MAX_DEPTH) return false;
  // An empty item, or a number other than 1, may well be a word of the paragraph.
  return QUOTE.test(line) || /^ *(?:[-*+]|1[.)]) +[^ ]/.test(line) || isTable(lines, index);
}

function readParagraph(lines, index, depth) {
  let end = index + 1;
  while (end < lines.length && !interrupts(lines, end, depth)) end += 1;
  const text = lines.slice(index, end).map((line) => line.trimStart()).join("\n").trimEnd();
  return [{ type: "paragraph", inlines: parseInline(text) }, end];
}

/** A heading. Closing signs stand behind a space: "# C#" is about C#. */
function headingOf([, signs, text = ""]) {
  return { type: "heading", level: signs.length, inlines: parseInline(text.replace(/(^| )#+ *$/, "").trim()) };
}

function fenceOf(line) {
  const [, { length: indent } = "", fence, info] = FENCE.exec(line) ?? [];
  if (!fence || (fence[0] === "`" && info.includes("`"))) return null;
  return { fence, indent, language: info.trim().split(/\s/, 1)[0].slice(0, 40) };
}

/** The lines of a block of code up to its closing fence. It may go on from the window before, as the same `whole`. */
function readCode(lines, index, { fence, indent, language, whole = null }) {
  const isClosing = (line) => line.trim().startsWith(fence) && line.trim() === fence[0].repeat(line.trim().length);
  let end = index;
  while (end < lines.length && !isClosing(lines[end])) end += 1;
  const text = lines.slice(index, end).map((line) => line.slice(Math.min(indent, indentOf(line)))).join("\n");
  const closed = end < lines.length;
  return [codeOf({ language, text, fence, indent, closed, whole }), end + (closed ? 1 : 0)];
}

function readIndented(lines, index) {
  let end = index;
  while (end < lines.length && (isBlank(lines[end]) || indentOf(lines[end]) >= 4)) end += 1;
  while (end > index + 1 && isBlank(lines[end - 1])) end -= 1;
  const text = lines.slice(index, end).map((line) => line.slice(4)).join("\n");
  return [codeOf({ language: "", text, closed: true, whole: null }), end];
}

/** A block of code. `whole` is what it has in common with its continuations. */
function codeOf({ whole, ...rest }) {
  const block = { type: "code", ...rest, whole: whole ?? { done: [] }, continued: whole !== null };
  block.whole.last = block;
  return block;
}

function readQuote(lines, index, depth) {
  const inner = [];
  let end = index;
  for (; end < lines.length; end += 1) {
    const isQuote = QUOTE.test(lines[end]);
    // People leave the sign out within a paragraph.
    if (!isQuote && (isBlank(inner.at(-1)) || interrupts(lines, end, depth))) break;
    inner.push(isQuote ? lines[end].replace(QUOTE, "") : lines[end]);
  }
  return [{ type: "quote", blocks: blocksOf(inner, depth + 1) }, end];
}

/** The marker of a list item: its kind, number and the width up to the content. */
function markerOf(line) {
  const match = MARKER.exec(line);
  if (!match) return null;
  const end = match[0].length;
  const spaces = indentOf(line.slice(end));
  const width = end + (spaces <= 4 && end + spaces < line.length ? spaces : 1);
  return { indent: match[1].length, kind: match[2].at(-1), start: parseInt(match[2], 10) || 0, width };
}

function readList(lines, index, depth) {
  const first = markerOf(lines[index]);
  const items = [];
  let tight = true;
  let end = index;
  for (let marker = first; marker?.kind === first.kind && !RULE.test(lines[end]) && marker.indent <= first.indent + 3; ) {
    const inner = [lines[end].slice(marker.width)];
    // Agents indent by two, whatever the marker's width.
    const needed = Math.min(marker.width, marker.indent + 2);
    let blanks = 0;
    for (end += 1; end < lines.length; end += 1) {
      const line = lines[end];
      if (isBlank(line)) {
        blanks += 1;
        continue;
      }
      const isInner = indentOf(line) >= needed;
      if (!isInner && (blanks || MARKER.test(line) || interrupts(lines, end, depth))) break;
      if (blanks) tight = false;
      inner.push(...Array(blanks).fill(""), isInner ? line.slice(Math.min(indentOf(line), marker.width)) : line.trimStart());
      blanks = 0;
    }
    items.push(itemOf(inner, depth));
    marker = end < lines.length ? markerOf(lines[end]) : null;
    if (blanks && marker?.kind === first.kind) tight = false;
  }
  return [{ type: "list", ordered: ".)".includes(first.kind), start: first.start, tight, items }, end];
}

function itemOf([first, ...rest], depth) {
  const box = /^\[([ x])\] /i.exec(first);
  const lines = [box ? first.slice(4) : first, ...rest];
  return { checked: box ? box[1] !== " " : null, blocks: blocksOf(lines, depth + 1) };
}

// -- tables ------------------------------------------------------------------------------------------------------

const isRow = (line) => line.includes("|") && !isBlank(line);

function isTable(lines, index) {
  if (index + 1 >= lines.length || !lines[index].includes("|")) return false;
  return alignOf(lines[index + 1])?.length === cellsOf(lines[index]).length;
}

/** How the columns are aligned, from the line below the head; null when it is none. */
function alignOf(line) {
  if (!/^[-:| ]*-[-:| ]*$/.test(line) || !/[|:]/.test(line)) return null;
  const cells = cellsOf(line);
  if (cells.length > MAX_COLUMNS || !cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => (!cell.endsWith(":") ? (cell[0] === ":" ? "left" : "") : cell[0] === ":" ? "center" : "right"));
}

/** The cells of a row. A bar behind a backslash, or in code, is no border. */
function cellsOf(line) {
  const row = line.trim();
  const cells = [];
  let cell = "";
  let inCode = false;
  for (let index = row[0] === "|" ? 1 : 0; index < row.length && cells.length <= MAX_COLUMNS; index += 1) {
    const char = row[index];
    if (char === "|" && !inCode) {
      cells.push(cell.trim());
      cell = "";
      continue;
    }
    if (char === "`") inCode = !inCode && row.indexOf("`", index + 1) > 0;
    if (char === "\\" && row[index + 1] === "|") index += 1;
    cell += row[index];
  }
  return isBlank(cell) ? cells : [...cells, cell.trim()];
}

function readRows(lines, index, align, head) {
  const row = (cells) => align.map((_, column) => cells[column]).filter((cell) => cell !== undefined).map(parseInline);
  let end = index;
  while (end < lines.length && isRow(lines[end])) end += 1;
  const rows = lines.slice(index, end).map((line) => row(cellsOf(line)));
  return [{ type: "table", align, head: head && row(head), rows }, end];
}
