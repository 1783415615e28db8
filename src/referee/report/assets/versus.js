// The page of a comparison: overview, intervals, every pair. Everything is said of b, the second of the two.

const STEP = 50;
const state = { pairs: [], found: [], drawn: 0, names: ["a", "b"], by: [], scored: false };
const part = (id) => document.getElementById(id);

// Outcome by name: of the data, of the tag's colour, and in the list of choices.
function outcomeOf(pair) {
  if (pair.outcome === null) return "none";
  return pair.outcome === 1 ? "won" : pair.outcome === 0 ? "lost" : "tied";
}
const WORDS = { won: "won", lost: "lost", tied: "tie", none: "unscored" };

function share(value) {
  return value === null ? "–" : `${(value * 100).toFixed(1)} %`;
}

function between({ low, high }) {
  return low === null ? "" : `${(low * 100).toFixed(1)} to ${(high * 100).toFixed(1)}`;
}

function levelOf({ low, high }) {
  if (low === null) return "";
  return low > 0.5 ? "ahead" : high < 0.5 ? "behind" : "";
}

function drawOverview(result) {
  const { about, position, lengths } = result;
  const compared = result.wins + result.ties + result.losses;
  const warned = (panel) => (result.findings.some((finding) => finding.panel === panel && finding.level !== "good") ? "warn" : "");
  const inside = result.win_rate.low === null ? "no interval" : `95 % interval ${between(result.win_rate)}`;
  const tiles = [
    tile(`Win rate of ${short(state.names[1], 24)}`, share(result.win_rate.value), inside, levelOf(result.win_rate) === "behind" ? "bad" : ""),
    tile("Compared", number(compared, 0), `${plural(result.prompts, "prompt")}, ${number(result.unscored, 0)} unscored`, result.unscored_share > 0.2 ? "bad" : result.unscored ? "warn" : ""),
  ];
  if (position) tiles.push(tile("Shown first wins", share(position.first_wins.value), position.agree === null ? between(position.first_wins) : `${between(position.first_wins)}; orders agree in ${percent(position.agree)}`, warned("position")));
  if (result.scores) tiles.push(tile("Mean score", number(result.scores.mean_b, 3), `${short(state.names[0], 24)} ${number(result.scores.mean_a, 3)}, from 0 to 1`));
  tiles.push(
    tile("Longer wins", share(lengths.longer_wins.value), `${number(lengths.mean_b, 0)} against ${number(lengths.mean_a, 0)} ${lengths.unit}`, warned("lengths")),
    tile("Cost", about.cost_usd === null ? "unknown" : money(about.cost_usd), `${plural(about.requests, "request")}, ${plural(about.from_cache, "pair")} from cache`),
  );
  part("tiles").replaceChildren(...tiles);
  part("findings").replaceChildren(...result.findings.map((finding) => make("li", `finding ${finding.level}`, plain(finding.text))));
  const how = about.by === "comparison" ? `compared by ${about.judge}, ${about.both_orders ? "each pair in both orders" : "each pair in one order"}` : `scored by ${about.judge} (${about.kind}), the higher score wins`;
  const models = about.models.length ? ` Model: ${about.models.map((name) => short(name)).join(", ")}.` : "";
  const left = about.unmatched[0] + about.unmatched[1];
  part("runs").textContent = `${plain(how)}.${models}${left ? ` ${plural(left, "row")} without a partner left out.` : ""}`;
}

function drawSplit(result) {
  const counts = [["won", result.wins], ["tied", result.ties], ["lost", result.losses], ["none", result.unscored]];
  const bar = make("div", "split", ...counts.map(([name, count]) => {
    const piece = make("span", name);
    piece.style.width = `${(100 * count) / Math.max(1, result.pairs)}%`;
    return piece;
  }));
  const ties = result.position?.order_ties ? ` (${number(result.position.order_ties, 0)} changed with the order)` : "";
  const words = { won: plural(result.wins, "win"), tied: plural(result.ties, "tie") + ties, lost: result.losses === 1 ? "1 loss" : `${number(result.losses, 0)} losses`, none: `${number(result.unscored, 0)} unscored` };
  const key = make("div", "key", ...counts.filter(([, count]) => count).map(([name]) => make("span", "", make("span", `mark ${name}`), words[name])));
  part("tiles").after(bar, key);
}

function track(rate) {
  const element = make("div", `track ${levelOf(rate)}`, make("span", "half"));
  if (rate.low !== null) {
    const span = make("span", "span");
    span.style.left = `${100 * rate.low}%`;
    span.style.width = `${100 * (rate.high - rate.low)}%`;
    element.append(span);
  }
  if (rate.value !== null) {
    const dot = make("span", "dot");
    dot.style.left = `${100 * rate.value}%`;
    element.append(dot);
  }
  return element;
}

function rateRow(name, counts) {
  const rate = counts.win_rate;
  const said = make("span", "", make("b", "", share(rate.value)), " ", make("span", "muted within", between(rate)));
  const outcomes = make("span", "muted cut", `${counts.wins} / ${counts.ties} / ${counts.losses}${counts.unscored ? `, ${counts.unscored} unscored` : ""}`);
  const row = make("div", "rate", make("span", "cut", plain(name)), track(rate), said, outcomes);
  row.title = `${plain(name)}: ${plural(counts.pairs, "pair")}`;
  return row;
}

function panel(id, title, note, rows) {
  const head = make("div", "rate head", make("span", ""), make("div", "scale", make("span", "", "0"), make("span", "", "50"), make("span", "", "100 %")), make("span", "", "win rate"), make("span", "", "won / tied / lost"));
  const element = make("section", "panel", make("h2", "", title), make("p", "muted", note), make("div", "rates scroll", head, ...rows));
  element.id = `panel-${id}`;
  return element;
}

function drawPanels(result) {
  const [a, b] = state.names.map((name) => short(name, 30));
  const all = rateRow("all", result);
  const found = Object.entries(result.by).map(([column, slices]) => panel(`by-${column}`, `Where does ${b} win? By ${short(column)}`, `Win rate of ${b} against ${a} with its 95 % interval, by value; right of the dashed line ${b} is ahead.`, [all.cloneNode(true), ...slices.map((slice) => rateRow(slice.value, slice))]));
  found.push(panel("lengths", "Do wins follow length?", `Win rate where ${b}'s answer is shorter, about as long (within a tenth), or longer. If the judge pays for length, only the last is high.`, [all, ...result.lengths.by.map((slice) => rateRow(slice.value, slice))]));
  part("panels").replaceChildren(...found);
}

function pairElement(pair) {
  const name = outcomeOf(pair);
  const words = [...state.by.map((column) => own(pair.columns, column)).filter((value) => value !== null), `length ${pair.b.length} : ${pair.a.length}`];
  const element = make("details", "", make("summary", "", make("span", `tag ${name}`, WORDS[name]), make("span", "cut", plain(pair.prompt.slice(0, 300))), make("small", "muted cut", plain(words.join(" · ")))));
  // The texts are put in when they are looked at: most never are.
  element.addEventListener("toggle", () => {
    if (element.open && element.childElementCount === 1) element.append(insideOf(pair));
  });
  return element;
}

function insideOf(pair) {
  const sides = [pair.a, pair.b].map((side, at) => {
    const score = !state.scored || side.score === null ? "" : `, score ${number(side.score)}`;
    const won = pair.outcome !== null && pair.outcome === at ? ", preferred" : "";
    return make("div", "", make("h3", "", `${plain(state.names[at])} (line ${side.line}, length ${number(side.length, 0)}${score}${won})`), make("pre", "", ...visible(side.text)));
  });
  const said = pair.orders.map((order) => {
    const winner = order.winner ? plain(state.names[order.winner === "b" ? 1 : 0]) : "a tie";
    return make("p", "said", make("b", "", `${plain(state.names[order.first === "b" ? 1 : 0])} shown first: ${winner}. `), ...visible(order.why));
  });
  if (!pair.orders.length) for (const [at, side] of [pair.a, pair.b].entries()) if (side.why) said.push(make("p", "said", make("b", "", `${plain(state.names[at])}: `), ...visible(side.why)));
  if (pair.outcome === null) said.push(make("p", "said", make("b", "", `no verdict, ${plain(pair.unscored)}: `), ...visible(pair.detail)));
  return make("div", "inside", make("h3", "", "prompt"), make("pre", "", ...visible(pair.prompt)), make("div", "sides", ...sides), make("h3", "", "judge"), ...said);
}

function holds(pair, query) {
  return [pair.prompt, pair.a.text, pair.b.text, pair.a.id, pair.b.id, pair.a.why, pair.b.why, ...pair.orders.map((order) => order.why), ...Object.values(pair.columns)].some((text) => text.toLowerCase().includes(query));
}

function drawMore() {
  const next = state.found.slice(state.drawn, state.drawn + STEP);
  part("compared").append(...next.map(pairElement));
  state.drawn += next.length;
  const left = state.found.length - state.drawn;
  part("more").hidden = !left;
  part("more").textContent = `Show ${Math.min(STEP, left)} more`;
}

function apply() {
  const query = part("query").value.trim().toLowerCase();
  const outcome = part("outcome").value;
  const chosen = state.by.map((column, at) => [column, part(`by-${at}`).value]).filter(([, value]) => value !== "");
  state.found = state.pairs.filter((pair) => (!outcome || outcomeOf(pair) === outcome) && chosen.every(([column, value]) => `=${own(pair.columns, column, "(none)")}` === value) && (!query || holds(pair, query)));
  state.drawn = 0;
  part("compared").replaceChildren();
  drawMore();
  part("count").textContent = `${number(state.found.length, 0)} of ${plural(state.pairs.length, "comparison")}, the worst losses first.`;
}

function option(value, words) {
  const element = make("option", "", words);
  element.value = value;
  return element;
}

function setUpControls(result) {
  part("outcome").replaceChildren(option("", "all"), ...Object.entries(WORDS).filter(([name]) => state.pairs.some((pair) => outcomeOf(pair) === name)).map(([name, words]) => option(name, words)));
  for (const [at, column] of state.by.entries()) {
    const select = make("select", "", option("", "all"), ...result.by[column].map((slice) => option(`=${slice.value}`, short(slice.value))));
    select.id = `by-${at}`;
    part("controls").append(make("label", "", short(column), " ", select));
  }
  part("controls").addEventListener("input", apply);
  part("controls").addEventListener("submit", (event) => event.preventDefault());
  part("more").addEventListener("click", drawMore);
}

async function start() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old (no DecompressionStream)");
  setUpTheme();
  const { result, cut } = await unpackJson("versus");
  state.names = result.about.names;
  state.by = Object.keys(result.by);
  state.scored = result.about.by === "score";
  drawOverview(result);
  drawSplit(result);
  drawPanels(result);
  state.pairs = await unpackJson("pairs");
  setUpControls(result);
  apply();
  const how = { bootstrap: "Intervals by a bootstrap over prompts where there are enough, else Wilson's. ", wilson: "Intervals are Wilson's, over prompts. " }[result.interval] ?? "";
  part("foot").textContent = `${how}${plural(state.pairs.length, "comparison")}${cut ? `, of ${number(cut, 0)} only the beginnings of texts` : ""}. Everything is in this file; it loads nothing.`;
  delete document.body.dataset.busy;
  document.body.dataset.charts = "drawn";
}

start().catch((error) => {
  part("trouble").hidden = false;
  part("trouble").textContent = `This page could not be drawn in full: ${error.message}`;
});
