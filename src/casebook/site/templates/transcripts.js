// Filters and pages through the completions of a case. The rows arrive as columns:
// `texts` holds each distinct string once, and the columns named in `coded` point into it; -1
// points at none.
const data = JSON.parse(document.getElementById("data").textContent);
const {texts, coded, columns, rewards} = data;
const PAGE = 20;
const get = (name, row) => {
  const value = columns[name]?.[row];
  return coded.includes(name) && value != null ? texts[value] : value;
};
const rows = Array.from({length: data.length}, (_, row) => row);
const field = (name) => document.getElementById(name);
const number = (value) => value == null ? "–" : String(Math.round(value * 1000) / 1000).replace("-", "−");

// The outcomes are tried in this order; the first that holds is the one shown.
const OUTCOMES = [
  ["right", "right and well formed", "good", (row) => get("strict", row)],
  ["form", "right, badly formed", "warn", (row) => get("correct", row)],
  ["none", "no answer read", "bad", (row) => get("extracted", row) == null],
  ["wrong", "wrong", "bad", () => true],
];
const outcome = (row) => OUTCOMES.find(([, , , holds]) => holds(row));

const limit = (name, missing) => field(name).value === "" ? missing : Number(field(name).value);
let found = rows;
let page = 0;

function filter() {
  const words = field("search").value.toLowerCase();
  const low = limit("step-from", -Infinity), high = limit("step-to", Infinity);
  const least = limit("reward-from", -Infinity), most = limit("reward-to", Infinity);
  const run = field("run").value, label = field("label").value, kind = field("outcome").value;
  found = rows.filter((row) => {
    const step = get("step", row), reward = get("reward", row);
    return step >= low && step <= high
      && (reward == null ? least === -Infinity && most === Infinity : reward >= least && reward <= most)
      && (!run || get("run", row) === run)
      && (!label || get("answer", row) === label)
      && (!kind || (kind === "truncated" ? get("truncated", row) : outcome(row)[0] === kind))
      && (!words || `${get("prompt", row)}\n${get("completion", row)}`.toLowerCase().includes(words));
  });
}

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text != null) node.textContent = text;
  if (className) node.className = className;
  return node;
}

// Marks the searched words; everything goes in as text, so no completion can become markup.
function marked(text) {
  const node = element("pre"), words = field("search").value.toLowerCase();
  let rest = text ?? "";
  while (words) {
    const at = rest.toLowerCase().indexOf(words);
    if (at < 0) break;
    node.append(rest.slice(0, at), element("mark", rest.slice(at, at + words.length)));
    rest = rest.slice(at + words.length);
  }
  node.append(rest);
  return node;
}

function card(row) {
  const article = element("article"), head = element("h2"), both = element("div", null, "texts");
  const [, said, tone] = outcome(row);
  head.append(element("b", `step ${get("step", row)}`), element("span", said, tone));
  if (get("truncated", row)) head.append(element("span", "cut off", "warn"));
  for (const [name, key] of [["reward", "reward"], ["advantage", "advantage"]])
    head.append(element("span", `${name} ${number(get(key, row))}`));
  for (const name of ["prompt", "completion"]) {
    const part = element("div");
    part.append(element("h3", name), marked(get(name, row)));
    both.append(part);
  }
  const facts = element("dl");
  const add = (name, value) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    facts.append(pair);
  };
  add("right answer", get("answer", row) ?? "–");
  add("answer read", get("extracted", row) ?? "none");
  add("well formed", get("well_formed", row) ? "yes" : "no");
  add("tokens", number(get("tokens", row)));
  for (const name of rewards)
    if (get(`reward/${name}`, row) != null) add(name, number(get(`reward/${name}`, row)));
  add("run", get("run", row));
  article.append(head, both, facts);
  return article;
}

function show() {
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  page = Math.min(Math.max(page, 0), pages - 1);
  const many = (count) => count.toLocaleString("en");
  field("count").textContent = `${many(found.length)} of ${many(rows.length)} completions, page ${page + 1} of ${pages}`;
  field("rows").replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(card));
  // Only a text that scrolls needs to be reachable by keyboard.
  for (const text of document.querySelectorAll("article pre"))
    if (text.scrollHeight > text.clientHeight) text.tabIndex = 0;
  if (!found.length) field("rows").append(element("p", "Nothing matches: widen a filter.", "soft"));
  for (const name of ["previous", "previous-below"]) field(name).disabled = page === 0;
  for (const name of ["next", "next-below"]) field(name).disabled = page === pages - 1;
}

const CONTROLS = ["search", "run", "step-from", "step-to", "reward-from", "reward-to", "label", "outcome"];

// The filters stand in the address, so that a view can be sent to someone.
function remember() {
  const state = new URLSearchParams();
  for (const name of CONTROLS) if (field(name).value) state.set(name, field(name).value);
  try { history.replaceState(null, "", `#${state}`); } catch { /* some browsers refuse on file:// */ }
}

function turn(by) { page += by; show(); scrollTo({top: field("bar").offsetTop}); }

for (const [value, text] of [...OUTCOMES, ["truncated", "cut off"]])
  field("outcome").append(new Option(text, value));
for (const run of data.runs) field("run").append(new Option(run, run));
for (const answer of data.answers) field("label").append(new Option(answer, answer));
for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
  if (CONTROLS.includes(name)) field(name).value = value;
let waiting;
field("filters").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { page = 0; filter(); remember(); show(); }, 120);
});
field("filters").addEventListener("submit", (event) => event.preventDefault());
field("filters").addEventListener("reset", () => setTimeout(() => { page = 0; filter(); remember(); show(); }));
for (const name of ["previous", "previous-below"]) field(name).addEventListener("click", () => turn(-1));
for (const name of ["next", "next-below"]) field(name).addEventListener("click", () => turn(1));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea")) return;
  if (event.key === "n" && !field("next").disabled) turn(1);
  if (event.key === "p" && !field("previous").disabled) turn(-1);
  if (event.key === "/") { event.preventDefault(); field("search").focus(); }
});
filter();
show();
