// The list of samples: controls in, rows in view out. What is shown always follows from the controls as they stand:
// every event reads all of them, and a search that was overtaken is dropped.

const view = { store: null, rows: new Uint32Array(0), revision: 0, asked: "", judge: "" };
const CONTROLS = ["query", "judge", "reason", "origin", "score-from", "score-to", "step-from", "step-to", "group", "sort", "direction"];
const HEADINGS = [["value", "Score"], ["reward", "Reward", "num"], ["step", "Step", "num step"], ["group", "Group", "group"], ["", "Sample"], ["length", "Length", "num"], ["", "From"], ["", "Response"]];

function byId(name) {
  return document.getElementById(name);
}

function readControls() {
  const amount = (name) => {
    const value = byId(name).valueAsNumber;
    return Number.isNaN(value) ? null : value;
  };
  return {
    query: byId("query").value.trim(),
    judge: byId("judge").value,
    reason: byId("reason").value,
    origin: byId("origin").value,
    scoreFrom: amount("score-from"),
    scoreTo: amount("score-to"),
    stepFrom: amount("step-from"),
    stepTo: amount("step-to"),
    group: byId("group").value.trim(),
    own: [...byId("own").querySelectorAll("select")].map((select) => select.value),
    sort: byId("sort").value,
    down: byId("direction").value === "down",
  };
}

// The one way in. `busy` is there from the event until the newest revision is on the page.
//
// A field that loses the focus sends a second event for what is shown already, in the middle of the click that took the
// focus. Drawing again would put new rows under the mouse and lose that click, so what is asked for twice is drawn once.
function apply(again = false) {
  const state = readControls();
  const asked = JSON.stringify(state);
  const same = asked === view.asked && view.store !== null && !again;
  if (same && document.body.dataset.busy) return; // under way
  view.asked = asked;
  view.revision += 1;
  document.body.dataset.revision = view.revision;
  if (same) {
    document.body.dataset.shown = view.revision;
    return;
  }
  document.body.dataset.busy = "1";
  if (view.store === null) return; // opening the store ends with another call
  settle(view.revision, state).catch(showTrouble);
}

async function settle(revision, state) {
  const { store } = view;
  let rows = store.matches(state);
  if (state.query) {
    const current = () => revision === view.revision;
    byId("count").textContent = "Searching…";
    rows = await store.search(rows, state.query, current, (share) => {
      if (current()) byId("count").textContent = `Searching… ${percent(share)}`;
    });
    if (rows === null || !current()) return;
  }
  view.rows = store.ordered(rows, state.sort === "value" ? store.of(state, "value") : state.sort, state.down);
  byId("count").textContent = countText(store, view.rows, state);
  byId("list").scrollTop = 0;
  drawList(state.judge !== view.judge);
  document.body.dataset.shown = revision;
  delete document.body.dataset.busy;
}

function countText(store, rows, state) {
  const [values, scores] = [store.columns[store.of(state, "value")], store.columns[store.of(state, "score")]];
  const all = store.meta.rows;
  let total = 0;
  let scored = 0;
  for (const row of rows) {
    if (!Number.isNaN(values[row])) {
      total += scores[row];
      scored += 1;
    }
  }
  const mean = scored ? `, mean score ${number(total / scored, 2)}` : "";
  const kept = store.meta.with_texts;
  const texts = kept < all ? ` Texts of ${plural(kept, "sample")} are in the page; only those are searched.` : "";
  return `${number(rows.length, 0)} of ${plural(all, "sample")}${mean}.${texts}`;
}

function rowHeight() {
  return matchMedia("(max-width: 700px)").matches ? 64 : 36;
}

// Only rows in view, and a few around them, exist as elements. One that is right already stays: it may be under the mouse.
function drawList(afresh = false) {
  view.judge = byId("judge").value;
  const list = byId("list");
  const spacer = byId("spacer");
  const height = rowHeight();
  spacer.style.height = `${view.rows.length * height}px`;
  list.style.maxHeight = `${Math.max(3, view.rows.length) * height}px`;
  const first = Math.max(0, Math.floor(list.scrollTop / height) - 6);
  const last = Math.min(view.rows.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + 6);
  const there = new Map();
  for (const element of [...spacer.children]) {
    const at = Number(element.dataset.at);
    const stays = !afresh && at >= first && at < last && Number(element.dataset.row) === view.rows[at];
    if (stays && element.dataset.height === `${height}`) there.set(at, element);
    else element.remove();
  }
  let before = null;
  for (let at = first; at < last; at++) {
    let element = there.get(at);
    if (element === undefined) {
      element = rowElement(view.store, view.rows[at]);
      element.dataset.at = at;
      element.dataset.height = height;
      element.style.top = `${at * height}px`;
      element.style.height = `${height}px`;
      if (before === null) spacer.prepend(element);
      else before.after(element);
    }
    before = element;
  }
}

function rowElement(store, row) {
  const value = store.number(store.of(view, "value"), row);
  const reason = store.word("reason", row);
  const head = store.heads === null ? ["", ""] : store.heads[row];
  const meter = make("span", "meter");
  const fill = make("span", "fill");
  fill.style.width = `${Math.max(0, Math.min(1, value ?? 0)) * 100}%`;
  meter.append(fill);
  const score = make("span", "score", make("b", "", value === null ? "–" : number(store.number(store.of(view, "score"), row), 2)), meter);
  const end = value === null ? make("span", "tag bad", short(reason || "unscored")) : make("span", "tag", short(store.word("origin", row)));
  const step = store.number("step", row);
  const element = make(
    "button",
    value === null ? "row unscored" : "row",
    score,
    make("span", "num reward", number(store.number("reward", row), 2)),
    make("span", "num step", step === null ? "–" : `${step}`),
    make("span", "cut group", short(store.word("group", row))),
    make("span", "cut name", short(head[0])),
    make("span", "num length", number(store.number("length", row), 0)),
    end,
    make("span", "cut words", plain(head[1])),
  );
  element.type = "button";
  element.dataset.row = row;
  return element;
}

function setUpControls(store) {
  const options = (pairs) => pairs.map(([value, text]) => {
    const option = make("option", "", text);
    option.value = value;
    return option;
  });
  const choices = (name, pairs) => byId(name).replaceChildren(...options(pairs));
  choices("judge", [["", "all together"], ...store.meta.judges.map((name, at) => [`${at}`, short(name)])]);
  byId("judge").parentElement.hidden = store.meta.judges.length === 0;
  const reasons = store.words.reason.filter((word) => word).sort();
  choices("reason", [["", "all"], ["scored", "scored"], ["unscored", "not scored"], ...reasons.map((word) => [`=${word}`, `not scored: ${short(word)}`])]);
  byId("own").replaceChildren(...store.meta.own.map((name, at) => {
    const words = store.words[`own-${at}`].map((word, code) => [`${code}`, short(word) || "(none)"]).slice(store.columns[`own-${at}`].includes(0) ? 0 : 1);
    const select = make("select", "", ...options([["", "all"], ...words.sort((a, b) => a[1].localeCompare(b[1], "en", { numeric: true }))]));
    select.dataset.column = name;
    for (const event of ["input", "change"]) select.addEventListener(event, () => apply());
    return make("label", "", `${short(name, 24)} `, select);
  }));
  // What no sample has is neither a column nor a filter.
  byId("samples").classList.toggle("no-steps", store.columns.step.every(Number.isNaN));
  byId("samples").classList.toggle("no-groups", store.words.group.every((word) => !word));
  choices("origin", [["", "anywhere"], ...store.words.origin.slice().sort().map((word) => [word, short(word)])]);
}

function sortBy(key) {
  const direction = byId("direction");
  const same = byId("sort").value === key;
  direction.value = same && direction.value === "down" ? "up" : "down";
  byId("sort").value = key;
  apply();
}

function onlyGroup(name, step) {
  byId("group").value = `"${name}"`;
  if (step !== null) byId("step-from").value = byId("step-to").value = step;
  apply();
  byId("samples").scrollIntoView();
}

function listenToList() {
  for (const name of CONTROLS) {
    byId(name).addEventListener("input", () => apply());
    byId(name).addEventListener("change", () => apply());
  }
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => {
    byId("controls").reset();
    apply();
  });
  byId("columns").replaceChildren(...HEADINGS.map(([key, text, name]) => {
    if (!key) return make("span", "", text);
    const button = make("button", name, text);
    button.type = "button";
    button.tabIndex = -1;
    button.addEventListener("click", () => sortBy(key));
    return button;
  }));
  const list = byId("list");
  list.addEventListener("scroll", () => requestAnimationFrame(() => drawList()), { passive: true });
  new ResizeObserver(() => drawList()).observe(list);
  list.addEventListener("click", (event) => {
    const element = event.target.closest("[data-row]");
    if (element) openSample(Number(element.dataset.row), Number(element.dataset.at));
  });
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (move === undefined || !view.rows.length) return;
    event.preventDefault();
    const from = document.activeElement?.dataset?.at;
    focusRow(Math.max(0, Math.min(view.rows.length - 1, from === undefined ? 0 : Number(from) + move)));
  });
}

function focusRow(at) {
  const list = byId("list");
  const height = rowHeight();
  if (at * height < list.scrollTop) list.scrollTop = at * height;
  if ((at + 1) * height > list.scrollTop + list.clientHeight) list.scrollTop = (at + 1) * height - list.clientHeight;
  drawList();
  byId("spacer").querySelector(`[data-at="${at}"]`)?.focus({ preventScroll: true });
}
