// Page of a running run. It polls its server every few seconds and replaces its parts by the new version. The selected dialogue, the
// filters and unfolded parts stay.

const PARTS = ["#answer", "#figures", "#tables", "#method", "#dialogues .hint"];

async function look() {
  const answer = await fetch(location.pathname, { cache: "no-cache" }).catch(() => null);
  const text = answer?.ok ? await answer.text().catch(() => null) : null;
  document.getElementById("renewal").textContent =
    text === null ? "slim-rl watch no longer answers: this is its last state." : "";
  setTimeout(look, 1000 * document.body.dataset.seconds);
  if (text !== null && answer.headers.get("ETag") !== `"${document.body.dataset.version}"`) await renew(text);
}

async function renew(text) {
  const next = new DOMParser().parseFromString(text, "text/html");
  const data = next.getElementById("data");
  if ((data === null) !== (document.getElementById("data") === null)) return location.reload();
  const unfolded = Object.fromEntries([...document.querySelectorAll("main > section details")].map((each) => [titleOf(each), each.open]));
  for (const part of PARTS) document.querySelector(part)?.replaceWith(next.querySelector(part));
  for (const each of document.querySelectorAll("main > section details")) each.open = unfolded[titleOf(each)] ?? each.open;
  document.body.dataset.version = next.body.dataset.version;
  if (data !== null) await renewDialogues(data.textContent);
}

const titleOf = (details) => details.querySelector("summary").textContent;

async function renewDialogues(packed) {
  await ready;
  const fields = () => [...document.querySelectorAll(".filters select, .filters input")];
  const chosen = (field) => field.selectedOptions?.[0].text ?? field.value;
  const before = Object.fromEntries(fields().map((field) => [field.id, chosen(field)]));
  const address = location.hash;
  document.getElementById("data").textContent = packed;
  DATA = await unpacked();
  build();
  for (const field of fields()) {
    const option = [...(field.options ?? [])].find((each) => each.text === before[field.id]);
    if (field.options ? option : before[field.id]) field.value = option?.value ?? before[field.id];
  }
  refilter({ target: document.getElementById("f-text") });
  history.replaceState(null, "", address || location.pathname); // what passes the filters first is not what is being read
  follow(false);
}

setTimeout(look, 1000 * document.body.dataset.seconds);
