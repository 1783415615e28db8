// Making elements and words. Text becomes text nodes, whatever it says; this is the only file that puts it on the page.

function make(tag, name = "", ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function tile(name, value, about, level = "") {
  return make("div", level ? `tile ${level}` : "tile", make("span", "muted", name), make("b", "", value), make("small", "muted", about));
}

// A property the data itself has. Names come from ledgers, and "constructor" is a name too.
function own(object, name, otherwise = null) {
  return Object.hasOwn(object, name) ? object[name] : otherwise;
}

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return Number(value.toFixed(digits)).toLocaleString("en", { maximumFractionDigits: digits });
}

// "1 sample", "2 samples": the number is formatted, the noun takes an s.
function plural(value, noun) {
  return `${number(value, 0)} ${noun}${value === 1 ? "" : "s"}`;
}

function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  return `${number(share * 100, share < 0.0995 ? 1 : 0)} %`;
}

function money(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "$0";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 2 : Math.abs(value) >= 0.01 ? 3 : 5;
  return `$${value.toLocaleString("en", { minimumFractionDigits: Math.min(digits, 2), maximumFractionDigits: digits })}`;
}

function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value >= 5400) return `${number(value / 3600, 1)} h`;
  if (value >= 90) return `${number(value / 60, 1)} min`;
  return value >= 1 || value === 0 ? `${number(value, 1)} s` : `${number(value * 1000, 0)} ms`;
}

function moment(wall) {
  if (!Number.isFinite(wall) || Math.abs(wall) > 8.6e12) return "–";
  return new Date(wall * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

// Characters that cannot be seen, and those that turn the direction of writing: shown by their code instead.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff]|[\u{e0000}-\u{e007f}]/gu;

function codeOf(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

function plain(text) {
  return text.replace(/\r\n/g, "\n").replace(UNSEEN, codeOf);
}

// A name that may be anything, as a word in a sentence.
function short(text, most = 60) {
  const shown = plain(String(text));
  return shown.length > most ? `${shown.slice(0, most)}…` : shown;
}

// The text as nodes, with what cannot be seen as small marks.
function visible(text) {
  const whole = text.replace(/\r\n/g, "\n");
  const nodes = [];
  let from = 0;
  for (const match of whole.matchAll(UNSEEN)) {
    if (match.index > from) nodes.push(document.createTextNode(whole.slice(from, match.index)));
    nodes.push(make("span", "unseen", codeOf(match[0])));
    from = match.index + match[0].length;
  }
  nodes.push(document.createTextNode(whole.slice(from)));
  return nodes;
}

// The judge's prompt with its fence lines marked: `<<<name CODE` opens, `CODE name>>>` closes. Only a closing line with
// the code of the opening one ends a fence, so a forged line inside stays part of the data.
function fenced(text) {
  const nodes = [];
  let code = "";
  let data = [];
  const flush = () => {
    if (data.length) nodes.push(make("span", "data", ...visible(data.join("\n") + "\n")));
    data = [];
  };
  for (const line of text.split("\n")) {
    const opening = code ? null : /^<<<([a-z]+) ([0-9a-z]{8,64})$/.exec(line);
    if (opening) {
      code = `${opening[2]} ${opening[1]}>>>`;
      nodes.push(make("span", "fence", line + "\n"));
    } else if (code && line === code) {
      flush();
      code = "";
      nodes.push(make("span", "fence", line + "\n"));
    } else if (code) {
      data.push(line);
    } else {
      nodes.push(...visible(line + "\n"));
    }
  }
  flush();
  return nodes;
}

const THEMES = ["auto", "light", "dark"];

// The button that changes the colours. What is drawn in them is drawn anew, also when the system changes its own.
function setUpTheme(redraw = () => {}) {
  const button = document.getElementById("theme");
  let chosen = THEMES[0];
  const use = () => {
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.textContent = `Colours: ${chosen}`;
    redraw();
  };
  button.addEventListener("click", () => {
    chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
    use();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", use);
  use();
}
