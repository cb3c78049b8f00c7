"use strict";
// What the page can do beyond being read.  All text enters the document as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
document.documentElement.classList.add("js");

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function size(bytes) {
  if (bytes < 1000) return bytes === 1 ? "1 byte" : `${bytes} bytes`;
  let value = bytes / 1000, unit = "kB";
  for (const larger of ["MB", "GB", "TB"]) if (value >= 999.95) { value /= 1000; unit = larger; }
  return `${value.toFixed(1)} ${unit}`;
}

// --- moving with the arrow keys -------------------------------------------------------------------------------------

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function centre(element) {
  const box = element.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}

// The nearest of the others that lies in the direction of the key; what lies straight ahead counts as nearer.
function neighbour(from, others, [dx, dy]) {
  const [x, y] = centre(from);
  let best = null, least = Infinity;
  for (const other of others) {
    const [ox, oy] = centre(other);
    const ahead = (ox - x) * dx + (oy - y) * dy;
    const aside = Math.abs((ox - x) * dy) + Math.abs((oy - y) * dx);
    if (other !== from && ahead > 1 && ahead + 2 * aside < least) { best = other; least = ahead + 2 * aside; }
  }
  return best;
}

function focusOnly(element, all) {
  for (const other of all) other.tabIndex = other === element ? 0 : -1;
  element.focus();
}

// --- areas ----------------------------------------------------------------------------------------------------------

// A squarified treemap (Bruls, Huizing, van Wijk): rows of tiles that are as square as they can be.
function squarify(items, x, y, width, height, place) {
  let rest = items.filter((item) => item.size > 0).sort((a, b) => b.size - a.size);
  let left = rest.reduce((sum, item) => sum + item.size, 0);
  while (rest.length) {
    const side = Math.min(width, height), scale = (width * height) / left;
    let row = [], sum = 0, worst = Infinity;
    for (const item of rest) {
      const next = sum + item.size, thick = (next * scale) / side;
      const ratio = Math.max(...[...row, item].map((one) => {
        const long = (one.size * scale) / thick;
        return Math.max(long / thick, thick / long);
      }));
      if (row.length && ratio > worst) break;
      row.push(item); sum = next; worst = ratio;
    }
    const thick = (sum * scale) / side;
    let at = 0;
    for (const item of row) {
      const long = (item.size * scale) / thick;
      if (width >= height) place(item, x, y + at, thick, long);
      else place(item, x + at, y, long, thick);
      at += long;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
    left -= sum;
    rest = rest.slice(row.length);
    if (width < 0.5 || height < 0.5) break;
  }
}

function put(element, x, y, width, height, whole) {
  element.style.left = `${(100 * x) / whole.width}%`;
  element.style.top = `${(100 * y) / whole.height}%`;
  element.style.width = `${(100 * width) / whole.width}%`;
  element.style.height = `${(100 * height) / whole.height}%`;
}

// What would be too small to point at becomes one tile.
function merged(items, area) {
  const total = items.reduce((sum, item) => sum + item.size, 0) || 1;
  const small = items.filter((item) => (item.size / total) * area < 220);
  if (small.length < 2) return items;
  const rest = small.reduce((sum, item) => sum + item.size, 0);
  const one = { name: `${small.length} smaller ones`, kind: "other", size: rest, within: small };
  return [...items.filter((item) => !small.includes(item)), one];
}

function drawMap(box) {
  const note = document.getElementById("map-note");
  const whole = { width: box.clientWidth, height: box.clientHeight };
  if (!whole.width || !whole.height) return;
  const groups = new Map();
  for (const tile of data.tiles) groups.set(tile.group, [...(groups.get(tile.group) || []), tile]);
  const rows = [...groups].map(([name, tiles]) => ({ name, tiles, size: tiles.reduce((s, t) => s + t.size, 0) }));
  box.replaceChildren();
  squarify(rows, 0, 0, whole.width, whole.height, (row, x, y, width, height) => {
    const inside = make("div", { class: "inside" });
    const title = `${row.name} ${data.sign ? "" : size(row.size)}`.trim();
    const group = make("div", { class: "group", role: "group", "aria-label": title, title }, inside);
    if (height > 40 && width > 40) group.prepend(make("span", { "aria-hidden": "true" }, title));
    else inside.style.top = "1px";
    put(group, x, y, width, height, whole);
    box.append(group);
    const part = { width: width - 4, height: height - (height > 40 && width > 40 ? 24 : 4) };
    squarify(merged(row.tiles, part.width * part.height), 0, 0, part.width, part.height, (tile, tx, ty, tw, th) => {
      const text = `${tile.name}${tile.version ? " " + tile.version : ""}, ${tile.text || size(tile.size)}`;
      const button = make("button", { type: "button", class: tile.kind, "aria-label": `${text}, ${row.name}`, title: text },
        make("span", {}, tile.name), make("span", {}, tile.text || size(tile.size)));
      if (tw < 46 || th < 20) button.classList.add("bare");
      else if (tw < 62 || th < 36) button.classList.add("short");
      button.tabIndex = -1;
      button.tile = tile;
      button.addEventListener("focus", () => tell(note, text, row.name, tile));
      button.addEventListener("mouseenter", () => tell(note, text, row.name, tile));
      button.addEventListener("click", () => button.focus());
      put(button, tx, ty, tw, th, part);
      inside.append(button);
    });
  });
  const first = box.querySelector("button");
  if (first) first.tabIndex = 0;
  dimTiles(currentFilter());
}

function tell(note, text, group, tile) {
  note.classList.remove("empty");
  note.replaceChildren(make("strong", {}, text), ` · ${group}`);
  if (tile.why) note.append(` · ${tile.why}`);
  if (tile.within) {
    const rows = [...tile.within].sort((a, b) => b.size - a.size);
    note.append(make("ul", {}, ...rows.slice(0, 12).map((one) => make("li", {}, `${one.name} ${size(one.size)}`))));
    if (rows.length > 12) note.append(`and ${rows.length - 12} more`);
  }
}

function startMap() {
  const box = document.getElementById("map");
  if (!box || !data.tiles) return;
  box.hidden = false;
  for (const element of document.querySelectorAll(".map-part")) element.hidden = false;
  drawMap(box);
  box.addEventListener("keydown", (event) => {
    const all = [...box.querySelectorAll("button")];
    const step = STEPS[event.key];
    const to = step ? neighbour(document.activeElement, all, step)
      : event.key === "Home" ? all[0] : event.key === "End" ? all[all.length - 1] : null;
    if (step || to) event.preventDefault();
    if (to) focusOnly(to, all);
  });
  let known = box.clientWidth;
  window.addEventListener("resize", () => {
    if (box.clientWidth !== known) { known = box.clientWidth; drawMap(box); }
  });
}

// --- reasons --------------------------------------------------------------------------------------------------------

const CAPABILITY = 3;

function startGraph() {
  const box = document.getElementById("graph");
  if (!box || !data.graph || !data.graph.nodes.length) return;
  box.hidden = false;
  const note = document.getElementById("graph-note");
  note.hidden = false;
  const { columns, nodes, edges } = data.graph;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  const buttons = new Map(), paths = [];
  const before = new Map(nodes.map((n) => [n.id, []])), after = new Map(nodes.map((n) => [n.id, []]));
  for (const [from, to] of edges) { after.get(from).push(to); before.get(to).push(from); }
  const made = columns.map((title) => make("div", { class: "column", role: "group", "aria-label": title }, make("h3", {}, title)));
  for (const node of nodes) {
    const button = make("button", { type: "button", "aria-pressed": "false" }, node.label);
    if (node.soft) button.append(make("small", {}, node.soft));
    button.tabIndex = -1;
    button.node = node;
    buttons.set(node.id, button);
    made[node.column].append(button);
  }
  box.replaceChildren(svg, ...made);
  const all = [...buttons.values()];
  const first = all.find((button) => nodes.length <= 60 || button.node.column === CAPABILITY);
  if (first) first.tabIndex = 0;

  for (const [from, to] of edges) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    paths.push({ path, from, to });
    svg.append(path);
  }
  function lines() {
    const origin = box.getBoundingClientRect();
    for (const { path, from, to } of paths) {
      const a = buttons.get(from).getBoundingClientRect(), b = buttons.get(to).getBoundingClientRect();
      const x1 = a.right - origin.left, y1 = a.top + a.height / 2 - origin.top;
      const x2 = b.left - origin.left, y2 = b.top + b.height / 2 - origin.top;
      const bend = Math.max(18, (x2 - x1) / 2);
      path.setAttribute("d", `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`);
    }
  }
  function reach(id, next) {
    const found = new Set(), pending = [id];
    while (pending.length) {
      for (const one of next.get(pending.pop())) if (!found.has(one)) { found.add(one); pending.push(one); }
    }
    return found;
  }
  // Where there are too many to see at once, only the capabilities are shown until one thing is chosen.
  const large = nodes.length > 60;
  box.classList.toggle("large", large);
  let chosen = null;
  function choose(node) {
    chosen = node && chosen && node.id === chosen.id ? null : node;
    const causes = chosen ? reach(chosen.id, before) : new Set(), effects = chosen ? reach(chosen.id, after) : new Set();
    const on = new Set(chosen ? [chosen.id, ...causes, ...effects] : []);
    for (const button of all) {
      const id = button.node.id;
      button.classList.toggle("on", on.has(id));
      button.classList.toggle("off", chosen ? !on.has(id) : large && button.node.column !== CAPABILITY);
      button.setAttribute("aria-pressed", String(Boolean(chosen) && id === chosen.id));
    }
    for (const { path, from, to } of paths) {
      path.classList.toggle("on", on.has(from) && on.has(to));
      path.classList.toggle("off", (large || Boolean(chosen)) && !(on.has(from) && on.has(to)));
    }
    explain(causes, effects);
    lines();
  }
  function explain(causes, effects) {
    note.classList.toggle("empty", !chosen);
    if (!chosen) { note.replaceChildren(note.dataset.empty); return; }
    note.replaceChildren(make("strong", {}, chosen.label), chosen.text ? ` ${chosen.text}` : "");
    const say = (word, ids) => {
      const names = nodes.filter((n) => ids.has(n.id)).map((n) => n.label);
      if (names.length) note.append(make("div", {}, `${word} ${names.join(", ")}`));
    };
    const steps = (ids, word) => {
      for (let column = 0; column < columns.length; column++) {
        say(`${word} ${columns[column].toLowerCase()}:`, new Set(nodes.filter((n) => n.column === column && ids.has(n.id)).map((n) => n.id)));
      }
    };
    steps(causes, "Because of");
    steps(effects, "Leads to");
    if (chosen.within) note.append(make("ul", {}, ...chosen.within.map((one) => make("li", {}, one))));
  }
  for (const button of all) button.addEventListener("click", () => { focusOnly(button, all); choose(button.node); });
  box.addEventListener("keydown", (event) => {
    const here = document.activeElement, node = here.node;
    if (!node) return;
    if (event.key === "Escape") {
      event.preventDefault();
      choose(null);
      if (here.offsetParent === null && first) focusOnly(first, all);
      return;
    }
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const seen = all.filter((b) => b.offsetParent !== null);
    // Left and right follow the lines; up and down stay in the column.
    const linked = step[0] < 0 ? before.get(node.id) : after.get(node.id);
    const pool = step[0] ? linked.map((id) => buttons.get(id)).filter((b) => seen.includes(b))
      : seen.filter((b) => b.node.column === node.column);
    if (step[0] && pool.length) {
      const y = centre(here)[1];
      pool.sort((a, b) => Math.abs(centre(a)[1] - y) - Math.abs(centre(b)[1] - y));
      focusOnly(pool[0], all);
    } else if (!step[0]) {
      const to = pool[pool.indexOf(here) + step[1]];
      if (to) focusOnly(to, all);
    }
  });
  note.dataset.empty = note.textContent;
  choose(null);
  window.addEventListener("resize", lines);
  document.fonts.ready.then(lines);
}

// --- tables ---------------------------------------------------------------------------------------------------------

function currentFilter() {
  const input = document.getElementById("filter");
  return input ? input.value.trim().toLowerCase() : "";
}

function dimTiles(words) {
  for (const button of document.querySelectorAll("#map button")) {
    const names = [button.tile, ...(button.tile.within || [])].map((one) => one.name.toLowerCase());
    button.classList.toggle("dim", Boolean(words) && !names.some((name) => name.includes(words)));
  }
}

function startFilter() {
  const input = document.getElementById("filter"), table = document.getElementById("packages");
  if (!input || !table) return;
  for (const element of document.querySelectorAll(".filter")) element.hidden = false;
  const rows = [...table.tBodies[0].rows], count = document.getElementById("count");
  const update = () => {
    const words = currentFilter();
    let shown = 0;
    for (const row of rows) {
      row.hidden = Boolean(words) && !row.textContent.toLowerCase().includes(words);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = words ? `${shown} of ${rows.length}` : `${rows.length}`;
    dimTiles(words);
  };
  input.addEventListener("input", update);
  input.addEventListener("keydown", (event) => { if (event.key === "Escape") { input.value = ""; update(); } });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && document.activeElement !== input) { event.preventDefault(); input.focus(); }
  });
  update();
}

function startSorting() {
  for (const table of document.querySelectorAll("table.sorted")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending"
          || (!head.hasAttribute("aria-sort") && head.classList.contains("number"));
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => {
          const cell = row.cells[column];
          return cell.dataset.value === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.value);
        };
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const x = value(a), y = value(b);
          return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
        });
        table.tBodies[0].append(...rows);
      });
    });
  }
}

startFilter();
startMap();
startGraph();
startSorting();
