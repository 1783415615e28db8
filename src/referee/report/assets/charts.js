// Colours of the page and drawing with plotly. What is drawn comes from panels.js.

function themeNow() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: colour("ink"),
    muted: colour("muted"),
    line: colour("line"),
    card: colour("card"),
    blue: colour("blue"),
    orange: colour("orange"),
    green: colour("green"),
    red: colour("red"),
    purple: colour("purple"),
    teal: colour("teal"),
    grey: colour("grey"),
    faint: colour("faint"),
    font: style.fontFamily || "sans-serif",
  };
}

function baseLayout(theme, narrow) {
  const axis = {
    gridcolor: theme.line,
    linecolor: theme.line,
    zerolinecolor: theme.line,
    tickcolor: theme.line,
    automargin: true,
    fixedrange: narrow,
    title: { standoff: 8, font: { size: 12, color: theme.muted } },
  };
  return {
    height: 270,
    margin: { l: 48, r: 14, t: 8, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: theme.ink },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    hoverlabel: { bgcolor: theme.card, bordercolor: theme.line, font: { color: theme.ink } },
    hovermode: "x unified",
    bargap: 0.25,
    axis,
  };
}

// One level of merging is enough: plotly's own objects are shallow where panels change them.
function layoutOf(chart, theme, narrow) {
  const { axis, ...base } = baseLayout(theme, narrow);
  const layout = { ...base, ...chart.layout };
  for (const name of ["xaxis", "yaxis", "yaxis2"]) {
    const given = (chart.layout ?? {})[name];
    if (name === "yaxis2" && !given) continue;
    const title = given && given.title ? { ...axis.title, text: given.title } : axis.title;
    layout[name] = { ...axis, ...(name === "yaxis2" ? { overlaying: "y", side: "right", showgrid: false } : {}), ...given, title };
  }
  return layout;
}

const CONFIG = { displayModeBar: false, responsive: true, displaylogo: false, doubleClick: "reset", showTips: false };

async function drawPanel(panel, element, theme) {
  const narrow = element.clientWidth < 420;
  await Plotly.react(element, panel.chart.data, layoutOf(panel.chart, theme, narrow), CONFIG);
}

// Sentences that are about as high as a chart.
const MOST_BESIDE = 5;
const board = { elements: new Map(), order: "" };

function isWide(panel) {
  return Boolean(panel.table || panel.wide);
}

function isLarge(panel) {
  return Boolean(panel.chart || isWide(panel));
}

function panelElement(panel) {
  const chart = make("div", "chart");
  chart.setAttribute("role", "img");
  const words = make("p", "muted");
  const table = make("div", "scroll");
  const more = make("div", "more");
  const element = make("section", isWide(panel) ? "panel wide" : "panel", make("h2", "", panel.title), words, chart, table, more);
  element.id = `panel-${panel.id}`;
  return { chart, words, table, more, element };
}

// Panels with a chart or a table each have a place; all that have only a sentence share one, so that none stands tall and
// empty beside a chart. What is there already stays as it is. Returns the panels that have a chart.
function layPanels(container, panels) {
  const large = panels.filter(isLarge);
  const brief = panels.filter((panel) => !isLarge(panel)).map((panel) => {
    const part = make("div", "", make("h2", "", panel.title), make("p", "muted", panel.note));
    part.id = `panel-${panel.id}`;
    return part;
  });
  for (const panel of large) {
    const held = board.elements.get(panel.id) ?? panelElement(panel);
    board.elements.set(panel.id, held);
    held.words.textContent = panel.note;
    held.table.replaceChildren(...(panel.table ? [tableOf(panel.table)] : []));
    held.more.replaceChildren(...(panel.more?.() ?? []));
    held.chart.hidden = !panel.chart;
    held.chart.setAttribute("aria-label", `${panel.title} ${panel.note}`);
  }
  // The sentences fill the place beside an odd last chart.
  const beside = brief.length <= MOST_BESIDE && large.filter((panel) => !isWide(panel)).length % 2 === 1;
  const rest = brief.length ? [make("section", beside ? "panel brief" : "panel brief wide", ...brief)] : [];
  const order = large.map((panel) => panel.id).join(" ");
  if (order === board.order && order) {
    container.querySelector(".brief")?.remove();
    container.append(...rest);
  } else container.replaceChildren(...large.map((panel) => board.elements.get(panel.id).element), ...rest);
  board.order = order;
  return large.filter((panel) => panel.chart);
}

// Plotly reads a little markup in names. What comes from a ledger must not look like any.
function label(text) {
  return short(text, 40).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
