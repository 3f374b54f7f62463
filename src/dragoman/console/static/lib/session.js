// Who looks at this page, the agents of the server, their cards, and the credentials typed for them.
import { computed, signal } from "./preact.js";
import * as api from "./api.js";
import { href, route } from "./router.js";

/** The response of `console/api/session`; null until it is loaded. */
export const session = signal(null);
/** The ApiError that kept the session from being loaded; null if there is none. */
export const sessionError = signal(null);
export const agents = computed(() => session.value?.agents ?? []);
/** Whether this visitor may list tasks and see their journals. */
export const seesTasks = computed(() => Boolean(session.value && (session.value.admin || session.value.user)));
export const isAdmin = computed(() => Boolean(session.value?.admin));

export async function loadSession() {
  try {
    session.value = await api.get("session");
    sessionError.value = null;
  } catch (error) {
    sessionError.value = error;
  }
}

// Its views say then how to come back.
api.whenUnauthorized(loadSession);

/** What the keys of conversations in the memory of this browser begin with. */
export const CHATS = "dragoman.chats.";

export async function signOut() {
  await api.post("sign-out");
  // The next person at this browser is another one: nothing of what was seen, typed and sent stays with it.
  for (const key of Object.keys(localStorage)) if (key.startsWith(CHATS)) localStorage.removeItem(key);
  history.replaceState(null, "", location.pathname); // the address may be that of a conversation
  location.reload();
}

/** The address of the sign-in, which leads back to where the visitor is; null when the server has none. */
export function signInAddress() {
  const { login } = session.value ?? {};
  if (!login) return null;
  const here = new URL("./", document.baseURI).pathname + href(route.value.path, route.value.query);
  return `${login}?next=${encodeURIComponent(here)}`;
}

/** The agent with this name, else the first one; undefined when there is none. */
export function agentOf(name) {
  return agents.value.find((agent) => agent.name === name) ?? (name === undefined ? agents.value[0] : undefined);
}

// -- cards -------------------------------------------------------------------------------------------------------

/** What is known of each agent by name: {card, text, schemas, problems, isChecked, error}, loaded on demand. */
export const cards = signal({});
const loading = new Map();

/** Load the card of an agent, the schemas of its skills and the problems of its card, once. */
export function loadCard(agent, { again = false } = {}) {
  if (!again && loading.has(agent.name)) return loading.get(agent.name);
  const promise = fetchCard(agent).then((loaded) => {
    cards.value = { ...cards.value, [agent.name]: loaded };
    return loaded;
  });
  loading.set(agent.name, promise);
  return promise;
}

async function fetchCard(agent) {
  try {
    // A card depends on who asks, and the server on what was changed: the browser asks again, at the price of a 304.
    const options = { headers: credentialHeaders(agent.name), cache: "no-cache" };
    const response = await fetch(agent.path + agent.card, options);
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const text = await response.text();
    const [schemas, { problems, isChecked = true }] = await Promise.all([
      fetch(agent.path + agent.skillSchemas, options).then((each) => (each.ok ? each.json() : {})),
      api.get(`cards/${api.pathOf(agent.name)}`).catch(() => ({ problems: [], isChecked: false })),
    ]);
    return { card: JSON.parse(text), text, schemas, problems, isChecked, error: null };
  } catch (error) {
    return { card: null, text: "", schemas: {}, problems: [], error: `The card cannot be read: ${error.message}` };
  }
}

/** Whether the agent answers only callers who say who they are, and this visitor has not. */
export function needsCredential(agent) {
  const card = cards.value[agent.name]?.card;
  const required = (card?.securityRequirements ?? card?.security ?? []).length > 0;
  return required && !session.value?.user && !credentials.value[agent.name];
}

// -- credentials -------------------------------------------------------------------------------------------------

/** Headers typed by the visitor, by agent. They live in this page's memory only, and are gone when it is closed. */
export const credentials = signal({});

export function setCredential(agentName, headers) {
  const { [agentName]: _, ...rest } = credentials.value;
  credentials.value = headers ? { ...rest, [agentName]: headers } : rest;
}

export function credentialHeaders(agentName) {
  return credentials.value[agentName] ?? {};
}

/**
 * Whether calls to an agent send the cookies of this browser, as `fetch` names it. Without them a refusal stays in the
 * page: a browser that may send credentials opens a dialog of its own when the refusal offers Basic, and the call hangs.
 */
export function cookieMode(agentName) {
  const schemes = Object.values(cards.value[agentName]?.card?.securitySchemes ?? {});
  const isBasic = (each) => /^basic$/i.test(each?.httpAuthSecurityScheme?.scheme ?? each?.scheme ?? "");
  return !session.value?.user && schemes.some(isBasic) ? "omit" : "same-origin";
}
