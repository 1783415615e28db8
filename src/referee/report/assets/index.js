// The index of runs: a table to sort and filter, and two picked runs side by side. Texts stay texts.

const byId = (name) => document.getElementById(name);
const book = { index: null, key: "began", down: true, picked: [], drawing: 0 };

const COLUMNS = [
  ["began", "When", (run) => run.began || null],
  ["name", "Run", (run) => run.name],
  ["judge", "Judge", judgeOf],
  ["samples", "Samples", (run) => run.metrics.samples ?? null],
  ["unscored", "Not scored", (run) => run.unscored_share],
  ["score", "Mean score", (run) => (run.metrics.scored ? run.metrics.score_mean : null)],
  ["", "Trend", null],
  ["cost", "Cost", (run) => (run.priced ? run.metrics.cost_usd : null)],
  ["waited", "Waited", (run) => (run.trainer && !run.trouble ? run.metrics.wait_fraction : null)],
  ["findings", "Findings", (run) => 1e6 * run.alarms + 1000 * many(run, "bad") + many(run, "warn")],
];
// What is laid side by side as numbers, and as curves over the steps of both.
const NUMBERS = [
  ["Samples", (run) => number(run.metrics.samples, 0)],
  ["Not scored", (run) => percent(run.unscored_share)],
  ["Mean score", nativeScore],
  ["Standard deviation, of 1", (run) => number(run.metrics.score_std)],
  ["Mean reward", (run) => number(run.metrics.reward_mean)],
  ["Groups without spread", (run) => percent(run.metrics.flat_group_share)],
  ["Cost", costOf],
  ["Cost of 1,000 samples", (run) => (run.priced && run.metrics.samples ? money((1000 * run.metrics.cost_usd) / run.metrics.samples) : "–")],
  ["Latency, half within", (run) => seconds(run.metrics.latency_p50_s)],
  ["Latency, 95 % within", (run) => seconds(run.metrics.latency_p95_s)],
  ["Requests, throttled", (run) => `${number(run.metrics.requests, 0)}, ${number(run.metrics.throttled, 0)}`],
  ["Trainer waited", (run) => (run.trainer ? percent(run.metrics.wait_fraction) : "–")],
  ["Took", (run) => seconds(run.metrics.elapsed_s)],
];
const CURVES = [
  ["score_mean", "Mean score", "score, of 1", {}],
  ["reward_mean", "Mean reward", "reward", PLAIN],
  ["unscored", "Not scored", "share", SHARE],
  ["cost", "Cost", "US dollars a step", { rangemode: "tozero", tickprefix: "$", ...PLAIN }],
  ["wait_fraction", "Trainer waited", "share of the step", SHARE],
];

function many(run, level) {
  return run.findings.filter((finding) => finding.level === level).length;
}

function judgeOf(run) {
  return [run.kind, [...new Set(run.models)].join(", ")].filter(Boolean).join(" by ");
}

function nativeScore(run) {
  return run.metrics.scored ? `${number(run.low + run.metrics.score_mean * (run.high - run.low), 2)} (${number(run.low)} to ${number(run.high)})` : "–";
}

function costOf(run) {
  return run.priced ? money(run.metrics.cost_usd) : "unknown";
}

function textOf(run) {
  return [run.name, judgeOf(run), run.digest, run.trouble, ...run.findings.map((finding) => finding.text)].join("\n").toLowerCase();
}

// The mean score over the steps as a line; without steps, how often each score was given, as bars.
function spark(run) {
  const svg = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const known = (run.curves.score_mean ?? []).map((value, at) => [run.x[at], value]).filter(([, value]) => value !== null);
  const bars = run.bins ?? [];
  const most = Math.max(...bars, 0);
  if (known.length < 2 && !most) return "";
  const about = known.length < 2 ? "verdicts from the lowest to the highest score" : `mean score from ${number(known[0][1])} to ${number(known.at(-1)[1])} of 1, over ${plural(run.steps, "step")}`;
  const element = svg("svg", { class: "spark", viewBox: "0 0 92 24", role: "img", "aria-label": about });
  const title = svg("title", {});
  title.textContent = about;
  element.append(title);
  if (known.length > 1) {
    const [first, last] = [known[0][0], known.at(-1)[0]];
    const low = Math.min(...known.map(([, value]) => value));
    const span = Math.max(...known.map(([, value]) => value)) - low;
    element.append(svg("polyline", { points: known.map(([x, value]) => `${(90 * (x - first)) / (last - first) + 1},${span ? 22 - (20 * (value - low)) / span : 12}`).join(" ") }));
  } else {
    const width = 92 / bars.length;
    bars.forEach((count, at) => element.append(svg("rect", { x: at * width, width: Math.max(1, width - 1), y: 24 - (24 * count) / most, height: (24 * count) / most })));
  }
  return element;
}

function nameCell(run) {
  const words = run.page ? make("a", "", short(run.name, 80)) : make("b", "", short(run.name, 80));
  if (run.page) words.href = `./${run.page}`;
  const cell = make("td", "", words);
  if (run.page && !run.stale) return cell;
  cell.append(make("details", "", make("summary", "", run.stale ? "page older than the run" : "no page yet"), make("code", "", plain(run.command))));
  return cell;
}

function rowElement(run) {
  const pick = make("input");
  pick.type = "checkbox";
  pick.checked = book.picked.includes(run.name);
  pick.setAttribute("aria-label", `Compare ${short(run.name)}`);
  pick.addEventListener("change", () => choose(run.name, pick.checked));
  const worst = run.findings[0];
  const counts = ["bad", "warn"].filter((level) => many(run, level)).map((level) => make("b", level, `${many(run, level)} ${level === "bad" ? "red" : "orange"} `));
  if (run.alarms) counts.unshift(make("b", "bad", `${plural(run.alarms, "alarm")} `));
  const found = run.trouble ? [make("span", "bad", short(run.trouble, 200))] : worst ? [...counts, make("div", "muted", short(worst.text, 160))] : ["none"];
  const when = make("div", "", pick, run.began ? ` ${moment(run.began).slice(0, 16)}` : " –");
  const cells = [when, null, short(judgeOf(run), 60), number(run.metrics.samples ?? null, 0), percent(run.unscored_share), nativeScore(run), spark(run), costOf(run), run.trainer ? percent(run.metrics.wait_fraction) : "–"];
  const element = make("tr", pick.checked ? "picked" : "", ...cells.map((cell) => (cell === null ? nameCell(run) : make("td", "", cell))), make("td", "", ...found));
  [...element.children].forEach((cell, at) => (cell.dataset.label = COLUMNS[at][1]));
  element.dataset.run = run.name;
  return element;
}

function drawRows() {
  const words = byId("query").value.trim().toLowerCase();
  const [kind, level] = [byId("kind").value, byId("level").value];
  const fits = (run) => (!words || run.text.includes(words)) && (!kind || run.kind === kind)
    && (!level || (level === "bad" ? many(run, "bad") > 0 : (run.findings.length > 0 || run.trouble !== "") === (level === "any")));
  const value = COLUMNS.find(([key]) => key === book.key)[2];
  const rows = book.index.rows.filter(fits).map((run) => [value(run), run]);
  // What has no number comes last either way.
  rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : (a < b ? -1 : a > b ? 1 : 0) * (book.down ? -1 : 1)));
  byId("head").replaceChildren(...COLUMNS.map(([key, text]) => {
    if (!key) return make("th", "", text);
    const button = make("button", "", text);
    button.type = "button";
    button.addEventListener("click", () => {
      book.down = book.key === key ? !book.down : key !== "name" && key !== "judge";
      book.key = key;
      drawRows();
    });
    const cell = make("th", "", button);
    if (key === book.key) cell.setAttribute("aria-sort", book.down ? "descending" : "ascending");
    return cell;
  }));
  byId("list").replaceChildren(...rows.map(([, run]) => rowElement(run)));
  byId("count").textContent = `${number(rows.length, 0)} of ${plural(book.index.rows.length, "run")}.`;
}

// The two that were picked last.
function choose(name, wanted) {
  book.picked = book.picked.filter((other) => other !== name);
  if (wanted) book.picked = [...book.picked, name].slice(-2);
  drawRows();
  drawSide().catch(showTrouble);
}

function settingsTable(a, b) {
  const names = [...new Set([...Object.keys(a.settings), ...Object.keys(b.settings)])].filter((name) => own(a.settings, name) !== own(b.settings, name)).sort();
  if (!names.length) return make("p", "", "All settings are the same.");
  return tableOf({ head: ["Setting", "A", "B"], rows: names.map((name) => [short(name, 80), short(own(a.settings, name, "–"), 200), short(own(b.settings, name, "–"), 200)]) }, "judges differ");
}

function curvePanels(runs, theme) {
  const colours = [theme.blue, theme.orange];
  const name = (at) => `${"AB"[at]}: ${label(short(runs[at].name, 36))}`;
  const panels = CURVES.filter(([field]) => runs.every((run) => (run.curves[field] ?? []).filter((value) => value !== null).length > 1) && runs.some((run) => run.curves[field].some((value) => value))).map(([field, title, unit, axis]) => ({
    title,
    data: runs.map((run, at) => line(run.x, run.curves[field], name(at), colours[at])),
    layout: { xaxis: { title: "step" }, yaxis: { title: unit, ...axis } },
  }));
  // Scales differ: tenths of each.
  const shares = runs.map((run) => {
    const tenths = new Array(10).fill(0);
    run.bins.forEach((count, place) => (tenths[Math.min(9, Math.floor(10 * (run.levels ? place / (run.levels - 1) : (place + 0.5) / run.bins.length) + 1e-9))] += count / Math.max(1, run.metrics.scored)));
    return tenths;
  });
  if (runs.every((run) => run.metrics.scored)) panels.push({
    title: "How often was each score given?",
    data: shares.map((share, at) => bars(share.map((_, place) => `${place / 10}–${(place + 1) / 10}`), share, name(at), colours[at], { hovertemplate: "%{y:.0%}" })),
    layout: { xaxis: { title: "score, of 1", type: "category" }, yaxis: { title: "share of the verdicts", ...SHARE }, barmode: "group" },
  });
  return panels;
}

async function drawSide() {
  const drawing = ++book.drawing;
  const runs = book.picked.map((name) => book.index.rows.find((run) => run.name === name)).filter((run) => run && !run.trouble);
  delete document.body.dataset.charts;
  byId("picked").textContent = runs.length === 2 ? `A is ${short(runs[0].name, 100)}, B is ${short(runs[1].name, 100)}.` : `Tick two runs above to lay them side by side${runs.length ? ": one more" : ""}.`;
  byId("panels").replaceChildren();
  if (runs.length === 2) {
    const panel = (title, ...content) => make("section", "panel", make("h2", "", title), ...content);
    const theme = themeNow();
    const charts = curvePanels(runs, theme).map((chart) => ({ chart, element: make("div", "chart") }));
    byId("panels").append(
      panel("Numbers", tableOf({ head: ["", "A", "B"], rows: NUMBERS.map(([name, say]) => [name, ...runs.map(say)]) }, "judges differ")),
      panel("Settings that differ", make("div", "scroll", settingsTable(...runs))),
      ...charts.map(({ chart, element }) => panel(chart.title, element)),
    );
    for (const { chart, element } of charts) {
      await drawPanel({ chart }, element, theme);
      if (drawing !== book.drawing) return;
    }
  }
  document.body.dataset.charts = runs.length === 2 ? "drawn" : "none";
}

function showTrouble(error) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `This page could not be drawn in full: ${error?.message ?? error}`;
}

async function start() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old (no DecompressionStream)");
  const index = (book.index = await unpackJson("index"));
  for (const run of index.rows) run.text = textOf(run);
  const kinds = [...new Set(index.rows.map((run) => run.kind))].filter(Boolean).sort();
  byId("kind").replaceChildren(...[["", "all"], ...kinds.map((kind) => [kind, short(kind, 40)])].map(([value, text]) => {
    const option = make("option", "", text);
    option.value = value;
    return option;
  }));
  byId("runs").textContent = `Runs in ${plain(index.folder)}. A dash in Waited: no trainer, a file was judged.`;
  byId("foot").textContent = "Everything is in this file; it loads nothing. Names of runs link to their own pages, which stand beside it.";
  for (const id of ["query", "kind", "level"]) for (const event of ["input", "change"]) byId(id).addEventListener(event, drawRows);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  drawRows();
  await loadPlotly();
  setUpTheme(() => drawSide().catch(showTrouble));
  delete document.body.dataset.busy;
}

start().catch(showTrouble);
