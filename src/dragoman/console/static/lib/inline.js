// The text of a paragraph, a heading or a cell of Markdown as inlines; `markdown.js` says what they are.

const MAX_DEPTH = 12; // of emphasis
const MAX_URL = 2000;
const PUNCTUATION = /[\p{P}\p{S}]/u;
// What may be more than text. No sign is read over and over: each of these ends where the next one may begin.
const SIGN = /\\[!-/:-@[-`{-~\n]|`+|\*+|_+|~+|!?\[|\]|<[^<>\s]+>|&#?\w{1,8};|\n|(?<![\p{L}\p{N}])https?:\/\/[^\s<`]+/gu;
// (address "title")
const TARGET = /\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\[^]|\((?:[^\s()\\]|\\[^])*\))*))(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)/y;
const ENTITIES = new Map([
  ["amp", "&"], ["lt", "<"], ["gt", ">"], ["quot", '"'], ["apos", "'"], ["nbsp", "\u00a0"], ["copy", "©"],
  ["hellip", "…"], ["ndash", "–"], ["mdash", "—"],
]);

/** The address of a link if it is one that may be followed: http, https or mailto; else null. */
export function safeUrl(text) {
  if (typeof text !== "string" || text.length > MAX_URL || !URL.canParse(text)) return null;
  const { protocol, href } = new URL(text);
  return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
}

/** Parse the text of a paragraph, a heading or a cell, in one pass. */
export function parseInline(text) {
  const tokens = []; // strings, nodes, and runs of delimiters, which become emphasis at the end
  const brackets = []; // the indexes of [ and ![ that may begin a link
  const unclosed = new Set(); // lengths of runs of backticks that no such run follows
  let at = 0; // what stands before it has been read
  const link = (href, children) => tokens.push({ type: "link", href, children });
  for (let match; (SIGN.lastIndex = at), (match = SIGN.exec(text)); ) {
    const { 0: sign, index } = match;
    if (index > at) tokens.push(text.slice(at, index));
    at = index + sign.length;
    switch (sign[0]) {
      case "\\":
        tokens.push(sign[1] === "\n" ? { type: "break" } : sign[1]);
        break;
      case "\n": {
        const before = tokens.at(-1);
        if (typeof before === "string") tokens[tokens.length - 1] = before.trimEnd();
        tokens.push(text.endsWith("  ", index) ? { type: "break" } : "\n");
        break;
      }
      case "`": {
        const end = unclosed.has(sign.length) ? -1 : closing(text, at, sign.length);
        if (end < 0) {
          unclosed.add(sign.length);
          tokens.push(sign);
          break;
        }
        const code = text.slice(at, end).replaceAll("\n", " ");
        tokens.push({ type: "code", text: /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code });
        at = end + sign.length;
        break;
      }
      case "*": case "_": case "~":
        tokens.push(sign[0] === "~" && sign.length > 2 ? sign : runOf(text, index, at));
        break;
      case "[": case "!":
        brackets.push(tokens.push(sign) - 1);
        break;
      case "]": {
        const open = brackets.pop();
        TARGET.lastIndex = at;
        const target = open === undefined ? null : TARGET.exec(text);
        const href = target && safeUrl((target[1] ?? target[2]).replace(/\\(?=[!-/:-@[-`{-~])/g, ""));
        if (href) {
          const [bracket, ...inner] = tokens.splice(open);
          const children = nest(inner);
          link(href, children.length ? children : [bracket === "[" ? href : "image"]);
          brackets.length = 0; // no link stands within another one
          at = TARGET.lastIndex;
        } else {
          tokens.push("]");
        }
        break;
      }
      case "<": {
        const inner = sign.slice(1, -1);
        const href = safeUrl(/^[^:@]+@[^:]+$/.test(inner) ? `mailto:${inner}` : inner);
        if (href) {
          link(href, [inner]);
        } else {
          tokens.push("<");
          at = index + 1;
        }
        break;
      }
      case "&": {
        const char = entity(sign.slice(1, -1));
        tokens.push(char ?? "&");
        if (!char) at = index + 1;
        break;
      }
      default: {
        const address = addressOf(sign);
        const href = brackets.length ? null : safeUrl(address);
        at = index + (href ? address : "http").length;
        if (href) link(href, [address]);
        else tokens.push("http");
      }
    }
  }
  tokens.push(text.slice(at));
  return nest(tokens);
}

/** Where the next run of exactly so many backticks is; -1 if there is none. */
function closing(text, from, length) {
  const runs = /`+/g;
  runs.lastIndex = from;
  for (let match; (match = runs.exec(text)); ) if (match[0].length === length) return match.index;
  return -1;
}

function entity(name) {
  if (name[0] !== "#") return ENTITIES.get(name);
  const number = Number(/^#x/i.test(name) ? `0x${name.slice(2)}` : name.slice(1));
  return number > 0 && number <= 0x10ffff && (number < 0xd800 || number > 0xdfff) ? String.fromCodePoint(number) : undefined;
}

/** An address without what ends the sentence around it, and without brackets that were opened before it. */
function addressOf(text) {
  let end = text.length;
  let open = 0;
  for (const char of text) open += char === "(" ? 1 : char === ")" ? -1 : 0;
  for (; end > 0; end -= 1) {
    const last = text[end - 1];
    if (last === ")" && open < 0) open += 1;
    else if (!"?!.,:;*_~'\"]|".includes(last)) break;
  }
  return text.slice(0, end);
}

/** Delimiters from an offset to another, and whether they may open or close emphasis. */
function runOf(text, start, end) {
  const char = text[start];
  const [before, after] = [text[start - 1] ?? " ", text[end] ?? " "];
  const [spaceBefore, spaceAfter] = [before.trim() === "", after.trim() === ""];
  const [signBefore, signAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
  const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
  // Within a word, an underscore is a letter: snake_case.
  const opens = left && (char !== "_" || !right || signBefore);
  const closes = right && (char !== "_" || !left || signAfter);
  return { type: "run", char, length: end - start, count: end - start, opens, closes };
}

/** Turn runs of delimiters into emphasis, as CommonMark does it, in linear time; what is left over becomes text. */
function nest(tokens) {
  const out = [];
  const openers = []; // {at: index in out, run, depth: of what stands behind it}
  const bottoms = new Map(); // kind of a closer: where a search for its opener has ended in vain
  for (const token of tokens) {
    while (token.closes && token.count > 0) {
      const kind = `${token.char}${token.opens}${token.char === "~" ? token.length : token.length % 3}`;
      const bottom = Math.min(bottoms.get(kind) ?? 0, openers.length);
      let index = openers.length - 1;
      while (index >= bottom && !matches(openers[index].run, token)) index -= 1;
      if (index < bottom) {
        bottoms.set(kind, openers.length);
        break;
      }
      wrap(out, openers, index, token);
    }
    if (token.count === 0) continue;
    if (token.opens) openers.push({ at: out.length, run: token, depth: 0 });
    out.push(token);
  }
  return joined(out);
}

/** Runs that were not matched as text, and adjacent texts as one. */
function joined(items) {
  const result = [];
  for (const item of items) {
    const text = item.type === "run" ? item.char.repeat(item.count) : item;
    if (typeof text === "string" && typeof result.at(-1) === "string") result[result.length - 1] += text;
    else if (text !== "") result.push(text);
  }
  return result;
}

function matches(opener, closer) {
  if (opener.char !== closer.char) return false;
  if (opener.char === "~") return opener.length === closer.length;
  if (!opener.closes && !closer.opens) return true;
  return (opener.length + closer.length) % 3 !== 0 || (opener.length % 3 === 0 && closer.length % 3 === 0);
}

function wrap(out, openers, index, closer) {
  const opener = openers[index];
  const { run } = opener;
  const used = run.char === "~" ? run.length : Math.min(run.count, closer.count, 2);
  for (const { depth } of openers.splice(index + 1)) opener.depth = Math.max(opener.depth, depth); // those are text now
  run.count -= used;
  closer.count -= used;
  // Deeper than anybody writes: the signs are dropped, so that drawing it needs no deep stack.
  if (opener.depth < MAX_DEPTH) {
    const children = joined(out.splice(opener.at + 1));
    opener.depth += 1;
    if (run.count === 0) out.pop();
    out.push({ type: run.char === "~" ? "del" : used === 2 ? "strong" : "em", children });
  }
  if (run.count > 0) return;
  openers.pop();
  const outer = openers.at(-1);
  if (outer) outer.depth = Math.max(outer.depth, opener.depth);
}
