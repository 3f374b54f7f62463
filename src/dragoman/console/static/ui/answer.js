// The answer to the question of a task that waits.
import { html, useRef, useState } from "../lib/preact.js";
import { call, userMessage } from "../lib/a2a.js";
import { announce, Problem } from "./base.js";
import { Parts } from "./parts.js";
import { Question, SignIn } from "./turn.js";

/** The question, a form for what it asks for, and a field for words; `onSent()` is called when the agent has one. A sign-in has neither. */
export function Answer({ task, agent, onSent }) {
  const question = task.status?.message;
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [isSending, setSending] = useState(false);
  const form = useRef(null);

  async function send(parts) {
    if (isSending) return;
    setSending(true);
    try {
      const message = userMessage(parts, { taskId: task.id, contextId: task.contextId });
      await call(agent, "SendMessage", { message, configuration: { returnImmediately: true } });
      announce("Answer sent");
      setError(null);
      setText("");
      onSent();
    } catch (failure) {
      setError(failure);
    }
    setSending(false);
  }
  function onSubmit(event) {
    event.preventDefault();
    if (text.trim()) send([{ text }]);
  }
  function onKeyDown(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.current.requestSubmit();
  }
  if (task.status?.state === "TASK_STATE_AUTH_REQUIRED") {
    return html`<section class="asked card stack" aria-label="Sign in">
      <h2>The agent waits for a sign-in</h2>
      <${SignIn} message=${question} isOpen=${true} onSend=${send} />
      ${error && html`<${Problem} error=${error} />`}
    </section>`;
  }
  return html`<section class="asked card stack" aria-label="Answer the question">
    <h2>The agent asks</h2>
    ${question?.parts && html`<${Parts} parts=${question.parts} />`}
    <${Question} message=${question} onSend=${send} />
    <form ref=${form} class="stack" onSubmit=${onSubmit}>
      <label class="stacked">Answer in words
        <textarea rows="2" value=${text} onKeyDown=${onKeyDown}
          onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
      <div><button type="submit" disabled=${isSending || !text.trim()}>Send words</button></div>
    </form>
    ${error && html`<${Problem} error=${error} />`}
  </section>`;
}
