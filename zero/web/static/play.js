// Play: the form for a new game, and the page of a game, which follows the events of the server.

import { announce, api, el, showError, svg } from "./app.js";
import { Board } from "./board.js";

const COLOURS = { 1: "black", [-1]: "white" };
const NAMES = { 1: "Black", [-1]: "White" };
const DISCS = { 1: "●", [-1]: "○" };
const HUMAN = "human";
const MOST_SIMULATIONS = 20000; // the server allows as many
const SHOWN_MOVES = 6; // of a variation in the table; the board shows all
const RETRY_MS = 2000; // until the page connects again
const TICK_MS = 100; // between two updates of the clock
const LOW_SECONDS = 10; // a clock with less time is marked, and shows tenths of a second
const percent = (fraction) => `${Math.round(100 * fraction)} %`;

export async function show(root, route) {
  if (!route.path.length) return showForm(root, await recordedPosition(route.query));
  try {
    return await showGame(root, route.path[0]);
  } catch (error) {
    await showForm(root);
    showError(root, error);
  }
}

// ---- a new game

/** The position of a recorded game that the address names: `?game=selfplay/go9/3/12&move=30`; null without one. */
async function recordedPosition(query) {
  if (!query.has("game")) return null;
  const [game, move] = [query.get("game"), query.get("move") ?? ""];
  const path = `/api/games/${game.split("/").map(encodeURIComponent).join("/")}`;
  const [{ params }, sgf] = await Promise.all([api(path), api(`${path}/sgf?move=${encodeURIComponent(move)}`, { isText: true })]);
  return { game, move, params, sgf };
}

async function showForm(root, position = null) {
  const [{ boards, errors }, { games }] = await Promise.all([api("/api/players"), api("/api/sessions")]);
  root.append(el("h1", {}, "Play"));
  for (const text of errors) root.append(el("p", { class: "error" }, text));
  if (games.length) root.append(openGames(root, games));
  root.append(el("section", { class: "card new-game" }, el("h2", {}, "New game"), form(root, boards, position)));
}

function openGames(root, games) {
  const list = el("ul", { class: "plain" });
  const section = el("section", { class: "card" }, el("h2", {}, "Open games"), list);
  const card = ({ id, game, players, moves, over }) => {
    const name = `${game.title}: ${players.black.title} – ${players.white.title}`;
    const close = async (event) => {
      event.target.disabled = true;
      try {
        await api(`/api/sessions/${id}/close`, { method: "POST" });
      } catch (error) {
        showError(root, error);
        event.target.disabled = false;
        return;
      }
      announce(`Closed ${name}.`);
      item.remove();
      section.hidden = !list.children.length;
    };
    const item = el(
      "li",
      { class: "toolbar" },
      el("a", { href: `#/play/${id}` }, name),
      el("span", { class: "muted" }, `${moves.length} moves${over ? ", over" : ""}`),
      el("button", { type: "button", "aria-label": `Close ${name}`, onclick: close }, "Close"),
    );
    return item;
  };
  list.append(...games.map(card));
  return section;
}

function field(text, input, ...others) {
  input.id = `field-${input.name}`;
  return el("div", { class: "field" }, el("label", { for: input.id }, text), others.length ? el("div", { class: "pair" }, input, others) : input);
}

function playerOptions(players, first) {
  const groups = new Map();
  for (const player of players) groups.set(player.group, [...(groups.get(player.group) ?? []), player]);
  const option = ({ spec, title }) => el("option", { value: spec }, title);
  return [
    el("option", { value: first[0] }, first[1]),
    ...[...groups].map(([group, members]) => el("optgroup", { label: group }, members.map(option))),
  ];
}

/** The board of a game. One that is not offered, as of a recorded game, has the players that need no network. */
function boardOf(boards, game) {
  const found = boards.find((each) => isSameBoard(each.game, game));
  if (found) return found;
  const players = boards.find((each) => each.game.name === game.name)?.players ?? [];
  const title = `${game.name[0].toUpperCase()}${game.name.slice(1)} ${game.size}×${game.size}`;
  return { id: "recorded", title, game, players: players.filter((player) => !player.has_network) };
}

function form(root, boards, position) {
  const first = position ? boardOf(boards, position.params) : boards[0];
  if (!boards.includes(first)) boards = [...boards, first];
  const board = el("select", { name: "board" }, boards.map(({ id, title }) => el("option", { value: id }, title)));
  const [black, white, analysis] = ["black", "white", "analysis"].map((name) => el("select", { name }));
  const komi = el("input", { name: "komi", type: "number", step: 0.5, min: -400, max: 400 });
  const komiField = field("Komi", komi);
  const limit = el("select", { name: "limit", "aria-label": "Unit" }, el("option", { value: "simulations" }, "simulations"), el("option", { value: "seconds" }, "seconds"));
  const amount = el("input", { name: "amount", type: "number", min: 0, max: MOST_SIMULATIONS, step: "any", value: 400, required: true });
  const minutes = el("input", { name: "minutes", type: "number", min: 0.1, max: 1440, step: "any", placeholder: "no clock" });
  const increment = el("input", { name: "increment", type: "number", min: 0, max: 3600, step: "any", value: 10 });
  const start = el("button", { class: "primary", type: "submit" }, "Start");
  const chosen = () => boards.find(({ id }) => id === board.value);
  const networkOf = (spec) => chosen().players.find((player) => player.spec === spec && player.has_network);

  function fill() {
    const { players, game } = chosen();
    black.replaceChildren(...playerOptions(players, [HUMAN, "Human"]));
    white.replaceChildren(...playerOptions(players, [HUMAN, "Human"]));
    analysis.replaceChildren(...playerOptions(players.filter((player) => player.has_network), ["", "No analysis"]));
    white.value = players[0]?.spec ?? HUMAN;
    komiField.hidden = game.komi === undefined || position !== null;
    komi.value = players[0]?.komi ?? game.komi ?? "";
  }

  const isTimed = () => limit.value === "seconds";

  function withSimulations(spec) {
    return networkOf(spec) ? `${spec},simulations=${isTimed() ? MOST_SIMULATIONS : Math.round(amount.value)}` : spec;
  }

  async function submit(event) {
    event.preventDefault();
    const game = { ...chosen().game };
    if (game.komi !== undefined && komi.value !== "") game.komi = Number(komi.value);
    const seconds = isTimed() ? Number(amount.value) : null;
    start.disabled = true;
    start.textContent = "Starting …";
    try {
      const made = await api("/api/sessions", {
        method: "POST",
        body: {
          game,
          seconds,
          black: withSimulations(black.value),
          white: withSimulations(white.value),
          analysis: (isTimed() ? analysis.value : withSimulations(analysis.value)) || null, // it has no time limit
          clock: minutes.value ? { main_seconds: 60 * minutes.value, increment_seconds: Number(increment.value) } : null,
          sgf: position?.sgf ?? null,
        },
      });
      if (root.isConnected) location.hash = `#/play/${made.id}`; // else another view was opened meanwhile
    } catch (error) {
      showError(root, error);
      start.disabled = false;
      start.textContent = "Start";
    }
  }

  function swap() {
    [black.value, white.value] = [white.value, black.value];
  }

  board.addEventListener("change", fill);
  limit.addEventListener("change", () => (amount.value = isTimed() ? 5 : 400));
  board.value = first.id;
  fill();
  return el(
    "form",
    { onsubmit: submit },
    position && el("p", {}, `The game begins after move ${position.move} of the recorded game ${position.game}, with its komi.`),
    el("div", { class: "row" }, field("Game", board), komiField),
    el("div", { class: "row seats" }, field("● Black", black), el("button", { type: "button", onclick: swap }, "⇄ Swap"), field("○ White", white)),
    el("div", { class: "row" }, field("A network’s move takes", amount, limit), field("Analysis while you think", analysis)),
    el("div", { class: "row" }, field("Clock: minutes of each player", minutes), field("Seconds added after each move", increment)),
    start,
  );
}

// ---- a game

async function showGame(root, id) {
  const page = new GamePage(root, id, await api(`/api/sessions/${encodeURIComponent(id)}`), (await api("/api/players")).boards);
  return () => page.leave();
}

class GamePage {
  constructor(root, id, { state, analysis }, boards) {
    this.root = root;
    this.path = `/api/sessions/${encodeURIComponent(id)}`;
    this.players = boardOf(boards, state.game).players;
    this.analysis = analysis;
    this.overlay = "visits";
    this.review = null; // a past position that is shown
    this.wanted = null; // the past position that is shown or was requested; null: the newest
    this.line = null; // variation that is shown on the board
    this.build(state);
    this.update(state);
    this.onKey = (event) => this.key(event);
    this.onVisibility = () => (document.hidden ? this.disconnect() : this.connect());
    document.addEventListener("keydown", this.onKey);
    document.addEventListener("visibilitychange", this.onVisibility);
    this.connect();
  }

  leave() {
    document.removeEventListener("keydown", this.onKey);
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.disconnect();
    clearInterval(this.ticking);
    clearTimeout(this.retry);
  }

  // Hidden pages disconnect: a browser opens six connections to a server at most, for all tabs together.
  connect() {
    if (this.source || this.isClosed || document.hidden) return;
    const source = (this.source = new EventSource(`${this.path}/events`));
    source.addEventListener("open", () => (this.parts.connection.hidden = true));
    source.addEventListener("state", (event) => this.update(JSON.parse(event.data)));
    source.addEventListener("analysis", (event) => this.showAnalysis(JSON.parse(event.data)));
    source.addEventListener("hint", (event) => this.showHint(JSON.parse(event.data)));
    source.addEventListener("closed", (event) => this.closed(`This game was closed: ${JSON.parse(event.data).reason}.`));
    source.addEventListener("error", async () => {
      this.parts.connection.hidden = false;
      if (source.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
      const error = await api(this.path).then(() => null, (caught) => caught);
      if (error) return this.closed(error.message);
      if (source !== this.source) return;
      this.disconnect(); // a proxy or a busy server has answered in place of the stream
      this.retry = setTimeout(() => this.connect(), RETRY_MS);
    });
  }

  disconnect() {
    this.source?.close();
    this.source = null;
  }

  closed(text) {
    this.isClosed = true;
    this.disconnect();
    clearInterval(this.ticking);
    this.parts.connection.hidden = true;
    this.parts.fault.replaceChildren();
    this.parts.message.replaceChildren(el("p", { class: "error", role: "alert" }, text, " ", el("a", { href: "#/play" }, "New game")));
    for (const button of this.root.querySelectorAll("button, select, input")) button.disabled = true;
    this.board.draw({ ...this.shown, legal: null });
  }

  /** Sends a command; false if it was refused, which is shown. */
  async command(name, body = {}) {
    this.parts.message.replaceChildren();
    try {
      await api(`${this.path}/${name}`, { method: "POST", body });
      return true;
    } catch (error) {
      this.parts.message.replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
      return false;
    }
  }

  async analyse(spec) {
    const isDone = await this.command("analyse", { player: spec ? this.withLimit(spec) : null });
    if (!isDone) this.showAnalyst();
  }

  showAnalyst() {
    this.parts.analyst.value = this.state.players.analysis?.spec.split(",")[0] ?? "";
  }

  /** A player of a list; a network gets the simulations that the networks of this game have. */
  withLimit(spec) {
    const limit = this.limit ?? (this.state.seconds === null ? "" : `,simulations=${MOST_SIMULATIONS}`);
    return this.players.some((player) => player.spec === spec && player.has_network) ? spec + limit : spec;
  }

  build(state) {
    const { game } = state;
    const button = (text, onclick, attributes = {}) => el("button", { type: "button", onclick, ...attributes }, text);
    const hasPass = game.pass_action !== null;
    const parts = (this.parts = {
      status: el("p", { class: "status" }),
      fault: el("div"), // of an engine
      message: el("div"), // answer to a command
      connection: el("p", { class: "muted", hidden: true, role: "status" }, "The server does not answer; trying again …"),
      seats: el("div", { class: "seat-list" }),
      chance: el("div", { class: "chance", role: "meter", "aria-label": "Black’s chance to win", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 50 }, el("div", { class: "black-share" }), el("span", {})),
      graph: el("div", { class: "graph" }),
      pass: button("Pass", () => this.play(game.pass_action), { hidden: !hasPass, "aria-keyshortcuts": "p" }),
      undo: button("Undo", () => this.command("undo"), { "aria-keyshortcuts": "u" }),
      hint: button("Hint", () => this.command("hint"), { "aria-keyshortcuts": "h" }),
      stop: button("Stop thinking", () => this.command("stop", { version: this.state.version })),
      resume: button("Continue", () => this.command("resume"), { class: "primary" }),
      score: button("Score", () => this.score(), { hidden: state.score === undefined }),
      resign: button("Resign", () => this.command("resign")),
      analyst: el("select", { onchange: (event) => this.analyse(event.target.value) }),
      overlays: el("div", { class: "toolbar", role: "group", "aria-label": "Shown on the board" }),
      best: el("div", { class: "scroll" }),
      slider: el("input", { type: "range", min: 0, oninput: (event) => this.look(Number(event.target.value)), "aria-label": "Position of the game" }),
      moves: el("ol", { class: "moves" }),
      source: el("dl", { class: "source" }),
    });
    for (const [name, text] of [["visits", "Visits"], ["prior", "Prior"], ["ownership", "Ownership"], ["", "Nothing"]]) {
      parts.overlays.append(button(text, () => this.setOverlay(name), { "data-overlay": name, hidden: name === "ownership" }));
    }
    const file = el("input", { type: "file", accept: ".sgf", class: "sr-only", onchange: (event) => this.load(event.target) });
    const boardBox = el("div", { class: "board-box" });
    this.board = new Board(boardBox, { game: game.name, rows: game.rows, columns: game.columns }, { onPlay: (action) => this.play(action), name: `Board of ${game.title}` });
    parts.analyst.append(...playerOptions(this.players.filter((player) => player.has_network), ["", "No analysis"]));
    const steps = [["«", "first", () => 0], ["‹", "previous", (at) => at - 1], ["›", "next", (at) => at + 1], ["»", "last", () => Infinity]];
    this.root.append(
      el("h1", {}, game.title),
      el(
        "div",
        { class: "game" },
        boardBox,
        el(
          "div",
          { class: "side" },
          el("section", { class: "card", "aria-label": "Game" }, parts.seats, parts.status, parts.fault, parts.message, parts.connection, parts.chance, parts.graph,
            el("div", { class: "toolbar" }, parts.pass, parts.undo, parts.hint, parts.stop, parts.resume, parts.score, parts.resign),
            el("p", { class: "muted keys" }, "Keys: arrows and ", el("kbd", {}, "Enter"), " play, ", hasPass ? [el("kbd", {}, "p"), " passes, "] : null, el("kbd", {}, "u"), " takes back, ", el("kbd", {}, "h"), " asks for a hint.")),
          el("section", { class: "card", "aria-labelledby": "analysis-title", hidden: !this.players.some((player) => player.has_network) }, el("h2", { id: "analysis-title" }, "Analysis"),
            el("div", { class: "toolbar" }, el("label", {}, "Network ", parts.analyst)), parts.overlays, parts.best),
          el("section", { class: "card", "aria-labelledby": "moves-title" }, el("h2", { id: "moves-title" }, "Moves"), parts.source,
            el("div", { class: "toolbar steps" }, steps.map(([sign, name, next]) => button(sign, () => this.look(next(this.wanted?.moves ?? this.state.moves.length)), { "aria-label": `${name} position` })), parts.slider),
            parts.moves,
            el("div", { class: "toolbar" }, el("a", { class: "button", href: `${this.path}/sgf`, download: "" }, "Save SGF"), el("label", { class: "button" }, "Load SGF", file))),
        ),
      ),
    );
    this.setOverlay("visits");
    this.board.svg.focus({ preventScroll: true });
  }

  /** Shows a new state of the game. */
  update(state) {
    const before = this.state;
    this.state = state;
    const { players, moves, to_play: toPlay } = state;
    const isNew = !before || before.version !== state.version;
    this.received = performance.now();
    if (this.analysis?.version < state.first_version) this.showAnalysis(null); // of moves that were taken back
    const isPerson = players[COLOURS[toPlay]].spec === HUMAN;
    this.canPlay = !state.over && (isPerson || state.paused);
    if (isNew) {
      this.review = this.wanted = this.line = this.hint = null;
      this.showSeats();
      this.showMoves();
      const last = moves.at(-1);
      if (before && moves.length > before.moves.length) announce(`${NAMES[-toPlay]} plays ${last.name}. ${this.statusText()}`);
      else if (before) announce(this.statusText());
    }
    this.parts.status.replaceChildren(this.statusText());
    this.parts.status.classList.toggle("busy", Boolean(state.thinking) && state.thinking !== "analysis");
    const { parts } = this;
    if (before && isNew) parts.message.replaceChildren();
    if (isNew || state.error !== before.error) { // otherwise a player that was chosen in the list stays
      const fault = state.error && el("p", { class: "error", role: "alert" }, state.error, this.replacement());
      parts.fault.replaceChildren(...(fault ? [fault] : []));
    }
    parts.undo.disabled = !moves.length && !["resignation", "time"].includes(state.end);
    parts.hint.disabled = !this.canPlay || state.thinking === "hint" || Object.values(players).every(({ spec }) => spec === HUMAN);
    const isWatched = ![players.black, players.white].some(({ spec }) => spec === HUMAN);
    parts.resign.disabled = state.over || isWatched;
    parts.stop.hidden = !["move", "analysis"].includes(state.thinking) || (isWatched && state.paused);
    parts.stop.textContent = state.thinking === "analysis" ? "Stop analysis" : isWatched ? "Pause" : "Stop thinking";
    parts.resume.hidden = !state.paused;
    parts.slider.max = moves.length;
    parts.slider.value = this.wanted?.moves ?? moves.length;
    this.limit = Object.values(players).map(({ spec }) => spec.match(/,simulations=\d+/)?.[0]).find(Boolean) ?? this.limit;
    this.showAnalyst();
    this.showClock();
    this.showChance();
    this.draw();
  }

  /** Shows the time of both players: as the server told it, less what has passed since for the one whose clock runs. */
  showClock() {
    const { clock } = this.state;
    clearInterval(this.ticking);
    if (!clock) return;
    const tick = () => {
      for (const box of this.parts.seats.querySelectorAll(".clock")) {
        const colour = Number(box.dataset.colour);
        const passed = clock.running === colour ? (performance.now() - this.received) / 1000 : 0;
        const left = Math.max(0, clock[COLOURS[colour]] - passed);
        box.textContent = clockText(left);
        box.classList.toggle("low", left < LOW_SECONDS);
      }
    };
    tick();
    if (clock.running !== null && !this.isClosed) this.ticking = setInterval(tick, TICK_MS);
  }

  statusText() {
    const { state } = this;
    const name = NAMES[state.to_play];
    if (state.over) return resultText(state);
    if (state.thinking === "loading") return "Loading the player. The first time, kernels are compiled, which takes a minute or more.";
    if (state.thinking === "move") return `${name} is thinking …`;
    if (state.thinking === "hint") return "Looking for a hint …";
    if (state.paused) return `Paused. ${name} is to move; continue, or play for ${name} yourself.`;
    return `${name} to move${state.game.pass_action !== null && state.moves.at(-1)?.action === state.game.pass_action ? " after a pass" : ""}.`;
  }

  /** A choice of another player, after an engine failed. */
  replacement() {
    const colour = COLOURS[this.state.to_play];
    if (this.state.players[colour].spec === HUMAN) return null;
    const choice = el("select", { "aria-label": `Player of ${colour}` }, playerOptions(this.players, [HUMAN, "Human"]));
    const go = () => this.command("seat", { colour, player: this.withLimit(choice.value) });
    return el("span", { class: "toolbar" }, choice, el("button", { type: "button", onclick: go }, "Play on with this player"));
  }

  showSeats() {
    const { players, captures, to_play: toPlay, over, game, score, seconds, clock } = this.state;
    const seat = (colour) =>
      el(
        "div",
        { class: `seat ${!over && toPlay === colour ? "to-play" : ""}` },
        el("span", { class: `disc ${COLOURS[colour]}`, "aria-hidden": "true" }),
        el("span", { class: "sr-only" }, `${NAMES[colour]}: `),
        el("span", { class: "name" }, players[COLOURS[colour]].title),
        game.name === "go" ? el("span", { class: "muted num" }, `${captures[COLOURS[colour]]} captured`) : null,
        clock && el("span", { class: "clock num", role: "timer", "aria-label": `Time of ${NAMES[colour]}`, "data-colour": colour }),
      );
    const terms = [
      game.komi === undefined ? null : `Komi ${game.komi}.`,
      score === undefined ? null : `Score now: ${score}.`,
      seconds === null ? null : `A network’s move takes ${seconds} s at most.`,
      clock?.increment ? `A move adds ${clock.increment} s.` : null,
    ];
    this.parts.seats.replaceChildren(seat(1), seat(-1), el("p", { class: "muted" }, terms.filter(Boolean).join(" ")));
  }

  showMoves() {
    const { moves, source } = this.state;
    this.parts.moves.replaceChildren(
      ...moves.map(({ name }, index) =>
        el("li", {}, el("button", { type: "button", class: "move", onclick: () => this.look(index + 1) }, el("span", { class: "muted" }, `${index + 1} ${DISCS[index % 2 ? -1 : 1]} `), name)),
      ),
    );
    this.parts.moves.scrollTop = this.parts.moves.scrollHeight;
    this.parts.source.replaceChildren(...Object.entries(source ?? {}).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    this.parts.source.hidden = !source;
  }

  showChance() {
    const { chances, moves } = this.state;
    const isCurrent = this.analysis && this.analysis.moves <= moves.length && this.analysis.moves >= moves.length - 1;
    const known = isCurrent ? this.analysis.chance : chances.findLast((chance) => chance !== null);
    this.parts.graph.replaceChildren(...(chances.filter((chance) => chance !== null).length > 1 ? [chanceGraph(chances)] : []));
    this.parts.chance.hidden = known === undefined || known === null;
    if (this.parts.chance.hidden) return;
    this.parts.chance.setAttribute("aria-valuenow", Math.round(100 * known));
    this.parts.chance.firstChild.style.width = percent(known).replace(" ", "");
    this.parts.chance.lastChild.textContent = `Black ${percent(known)} · White ${percent(1 - known)}`;
  }

  showAnalysis(analysis) {
    if (analysis?.version < this.state.first_version) return;
    this.analysis = analysis;
    this.parts.overlays.querySelector("[data-overlay=ownership]").hidden = !analysis?.ownership;
    this.showChance();
    this.draw();
    if (!analysis) return this.parts.best.replaceChildren();
    const { moves, to_play: toPlay, simulations, by, best, done } = analysis;
    const rows = best.map((move) => {
      const line = move.line.slice(0, SHOWN_MOVES).map(({ name }) => name).join(" ");
      const show = () => this.showLine(move.line, toPlay, moves);
      const hide = () => this.showLine(null);
      const shown = el("button", { type: "button", class: "line", "data-action": move.action, onmouseenter: show, onmouseleave: hide, onfocus: show, onblur: hide, onclick: show }, line);
      return el("tr", {}, el("td", {}, shown), el("td", { class: "num" }, percent(toPlay > 0 ? move.chance : 1 - move.chance)), el("td", { class: "num" }, String(move.visits)), el("td", { class: "num" }, percent(move.prior)));
    });
    const focused = this.parts.best.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    this.parts.best.replaceChildren(
      el("p", { class: "muted" }, `${by}: move ${moves + 1}, ${NAMES[toPlay]}, ${simulations} visits${done ? "" : " …"}`),
      el("table", { class: "data" }, el("thead", {}, el("tr", {}, el("th", {}, "Expected moves"), ["Wins", "Visits", "Prior"].map((name) => el("th", { class: "num" }, name)))), el("tbody", {}, rows)),
    );
    if (focused) this.parts.best.querySelector(`[data-action="${focused}"]`)?.focus();
  }

  showHint(hint) {
    if (hint.version !== this.state.version) return;
    this.hint = hint;
    const text = hint.action < 0 ? `${hint.by} would resign.` : `Hint of ${hint.by}: ${hint.name}.`;
    this.parts.message.replaceChildren(el("p", { class: "hint" }, text));
    announce(text);
    this.draw();
  }

  showLine(line, toPlay, moves) {
    if (line && moves !== this.state.moves.length) line = null; // of an earlier position
    this.line = line?.map(({ action }, index) => ({ action, colour: index % 2 ? -toPlay : toPlay, text: String(index + 1) })) ?? null;
    this.draw();
  }

  setOverlay(name) {
    this.overlay = name;
    for (const each of this.parts.overlays.children) each.setAttribute("aria-pressed", String(each.dataset.overlay === name));
    if (this.state) this.draw();
  }

  draw() {
    const { state, analysis, hint } = this;
    const isNow = this.review === null;
    const isAnalysed = isNow && analysis && analysis.moves === state.moves.length && !state.over;
    const greatest = isAnalysed ? Math.max(...analysis.prior, 0.01) : 1;
    this.shown = {
      stones: isNow ? state.stones : this.review.stones,
      last: isNow ? (state.moves.at(-1)?.action ?? null) : this.review.last,
      legal: isNow && this.canPlay && !this.isClosed ? state.legal : null,
      toPlay: state.to_play,
      heat: isAnalysed && this.overlay === "visits" ? analysis.visits : null,
      prior: isAnalysed && this.overlay === "prior" ? analysis.prior.map((share) => share / greatest) : null,
      ownership: isAnalysed && this.overlay === "ownership" ? analysis.ownership : null,
      ghosts: isNow ? (this.line ?? (hint && hint.action >= 0 ? [{ action: hint.action, colour: state.to_play, text: "?" }] : null)) : null,
      win: isNow && state.end === "line" ? winningLine(state) : null,
    };
    this.board.draw(this.shown);
    this.parts.pass.disabled = !this.shown.legal?.includes(state.game.pass_action); // also at an earlier position
  }

  async play(action) {
    if (!this.canPlay || this.review) return;
    await this.command("play", { action, moves: this.state.moves.length });
  }

  score() {
    const { score, game } = this.state;
    const text = `Score now: ${score}.${game.name === "go" ? ` Komi ${game.komi}. All stones count as alive.` : ""}`;
    this.parts.message.replaceChildren(el("p", { class: "hint" }, text));
    announce(text);
  }

  /** Shows the position after a number of moves; the newest one can be played on. */
  async look(moves) {
    const last = this.state.moves.length;
    moves = Math.min(last, Math.max(0, moves));
    const wanted = (this.wanted = moves === last ? null : { moves });
    const found = wanted && (await api(`${this.path}/positions/${moves}`).catch(() => null));
    if (wanted !== this.wanted) return; // another one was requested meanwhile, or the game has gone on
    this.review = found;
    if (!found) this.wanted = null;
    this.parts.slider.value = found ? moves : last;
    [...this.parts.moves.children].forEach((item, index) => item.classList.toggle("shown", found !== null && index === moves - 1));
    this.draw();
  }

  async load(input) {
    const text = await input.files[0].text();
    input.value = "";
    await this.command("load", { sgf: text });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const button = { u: this.parts.undo, h: this.parts.hint, p: this.parts.pass }[event.key];
    if (!button || button.disabled || button.hidden) return;
    event.preventDefault();
    button.click();
  }
}

/** Seconds as "4:05", and the last ones as "9.3". */
function clockText(seconds) {
  if (seconds < LOW_SECONDS) return (Math.floor(10 * seconds) / 10).toFixed(1);
  const whole = Math.floor(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

function isSameBoard(one, other) {
  return Object.keys(one).every((name) => name === "komi" || one[name] === other[name]);
}

function resultText({ result, end, game }) {
  if (result === "0") return "The game is over: a draw.";
  const winner = result.startsWith("B") ? "Black" : "White";
  const loser = winner === "Black" ? "White" : "Black";
  if (end === "resignation" || result.endsWith("R")) return `${winner} wins: ${loser} resigned.`;
  if (end === "time" || result.endsWith("T")) return `${winner} wins: ${loser} lost on time.`;
  const margin = result.slice(2);
  const note = game.name === "go" ? " All stones count as alive." : "";
  return margin ? `${winner} wins by ${margin} points.${note}` : `${winner} wins.`;
}

/** Actions of the line through the last stone, in games that are won by a line. */
function winningLine({ moves, stones, game: { rows, columns, in_a_row: length } }) {
  const last = moves.at(-1)?.action;
  const row = Math.floor(last / columns);
  const column = last % columns;
  for (const [down, right] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
    const line = [last];
    for (const way of [1, -1]) {
      for (let step = 1; ; step++) {
        const [r, c] = [row + way * step * down, column + way * step * right];
        if (r < 0 || c < 0 || r >= rows || c >= columns || stones[r * columns + c] !== stones[last]) break;
        line.push(r * columns + c);
      }
    }
    if (line.length >= length) return line;
  }
  return null;
}

/** Black's chance to win over the moves of the game. */
function chanceGraph(chances) {
  const width = Math.max(1, chances.length - 1);
  const points = chances.map((chance, move) => (chance === null ? null : `${(100 * move) / width},${30 * (1 - chance)}`)).filter(Boolean);
  return svg("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": "Black’s chance to win over the moves of the game" },
    svg("path", { d: "M0 15H100" }),
    svg("polyline", { points: points.join(" ") }),
  );
}
