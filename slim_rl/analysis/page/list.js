// The list of dialogues: filters, order, entries.

const filters = {};
const distinct = (key) => [...new Set(DATA.dialogues.map((d) => d[key]))];
const nothing = (value) => (known(value) ? value : -Infinity);
const ORDERS = {
  "run and step": null,
  "most questions": (d) => -d.questions,
  "fewest questions": (d) => d.questions,
  "highest reward": (d) => -nothing(d.reward),
  "lowest reward": (d) => (known(d.reward) ? d.reward : Infinity),
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
  const [box, input] = choice("kind", "Asks", [["", "anything or nothing"], ["-", "nothing"], ...kinds.map((kind) => [`k${kind}`, DATA.kinds[kind] ?? kind])]);
  filters.kind = (d) => input.value === "" || (input.value === "-" ? d.kinds.length === 0 : d.kinds.includes(input.value.slice(1)));
  return box;
}

function malformedSelect() {
  if (!DATA.dialogues.some((d) => known(d.malformed))) return null;
  const [box, input] = choice("malformed", "Malformed words", [["", "with or without"], ["1", "with"], ["0", "without"]]);
  filters.malformed = (d) => input.value === "" || (d.malformed > 0) === (input.value === "1");
  return box;
}

function bound(id, label, key, step, passes) {
  const input = h("input", { type: "number", step, min: 0, input: refilter, id: `f-${id}` });
  filters[id] = (d) => input.value === "" || (known(d[key]) && passes(d[key], Number(input.value)));
  return h("div", {}, h("label", { for: input.id }, label), input);
}

function search() {
  const input = h("input", { type: "search", placeholder: "words in the dialogue", input: refilter, id: "f-text" });
  filters.text = (d) => input.value === "" ||
    d.turns.some((turn) => turn.text.toLowerCase().includes(input.value.toLowerCase()));
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
  state.shown = DATA.dialogues;
}

function refilter() {
  const current = state.shown[state.at];
  state.shown = DATA.dialogues.filter((d) => Object.values(filters).every((passes) => passes(d)));
  const key = ORDERS[document.getElementById("f-order").value];
  if (key) state.shown = state.shown.map((d) => [key(d), d]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).map((pair) => pair[1]);
  state.at = Math.max(0, state.shown.indexOf(current));
  list();
  show(state.shown[state.at] !== current);
}

function list() {
  document.getElementById("count").textContent = `${state.shown.length} of ${DATA.dialogues.length} dialogues`;
  document.getElementById("list").replaceChildren(...state.shown.map((d, i) =>
    h("li", {}, h("a", { href: `#d=${d.key}`, "data-i": i, title: `${words(d.arm)}, run ${d.run}, ${when(d)}, game ${d.game}` },
      h("span", { class: "soft" }, arm(d), d.step === null ? d.phase : d.step),
      h("span", { class: "what" }, `${d.questions} asked`, h("span", { class: "soft" }, ` · ${words(d.stop)}`)),
      h("span", {}, number(d.reward))))));
}

/** Scrolls the list, and never the page, until the entry is in sight. */
function reveal(link) {
  const box = document.getElementById("list");
  const [top, bottom] = [link.offsetTop - box.offsetTop, link.offsetTop - box.offsetTop + link.offsetHeight];
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
}
