// One try of a skill: a turn that is followed to its end or its question, for a view that renders once per frame.
import { signal } from "./preact.js";
import { call, follow, userMessage } from "./a2a.js";
import { Turn } from "./conversation.js";

/** A skill that runs, or ran. `turn` changes in place: `version` changes with it, at most once per frame. */
export class Run {
  constructor(agent) {
    this.agent = agent;
    this.turn = new Turn();
    this.version = signal(0);
    this.running = signal(true); // apart from `version`: a form need not be rendered for every chunk
    this.error = null;
    this.started = Date.now();
    this.ended = null;
  }

  #abort = new AbortController();
  #scheduled = false;

  /** Send the parts and follow what comes back. Never throws: `error` has it. */
  async start(parts, metadata) {
    const params = { message: userMessage(parts, metadata ? { metadata } : {}) };
    try {
      for await (const { event } of follow(this.agent, "SendStreamingMessage", params, { signal: this.#abort.signal })) {
        this.turn.apply(event);
        this.#changed();
      }
    } catch (error) {
      if (error.name !== "AbortError") this.error = error;
    }
    this.ended = Date.now();
    this.running.value = false;
    this.#changed();
  }

  /** Cancel the task; before the agent has said which one it is, only the waiting ends. */
  async cancel() {
    if (!this.turn.id) return this.#abort.abort();
    try {
      await call(this.agent, "CancelTask", { id: this.turn.id });
    } catch (error) {
      this.error = error;
      this.#changed();
    }
  }

  #changed() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    const tick = () => {
      this.#scheduled = false;
      this.version.value += 1;
    };
    if (document.hidden) setTimeout(tick, 100); // no frames come then
    else requestAnimationFrame(tick);
  }
}
