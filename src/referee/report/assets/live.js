// The live page: asks for the run's state every two seconds and shows it. Charts and their words are the report's own.

const EVERY = 2000;
const live = { state: null, drawnLines: -1, drawing: 0, panels: new Map(), samples: new Map(), theme: "auto" };
const part = (id) => document.getElementById(id);

function showNumbers({ report, now, files, behind, path, skipped, unknown, wall }) {
  const { metrics, cost, scale } = report;
  const level = (panel) => report.findings.find((finding) => finding.panel === panel)?.level ?? "";
  const native = scale.low + metrics.score_mean * (scale.high - scale.low);
  part("tiles").replaceChildren(
    tile("Samples", number(metrics.samples, 0), now.step === null ? "no steps named" : `step ${now.step}`),
    tile("Speed", `${number(now.samples_per_s, 1)}/s`, `${number(now.in_flight, 0)} of ${number(now.limit, 0)} in flight, ${number(now.queued, 0)} queued`, level("limits")),
    tile("Scored", percent(scoredShare(metrics)), notScored(metrics), level("unscored")),
    tile("Mean score", metrics.scored ? number(native, 2) : "–", `from ${scale.low} to ${scale.high}`, level("scores")),
    tile("Mean reward", rewardsIn(report) ? number(metrics.reward_mean, 3) : "–", `${number(metrics.reward_missing, 0)} without one`),
    tile("Latency", seconds(metrics.latency_p50_s), `95 % within ${seconds(metrics.latency_p95_s)}`),
    tile("Cost", cost.priced ? money(cost.spent) : "unknown", cost.priced ? `${money(metrics.saved_usd)} not spent` : "no prices given", level("cost")),
    ...(report.trainer ? [tile("Trainer waited", percent(metrics.wait_fraction), seconds(metrics.wait_s), level("wait"))] : []),
  );
  part("findings").replaceChildren(...report.findings.map((finding) => make("li", `finding ${finding.level}`, finding.text)));
  const last = now.last_s === null ? "nothing recorded yet" : `last record ${seconds(now.last_s)} ago`;
  part("runs").textContent = `${plain(path)}: ${files} ${files === 1 ? "file" : "files"}, ${last}${behind ? ", still reading what was there before" : ""}`;
  const bad = skipped + unknown;
  part("foot").textContent = `As of ${moment(wall)}.${bad ? ` ${number(bad, 0)} lines could not be read.` : ""}`;
}

function sampleElement(item) {
  const score = item.score === null ? make("span", "tag bad", plain(item.unscored)) : make("b", "", number(item.score, 2));
  const head = make("span", "cut", plain((item.response || item.why).slice(0, 160)));
  const summary = make("summary", "", make("span", "muted", item.step === null ? "–" : `${item.step}`), score, make("span", "cut muted", plain(item.id)), head);
  const texts = [["prompt", item.prompt], ["response", item.response], ["judge", item.why]].filter(([, text]) => text);
  const element = make("details", "", summary);
  // The texts are put in when they are looked at: most never are.
  element.addEventListener("toggle", () => {
    if (element.open && element.childElementCount === 1) element.append(...texts.map(([name, text]) => make("div", "", make("small", "muted", name), make("pre", "", ...visible(text)))));
  });
  return element;
}

// Elements of samples already shown stay as they are, so that an opened one stays open.
function showSamples(newest) {
  const kept = new Map();
  const elements = newest.map((item) => {
    const key = `${item.seq}`;
    const element = live.samples.get(key) ?? sampleElement(item);
    kept.set(key, element);
    return element;
  });
  live.samples = kept;
  part("newest").replaceChildren(...elements);
}

function panelElement(panel) {
  const chart = make("div", "chart");
  chart.setAttribute("role", "img");
  const words = make("p", "muted");
  const table = make("div", "scroll");
  const element = make("section", panel.table ? "panel wide" : "panel", make("h2", "", panel.title), words, chart, table);
  element.id = `panel-${panel.id}`;
  return { chart, words, table, element };
}

async function drawLive() {
  if (typeof Plotly === "undefined" || live.state === null || document.hidden) return;
  const drawing = ++live.drawing;
  const { report, lines } = live.state;
  const theme = themeNow();
  const panels = panelsOf(report, theme);
  // All of them stand before the first is drawn, so that each gets the width it will keep.
  const known = live.panels.size;
  for (const panel of panels) if (!live.panels.has(panel.id)) live.panels.set(panel.id, panelElement(panel));
  if (live.panels.size > known) part("panels").append(...panels.map((panel) => live.panels.get(panel.id).element));
  for (const panel of panels) {
    const { chart, words, table } = live.panels.get(panel.id);
    words.textContent = panel.note;
    if (panel.table) table.replaceChildren(tableOf(panel.table));
    chart.setAttribute("aria-label", `${panel.title} ${panel.note}`);
    if (panel.id === "length" && panel.chart) for (const trace of panel.chart.data) if (trace.hovertemplate) trace.hovertemplate = "%{x} tokens, score %{y:.2f}<extra></extra>";
    await drawPanel(panel, chart, theme);
    if (drawing !== live.drawing) return; // a newer state is being drawn
  }
  live.drawnLines = lines;
  document.body.dataset.drawn = `${lines}`;
}

function trouble(text) {
  part("trouble").hidden = !text;
  part("trouble").textContent = text;
}

async function ask() {
  const answer = await fetch("data.json", { cache: "no-store", credentials: "same-origin" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

async function turn() {
  let wait = EVERY;
  let state;
  try {
    state = await ask();
  } catch (error) {
    trouble(`No news: ${error.message}. Trying again; is the command still running?`);
    return wait;
  }
  trouble("");
  live.state = state;
  if (state.behind) wait = 0;
  showNumbers(state);
  showSamples(state.newest);
  if (live.drawnLines !== state.lines) await drawLive();
  return wait;
}

async function follow() {
  for (;;) {
    let wait = EVERY;
    try {
      wait = await turn();
    } catch (error) {
      trouble(`This page could not be drawn in full: ${error.message}`);
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

function setUpColours() {
  const button = part("theme");
  const use = () => {
    if (live.theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = live.theme;
    button.textContent = `Colours: ${live.theme}`;
    drawLive().catch((error) => trouble(error.message));
  };
  button.addEventListener("click", () => {
    live.theme = THEMES[(THEMES.indexOf(live.theme) + 1) % THEMES.length];
    use();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", use);
  document.addEventListener("visibilitychange", use);
  use();
}

setUpColours();
follow();
