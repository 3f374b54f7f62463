// The console's own API: what A2A has no word for. Paths are relative to `console/api/`.

/** A refused or failed request: `status` is 0 when the server cannot be reached. */
export class ApiError extends Error {
  constructor(status, reason, message) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

/** GET. Query values that are empty, null or undefined are left out. Throws ApiError. */
export function get(path, query = {}, { signal } = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(kept).toString();
  return request("GET", search ? `${path}?${search}` : path, undefined, signal);
}

const texts = new WeakMap();

/**
 * The text of a member of a response, as the server wrote it: parsed, large numbers are not what they were. `start` and
 * `end` are what stands before and behind it, the last of its kind: quotes within texts of others are escaped.
 */
export function textBetween(data, start, end) {
  const text = texts.get(data) ?? "";
  const from = text.indexOf(start) + start.length;
  return text.slice(from, text.lastIndexOf(end));
}

/** POST of a JSON body. Throws ApiError. */
export function post(path, body = {}, { signal } = {}) {
  return request("POST", path, JSON.stringify(body), signal);
}

/** A path of segments that come from elsewhere, such as ids. */
export function pathOf(...segments) {
  return segments.map(encodeURIComponent).join("/");
}

let onUnauthorized = () => {};

/** Set what is called when the server no longer knows this visitor: it was started again, or they signed out. */
export function whenUnauthorized(action) {
  onUnauthorized = action;
}

async function request(method, path, body, signal) {
  let response;
  try {
    response = await fetch(`console/api/${path}`, {
      method,
      body,
      signal,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "The server cannot be reached. Is it still running?");
  }
  const text = await response.text();
  let data = {};
  try {
    data = JSON.parse(text || "{}");
    texts.set(data, text);
  } catch {
    data = { error: `HTTP ${response.status}` };
  }
  if (response.status === 401) onUnauthorized();
  if (!response.ok) throw new ApiError(response.status, data.reason ?? "", data.error ?? `HTTP ${response.status}`);
  return data;
}
