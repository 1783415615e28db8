// One sample, or a group side by side, in a dialog over the page.

const MOST_SIBLINGS = 64;
const MOST_FACTS = 24;
const opened = { at: null, ticket: 0 };

async function openSample(row, at = null) {
  opened.at = at;
  setAddress(`#sample=${view.store.link(row)}`);
  await fillDialog(async () => sampleView(row));
}

// The address names the open sample, so that copying it is a link; no entry of the browser's history for each.
function setAddress(hash) {
  if (!view.newest && location.hash !== hash) history.replaceState(null, "", hash || location.pathname + location.search);
}

// Opens the sample that the address names: `#sample=` and its code, or its id.
function openLinked() {
  const found = /^#sample=(.+)$/s.exec(location.hash);
  if (found === null || view.store === null) return;
  let name = found[1];
  try {
    name = decodeURIComponent(name);
  } catch {} // not encoded: taken as it stands
  const row = view.store.linked(name);
  if (row !== null) openSample(row).catch(showTrouble);
  else byId("count").textContent = `No sample of this page is called ${short(name)}.`;
}

async function openGroup(row) {
  await fillDialog(async () => groupView(row));
}

// The last one asked for wins; what was slower than it is not shown.
async function fillDialog(build) {
  const ticket = ++opened.ticket;
  const dialog = byId("detail");
  dialog.dataset.busy = "1";
  if (!dialog.open) dialog.showModal();
  try {
    const content = await build();
    if (ticket !== opened.ticket) return;
    dialog.replaceChildren(...content.filter((part) => part !== null));
    dialog.scrollTop = 0;
  } catch (error) {
    if (ticket === opened.ticket) dialog.replaceChildren(make("p", "finding bad", `This sample cannot be shown: ${error.message}`), closeButton());
  } finally {
    if (ticket === opened.ticket) delete dialog.dataset.busy;
  }
}

function closeButton() {
  const button = make("button", "close", "Close");
  button.type = "button";
  button.addEventListener("click", () => byId("detail").close());
  return button;
}

function action(text, act, name = "") {
  const button = make("button", name, text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

async function sampleView(row) {
  const { store } = view;
  const texts = await store.texts(row);
  const name = store.heads === null ? "" : store.heads[row][0];
  const bar = make("div", "actions");
  if (opened.at !== null) {
    const go = (move) => {
      const at = opened.at + move;
      if (at >= 0 && at < view.rows.length) openSample(view.rows[at], at);
    };
    bar.append(action("Previous", () => go(-1), "previous"), action("Next", () => go(1), "next"));
  }
  // Of a run that goes on only the newest samples are here: no link holds, and siblings are missing.
  if (!view.newest) bar.append(action("Copy link", (event) => copyLink(event.target), "copy"));
  if (store.word("group", row) && !view.newest) bar.append(action("Compare the group", () => openGroup(row), "compare"));
  bar.append(closeButton());
  const parts = [
    make("header", "dialog-top", make("h2", "", short(name, 200) || `Sample ${row}`), bar),
    factsOf(store, row, texts),
    termsOf(store, row),
    judgesOf(store, row, texts?.said || []),
    ...partsOf(store, row, store.word("how", row), "", texts?.parts),
    ...criteriaOf(store, row, (texts?.said || []).filter((said) => said.type === "judge")),
    askedElsewhere(store, row, texts?.said || []),
  ];
  if (texts === null) {
    parts.push(make("p", "muted", "The texts of this sample are not in the page: it would have become too large. They are in the ledger; `referee report --texts-mb` allows more."));
    return parts;
  }
  if (!texts.response && texts.response_digest) {
    parts.push(make("p", "muted", "The ledger holds no texts ([ledger] content = false)."));
  }
  if (texts.why) parts.push(block("Why, in the judge's words", visible(texts.why), "why", true));
  if (texts.detail) parts.push(block("Why there is no score", visible(texts.detail), "detail", true));
  if (texts.prompt || texts.response || texts.reference) parts.push(make("h3", "", "The rollout"));
  const more = texts.more || {};
  if (texts.prompt) parts.push(textOrTurns("Prompt", texts.prompt, more.prompt, "prompt"));
  if (texts.response) parts.push(textOrTurns("Response", texts.response, more.response, "response"));
  if (more.tools) parts.push(toolsOf(more.tools));
  if (texts.reference) parts.push(block("Reference", visible(texts.reference), "reference", true));
  if (texts.asked || texts.reply) parts.push(make("h3", "", "What the judge saw and said"));
  if (texts.system) parts.push(block("System message", visible(own(store.systems, texts.system) ?? `(text ${texts.system} is not in the ledger)`), "system", false));
  if (texts.asked) parts.push(block("Judge prompt, with its fences", fenced(texts.asked), "asked", true));
  if (texts.reply) parts.push(block("Raw reply", visible(texts.reply), "reply", true));
  for (const said of texts.said || []) parts.push(...saidBy(store, said, howOf(store, row, texts.said, said.judge)));
  return parts;
}

// The clipboard may be barred to a page from a file: then the address bar has the link.
function copyLink(button) {
  const copied = navigator.clipboard ? navigator.clipboard.writeText(location.href) : Promise.reject();
  copied.then(() => (button.textContent = "Copied"), () => (button.textContent = "The link is in the address bar"));
}

// Several judges: what each said, and what it adds to the reward.
function judgesOf(store, row, said) {
  const { judges } = store.meta;
  if (!judges.length) return null;
  const cells = (tag, texts) => make("tr", "", ...texts.map((text) => make(tag, "", text)));
  const lines = judges.map((name, at) => {
    const line = said.find((one) => one.type === "judge" && one.judge === name) ?? {};
    const score = store.number(`score-${at}`, row);
    const weight = shown.weights.get(name) ?? null;
    return cells("td", [short(name), score === null ? "none" : number(score, 2), number(store.number(`value-${at}`, row)), number(weight), number(store.number(`adds-${at}`, row)),
      short([line.model, line.endpoint].filter(Boolean).join(" at ")), line.cost ? money(line.cost) : "", short(line.why || [line.unscored, line.detail].filter(Boolean).join(": "), 400)]);
  });
  return make("table", "judges", make("thead", "", cells("th", ["Judge", "Score", "of 1", "Weight", "Adds", "Model", "Cost", "Why"])), make("tbody", "", ...lines));
}

// How the verdict of the judge that asked came about.
function howOf(store, row, said, judge) {
  return said.find((line) => line.type === "judge" && line.judge === judge)?.how ?? store.word("how", row);
}

// What one judge, or one question of it, was shown and answered.
function saidBy(store, line, how) {
  const title = line.type === "ask" ? `${short(line.judge)} asked: ${answerOf(line, how)}` : `What ${short(line.judge)} saw and said`;
  const parts = [];
  if (line.system) parts.push(block("System message", visible(own(store.systems, line.system) ?? `(text ${line.system} is not in the ledger)`), "system", false));
  if (line.asked) parts.push(block("Judge prompt, with its fences", fenced(line.asked), "asked", line.type === "judge"));
  if (line.reply) parts.push(block("Raw reply", visible(line.reply), "reply", true));
  return parts.length ? [make("h3", "", title), ...parts] : [];
}

function answerOf(line, how) {
  if (line.value === undefined) return short(line.unscored ?? "");
  if (how === "listwise") return (line.parts ?? []).map((part) => number(part.value, 2)).join(", ");
  if (how === "pairwise") return line.value === 0.5 ? "a tie" : `the ${line.value ? "first" : "second"} is better`;
  return number(line.score, 2);
}

function block(title, nodes, name, open) {
  const element = make("details", "text", make("summary", "", title), make("pre", name, ...nodes));
  element.open = open;
  return element;
}

function facts(pairs) {
  const list = make("dl", "facts");
  for (const [name, value] of pairs) {
    if (value === null || value === "" || value === "–") continue;
    list.append(make("div", "", make("dt", "", name), make("dd", "", plain(value))));
  }
  return list;
}

function factsOf(store, row, texts) {
  const at = (name) => store.number(name, row);
  const step = at("step");
  const value = at("value");
  return facts([
    ["Score", value === null ? "none" : store.meta.judges.length ? `${number(value)} of 1` : `${number(at("score"), 2)} (${number(value)} of 1)`],
    ["Not scored", store.word("reason", row)],
    ["Read from", store.word("how", row)],
    ["Uncertainty", at("uncertainty") === null ? "" : store.word("how", row) === "listwise" ? `${number(at("uncertainty"))} over the orders` : `${number(at("uncertainty"))} nats`],
    ["Step", step === null ? "" : `${step}`],
    ["Group", store.word("group", row)],
    ["Came from", store.word("origin", row)],
    ["Endpoint", store.word("endpoint", row)],
    ["Model", store.word("model", row)],
    ["Attempts", at("attempts") ? `${at("attempts")}` : ""],
    ["Latency", seconds(at("latency"))],
    ["Queued", seconds(at("queued"))],
    ["Tokens", at("tokens_in") ? `${number(at("tokens_in"), 0)} in, ${number(at("tokens_out"), 0)} out` : ""],
    ["Cost", at("cost") ? money(at("cost")) : ""],
    ["Cut off", at("truncated") ? "at its token limit" : ""],
    ["Settled", at("wall") ? moment(at("wall")) : ""],
    ["Request", texts?.request_id ?? ""],
    ["Cache key", texts?.key ?? ""],
    ["Digest of the response", texts?.response_digest ?? ""],
    ...Object.entries(texts?.more?.columns ?? {}).slice(0, MOST_FACTS).map(([name, value]) => [short(name, 24), short(typeof value === "string" ? value : JSON.stringify(value), 80)]),
  ]);
}

// reward = rule + judge - penalty, as a sum one can follow.
function termsOf(store, row) {
  const at = (name) => store.number(name, row);
  const filled = store.word("filled", row);
  const term = (sign, name, value, about = "") => make("div", "term", make("span", "sign", sign), make("b", "", value), make("span", "muted", name), about ? make("small", "muted", about) : null);
  const length = at("length") === null ? "" : `${number(at("length"), 0)} tokens${at("median") === null ? "" : `, median ${number(at("median"), 1)}`}`;
  const box = make("div", "terms");
  if (filled) {
    box.append(term("", `reward, supplied by the missing policy (${plain(filled)})`, number(at("reward"))));
  } else if (at("reward") === null) {
    box.append(term("", view.newest ? "no reward so far" : "no reward was given for this sample", "none"));
  } else {
    box.append(
      term("", "rule", number(at("rule"))),
      ...(store.meta.judges.length ? store.meta.judges.map((name, place) => term("+", short(name), number(at(`adds-${place}`)))) : [term("+", "judge", number(at("judge")))]),
      term("−", "length penalty", number(at("penalty") ?? 0), length),
      term("=", "reward", number(at("reward"))),
    );
  }
  return box;
}

async function groupView(row) {
  const { store } = view;
  const all = store.siblings(row);
  const by = (name, a, b) => (store.number(name, b) ?? -1e9) - (store.number(name, a) ?? -1e9);
  const members = all.slice().sort((a, b) => by("value", a, b) || by("reward", a, b) || a - b).slice(0, MOST_SIBLINGS);
  const texts = await Promise.all(members.map((member) => store.texts(member)));
  const step = store.number("step", row);
  const name = store.word("group", row);
  const first = texts.find((found) => found !== null && found.prompt);
  const scores = all.map((member) => store.number("score", member)).filter((score) => score !== null);
  const spread = scores.length ? `scores from ${number(Math.min(...scores), 2)} to ${number(Math.max(...scores), 2)}` : "no scores";
  const bar = make("div", "actions", action("Back to the sample", () => openSample(row, opened.at), "back"), action("List only this group", () => {
    byId("detail").close();
    onlyGroup(name, step);
  }, "only"), closeButton());
  const parts = [
    make("header", "dialog-top", make("h2", "", `Group ${short(name, 200)}${step === null ? "" : `, step ${step}`}`), bar),
    make("p", "muted", `${plural(all.length, "sample")}, ${spread}, best score first.${all.length > members.length ? ` The first ${members.length} are shown.` : ""}`),
  ];
  if (first) parts.push(textOrTurns("Prompt", first.prompt, first.more?.prompt, "prompt"));
  parts.push(...groupTable(store, members, texts));
  parts.push(make("div", "siblings", ...members.map((member, at) => siblingCard(store, member, texts[at], member === row))));
  return parts;
}

function siblingCard(store, row, texts, chosen) {
  const value = store.number("value", row);
  const id = store.heads === null ? "" : store.heads[row][0];
  const card = make(
    "article",
    chosen ? "sibling chosen" : "sibling",
    make("header", "", action(short(id) || `Sample ${row}`, () => openSample(row), "link"),
      value === null ? make("span", "tag bad", short(store.word("reason", row))) : make("span", "score", make("b", "", number(store.number("score", row), 2)))),
    termsOf(store, row),
  );
  if (texts === null) card.append(make("p", "muted", "Text not in the page."));
  else {
    if (texts.why || texts.detail) card.append(make("p", "why", ...visible(texts.why || texts.detail)));
    const turns = turnsOf(texts.more?.response);
    if (turns) card.append(...turns);
    else if (texts.response) card.append(make("pre", "response", ...visible(texts.response)));
  }
  return card;
}
