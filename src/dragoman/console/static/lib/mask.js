// Secrets are masked before anything is kept or shown: what is not there cannot be copied into a bug report.

const SECRET_HEADERS = /^(authorization|proxy-authorization|cookie|set-cookie|x-api-key|api-key)$|token|secret|password/i;
const SECRET_KEYS = /^(token|credentials|password|secret|authorization|access_token|refresh_token|client_secret|api_?key)$/i;
export const MASK = "••••••••";

/** Headers without the values of credentials. `names` are further headers that hold one. */
export function maskHeaders(headers, names = []) {
  const secret = new Set(names.map((name) => name.toLowerCase()));
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name,
      secret.has(name.toLowerCase()) || SECRET_HEADERS.test(name) ? maskValue(value) : value,
    ]),
  );
}

/** The scheme of a credential stays: it is what people look for. */
function maskValue(value) {
  const scheme = /^(Bearer|Basic|Digest) /i.exec(value);
  return scheme ? `${scheme[1]} ${MASK}` : MASK;
}

/** A JSON value without the credentials in it, those of webhooks, for instance, and without the bulk of large files. */
export function maskValues(value) {
  if (Array.isArray(value)) return value.map(maskValues);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      SECRET_KEYS.test(key) && typeof inner === "string" ? MASK : key === "raw" ? startOf(inner) : maskValues(inner),
    ]),
  );
}

// Many exchanges are kept: of a large file its start will do, which is still base64.
const MAX_FILE = 100_000;
const startOf = (raw) => (typeof raw === "string" && raw.length > MAX_FILE ? raw.slice(0, 1000) : raw);

const SECRET_IN_TEXT = /("(?:token|credentials|password|secret|authorization|access_token|refresh_token|client_secret|api_?key)"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|\\?$)/gi;

/** JSON text, which may be cut, without the credentials in it; numbers and spaces stay as they went over the wire. */
export function maskText(text) {
  return text.replace(SECRET_IN_TEXT, `$1"${MASK}"`);
}
