// Draws the charts of a page and lets every block follow the selectors. Reads what the page holds; loads nothing.
const page = JSON.parse(document.getElementById("page-data").textContent);
const main = document.getElementById("main");
const chosen = { ...page.start };
const charts = page.charts.map((chart, place) => ({
  ...chart,
  // A number is the place of a chart with the same pictures.
  specs: Number.isInteger(chart.specs) ? page.charts[chart.specs].specs : chart.specs,
  place,
  box: document.querySelector(`[data-chart="${place}"]`),
  view: null,
  shown: -1,
  turn: 0,
}));
let drawing = 0;

// Which of a chart's specifications belongs to the options chosen: the last selector changes fastest.
function wanted(chart) {
  if (chart.signal) return 0;
  return chart.follows.reduce((index, name) => index * page.options[name].length + chosen[name], 0);
}

// What is folded has no width. It is opened for as long as it is measured, which nobody sees: so its charts are drawn
// before they are unfolded, or printed.
function width(chart) {
  const closed = [];
  for (let at = chart.box.closest("details:not([open])"); at; at = at.parentElement.closest("details:not([open])")) closed.push(at);
  for (const one of closed) one.open = true;
  const found = Math.floor(chart.box.clientWidth);
  for (const one of closed) one.open = false;
  return found;
}

// Data stand on the page by column, which is shorter.
function rowsOf(datasets = {}) {
  const row = (columns, k) => Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[k]]));
  const rows = (columns) => (Object.values(columns)[0] || []).map((_, k) => row(columns, k));
  return Object.fromEntries(Object.entries(datasets).map(([name, columns]) => [name, rows(columns)]));
}

async function draw(chart) {
  const room = width(chart);
  // Inside a hidden block there is no room; it is drawn when the block is shown.
  if (room === 0) return;
  const index = wanted(chart);
  const turn = ++chart.turn;
  const spec = {
    ...chart.specs[index],
    datasets: rowsOf(chart.specs[index].datasets),
    width: room,
    autosize: { type: "fit-x", contains: "padding" },
    config: page.config,
  };
  const frame = document.createElement("div");
  const result = await window.vegaEmbed(frame, spec, {
    mode: "vega-lite",
    renderer: "svg",
    ast: true,
    actions: false,
    defaultStyle: false,
    tooltip: { theme: "page" },
  });
  // Another choice may have been made while this one was drawn.
  if (turn !== chart.turn) {
    result.finalize();
    return;
  }
  if (chart.view) chart.view.finalize();
  chart.view = result;
  chart.shown = index;
  chart.drawnAt = room;
  if (chart.signal) result.view.signal(chart.signal, chosen[chart.follows[0]]).run();
  if (chart.picks) {
    result.view.addEventListener("click", (event, item) => {
      const pick = item && item.datum && item.datum.pick;
      if (Number.isInteger(pick)) choose(chart.picks, pick);
    });
  }
  chart.box.replaceChildren(frame);
}

async function redraw(some) {
  drawing += 1;
  main.setAttribute("aria-busy", "true");
  try {
    for (const chart of some) await draw(chart);
  } finally {
    drawing -= 1;
    if (drawing === 0) main.setAttribute("aria-busy", "false");
  }
}

function showControls(name) {
  const index = chosen[name];
  for (const control of document.querySelectorAll(`[data-selects="${name}"]`)) {
    if (control.type === "radio") control.checked = Number(control.value) === index;
    else control.value = String(index);
    if (control.type === "range") {
      control.setAttribute("aria-valuetext", page.options[name][index]);
      control.parentElement.querySelector("output").textContent = page.options[name][index];
    }
  }
}

function choose(name, index) {
  if (chosen[name] === index) return;
  chosen[name] = index;
  showControls(name);
  for (const block of document.querySelectorAll(`[data-follows="${name}"]`)) {
    block.hidden = Number(block.dataset.option) !== index;
  }
  document.getElementById("said").textContent = page.options[name][index];
  const moved = charts.filter((chart) => chart.follows.includes(name) || (chart.shown < 0 && width(chart) > 0));
  for (const chart of moved) {
    if (chart.signal && chart.view) chart.view.view.signal(chart.signal, index).run();
  }
  redraw(moved.filter((chart) => !(chart.signal && chart.view)));
}

for (const control of document.querySelectorAll("[data-selects]")) {
  control.addEventListener(control.type === "range" ? "input" : "change", () => {
    choose(control.dataset.selects, Number(control.value));
  });
}

// Light or dark: the reader's system at first, then the button.
const button = document.getElementById("theme");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function isDark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : dark.matches;
}
function nameButton() {
  button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  button.title = button.getAttribute("aria-label");
}
button.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameButton();
});
dark.addEventListener("change", nameButton);
nameButton();

for (const field of document.querySelectorAll("[data-filters]")) {
  const lines = document.getElementById(field.dataset.filters).tBodies[0].rows;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const line of lines) {
      const text = line.textContent.toLowerCase();
      line.hidden = !words.every((word) => text.includes(word));
    }
  });
}

function select(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}
for (const copier of document.querySelectorAll("[data-copies]")) {
  const said = copier.textContent;
  copier.addEventListener("click", async () => {
    const source = document.getElementById(copier.dataset.copies);
    const text = [...source.children].map((part) => part.textContent).join("\n\n");
    try {
      await navigator.clipboard.writeText(text);
      copier.textContent = "Copied";
    } catch {
      // Without leave to use the clipboard the text is at least marked, for the reader's own keys.
      select(source);
      copier.textContent = "Marked: press Ctrl+C";
    }
    setTimeout(() => {
      copier.textContent = said;
    }, 2000);
  });
}

// A link to a folded part opens it.
function unfold(hash) {
  const part = /^#[\w-]+$/.test(hash) && document.querySelector(hash);
  if (!part) return;
  const inside = part.querySelector(":scope > details");
  if (inside) inside.open = true;
  for (let at = part.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  part.scrollIntoView();
}
for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => unfold(link.hash));
window.addEventListener("hashchange", () => unfold(location.hash));
unfold(location.hash);

const opener = document.getElementById("unfold");
if (opener) {
  const parts = [...document.querySelectorAll("section.folded > details")];
  const told = () => {
    const open = parts.every((part) => part.open);
    opener.setAttribute("aria-expanded", String(open));
    opener.textContent = open ? "Close all parts" : "Open all parts";
  };
  opener.addEventListener("click", () => {
    const open = !parts.every((part) => part.open);
    for (const part of parts) part.open = open;
    told();
  });
  for (const part of parts) part.addEventListener("toggle", told);
}

// On paper nothing can be unfolded.
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const one of folded) one.open = true;
});
window.addEventListener("afterprint", () => {
  for (const one of folded) one.open = false;
});

// A new width needs a new drawing; once the reader has stopped pulling at the window.
let waiting = 0;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => redraw(charts.filter((chart) => chart.drawnAt !== width(chart))), 150);
});

redraw(charts);
