// The recorded games: a list with filters, and the replay of one game (replay.js).

import { announce, api, el, showError } from "./app.js";

const PAGE = 200; // games in one request
const ROW_HEIGHT = 36; // pixels; style.css has the same
const OVERSCAN = 12; // rows above and below the visible ones
const SETTLE_MS = 60; // waits this long before it requests pages, so that a fast scroll requests only the last ones
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
export function scoreText({ result, margin, end }) {
  if (result === "D") return "draw";
  return `${result}+${{ resignation: "R", forfeit: "F" }[end] ?? (margin ? Math.abs(margin) : "")}`.replace(/\+$/, "");
}

/** A number with a noun, such as "1 game". */
export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function gameHref({ kind, lineage, generation, game }) {
  return `#/games/${kind}/${lineage}/${generation}/${game}`;
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
  { title: "game", short: "no.", className: "g-game", cell: (row) => link(row) },
  { title: "lineage", className: "g-lineage", cell: (row) => (row.kind === "match" ? "–" : row.lineage) },
  { title: "generation", short: "gen.", className: "num g-generation", cell: (row) => (row.kind === "match" ? "–" : String(row.generation)) },
  { title: "kind", className: "g-kind", cell: (row) => row.kind },
  { title: "result", className: "g-result", cell: (row) => scoreText(row) },
  { title: "moves", className: "num g-moves", cell: (row) => String(row.moves) },
  { title: "end", className: "g-end wide", cell: (row) => row.end },
  { title: "Black", className: "g-player wide", cell: (row) => networkName(row.black_name, row.black) },
  { title: "White", className: "g-player wide", cell: (row) => networkName(row.white_name, row.white) },
  { title: "notes", className: "g-notes wide", cell: (row) => notes(row) },
];

function link(row) {
  const name = `Game ${row.game}: ${row.kind} of ${sourceName(row)}`;
  return el("a", { href: gameHref(row), "aria-label": name, tabindex: "-1" }, `#${row.game}`);
}

function notes(row) {
  const found = [];
  if (row.wrong_resignation) found.push("wrong resignation");
  else if (row.never_resigns && row.kind === "selfplay") found.push("calibration");
  return found.join(", ");
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
    this.total = 0;
    this.active = 0; // row that the keyboard is on
    this.pages = new Map(); // games by page; null while a page is requested
    this.version = 0; // answers to older filters are ignored
    this.isComplete = !choices.pending; // false if the filters may lack values of games that were not read yet
    this.form = this.makeForm(choices);
    this.count = el("p", { class: "muted", "data-count": "" });
    this.missing = el("details", { class: "card", hidden: true });
    this.before = el("tr");
    this.rows = el("tbody");
    this.after = el("tr");
    const columns = COLUMNS.map(({ className }) => el("col", { class: className }));
    const headings = COLUMNS.map(({ title, short, className }) =>
      el("th", { scope: "col", class: className }, short ? el("abbr", { title }, short) : title),
    );
    this.table = el(
      "table",
      { class: "data games", "aria-label": "Recorded games", "aria-describedby": "games-help" },
      el("colgroup", {}, columns),
      el("thead", {}, el("tr", { "aria-rowindex": "1" }, headings)),
      el("tbody", { "aria-hidden": "true" }, this.before),
      this.rows,
      el("tbody", { "aria-hidden": "true" }, this.after),
    );
    this.view = el("div", { class: "card games-scroll" }, this.table);
    const help = "Up, down, Page Up, Page Down, Home and End move through the list; Enter opens a game.";
    const isWide = matchMedia("(min-width: 40rem)").matches;
    root.append(
      el("h1", {}, "Games"),
      el("details", { class: "card", open: isWide || query.size > 0 }, el("summary", {}, "Filters"), this.form),
      this.count,
      this.missing,
      this.view,
      el("p", { class: "muted", id: "games-help" }, help),
    );
    this.view.addEventListener("scroll", () => this.render(), { passive: true });
    this.rows.addEventListener("keydown", (event) => this.key(event));
    this.rows.addEventListener("focusin", (event) => this.focused(event.target));
    this.rows.addEventListener("click", (event) => this.clicked(event));
    this.resized = new ResizeObserver(() => this.render());
    this.resized.observe(this.view);
  }

  close() {
    this.version++;
    this.resized.disconnect();
    clearTimeout(this.settling);
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

  /** Changes filters, in the address too, and shows the list from its start. */
  set(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (value) this.query.set(name, value);
      else this.query.delete(name);
      const field = this.form.elements[name];
      if (field?.type === "checkbox") field.checked = Boolean(value);
      else if (field?.tagName === "SELECT") choose(field, value);
      else if (field) field.value = value;
    }
    const text = this.query.toString();
    history.replaceState(null, "", text ? `#/games?${text}` : "#/games");
    this.active = 0;
    this.view.scrollTop = 0;
    this.reload();
  }

  /** Requests the visible pages again. */
  async reload() {
    this.version++;
    this.pages.clear();
    this.root.querySelector(":scope > .error")?.remove();
    await this.request([this.pageOf(this.range()[0])]);
    announce(this.count.textContent);
  }

  async request(numbers) {
    const version = this.version;
    numbers.forEach((page) => this.pages.set(page, null));
    try {
      await Promise.all(
        numbers.map(async (page) => {
          const query = new URLSearchParams(this.query);
          query.set("offset", page * PAGE);
          query.set("limit", PAGE);
          const found = await api(`/api/games?${query}`);
          if (version !== this.version) return;
          this.pages.set(page, found.games);
          this.show(found);
          if (found.index.pending) this.isComplete = false;
          else if (!this.isComplete) this.offer();
        }),
      );
    } catch (error) {
      if (version !== this.version) return;
      numbers.forEach((page) => this.pages.delete(page));
      this.total = 0;
      this.show({ total: 0, index: NO_INDEX });
      showError(this.root, error);
    }
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

  show({ total, index }) {
    this.total = total;
    this.table.setAttribute("aria-rowcount", String(total + 1));
    const reading = index.pending ? `; ${counted(index.pending, "generation")} still to read …` : "";
    this.count.textContent = counted(total, "game") + reading;
    this.missing.hidden = !index.notes.length;
    this.missing.replaceChildren(
      el("summary", {}, `Problems with recorded games: ${index.notes.length}`),
      el("ul", {}, index.notes.map((note) => el("li", {}, note))),
    );
    clearTimeout(this.polling);
    if (index.pending) this.polling = setTimeout(() => this.reload(), INDEXING_MS);
    this.render();
  }

  pageOf(row) {
    return Math.floor(row / PAGE);
  }

  /** First row and end of the rows to draw. */
  range() {
    const first = Math.floor(this.view.scrollTop / ROW_HEIGHT);
    const shown = Math.ceil((this.view.clientHeight || 600) / ROW_HEIGHT);
    return [Math.max(0, Math.min(first, this.total - shown) - OVERSCAN), Math.min(this.total, first + shown + OVERSCAN)];
  }

  render() {
    const [first, end] = this.range();
    const focused = this.rows.contains(document.activeElement) && document.activeElement;
    const drawn = [];
    for (let row = first; row < end; row++) drawn.push(this.row(row, this.pages.get(this.pageOf(row))?.[row % PAGE]));
    this.rows.replaceChildren(...drawn);
    this.before.style.height = `${first * ROW_HEIGHT}px`;
    this.after.style.height = `${(this.total - end) * ROW_HEIGHT}px`;
    // The link of one row is in the order of the Tab key: the active one, or the first if that is out of view.
    const links = [...this.rows.querySelectorAll("td.g-game a")];
    const current = links.find((each) => this.rowOf(each) === this.active) ?? links[0];
    current?.setAttribute("tabindex", "0");
    if (focused) current?.focus({ preventScroll: true });
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      const wanted = new Set([this.pageOf(first), this.pageOf(Math.max(first, end - 1))]);
      const missing = [...wanted].filter((page) => !this.pages.has(page));
      if (missing.length && this.total) this.request(missing);
    }, SETTLE_MS);
  }

  row(number, game) {
    // A game that is not here yet has a link too, so that the keyboard can stay on it.
    const waiting = ({ className }) =>
      className === "g-game" ? el("a", { role: "link", "aria-disabled": "true", tabindex: "-1" }, "…") : "…";
    const cells = COLUMNS.map((column) => {
      const content = game ? column.cell(game) : waiting(column);
      return el("td", { class: column.className, title: typeof content === "string" ? content : null }, content);
    });
    return el("tr", { "aria-rowindex": String(number + 2), class: game?.wrong_resignation ? "wrong" : null }, cells);
  }

  rowOf(node) {
    return Number(node.closest("tr").getAttribute("aria-rowindex")) - 2;
  }

  focused(target) {
    if (target.closest("td.g-game a")) this.active = this.rowOf(target);
  }

  /** A click anywhere in a row opens its game; text can still be selected. */
  clicked(event) {
    if (event.target.closest("a, button") || String(getSelection())) return;
    event.target.closest("tr")?.querySelector("td.g-game a")?.click();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.view.clientHeight / ROW_HEIGHT) - 2);
    const targets = {
      ArrowDown: this.active + 1,
      ArrowUp: this.active - 1,
      PageDown: this.active + page,
      PageUp: this.active - page,
      Home: 0,
      End: this.total - 1,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.active = Math.min(this.total - 1, Math.max(0, targets[event.key]));
    const top = this.active * ROW_HEIGHT;
    const visible = this.view.clientHeight - 2 * ROW_HEIGHT; // without the heading
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    else if (top > this.view.scrollTop + visible) this.view.scrollTop = top - visible;
    this.render();
  }
}
