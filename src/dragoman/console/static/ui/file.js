// Files in messages, both ways. What a file is, its first bytes decide, never its sender: a page or a drawing with a
// script in it is text here, and is saved, not opened.
import { html, useEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { oneLine, size } from "../lib/format.js";
import { Name, announce } from "./base.js";
import { LongText } from "./text.js";

const HEAD = 6000; // bytes that are looked at
const PIECE = 1 << 20; // characters of base64 that are decoded in one task
const KINDS = [
  ["image/png", ".png", /^\x89PNG\r\n\x1a\n/], ["image/jpeg", ".jpg", /^\xff\xd8\xff/], ["image/gif", ".gif", /^GIF8[79]a/],
  ["image/webp", ".webp", /^RIFF[^]{4}WEBP/], ["application/pdf", ".pdf", /^%PDF/],
];

/** A file of an agent, a part with `raw` or with `text` and a name: what it is, a preview where that is safe, a download. */
export function FileCard({ part }) {
  const { kind, extension, head, bytes } = useMemo(() => inspect(part), [part.raw ?? part.text]);
  const [isOpen, setOpen] = useState(false);
  const name = safeName(part.filename) || `file${extension}`;
  const isPdf = kind === "application/pdf";
  const words = [kind?.split("/").at(-1).toUpperCase(), part.mediaType && oneLine(part.mediaType, 60), size(bytes)];
  async function save() {
    try {
      const url = URL.createObjectURL(await blobOf(part, "application/octet-stream"));
      Object.assign(document.createElement("a"), { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch {
      announce("The file cannot be read: its content is not base64.", "bad");
    }
  }
  return html`<figure class="file">
    <figcaption>
      <b><${Name} text=${name} limit=${80} /></b>
      <span class="muted">${words.filter(Boolean).join(", ")}</span>
      ${isPdf && html`<button type="button" class="small" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Hide" : "Preview"}</button>`}
      <button type="button" class="small" aria-label="Download ${name}" onClick=${save}>Download</button>
    </figcaption>
    ${(isPdf ? isOpen : kind?.startsWith("image/")) && html`<${Preview} part=${part} type=${kind} name=${name} />`}
    ${kind === "text" && html`<pre tabindex="0" aria-label="Start of ${name}"><${LongText} text=${head} limit=${1500} />${
      bytes > HEAD && html`<span class="muted">\n… download it to see all ${size(bytes)}</span>`}</pre>`}
  </figure>`;
}

/** An image or a PDF file, by an address of our own under a type that we chose. */
function Preview({ part, type, name }) {
  const [url, setUrl] = useState(null); // "" when it cannot be shown
  useEffect(() => {
    let made = "";
    let isGone = false;
    blobOf(part, type).then(
      (blob) => !isGone && setUrl((made = URL.createObjectURL(blob))),
      () => setUrl(""),
    );
    return () => {
      isGone = true;
      URL.revokeObjectURL(made);
    };
  }, [part.raw ?? part.text, type]);
  if (!url) return html`<p class="muted">${url === null ? "Reading the file …" : "The file cannot be shown."}</p>`;
  if (type === "application/pdf") return html`<iframe src="${url}#navpanes=0" title="Preview of ${name}"></iframe>`;
  return html`<img src=${url} alt=${name} decoding="async" onError=${() => setUrl("")} />`;
}

async function blobOf(part, type) {
  if (typeof part.raw !== "string") return new Blob([part.text], { type });
  const pieces = [];
  for (let start = 0; start < part.raw.length; start += PIECE) {
    if (start) await new Promise((resolve) => setTimeout(resolve));
    pieces.push(decode(part.raw.slice(start, start + PIECE)));
  }
  return new Blob(pieces, { type });
}

/** The bytes of base64, of the usual alphabet or that of URLs. Throws where it is neither. */
function decode(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (char) => char.charCodeAt(0));
}

/** What a part with a file is. `kind` is a type of our own list, "text", or undefined. */
function inspect({ raw, text }) {
  if (typeof raw !== "string") return { kind: "text", extension: ".txt", head: text.slice(0, HEAD), bytes: new Blob([text]).size };
  const bytes = Math.floor((raw.length * 3) / 4) - (raw.endsWith("==") ? 2 : raw.endsWith("=") ? 1 : 0);
  try {
    const start = decode(raw.slice(0, (HEAD / 3) * 4));
    const signature = String.fromCharCode(...start.slice(0, 16));
    const [kind, extension] = KINDS.find(([, , pattern]) => pattern.test(signature)) ?? [];
    if (kind) return { kind, extension, bytes };
    // The last character may be cut.
    const head = new TextDecoder("utf-8", { fatal: true }).decode(start, { stream: true });
    if (!/[\x00-\x08\x0e-\x1a\x1c-\x1f]/.test(head)) return { kind: "text", extension: ".txt", head, bytes };
  } catch {
    // No base64, or no text.
  }
  return { extension: "", bytes };
}

/** A file name without a folder, or characters that hide or reorder what follows; empty when nothing is left. */
export function safeName(name) {
  const last = String(name ?? "").slice(-1000).split(/[/\\]/).at(-1);
  const clean = oneLine(last, 1000).replace(/[<>:"|?*%]/g, "_").replace(/^[. ]+|[. ]+$/g, "");
  if (clean.length <= 100) return clean;
  const dot = clean.lastIndexOf(".");
  const extension = dot > 0 && clean.length - dot <= 10 ? clean.slice(dot) : "";
  return clean.slice(0, 100 - extension.length) + extension;
}

// -- files to send -----------------------------------------------------------------------------------------------

/** The part of a file that somebody chose, dropped or pasted. */
export function filePart(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const raw = reader.result.slice(reader.result.indexOf(",") + 1);
      // In a task of its own: what follows takes as long as the reading, for a file of megabytes.
      setTimeout(resolve, 0, { raw, filename: file.name || "pasted", mediaType: file.type || "application/octet-stream" });
    };
    reader.onerror = () => reject(new Error(`${oneLine(file.name, 80)} cannot be read`));
    reader.readAsDataURL(file);
  });
}

/** How many bytes files take in a request: base64 makes them a third longer. */
export const encodedSize = (files) => files.reduce((sum, file) => sum + Math.ceil(file.size / 3) * 4 + 200, 0);

/** Files that will be sent with the next message, each with a button that removes it. */
export function Attachments({ files, onChange }) {
  const list = useRef(null);
  if (!files.length) return null;
  const remove = (index) => {
    announce(`Removed ${oneLine(files[index].name, 80)}`);
    onChange(files.filter((_, position) => position !== index));
    // The rows stay and their files move up; the last row goes.
    (list.current.querySelectorAll("button")[Math.min(index, files.length - 2)] ?? document.getElementById("composer")).focus();
  };
  return html`<ul class="attachments" aria-label="Files to send" ref=${list}>
    ${files.map((file, index) => html`<li key=${index}><${Name} text=${file.name || "pasted"} limit=${60} /> <span class="muted">${size(file.size)}</span>
      <button type="button" class="icon" aria-label="Remove ${oneLine(file.name, 60)}" onClick=${() => remove(index)}>✕</button></li>`)}
  </ul>`;
}
