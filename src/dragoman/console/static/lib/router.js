// Deep links: everything that can be seen has an address behind the `#`, because the paths of the server are A2A's.
import { signal } from "./preact.js";

/** The current route: `path`, the decoded segments behind `#/`, and `query`, an object of strings. */
export const route = signal(parse(location.hash));

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // typed by hand
  }
}

/** The address of a route. Query values that are empty, null or undefined are left out. */
export function href(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(kept).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** Go to a route. With `replace`, the back button does not return to the current one. */
export function navigate(path, query = {}, { replace = false } = {}) {
  const address = href(path, query);
  if (replace) {
    history.replaceState(null, "", address);
    route.value = parse(address);
  } else if (location.hash === address) {
    route.value = parse(address);
  } else {
    location.hash = address;
  }
}

/** Change some values of the query of the current route, in place. */
export function setQuery(changes) {
  const { path, query } = route.value;
  navigate(path, { ...query, ...changes }, { replace: true });
}

addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});
