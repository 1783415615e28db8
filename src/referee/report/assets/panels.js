// Report data to panels: a question, what the numbers say in a sentence, and a chart to draw. Pure: no elements.

const REASON_COLOURS = ["red", "orange", "purple", "teal", "blue", "green", "grey"];

// Fewer samples, and fewer answers, make no chart.
const FEW_POINTS = 5;
const FEW_ANSWERS = 20;
// Slices of time; with fewer, latencies are shown by how often each was.
const SHORT_RUN = 12;

// A chart that would be a single mark, or nothing but zeros, is left out and its sentence stays; a panel about what the
// data does not say is left out whole.
function panelsOf(report, theme) {
  const { metrics, times, lengths, cost } = report;
  const steps = report.steps.length > 1;
  const timed = times.length > 2;
  const any = (rows, ...names) => rows.some((row) => names.some((name) => row[name]));
  const drawn = (panel, wanted) => (wanted ? panel : { ...panel, chart: null });
  const panels = [
    ...auditPanels(report, theme),
    scoresPanel(report, theme),
    ...report.judges.map((judge, at) => judgePanel(report, judge, at, theme)),
    report.agreement.length && drawn(agreementPanel(report, theme), report.agreement.length > 1),
    report.criteria.length && criteriaPanel(report, theme),
    ...report.made_of.map((whole, at) => membersPanel(report, whole, at)),
    comparing(report).length && groupsPanel(report),
    drawn(extremesPanel(report, theme), steps && any(report.steps, "low_share", "high_share", "flat_groups")),
    (metrics.reward_mean || metrics.reward_missing || rewardsIn(report)) && drawn(rewardPanel(report, theme), steps && any(report.steps, "reward_mean")),
    (lengths.samples > 1 || report.trainer) && drawn(lengthPanel(report, theme), lengths.samples >= FEW_POINTS && lengths.slope !== null),
    unscoredPanel(report, theme),
    times.length && drawn(speedPanel(report, theme), timed),
    times.length && latencyPanel(report, theme),
    times.length && drawn(limitsPanel(report, theme), times.filter((row) => Object.values(row.endpoints).some((point) => point.limit)).length > 1),
    (cost.priced || cost.tokens_in) && drawn(costPanel(report, theme), steps && any(report.steps, cost.priced ? "cost" : "tokens", "saved_cache", "saved_shared")),
    report.trainer && metrics.batches && drawn(waitPanel(report, theme), report.steps.filter((row) => row.wait_fraction).length > 1),
  ].filter(Boolean);
  return [...panels.filter(isLarge), ...panels.filter((panel) => !isLarge(panel))];
}

function rewardsIn(report) {
  return report.steps.reduce((sum, row) => sum + row.rewards + row.filled, 0);
}

// What the caller gave up says nothing about the judge, so it is in no share.
function scoredShare(metrics) {
  const ended = metrics.samples - metrics["unscored/cancelled"];
  return ended ? metrics.scored / ended : null;
}

function notScored(metrics) {
  const cancelled = metrics["unscored/cancelled"];
  return `${number(metrics.unscored - cancelled, 0)} not scored${cancelled ? `, ${number(cancelled, 0)} cancelled` : ""}`;
}

function stepName(row) {
  if (row.first === null) return "no step";
  return row.first === row.last ? `${row.first}` : `${row.first}–${row.last}`;
}

// Steps are drawn by number; a chart of one row or with unnamed steps gets names instead.
function stepAxis(report) {
  const named = report.steps.every((row) => row.first !== null);
  const x = report.steps.map((row) => (named ? (row.first + row.last) / 2 : stepName(row)));
  const few = report.steps.length <= 12;
  const axis = { title: "step" };
  if (!named || report.steps.length === 1) axis.type = "category";
  else if (few) Object.assign(axis, { tickvals: x, ticktext: report.steps.map(stepName) });
  return { x, axis };
}

function timeAxis(report) {
  const start = report.times.length ? report.times[0].start : 0;
  const span = report.times.length ? report.times[report.times.length - 1].start - start : 0;
  const [unit, size] = span > 3 * 86400 ? ["days", 86400] : span > 3 * 3600 ? ["hours", 3600] : span > 300 ? ["minutes", 60] : ["seconds", 1];
  return { x: report.times.map((row) => (row.start - start) / size), axis: { title: `${unit} since the first verdict` }, size, unit };
}

function line(x, y, name, colour, more = {}) {
  const alone = x.length === 1 ? "markers" : "lines";
  return { type: "scatter", mode: alone, x, y, name, line: { color: colour, width: 2 }, marker: { color: colour, size: 7 }, ...more };
}

function bars(x, y, name, colour, more = {}) {
  return { type: "bar", x, y, name, marker: { color: colour, line: { width: 0 } }, ...more };
}

const SHARE = { tickformat: ".0%", rangemode: "tozero" };
// Without it plotly writes 0.0008 as 800µ.
const PLAIN = { exponentformat: "none" };
// Of counts: no tick at half a sample.
const whole = (counts) => ({ rangemode: "tozero", ...(Math.max(0, ...counts) < 5 ? { dtick: 1 } : {}) });

function scoresPanel(report, theme) {
  const { x, axis } = stepAxis(report);
  const { levels, low, high } = report.scale;
  const count = levels || 20;
  const y = Array.from({ length: count }, (_, at) => low + ((high - low) * (levels ? at : at + 0.5)) / (levels ? count - 1 : count));
  const metrics = report.metrics;
  const native = (value) => (value === null ? null : low + value * (high - low));
  const note = metrics.scored
    ? `Mean ${number(native(metrics.score_mean), 2)}, standard deviation ${number(metrics.score_std * (high - low), 2)}, ${report.judges?.length ? "the judges' weighted mean" : "on the judge's scale"} from ${low} to ${high}.`
    : "There are no scores.";
  if (report.steps.length <= 1) {
    const bins = report.steps.length ? report.steps[0].bins : [];
    const several = bins.filter((count) => count).length > 1;
    const alike = metrics.scored > 1 && !several ? ` All ${number(metrics.scored, 0)} verdicts are the same.` : "";
    return {
      id: "scores",
      title: "Are the scores sane?",
      note: note + alike,
      chart: several && metrics.scored >= FEW_POINTS && {
        data: [bars(y, bins, "verdicts", theme.blue, { hovertemplate: "score %{x}: %{y}<extra></extra>" })],
        layout: { xaxis: { title: "score" }, yaxis: { title: "verdicts", ...whole(bins) }, hovermode: "closest", bargap: 0.05 },
      },
    };
  }
  if (!metrics.scored) return { id: "scores", title: "Are the scores sane?", note, chart: null };
  const z = y.map((_, bin) => report.steps.map((row) => (row.scored ? row.bins[bin] / row.scored : null)));
  return {
    id: "scores",
    title: "Are the scores sane?",
    note,
    chart: {
      data: [
        { type: "heatmap", x, y, z, zmin: 0, colorscale: [[0, theme.faint], [1, theme.blue]], xgap: 1, ygap: 1, showscale: true,
          colorbar: { tickformat: ".0%", thickness: 10, outlinewidth: 0, title: { text: "share", font: { size: 11 } } },
          hovertemplate: "step %{x}, score %{y}: %{z:.0%}<extra></extra>" },
        line(x, report.steps.map((row) => native(row.score_mean)), "mean", theme.orange, { mode: "lines+markers", hovertemplate: "mean %{y:.2f}<extra></extra>" }),
      ],
      layout: { xaxis: axis, yaxis: { title: "score" }, hovermode: "closest", showlegend: false },
    },
  };
}

function extremesPanel(report, theme) {
  const { x, axis } = stepAxis(report);
  const groups = report.steps.reduce((sum, row) => sum + row.groups, 0);
  const flat = report.steps.reduce((sum, row) => sum + row.flat_groups, 0);
  const judged = report.steps.reduce((sum, row) => sum + row.judged, 0);
  const share = (name) => percent(judged ? report.steps.reduce((sum, row) => sum + row[name] * row.judged, 0) / judged : null);
  const note =
    `${share("low_share")} of the ${report.judges.length ? "judges'" : "judge's"} ${plural(judged, "verdict")} are the lowest score, ${share("high_share")} the highest. ` +
    (groups ? `In ${number(flat, 0)} of ${plural(groups, "group")} all verdicts are equal.` : "No group has two verdicts.");
  const hover = { hovertemplate: "%{y:.1%}" };
  return {
    id: "extremes",
    title: "Do verdicts still tell answers apart?",
    note,
    chart: {
      data: [
        line(x, report.steps.map((row) => row.low_share), "lowest score", theme.orange, hover),
        line(x, report.steps.map((row) => row.high_share), "highest score", theme.blue, hover),
        line(x, report.steps.map((row) => (row.groups ? row.flat_groups / row.groups : null)), "groups with zero spread", theme.red, { ...hover, line: { color: theme.red, width: 2, dash: "dot" } }),
      ],
      layout: { xaxis: axis, yaxis: { title: "share", ...SHARE } },
    },
  };
}

function rewardPanel(report, theme) {
  const { x, axis } = stepAxis(report);
  const of = (name, sign = 1) => report.steps.map((row) => (row[name] === null ? null : sign * row[name]));
  const hover = { hovertemplate: "%{y:.3f}" };
  const metrics = report.metrics;
  const missing = metrics.reward_missing ? ` ${plural(metrics.reward_missing, "sample")} got no reward.` : "";
  const filled = metrics.reward_filled ? ` ${number(metrics.reward_filled, 0)} came from the missing policy and are not in the means of the terms.` : "";
  const terms = (name) => {
    const rewards = report.steps.reduce((sum, row) => sum + row.rewards, 0);
    return number(rewards ? report.steps.reduce((sum, row) => sum + (row[name] ?? 0) * row.rewards, 0) / rewards : null);
  };
  const judges = report.judges.length
    ? report.judges.map(({ name }, at) => bars(x, report.steps.map((row) => own(row.terms, name)), label(name), theme[JUDGE_COLOURS[at % 4]], hover))
    : [bars(x, of("judge_mean"), "judge", theme.blue, hover)];
  return {
    id: "reward",
    title: "What made up the reward?",
    note: `Mean reward ${number(metrics.reward_mean)}: rule ${terms("rule_mean")} + judge${judges.length > 1 ? "s" : ""} ${terms("judge_mean")} − length penalty ${terms("penalty_mean")}.${missing}${filled}`,
    chart: {
      data: [
        bars(x, of("rule_mean"), "rule", theme.teal, hover),
        ...judges,
        bars(x, of("penalty_mean", -1), "length penalty", theme.orange, hover),
        line(x, of("reward_mean"), "reward", theme.ink, { ...hover, mode: "lines+markers" }),
      ],
      layout: { xaxis: axis, yaxis: { title: "mean per sample", ...PLAIN }, barmode: "relative" },
    },
  };
}

function lengthPanel(report, theme) {
  const { points, slope, intercept, correlation, within_slope, within_correlation, within_samples, within_groups, samples } = report.lengths;
  const { low, high } = report.scale;
  const scale = high - low;
  const x = points.map((point) => point[0]);
  const ends = x.length ? [Math.min(...x), Math.max(...x)] : [];
  let note = "Too little to say.";
  if (slope !== null && samples >= FEW_POINTS) {
    const rise = (value) => `${value >= 0 ? "+" : "−"}${number(Math.abs(value) * scale, 2)}`;
    note = `Over ${plural(samples, "sample")} that the judge scored: ${rise(slope)} points per 100 tokens, rank correlation ${number(correlation, 2)}.`;
    if (within_slope !== null) note += ` Among siblings (${number(within_samples, 0)} in ${plural(within_groups, "group")}): ${rise(within_slope)}, rank correlation ${number(within_correlation, 2)}.`;
  }
  const steps = points.map((point) => point[2]);
  const coloured = steps.some((step) => step !== null);
  const data = [
    { type: "scatter", mode: "markers", x, y: points.map((point) => low + point[1] * scale), customdata: points.map((point) => point[3]), name: "samples",
      marker: { size: 6, opacity: 0.55, color: coloured ? steps : theme.blue, line: { width: 0 },
        ...(coloured ? { colorscale: [[0, theme.teal], [1, theme.purple]], showscale: true, colorbar: { thickness: 10, outlinewidth: 0, title: { text: "step", side: "right", font: { size: 11 } } } } : {}) },
      hovertemplate: "%{x} tokens, score %{y:.2f}<extra>click to open</extra>" },
  ];
  if (slope !== null) {
    data.push(line(ends, ends.map((at) => low + (intercept + (slope / 100) * at) * scale), "least squares", theme.orange, { mode: "lines", hoverinfo: "skip" }));
  }
  return {
    id: "length",
    title: "Does length buy score?",
    note,
    chart: { data, layout: { xaxis: { title: "length in tokens" }, yaxis: { title: "score", range: [low - scale * 0.06, high + scale * 0.06] }, hovermode: "closest", showlegend: false } },
  };
}

function unscoredPanel(report, theme) {
  // Few of them, or all in one slice of time: one bar for each reason.
  const timed = report.times.length > 1 && report.metrics.unscored >= FEW_ANSWERS;
  const rows = timed ? report.times : report.steps;
  const { x, axis } = timed ? timeAxis(report) : { x: rows.map(() => ""), axis: { type: "category" } };
  const totals = new Map();
  for (const row of rows) for (const [reason, many] of Object.entries(row.unscored)) totals.set(reason, (totals.get(reason) ?? 0) + many);
  const reasons = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a));
  const shown = reasons.slice(0, 6);
  const bar = (of, name, colour) => (timed ? bars(x, rows.map(of), name, theme[colour], { hovertemplate: "%{y}" }) : bars([name], [rows.reduce((sum, row) => sum + of(row), 0)], name, theme[colour], { hovertemplate: "%{y}" }));
  const data = shown.map((reason, at) => bar((row) => own(row.unscored, reason, 0), label(reason), REASON_COLOURS[at]));
  if (reasons.length > shown.length) {
    const rest = reasons.slice(6);
    data.push(bar((row) => rest.reduce((sum, reason) => sum + own(row.unscored, reason, 0), 0), "others", "grey"));
  }
  const failed = reasons.filter((reason) => reason !== "cancelled");
  const cancelled = totals.get("cancelled") ? `${plural(totals.get("cancelled"), "sample")} cancelled by the caller. ` : "";
  const rest = cancelled ? "the rest" : "the samples";
  const words = failed.slice(0, 12).map((reason) => `${short(reason)} ${number(totals.get(reason), 0)}`).join(", ");
  return {
    id: "unscored",
    title: "What was not scored, and why?",
    note: cancelled + (failed.length ? `Of ${rest}, ${percent(1 - (scoredShare(report.metrics) ?? 1))} were not scored: ${words}.` : `All of ${rest} were scored.`),
    chart: (timed || reasons.length > 1) && { data, layout: { xaxis: axis, yaxis: { title: "samples", ...whole(data.flatMap((trace) => trace.y)) }, barmode: "stack", bargap: timed ? 0.05 : 0.4, showlegend: timed } },
  };
}

function speedPanel(report, theme) {
  const { x, axis } = timeAxis(report);
  const rate = (name) => report.times.map((row) => row[name] / report.slice_s);
  const hover = { hovertemplate: "%{y:.1f}/s" };
  const metrics = report.metrics;
  return {
    id: "speed",
    title: "How fast was it?",
    note: `${plural(metrics.samples, "sample")} in ${seconds(metrics.elapsed_s)}: ${number(metrics.calls, 0)} judged by a call, ${number(metrics.cache_hits, 0)} from the cache, ${number(metrics.shared, 0)} shared with a duplicate in flight, ${number(metrics.gated, 0)} settled by a gate.`,
    chart: {
      data: [
        bars(x, rate("calls"), "judged by a call", theme.blue, hover),
        bars(x, rate("free"), "without a call", theme.green, hover),
      ],
      layout: { xaxis: axis, yaxis: { title: "samples per second", rangemode: "tozero" }, barmode: "stack", bargap: 0.05 },
    },
  };
}

function latencyPanel(report, theme) {
  const { x, axis } = timeAxis(report);
  const of = (name) => report.times.map((row) => row[name]);
  const hover = { hovertemplate: "%{y:.2f} s", connectgaps: true };
  const { metrics, latencies } = report;
  const panel = {
    id: "latency",
    title: "How long did an answer take?",
    note: `On the wire: half within ${seconds(metrics.latency_p50_s)}, 95 % within ${seconds(metrics.latency_p95_s)}. Waiting for a place before that: half within ${seconds(metrics.queue_p50_s)}.`,
  };
  const answers = latencies.reduce((sum, [, many]) => sum + many, 0);
  if (!answers) return { ...panel, note: "No answer was waited for.", chart: null };
  if (answers < FEW_ANSWERS) return { ...panel, chart: null };
  // A curve through a few seconds says less than how the answers spread: in ranges of a fourth of a doubling.
  const ranges = new Map();
  for (const [middle, many] of latencies) ranges.set(Math.round(4 * Math.log2(middle)), (ranges.get(Math.round(4 * Math.log2(middle))) ?? 0) + many);
  const ticks = [...ranges.keys()].filter((range) => range % (ranges.size > 16 ? 8 : 4) === 0);
  if (report.times.length < SHORT_RUN && ranges.size < 2) return { ...panel, chart: null };
  if (report.times.length < SHORT_RUN) return {
    ...panel,
    chart: {
      data: [bars([...ranges.keys()], [...ranges.values()], "answers", theme.blue, { customdata: [...ranges.keys()].map((range) => seconds(2 ** (range / 4))), hovertemplate: "about %{customdata}: %{y}<extra></extra>" })],
      layout: { xaxis: { title: "time on the wire", tickvals: ticks, ticktext: ticks.map((range) => seconds(2 ** (range / 4))) }, yaxis: { title: "answers", ...whole(ranges.values()) }, hovermode: "closest", bargap: 0.05 },
    },
  };
  return {
    ...panel,
    chart: {
      data: [
        line(x, of("latency_p50"), "p50", theme.blue, hover),
        line(x, of("latency_p95"), "p95", theme.orange, hover),
        line(x, of("latency_p99"), "p99", theme.red, { ...hover, line: { color: theme.red, width: 1.5, dash: "dot" } }),
        line(x, of("queue_p50"), "queue p50", theme.grey, { ...hover, line: { color: theme.grey, width: 1.5, dash: "dash" } }),
      ],
      layout: { xaxis: axis, yaxis: { title: "seconds", rangemode: "tozero", ...PLAIN } },
    },
  };
}

function limitsPanel(report, theme) {
  const rows = { ...report, times: report.times.filter((row) => Object.keys(row.endpoints).length) };
  const { x, axis } = timeAxis(report);
  const at = new Map(report.times.map((row, place) => [row, x[place]]));
  const names = [...new Set(rows.times.flatMap((row) => Object.keys(row.endpoints)))].sort();
  const places = rows.times.map((row) => at.get(row));
  const of = (name, field) => rows.times.map((row) => (own(row.endpoints, name) ? row.endpoints[name][field] : null));
  const data = [];
  names.slice(0, 4).forEach((name, number_) => {
    const more = names.length > 1 ? `, ${label(name)}` : "";
    const colour = theme[["blue", "teal", "purple", "green"][number_]];
    data.push(line(places, of(name, "limit"), `limit${more}`, colour, { line: { color: colour, width: 2, shape: "hv" }, hovertemplate: "%{y:.0f}" }));
    data.push(line(places, of(name, "in_flight"), `in flight${more}`, colour, { line: { color: colour, width: 1.5, dash: "dot" }, hovertemplate: "%{y:.1f}" }));
  });
  const throttles = rows.times.map((row) => Object.values(row.endpoints).reduce((sum, point) => sum + point.throttled, 0));
  if (throttles.some((count) => count)) {
    data.push(bars(places, throttles, "throttled", theme.red, { opacity: 0.6, yaxis: "y2", hovertemplate: "%{y}" }));
  }
  const metrics = report.metrics;
  const note = names.length
    ? `${plural(metrics.requests, "request")}, ${number(metrics.throttled, 0)} of them throttled${names.length > 4 ? "; the first four endpoints are drawn" : ""}.`
    : "No look at the limits was recorded.";
  const layout = { xaxis: axis, yaxis: { title: "calls at once", rangemode: "tozero" }, bargap: 0.05 };
  if (throttles.some((count) => count)) layout.yaxis2 = { title: "throttled", rangemode: "tozero" };
  return { id: "limits", title: "What held it back?", note, chart: { data, layout } };
}

function costPanel(report, theme) {
  const { x, axis } = stepAxis(report);
  const { cost } = report;
  const fromCache = cost.tokens_cached ? ` ${percent(cost.tokens_cached / cost.tokens_in)} of the prompts' tokens came from the provider's prompt cache.` : "";
  if (!cost.priced) {
    return {
      id: "cost",
      title: "What did it cost?",
      note: `No endpoint has a price (price_in, price_out), so only tokens are known: ${number(cost.tokens_in, 0)} in, ${number(cost.tokens_out, 0)} out.${fromCache}`,
      chart: {
        data: [bars(x, report.steps.map((row) => row.tokens), "tokens", theme.blue, { hovertemplate: "%{y}" })],
        layout: { xaxis: axis, yaxis: { title: "tokens", rangemode: "tozero" } },
      },
    };
  }
  const hover = { hovertemplate: "$%{y:.5f}" };
  const spent = report.judges.length
    ? report.judges.map((judge, at) => bars(stepAxis(judge).x, judge.steps.map((row) => row.cost), `spent, ${label(judge.name)}`, theme[JUDGE_COLOURS[at % 4]], hover))
    : [bars(x, report.steps.map((row) => row.cost), "spent", theme.blue, hover)];
  const rate = cost.per_1000_steps === null ? `${money(cost.per_1000_samples)} per 1,000 samples` : `${money(cost.per_1000_steps)} per 1,000 steps`;
  const projected = cost.spent ? ` Going on like this: ${rate}.` : "";
  return {
    id: "cost",
    title: "What did it cost?",
    note: `${money(cost.spent)} spent.${projected} Not spent: ${money(cost.saved_cache)} by the cache, ${money(cost.saved_shared)} by asking equal requests once.${fromCache}`,
    chart: {
      data: [
        ...spent,
        bars(x, report.steps.map((row) => row.saved_cache), "saved by the cache", theme.green, hover),
        bars(x, report.steps.map((row) => row.saved_shared), "saved by asking equal requests once", theme.teal, hover),
      ],
      layout: { xaxis: axis, yaxis: { title: "US dollars", rangemode: "tozero", tickprefix: "$", ...PLAIN }, barmode: "stack" },
    },
  };
}

function waitPanel(report, theme) {
  const { x, axis } = stepAxis(report);
  const waits = report.steps.map((row) => seconds(row.waited_s));
  const metrics = report.metrics;
  return {
    id: "wait",
    title: "How long did the trainer wait?",
    note: `${seconds(metrics.wait_s)} in ${number(metrics.batches, 0)} ${metrics.batches === 1 ? "batch" : "batches"}: ${percent(metrics.wait_fraction)} of the run.${report.steps.length > 1 ? " The last step has no end yet, so no share." : ""}`,
    chart: {
      data: [bars(x, report.steps.map((row) => row.wait_fraction), "share of the step", theme.purple, { customdata: waits, hovertemplate: "%{y:.0%} (%{customdata})" })],
      layout: { xaxis: axis, yaxis: { title: "share of the step", ...SHARE } },
    },
  };
}
