// Boards in SVG, in the page and in the files of reports.
//
// Point `row * columns + column` counts from row 0 at the top. Stones: +1 black, -1 white, 0 empty.

import { svg } from "./app.js";

const LETTERS = "ABCDEFGHJKLMNOPQRST";
const CELL = 40;
const COLOURS = { 1: "black", [-1]: "white" };
let numBoards = 0;

/** Name of a point, such as "D4". */
export function pointName({ rows, columns }, action) {
  return action >= rows * columns ? "pass" : LETTERS[action % columns] + (rows - Math.floor(action / columns));
}

function starPoints(rows, columns) {
  if (rows !== columns || rows < 7) return [];
  const low = rows < 13 ? 2 : 3;
  const ends = [low, rows - 1 - low];
  const middle = rows % 2 ? [(rows - 1) / 2] : [];
  const all = rows >= 13 ? [...ends, ...middle] : ends;
  const points = all.flatMap((row) => all.map((column) => [row, column]));
  return rows < 13 && middle.length ? [...points, [middle[0], middle[0]]] : points;
}

/** True for games with stones in cells; the others have them on the crossings of the lines. */
function isInCells(game) {
  return game === "othello";
}

/** The empty board: an <svg> with its lines, and the geometry. */
function surface({ game, rows, columns }, labels) {
  const id = `board${++numBoards}`;
  const inCells = isInCells(game);
  const margin = labels ? 28 : 4;
  const width = columns * CELL + 2 * margin;
  const height = rows * CELL + 2 * margin;
  const centre = (action) => [
    margin + ((action % columns) + 0.5) * CELL,
    margin + (Math.floor(action / columns) + 0.5) * CELL,
  ];
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: `board ${inCells ? "cells" : "lines"}` });
  const stops = (first, last) => [
    svg("stop", { offset: "0%", "stop-color": first }),
    svg("stop", { offset: "100%", "stop-color": last }),
  ];
  root.append(
    svg(
      "defs",
      {},
      svg("radialGradient", { id: `${id}-black`, cx: "35%", cy: "30%", r: "75%" }, ...stops("#5a5d62", "#0d0e10")),
      svg("radialGradient", { id: `${id}-white`, cx: "35%", cy: "30%", r: "85%" }, ...stops("#ffffff", "#c9c9c4")),
    ),
    svg("rect", { class: "wood", width, height, rx: 6 }),
  );
  const lines = [];
  const [left, top, right, bottom] = inCells
    ? [margin, margin, width - margin, height - margin]
    : [margin + CELL / 2, margin + CELL / 2, width - margin - CELL / 2, height - margin - CELL / 2];
  for (let x = left; x <= right + 1; x += CELL) lines.push(`M${x} ${top}V${bottom}`);
  for (let y = top; y <= bottom + 1; y += CELL) lines.push(`M${left} ${y}H${right}`);
  root.append(svg("path", { class: "rules", d: lines.join("") }));
  if (!inCells) {
    for (const [row, column] of starPoints(rows, columns)) {
      const [x, y] = centre(row * columns + column);
      root.append(svg("circle", { class: "star", cx: x, cy: y, r: 4 }));
    }
  }
  if (labels) {
    for (let column = 0; column < columns; column++) {
      for (const y of [margin / 2 + 1, height - margin / 2 + 1]) root.append(label(margin + (column + 0.5) * CELL, y, LETTERS[column]));
    }
    for (let row = 0; row < rows; row++) {
      for (const x of [margin / 2, width - margin / 2]) root.append(label(x, margin + (row + 0.5) * CELL + 1, String(rows - row)));
    }
  }
  return { id, root, centre };
}

function label(x, y, text) {
  return svg("text", { class: "coordinate", x, y, "aria-hidden": "true" }, text);
}

function stone({ id, centre }, action, colour, className = "") {
  const [x, y] = centre(action);
  const name = COLOURS[colour];
  return svg("circle", { class: `stone ${name} ${className}`, cx: x, cy: y, r: CELL * 0.46, fill: `url(#${id}-${name})` });
}

function numberText({ centre }, action, text, colour) {
  const [x, y] = centre(action);
  const size = text.length > 2 ? 12 : text.length > 1 ? 15 : 18;
  return svg("text", { class: `number ${COLOURS[colour] ?? "empty"}`, x, y: y + 1, "font-size": size }, text);
}

/** A board without input, for reports and openings. `size`: width in pixels. */
export function smallBoard({ game, rows, columns, stones, numbers = null, size = 160, title = "" }) {
  const made = surface({ game, rows, columns }, false);
  const text = title || `board of ${rows} rows and ${columns} columns`;
  made.root.setAttribute("role", "img");
  made.root.setAttribute("aria-label", text);
  made.root.setAttribute("width", size);
  made.root.classList.add("small");
  stones.forEach((colour, action) => colour && made.root.append(stone(made, action, colour)));
  for (const [action, number] of Object.entries(numbers ?? {})) {
    if (!stones[action]) made.root.append(backing(made, action));
    made.root.append(numberText(made, Number(action), String(number), stones[action]));
  }
  return made.root;
}

/** Hides the lines below a number on an empty point. */
function backing({ centre }, action) {
  const [x, y] = centre(action);
  return svg("circle", { class: "backing", cx: x, cy: y, r: CELL * 0.36 });
}

function lastMark({ centre }, action, colour) {
  const [x, y] = centre(action);
  return svg("circle", { class: `last ${COLOURS[colour] ?? "empty"}`, cx: x, cy: y, r: CELL * 0.17 });
}

/** Marks a cell that can be played on; in Othello few can. */
function option({ centre }, action) {
  const [x, y] = centre(action);
  return svg("circle", { class: "option", cx: x, cy: y, r: CELL * 0.1 });
}

/** A board that can be played on: pointer, touch, or the arrow keys and Enter. An ARIA grid. */
export class Board {
  constructor(container, { game, rows, columns }, { onPlay = null, name = "Board" } = {}) {
    Object.assign(this, { rows, columns, onPlay, name });
    this.inCells = isInCells(game);
    this.surface = surface({ game, rows, columns }, true);
    const { root, id } = this.surface;
    this.svg = root;
    this.layers = {};
    for (const layer of ["heat", "prior", "stones", "ownership", "ghosts", "marks"]) {
      root.append((this.layers[layer] = svg("g", { class: layer, "aria-hidden": "true" })));
    }
    this.cursorRing = svg("rect", { class: "cursor", width: CELL - 4, height: CELL - 4, rx: 8, visibility: "hidden" });
    root.append(this.cursorRing);
    this.stones = new Map();
    this.cells = [];
    this.legal = null;
    this.toPlay = null;
    for (let row = 0; row < rows; row++) {
      const group = svg("g", { role: "row" });
      for (let column = 0; column < columns; column++) {
        const action = row * columns + column;
        const [x, y] = this.surface.centre(action);
        const cell = svg("rect", {
          role: "gridcell", id: `${id}-${action}`, class: "cell", x: x - CELL / 2, y: y - CELL / 2, width: CELL, height: CELL,
        });
        this.cells.push(cell);
        group.append(cell);
      }
      root.append(group);
    }
    root.setAttribute("role", "grid");
    root.setAttribute("tabindex", "0");
    root.setAttribute("aria-label", name);
    this.setCursor(Math.floor(rows / 2) * columns + Math.floor(columns / 2), false);
    root.addEventListener("click", (event) => this.pointed(event, (action) => this.play(action)));
    root.addEventListener("pointermove", (event) => this.pointed(event, (action) => this.hover(event.pointerType === "touch" ? null : action)));
    root.addEventListener("pointerleave", () => this.hover(null));
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("focus", () => this.setCursor(this.cursor, root.matches(":focus-visible")));
    root.addEventListener("blur", () => this.cursorRing.setAttribute("visibility", "hidden"));
    container.append(root);
    this.draw({ stones: new Array(rows * columns).fill(0) });
  }

  /**
   * Shows a position. Only `stones` is required. `legal`: actions that can be played now, null: none; `toPlay`: colour
   * of the stone that the pointer previews; `heat`, `prior`: 0..1 a point; `ownership`: -1..1, + is Black's;
   * `ghosts`: [{action, colour, text}]; `win`: actions of the winning line.
   */
  draw({ stones, last = null, legal = null, toPlay = null, heat = null, prior = null, ownership = null, win = null, ghosts = null }) {
    Object.assign(this, { legal: legal && new Set(legal), toPlay });
    this.position = stones;
    stones.forEach((colour, action) => {
      const shown = this.stones.get(action);
      if (shown?.colour !== colour) {
        shown?.node.remove();
        this.stones.delete(action);
        if (colour) {
          const node = stone(this.surface, action, colour);
          this.layers.stones.append(node);
          this.stones.set(action, { node, colour });
        }
      }
      const text = `${pointName(this, action)}, ${colour ? `${COLOURS[colour]} stone` : "empty"}${action === last ? ", last move" : ""}`;
      if (this.cells[action].getAttribute("aria-label") !== text) this.cells[action].setAttribute("aria-label", text);
      this.cells[action].classList.toggle("legal", Boolean(this.legal?.has(action)));
    });
    this.squares("ownership", ownership, (value) => ({ class: `owner ${value > 0 ? "black" : "white"}`, opacity: Math.abs(value) * 0.85 }), 0.42);
    this.squares("heat", heat, (value) => ({ class: "heat", opacity: 0.15 + 0.75 * value }), 0.92);
    this.squares("prior", prior, (value) => ({ class: "prior", opacity: 0.15 + 0.75 * value }), 0.92);
    const marks = [];
    if (this.inCells) marks.push(...(legal ?? []).filter((action) => action < stones.length).map((action) => option(this.surface, action)));
    const isShown = (action) => action !== null && action !== undefined && action < stones.length;
    for (const action of win ?? []) {
      const [x, y] = this.surface.centre(action);
      marks.push(svg("circle", { class: "win", cx: x, cy: y, r: CELL * 0.46 }));
    }
    if (isShown(last)) marks.push(lastMark(this.surface, last, stones[last]));
    this.layers.marks.replaceChildren(...marks);
    this.layers.ghosts.replaceChildren(
      ...(ghosts ?? [])
        .filter(({ action }) => isShown(action))
        .flatMap(({ action, colour, text }) => [
          stone(this.surface, action, colour, "ghost"),
          numberText(this.surface, action, String(text ?? ""), colour),
        ]),
    );
    this.hover(this.hovered ?? null);
  }

  squares(layer, values, style, part) {
    const nodes = [];
    (values ?? []).forEach((value, action) => {
      if (Math.abs(value) < 0.01 || !Number.isFinite(value)) return;
      const [x, y] = this.surface.centre(action);
      const side = CELL * part;
      nodes.push(svg("rect", { x: x - side / 2, y: y - side / 2, width: side, height: side, rx: 6, ...style(value) }));
    });
    this.layers[layer].replaceChildren(...nodes);
  }

  pointed(event, handle) {
    const action = this.cells.indexOf(event.target.closest?.(".cell"));
    if (action >= 0) handle(action);
  }

  play(action) {
    this.setCursor(action, false);
    if (this.onPlay && this.legal) this.onPlay(action);
  }

  hover(action) {
    this.hovered = action;
    const isFree = action !== null && this.onPlay && this.legal?.has(action) && this.toPlay;
    this.preview?.remove();
    this.preview = isFree ? stone(this.surface, action, this.toPlay, "preview") : null;
    if (this.preview) this.layers.stones.append(this.preview);
  }

  setCursor(action, isVisible) {
    this.cursor = action;
    const [x, y] = this.surface.centre(action);
    this.cursorRing.setAttribute("x", x - CELL / 2 + 2);
    this.cursorRing.setAttribute("y", y - CELL / 2 + 2);
    this.cursorRing.setAttribute("visibility", isVisible ? "visible" : "hidden");
    this.svg.setAttribute("aria-activedescendant", this.cells[action].id);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = Math.floor(this.cursor / this.columns);
    const column = this.cursor % this.columns;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      const clamp = (value, count) => Math.min(count - 1, Math.max(0, value));
      this.setCursor(clamp(row + down, this.rows) * this.columns + clamp(column + right, this.columns), true);
    } else if (event.key === "Home" || event.key === "End") {
      this.setCursor(row * this.columns + (event.key === "Home" ? 0 : this.columns - 1), true);
    } else if (event.key === "Enter" || event.key === " ") {
      this.play(this.cursor);
      this.setCursor(this.cursor, true);
    } else return;
    event.preventDefault();
  }
}
