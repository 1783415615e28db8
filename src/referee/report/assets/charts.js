// Colours of the page and drawing with plotly. What is drawn comes from panels.js.

const THEMES = ["auto", "light", "dark"];

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
  element.hidden = panel.chart === null;
  if (panel.chart === null) return;
  const narrow = element.clientWidth < 420;
  await Plotly.react(element, panel.chart.data, layoutOf(panel.chart, theme, narrow), CONFIG);
}

// Plotly reads a little markup in names. What comes from a ledger must not look like any.
function label(text) {
  return short(text, 40).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
