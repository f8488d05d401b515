"use strict";
// Elements and words. Text from a dialogue only ever becomes a text node, never markup.

let DATA = null; // of the page, once it is unpacked
const state = { shown: [], at: 0, beside: null, mask: false, search: null };

/** The page's data: base64 of compressed JSON. */
async function unpacked() {
  const bytes = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

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

const known = (value) => value !== null && value !== undefined;
const number = (value, digits = 2) => (!known(value) ? "–" : value.toFixed(digits));
const words = (name) => String(name).replaceAll("_", " ");
const count = (value, noun) => `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;
const boardOf = (d) => (d.board === null ? null : DATA.boards[d.board]);
const when = (d) => (d.step === null ? d.phase : `${d.phase} step ${d.step}`);
const policyOf = (d) => (d.step === null ? d.policy : `${d.policy} at step ${d.step}`);

/** A dot in the arm's colour. */
function arm(d) {
  const dot = h("i", { class: "dot" });
  dot.style.background = DATA.colours[d.arm];
  return dot;
}

/** The text, with what is searched for marked. */
function marked(text) {
  return state.search ? text.split(state.search).map((part, i) => (i % 2 ? h("mark", {}, part) : part)) : text;
}

function chip(text, kind = "", title = null) {
  return h("span", { class: `chip ${kind}`, title }, text);
}
