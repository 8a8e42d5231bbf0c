// The replay of a recorded game: board, values, visits, and where all of it is recorded.

import { api, el, serverLinks, svg } from "./app.js";
import { Board } from "./board.js";
import { copyButton, percent } from "./charts.js";
import { networkName, sourceName } from "./games.js";

const PLAY_MS = 700; // between two moves of the automatic replay
const ADDRESS_MS = 200; // waits this long before it writes the address: browsers refuse more than 100 changes in 30 s
const TOP_MOVES = 10;
const CURVE = { width: 600, height: 190, left: 38, right: 8, top: 16, bottom: 24 };
const COLOURS = { 1: "Black", [-1]: "White" };

/** Shows a game. `path`: kind, lineage, generation, game. The address has the number of moves shown (`?move=12`). */
export async function showReplay(root, path, query) {
  const address = path.map(encodeURIComponent).join("/");
  const data = await api(`/api/games/${address}`);
  const replay = new Replay(root, `/api/games/${address}`, `#/games/${address}`, data);
  replay.go(Number(query.get("move")) || 0);
  return () => replay.close();
}

/** A digest, of which the page shows the start, with a button that copies all of it. */
function copyable(text, what) {
  const code = el("code", { class: "digest", title: text }, text);
  return [code, " ", copyButton(`Copy the ${what}`, code, () => text)];
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

class Replay {
  constructor(root, api_path, hash, data) {
    Object.assign(this, { path: api_path, hash, address: location.hash, data, moves: data.moves, at: 0, timer: null });
    this.positions = positionsOf(data);
    const { game, board } = data;
    this.searched = game.kind !== "match"; // a match records moves only
    this.hasVisits = data.root !== "gumbel"; // else the recorded numbers are an improved policy, in units of its sum
    this.bestMove = this.hasVisits ? "most visited move" : "best move of the search";
    const list = `#/games?lineage=${encodeURIComponent(game.lineage)}${this.searched ? `&generation=${game.generation}` : ""}&kind=${game.kind}`;
    const boardBox = el("div", { class: "replay-board" });
    this.board = new Board(boardBox, board, { name: "The position of the game" });
    this.slider = el("input", {
      type: "range", min: "0", max: String(this.moves.length), value: "0", "aria-label": "Moves played",
      oninput: () => this.go(Number(this.slider.value)),
    });
    const button = (text, label, target) => el("button", { type: "button", "aria-label": label, onclick: () => this.go(target()) }, text);
    this.playButton = el("button", { type: "button", onclick: () => this.toggle() }, "Play");
    this.caption = el("p", { class: "replay-caption", role: "status" });
    this.values = el("div", {});
    this.overlay = el("select", { onchange: () => this.draw() },
      el("option", { value: "visits" }, this.hasVisits ? "visits of the search" : "policy after the search"),
      el("option", { value: "none" }, "nothing"),
    );
    this.continued = el("a", { class: "button" }, "Continue from here");
    this.table = el("tbody");
    this.curve = this.searched && this.makeCurve();
    root.append(
      el("p", {}, el("a", { href: list }, this.searched ? `All ${game.kind} games of ${data.tag}` : "All games of this match")),
      el("h1", {}, `Game ${game.game}: ${game.kind} of ${sourceName(game)}`),
      this.summary(),
      el("div", { class: "replay" },
        el("div", {},
          el("div", { class: "card" }, boardBox, this.caption,
            el("div", { class: "toolbar replay-controls" },
              button("|◀", "First position", () => 0),
              button("◀", "Previous move", () => this.at - 1),
              this.playButton,
              button("▶", "Next move", () => this.at + 1),
              button("▶|", "Last position", () => this.moves.length),
              this.slider,
            ),
            el("div", { class: "toolbar" }, this.searched && el("label", {}, "Show on the board", this.overlay), this.continued),
          ),
        ),
        el("div", {},
          this.searched && el("section", { class: "card" }, el("h2", {}, "Value"), this.curve, this.values),
          this.searched && el("section", { class: "card" },
            el("h2", {}, "Search in this position"),
            el("div", { class: "scroll" },
              el("table", { class: "data" },
                el("thead", {}, el("tr", {}, ["move", this.hasVisits && "visits", this.hasVisits ? "share" : "policy"].filter(Boolean).map((title, at) => el("th", { scope: "col", class: at ? "num" : null }, title)))),
                this.table,
              ),
            ),
          ),
          this.record(),
        ),
      ),
    );
    this.onKey = (event) => this.key(event);
    window.addEventListener("keydown", this.onKey);
  }

  close() {
    clearInterval(this.timer);
    clearTimeout(this.writing);
    window.removeEventListener("keydown", this.onKey);
  }

  summary() {
    const { game, networks, board, fault } = this.data;
    const badges = [];
    if (game.wrong_resignation) badges.push(["wrong resignation", "bad"]);
    if (game.never_resigns && game.kind === "selfplay") badges.push(["calibration game: no one may resign", ""]);
    const player = (colour) => networkName(networks[colour].name, networks[colour].sha256);
    const title = board.game[0].toUpperCase() + board.game.slice(1);
    const rules = board.game === "go" ? `, komi ${board.komi}` : "";
    return el("p", {},
      `Black ${player("black")}, White ${player("white")}: `, el("strong", {}, game.score),
      ` after ${game.moves} moves (${game.end}${fault && `: ${fault}`}). ${title} ${board.rows}×${board.columns}${rules}. `,
      badges.map(([text, className]) => [el("span", { class: `badge ${className}` }, text), " "]),
    );
  }

  record() {
    const { game, networks, links, tag, neighbours } = this.data;
    const servers = serverLinks(links);
    const file = ["File", el("a", { href: `${this.path}/sgf`, download: "" }, "SGF")];
    const rows = game.kind === "match" ? [["Match", el("code", {}, game.path)], file] : [
      ["Generation", el("a", { href: `#/lineages/${game.lineage}/${game.generation}` }, tag)],
      ["Commit", copyable(game.commit, "commit")],
      ["Shard", [el("code", {}, game.path), `, row ${game.shard_row}`]],
      ["SHA-256 of the shard", copyable(game.shard, "SHA-256 of the shard")],
      ...["black", "white"].map((colour) => {
        const { name, sha256 } = networks[colour];
        const [lineage, number] = (name ?? "").split("/gen-");
        const link = name && el("a", { href: `#/lineages/${lineage}/${Number(number)}` }, name);
        return [`Network of ${colour === "black" ? "Black" : "White"}`, [link, " ", copyable(sha256, `SHA-256 of the network of ${colour}`)]];
      }),
      file,
      servers.length > 0 && ["Servers", servers.flatMap((link) => [link, " "])],
    ];
    const neighbour = (number, text) =>
      number !== null && el("a", { href: `#/games/${game.kind}/${game.lineage}/${game.generation}/${number}` }, text);
    return el("section", { class: "card" },
      el("h2", {}, "Record"),
      el("dl", { class: "facts" }, rows.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      el("p", { class: "toolbar" }, neighbour(neighbours[0], "← previous game"), neighbour(neighbours[1], "next game →")),
    );
  }

  writeAddress() {
    if (location.hash !== this.address) return; // a link was clicked whose view is not shown yet
    history.replaceState(null, "", this.at ? `${this.hash}?move=${this.at}` : this.hash);
    this.address = location.hash;
  }

  /** Shows the position after `number` moves. */
  go(number) {
    this.at = Math.max(0, Math.min(this.moves.length, Math.trunc(number)));
    if (this.at === this.moves.length) this.stop();
    clearTimeout(this.writing);
    this.writing = setTimeout(() => this.writeAddress(), ADDRESS_MS);
    this.draw();
  }

  draw() {
    const { names, ownership } = this.data;
    const next = this.moves[this.at]; // the move that the search in this position chose; none at the end
    const last = this.moves[this.at - 1];
    const overlay = this.overlay.value;
    const visits = next?.visits ? Object.entries(next.visits).map(([action, count]) => [Number(action), count]) : [];
    const numPoints = this.positions[0].length;
    const heat = new Array(numPoints).fill(0);
    const most = Math.max(1, ...visits.map(([, count]) => count));
    for (const [action, count] of visits) if (action < numPoints) heat[action] = count / most;
    this.board.draw({
      stones: this.positions[this.at],
      last: last ? last.action : null,
      heat: next && overlay === "visits" ? heat : null,
      ownership: next || overlay === "none" ? null : ownership,
    });
    this.slider.value = String(this.at);
    this.continued.href = `#/play?game=${this.hash.replace("#/games/", "")}&move=${this.at}`;
    const played = last ? `Move ${this.at} of ${this.moves.length}: ${COLOURS[last.colour]} ${last.name}` : "The start of the game";
    this.slider.setAttribute("aria-valuetext", played);
    const ending = !next && ownership ? " The squares show the owner of each point." : "";
    this.caption.textContent = next ? `${played}. Next: ${COLOURS[next.colour]} ${next.name}.` : `${played}. The game is over.${ending}`;
    if (!this.searched) return;
    this.marker.setAttribute("x1", this.x(this.at));
    this.marker.setAttribute("x2", this.x(this.at));
    this.showValues(next);
    this.showTable(next, visits, names);
  }

  showValues(next) {
    if (!next) {
      this.values.replaceChildren(el("p", {}, `Result: ${this.data.game.score}`));
      return;
    }
    const rows = [
      ["root of the search", next.value_black, next.value],
      [this.bestMove, next.best_value_black, next.best_value],
    ];
    const heading = (text) => el("th", { scope: "col", class: "num" }, text);
    const head = el("tr", {}, el("td", {}), heading("for Black"), heading(`for ${COLOURS[next.colour]}, to move`));
    const body = rows.map(([name, ...values]) =>
      el("tr", {}, el("th", { scope: "row" }, name), values.map((value) => el("td", { class: "num" }, signed(value)))),
    );
    this.values.replaceChildren(el("table", { class: "data" }, el("thead", {}, head), el("tbody", {}, body)));
  }

  showTable(next, visits, names) {
    const total = visits.reduce((sum, [, count]) => sum + count, 0);
    const rows = [...visits].sort((one, other) => other[1] - one[1] || one[0] - other[0]).slice(0, TOP_MOVES);
    if (next && !rows.some(([action]) => action === next.action)) {
      rows.push([next.action, next.visits[next.action] ?? 0]);
    }
    const number = (text) => el("td", { class: "num" }, text);
    const cells = rows.map(([action, count]) =>
      el("tr", { class: action === next.action ? "played" : null },
        el("td", {}, names[action], action === next.action && el("span", { class: "badge" }, "played")),
        this.hasVisits && number(total ? String(count) : "–"),
        number(total ? percent(count / total) : "–"),
      ),
    );
    const text = next ? "A fast search, which is not recorded." : "The game is over: no search.";
    if (!total) cells.push(el("tr", {}, el("td", { colspan: "3", class: "muted" }, text)));
    this.table.replaceChildren(...cells);
  }

  x(move) {
    return CURVE.left + ((CURVE.width - CURVE.left - CURVE.right) * move) / Math.max(1, this.moves.length);
  }

  y(value) {
    return CURVE.top + ((CURVE.height - CURVE.top - CURVE.bottom) * (1 - value)) / 2;
  }

  /** Black's values over the moves; a click shows the position. */
  makeCurve() {
    const { moves } = this;
    const line = (name) => moves.map((move, at) => `${at ? "L" : "M"}${this.x(at).toFixed(1)} ${this.y(move[name]).toFixed(1)}`).join("");
    const text = (x, y, content, anchor) => svg("text", { x, y, "text-anchor": anchor }, content);
    const axis = [1, 0, -1].flatMap((value) => [
      svg("path", { class: "axis", d: `M${CURVE.left} ${this.y(value)}H${CURVE.width - CURVE.right}` }),
      text(CURVE.left - 5, this.y(value) + 4, value > 0 ? "+1" : value < 0 ? "−1" : "0", "end"),
    ]);
    const bottom = CURVE.height - 5;
    this.marker = svg("line", { class: "marker", y1: CURVE.top, y2: CURVE.height - CURVE.bottom });
    const summary = moves.length
      ? `Value for Black over the moves: ${signed(moves[0].value_black)} at the start, ${signed(moves.at(-1).value_black)} before the last move.`
      : "A game without moves.";
    const curve = svg("svg", { viewBox: `0 0 ${CURVE.width} ${CURVE.height}`, class: "value-curve", role: "img", "aria-label": summary },
      ...axis,
      text(CURVE.left, bottom, "move 0", "start"),
      text(CURVE.width - CURVE.right, bottom, String(moves.length), "end"),
      svg("path", { class: "best", d: line("best_value_black") }),
      svg("path", { class: "root", d: line("value_black") }),
      ...this.resignation(),
      this.marker,
    );
    curve.addEventListener("click", (event) => {
      const box = curve.getBoundingClientRect();
      const inside = ((event.clientX - box.left) / box.width) * CURVE.width - CURVE.left;
      this.go(Math.round((inside / (CURVE.width - CURVE.left - CURVE.right)) * moves.length));
    });
    const key = el("p", { class: "muted curve-key" },
      el("span", { class: "key root" }), " root of the search ", el("span", { class: "key best" }), ` ${this.bestMove}; for Black, +1 is a win`,
      this.resignsAt >= 0 && `. ▼ the threshold ${signed(this.data.resign_threshold)} would have ended the game`,
    );
    return el("div", {}, curve, key);
  }

  /** A mark at the first move at which the threshold would have ended a calibration game. */
  resignation() {
    const { resign_threshold: threshold, game } = this.data;
    this.resignsAt = threshold === null || !game.never_resigns
      ? -1
      : this.moves.findIndex((move, at) => at >= 2 && Math.max(move.value, move.best_value) < threshold);
    if (this.resignsAt < 0) return [];
    const x = this.x(this.resignsAt);
    return [svg("path", { class: "resigns", d: `M${x - 6} ${CURVE.top}h12l-6 10z` })];
  }

  toggle() {
    if (this.timer) {
      this.stop();
      return;
    }
    if (this.at === this.moves.length) this.go(0);
    this.playButton.textContent = "Pause";
    this.timer = setInterval(() => this.go(this.at + 1), PLAY_MS);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.playButton.textContent = "Play";
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea, [role=grid]")) return; // these use the keys themselves
    const targets = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: this.moves.length };
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.go(targets[event.key]);
  }
}

/** The stones after each number of moves: [T + 1][points]. */
function positionsOf({ start, moves }) {
  const found = [start];
  for (const { changes } of moves) {
    const stones = [...found.at(-1)];
    for (const [point, colour] of changes) stones[point] = colour;
    found.push(stones);
  }
  return found;
}
