"use strict";
// The dialogue viewer. Text from a dialogue only ever becomes a text node, never markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const state = { shown: DATA.dialogues, at: 0, mask: false };
const filters = {};

/** An element: h("td", {class: "best", title: "..."}, "text", child, ...). A function attribute becomes a listener. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (!known(value) || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => known(child) && child !== false));
  return element;
}

const number = (value, digits = 2) => (!known(value) ? "–" : value.toFixed(digits));
const known = (value) => value !== null && value !== undefined;
const words = (name) => String(name).replaceAll("_", " ");
const distinct = (key) => [...new Set(DATA.dialogues.map((d) => d[key]))];
const boardOf = (d) => (d.board === null ? null : DATA.boards[d.board]);

// -- filters and list

function select(key, label, full = false) {
  const values = distinct(key);
  if (typeof values[0] === "number") values.sort((a, b) => a - b);
  const input = h("select", { change: refilter, id: `f-${key}` }, h("option", { value: "" }, `all (${values.length})`),
    values.map((value, i) => h("option", { value: i }, value === null ? "none" : words(value))));
  filters[key] = (d) => input.value === "" || d[key] === values[Number(input.value)];
  return h("div", { class: full ? "full" : null }, h("label", { for: input.id }, label), input);
}

function bound(id, label, value, passes) {
  const input = h("input", { type: "number", step: "0.05", min: 0, max: 1, placeholder: value, input: refilter, id: `f-${id}` });
  filters[id] = (d) => input.value === "" || (d.reward !== null && passes(d.reward, Number(input.value)));
  return h("div", {}, h("label", { for: input.id }, label), input);
}

function search() {
  const input = h("input", { type: "search", placeholder: "words in the dialogue", input: refilter, id: "f-text" });
  filters.text = (d) => input.value === "" ||
    d.turns.some((turn) => turn.text.toLowerCase().includes(input.value.toLowerCase()));
  return h("div", { class: "full" }, h("label", { for: "f-text" }, "Search"), input);
}

function refilter() {
  const current = state.shown[state.at];
  state.shown = DATA.dialogues.filter((d) => Object.values(filters).every((passes) => passes(d)));
  state.at = Math.max(0, state.shown.indexOf(current));
  list();
  show();
}

function list() {
  document.getElementById("count").textContent = `${state.shown.length} of ${DATA.dialogues.length} dialogues`;
  document.getElementById("list").replaceChildren(...state.shown.map((d, i) =>
    h("li", {}, h("a", { href: `#d=${d.key}`, "data-i": i, title: `${words(d.arm)}, run ${d.run}, game ${d.game}` },
      h("span", { class: "soft" }, arm(d), d.step === null ? d.phase : d.step),
      h("span", { class: "what" }, `${d.asked} asked`, h("span", { class: "soft" }, ` · ${words(d.stop)}`)),
      h("span", {}, number(d.reward))))));
}

/** Scrolls the list, and never the page, until the entry is in sight. */
function reveal(link) {
  const box = document.getElementById("list");
  const [top, bottom] = [link.offsetTop - box.offsetTop, link.offsetTop - box.offsetTop + link.offsetHeight];
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
}

/** A dot in the arm's colour. */
function arm(d) {
  const dot = h("i", { class: "dot" });
  dot.style.background = DATA.colours[d.arm];
  return dot;
}

// -- one dialogue

function show() {
  const target = document.getElementById("detail");
  const d = state.shown[state.at];
  for (const link of document.querySelectorAll("#list a")) {
    const here = Number(link.dataset.i) === state.at;
    link.setAttribute("aria-current", here);
    if (here) reveal(link);
  }
  if (!d) {
    target.replaceChildren(h("p", {}, "No dialogue passes these filters."));
    return;
  }
  const board = boardOf(d);
  target.classList.toggle("maskview", state.mask);
  target.replaceChildren(...[
    h("div", { class: "bar" },
      h("h3", {}, arm(d), `${words(d.arm)} · ${d.step === null ? d.phase : `${d.phase} step ${d.step}`} · game ${d.game}`),
      h("span", { class: "space" }),
      h("button", { click: () => { state.mask = !state.mask; show(); }, "aria-pressed": state.mask }, "loss mask"),
      h("button", { click: () => move(-1), "aria-label": "previous dialogue" }, "←"),
      h("button", { click: () => move(1), "aria-label": "next dialogue" }, "→")),
    h("div", { class: "chips" }, chips(d)),
    board && boards(d, board),
    state.mask && maskBar(d),
    prompt(d),
    h("div", { class: "chat" }, d.turns.map((turn, i) => turnView(d, board, turn, i)),
      h("div", { class: "end" }, ending(d))),
  ].filter(Boolean));
}

function chips(d) {
  const chip = (text, kind = "") => h("span", { class: `chip ${kind}` }, text);
  return [
    chip(words(d.stop), d.stop === "agreed" || d.stop === "finished" ? "good" : "bad"),
    chip(`reward ${number(d.reward, 3)}`),
    chip(`${d.asked} information-seeking question${d.asked === 1 ? "" : "s"}`, "ask"),
    d.value !== null && chip(`information gained ${number(d.value, 3)}`, "ask"),
    chip(`run ${d.run}`), chip(`seed ${d.seed}`), chip(`policy ${d.policy}`), chip(`partner ${d.partner}`),
    d.tokens.response > 0 && chip(`${d.tokens.policy} of ${d.tokens.response} response tokens trained`),
  ];
}

function ending(d) {
  const why = { agreed: "Agreed", max_turns: "No agreement within the turns", policy_errors: "Too many malformed actions" };
  const reward = d.reward === null ? "no reward" : `reward ${number(d.reward, 3)}`;
  return `${why[d.stop] ?? words(d.stop)}: ${reward}${d.failure ? `. ${d.failure}` : ""}`;
}

function prompt(d) {
  if (!d.prompt.length) return null;
  return h("details", {}, h("summary", {}, "What the policy is told"),
    d.prompt.map(([role, text]) => [h("p", { class: "note" }, role), h("div", { class: "prompt" }, DATA.texts[text])]).flat());
}

// -- tables

function boards(d, board) {
  const asked = new Set(d.turns.flatMap((turn) => (turn.role === "policy" ? turn.pairs : [])).map(String));
  const own = d.seat, other = 1 - d.seat;
  return h("div", {},
    h("div", { class: "boards" },
      table(board, `Policy sees (seat ${own + 1})`, board.scales[own], (r, c) => board.shown[own][r][c], asked),
      table(board, "Truth", null, (r, c) => board.truth[r][c], asked, d),
      table(board, `Partner sees (seat ${other + 1})`, board.scales[other], (r, c) => board.shown[other][r][c], asked)),
    h("div", { class: "key" },
      h("span", {}, h("i", { class: "policy" }), "seen by the policy"),
      h("span", {}, h("i", { class: "partner" }), "seen by the partner"),
      h("span", {}, h("i", { class: "square" }), `the best assignment (${board.score})`),
      h("span", {}, "? asked about by the policy"), h("span", {}, "hatched: not seen; counts as 50 where nobody sees it")));
}

function table(board, title, scale, cell, asked, d) {
  const head = h("tr", { class: board.papers.length > 5 ? "upright" : null }, h("th", {}), board.papers.map((paper) => h("th", { title: paper }, paper.split(":")[0])));
  const rows = board.reviewers.map((reviewer, r) => h("tr", {}, h("th", { title: reviewer }, reviewer.split(" ")[0]),
    board.papers.map((paper, c) => {
      const value = cell(r, c);
      const seen = [board.shown[0][r][c] !== null, board.shown[1][r][c] !== null];
      const blank = value === null || (d && !seen[0] && !seen[1]);
      const classes = [blank && "unseen", board.best[r] === c && d && "best", asked.has(`${r},${c}`) && "asked"];
      const td = h("td", {
        class: classes.filter(Boolean).join(" "), "data-cell": `${r},${c}`,
        title: `${reviewer} on ${paper.split(":")[0]}: ${board.truth[r][c]}`,
        mouseenter: () => light([[r, c]]), mouseleave: () => light([]),
      }, value === null ? "" : String(value));
      if (!blank) td.style.background = `rgba(var(--heat), ${(0.04 + 0.5 * board.truth[r][c] / 100).toFixed(3)})`;
      if (d && (seen[0] || seen[1])) {
        td.append(h("span", { class: "eyes" }, seen[d.seat] && h("i", { class: "policy" }), seen[1 - d.seat] && h("i", { class: "partner" })));
      }
      return td;
    })));
  const factor = scale === null ? "scores that count" : scale === 1 ? "as they are" : `× ${number(scale)}`;
  return h("div", { class: "board" }, h("h4", {}, title, " ", h("span", { class: "sub" }, factor)), h("table", {}, head, rows));
}

/** Marks cells in all tables, and the turns that ask about or propose them. */
function light(cells) {
  const names = new Set(cells.map(String));
  for (const td of document.querySelectorAll("#detail td[data-cell]")) td.classList.toggle("lit", names.has(td.dataset.cell));
  for (const turn of document.querySelectorAll("#detail .turn")) {
    turn.classList.toggle("lit", cells.length === 1 && turn.dataset.pairs.split(" ").includes(String(cells[0])));
  }
}

// -- turns

function turnView(d, board, turn, i) {
  const cells = turn.pairs.concat((turn.assignment ?? []).map((c, r) => [r, c]));
  const chip = (text, kind = "", title = null) => h("span", { class: `chip ${kind}`, title }, text);
  const about = [
    h("b", {}, turn.role), turn.kind && chip(turn.kind),
    turn.questions.map((kind) => chip(kind, "ask", DATA.kinds[kind])),
    known(turn.answered) && chip(turn.answered ? "answered" : "not answered", turn.answered ? "good" : ""),
    turn.informative > 0 && chip("informative", "good", "the partner sees the score and the policy did not know it"),
    known(turn.value) && chip(`value ${number(turn.value, 3)}`, "ask", "what the answer added to the best expected score, as a share of the best"),
    known(turn.gain) && chip(`true gain ${number(turn.gain, 3)}`, "", "what it added to the true score of the best plan by what is known"),
    known(turn.regret) && chip(`regret ${number(turn.regret, 3)}`, "", "how much more the best question was expected to add"),
    turn.span && h("span", { title: `response tokens ${turn.span[0]} to ${turn.span[1]}` }, `${turn.span[1] - turn.span[0]} tokens`),
    turn.seconds > 0 && h("span", {}, `${number(turn.seconds, 2)} s`),
  ];
  return h("div", {
    class: `turn ${turn.role === "policy" ? "policy" : "partner"}${turn.error ? " refused" : ""}`,
    "data-pairs": turn.pairs.join(" "), id: `turn-${i}`, mouseenter: () => light(cells), mouseleave: () => light([]),
  },
    h("div", { class: "who" }, about),
    turn.thought && h("div", { class: "thought" }, turn.thought),
    h("div", { class: `bubble${turn.span ? " sampled" : ""}` }, turn.text === "" ? "(nothing)" : turn.text),
    turn.error && h("div", { class: "error" }, `Refused: ${turn.error}`),
    board && turn.assignment && turn.assignment.length === board.truth.length && proposal(d, board, turn.assignment));
}

function proposal(d, board, assignment) {
  let total = 0;
  const rows = board.papers.map((paper, c) => {
    const r = assignment.indexOf(c);
    const worth = board.truth[r][c];
    total += worth;
    const best = board.best.indexOf(c);
    const who = [board.shown[d.seat][r][c] !== null && "policy", board.shown[1 - d.seat][r][c] !== null && "partner"].filter(Boolean);
    return h("tr", { class: best === r ? "hit" : null, mouseenter: () => light([[r, c]]) },
      h("td", {}, paper.split(":")[0]), h("td", {}, board.reviewers[r]), h("td", { class: "num" }, worth),
      h("td", {}, who.join(" and ") || "nobody"),
      h("td", {}, best === r ? "as in the best" : `best: ${board.reviewers[best]} (${board.truth[best][c]})`));
  });
  return h("table", { class: "proposal" },
    h("tr", {}, ["paper", "reviewer", "score", "seen by", ""].map((name) => h("th", {}, name))), rows,
    h("tr", { class: "total" }, h("td", {}, "total"), h("td", {}), h("td", { class: "num" }, total), h("td", {}),
      h("td", {}, `${number(100 * total / board.score, 1)}% of the best, ${board.score}`)));
}

// -- loss mask

function maskBar(d) {
  const length = Math.max(1, d.tokens.response);
  const parts = [];
  let end = 0;
  for (const turn of d.turns.filter((t) => t.span)) {
    parts.push([turn.span[0] - end, false], [turn.span[1] - turn.span[0], true]);
    end = turn.span[1];
  }
  parts.push([length - end, false]);
  const bar = h("div", { class: "mask", role: "img", "aria-label": `${d.tokens.policy} of ${d.tokens.response} tokens are trained` },
    parts.filter(([size]) => size > 0).map(([size, own]) => {
      const piece = h("i", { class: own ? "own" : "other", title: `${size} tokens, loss mask ${own ? 1 : 0}` });
      piece.style.flex = String(size);
      return piece;
    }));
  const tokens = d.pieces && h("div", { class: "tokens" }, d.pieces.map(([text, own, logprob]) =>
    h("span", { class: own ? "own" : null, title: own ? `log probability ${number(logprob, 3)}` : "loss mask 0" }, text)));
  return h("div", {}, h("p", { class: "note" },
    `Prompt ${d.tokens.prompt} tokens; response ${d.tokens.response}: ${d.tokens.policy} sampled by the policy (loss mask 1, blue), ` +
    `${d.tokens.response - d.tokens.policy} written by the template and the partner (loss mask 0).`), bar, tokens);
}

// -- moving about

function move(by) {
  const at = state.at + by;
  if (at >= 0 && at < state.shown.length) go(state.shown[at].key);
}

function go(key) {
  history.replaceState(null, "", `#d=${key}`);
  follow(false);
}

/** Shows the dialogue that the address names; scrolls to the viewer if asked to. */
function follow(scroll = true) {
  const key = location.hash.startsWith("#d=") ? location.hash.slice(3) : null;
  if (key === null) return;
  let at = state.shown.findIndex((d) => d.key === key);
  if (at < 0 && DATA.dialogues.some((d) => d.key === key)) {
    for (const input of document.querySelectorAll(".filters select, .filters input")) input.value = "";
    state.shown = DATA.dialogues;
    at = state.shown.findIndex((d) => d.key === key);
    list();
  }
  if (at < 0) return;
  state.at = at;
  show();
  if (scroll) document.getElementById("dialogues").scrollIntoView();
}

function start() {
  const viewer = document.getElementById("viewer");
  if (!DATA.dialogues.length) {
    viewer.replaceWith(h("p", {}, "There is no dialogue to show."));
    return;
  }
  viewer.append(
    h("div", { class: "panel side" },
      h("div", { class: "filters" }, select("arm", "Arm"), select("run", "Run"), select("phase", "Phase"), select("step", "Step"),
        select("game", "Game"), select("stop", "Stop reason"), bound("least", "Reward from", 0, (a, b) => a >= b),
        bound("most", "to", 1, (a, b) => a <= b), search()),
      h("div", { class: "count", id: "count", role: "status" }), h("ul", { class: "list", id: "list" })),
    h("div", { class: "panel detail", id: "detail" }));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const by = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1 }[event.key];
    if (by) { event.preventDefault(); move(by); }
  });
  window.addEventListener("hashchange", () => follow());
  list();
  show();
  follow();
}

start();
