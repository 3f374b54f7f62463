// Times, sizes and states as people read them.

const STATES = {
  TASK_STATE_SUBMITTED: ["submitted", "active"],
  TASK_STATE_WORKING: ["working", "active"],
  TASK_STATE_COMPLETED: ["completed", "good"],
  TASK_STATE_FAILED: ["failed", "bad"],
  TASK_STATE_CANCELED: ["canceled", "quiet"],
  TASK_STATE_INPUT_REQUIRED: ["input required", "waiting"],
  TASK_STATE_REJECTED: ["rejected", "bad"],
  TASK_STATE_AUTH_REQUIRED: ["sign-in required", "waiting"],
};
export const STATE_NAMES = Object.keys(STATES);
const FINAL = new Set(["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"]);

/** A state in words. */
export const stateLabel = (state) => STATES[state]?.[0] ?? String(state ?? "unknown");
/** The kind of a state, which decides its color: active, waiting, good, bad or quiet. */
export const stateKind = (state) => STATES[state]?.[1] ?? "quiet";
export const isFinal = (state) => FINAL.has(state);
export const isWaiting = (state) => STATES[state]?.[1] === "waiting";

/** Bytes with a unit. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = -1;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** A whole number with thin groups, such as 1,000,000. */
export const count = (number) => (number ?? 0).toLocaleString("en");

/** Milliseconds as a duration: 3 ms, 1.2 s, 2 min 5 s, 3 h 10 min, 2 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1) return "< 1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** The local time of an ISO text, with seconds; with the date unless it is today's. */
export function time(iso, { milliseconds = false } = {}) {
  const date = new Date(iso);
  if (!iso || Number.isNaN(date.getTime())) return "–";
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map((each) => String(each).padStart(2, "0"));
  const text = clock.join(":") + (milliseconds ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : "");
  return date.toDateString() === new Date().toDateString() ? text : `${day(date)} ${text}`;
}

function day(date) {
  const parts = [date.getFullYear(), date.getMonth() + 1, date.getDate()];
  return parts.map((each) => String(each).padStart(2, "0")).join("-");
}

/** How long ago, in one unit. */
export function ago(iso, now = Date.now()) {
  const ms = now - new Date(iso).getTime();
  if (Number.isNaN(ms)) return "–";
  if (ms < 5_000) return "just now";
  if (ms < 60_000) return `${Math.floor(ms / 1000)} s ago`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ago`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ago`;
  return `${Math.floor(ms / 86_400_000)} d ago`;
}

// Characters that reorder or hide the text around them: harmless in a paragraph, a trap in a name.
const TRICKS = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A foreign name on one line: no control, zero-width or direction characters, and not longer than `limit`. */
export function oneLine(text, limit = 200) {
  const clean = String(text ?? "").slice(0, limit * 4).replace(TRICKS, " ").replace(/\s+/g, " ").trim();
  return clean.length > limit ? `${clean.slice(0, limit - 1)}…` : clean;
}

/** A new random id. */
export function uuid() {
  if (crypto.randomUUID) return crypto.randomUUID();
  // Browsers keep randomUUID from pages that came over plain HTTP from another machine.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((each) => each.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
