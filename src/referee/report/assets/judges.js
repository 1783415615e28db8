// Several judges, juries and cascades: what each says, whether they agree, which one decided. Texts stay texts.

const JUDGE_COLOURS = ["blue", "purple", "red", "grey"];

// One of several judges: the panel of the scores, with its own steps, scale and totals.
function judgePanel(report, judge, at, theme) {
  const of = (name) => own(report.metrics, `judge/${judge.name}/${name}`, 0);
  const metrics = { scored: of("scored"), score_mean: of("score_mean"), score_std: of("score_std") };
  const panel = scoresPanel({ steps: judge.steps, scale: judge.scale, metrics }, theme);
  const missing = judge.steps.map((row) => Object.values(row.unscored).reduce((sum, many) => sum + many, 0));
  if (judge.steps.length > 1 && panel.chart && missing.some((many) => many)) {
    const share = missing.map((many, place) => (many + judge.steps[place].scored ? many / (many + judge.steps[place].scored) : null));
    panel.chart.data[0].showscale = false;
    panel.chart.data.push(line(panel.chart.data[1].x, share, "not scored", theme.red, { yaxis: "y2", line: { color: theme.red, width: 2, dash: "dot" }, hovertemplate: "not scored %{y:.0%}<extra></extra>" }));
    panel.chart.layout.yaxis2 = { title: "not scored", ...SHARE, range: [0, 1] };
  }
  const about = [judge.kind, judge.models.join(", "), judge.weight === null ? "" : `weight ${number(judge.weight)}`].filter(Boolean).map((word) => short(word)).join(", ");
  const cost = report.cost.priced ? `, ${money(of("cost_usd"))} spent` : "";
  return { ...panel, id: `judge-${at}`, title: `What does ${short(judge.name)} say?`, note: `${about ? `${about}. ` : ""}${panel.note} ${percent(of("unscored_share"))} not scored${cost}.` };
}

function agreementPanel({ agreement }, theme) {
  const names = agreement.map(({ a, b }) => `${short(a, 24)}, ${short(b, 24)}`);
  const words = agreement.slice(0, 6).map((pair, at) => `${names[at]}: ${number(pair.correlation, 2)} over ${plural(pair.samples, "sample")}${pair.within_correlation === null ? "" : `, ${number(pair.within_correlation, 2)} among siblings (${plural(pair.within_groups, "group")})`}`);
  const bar = (field, name, colour) => bars(names.map((text) => label(text)), agreement.map((pair) => pair[field]), name, colour, { hovertemplate: "%{y:.2f}" });
  return {
    id: "agreement",
    title: "Do the judges agree?",
    note: `Rank correlation of two judges; 1 is the same order, 0 none. ${words.join("; ")}.`,
    chart: {
      data: [bar("correlation", "all samples", theme.blue), bar("within_correlation", "siblings", theme.teal)],
      layout: { xaxis: { type: "category" }, yaxis: { title: "rank correlation", range: [-1.05, 1.05] }, bargap: 0.4 },
    },
  };
}

function membersPanel(report, whole, at) {
  const { judge, kind, samples, members, agreement } = whole;
  const of = judge ? ` of ${short(judge)}` : "";
  const scored = (member) => [number(member.asked, 0), number(member.asked - member.scored, 0), number(member.mean)];
  if (kind === "cascade") {
    const decided = members.reduce((sum, member) => sum + member.decided, 0);
    const head = ["Member", "Asked", "Without a verdict", "Mean, of 1", "Decided", "Share", ...(report.cost.priced ? ["Cost of those", "Cost of one"] : [])];
    const cost = (member) => (report.cost.priced ? [money(member.cost), member.decided ? money(member.cost / member.decided) : "–"] : []);
    return {
      id: `members-${at}`,
      title: `Which member${of} decided?`,
      note: `${plural(samples, "sample")} went into the cascade, ${number(decided, 0)} came to a decision. The cost of a sample includes the members that were asked before.`,
      chart: null,
      table: { head, rows: members.map((member) => [short(member.name), ...scored(member), number(member.decided, 0), percent(decided ? member.decided / decided : null), ...cost(member)]) },
    };
  }
  const compared = members.filter(({ name }) => agreement.some(({ a, b }) => a === name || b === name));
  const pair = (one, other) => agreement.find(({ a, b }) => (a === one && b === other) || (a === other && b === one));
  const said = (one, other) => {
    const found = pair(one.name, other.name);
    if (!found) return one === other ? "" : "–";
    return [number(found.correlation, 2), `${plural(found.samples, "sample")}${found.within_correlation === null ? "" : `; ${number(found.within_correlation, 2)} among siblings`}`];
  };
  return {
    id: `members-${at}`,
    title: `Do the members${of} agree?`,
    note: `${plural(samples, "sample")} judged by the jury. Two by two: rank correlation of what both said (Spearman's), and among siblings (Kendall's tau-b); 1 is the same order, 0 none.`,
    chart: null,
    table: {
      head: ["Member", "Asked", "Without a verdict", "Mean, of 1", ...compared.map(({ name }) => `with ${short(name, 24)}`)],
      rows: members.map((member) => [[short(member.name), ""], ...scored(member), ...compared.map((other) => said(member, other))]),
    },
  };
}
