// The router and what all views share: requests, DOM nodes, announcements, errors.

const VIEWS = {
  play: { title: "Play", load: () => import("./play.js") },
  games: { title: "Games", load: () => import("./games.js") },
  lineages: { title: "Lineages", load: () => import("./lineages.js") },
  ladder: { title: "Ladder", load: () => import("./ladder.js") },
};

/** Requests JSON, or `isText` a file. `body`: an object that is sent as JSON. Throws Error with the server's message. */
export async function api(path, { method = "GET", body, isText = false } = {}) {
  const request = { method, headers: { Accept: "application/json" } };
  if (method !== "GET") {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body ?? {});
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new Error("The server does not answer. Start it again with `zero web`, then reload this page.");
  }
  if (isText && response.ok) return response.text();
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(answer?.error ?? `${path}: status ${response.status}`);
  return answer;
}

/**
 * Makes a DOM node. Children are nodes or strings; strings become text nodes, so nothing from a record is HTML.
 * Attributes: `onclick` and other functions become listeners, true is an empty attribute, null and false are left out.
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** The parts of a text; what stands between backticks is a command or a name. */
export function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));
}

/** A warning above a page. */
export function warning(text) {
  return el("p", { class: "error" }, withCode(text));
}

/** Makes an SVG node; null leaves an attribute out. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Links to Prefect and MLflow, as far as `addresses` has them. */
export function serverLinks(addresses) {
  const titles = { prefect: "Prefect", mlflow: "MLflow" };
  const names = Object.keys(titles).filter((name) => /^https?:/.test(addresses[name] ?? ""));
  return names.map((name) => el("a", { href: addresses[name], target: "_blank", rel: "noopener" }, `${titles[name]} ↗`));
}

/** Lets screen readers say a text. */
export function announce(text) {
  document.getElementById("announcements").textContent = text;
}

/** Shows an error at the top of a view, in place of an earlier one; null removes it. */
export function showError(root, error) {
  root.querySelector(":scope > [role=alert]")?.remove();
  if (error !== null) root.prepend(el("p", { class: "error", role: "alert" }, error?.message ?? String(error)));
}

/** A part of an address without its escapes; an incomplete escape is left as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

let leave = null; // cleans up the view that is shown
let navigation = 0;

async function showRoute() {
  const current = ++navigation;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const name = Object.hasOwn(VIEWS, parts[0] ?? "") ? parts[0] : "play";
  leave?.();
  leave = null;
  for (const link of document.querySelectorAll("header nav a[href^='#']")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[name].title} · zero`;
  const root = el("div", { class: "view", "data-view": name });
  document.getElementById("main").replaceChildren(root);
  try {
    const view = await VIEWS[name].load();
    const cleanUp = await view.show(root, { path: parts.slice(1), query: new URLSearchParams(query) });
    if (current === navigation) leave = cleanUp ?? null;
    else cleanUp?.();
  } catch (error) {
    if (current === navigation) showError(root, new Error(`The view “${VIEWS[name].title}” cannot be shown: ${error.message}`));
  }
}

async function showServers() {
  const found = await api("/api/servers").catch(() => ({}));
  document.getElementById("servers").replaceChildren(...serverLinks(found));
}

if (document.getElementById("main")) {
  window.addEventListener("hashchange", showRoute);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is the route
    document.getElementById("main").focus();
  });
  showServers();
  showRoute();
}
