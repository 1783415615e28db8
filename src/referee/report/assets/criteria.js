// Rubrics: the panel of their criteria, and the table of one sample's. Texts stay texts; elements are made by text.js.

const CRITERION_COLOURS = ["blue", "orange", "green", "red", "purple", "teal", "grey", "ink"];
// A criterion with fewer verdicts has no mark.
const FEW_VERDICTS = 5;

function criterionName(criterion, most = 60) {
  return short(criterion.judge ? `${criterion.judge}: ${criterion.name}` : criterion.name, most);
}

function marksOf({ judged, passed, constant }) {
  if (judged < FEW_VERDICTS) return "";
  const marks = [];
  if (passed === judged) marks.push("always passed");
  else if (passed === 0) marks.push("never passed");
  if (constant) marks.push("zero variance");
  return marks.join(", ");
}

function criteriaPanel(report, theme) {
  const { criteria, more_criteria } = report;
  const verdicts = criteria.reduce((sum, one) => sum + one.judged, 0);
  const count = (test) => criteria.filter((one) => one.judged >= FEW_VERDICTS && test(one)).length;
  const [always, never] = [count((one) => one.passed === one.judged), count((one) => one.passed === 0)];
  const stuck = always + never ? ` ${number(always, 0)} always passed, ${number(never, 0)} never: they do not tell answers apart.` : "";
  const rest = more_criteria ? ` The ${criteria.length} most frequent are listed, of ${number(criteria.length + more_criteria, 0)} or more.` : "";
  const drawn = criteria.filter((one) => one.steps.length > 1);
  // A name may be cut to one that is there already, and plotly joins nothing by name.
  const lines = drawn.map((one, at) => {
    const { x } = stepAxis(one);
    return line(x, one.steps.map((row) => row.pass_rate), label(criterionName(one, 40)), theme[CRITERION_COLOURS[at % CRITERION_COLOURS.length]],
      { mode: "lines+markers", customdata: one.steps.map((row) => row.judged), hovertemplate: "%{y:.0%} of %{customdata}" });
  });
  const axis = drawn.length ? stepAxis(drawn[0]).axis : {};
  return {
    id: "criteria",
    title: "Which criteria are met?",
    note: `${plural(verdicts, "verdict")} on ${criteria.length === 1 ? "1 criterion" : `${number(criteria.length, 0)} criteria`}. A criterion has passed if it is true and good, or untrue and bad.${stuck}${rest}`,
    chart: lines.length ? { data: lines, layout: { xaxis: axis, yaxis: { title: "pass rate", ...SHARE, range: [-0.03, 1.03] } } } : null,
    table: {
      head: ["Criterion", "Verdicts", "Pass rate", "Weight", "True is", "No verdict", "Flat groups", "Correlation with length", ""],
      rows: criteria.map((one) => [
        [criterionName(one), one.text === null ? "(differs from sample to sample)" : short(one.text, 160)],
        number(one.judged, 0), percent(one.judged ? one.passed / one.judged : null), one.weight === null ? "differs" : number(one.weight),
        one.true_is || "differs", percent(one.unscored_share), one.groups ? `${number(one.flat_groups, 0)} of ${number(one.groups, 0)}` : "–", number(one.length_correlation, 2), marksOf(one),
      ]),
    },
  };
}

// The criteria of one verdict, and what each adds to its score.
function partsTable(title, parts) {
  if (!parts?.length) return [];
  const adds = parts.some((part) => part.adds !== null);
  const head = ["Criterion", "Verdict", "Passed", "Weight", "True is", ...(adds ? ["Adds"] : []), "Why"];
  const rows = parts.map((part) => [
    [short(part.name, 80), short(part.text, 400)],
    part.unscored ? `none: ${short(part.unscored)}` : verdictOf(part),
    part.passed === null ? "" : part.passed ? "yes" : "no",
    number(part.weight), short(part.true_is), ...(adds ? [signed(part.adds)] : []), short(part.why, 400),
  ]);
  const sum = parts.reduce((total, part) => total + (part.adds ?? 0), 0);
  const about = adds ? `They add up to ${number(sum)}.` : "Under the rule that combines them, none adds a part of its own.";
  const table = tableOf({ head, rows }, "judges parts");
  return [make("h3", "", title), make("p", "muted", about), table];
}

// Criteria of several judges: side by side, a column for each judge, then the table of each, which says what they add.
function criteriaOf(store, row, lines) {
  const made = lines.filter((line) => line.parts?.length && !COMPARED.includes(line.how));
  const beside = made.length > 1 ? sideBySide("The criteria, judge by judge", "Criterion", made.map((line) => [short(line.judge), line.parts])) : [];
  return [...beside, ...lines.flatMap((line) => partsOf(store, row, line.how, line.judge, line.parts))];
}

// A group's verdicts side by side: judges and criteria in rows, siblings in columns.
function groupTable(store, members, texts) {
  const columns = members.slice(0, MOST_COLUMNS).map((member, at) => {
    const said = (texts[at]?.said || []).filter((line) => line.type === "judge");
    const judges = said.map((line) => ({ name: line.judge, text: "", verdict: line.score === undefined ? "" : number(line.score, 2), value: null, unscored: line.unscored ?? "" }));
    const parts = [["", store.word("how", member), texts[at]?.parts], ...said.map((line) => [line.judge, line.how, line.parts])]
      .flatMap(([judge, how, found]) => (COMPARED.includes(how) ? [] : (found || []).map((part) => ({ ...part, name: judge ? `${judge}: ${part.name}` : part.name }))));
    return [short(store.heads?.[member][0] || `Sample ${member}`, 24), [...judges, ...parts]];
  });
  return sideBySide("Verdicts side by side", "", columns);
}

const MOST_COLUMNS = 16;

function sideBySide(title, corner, columns) {
  const names = new Map();
  for (const [, parts] of columns) for (const part of parts) if (!names.has(part.name)) names.set(part.name, part.text ?? "");
  if (!names.size) return [];
  const cell = (part) => {
    if (part === undefined) return "–";
    const words = make("span", part.passed === false ? "no" : "", part.unscored ? `none: ${short(part.unscored)}` : verdictOf(part));
    if (part.why) words.title = plain(part.why);
    return words;
  };
  const rows = [...names].map(([name, text]) => [[short(name, 80), short(text, 200)], ...columns.map(([, parts]) => cell(parts.find((part) => part.name === name)))]);
  return [make("h3", "", title), make("div", "scroll", tableOf({ head: [corner, ...columns.map(([name]) => name)], rows }, "judges criteria beside"))];
}

function verdictOf({ verdict, value }) {
  const likely = value === null || (verdict && (value === 0 || value === 1)) ? "" : ` (${number(value, 2)})`;
  return `${short(verdict)}${likely}`.trim();
}

function signed(value) {
  return value === null ? "" : `${value < 0 ? "−" : "+"}${number(Math.abs(value))}`;
}

// A cell is a text, an element, or a name and the sentence under it.
function tableOf({ head, rows }, name = "judges criteria") {
  const cells = (tag, texts) => make("tr", "", ...texts.map((text) => (Array.isArray(text) ? make(tag, "", make("b", "", text[0]), text[1] ? make("div", "muted", text[1]) : null) : make(tag, "", text))));
  return make("table", name, make("thead", "", cells("th", head)), make("tbody", "", ...rows.map((row) => cells("td", row))));
}
