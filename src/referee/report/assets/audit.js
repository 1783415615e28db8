// The audit: its alarms with what they rest on, and the curves behind them. Texts stay texts.

// What the audit asked about.
const ASKED_CURVES = [
  ["wrong", "credit of worthless canaries", "red"],
  ["right", "credit of good canaries", "green"],
  ["exploited", "high scores the shadow judge rejects", "orange"],
  ["gap", "judge above the shadow judge", "blue"],
  ["agreement", "shadow judge agrees", "teal"],
  ["probe", "rise by empty rewrites", "purple"],
  ["fixed", "drift of the fixed set", "grey"],
];
// The signals' numbers, of answers and scores.
const RECORD_CURVES = [
  ["phrase", "answers with a paid phrase", "red"],
  ["length", "longer scores higher", "orange"],
  ["style", "more formatted scores higher", "purple"],
  ["variety", "more repetitive scores higher", "teal"],
  ["overlap", "more like answers to other prompts scores higher", "green"],
  ["criteria_credited", "passes all that need only be mentioned", "blue"],
];
const NEAR_ZERO = 0.2;

function auditPanels(report, theme) {
  const { audit } = report;
  if (!audit) return [];
  const open = audit.alarms.filter((alarm) => !alarm.over).length;
  const alarms = audit.alarms.length + audit.more_alarms;
  const still = !open ? "all over" : open === alarms ? "not over" : `${number(open, 0)} not over`;
  const said = alarms ? `${plural(alarms, "alarm")}, ${still}.` : "No alarm.";
  const cost = audit.cost ? `, ${money(audit.cost)} spent` : "";
  const asked = audit.asked ? ` The audit asked ${plural(audit.asked, "question")} beside the rewards${cost}.` : "";
  const marks = audit.alarms.some((alarm) => alarm.step !== null) ? " Dotted lines: where alarms began." : "";
  const chartOf = (curves, least) => {
    const lines = curves.map(([name, title, colour]) => {
      const known = audit.steps.filter((row) => own(row.curves, name) !== null);
      const values = known.map((row) => row.curves[name]);
      return known.length > 1 && values.some((value) => Math.abs(value) >= least) && line(known.map((row) => row.step), values, title, theme[colour], { hovertemplate: "%{y:.2f}", ...(least ? {} : { mode: "lines+markers" }) });
    }).filter(Boolean);
    const begun = audit.alarms.filter((alarm) => alarm.step !== null).map((alarm) => ({
      type: "line", x0: alarm.step, x1: alarm.step, yref: "paper", y0: 0, y1: 1, line: { color: theme[alarm.level === "critical" ? "red" : "orange"], width: 1.5, dash: "dot" },
    }));
    return lines.length ? { data: lines, layout: { shapes: begun, showlegend: true, xaxis: { title: "step" }, yaxis: { title: "of 1" } } } : null;
  };
  const [answers, questions] = [chartOf(RECORD_CURVES, NEAR_ZERO), chartOf(ASKED_CURVES, 0)];
  return [
    {
      id: "audit",
      wide: true,
      title: "Is the reward being gamed?",
      note: `${said}${asked}${audit.more_alarms ? ` The first ${audit.alarms.length} are listed.` : ""}`,
      chart: null,
      more: () => [...audit.alarms].sort((one, other) => one.over - other.over).map(alarmCard),
    },
    audit.steps.some((row) => RECORD_CURVES.some(([name]) => own(row.curves, name) !== null)) && {
      id: "audit-record",
      title: "What does the judge pay for?",
      note: answers
        ? `Of the latest answers: the share with something, or how far siblings' order by a property is that by score (1: the same, 0: unrelated). What stays within ${NEAR_ZERO} of zero is left out.${marks}`
        : `By the answers and scores alone, for nothing else than it should: no paid phrase, and neither length nor format nor repetition goes with the score (all within ${NEAR_ZERO} of zero).`,
      chart: answers,
    },
    questions && { id: "audit-asked", title: "What did the audit's questions find?", note: `Each point is the mean of several questions.${marks}`, chart: questions },
  ].filter(Boolean);
}

// Among the first numbers of the page: alarms that are not over.
function auditTile({ audit }, level) {
  if (!audit) return [];
  const open = audit.alarms.filter((alarm) => !alarm.over);
  return [tile("Alarms", number(open.length, 0), open.length ? open.map((alarm) => short(alarm.signal, 40)).join(", ") : "none open", level)];
}

function alarmCard(alarm) {
  const begun = [alarm.step === null ? "" : `since step ${alarm.step}`, alarm.critical_step === null ? "" : `critical since step ${alarm.critical_step}`, alarm.over ? `over${alarm.over_step === null ? "" : ` at step ${alarm.over_step}`}` : ""].filter(Boolean).join(", ");
  const done = { stop: "The run was told to stop.", weight: `The judge's term was multiplied by ${number(alarm.weight)}.` }[alarm.action.split(":")[0]];
  const evidence = Object.entries(alarm.evidence).map(([name, value]) => `${short(name, 40).replaceAll("_", " ")} ${typeof value === "number" ? number(value) : short(value, 200)}`).join(", ");
  const samples = alarm.samples.map((sample) => {
    const name = short(sample.id, 40) || "a sample";
    const link = sample.link && !view.newest ? make("a", "", name) : make("b", "", name);
    if (link.localName === "a") link.href = `#sample=${encodeURIComponent(sample.link)}`;
    return make("li", "", link, sample.value === null ? "" : ` scored ${number(sample.value, 2)} of 1 `, make("span", "muted", short(sample.text, 200)));
  });
  return make("article", `finding ${alarm.over ? "over" : alarm.level === "critical" ? "bad" : "warn"}`,
    make("p", "", make("b", "", `${alarm.level === "critical" ? "Critical" : "Warning"}: ${short(alarm.signal, 40).replaceAll("_", " ")}`), begun ? `, ${begun}` : ""),
    make("p", "", plain(alarm.sentence)),
    samples.length ? make("ul", "", ...samples) : null,
    alarm.advice ? make("p", "", make("b", "", "What to try: "), plain(alarm.advice)) : null,
    done ? make("p", "", done) : null,
    evidence ? make("p", "muted", `Evidence: ${evidence}`) : null);
}
