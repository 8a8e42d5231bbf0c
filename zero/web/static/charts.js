// Charts by Vega-Lite, and tables that can be copied: in the page and in the files of reports.

import { announce, el } from "./app.js";

// The palette of Okabe and Ito, which colour-blind people can tell apart; on dark ground its light colours come first.
const PALETTE = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c6166"],
  dark: ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#f0e442", "#a6abb0"],
};
const DARK = window.matchMedia("(prefers-color-scheme: dark)");
const NO_VALUE = "not recorded";
const COPIED_MS = 2000; // a button shows for this time what it did
/** Axis of generations and counts. Vega puts a tick at 1.5 between 1 and 2, whatever `tickMinStep` says. */
export const WHOLE_NUMBERS = { tickMinStep: 1, labelExpr: "datum.value % 1 ? '' : format(datum.value, ',d')" };

const drawn = new Map(); // Vega's result by container: it listens to the window until it is finalized
let loading = null;

DARK.addEventListener("change", () => [...drawn.values()].forEach(({ draw }) => draw()));

/** Vega-Embed; a report that is one file has it inside. */
function vegaEmbed() {
  loading ??= window.vegaEmbed ? Promise.resolve() : import("/static/vega.js");
  return loading.then(() => window.vegaEmbed);
}

function config() {
  const palette = PALETTE[DARK.matches ? "dark" : "light"];
  const style = getComputedStyle(document.documentElement);
  const [fg, muted, line] = ["--fg", "--muted", "--line"].map((name) => style.getPropertyValue(name).trim());
  return {
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: { labelColor: muted, titleColor: muted, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: "normal", labelFontSize: 11 },
    legend: { labelColor: fg, titleColor: muted, orient: "top", title: null, labelLimit: 260, symbolStrokeWidth: 2.5, symbolOpacity: 1 },
    text: { color: fg },
    rule: { color: muted },
    line: { strokeWidth: 1.8 },
    mark: { color: palette[0] },
    range: { category: palette },
  };
}

/**
 * Draws a chart in a container, and again when the theme changes. `altText`: what the chart shows, for readers who do
 * not see it. Without Vega the container says so, and the table beside it has the numbers.
 */
export async function chart(container, spec, altText) {
  container.classList.add("chart");
  container.setAttribute("role", "img");
  container.setAttribute("aria-label", altText);
  const drawing = el("div", { "aria-hidden": "true" }); // the container has the text
  container.replaceChildren(drawing);
  const full = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", height: 220, autosize: { type: "fit-x", contains: "padding" }, ...spec };
  const draw = async () => {
    try {
      const embed = await vegaEmbed();
      // `ast`: expressions are interpreted, because the page forbids eval.
      const made = await embed(drawing, full, { renderer: "svg", actions: false, ast: true, config: config() });
      drawn.get(container)?.made.finalize();
      drawn.set(container, { made, draw });
    } catch (error) {
      container.removeAttribute("role");
      container.replaceChildren(el("p", { class: "muted" }, `The chart cannot be drawn (${error.message}). The table has its numbers.`));
    }
    for (const [each, { made }] of drawn) {
      if (each.isConnected) continue; // the page shows another view
      made.finalize();
      drawn.delete(each);
    }
  };
  await draw();
}

/**
 * A table with a button that copies it as text with tabs. `columns`: texts, or {title, num: true, format: function of
 * a number}; a value of a row is a text, a number, a DOM node, or null for what is not recorded.
 */
export function dataTable(caption, columns, rows) {
  const heads = columns.map((column) => (typeof column === "string" ? { title: column } : column));
  const cell = (value, { num, format }, index) => {
    const missing = value === null || value === undefined;
    const shown = missing ? el("span", { class: "muted" }, NO_VALUE) : format && typeof value === "number" ? format(value) : value;
    const attributes = { class: num ? "num" : null };
    return index === 0 ? el("th", { scope: "row", ...attributes }, shown) : el("td", attributes, shown);
  };
  const table = el(
    "table",
    { class: "data" },
    el("caption", { class: "sr-only" }, caption),
    el("thead", {}, el("tr", {}, heads.map(({ title, num }) => el("th", { scope: "col", class: num ? "num" : null }, title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, index) => cell(value, heads[index], index))))),
  );
  const text = () => [...table.rows].map((row) => [...row.cells].map((each) => each.textContent).join("\t")).join("\n");
  const copy = copyButton(`Copy the table: ${caption}`, table, text);
  const region = el("div", { class: "scroll", role: "region", "aria-label": caption }, table);
  // Only a table that can be scrolled is a stop of the tab key.
  new ResizeObserver(() => (region.scrollWidth > region.clientWidth || region.scrollHeight > region.clientHeight ? (region.tabIndex = 0) : region.removeAttribute("tabindex"))).observe(region);
  return el("div", { class: "table" }, region, copy);
}

/**
 * A button that copies a text. The clipboard needs https or this machine's own address: without it the node is selected,
 * so that the keyboard can copy it.
 */
export function copyButton(label, node, text) {
  const button = el("button", { type: "button", class: "copy", "aria-label": label }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(node);
      button.textContent = "Press Ctrl+C";
    }
    if (document.getElementById("announcements")) announce(button.textContent);
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  });
  return button;
}

/** A card with a heading; children that are null are left out. */
export function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), children);
}

/** A card with a chart, and the table of its numbers behind a button. */
export function chartCard(title, spec, altText, table, ...children) {
  const container = el("div", {});
  // After the card is in the page, because the chart takes the width of its container.
  requestAnimationFrame(() => chart(container, spec, altText));
  return card(title, container, children, table && el("details", {}, el("summary", {}, "Numbers"), table));
}

export const percent = (value) => `${(100 * value).toFixed(1)} %`;
export const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 1e4 ? 4 : 12 });
export const integer = (value) => (Math.round(value) + 0).toLocaleString("en");

/** Seconds as h:mm:ss. */
export function duration(seconds) {
  const whole = Math.round(seconds);
  const two = (value) => String(value).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}
