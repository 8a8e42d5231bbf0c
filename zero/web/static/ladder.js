// Ratings of all lineages together, over generations, games or hours; and the tournaments.

import { api, el, withCode } from "./app.js";
import { WHOLE_NUMBERS, card, chart, dataTable, digits, integer, percent } from "./charts.js";

const AXES = {
  generation: ["generation", (point) => point.generation],
  games: ["games of self-play", (point) => point.games],
  hours: ["hours of all stages", (point) => (point.seconds === null ? null : point.seconds / 3600)],
};
const gameText = ({ name, size }) => `${name}, ${size} x ${size}`;
const number = (title, format = integer) => ({ title, num: true, format });

/** `#/ladder`. */
export async function show(root) {
  const { ladders, tournaments, unreadable } = await api("/api/ladder");
  root.append(el("h1", {}, "Ladder"));
  for (const path of unreadable) root.append(el("p", { class: "error" }, `${path} cannot be read by this version; make it again with zero elo or zero tournament.`));
  if (!ladders.length && !tournaments.length) {
    root.append(el("p", {}, "Nothing is rated yet. ", el("code", {}, "zero elo go9 --games 400"), " rates the champions of a lineage."));
  }
  if (ladders.length) root.append(curvesCard(ladders), ...ladders.map(ratingsCard));
  root.append(...tournaments.map(tournamentCard));
}

function curvesCard(ladders) {
  const container = el("div", {});
  const shown = new Set(ladders.map((each) => each.lineage));
  let axis = "generation";
  const draw = () => {
    const [title, place] = AXES[axis];
    const chosen = ladders.filter((each) => shown.has(each.lineage));
    const values = chosen.flatMap(({ lineage, curve }) => curve.map((point) => ({ ...point, lineage, x: place(point) })).filter(({ x }) => x !== null));
    const lineages = ladders.map((each) => each.lineage); // all of them, so that a lineage keeps its colour
    const y = { type: "quantitative", title: "rating", scale: { zero: false } };
    const spec = {
      height: 380,
      data: { values },
      encoding: {
        x: { field: "x", type: "quantitative", title, scale: { zero: false, nice: false }, axis: axis === "hours" ? {} : WHOLE_NUMBERS },
        color: { field: "lineage", type: "nominal", scale: { domain: lineages } },
      },
      layer: [
        { mark: { type: "area", opacity: 0.18 }, encoding: { y: { ...y, field: "low" }, y2: { field: "high" } } },
        { mark: { type: "line", point: { size: 25 } }, encoding: { y: { ...y, field: "elo" }, tooltip: [{ field: "tag" }, { field: "elo", format: ".0f" }, { field: "low", format: ".0f" }, { field: "high", format: ".0f" }, { field: "games" }] } },
      ],
    };
    const last = chosen.filter(({ curve }) => curve.length).map(({ lineage, curve }) => `${lineage}: ${integer(curve.at(-1).elo)} after generation ${curve.at(-1).generation}`);
    container.replaceChildren(el("div", {}));
    chart(container.firstChild, spec, `Ratings of the champions over ${title} with 95 % intervals. ${last.join("; ")}.`);
  };
  const radio = (name) => el("label", {}, el("input", { type: "radio", name: "axis", checked: name === axis, onchange: () => ((axis = name), draw()) }), AXES[name][0]);
  const box = ({ lineage }) =>
    el("label", {}, el("input", { type: "checkbox", checked: true, onchange: (event) => (shown[event.target.checked ? "add" : "delete"](lineage), draw()) }), lineage);
  requestAnimationFrame(draw);
  const scaleOf = ({ game, scales }) => (scales.length === 1 && scales[0].is_anchor ? JSON.stringify([game, scales[0].reference]) : null);
  const isComparable = ladders.every((each) => scaleOf(each) !== null && scaleOf(each) === scaleOf(ladders[0]));
  return card(
    "Ratings of the champions",
    el("fieldset", { class: "toolbar" }, el("legend", {}, "over"), Object.keys(AXES).map(radio)),
    ladders.length > 1 && el("fieldset", { class: "toolbar" }, el("legend", {}, "lineages"), ladders.map(box)),
    container,
    isComparable || ladders.length === 1 ? null : el("p", { class: "muted" }, "Not all of these ladders have the same game and anchor: only ratings of one game with the same anchor can be compared."),
    el("p", { class: "muted" }, "Bands are 95 % intervals. Points without costs or metrics are left out."),
  );
}

function ratingsCard({ lineage, game, simulations, scales, rows, notes }) {
  const columns = ["player", number("rating"), number("95 % interval"), number("games", digits), number("opponents")];
  const groups = scales.map((scale, group) => {
    const chosen = rows.filter((row) => row.group === group);
    const interval = ({ low, high }) => (low === high ? "given" : `${integer(low)} to ${integer(high)}`);
    const caption = `${lineage}${scales.length > 1 ? `, group ${group + 1}` : ""}: ${scale.reference} = ${integer(scale.elo)}`;
    return [el("h3", {}, caption), dataTable(caption, columns, chosen.map((row) => [row.entry.name, row.elo, interval(row), row.games, row.opponents]))];
  });
  const more = el("ul", { class: "muted" }, notes.map((note) => el("li", {}, withCode(note))));
  return card(`Players of ${lineage}`, el("p", { class: "muted" }, `${gameText(game)}${simulations === null ? "" : `; the curve is of players with ${simulations} simulations a move`}.`), groups, more);
}

function tournamentCard({ game, games_per_match, reference, standings, pairings, failures, notes }) {
  const columns = ["player", number("rating"), number("95 % interval"), number("score", percent), number("games"), ...standings.map((_, index) => number(String(index + 1), percent))];
  const scores = new Map();
  for (const { players, folder, wins, losses, draws } of pairings) {
    const share = (wins + draws / 2) / (wins + losses + draws);
    const games = (score) => el("a", { href: `#/games?lineage=~${encodeURIComponent(folder)}` }, percent(score));
    scores.set(players.join(), games(share)).set([...players].reverse().join(), games(1 - share));
  }
  const rows = standings.map((row, index) => [
    `${index + 1} ${row.name}`,
    row.elo,
    row.low === row.high ? "given" : `${integer(row.low)} to ${integer(row.high)}`,
    row.points / row.games,
    row.games,
    ...standings.map((other) => scores.get([row.key, other.key].join()) ?? "·"),
  ]);
  const title = `Tournament: ${gameText(game)}, ${games_per_match} games a match`;
  return card(title, dataTable(title, columns, rows), el("p", { class: "muted" }, `${reference} is the reference.`), notes.map((note) => el("p", { class: "muted" }, note)), failures.map(({ players, reason }) => el("p", { class: "error" }, `${players.join(" against ")} was not played: ${reason}`)));
}
