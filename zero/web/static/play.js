// Play: the form for a new game, and the page of a game.

import { el } from "./app.js";
import { Board } from "./board.js";

export async function show(root) {
  root.append(el("h1", {}, "Play"));
  new Board(root, { game: "go", rows: 9, columns: 9, size: 560 });
}
