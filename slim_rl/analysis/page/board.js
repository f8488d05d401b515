// Board of a game: a grid of scores as each seat sees it, or text (`viewer_board` of the environment).

function boards(d, board, asked) {
  if (known(board.text)) return h("div", { class: "prompt" }, board.text);
  return h("div", {},
    h("div", { class: "boards" },
      table(board, `Policy sees (seat ${d.seat + 1})`, board.scales[0], (r, c) => board.shown[0][r][c], asked),
      table(board, "Truth", null, (r, c) => board.truth[r][c], asked, true),
      table(board, `Partner sees (seat ${2 - d.seat})`, board.scales[1], (r, c) => board.shown[1][r][c], asked)),
    h("div", { class: "key" },
      h("span", {}, h("i", { class: "policy" }), "seen by the policy"),
      h("span", {}, h("i", { class: "partner" }), "seen by the partner"),
      h("span", {}, h("i", { class: "square" }), `best plan (${board.score})`),
      h("span", {}, "? asked about by the policy"), h("span", {}, `hatched: not seen${board.note ? `; ${board.note}` : ""}`)));
}

/** The pairs that the policy asks about in these dialogues. */
function askedIn(dialogues) {
  return new Set(dialogues.flatMap((d) => d.turns).flatMap((turn) => (turn.role === "policy" ? turn.pairs : [])).map(String));
}

function table(board, title, scale, cell, asked, truth = false) {
  const head = h("tr", { class: board.columns.length > 5 ? "upright" : null }, h("td", {}),
    board.columns.map(([short, full]) => h("th", { title: full }, short)));
  const rows = board.rows.map(([short, row], r) => h("tr", {}, h("th", { title: row }, short),
    board.columns.map(([column], c) => {
      const value = cell(r, c);
      const seen = [board.shown[0][r][c] !== null, board.shown[1][r][c] !== null];
      const blank = value === null || (truth && !seen[0] && !seen[1]);
      const classes = [blank && "unseen", board.best[r] === c && truth && "best", asked.has(`${r},${c}`) && "asked"];
      const td = h("td", {
        class: classes.filter(Boolean).join(" "), "data-cell": `${r},${c}`,
        title: `${row} on ${column}: ${board.truth[r][c]}`,
        mouseenter: () => light([[r, c]]), mouseleave: () => light([]),
      }, value === null ? "" : String(value));
      if (!blank) td.style.background = `rgba(var(--heat), ${(0.04 + 0.45 * board.truth[r][c] / 100).toFixed(3)})`;
      if (truth && (seen[0] || seen[1])) {
        td.append(h("span", { class: "eyes" }, seen[0] && h("i", { class: "policy" }), seen[1] && h("i", { class: "partner" })));
      }
      return td;
    })));
  const factor = scale === null ? "true scores" : scale === 1 ? "unscaled" : `scores × ${number(scale)}`;
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

function proposal(board, assignment) {
  let total = 0;
  const rows = board.columns.map(([column], c) => {
    const r = assignment.indexOf(c);
    const worth = board.truth[r][c];
    total += worth;
    const best = board.best.indexOf(c);
    const who = [board.shown[0][r][c] !== null && "policy", board.shown[1][r][c] !== null && "partner"].filter(Boolean);
    return h("tr", { class: best === r ? "hit" : null, mouseenter: () => light([[r, c]]) },
      h("td", {}, column), h("td", {}, board.rows[r][1]), h("td", { class: "num" }, worth),
      h("td", {}, who.join(" and ") || "neither"),
      h("td", {}, best === r ? "same as best" : `best: ${board.rows[best][1]} (${board.truth[best][c]})`));
  });
  return h("table", { class: "proposal" },
    h("tr", {}, [board.column, board.row, "score", "seen by", "best plan"].map((name) => h("th", {}, name))), rows,
    h("tr", { class: "total" }, h("td", {}, "total"), h("td", {}), h("td", { class: "num" }, total), h("td", {}),
      h("td", {}, `${number(100 * total / board.score, 1)}% of ${board.score}`)));
}
