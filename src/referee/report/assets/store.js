// The rows: columns of numbers, words by number, texts in blocks that are unpacked when asked for. No elements here.

const KEPT_BLOCKS = 24;

class Store {
  constructor(meta, columns) {
    this.meta = meta;
    this.columns = columns;
    this.words = meta.words;
    this.heads = null;
    this.systems = {};
    this.blocks = new Map();
    this.there = new Map();
  }

  static async open() {
    const meta = await unpackJson("meta");
    const names = Object.keys(meta.columns);
    const found = await Promise.all(names.map((name) => unpackNumbers(`column-${name}`, meta.columns[name])));
    return new Store(meta, Object.fromEntries(names.map((name, at) => [name, found[at]])));
  }

  // What the list shows beside numbers; comes after the first paint.
  async openHeads() {
    this.systems = (await unpackJson("systems")) ?? {};
    this.heads = (await unpackJson("heads")) ?? [];
  }

  word(column, row) {
    return this.words[column][this.columns[column][row]] ?? "";
  }

  number(column, row) {
    const value = this.columns[column][row];
    return Number.isNaN(value) ? null : value;
  }

  // The column of all judges together, or of the one that is chosen.
  of(state, name) {
    return state.judge === "" ? name : `${name}-${state.judge}`;
  }

  // Rows that pass all filters but the search for words, in order of settling.
  matches(state) {
    const { step, reason, origin, group } = this.columns;
    const [value, score] = [this.columns[this.of(state, "value")], this.columns[this.of(state, "score")]];
    const code = (column, word) => this.words[column].indexOf(word);
    const scored = code("reason", "");
    const wanted = state.reason.startsWith("=") ? code("reason", state.reason.slice(1)) : null;
    const came = state.origin ? code("origin", state.origin) : null;
    // In quotes it is the whole name.
    const whole = /^"(.+)"$/s.exec(state.group)?.[1];
    const part = state.group.toLowerCase();
    const groups = part ? this.words.group.map((name) => (whole === undefined ? name.toLowerCase().includes(part) : name === whole)) : null;
    const own = state.own.flatMap((word, at) => (word === "" ? [] : [[this.columns[`own-${at}`], Number(word)]]));
    const found = new Uint32Array(this.meta.rows);
    let count = 0;
    for (let row = 0; row < this.meta.rows; row++) {
      if (state.reason === "scored" && Number.isNaN(value[row])) continue;
      if (state.reason === "unscored" && !Number.isNaN(value[row])) continue;
      if (wanted !== null && (reason[row] !== wanted || wanted === scored)) continue;
      if (came !== null && origin[row] !== came) continue;
      // A row without a score is in no range of scores; comparing with NaN is false.
      if (state.scoreFrom !== null && !(score[row] >= state.scoreFrom)) continue;
      if (state.scoreTo !== null && !(score[row] <= state.scoreTo)) continue;
      if (state.stepFrom !== null && !(step[row] >= state.stepFrom)) continue;
      if (state.stepTo !== null && !(step[row] <= state.stepTo)) continue;
      if (groups !== null && !groups[group[row]]) continue;
      if (own.some(([codes, code]) => codes[row] !== code)) continue;
      found[count++] = row;
    }
    return found.subarray(0, count);
  }

  // The same rows in order. Rows without the number come last either way; equal ones keep their order.
  ordered(rows, key, down) {
    if (key === "order") return down ? rows.slice().reverse() : rows;
    let numbers = this.columns[key];
    if (key === "group") {
      const names = this.words.group;
      const places = names.map((_, at) => at).sort((a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : 0));
      const rank = new Float64Array(names.length);
      places.forEach((code, at) => (rank[code] = at));
      numbers = Float64Array.from(this.columns.group, (code) => rank[code]);
    }
    const sign = down ? -1 : 1;
    return rows.slice().sort((a, b) => {
      const x = numbers[a];
      const y = numbers[b];
      if (x < y) return -sign;
      if (x > y) return sign;
      if (x === y) return a - b;
      return Number.isNaN(x) - Number.isNaN(y) || a - b;
    });
  }

  hasBlock(number) {
    let found = this.there.get(number);
    if (found === undefined) {
      found = document.getElementById(`texts-${number}`) !== null;
      this.there.set(number, found);
    }
    return found;
  }

  async block(number) {
    let found = this.blocks.get(number);
    if (found === undefined) {
      found = unpackJson(`texts-${number}`);
    } else {
      this.blocks.delete(number);
    }
    this.blocks.set(number, found);
    if (this.blocks.size > KEPT_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    return found;
  }

  // All texts of a row by name, or null where the page does not hold them.
  async texts(row) {
    const block = await this.block(this.columns.block[row]);
    if (block === null) return null;
    const texts = block[this.columns.slot[row]];
    return Object.fromEntries(this.meta.texts.map((name, at) => [name, texts[at] ?? ""]));
  }

  // Rows whose texts hold the words, in the order given. Looks at one block per turn of the page, asks before each
  // whether it is still wanted, and gives null when it is not.
  async search(rows, query, wanted, progress) {
    const words = query.toLowerCase();
    const hit = new Uint8Array(this.meta.rows);
    const byBlock = new Map();
    for (const row of rows) {
      const head = this.heads === null ? null : this.heads[row];
      if (this.word("group", row).toLowerCase().includes(words) || (head && head[0].toLowerCase().includes(words))) {
        hit[row] = 1;
        continue;
      }
      if (!this.hasBlock(this.columns.block[row])) {
        hit[row] = head && head[1].toLowerCase().includes(words) ? 1 : 0;
        continue;
      }
      const waiting = byBlock.get(this.columns.block[row]);
      if (waiting) waiting.push(row);
      else byBlock.set(this.columns.block[row], [row]);
    }
    const searched = ["id", "prompt", "response", "reference", "reply", "why", "detail", "request_id", "key"];
    const places = searched.map((name) => this.meta.texts.indexOf(name));
    let done = 0;
    for (const [number, waiting] of byBlock) {
      if (!wanted()) return null;
      const block = this.blocks.has(number) ? await this.block(number) : await unpackJson(`texts-${number}`);
      for (const row of waiting) {
        const texts = block[this.columns.slot[row]];
        for (const place of places) {
          if (texts[place] && texts[place].toLowerCase().includes(words)) {
            hit[row] = 1;
            break;
          }
        }
        const said = texts[this.meta.texts.indexOf("said")] ?? [];
        const parts = [...said.flatMap((one) => one.parts ?? []), ...(texts[this.meta.texts.indexOf("parts")] ?? [])];
        const more = [...said.flatMap((one) => [one.why, one.detail, one.reply, one.key]), ...parts.flatMap((one) => [one.name, one.text, one.why])];
        if (more.some((text) => text?.toLowerCase().includes(words))) hit[row] = 1;
      }
      done += 1;
      if (done % 8 === 0) progress(done / byBlock.size);
      await nextTurn();
    }
    return wanted() ? rows.filter((row) => hit[row] === 1) : null;
  }

  // A sample's name in a link, and the row of such a name or of a sample's id; null where there is none.
  link(row) {
    return this.columns.link[row].toString(16).padStart(13, "0");
  }

  linked(name) {
    const code = /^[0-9a-f]{13}$/.test(name) ? this.columns.link.indexOf(parseInt(name, 16)) : -1;
    const row = code < 0 ? (this.heads ?? []).findIndex(([id]) => id === name) : code;
    return row < 0 ? null : row;
  }

  // The rows of one group, which the report has numbered: a name alone may be several groups'.
  siblings(row) {
    const { siblings } = this.columns;
    const found = [];
    for (let other = 0; other < this.meta.rows; other++) if (siblings[other] === siblings[row]) found.push(other);
    return found;
  }
}
