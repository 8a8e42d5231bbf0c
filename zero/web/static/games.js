// The recorded games: a list with filters, and the replay of one game (replay.js).

import { announce, api, el, showError } from "./app.js";

const PAGE = 200; // rows of a page of the list; the server's default
const INDEXING_MS = 1000;
const NO_INDEX = { pending: 0, notes: [] };

/** Shows the list, or the replay of the game in the path. */
export async function show(root, { path, query }) {
  if (path.length) return (await import("./replay.js")).showReplay(root, path, query);
  const choices = await api("/api/games/filters");
  const list = new GameList(root, choices, query);
  await list.reload();
  return () => list.close();
}

/** Result as in SGF, such as "B+3.5". */
function scoreText({ result, margin, end }) {
  if (result === "D") return "draw";
  return `${result}+${{ resignation: "R", forfeit: "F" }[end] ?? (margin ? Math.abs(margin) : "")}`.replace(/\+$/, "");
}

/** A number with a noun, such as "1 game". */
function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function gameHref({ kind, lineage, generation, game }) {
  return `#/games/${kind}/${lineage}/${generation}/${game}`;
}

function listHref(query) {
  const text = query.toString();
  return text ? `#/games?${text}` : "#/games";
}

/** Short name of a network: the generation that trained it, or the start of its digest. */
export function networkName(name, sha256) {
  return name ?? sha256.slice(0, 12);
}

/** Where a game is from: a generation, or the players of a match. */
export function sourceName({ kind, lineage, generation, ...row }) {
  if (kind !== "match") return `${lineage}, generation ${generation}`;
  return `${networkName(row.black_name, row.black)} against ${networkName(row.white_name, row.white)}`;
}

const COLUMNS = [
  { title: "game", short: "no.", cell: link },
  { title: "lineage", cell: (row) => (row.kind === "match" ? "–" : row.lineage) },
  { title: "generation", short: "gen.", className: "num", cell: (row) => (row.kind === "match" ? "–" : String(row.generation)) },
  { title: "kind", cell: (row) => row.kind },
  { title: "result", cell: scoreText },
  { title: "moves", className: "num", cell: (row) => String(row.moves) },
  { title: "end", className: "wide", cell: (row) => row.end },
  { title: "Black", className: "wide", cell: (row) => networkName(row.black_name, row.black) },
  { title: "White", className: "wide", cell: (row) => networkName(row.white_name, row.white) },
  { title: "notes", className: "notes wide", cell: notes },
];

function link(row) {
  const name = `Game ${row.game}: ${row.kind} of ${sourceName(row)}`;
  return el("a", { href: gameHref(row), "aria-label": name }, `#${row.game}`);
}

function rowOf(game) {
  const cells = COLUMNS.map(({ className, cell }) => el("td", { class: className }, cell(game)));
  return el("tr", { class: game.wrong_resignation ? "wrong" : null }, cells);
}

function notes(row) {
  if (row.wrong_resignation) return "wrong resignation";
  return row.never_resigns && row.kind === "selfplay" ? "calibration" : "";
}

/** Sets a list to a value; one that is not offered, as of an address, is added. */
function choose(list, value) {
  list.value = value;
  if (list.value === value) return;
  list.append(el("option", { value }, value));
  list.value = value;
}

class GameList {
  constructor(root, choices, query) {
    this.root = root;
    this.query = new URLSearchParams(query);
    this.address = location.hash;
    this.version = 0; // answers to older requests are ignored
    this.isComplete = !choices.pending; // false if the filters may lack values of games that were not read yet
    this.form = this.makeForm(choices);
    this.count = el("p", { class: "muted", "data-count": "" });
    this.missing = el("details", { class: "card", hidden: true });
    this.rows = el("tbody");
    this.pages = el("nav", { class: "toolbar", "aria-label": "Pages of the list" });
    const headings = COLUMNS.map(({ title, short, className }) =>
      el("th", { scope: "col", class: className }, short ? el("abbr", { title }, short) : title),
    );
    const isWide = matchMedia("(min-width: 40rem)").matches;
    root.append(
      el("h1", {}, "Games"),
      el("details", { class: "card", open: isWide || query.size > 0 }, el("summary", {}, "Filters"), this.form),
      this.count,
      this.missing,
      this.pages, // above the list, which has a link in each row
      el("div", { class: "card scroll" },
        el("table", { class: "data games", "aria-label": "Recorded games" }, el("thead", {}, el("tr", {}, headings)), this.rows),
      ),
    );
    this.rows.addEventListener("click", (event) => this.clicked(event));
  }

  close() {
    this.version++;
    clearTimeout(this.polling);
  }

  makeForm({ lineages, matches, kinds, ends }) {
    const select = (name, title, options) => {
      const list = el("select", { name }, [["", "any"], ...options].map(([value, text]) => el("option", { value }, text)));
      choose(list, this.query.get(name) ?? "");
      return el("label", {}, `${title} `, list);
    };
    const number = (name, title) => {
      const value = this.query.get(name) ?? "";
      return el("label", {}, `${title} `, el("input", { type: "number", name, min: "0", max: "999999999", value }));
    };
    const check = (name, title) =>
      el("label", {}, el("input", { type: "checkbox", name, value: "1", checked: this.query.get(name) === "1" }), title);
    const named = lineages.map(({ lineage, num_games: games }) => [lineage, `${lineage} (${games})`]);
    named.push(...matches.map(({ match, black, white, num_games: games }) => [match, `${black} against ${white} (${games})`]));
    const form = el(
      "form",
      { class: "toolbar games-filter", "aria-label": "Filters" },
      select("lineage", "Lineage or match", named),
      number("generation", "Generation"),
      select("kind", "Kind", kinds.map((each) => [each, each])),
      select("result", "Result", [["B", "Black won"], ["W", "White won"], ["D", "draw"]]),
      select("end", "End", ends.map((each) => [each, each])),
      number("min_moves", "Moves from"),
      number("max_moves", "to"),
      check("wrong_resignation", "wrong resignations"),
      el("button", { type: "button", onclick: () => this.clear() }, "Clear"),
    );
    form.addEventListener("change", () => this.set(Object.fromEntries(this.values())));
    form.addEventListener("submit", (event) => event.preventDefault());
    return form;
  }

  /** The fields of the form, with empty text for those that are not set. */
  values() {
    return [...this.form.elements].filter((each) => each.name).map((each) => [
      each.name,
      each.type === "checkbox" ? (each.checked ? "1" : "") : each.value,
    ]);
  }

  clear() {
    this.query = new URLSearchParams();
    this.set(Object.fromEntries(this.values().map(([name]) => [name, ""])));
  }

  /** Changes filters, in the address too, and shows the first page. */
  set(changes) {
    // A link was followed: the browser reports a change of the focused field when its view is removed.
    if (location.hash !== this.address) return;
    const known = new Set(this.values().map(([name]) => name));
    for (const name of [...this.query.keys()]) if (!known.has(name)) this.query.delete(name); // of older addresses too
    for (const [name, value] of Object.entries(changes)) {
      if (value) this.query.set(name, value);
      else this.query.delete(name);
      const field = this.form.elements[name];
      if (field?.type === "checkbox") field.checked = Boolean(value);
      else if (field?.tagName === "SELECT") choose(field, value);
      else if (field) field.value = value;
    }
    history.replaceState(null, "", listHref(this.query));
    this.address = location.hash;
    this.reload();
  }

  /** Requests the page of the list and shows it. */
  async reload() {
    const version = ++this.version;
    clearTimeout(this.polling);
    showError(this.root, null);
    const query = new URLSearchParams(this.query);
    query.set("limit", PAGE);
    try {
      const found = await api(`/api/games?${query}`);
      if (version !== this.version) return;
      this.show(found);
      if (found.index.pending) this.isComplete = false;
      else if (!this.isComplete) this.offer();
    } catch (error) {
      if (version !== this.version) return;
      this.show({ total: 0, games: [], index: NO_INDEX });
      showError(this.root, error);
    }
    announce(this.count.textContent);
  }

  /** Requests the values to filter by again, once the index is complete. */
  async offer() {
    const choices = await api("/api/games/filters").catch(() => null); // after an error the next answer tries again
    if (!choices) return;
    this.isComplete = !choices.pending;
    const made = this.makeForm(choices);
    for (const list of this.form.querySelectorAll("select")) {
      list.replaceChildren(...made.elements[list.name].children); // the other fields may have text that is not sent yet
      choose(list, this.query.get(list.name) ?? "");
    }
  }

  show({ total, games, index }) {
    const reading = index.pending ? `; ${counted(index.pending, "generation")} still to read …` : "";
    this.count.textContent = counted(total, "game") + reading;
    this.missing.hidden = !index.notes.length;
    this.missing.replaceChildren(
      el("summary", {}, `Problems with recorded games: ${index.notes.length}`),
      el("ul", {}, index.notes.map((note) => el("li", {}, note))),
    );
    // While games are read the list is shown again and again: the focus stays on its game.
    const focused = this.rows.contains(document.activeElement) && document.activeElement.getAttribute("href");
    this.rows.replaceChildren(...games.map(rowOf));
    if (focused) [...this.rows.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
    const offset = Number(this.query.get("offset"));
    const page = (first, text) => {
      const query = new URLSearchParams(this.query);
      query.set("offset", Math.max(0, first));
      return el("a", { class: "button", href: listHref(query) }, text);
    };
    const number = (value) => value.toLocaleString("en");
    this.pages.hidden = total === games.length;
    this.pages.replaceChildren(
      offset > 0 ? page(offset - PAGE, "← games before") : "",
      games.length ? `${number(offset + 1)} to ${number(offset + games.length)} of ${number(total)}` : "",
      offset + PAGE < total ? page(offset + PAGE, "games after →") : "",
    );
    if (index.pending) this.polling = setTimeout(() => this.reload(), INDEXING_MS);
  }

  /** A click anywhere in a row opens its game; text can still be selected. */
  clicked(event) {
    if (event.target.closest("a") || String(getSelection())) return;
    event.target.closest("tr").querySelector("a").click();
  }
}
