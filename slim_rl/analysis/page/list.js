// The list of dialogues: filters, order, entries. Of the entries only those in sight are made: there may be thousands.

const filters = {};
const distinct = (key) => [...new Set(DATA.dialogues.map((d) => d[key]))];
const nothing = (value) => (known(value) ? value : -Infinity);
const ORDERS = {
  "run and step": null,
  "most questions": (d) => -d.questions,
  "fewest questions": (d) => d.questions,
  "highest reward": (d) => -nothing(d.reward),
  "lowest reward": (d) => (known(d.reward) ? d.reward : Infinity),
  "highest question value": (d) => -nothing(d.question_value),
  "most malformed": (d) => -nothing(d.malformed),
  "latest step": (d) => -nothing(d.step),
};

function choice(id, label, options, full = false) {
  const input = h("select", { change: refilter, id: `f-${id}` }, options.map(([value, text]) => h("option", { value }, text)));
  return [h("div", { class: full ? "full" : null }, h("label", { for: input.id }, label), input), input];
}

/** A filter for one value of a key. */
function select(key, label) {
  const values = distinct(key);
  if (typeof values.find(known) === "number") values.sort((a, b) => a - b);
  const options = values.map((value, i) => [String(i), value === null ? "none" : words(value)]);
  const [box, input] = choice(key, label, [["", `all (${values.length})`], ...options]);
  filters[key] = (d) => input.value === "" || d[key] === values[Number(input.value)];
  return values.length > 1 ? box : null;
}

/** A filter for the kinds of question that a dialogue has. */
function kindSelect() {
  const kinds = [...new Set(DATA.dialogues.flatMap((d) => d.kinds))];
  const [box, input] = choice("kind", "Question kind", [["", "all"], ["-", "no questions"], ...kinds.map((kind) => [`k${kind}`, DATA.kinds[kind] ?? kind])]);
  filters.kind = (d) => input.value === "" || (input.value === "-" ? d.kinds.length === 0 : d.kinds.includes(input.value.slice(1)));
  return box;
}

function malformedSelect() {
  if (!DATA.dialogues.some((d) => known(d.malformed))) return null;
  const [box, input] = choice("malformed", "Malformed messages", [["", "with or without"], ["1", "with"], ["0", "without"]]);
  filters.malformed = (d) => input.value === "" || (d.malformed > 0) === (input.value === "1");
  return box;
}

function bound(id, label, key, step, passes) {
  const input = h("input", { type: "number", step, min: 0, input: refilter, id: `f-${id}` });
  filters[id] = (d) => input.value === "" || (known(d[key]) && passes(d[key], Number(input.value)));
  return h("div", {}, h("label", { for: input.id }, label), input);
}

function search() {
  const input = h("input", { type: "search", placeholder: "text in the dialogue", input: refilter, id: "f-text" });
  filters.text = (d) => !state.search || d.turns.some((turn) => state.search.test(turn.text));
  return h("div", { class: "full" }, h("label", { for: "f-text" }, "Search"), input);
}

function controls() {
  return h("div", { class: "filters" },
    choice("order", "Sort by", Object.keys(ORDERS).map((name) => [name, name]), true)[0],
    select("arm", "Arm"), select("run", "Run"), select("phase", "Phase"), select("step", "Step"), select("game", "Game"),
    select("stop", "Stop reason"), kindSelect(), malformedSelect(),
    h("div", { class: "full two" }, bound("asks", "Questions from", "questions", 1, (a, b) => a >= b),
      bound("asksmost", "to", "questions", 1, (a, b) => a <= b),
      bound("least", "Reward from", "reward", 0.05, (a, b) => a >= b), bound("most", "to", "reward", 0.05, (a, b) => a <= b)),
    search());
}

function clearFilters() {
  for (const input of document.querySelectorAll(".filters select, .filters input")) {
    input.value = input.id === "f-order" ? "run and step" : "";
  }
  state.search = null;
  state.shown = DATA.dialogues;
}

function reset() {
  clearFilters();
  state.at = DATA.first ?? 0;
  list();
  show(true);
}

/** What passes, in order. A new order begins at its top; else the dialogue on show stays, if it passes. */
function refilter(event) {
  const current = event.target.id === "f-order" ? null : state.shown[state.at];
  const words = document.getElementById("f-text").value;
  state.search = words === "" ? null : new RegExp(`(${words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`, "i");
  state.shown = DATA.dialogues.filter((d) => Object.values(filters).every((passes) => passes(d)));
  const key = ORDERS[document.getElementById("f-order").value];
  if (key) state.shown = state.shown.map((d) => [key(d), d]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).map((pair) => pair[1]);
  state.at = Math.max(0, state.shown.indexOf(current));
  list();
  show(state.shown[state.at] !== current);
}

function list() {
  document.getElementById("count").textContent =
    `${state.shown.length.toLocaleString("en")} of ${count(DATA.dialogues.length, "dialogue")}`;
  entries();
}

const rowHeight = () => 1.75 * parseFloat(getComputedStyle(document.documentElement).fontSize); // as in report.css

/** Makes the entries in sight, and some around them. */
function entries() {
  const box = document.getElementById("list");
  const first = Math.max(0, Math.floor(box.scrollTop / rowHeight()) - 20);
  const last = Math.min(state.shown.length, first + Math.ceil(box.clientHeight / rowHeight()) + 40);
  const rows = box.firstChild;
  rows.style.paddingTop = `${first * rowHeight()}px`;
  rows.style.paddingBottom = `${(state.shown.length - last) * rowHeight()}px`;
  rows.replaceChildren(...state.shown.slice(first, last).map((d, i) => entry(d, first + i)));
}

function entry(d, i) {
  return h("li", {}, h("a", {
    href: `#d=${d.key}`, "aria-current": i === state.at ? "true" : null,
    title: `${words(d.arm)}, run ${d.run}, ${when(d)}, game ${d.game}`,
  },
    h("span", { class: "soft" }, arm(d), d.step === null ? d.phase : d.step),
    h("span", { class: "what" }, `${d.questions} asked`, h("span", { class: "soft" }, ` · ${words(d.stop)}`)),
    h("span", {}, number(d.reward))));
}

/** Scrolls the list, and never the page, until the entry on show is in sight. */
function reveal() {
  const box = document.getElementById("list");
  const [top, bottom] = [state.at * rowHeight(), (state.at + 1) * rowHeight()];
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  entries();
}
