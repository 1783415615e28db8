// The live page: asks for the run's state every two seconds and shows it. Charts and their words are the report's own.

const EVERY = 2000;
const live = { state: null, drawnLines: -1, drawing: 0, samples: new Map(), restarts: 0, opening: 0 };
const byId = (id) => document.getElementById(id);
// What the view of a sample needs, as on the report page.
const view = { store: null, rows: [], newest: true };
const shown = { weights: new Map() };
const showTrouble = (error) => trouble(error.message);

function progressText({ step, progress: { samples, done, steps, begun, left_s } }) {
  const at = step === null ? "" : steps ? `${number(begun, 0)} of ${number(steps, 0)} steps` : `step ${step}`;
  const part_ = samples ? `of ${number(samples, 0)} (${percent(done / samples)})` : "";
  const left = left_s === null ? "" : left_s ? `about ${seconds(left_s)} left` : "all judged";
  return [part_, at, left].filter(Boolean).join(", ") || "no steps named";
}

function showNumbers({ report, now, files, behind, path, skipped, unknown, wall }) {
  const { metrics, cost, scale } = report;
  const level = (panel) => report.findings.find((finding) => finding.panel === panel)?.level ?? "";
  const native = scale.low + metrics.score_mean * (scale.high - scale.low);
  byId("tiles").replaceChildren(
    tile("Samples", number(now.progress.samples ? now.progress.done : metrics.samples, 0), progressText(now)),
    tile("Speed", `${number(now.samples_per_s, 1)}/s`, `${number(now.in_flight, 0)} of ${number(now.limit, 0)} in flight, ${number(now.queued, 0)} queued`, level("limits")),
    tile("Scored", percent(scoredShare(metrics)), notScored(metrics), level("unscored")),
    tile("Mean score", metrics.scored ? number(native, 2) : "–", `from ${scale.low} to ${scale.high}`, level("scores")),
    tile("Mean reward", rewardsIn(report) ? number(metrics.reward_mean, 3) : "–", `${number(metrics.reward_missing, 0)} without one`),
    tile("Latency", seconds(metrics.latency_p50_s), `95 % within ${seconds(metrics.latency_p95_s)}`),
    tile("Cost", cost.priced ? money(cost.spent) : "unknown", cost.priced ? `${money(metrics.saved_usd)} not spent` : "no prices given", level("cost")),
    ...(report.trainer ? [tile("Trainer waited", percent(metrics.wait_fraction), seconds(metrics.wait_s), level("wait"))] : []),
    ...auditTile(report, level("audit")),
  );
  byId("findings").replaceChildren(...report.findings.map((finding) => make("li", `finding ${finding.level}`, finding.text)));
  const last = now.last_s === null ? "nothing recorded yet" : `last record ${seconds(now.last_s)} ago`;
  byId("runs").textContent = `${plain(path)}: ${plural(files, "file")}, ${last}${behind ? ", still reading what was there before" : ""}`;
  const bad = skipped + unknown;
  byId("foot").textContent = `As of ${moment(wall)}.${bad ? ` ${plural(bad, "line")} could not be read.` : ""}`;
}

function sampleElement(item) {
  const score = item.score === null ? make("span", "tag bad", plain(item.unscored)) : make("b", "", number(item.score, 2));
  const head = make("span", "cut", plain(item.response.slice(0, 160)));
  const element = make("button", "sample", make("span", "muted", item.step === null ? "–" : `${item.step}`), score, make("span", "cut muted", plain(item.id)), make("span", "muted", plain(item.origin)), head);
  element.type = "button";
  element.addEventListener("click", () => openNewest(item.seq).catch(showTrouble));
  return element;
}

// What the record says of a sample comes when one is opened, for all that are listed then.
async function openNewest(seq) {
  const opening = ++live.opening;
  const { seqs, parts } = await ask("samples.json");
  if (opening !== live.opening) return;
  arrived.clear();
  for (const [name, text] of Object.entries(parts)) arrived.set(name, text);
  const store = await Store.open();
  await store.openHeads();
  if (opening !== live.opening) return;
  const row = seqs.indexOf(seq);
  if (row < 0) return fillDialog(() => Promise.reject(new Error("newer ones have taken its place here; it is in the ledger")));
  view.store = store;
  view.rows = seqs.map((_, at) => seqs.length - 1 - at);
  await openSample(row, view.rows.indexOf(row));
}

// Elements of samples already shown stay where they are, so that a click meets what it was meant for.
function showSamples({ newest, restarts }) {
  if (restarts !== live.restarts) for (const element of live.samples.values()) element.remove();
  const before = restarts === live.restarts ? live.samples : new Map();
  live.restarts = restarts;
  live.samples = new Map(newest.map((item) => [item.seq, before.get(item.seq) ?? sampleElement(item)]));
  for (const [seq, element] of before) if (!live.samples.has(seq)) element.remove();
  byId("newest").prepend(...newest.filter((item) => !before.has(item.seq)).map((item) => live.samples.get(item.seq)));
}

async function drawLive() {
  if (typeof Plotly === "undefined" || live.state === null || document.hidden) return;
  const drawing = ++live.drawing;
  const { report, lines } = live.state;
  const theme = themeNow();
  for (const panel of layPanels(byId("panels"), panelsOf(report, theme))) {
    if (panel.id === "length") for (const trace of panel.chart.data) if (trace.hovertemplate) trace.hovertemplate = "%{x} tokens, score %{y:.2f}<extra></extra>";
    await drawPanel(panel, board.elements.get(panel.id).chart, theme);
    if (drawing !== live.drawing) return; // a newer state is being drawn
  }
  live.drawnLines = lines;
  document.body.dataset.drawn = `${lines}`;
}

function trouble(text) {
  byId("trouble").hidden = !text;
  byId("trouble").textContent = text;
}

async function ask(name) {
  const answer = await fetch(name, { cache: "no-store", credentials: "same-origin" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

async function refresh() {
  let wait = EVERY;
  let state;
  try {
    state = await ask("data.json");
  } catch (error) {
    trouble(`No news: ${error.message}. Trying again; is the command still running?`);
    return wait;
  }
  trouble("");
  live.state = state;
  shown.weights = new Map(state.report.judges.map((judge) => [judge.name, judge.weight]));
  if (state.behind) wait = 0;
  showNumbers(state);
  showSamples(state);
  if (live.drawnLines !== state.lines) await drawLive();
  return wait;
}

async function follow() {
  for (;;) {
    let wait = EVERY;
    try {
      wait = await refresh();
    } catch (error) {
      trouble(`This page could not be drawn in full: ${error.message}`);
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

byId("detail").addEventListener("click", (event) => {
  if (event.target === byId("detail")) byId("detail").close();
});
const redraw = () => drawLive().catch((error) => trouble(error.message));
document.addEventListener("visibilitychange", redraw);
setUpTheme(redraw);
follow();
