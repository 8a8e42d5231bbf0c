// The list of lineages, and a lineage as a graph of its generations with curves over them.

import { announce, api, el, showError, svg, warning } from "./app.js";
import { WHOLE_NUMBERS, card, chartCard, dataTable, digits, integer, percent } from "./charts.js";
import { decisionWord, show as showReport } from "./report.js";

const STEP = 40; // pixels between two generations
const LANES = { arcs: 30, promoted: 70, refused: 120, branches: 170 };
const ROW = 24; // pixels between the names of two branches
const LETTER = 7; // pixels of a letter, rounded up
const POLL_MS = 15_000;

/** `#/lineages`, `#/lineages/NAME`, `#/lineages/NAME/GENERATION`. */
export async function show(root, route) {
  const [lineage, number] = route.path;
  if (number !== undefined) await showReport(root, route);
  else if (lineage === undefined) await showList(root);
  else return showLineage(root, lineage);
}

const lineageLink = (name) => el("a", { href: `#/lineages/${name}` }, name);
const address = (tag) => {
  const [lineage, number] = tag.split("/gen-");
  return `#/lineages/${lineage}/${Number(number)}`;
};
const tagLink = (tag) => el("a", { href: address(tag) }, tag);
const badge = (node) => {
  const word = decisionWord(node);
  return el("span", { class: `badge ${{ promoted: "good", refused: "bad" }[word] ?? ""}` }, word);
};

async function showList(root) {
  const { lineages } = await api("/api/lineages");
  root.append(el("h1", {}, "Lineages"));
  if (!lineages.length) {
    root.append(el("p", {}, "This project has no lineage yet. Make one with ", el("code", {}, "zero new go9"), "."));
    return;
  }
  const columns = ["lineage", { title: "generations", num: true }, { title: "champion of generation", num: true }, "newest", "result", { title: "score", num: true, format: percent }, "branched from"];
  const rows = lineages.map((each) => [
    lineageLink(each.lineage),
    each.num_generations,
    each.champion_generation,
    each.last && tagLink(each.last.tag),
    each.last && badge(each.last),
    each.last?.score ?? "",
    each.source ? tagLink(each.source) : "",
  ]);
  root.append(el("section", { class: "card" }, dataTable("lineages", columns, rows)));
  for (const { lineage, error, warnings } of lineages) {
    for (const line of error ? [error] : warnings) root.append(el("p", { class: "error" }, `${lineage}: ${line}`));
  }
}

async function showLineage(root, name) {
  const path = `/api/lineages/${encodeURIComponent(name)}`;
  const lineage = await api(path);
  draw(root, lineage);
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const { head, nodes } = await api(path);
      if (!root.isConnected) return; // another view was opened meanwhile
      showError(root, null);
      if (head !== lineage.head) {
        clearInterval(timer);
        lineage.head = head; // a second answer can be on its way
        const text = `${name} has gone on: its newest generation is ${nodes.at(-1).tag}.`;
        const again = () => window.dispatchEvent(new HashChangeEvent("hashchange"));
        root.prepend(el("p", { class: "card toolbar" }, text, el("button", { class: "primary", onclick: again }, "Show it")));
        announce(text);
      }
    } catch (error) {
      showError(root, error);
    }
  }, POLL_MS);
  return () => clearInterval(timer);
}

function draw(root, lineage) {
  const { nodes } = lineage;
  root.append(
    el("h1", {}, `Lineage ${lineage.lineage}`),
    el(
      "p",
      { class: "toolbar" },
      lineage.game && el("span", { class: "badge" }, lineage.game),
      el("span", { class: "badge" }, `${nodes.length} generations`),
      el("span", { class: "badge" }, `champion of generation ${nodes.at(-1).champion_generation}`),
      tagLink(nodes.at(-1).tag),
      el("a", { href: `#/games?lineage=${lineage.lineage}` }, "games"),
      el("a", { href: "#/ladder" }, "ladder"),
    ),
    ...lineage.warnings.map((line) => warning(`Warning: ${line}`)),
  );
  const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "graph of the generations" }, graph(lineage));
  root.append(
    card(
      "Generations",
      scroll,
      el("p", { class: "muted" }, "■ random network  ● promoted  ○ refused  ◆ rollback  ▲ branch. The thick line connects the champions, the thin one the trainings. A dashed line leads to what a rollback or a branch restores. Each mark opens the report of its generation."),
    ),
  );
  scroll.scrollLeft = scroll.scrollWidth;
  const decided = nodes.filter((node) => node.score !== null);
  if (decided.length) root.append(el("div", { class: "report" }, curves(decided)));
  root.append(card("All generations", compareForm(lineage), generationTable(nodes)));
}

/** The generations from left to right: promoted ones above, refused ones below, branches under their source. */
export function graph({ lineage, nodes, branches }) {
  const first = nodes[0].generation;
  const isBranch = nodes[0].kind === "branch";
  const x = (generation) => (generation - first + (isBranch ? 3 : 1)) * STEP;
  const y = (node) => (node.promoted === false ? LANES.refused : LANES.promoted);
  const byTag = new Map(nodes.map((node) => [node.tag, node]));
  const labels = [...branches.map((branch) => branch.lineage), isBranch ? nodes[0].parent : ""];
  const width = Math.max(x(nodes.at(-1).generation) + STEP, ...labels.map((label) => LETTER * label.length + 8));
  /** Middle of a label that would be at `middle`, so far to the side that none of it is cut off. */
  const placed = (label, middle) => Math.min(Math.max(middle, (LETTER * label.length) / 2 + 4), width - (LETTER * label.length) / 2 - 4);
  const edges = [];
  const marks = [];
  let champion = nodes[0];
  nodes.forEach((node, index) => {
    const here = [x(node.generation), y(node)];
    const parent = byTag.get(node.parent);
    if (parent && node.kind === "rollback") {
      const [from, to] = [x(parent.generation), here[0]];
      edges.push(svg("path", { class: "edge restored", d: `M${from} ${y(parent)}C${from} ${LANES.arcs - 20} ${to} ${LANES.arcs - 20} ${to} ${here[1]}` }));
    } else if (parent) edges.push(svg("path", { class: "edge", d: `M${x(parent.generation)} ${y(parent)}L${here}` }));
    if (node.promoted !== false && index > 0) {
      if (node.kind === "decision") edges.push(svg("path", { class: "edge champion", d: `M${x(champion.generation)} ${LANES.promoted}H${here[0]}` }));
      champion = node;
    }
    marks.push(mark(lineage, node, here));
  });
  if (isBranch) {
    edges.push(svg("path", { class: "edge restored", d: `M${STEP} ${LANES.promoted}H${x(first)}` }));
    marks.push(foreign(nodes[0].parent, address(nodes[0].parent), [placed(nodes[0].parent, 1.5 * STEP), LANES.promoted - 14], `${lineage} branched from ${nodes[0].parent}`));
  }
  const ends = []; // of the last name in each row
  const shown = branches.filter(({ source }) => byTag.has(source));
  for (const { lineage: name, source } of shown.sort((one, other) => byTag.get(one.source).generation - byTag.get(other.source).generation)) {
    const node = byTag.get(source);
    const [middle, half] = [placed(name, x(node.generation)), (LETTER * name.length) / 2];
    const free = ends.findIndex((end) => end < middle - half);
    const row = free < 0 ? ends.length : free;
    ends[row] = middle + half + LETTER;
    const bottom = LANES.branches + ROW * row;
    edges.push(svg("path", { class: "edge restored", d: `M${x(node.generation)} ${y(node) + 30}V${bottom - 12}` }));
    marks.push(foreign(name, `#/lineages/${name}`, [middle, bottom], `lineage ${name} branches from ${source}`));
  }
  const height = LANES.refused + 40 + (ends.length ? 16 + ROW * ends.length : 0);
  return svg("svg", { class: "lineage-graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `generations of ${lineage}` }, ...edges, ...marks);
}

function mark(lineage, node, [x, y]) {
  const word = decisionWord(node);
  const text = `${node.tag}, ${word}${node.score === null ? "" : `, score ${percent(node.score)}`}${node.verdict === "dead" ? ", training dead" : ""}${node.kind === "rollback" ? ` to ${node.parent}` : ""}`;
  const shapes = {
    start: () => svg("rect", { x: x - 8, y: y - 8, width: 16, height: 16 }),
    rollback: () => svg("path", { d: `M${x} ${y - 11}l11 11l-11 11l-11 -11z` }),
    branch: () => svg("path", { d: `M${x} ${y - 11}l11 19h-22z` }),
    decision: () => svg("circle", { cx: x, cy: y, r: 9 }),
  };
  return svg(
    "a",
    { href: `#/lineages/${lineage}/${node.generation}`, class: `node ${word.replace(" ", "-")} ${node.verdict ?? ""}`, "aria-label": text },
    svg("title", {}, text),
    shapes[node.kind](),
    svg("text", { x, y: y + 26 }, String(node.generation)),
  );
}

/** A mark with the name of another lineage or of one of its generations. */
function foreign(name, href, [x, y], text) {
  return svg("a", { href, class: "node foreign", "aria-label": text }, svg("title", {}, text), svg("text", { x, y }, name));
}

function curves(nodes) {
  const x = { field: "generation", type: "quantitative", title: "generation", axis: WHOLE_NUMBERS, scale: { zero: false, nice: false } };
  const columns = (...names) => [{ title: "generation", num: true }, ...names];
  const number = (title, format) => ({ title, num: true, format });
  const last = nodes.at(-1);
  const score = {
    data: { values: nodes.map((node) => ({ ...node, low: node.interval[0], high: node.interval[1], result: decisionWord(node) })) },
    encoding: { x },
    layer: [
      { mark: { type: "rule", opacity: 0.6 }, encoding: { y: { field: "low", type: "quantitative", title: "score of the challenger", axis: { format: "%" }, scale: { domain: [0, 1] } }, y2: { field: "high" } } },
      { mark: { type: "point", filled: true, size: 55, opacity: 1 }, encoding: { y: { field: "score", type: "quantitative" }, color: { field: "result", type: "nominal", scale: { domain: ["promoted", "refused"] } }, shape: { field: "result", type: "nominal", scale: { domain: ["promoted", "refused"] } }, tooltip: [{ field: "tag" }, { field: "result" }, { field: "score", format: ".1%" }] } },
      { mark: { type: "line", strokeDash: [5, 4], interpolate: "step-after", strokeWidth: 1.5, opacity: 0.8 }, encoding: { y: { field: "threshold", type: "quantitative" } } },
    ],
  };
  const losses = nodes.flatMap(({ generation, value_loss, constant_value_loss }) => [
    { generation, line: "value loss", loss: value_loss },
    { generation, line: "constant predictor", loss: constant_value_loss },
  ]).filter(({ loss }) => loss !== null);
  const lines = (values, field, title, format) => ({
    data: { values },
    mark: { type: "line", point: { size: 18 } },
    encoding: { x, y: { field, type: "quantitative", title, scale: { zero: false }, ...(format ? { axis: { format } } : {}) }, color: { field: "line", type: "nominal", sort: null }, strokeDash: { field: "line", type: "nominal", sort: null }, tooltip: [{ field: "generation" }, { field: "line" }, { field, format: ".4f" }] },
  });
  const lengths = nodes.filter((node) => node.games > 0).map(({ generation, game_length: moves }) => ({ generation, line: "self-play", moves }));
  return [
    chartCard("Score against the champion", score, `Score of each challenger with its 95 % interval; the newest, of generation ${last.generation}, is ${percent(last.score)}.`, dataTable("scores", columns(number("score", percent), "result"), nodes.map((node) => [node.generation, node.score, decisionWord(node)])), el("p", { class: "muted" }, "The dashed line is the threshold. Each challenger plays the champion of its time, so scores do not add up to a rating.")),
    losses.length
      ? chartCard("Value loss", lines(losses, "loss", "loss at the last step"), `Value loss at the end of each training, and the loss of the best constant value; the newest is ${last.value_loss === null ? "not recorded" : digits(last.value_loss)}.`, dataTable("value loss", columns(number("value loss", digits), number("constant predictor", digits)), nodes.map((node) => [node.generation, node.value_loss, node.constant_value_loss])))
      : card("Value loss", el("p", { class: "muted" }, "The value loss: not recorded.")),
    lengths.length ? chartCard("Length of the games", lines(lengths, "moves", "mean moves of self-play"), `Mean number of moves in self-play; the newest is ${digits(lengths.at(-1).moves)}.`, dataTable("length of the games", columns(number("moves", digits)), lengths.map((each) => [each.generation, each.moves]))) : null,
  ];
}

function compareForm({ lineage, nodes }) {
  const choice = (label, chosen) => el("select", { "aria-label": label }, nodes.map(({ generation }) => el("option", { value: generation, selected: generation === chosen }, String(generation))));
  const newest = nodes.at(-1).generation;
  const [one, other] = [choice("generation", newest), choice("generation to compare with", nodes.at(-2)?.generation ?? newest)];
  const compare = (event) => {
    event.preventDefault();
    location.hash = `#/lineages/${lineage}/${one.value}?compare=${other.value}`;
  };
  return el("form", { class: "toolbar", onsubmit: compare }, "Generation", one, "and", other, el("button", {}, "Compare"));
}

function generationTable(nodes) {
  const number = (title, format) => ({ title, num: true, format });
  const loss = (value) => value.toFixed(4); // all numbers of a column have the same number of decimals
  const moves = (value) => value.toFixed(1);
  const columns = ["generation", "result", number("score", percent), number("95 % interval"), number("champion"), number("value loss", loss), number("constant", loss), "training", number("games", integer), number("moves", moves)];
  const rows = [...nodes].reverse().map((node) => {
    const value = (found) => (node.kind === "decision" ? found : ""); // other kinds have no stages
    return [
      tagLink(node.tag),
      ["rollback", "branch"].includes(node.kind) ? el("span", {}, badge(node), " from ", tagLink(node.parent)) : badge(node),
      value(node.score),
      node.interval ? `${percent(node.interval[0])} to ${percent(node.interval[1])}` : "",
      node.champion_generation,
      value(node.value_loss),
      value(node.constant_value_loss),
      value(node.verdict),
      value(node.games),
      value(node.game_length),
    ];
  });
  return dataTable("all generations", columns, rows);
}
