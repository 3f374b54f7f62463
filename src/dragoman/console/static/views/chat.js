// A conversation with one agent.
import { html, memo, signal, useEffect, useLayoutEffect, useRef, useState } from "../lib/preact.js";
import * as a2a from "../lib/a2a.js";
import { Conversation, textOf } from "../lib/conversation.js";
import { isFinal, oneLine, size, stateLabel } from "../lib/format.js";
import { href, navigate, route } from "../lib/router.js";
import { cards, needsCredential } from "../lib/session.js";
import { exchanges } from "../lib/wire.js";
import { Empty, Name, Problem, Spinner, announce } from "../ui/base.js";
import { ConversationList, rememberedTasks } from "../ui/conversations.js";
import { CredentialsBar } from "../ui/credentials.js";
import { Attachments, encodedSize, filePart } from "../ui/file.js";
import { TurnView } from "../ui/turn.js";

const MAX_OPEN = 8;
const MAX_BODY = 10_000_000; // what the server takes by default

// -- conversations live longer than the view: who looks at the wire meanwhile misses nothing ----------------------------

const opened = new Map(); // by agent and context: {conversation, version, draft}
const keyOf = (agent, contextId) => JSON.stringify([agent.name, contextId ?? null]);

function entryOf(agent, contextId) {
  const key = keyOf(agent, contextId);
  if (opened.has(key)) return opened.get(key);
  const client = {
    call: (operation, params) => a2a.call(agent, operation, params),
    follow: (operation, params, options) => a2a.follow(agent, operation, params, options),
    exchange: (operation, { id, message }) =>
      exchanges.findLast(({ params }) => (message ? params?.message?.messageId === message.messageId : params?.id === id))?.number,
  };
  const entry = { key, version: signal(0), draft: { text: "", files: [] }, frame: 0, isNew: !contextId, pinned: true, scrolled: 0 };
  entry.conversation = new Conversation(client, contextId, () => changed(agent, entry));
  opened.set(key, entry);
  if (contextId) entry.conversation.load(rememberedTasks(agent, contextId));
  for (const [old, { conversation }] of opened) {
    if (opened.size <= MAX_OPEN) break;
    if (conversation.isLive || old === key) continue;
    conversation.close();
    opened.delete(old);
  }
  return entry;
}

/** Draw once per frame, however many events there were. */
function changed(agent, entry) {
  entry.frame ||= requestAnimationFrame(() => {
    entry.frame = 0;
    entry.version.value += 1;
  });
  const { contextId } = entry.conversation;
  if (!contextId || !entry.isNew) return;
  // The first event names the context: the conversation has an address now.
  entry.isNew = false;
  opened.delete(entry.key);
  entry.key = keyOf(agent, contextId);
  opened.set(entry.key, entry);
  const { path } = route.value;
  if (path[0] === "agents" && path[1] === agent.name && path[2] === "chat" && path[3] === undefined) {
    navigate(["agents", agent.name, "chat", contextId], {}, { replace: true });
  }
}

/** The skills of an agent that can be called by their id. */
function skillsOf(agent) {
  const skills = cards.value[agent.name]?.card?.skills;
  return Array.isArray(skills) ? skills.filter((skill) => skill?.id && typeof skill.id === "string") : [];
}

const messageOf = (parts, skillId) => a2a.userMessage(parts, skillId ? { metadata: { skillId } } : {});

function send(entry, message, options) {
  entry.pinned = true; // who says something wants to see the answer
  entry.conversation.send(message, options);
}

// -- the view ----------------------------------------------------------------------------------------------------

export function ChatView({ agent, contextId }) {
  const entry = entryOf(agent, contextId);
  const { conversation } = entry;
  entry.version.value; // draws again when it changes
  const [listOpen, setListOpen] = useState(false);
  const spoken = useSpoken(conversation);
  useEffect(() => setListOpen(false), [contextId]);
  const [dropping, drop] = useDrop((files) => addFiles(entry, files));
  return html`<div class="view chat ${dropping ? "dropping" : ""} ${listOpen ? "listing" : ""}" ...${drop}>
    <header>
      <h1>Chat with <${Name} text=${agent.name} limit=${60} /></h1>
      <span class="grow"></span>
      <button type="button" class="small narrow" aria-expanded=${listOpen} aria-controls="conversations" onClick=${() => setListOpen(!listOpen)}>Conversations</button>
      <a class="button small" href=${href(["agents", agent.name, "chat"])}>New<span class="wide"> conversation</span></a>
    </header>
    <${ConversationList} agent=${agent} conversation=${conversation} turns=${conversation.turns} isBusy=${conversation.isBusy} />
    <section class="talk" aria-label="Conversation">
      <h2 class="visually-hidden">Messages</h2>
      <${Log} key=${entry.key} entry=${entry} agent=${agent} />
      <p class="visually-hidden" role="status">${entry.note || spoken}</p>
      <${CredentialsBar} agent=${agent} />
      <${Composer} key=${agent.name} entry=${entry} agent=${agent} />
    </section>
  </div>`;
}

/** What screen readers hear: the end of a stream, not each of its pieces. */
function useSpoken(conversation) {
  const [spoken, setSpoken] = useState("");
  const before = useRef({ conversation, isBusy: false });
  const isBusy = conversation.isBusy;
  useEffect(() => {
    const wasBusy = before.current.conversation === conversation && before.current.isBusy;
    before.current = { conversation, isBusy };
    const turn = conversation.turns.at(-1);
    if (isBusy) setSpoken("");
    else if (wasBusy && turn) setSpoken(`${turn.error ? "error" : stateLabel(turn.state)}: ${oneLine(turn.error?.message ?? answerOf(turn), 500)}`);
  }, [conversation, isBusy]);
  return spoken;
}

function answerOf(turn) {
  const last = turn.statusMessage ?? (turn.artifacts.size ? [...turn.artifacts.values()].at(-1) : turn.messages.at(-1));
  return textOf(last).slice(0, 2000);
}

function Log({ entry, agent }) {
  const { conversation } = entry;
  entry.version.value;
  const scroller = useRef(null);
  const content = useRef(null);
  const [atEnd, setAtEnd] = useState(true);
  const follow = () => {
    if (!entry.pinned || !scroller.current) return;
    scroller.current.scrollTop = scroller.current.scrollHeight;
    entry.scrolled = scroller.current.scrollTop;
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(follow);
    observer.observe(content.current);
    observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);
  // Only the reader lets go of the end: what grows, or is laid out anew, does not.
  const onScroll = (event) => {
    const { scrollHeight, scrollTop, clientHeight } = event.target;
    if (scrollTop === entry.scrolled) return;
    const isEnd = scrollHeight - scrollTop - clientHeight < 48;
    if (isEnd ? scrollTop >= entry.scrolled : scrollTop < entry.scrolled) entry.pinned = isEnd;
    entry.scrolled = scrollTop;
    setAtEnd(entry.pinned);
  };
  // Browsers scroll in small steps: the first one must not be undone by what arrives meanwhile.
  const letGo = () => {
    if (scroller.current.scrollTop > 0) entry.pinned = false;
  };
  const onKeyDown = ({ key }) => ["ArrowUp", "PageUp", "Home"].includes(key) && letGo();
  const toEnd = () => {
    entry.pinned = true;
    setAtEnd(true);
    follow();
  };
  const { turns, loading, error, earlier } = conversation;
  return html`<div class="log-frame">
    <div class="log" role="log" aria-label="Messages" aria-live=${conversation.isBusy ? "off" : "polite"} aria-busy=${conversation.isBusy}
      tabindex="0" ref=${scroller} onScroll=${onScroll} onWheel=${(event) => event.deltaY < 0 && letGo()} onTouchMove=${letGo} onKeyDown=${onKeyDown}>
      <div class="content" ref=${content}>
        ${error && html`<${Problem} error=${error} retry=${() => conversation.load(rememberedTasks(agent, conversation.contextId))} />`}
        ${loading && html`<${Spinner} label="Loading the conversation" />`}
        ${earlier && !loading && html`<p class="earlier"><button type="button" class="small" onClick=${() => { entry.pinned = false; conversation.load(); }}>Show earlier messages</button></p>`}
        ${!turns.length && !loading && !error && html`<${Welcome} agent=${agent} entry=${entry} />`}
        ${turns.map((turn) => html`<${KeptTurn} key=${turn.messages[0]?.messageId ?? turn.id} turn=${turn} version=${turn.version}
          isOpen=${turn === conversation.open} entry=${entry} />`)}
      </div>
    </div>
    ${!atEnd && html`<button type="button" class="to-end" onClick=${toEnd}>↓ Jump to newest</button>`}
  </div>`;
}

// A turn that has not changed is not drawn again; one that has is the same object, with another version.
const KeptTurn = memo(({ turn, isOpen, entry }) => html`<${TurnView} turn=${turn} isOpen=${isOpen}
  onSend=${(parts) => send(entry, a2a.userMessage(parts), { to: turn })} onRetry=${() => entry.conversation.retry(turn)} />`);

function Welcome({ agent, entry }) {
  if (entry.conversation.contextId) return html`<${Empty} title="Nothing to see here"><p>This conversation does not exist any more, or it is somebody else's.</p></${Empty}>`;
  const samples = skillsOf(agent).flatMap(({ id, examples }) => (Array.isArray(examples) ? examples.map((text) => ({ text, id })) : []));
  const texts = samples.filter(({ text }) => typeof text === "string" && text.trim() && text.length <= 200).slice(0, 6);
  return html`<${Empty} title="Say something">
    <p>${agent.description ? oneLine(agent.description, 300) : "Write a message below."}</p>
    ${texts.length > 0 && !needsCredential(agent) && html`<ul class="samples" aria-label="Examples">${texts.map(({ text, id }) => html`<li>
      <button type="button" onClick=${() => send(entry, messageOf([{ text }], id))}>${oneLine(text, 120)}</button></li>`)}</ul>`}
  </${Empty}>`;
}

// -- writing -----------------------------------------------------------------------------------------------------

function useDrop(onFiles) {
  const [dropping, setDropping] = useState(false);
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  return [dropping, {
    onDragOver: (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setDropping(true);
    },
    onDragLeave: (event) => !event.currentTarget.contains(event.relatedTarget) && setDropping(false),
    onDrop: (event) => {
      setDropping(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      onFiles([...event.dataTransfer.files]);
    },
  }];
}

/** Change what is being written: {text, files}. */
function write(entry, changes) {
  entry.draft = { ...entry.draft, ...changes };
  entry.version.value += 1;
}

function addFiles(entry, files) {
  if (!files.length) return;
  entry.note = files.length === 1 ? `Added ${oneLine(files[0].name, 80)}` : `Added ${files.length} files`; // seen, and said
  write(entry, { files: [...entry.draft.files, ...files] });
}

function Composer({ entry, agent }) {
  const { conversation, draft } = entry;
  entry.version.value;
  const { query } = route.value;
  const [skill, setSkill] = useState(query.skill ?? "");
  const field = useRef(null);
  const picker = useRef(null);
  const grow = () => {
    field.current.style.height = "auto";
    field.current.style.height = `${Math.min(field.current.scrollHeight + 2, innerHeight * 0.4)}px`;
  };
  useEffect(() => {
    if (query.text) write(entry, { text: query.text });
    if (query.skill) setSkill(query.skill);
  }, [query.text, query.skill, entry]);
  useLayoutEffect(grow, [draft.text]);
  useEffect(() => {
    if (matchMedia("(min-width: 761px)").matches) field.current.focus({ preventScroll: true });
  }, [agent.name]);
  const locked = needsCredential(agent);
  const ids = skillsOf(agent).map(({ id }) => id).slice(0, 500);
  const question = conversation.open;
  const running = conversation.turns.findLast((turn) => turn.id && !isFinal(turn.state));
  // A second message has to name the context that the first one is about to get.
  const starts = conversation.turns.length > 0 && !conversation.contextId && conversation.isLive;
  const tooLarge = encodedSize(draft.files) + draft.text.length > MAX_BODY;
  const isEmpty = !draft.text.trim() && !draft.files.length;

  async function submit(event) {
    event?.preventDefault();
    if (isEmpty || locked || starts) return;
    const { text, files } = draft;
    entry.note = "";
    write(entry, { text: "", files: [] });
    try {
      const parts = [...(text.trim() ? [{ text }] : []), ...(await Promise.all(files.map(filePart)))];
      send(entry, messageOf(parts, question ? "" : skill));
    } catch (error) {
      write(entry, { text, files });
      announce(error.message, "bad");
    }
    field.current?.focus();
  }
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  };
  const onPaste = (event) => {
    const files = [...event.clipboardData.files];
    if (!files.length) return;
    event.preventDefault();
    addFiles(entry, files);
  };
  const cancel = () => conversation.cancel(running).then(() => announce("Canceled"), (error) => announce(error.message, "bad"));
  return html`<form class="composer card" onSubmit=${submit}>
    <${Attachments} files=${draft.files} onChange=${(files) => write(entry, { files })} />
    ${tooLarge && html`<p class="note" role="alert">These files take ${size(encodedSize(draft.files))} in a message; a server takes ${size(MAX_BODY)} unless its limit <code>body</code> says otherwise.</p>`}
    <textarea id="composer" ref=${field} rows="1" dir="auto" aria-label=${question ? "Answer" : "Message"} disabled=${locked}
      placeholder=${locked ? "The agent answers only callers it knows: enter a credential first" : question ? "Write an answer" : "Write a message"}
      value=${draft.text} onInput=${(event) => write(entry, { text: event.currentTarget.value })} onKeyDown=${onKeyDown} onPaste=${onPaste}></textarea>
    <div class="row">
      <input type="file" multiple hidden ref=${picker} onChange=${(event) => { addFiles(entry, [...event.currentTarget.files]); event.currentTarget.value = ""; }} />
      <button type="button" class="small" disabled=${locked} onClick=${() => picker.current.click()}>Add files</button>
      ${ids.length > 1 && !question && html`<label class="skill"><span class="visually-hidden">Skill</span>
        <select value=${skill} onChange=${(event) => setSkill(event.currentTarget.value)} disabled=${locked}>
          <option value="">Default skill</option>
          ${ids.map((id) => html`<option key=${id} value=${id}>${oneLine(id, 60)}</option>`)}
        </select></label>`}
      <span class="grow"></span>
      ${running && html`<button type="button" class="danger" onClick=${cancel}>Cancel</button>`}
      <button type="submit" class="primary" disabled=${isEmpty || locked || starts}>${question ? "Answer" : "Send"}</button>
    </div>
  </form>`;
}
