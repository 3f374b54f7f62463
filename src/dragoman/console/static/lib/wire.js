// Every A2A exchange of this page as it went over the wire, secrets masked. The newest 200 are kept, in memory.
import { signal } from "./preact.js";
import { maskHeaders, maskText, maskValues } from "./mask.js";

const MAX_EXCHANGES = 200;
const MAX_EVENTS = 5000;
const MAX_TEXT = 500_000;

/** The exchanges, newest last. They change in place: `wireVersion` changes with them, at most once per frame. */
export const exchanges = [];
export const wireVersion = signal(0);
let next = 1;
let scheduled = false;

function changed() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    wireVersion.value += 1;
  });
}

/** A text without credentials and not longer than anybody reads. It is cut first: masking megabytes takes long. */
function shown(text) {
  if (text.length <= MAX_TEXT) return maskText(text);
  return `${maskText(text.slice(0, MAX_TEXT))}\n… ${text.length - MAX_TEXT} more characters`;
}

/** One request and what came back: a response, or a stream of events. */
export class Exchange {
  constructor({ agent, operation, params, binding, version, method, url, headers, body, secretHeaders }) {
    this.number = next++;
    this.at = new Date().toISOString();
    this.agent = agent;
    this.operation = operation; // as A2A 1.0 names it
    this.params = maskValues(params); // as A2A 1.0 spells them
    this.binding = binding;
    this.version = version;
    this.method = method;
    this.url = url;
    this.requestHeaders = maskHeaders(headers, secretHeaders);
    this.requestBody = body === undefined ? "" : shown(body);
    this.status = 0;
    this.responseHeaders = {};
    this.responseBody = "";
    this.isStream = false;
    this.events = []; // {id, at (ms since the request), data (text)}
    this.eventCount = 0;
    this.error = "";
    this.duration = null; // ms; null while it goes on
    this.#started = performance.now();
    exchanges.push(this);
    if (exchanges.length > MAX_EXCHANGES) exchanges.shift();
    changed();
  }

  #started;

  respond(response) {
    this.status = response.status;
    this.responseHeaders = maskHeaders(Object.fromEntries(response.headers));
    changed();
  }

  receive(text) {
    this.responseBody = shown(text);
    this.end();
  }

  event(id, data) {
    this.isStream = true;
    this.eventCount += 1;
    if (this.events.length < MAX_EVENTS) {
      this.events.push({ id, at: performance.now() - this.#started, data: shown(data) });
    }
    changed();
  }

  end(error = "") {
    if (this.duration === null) this.duration = performance.now() - this.#started;
    this.error = error;
    changed();
  }
}

export function clearWire() {
  exchanges.length = 0;
  changed();
}
