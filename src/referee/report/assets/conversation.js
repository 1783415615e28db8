// Conversations as such: messages with their roles, reasoning, tool calls and their results. Whatever a ledger holds is text.

function asText(value) {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return value === null || value === undefined ? "" : JSON.stringify(value, null, 1);
  return value.map((part) => (typeof part?.text === "string" ? part.text : `[${short(part?.type ?? "part")}] ${short(JSON.stringify(part) ?? "", 300)}`)).join("\n");
}

function readable(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 1);
  } catch {
    return json;
  }
}

function messageElement(message) {
  const role = short(message.role ?? "message", 24);
  const known = ["system", "user", "assistant", "tool"].includes(message.role) ? ` ${message.role}` : "";
  const element = make("div", `turn${known}`, make("b", "", message.name ? `${role}: ${short(message.name)}` : role));
  if (message.reasoning_content) element.append(block("Reasoning", visible(asText(message.reasoning_content)), "reasoning", false));
  const content = asText(message.content);
  if (content) element.append(make("pre", "content", ...visible(content)));
  for (const call of Array.isArray(message.tool_calls) ? message.tool_calls : []) {
    const asked = call?.function ?? {};
    element.append(block(`Calls ${short(asked.name ?? "a tool")}`, visible(readable(asText(asked.arguments))), "call", true));
  }
  return element;
}

// Elements of a list of messages; null where it is none.
function turnsOf(messages) {
  const found = Array.isArray(messages) ? messages.filter((message) => message !== null && typeof message === "object") : [];
  return found.length ? found.map(messageElement) : null;
}

function textOrTurns(title, text, messages, name) {
  const turns = turnsOf(messages);
  if (turns === null) return block(title, visible(text), name, true);
  const element = make("details", `text conversation ${name}`, make("summary", "", `${title}: ${plural(turns.length, "message")}`), ...turns);
  element.open = true;
  return element;
}

function toolsOf(tools) {
  const lines = (Array.isArray(tools) ? tools : []).map((tool) => [asText(tool?.name), asText(tool?.description), tool?.parameters ? asText(tool.parameters) : ""].filter(Boolean).join("\n"));
  return block(`Tools offered: ${number(lines.length, 0)}`, visible(lines.join("\n\n")), "tools", false);
}
