// Puts the page together: overview, list, charts, in the order a reader needs them.

const shown = { report: null, drawing: 0, weights: new Map() };

function showTrouble(error) {
  const box = byId("trouble");
  box.hidden = false;
  box.textContent = `This page could not be drawn in full: ${error && error.message ? error.message : error}`;
}

function drawOverview(report) {
  const { metrics, cost, scale } = report;
  const level = (panel) => report.findings.find((finding) => finding.panel === panel)?.level ?? "";
  const native = scale.low + metrics.score_mean * (scale.high - scale.low);
  byId("tiles").replaceChildren(
    tile("Samples", number(metrics.samples, 0), [stepsText(report), report.times.length ? seconds(metrics.elapsed_s) : ""].filter(Boolean).join(", ")),
    tile("Scored", percent(scoredShare(metrics)), notScored(metrics), level("unscored")),
    tile("Mean score", metrics.scored ? number(native, 2) : "–", `from ${scale.low} to ${scale.high}`, level("scores")),
    tile("Mean reward", rewardsIn(report) ? number(metrics.reward_mean, 3) : "–", `${number(metrics.reward_missing, 0)} without one`),
    ...(report.times.length ? [tile("Latency", seconds(metrics.latency_p50_s), `95 % within ${seconds(metrics.latency_p95_s)}`)] : []),
    ...(cost.priced || report.runs.length ? [tile("Cost", cost.priced ? money(cost.spent) : "unknown", cost.priced ? `${money(cost.saved_cache + cost.saved_shared)} not spent` : "no prices given", level("cost"))] : []),
    ...(report.trainer ? [tile("Trainer waited", percent(metrics.wait_fraction), seconds(metrics.wait_s), level("wait"))] : []),
    ...auditTile(report, level("audit")),
  );
  byId("findings").replaceChildren(...report.findings.map((finding) => {
    const item = make("li", `finding ${finding.level}`);
    if (byId(`panel-${finding.panel}`)) {
      const link = make("a", "", finding.text);
      link.href = `#panel-${finding.panel}`;
      item.append(link);
    } else item.append(finding.text);
    return item;
  }));
  byId("runs").textContent = runsText(report);
}

function stepsText(report) {
  const steps = report.steps.filter((row) => row.first !== null).reduce((sum, row) => sum + row.last - row.first + 1, 0);
  return steps ? plural(steps, "step") : "no steps";
}

function runsText({ runs, again, judges }) {
  if (!runs.length) return "";
  const last = runs[runs.length - 1];
  const models = [...new Set(runs.flatMap((run) => run.models))].slice(0, 4).map((name) => short(name)).join(", ");
  const many = runs.length > 1 ? `${runs.length} starts, the first ` : "";
  const twice = again ? ` ${plural(again, "sample")} came again in a later start: each counts once, as it ended last; what was spent counts in full.` : "";
  return `Judge${judges.length ? "s" : ""}: ${short(last.kind, 200)} by ${models}. ${many}${moment(runs[0].began)}. Configuration ${short(last.digest)}, referee ${short(last.version)}.${twice}`;
}

async function drawCharts() {
  const drawing = ++shown.drawing;
  delete document.body.dataset.charts;
  const theme = themeNow();
  for (const panel of layPanels(byId("panels"), panelsOf(shown.report, theme))) {
    if (drawing !== shown.drawing) return; // the colours have changed again
    await drawPanel(panel, board.elements.get(panel.id).chart, theme);
    await nextTurn();
  }
  if (drawing !== shown.drawing) return;
  const scatter = board.elements.get("length")?.chart;
  scatter?.removeAllListeners?.("plotly_click");
  scatter?.on?.("plotly_click", (event) => {
    const row = event.points[0]?.customdata;
    if (Number.isInteger(row) && view.store !== null && row < view.store.meta.rows) openSample(row);
  });
  document.body.dataset.charts = "drawn";
}

async function start() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old (no DecompressionStream)");
  setUpTheme(() => {
    if (typeof Plotly !== "undefined" && shown.report !== null) drawCharts().catch(showTrouble);
  });
  listenToList();
  const report = await unpackJson("report");
  shown.report = report;
  shown.weights = new Map(report.judges.map((judge) => [judge.name, judge.weight]));
  layPanels(byId("panels"), panelsOf(report, themeNow()));
  drawOverview(report);
  const store = await Store.open();
  setUpControls(store);
  view.store = store;
  apply(true); // whatever was asked for before there was a store
  byId("foot").textContent = `${plural(store.meta.rows, "sample")}${store.meta.with_texts < store.meta.rows ? `, texts of ${number(store.meta.with_texts, 0)}` : ""}. Everything is in this file; it loads nothing.`;
  await store.openHeads();
  drawList(true);
  openLinked();
  if (readControls().query) apply(true); // ids can be searched now
  await loadPlotly();
  await drawCharts();
}

byId("detail").addEventListener("click", (event) => {
  if (event.target === byId("detail")) byId("detail").close();
});
byId("detail").addEventListener("close", () => setAddress(""));
addEventListener("hashchange", openLinked);
start().catch(showTrouble);
