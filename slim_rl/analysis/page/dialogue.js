// One dialogue, or two of the same game side by side.

/** Shows the dialogue at `state.at`; `address`: the page's address names it from now on. */
function show(address = false) {
  const target = document.getElementById("detail");
  const d = state.shown[state.at];
  reveal();
  if (!d) {
    target.replaceChildren(h("p", {}, "No dialogue passes these filters."));
    return;
  }
  if (state.beside && !ofSameGame(d).includes(state.beside)) state.beside = null;
  if (address) history.replaceState(null, "", addressOf(d));
  const pair = state.beside ? [d, state.beside].sort((a, b) => (a.step ?? 0) - (b.step ?? 0)) : [d];
  const board = boardOf(d);
  target.classList.toggle("maskview", state.mask);
  target.replaceChildren(...[
    h("div", { class: "bar" },
      h("h3", {}, arm(d), `${words(d.arm)} · ${when(d)} · game ${d.game}`),
      h("span", { class: "space" }),
      (state.beside || otherEnd(d)) && h("button", { click: sideBySide, "aria-pressed": state.beside !== null }, "before | after"),
      h("button", { click: () => { state.mask = !state.mask; show(); }, "aria-pressed": state.mask }, "loss mask"),
      h("button", { click: () => move(-1), "aria-label": "previous dialogue" }, "←"),
      h("button", { click: () => move(1), "aria-label": "next dialogue" }, "→")),
    siblings("This group", DATA.dialogues.filter((other) => inGroup(d, other)), d),
    siblings("This game elsewhere", ofSameGame(d).filter((other) => !inGroup(d, other)).slice(0, 12), d),
    board && boards(d, board, askedIn(pair)),
    h("div", { class: pair.length > 1 ? "pair" : null }, pair.map((each) => column(each, board, pair.length > 1))),
  ].filter(Boolean));
}

function column(d, board, several) {
  return h("div", { class: "column" },
    several && h("h4", {}, `${when(d)}: reward ${number(d.reward, 3)}, ${count(d.questions, "question")}`),
    h("div", { class: "chips" }, chips(d)),
    state.mask && maskBar(d),
    !several && prompt(d),
    h("div", { class: "chat" }, d.turns.map((turn, i) => turnView(board, turn, i)), h("div", { class: "end" }, ending(d))));
}

// -- dialogues that belong together

const inGroup = (d, other) => d.group !== "" && ["run", "arm", "phase", "step", "group"].every((key) => d[key] === other[key]);
const ofSameGame = (d) => DATA.dialogues.filter((other) => other !== d && other.cluster === d.cluster && other.seat === d.seat);

/** The same held-out game of the same run at the other end of training. */
function otherEnd(d) {
  const same = ofSameGame(d).filter((other) => other.phase === d.phase && other.phase !== "train" && other.run === d.run &&
    other.arm === d.arm && other.partner === d.partner && known(other.step) && other.step !== d.step);
  if (!same.length || d.step === null) return null;
  return same.reduce((a, b) => (Math.abs(b.step - d.step) > Math.abs(a.step - d.step) ? b : a));
}

function sideBySide() {
  const d = state.shown[state.at];
  state.beside = state.beside ? null : d && otherEnd(d);
  show(true);
}

function siblings(title, dialogues, d) {
  if (dialogues.length < 2 && !dialogues.some((other) => other !== d)) return null;
  return h("div", { class: "siblings" }, h("span", { class: "note" }, title),
    dialogues.map((other) => h("a", {
      href: `#d=${other.key}`, class: "chip", "aria-current": other === d ? "true" : null,
      title: `${words(other.arm)}, run ${other.run}, ${when(other)}, ${words(other.stop)}`,
    }, arm(other), `${title === "This group" ? "" : `${when(other)}: `}${number(other.reward)} · ${other.questions} asked`)));
}

// -- annotations

function chips(d) {
  return [
    chip(words(d.stop), d.stop === "agreed" || d.stop === "finished" ? "good" : "bad"),
    chip(`reward ${number(d.reward, 3)}`),
    chip(count(d.questions, "information-seeking question"), "ask"),
    d.question_value !== null && chip(`question value ${number(d.question_value, 3)}`, "ask"),
    d.malformed > 0 && chip(`${d.malformed} malformed`, "bad"),
    Object.entries(d.columns).map(([name, value]) => chip(`${words(name)} ${value}`)),
    chip(`run ${d.run}`), chip(`seed ${d.seed}`), chip(`policy ${policyOf(d)}`), chip(`partner ${d.partner}`),
    d.tokens.response > 0 && chip(`${d.tokens.policy} of ${d.tokens.response} response tokens trained`),
  ];
}

function ending(d) {
  const why = {
    agreed: "Agreed", rejected: "The last plan was rejected", max_turns: "No agreement within the turns",
    policy_errors: "Too many malformed actions",
  };
  const reward = d.reward === null ? "no reward" : `reward ${number(d.reward, 3)}`;
  return `${why[d.stop] ?? words(d.stop)}: ${reward}${d.failure ? `. ${d.failure}` : ""}`;
}

function prompt(d) {
  if (!d.prompt.length) return null;
  return h("details", {}, h("summary", {}, "Prompt of the policy"),
    d.prompt.map(([role, text]) => [h("p", { class: "note" }, role), h("div", { class: "prompt" }, DATA.texts[text])]).flat());
}

function turnView(board, turn, i) {
  const cells = turn.pairs.concat((turn.assignment ?? []).map((c, r) => [r, c]));
  const about = [
    h("b", {}, turn.role), turn.kind && chip(turn.kind),
    turn.questions.map((kind) => chip(kind, "ask", DATA.kinds[kind])),
    known(turn.answered) && chip(turn.answered ? "answered" : "not answered", turn.answered ? "good" : ""),
    turn.informative > 0 && chip("informative", "good", "received a score that was new to the policy"),
    turn.malformed && chip("malformed", "bad", "not a well-formed sentence"),
    known(turn.question_value) && chip(`question value ${number(turn.question_value, 3)}`, "ask", "gain of the answer in the best expected score, as a share of the best score"),
    known(turn.gain) && chip(`true gain ${number(turn.gain, 3)}`, "", "gain in the true score of the best plan given the policy's knowledge"),
    known(turn.regret) && chip(`regret ${number(turn.regret, 3)}`, "", "expected value of the best question minus that of this one"),
    known(turn.state_value) && chip(`state value ${number(turn.state_value, 3)}`, "", "expected score of the best plan before this turn, given the policy's knowledge"),
    turn.span && h("span", { title: `response tokens ${turn.span[0]} to ${turn.span[1]}` }, `${turn.span[1] - turn.span[0]} tokens`),
    turn.seconds > 0 && h("span", {}, `${number(turn.seconds, 2)} s`),
  ];
  return h("div", {
    class: `turn ${turn.role === "policy" ? "policy" : "partner"}${turn.error ? " refused" : ""}`,
    "data-pairs": turn.pairs.join(" "), "data-turn": i, mouseenter: () => light(cells), mouseleave: () => light([]),
  },
    h("div", { class: "who" }, about),
    turn.thought && h("div", { class: "thought" }, turn.thought),
    h("div", { class: `bubble${turn.span ? " sampled" : ""}` }, turn.text === "" ? "(nothing)" : marked(turn.text)),
    turn.error && h("div", { class: "error" }, `Refused: ${turn.error}`),
    turn.observation && h("div", { class: "observation" }, `Game: ${turn.observation}`),
    board?.truth && turn.assignment?.length === board.truth.length && proposal(board, turn.assignment));
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
    `${d.tokens.response - d.tokens.policy} written by the template and the partner (loss mask 0).` +
    (tokens ? "" : " This log has no token ids: set log.tokens=true in the run to show tokens.")), bar, tokens);
}
