// Judges of groups: the panel of what they did, and one sample's comparisons and orders. Texts stay texts.

const COMPARED = ["listwise", "pairwise"];

function comparing(report) {
  const of = (name, what) => own(report.metrics, name ? `judge/${name}/${what}` : what);
  const names = report.judges.length ? report.judges.map((judge) => judge.name) : [""];
  return names.filter((name) => of(name, "comparisons") !== null || of(name, "chunked_share") !== null).map((name) => ({ name, of: (what) => of(name, what) }));
}

function groupsPanel(report) {
  const judges = comparing(report);
  const alone = ({ name }) => (name ? report.judges.find((judge) => judge.name === name).steps : report.steps).reduce((sum, row) => sum + own(row.unscored, "alone", 0), 0);
  const count = (what) => judges.reduce((sum, one) => sum + (one.of(what) ?? 0), 0);
  const columns = [
    ["Comparisons", (one) => one.of("comparisons"), (value) => number(value, 0)],
    ["Without an answer", (one) => one.of("comparisons_missing"), (value) => number(value, 0)],
    ["Tied", (one) => one.of("tie_share"), percent],
    ["Won by the one shown first", (one) => one.of("first_shown_share"), percent],
    ["Changed with the order", (one) => one.of("order_changed_share"), percent],
    ["Spread over the orders", (one) => one.of("order_spread"), (value) => number(value)],
    ["In chunks", (one) => one.of("chunked_share"), percent],
    ["Not scored, being alone", alone, (value) => number(value, 0)],
  ].filter(([, find]) => judges.some((one) => find(one) !== null));
  const counted = count("comparisons") ? `Each response counts its comparisons, in each order by itself: ${number(count("comparisons"), 0)}. A judge that goes by the response has half of them won by the one shown first; a pair whose answer changes with the order counts as a tie.` : "";
  const lists = judges.some((one) => one.of("chunked_share") !== null) ? " A list in several orders has a spread: the standard deviation of a response's value. Groups that do not fit one request are judged in chunks." : "";
  return {
    id: "groups",
    title: "How were groups judged?",
    note: (counted + lists).trim(),
    chart: null,
    table: {
      head: ["Judge", ...columns.map(([title]) => title)],
      rows: judges.map((one) => [short(one.name || report.runs.at(-1)?.kind || "judge"), ...columns.map(([, find, say]) => (find(one) === null ? "–" : say(find(one))))]),
    },
  };
}

// What a verdict is made of: criteria, comparisons with siblings, or orders of a list.
function partsOf(store, row, how, judge, parts) {
  const whose = judge ? ` of ${short(judge)}` : "";
  if (how === "pairwise") return comparisonsTable(store, row, `The comparisons${whose}`, parts ?? []);
  if (how === "listwise") return ordersTable(`The orders${whose}`, parts ?? []);
  return partsTable(`The criteria${whose}`, parts);
}

function comparisonsTable(store, row, title, parts) {
  if (!parts.length) return [];
  const others = new Map();
  for (const part of parts) others.set(part.name, [...(others.get(part.name) ?? []), part]);
  const siblings = siblingsByName(store, row);
  const shownAs = (found, text) => found.filter((part) => part.text === text).map((part) => (part.unscored ? `no answer: ${short(part.unscored)}` : short(part.verdict))).join(", ") || "–";
  const rows = [...others].map(([name, found]) => [
    siblings.has(name) ? action(short(name, 80), () => openSample(siblings.get(name)), "link") : short(name, 80),
    shownAs(found, "shown first"), shownAs(found, "shown second"), outcomeOf(found),
    found.filter((part) => part.why).sort((a, b) => (a.text < b.text ? -1 : 1)).map((part) => `${short(part.text)}: ${short(part.why, 400)}`).join("\n"),
  ]);
  return [make("h3", "", title), tableOf({ head: ["Against", "Shown first", "Shown second", "Counts as", "Why"], rows }, "judges parts pairs")];
}

function outcomeOf(found) {
  if (found.some((part) => part.unscored)) return "nothing";
  return found.every((part) => part.verdict === found[0].verdict) ? short(found[0].verdict) : "tied, by its order";
}

function ordersTable(title, parts) {
  if (!parts.length) return [];
  const rows = parts.map((part) => [[short(part.name, 80), short(part.text, 80)], part.unscored ? `none: ${short(part.unscored)}` : number(part.value), short(part.why, 400)]);
  return [make("h3", "", title), tableOf({ head: ["Order", "Value", "Why"], rows }, "judges parts")];
}

// Siblings by what comparisons call them: their id, or their place in the group.
function siblingsByName(store, row) {
  const found = new Map();
  if (!store.word("group", row)) return found;
  for (const [place, other] of inOrder(store, row).entries()) {
    const id = store.heads === null ? "" : store.heads[other][0];
    if (!found.has(id || `#${place + 1}`)) found.set(id || `#${place + 1}`, other);
  }
  return found;
}

function inOrder(store, row) {
  return store.siblings(row).sort((a, b) => store.number("index", a) - store.number("index", b));
}

// What was asked about a group stands at its first sample.
function askedElsewhere(store, row, said) {
  const compared = [store.word("how", row), ...said.map((line) => line.how)].some((how) => COMPARED.includes(how));
  if (!compared || !store.word("group", row) || said.some((line) => line.type === "ask")) return null;
  const first = inOrder(store, row)[0];
  return first === row ? null : make("p", "muted", "What the judge was asked about this group stands at ", action("its first sample", () => openSample(first), "link"), ".");
}
