// Navigation. The address names the selected dialogue: #d=KEY, or #d=KEY+KEY for two side by side. A key depends on run, arm, phase, step
// and id of the dialogue, and is the same in every report.

const addressOf = (d) => `#d=${d.key}${state.beside ? `+${state.beside.key}` : ""}`;

function move(by) {
  const at = state.at + by;
  if (at < 0 || at >= state.shown.length) return;
  const paired = state.beside !== null;
  state.at = at;
  state.beside = paired ? otherEnd(state.shown[at]) : null;
  show(true);
}

/** Shows the dialogue that the address names; scrolls to the viewer if asked to. */
function follow(scroll = true) {
  if (!location.hash.startsWith("#d=")) return;
  const [key, beside] = location.hash.slice(3).split("+");
  const d = DATA.dialogues.find((each) => each.key === key);
  document.getElementById("absent").hidden = d !== undefined;
  if (!d) return;
  if (!state.shown.includes(d)) {
    clearFilters();
    list();
  }
  state.at = state.shown.indexOf(d);
  state.beside = DATA.dialogues.find((each) => each.key === beside) ?? null;
  show();
  if (scroll) document.getElementById("dialogues").scrollIntoView();
}

async function start() {
  const viewer = document.getElementById("viewer");
  if (typeof DecompressionStream === "undefined") {
    viewer.replaceWith(h("p", { class: "warning" }, "The dialogue viewer needs a browser of 2023 or later; everything above does not."));
    return;
  }
  DATA = await unpacked();
  state.mask = DATA.mask ?? false;
  if (!DATA.dialogues.length) {
    viewer.replaceWith(h("p", {}, "No dialogue to show."));
    return;
  }
  viewer.before(h("p", { class: "warning", id: "absent", hidden: "" },
    "The dialogue in this address is not in this report."));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const act = { ArrowRight: () => move(1), j: () => move(1), ArrowLeft: () => move(-1), k: () => move(-1), b: sideBySide }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  window.addEventListener("hashchange", () => follow());
  build();
  window.addEventListener("resize", entries);
  follow();
}

/** The viewer's elements, for the data that there is. */
function build() {
  state.shown = DATA.dialogues;
  state.at = DATA.first ?? 0; // a dialogue that asks
  state.beside = null;
  document.getElementById("viewer").replaceChildren(
    h("div", { class: "panel side" }, controls(),
      h("div", { class: "count" }, h("span", { id: "count", role: "status" }),
        h("button", { click: reset, id: "reset", title: "clear search, filters and order" }, "reset")),
      h("div", { class: "list", id: "list", scroll: entries }, h("ul"))),
    h("div", { class: "panel detail", id: "detail" }));
  list();
  show();
}

const ready = start();
