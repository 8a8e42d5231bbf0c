// The report of a generation, in the page and in the file of `zero report`; also two generations side by side.

import { api, el, serverLinks, warning } from "./app.js";
import { smallBoard } from "./board.js";
import { card, chartCard, dataTable, digits, duration, integer, percent } from "./charts.js";

const SCORE = { type: "quantitative", axis: { format: "%" }, scale: { domain: [0, 1] } };
const NUMBERS = {
  score: ["score of the challenger", percent],
  match_length: ["mean length of the match's games", digits],
  games: ["games of self-play", integer],
  positions: ["positions of self-play", integer],
  unique_games: ["unique games of self-play", integer],
  game_length: ["mean length of self-play's games", digits],
  root_value_error: ["squared error of the root values", digits],
  step: ["optimiser steps since generation 0", integer],
  window_games: ["games in the window", integer],
  loss: ["loss", digits],
  policy_loss: ["policy loss", digits],
  value_loss: ["value loss", digits],
  constant_value_loss: ["value loss of the constant predictor", digits],
  explained_variance: ["explained variance of the value", percent],
  saturated_values: ["saturated values", percent],
  value_deviation: ["standard deviation of the values", digits],
  policy_accuracy: ["policy accuracy", percent],
  policy_entropy: ["policy entropy, nats", digits],
  learning_rate: ["learning rate", digits],
  seconds: ["wall clock", duration],
  cpu_seconds: ["CPU time", duration],
};
const STAGES = ["selfplay", "replay", "training", "gating", "verification"];
const WORDS = { start: "random network", rollback: "rollback", branch: "branch" };

/** The word for what became of a generation. */
export function decisionWord({ kind, promoted }) {
  return kind === "decision" ? (promoted ? "promoted" : "refused") : WORDS[kind];
}

/** Shows a generation of a lineage; `?compare=N` shows another one beside it. */
export async function show(root, { path: [lineage, number], query }) {
  const address = (generation) => `/api/lineages/${encodeURIComponent(lineage)}/${encodeURIComponent(generation)}`;
  const report = await api(address(number));
  const other = query.get("compare") ? await api(address(query.get("compare"))) : null;
  const link = (generation, text) => el("a", { href: `#/lineages/${lineage}/${generation}` }, text);
  const input = el("input", { type: "number", min: 0, required: true, value: other?.generation ?? report.previous?.generation ?? 0, "aria-label": "Generation to compare with" });
  const compare = (event) => {
    event.preventDefault();
    location.hash = `#/lineages/${lineage}/${report.generation}?compare=${input.value}`;
  };
  root.append(
    el(
      "nav",
      { class: "toolbar", "aria-label": "Generations" },
      el("a", { href: `#/lineages/${lineage}` }, `lineage ${lineage}`),
      report.previous && link(report.previous.generation, "← previous"),
      report.next_generation !== null && link(report.next_generation, "next →"),
      el("a", { href: `#/games?lineage=${lineage}&generation=${report.generation}` }, "games"),
      el("form", { class: "toolbar", onsubmit: compare }, input, el("button", {}, "Compare")),
      other && link(report.generation, "without comparison"),
    ),
  );
  const main = el("div", {});
  root.append(main);
  render(main, report, other);
}

/** Draws a report. `other`: the report of a generation to compare with. */
export function render(root, report, other = null) {
  const both = other ? [report, other] : [report];
  root.append(
    header(report, other),
    ...both.flatMap(({ tag, warnings }) => warnings.map((line) => warning(`${other ? tag : "Warning"}: ${line}`))),
    el(
      "div",
      { class: other ? "report pairs" : "report" },
      both.filter((each) => each.decision).map((each) => decisionCard(each, other && each.tag)),
      numbersCard(report.numbers, other ? other.numbers : report.previous),
      lossCard(both, "Value loss", ["value_loss", "constant_value_loss"]),
      lossCard(both, "Policy loss and total loss", ["policy_loss", "loss"]),
      both.filter((each) => each.decision).map((each) => healthCard(each, other && each.tag)),
      endsCard(both),
      lengthsCard(both),
      both.filter((each) => each.decision).map((each) => resignationCard(each, other && each.tag)),
      both.filter((each) => each.decision).map((each) => openingsCard(each, other && each.tag)),
      both.filter((each) => each.decision).map((each) => costsCard(each, other && each.tag)),
      both.map((each) => provenanceCard(each, other && each.tag)),
    ),
  );
}

const titled = (title, tag) => (tag ? `${title}: ${tag}` : title);
const missing = (what) => el("p", { class: "muted" }, `${what}: not recorded.`);

function header(report, other) {
  const word = decisionWord({ kind: report.kind, promoted: report.decision?.promoted });
  const date = report.recorded_ms && new Date(report.recorded_ms).toISOString().slice(0, 16).replace("T", " ");
  const tone = word === "promoted" ? "good" : word === "refused" ? "bad" : "";
  return el(
    "header",
    {},
    el("h1", {}, other ? `${report.tag} and ${other.tag}` : report.tag),
    el(
      "p",
      { class: "toolbar" },
      el("span", { class: `badge ${tone}` }, word),
      report.source && el("span", { class: "badge" }, `from ${report.source}`),
      el("span", { class: "badge" }, `champion of generation ${report.champion_generation}`),
      report.health && el("span", { class: `badge ${{ healthy: "good", dead: "bad", warning: "bad" }[report.health.verdict] ?? ""}` }, `training ${report.health.verdict}`),
      el("span", { class: "muted" }, date ? `recorded ${date} UTC` : "time not recorded"),
      serverLinks(report.links),
    ),
  );
}

function decisionCard({ decision, interval, opponent_generation: opponent }, tag) {
  const { match, promoted, threshold } = decision;
  const [low, high] = interval;
  const games = ({ wins, losses, draws }) => wins + losses + draws;
  const rows = { "as Black": match.as_black, "as White": match.as_white, all: match };
  const sides = Object.entries(rows).map(([side, each]) => [side, games(each), each.wins, each.losses, each.draws, games(each) ? (each.wins + each.draws / 2) / games(each) : null]);
  const verdict = promoted ? "it is the new champion" : "the champion stays";
  const against = opponent === null ? "the champion" : `the champion of generation ${opponent}`;
  const spec = {
    height: 150,
    data: { values: sides.map(([side, , , , , score]) => ({ side, score, ...(side === "all" ? { low, high } : {}) })) },
    encoding: { y: { field: "side", type: "nominal", sort: null, title: null } },
    layer: [
      { mark: { type: "bar", height: 14, opacity: 0.35 }, encoding: { x: { field: "score", title: "score of the challenger", ...SCORE } } },
      { transform: [{ filter: "isValid(datum.low)" }], mark: { type: "rule", strokeWidth: 3 }, encoding: { x: { field: "low", ...SCORE }, x2: { field: "high" } } },
      { mark: { type: "point", filled: true, size: 70, opacity: 1 }, encoding: { x: { field: "score", ...SCORE }, tooltip: [{ field: "side" }, { field: "score", format: ".1%" }] } },
      { data: { values: [{ threshold }] }, mark: { type: "rule", strokeDash: [5, 4], strokeWidth: 2 }, encoding: { y: null, x: { field: "threshold", ...SCORE } } },
    ],
  };
  const text = `The challenger scored ${percent(match.score)} (95 % interval ${percent(low)} to ${percent(high)}) of ${games(match)} games against ${against}; ${percent(threshold)} is needed: ${verdict}.`;
  const columns = ["games of the challenger", "games", "won", "lost", "drawn"].map((title, index) => (index ? { title, num: true } : title));
  return chartCard(
    titled("Decision", tag),
    spec,
    text,
    null,
    el("p", {}, text),
    dataTable("results of the challenger by colour", [...columns, { title: "score", num: true, format: percent }], sides),
    el("p", { class: "muted" }, `The dashed line is the threshold. ${match.unique_games} of the games are different.`),
  );
}

function numbersCard(own, other) {
  const names = Object.keys(NUMBERS).filter((name) => name in own.values || (other && name in other.values));
  if (!names.length) return card("Numbers", el("p", { class: "muted" }, "No stage ran for this generation."));
  const value = (numbers, name) => {
    const found = numbers.values[name] ?? null;
    return found === null ? null : NUMBERS[name][1](found);
  };
  const columns = ["number", { title: own.tag, num: true }, ...(other ? [{ title: other.tag, num: true }] : [])];
  const rows = names.map((name) => [NUMBERS[name][0], value(own, name), ...(other ? [value(other, name)] : [])]);
  const made = card("Numbers", dataTable("numbers of the generation", columns, rows), el("p", { class: "muted" }, "Numbers of the training are those of its last step."));
  made.classList.add("numbers");
  return made;
}

const LINES = { loss: "total loss", policy_loss: "policy loss", value_loss: "value loss", constant_value_loss: "constant predictor" };

function lossCard(reports, title, names) {
  const curves = reports.filter(({ numbers }) => numbers.curve);
  if (!curves.length) return reports.some((each) => each.decision) ? card(title, missing("The curve of the training")) : null;
  const values = curves.flatMap(({ tag, numbers: { curve } }) =>
    names.filter((name) => name in curve).flatMap((name) => curve.step.map((step, index) => ({ tag, line: LINES[name], step: curves.length > 1 ? step - curve.step[0] : step, loss: curve[name][index] }))),
  );
  const several = curves.length > 1;
  const dash = { field: "line", type: "nominal", sort: null, scale: { range: [[1, 0], [5, 4]] } };
  const spec = {
    data: { values },
    mark: { type: "line", interpolate: "linear" },
    encoding: {
      x: { field: "step", type: "quantitative", title: several ? "steps since the first line" : "optimiser step", scale: { zero: false, nice: false } },
      y: { field: "loss", type: "quantitative", title: "loss", scale: { zero: false } },
      color: { field: several ? "tag" : "line", type: "nominal", sort: null },
      strokeDash: dash,
      tooltip: [{ field: "tag" }, { field: "line" }, { field: "step" }, { field: "loss", format: ".4f" }],
    },
  };
  const last = curves.map(({ tag, numbers: { curve } }) => `${tag}: ${names.filter((name) => name in curve).map((name) => `${LINES[name]} ${digits(curve[name].at(-1) ?? NaN)}`).join(", ")}`);
  const rows = curves.flatMap(({ tag, numbers: { curve } }) => curve.step.map((step, index) => [tag, step, ...names.map((name) => curve[name]?.[index] ?? null)]));
  const columns = ["generation", { title: "step", num: true, format: integer }, ...names.map((name) => ({ title: LINES[name], num: true, format: digits }))];
  const lacks = names.includes("constant_value_loss") && curves.some(({ numbers: { curve } }) => !curve.constant_value_loss);
  return chartCard(title, spec, `${title} over the optimiser steps; at the end ${last.join("; ")}.`, dataTable(title, columns, rows), lacks && missing("The loss of the constant predictor"));
}

function healthCard({ health }, tag) {
  const title = titled("Health of the training", tag);
  if (!health) return card(title, missing("The health checks"));
  const tone = { healthy: "good", warning: "bad", dead: "bad" }[health.verdict] ?? "";
  return card(
    title,
    el("p", {}, el("span", { class: `badge ${tone}` }, health.verdict), ` explained variance ${health.explained_variance === null ? "not known" : percent(health.explained_variance)}`),
    health.findings.length ? el("ul", {}, health.findings.map((line) => el("li", {}, line))) : el("p", {}, "Every check passed."),
  );
}

/** The games of self-play and of the match of each report; without sets that have no games, as after an import. */
function setsOf(reports) {
  return reports
    .flatMap((each) => [["self-play", each.selfplay], ["match", each.match]].map(([kind, games]) => ({ name: reports.length > 1 ? `${kind}, ${each.tag}` : kind, games })))
    .filter(({ games }) => games?.num_games !== 0);
}

function endsCard(reports) {
  const sets = setsOf(reports);
  const known = sets.filter(({ games }) => games?.ended);
  if (!reports.some((each) => each.decision)) return null;
  if (!known.length) return card("How the games ended", missing("The ends of the games"));
  const ends = [...new Set(known.flatMap(({ games }) => Object.keys(games.ended)))].sort();
  const spec = {
    height: 34 * known.length,
    data: { values: known.flatMap(({ name, games }) => ends.map((end) => ({ name, end, games: games.ended[end] ?? 0 }))) },
    mark: { type: "bar" },
    encoding: {
      y: { field: "name", type: "nominal", sort: null, title: null },
      x: { aggregate: "sum", field: "games", stack: "normalize", title: "share of the games", axis: { format: "%" } },
      color: { field: "end", type: "nominal", sort: ends },
      tooltip: [{ field: "name" }, { field: "end" }, { field: "games" }],
    },
  };
  const counted = (games, count) => (count === undefined || count === null ? null : `${integer(count)} (${percent(count / games.num_games)})`);
  const rows = [
    ...ends.map((end) => [`ended by ${end}`, ...sets.map(({ games }) => (games?.ended ? counted(games, games.ended[end] ?? 0) : null))]),
    ...[["B", "Black won"], ["W", "White won"], ["D", "draw"]].map(([key, text]) => [text, ...sets.map(({ games }) => (games?.results ? counted(games, games.results[key]) : null))]),
  ];
  const text = known.map(({ name, games }) => `${name}: ${Object.entries(games.ended).map(([end, count]) => `${count} by ${end}`).join(", ")}`).join("; ");
  return chartCard("How the games ended", spec, `How the games ended. ${text}.`, null, dataTable("ends and results of the games", ["result", ...sets.map(({ name }) => ({ title: name, num: true }))], rows));
}

function lengthsCard(reports) {
  if (!reports.some((each) => each.decision)) return null;
  const sets = setsOf(reports).map(({ name, games }) => ({ name, lengths: games?.lengths })).filter(({ lengths }) => lengths);
  if (!sets.length) return card("Length of the games", el("p", { class: "muted" }, "The games are not on this machine."));
  const values = sets.flatMap(({ name, lengths }) => {
    const total = Object.values(lengths).reduce((sum, count) => sum + count, 0);
    return Object.entries(lengths).map(([moves, count]) => ({ name, moves: Number(moves), share: count / total, count }));
  });
  const spec = {
    data: { values },
    transform: [{ bin: { maxbins: 30 }, field: "moves", as: ["from", "to"] }, { aggregate: [{ op: "sum", field: "share", as: "share" }], groupby: ["from", "to", "name"] }],
    mark: { type: "line", interpolate: "step-after" },
    encoding: {
      x: { field: "from", type: "quantitative", title: "moves" },
      y: { field: "share", type: "quantitative", title: "share of the games", axis: { format: "%" } },
      color: { field: "name", type: "nominal", sort: null },
      tooltip: [{ field: "name" }, { field: "from", title: "moves from" }, { field: "to", title: "to" }, { field: "share", format: ".1%" }],
    },
  };
  const rows = sets.map(({ name, lengths }) => [name, ...quantiles(lengths)]);
  const columns = ["games", ...["shortest", "quarter", "median", "three quarters", "longest"].map((title) => ({ title, num: true }))];
  const text = rows.map(([name, shortest, , median, , longest]) => `${name}: ${shortest} to ${longest} moves, median ${median}`).join("; ");
  return chartCard("Length of the games", spec, `Distribution of the number of moves. ${text}.`, null, dataTable("length of the games in moves", columns, rows));
}

/** Minimum, quartiles and maximum of {number of moves: number of games}. */
function quantiles(lengths) {
  const sorted = Object.entries(lengths).map(([moves, count]) => [Number(moves), count]).sort((one, other) => one[0] - other[0]);
  const total = sorted.reduce((sum, [, count]) => sum + count, 0);
  return [0, 0.25, 0.5, 0.75, 1].map((share) => {
    let passed = 0;
    return sorted.find(([, count]) => (passed += count) >= share * total && passed > 0)[0];
  });
}

function resignationCard({ resignation }, tag) {
  const title = titled("Resignation", tag);
  if (!resignation) return card(title, missing("A calibration of resignation"));
  const sets = [resignation.used, resignation.following];
  const rate = ({ would_resign, false_positive_rate: share, interval }) => (would_resign ? `${percent(share)} (${percent(interval[0])} to ${percent(interval[1])})` : "none would resign");
  const rows = [
    ["resigns below a value of", ...sets.map(({ threshold }) => (threshold <= -1 ? "never" : threshold.toFixed(2)))],
    ["calibration games", ...sets.map(({ num_games }) => integer(num_games))],
    ["of them would resign", ...sets.map(({ would_resign }) => integer(would_resign))],
    ["of those would have won or drawn", ...sets.map(({ would_have_won }) => integer(would_have_won))],
    ["false positives (95 % interval)", ...sets.map(rate)],
  ];
  const columns = ["threshold of", ...["this generation", "the next one"].map((name) => ({ title: name, num: true }))];
  return card(
    title,
    dataTable("calibration of resignation", columns, rows),
    el("p", { class: "muted" }, `${integer(resignation.resigned_games)} games ended by resignation. The target is at most ${percent(resignation.target)} false positives.`),
  );
}

function openingsCard({ openings, board, selfplay }, tag) {
  const title = titled("Most frequent openings of self-play", tag);
  if (selfplay?.num_games === 0) return card(title, el("p", { class: "muted" }, "No games of self-play."));
  if (!openings || !board) return card(title, el("p", { class: "muted" }, "The games are not on this machine."));
  const figures = openings.map(({ moves, stones, names, share }) => {
    const numbers = {};
    moves.forEach(([, action], index) => {
      if (action < stones.length) numbers[action] = index + 1;
    });
    return el("figure", {}, smallBoard({ ...board, stones, numbers, size: 150, title: `opening ${names}` }), el("figcaption", {}, el("strong", {}, percent(share)), ` ${names}`));
  });
  return card(title, el("div", { class: "openings" }, figures), el("p", { class: "muted" }, "Up to the symmetries of the board, by share of the games with so many moves."));
}

function costsCard({ costs }, tag) {
  const title = titled("Costs", tag);
  if (!costs) return card(title, missing("The costs"));
  const stages = STAGES.filter((stage) => stage in costs.stages).map((stage) => [stage, costs.stages[stage]]);
  const sum = (name) => stages.reduce((total, [, stage]) => total + stage[name], 0);
  const names = ["seconds", "cpu_seconds", "gpu_seconds", "games", "evaluations"];
  const columns = ["stage", ...["wall clock", "CPU", "GPU"].map((name) => ({ title: name, num: true, format: duration })), ...["games", "evaluations"].map((name) => ({ title: name, num: true, format: integer }))];
  const rows = [...stages.map(([stage, found]) => [stage, ...names.map((name) => found[name])]), ["all", ...names.map(sum)]];
  const spec = {
    height: 26 * stages.length,
    data: { values: stages.map(([stage, found]) => ({ stage, minutes: found.seconds / 60 })) },
    mark: { type: "bar" },
    encoding: { y: { field: "stage", type: "nominal", sort: null, title: null }, x: { field: "minutes", type: "quantitative", title: "wall clock, minutes" } },
  };
  const unknown = sum("shards_without_receipt");
  return chartCard(titled("Costs", tag), spec, `Wall clock of each stage, ${duration(sum("seconds"))} in all.`, null, dataTable("costs by stage", columns, rows), unknown ? el("p", { class: "muted" }, `The costs of ${unknown} shards are not known.`) : null);
}

function provenanceCard({ provenance: found, tag: own }, tag) {
  const code = (text) => (text ? el("code", {}, text) : null);
  const size = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;
  const signed = found.signatures.length ? `signed with key ${found.signatures.map((id) => id.slice(0, 12)).join(", ")}; not checked here, \`zero provenance ${own}\` does` : null;
  const rows = [
    ["champion", code(found.champion)],
    ["challenger", code(found.challenger)],
    ["its opponent", code(found.opponent)],
    ["trainee", code(found.trainee)],
    ["commit", code(found.commit)],
    ["commit that the stages ran on", code(found.parent)],
    ["line of the ledger", code(found.ledger_line)],
    ["line before", code(found.previous_line)],
    ["parameters", code(found.params)],
    ["dvc.lock", code(found.dvc_lock)],
    ["attestation", code(found.attestation)],
    ["signature", signed],
    ...Object.entries(found.code).map(([stage, digest]) => [`code of ${stage}`, code(digest)]),
  ];
  const shards = found.shards?.map((shard) => [shard.path, code(shard.sha256), integer(shard.num_games), size(shard.num_bytes), shard.is_here ? "yes" : "no"]);
  const columns = ["file", "SHA-256", { title: "games", num: true }, { title: "size", num: true }, "on this machine"];
  const pairs = (caption, entries) => el("details", {}, el("summary", {}, caption), dataTable(caption, ["name", "value"], entries));
  return el(
    "section",
    { class: "card wide" },
    el("h2", {}, titled("Data and provenance", tag)),
    dataTable("digests", ["what", "digest"], rows),
    el("h3", {}, "Games"),
    shards ? (shards.length ? dataTable("files of games", columns, shards) : el("p", { class: "muted" }, "No games were played.")) : missing("The list of the files"),
    Object.keys(found.inputs).length ? pairs("Inputs of the attestation", Object.entries(found.inputs).map(([name, digest]) => [name, code(digest)])) : null,
    Object.keys(found.profile).length ? pairs("Execution profile", Object.entries(found.profile)) : null,
  );
}
