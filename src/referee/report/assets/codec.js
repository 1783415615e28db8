// Packed data: base64 of zlib of JSON or of numbers. Nothing here touches what is shown.

const KINDS = { f4: Float32Array, f8: Float64Array, u4: Uint32Array };

// Data that came after the page.
const arrived = new Map();

function packedText(name) {
  if (arrived.has(name)) return arrived.get(name);
  const element = document.getElementById(name);
  return element ? element.textContent : null;
}

async function inflate(text) {
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpackText(name) {
  const text = packedText(name);
  return text === null ? null : new TextDecoder().decode(await inflate(text));
}

async function unpackJson(name) {
  const text = await unpackText(name);
  return text === null ? null : JSON.parse(text);
}

async function unpackNumbers(name, kind) {
  const bytes = await inflate(packedText(name) ?? "");
  return new KINDS[kind](bytes.buffer, 0, Math.floor(bytes.byteLength / KINDS[kind].BYTES_PER_ELEMENT));
}

// plotly travels packed. It runs because the page's policy names the digest of exactly this text.
async function loadPlotly() {
  const source = await unpackText("plotly");
  const script = document.createElement("script");
  script.textContent = source;
  document.head.append(script);
  document.getElementById("plotly").remove();
}

function nextTurn() {
  return new Promise((done) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      done();
    };
    channel.port2.postMessage(0);
  });
}
