// The page of `xcal serve`: asks the server it came from, and nothing else. All text is set as text, never as HTML.
const $ = (id) => document.getElementById(id);
let file = null; // what the server says of the file that was dropped
let watching = 0;

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: body instanceof Blob ? body : JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer: has xcal serve ended?");
  }
  const content = await answer.json().catch(() => ({ error: "The server gave no answer." }));
  if (!answer.ok) throw new Error(content.error || "The server refused.");
  return content;
}

function say(id, text, problem = false) {
  $(id).textContent = text;
  $(id).className = problem ? "problem" : "";
}

// --- Dropping a file.

async function drop(dropped) {
  if (!dropped) return;
  forget();
  for (const id of ["asking", "results", "calculating"]) $(id).hidden = true;
  if (dropped.size > Number(document.body.dataset.most)) {
    const most = Math.floor(Number(document.body.dataset.most) / 2 ** 20);
    say("dropped", `This file is larger than ${most} MB, the most that is taken here (xcal serve --most takes more).`, true);
    return;
  }
  say("dropped", `Reading ${dropped.name} …`);
  try {
    file = await ask(`files?name=${encodeURIComponent(dropped.name)}`, dropped);
    say("dropped", `${file.name} was read.`);
    if (file.understood) showOptions();
    else await showCalculator();
  } catch (error) {
    file = null;
    say("dropped", error.message, true);
  }
}

function forget() {
  clearTimeout(watching);
  if (file) navigator.sendBeacon(`files/${file.id}/forget`);
  file = null;
}

const zone = $("drop");
$("file").addEventListener("change", (event) => drop(event.target.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    zone.classList.toggle("over", kind === "dragover");
    if (kind === "drop") drop(event.dataTransfer.files[0]);
  });
}
window.addEventListener("pagehide", forget);

// --- What was understood, and how it can be corrected.

const TIMES = ["", "days", "weeks", "months", "years"];

let fields = 0;
function field(name, control, hint = "") {
  control.id = `field-${++fields}`;
  const label = make("label", { htmlFor: control.id, textContent: name });
  const found = make("div", { className: "field" }, label, control);
  if (hint) {
    const note = make("small", { id: `${control.id}-hint`, textContent: hint });
    control.setAttribute("aria-describedby", note.id);
    found.append(note);
  }
  return found;
}

function choice(name, label, options, hint) {
  const select = make("select", { name }, ...options.map(([value, text]) => make("option", { value, textContent: text })));
  select.value = file.understood.asked[name];
  return field(label, select, hint);
}

function text(name, label, hint) {
  return field(label, make("input", { name, value: file.understood.asked[name] }), hint);
}

function showOptions() {
  const { columns, curves, rows, notes, asked } = file.understood;
  $("rows").textContent = `${rows.toLocaleString("en")} rows, ${columns.length} columns.`;
  $("notes").replaceChildren(...notes.map((note) => make("li", { textContent: note })));
  const none = [["", "none"]];
  const all = columns.map((one) => [one.name, one.name]);
  const numbers = columns.filter((one) => one.number).map((one) => [one.name, one.name]);
  const some = columns.filter((one) => one.labels.length > 1);
  const kinds = [["predictions", "Predictions, to be validated"], ["data", "Data alone, to train a model on"]];
  const groups = some.filter((one) => one.name !== asked.event && one.name !== asked.cause).map((one) => {
    const box = make("input", { type: "checkbox", name: "by", value: one.name, checked: asked.by.includes(one.name) });
    return make("label", {}, box, one.name);
  });
  $("options").replaceChildren(
    choice("kind", "This table holds", kinds),
    choice("time", "Time", [["", "choose"], ...numbers], "Time of the event, or of censoring."),
    choice("event", "Event", [["", "choose"], ...all], "Whether it happened."),
    choice("event_value", "Event happened if it says", [["", "1 or true"]]),
    choice("cause", "Cause of the event", [...none, ...some.map((one) => [one.name, one.name])], "In place of the event, where it has several causes: 0 is censored."),
    choice("time_unit", "Unit of the time", TIMES.map((unit) => [unit, unit || "not known"])),
    text("horizons", "Horizons", "Times at which risks are judged, with commas: 12,24. Empty: chosen from the data."),
    choice("curves", "Survival curves", [...none, ...curves.map((one) => [one, one])], "Columns that differ by a time."),
    choice("risk", "Risk at one time", [...none, ...numbers]),
    text("horizon", "Time of the risk", "With a risk at one time only."),
    choice("cdf", "F at the observed time", [...none, ...numbers]),
    make("fieldset", {}, make("legend", { textContent: "Groups" }), ...(groups.length ? groups : ["none"])),
    choice("site", "Hospital or region", [...none, ...all]),
    choice("clusters", "Patient's number", [...none, ...all], "Where patients have several rows."),
    choice("export", "Tables and pictures", [["", "in the report alone"], ["tables", "also for a paper"]], "As .docx, SVG and PNG: takes longer."),
    choice("decimal", "Decimal mark", [["", "point"], [",", "comma"]]),
  );
  offerValues();
  fitKind();
  $("asking").hidden = false;
  say("state", "");
  refresh();
  $("asking-title").scrollIntoView({ block: "start" });
}

function option(name) {
  return $("options").elements[name];
}

// The labels of the event's column, of which one says that it happened.
function offerValues() {
  const column = file.understood.columns.find((one) => one.name === option("event").value);
  const select = option("event_value");
  const before = select.value || file.understood.asked.event_value;
  const labels = column ? column.labels : [];
  select.replaceChildren(...["", ...labels].map((value) => make("option", { value, textContent: value || "1 or true" })));
  select.value = labels.includes(before) ? before : "";
}

function fitKind() {
  const data = option("kind").value === "data";
  for (const name of ["curves", "risk", "horizon", "cdf", "export"]) option(name).closest(".field").hidden = data;
  option("cause").closest(".field").hidden = !data;
}

function asked() {
  const form = new FormData($("options"));
  const found = Object.fromEntries([...form].filter(([name]) => name !== "by"));
  return { ...found, by: form.getAll("by") };
}

// Answers may come in another order than the questions: only that to the last one counts.
let asking = 0;
async function refresh() {
  const mine = ++asking;
  try {
    const found = await ask(`files/${file.id}/command`, asked());
    if (mine === asking) $("command").textContent = found.command;
  } catch (error) {
    if (mine === asking) say("state", error.message, true);
  }
}

$("options").addEventListener("input", async (event) => {
  if (event.target.name === "event") offerValues();
  if (event.target.name === "kind") fitKind();
  if (event.target.name === "decimal") {
    const mark = event.target.value;
    try {
      const found = await ask(`files/${file.id}/understand`, { decimal: mark });
      file = found;
      showOptions();
      option("decimal").value = mark;
    } catch (error) {
      file = null;
      $("asking").hidden = true;
      say("dropped", error.message, true);
      return;
    }
  }
  refresh();
});
$("options").addEventListener("submit", (event) => event.preventDefault());

// --- Running it.

$("start").addEventListener("click", async () => {
  try {
    show(await ask(`files/${file.id}/start`, asked()));
  } catch (error) {
    say("state", error.message, true);
  }
});
$("cancel").addEventListener("click", async () => show(await ask(`files/${file.id}/cancel`, {})));

const STATES = { waiting: "Waiting for its turn …", running: "Running …", done: "Done.", failed: "" };

function show(found) {
  file = { ...found, understood: file.understood };
  const busy = found.state === "waiting" || found.state === "running";
  $("start").disabled = busy;
  $("cancel").hidden = !busy;
  $("progress").hidden = !busy;
  $("said").hidden = !busy || found.said.length === 0;
  $("said").textContent = found.said.join("\n");
  $("said").scrollTop = $("said").scrollHeight;
  const part = found.said.map((line) => line.match(/(\d+) %/)).filter(Boolean).pop();
  if (part) $("progress").value = Number(part[1]) / 100;
  else $("progress").removeAttribute("value");
  say("state", found.error || STATES[found.state] || "", Boolean(found.error));
  $("results").hidden = found.state !== "done";
  if (found.state === "done") showResults(found);
  clearTimeout(watching);
  if (busy) watching = setTimeout(watch, 700);
}

async function watch() {
  if (!file) return;
  try {
    show(await ask(`files/${file.id}`));
  } catch (error) {
    say("state", error.message, true);
    $("progress").hidden = true;
  }
}

const NAMES = {
  "report.html": "Open the report",
  "frontier.html": "Open the frontier of models",
  "tables.zip": "Tables and pictures for a paper",
  "audit.json": "All numbers (JSON)",
  "model.safetensors": "The model",
};

function showResults(found) {
  $("answer").textContent = found.said.join("\n");
  const order = Object.keys(NAMES);
  const links = found.results.sort((one, other) => order.indexOf(one) - order.indexOf(other)).map((name) => {
    const page = name.endsWith(".html");
    const link = make("a", { href: `files/${found.id}/${name}`, textContent: NAMES[name] || name });
    if (page) Object.assign(link, { target: "_blank", rel: "noopener" });
    else link.download = name;
    return make("li", {}, link);
  });
  const pages = found.results.filter((name) => name.endsWith(".html"));
  links.push(...pages.map((name) => make("li", {}, make("a", { href: `files/${found.id}/${name}?save`, download: name, textContent: `Save ${name}` }))));
  if (found.results.includes("model.safetensors")) {
    const button = make("button", { type: "button", className: "plain", textContent: "Use the model as a calculator" });
    button.addEventListener("click", showCalculator);
    links.push(make("li", {}, button));
  }
  $("files").replaceChildren(...links);
  $("results-title").scrollIntoView({ block: "start" });
}

// --- A model as a calculator.

async function showCalculator() {
  const known = await ask(`files/${file.id}/fields`, {});
  $("fields").replaceChildren(
    ...known.fields.map((one) => {
      const unknown = [["", "not known"]];
      const control = one.labels.length
        ? make("select", { name: one.name }, ...[...unknown, ...one.labels.map((label) => [label, label])].map(([value, label]) => make("option", { value, textContent: label })))
        : make("input", { name: one.name, type: one.kind === "date" ? "date" : "text", value: one.value, inputMode: one.kind === "number" ? "decimal" : "text" });
      if (one.labels.length) control.value = one.labels[0];
      return field(one.name, control);
    }),
  );
  $("calculating").hidden = false;
  $("calculating-title").scrollIntoView({ block: "start" });
  await calculate();
}

let turn = 0;
async function calculate() {
  const mine = ++turn;
  const values = Object.fromEntries(new FormData($("fields")));
  try {
    const found = await ask(`files/${file.id}/curve`, values);
    if (mine !== turn) return;
    draw(found);
    $("call").textContent = found.call;
    const median = found.median === null ? "Less than half have had the event by the end of the curve." : `Half of such patients have had the event by time ${Number(found.median.toPrecision(3))}.`;
    const range = found.lower ? " The band, 95 % at each time, is how far other seeds and other rows to recalibrate on would move the curve; not what is wrong with the model." : "";
    say("reading", [median + range, ...found.notes].join(" "));
  } catch (error) {
    if (mine === turn) say("reading", error.message, true);
  }
}
$("fields").addEventListener("input", calculate);
$("fields").addEventListener("submit", (event) => event.preventDefault());

const SVG = "http://www.w3.org/2000/svg";
function part(name, properties, content = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) element.setAttribute(key, value);
  element.textContent = content;
  return element;
}

function draw({ times, survival, lower, upper }) {
  const [wide, high, left, foot] = [Math.max(280, $("curve").clientWidth), 340, 48, 40];
  const end = times[times.length - 1];
  const x = (t) => left + ((wide - left - 12) * t) / end;
  const y = (s) => 12 + (high - foot - 12) * (1 - s);
  const path = (values, from = times) => from.map((t, k) => `${k ? "L" : "M"}${x(t).toFixed(1)},${y(values[k]).toFixed(1)}`).join("");
  const half = times.findIndex((t) => t >= end / 2);
  const label = `Probability of no event: ${(100 * survival[half]).toFixed(0)} % at time ${times[half].toPrecision(3)}, ${(100 * survival[survival.length - 1]).toFixed(0)} % at time ${end.toPrecision(3)}`;
  const svg = part("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(part("line", { class: "grid", x1: left, x2: wide - 12, y1: y(share), y2: y(share) }));
    svg.append(part("text", { x: left - 8, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`));
  }
  for (let k = 0; k <= 4; k++) {
    const t = (end * k) / 4;
    svg.append(part("text", { x: x(t), y: high - foot + 18, "text-anchor": "middle" }, Number(t.toPrecision(2))));
  }
  svg.append(part("text", { x: (wide + left) / 2, y: high - 6, "text-anchor": "middle" }, "Time"));
  if (lower) {
    const back = path([...lower].reverse(), [...times].reverse()).replace("M", "L");
    svg.append(part("path", { class: "band", d: `${path(upper)}${back}Z` }));
  }
  svg.append(part("path", { class: "line", d: path(survival) }));
  $("curve").replaceChildren(svg);
}

for (const copier of document.querySelectorAll("[data-copies]")) {
  copier.addEventListener("click", async () => {
    const said = copier.textContent;
    try {
      await navigator.clipboard.writeText($(copier.dataset.copies).textContent);
      copier.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren($(copier.dataset.copies));
      copier.textContent = "Marked: press Ctrl+C";
    }
    setTimeout(() => (copier.textContent = said), 2000);
  });
}
