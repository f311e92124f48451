// A node as a hull: the water stands as high as its pressure, the load line is where it is relieved, its cargo are its replicas.

import { h, keyed, percent, set, text } from "./dom.js";

// The keel is nothing, the deck is the whole node.
const KEEL = 104;
const DECK = 44;
const height = (share) => KEEL - (KEEL - DECK) * Math.min(1.12, Math.max(0, share));

/** How many pieces of cargo stand on deck; the rest is a number. */
const MAX_CARGO = 30;
const A_ROW = 10;

/** A colour of its own for each service, the same on every page. */
export function hue(key) {
  let hash = 2166136261;
  for (let at = 0; at < key.length; at += 1) hash = Math.imul(hash ^ key.charCodeAt(at), 16777619);
  return (hash >>> 0) % 360;
}

export function make(name) {
  const part = (attributes, kind = "rect") => h(kind, attributes);
  const parts = {
    cargo: h("g", { class: "cargo" }),
    more: h("text", { x: 117, y: 40, class: "more", "text-anchor": "end" }),
    sea: part({ class: "sea", x: 0, width: 120 }),
    hull: part({ class: "hull", d: "M10 44 H110 L98 94 Q95 104 85 104 H35 Q25 104 22 94 Z" }, "path"),
    cpu: part({ class: "water cpu", x: 10, width: 49 }),
    memory: part({ class: "water memory", x: 61, width: 49 }),
    now_cpu: part({ class: "now", x1: 12, x2: 58 }, "line"),
    now_memory: part({ class: "now", x1: 62, x2: 108 }, "line"),
    after_cpu: part({ class: "after", x1: 12, x2: 58 }, "line"),
    after_memory: part({ class: "after", x1: 62, x2: 108 }, "line"),
    cap: part({ class: "cap", x1: 4, x2: 116 }, "line"),
    line: part({ class: "load-line", x1: 2, x2: 118 }, "line"),
    mark: part({ class: "load-mark", cx: 60, r: 5 }, "circle"),
  };
  const clip = `clip-${name.replace(/[^\w-]/g, "_")}`;
  const drawing = h("svg", { viewBox: "0 0 120 110", "aria-hidden": "true" },
    h("clipPath", { id: clip }, h("path", { d: "M10 38 H110 V44 L98 94 Q95 104 85 104 H35 Q25 104 22 94 L10 44 Z" })),
    parts.cargo, parts.more, parts.hull,
    h("g", { "clip-path": `url(#${clip})` }, parts.cpu, parts.memory, parts.now_cpu, parts.now_memory, parts.after_cpu, parts.after_memory),
    parts.cap, parts.line, parts.mark);
  const label = h("span", { class: "name" }, name);
  const state = h("span", { class: "state" });
  const numbers = h("span", { class: "numbers" });
  const more_said = h("span", { class: "hidden" });
  const element = h("a", { class: "node", href: `#/nodes/${encodeURIComponent(name)}` }, drawing, label, " ", state, " ", numbers, " ", more_said);
  element.parts = { ...parts, state, numbers, more_said };
  return element;
}

export function update(element, { node, cargo, levels, limits }) {
  const { parts } = element;
  const level = (bar, share) => {
    const y = share === null ? KEEL : height(share);
    set(bar, { y, height: KEEL - y, class: `${bar.getAttribute("class").split(" ").slice(0, 2).join(" ")}${share >= limits.trigger ? " hot" : ""}` });
  };
  const tick = (line, share) => {
    if (share === null || share === undefined) set(line, { visibility: "hidden" });
    else set(line, { visibility: "visible", y1: height(share), y2: height(share) });
  };
  level(parts.cpu, levels?.cpu ?? null);
  level(parts.memory, levels?.memory ?? null);
  tick(parts.now_cpu, levels?.now?.cpu);
  tick(parts.now_memory, levels?.now?.memory);
  tick(parts.after_cpu, levels?.after?.cpu);
  tick(parts.after_memory, levels?.after?.memory);
  tick(parts.cap, limits.cap);
  tick(parts.line, limits.trigger);
  set(parts.mark, { cy: height(limits.trigger) });
  const shown = cargo.slice(0, MAX_CARGO);
  const place = (index) => ({ x: 11 + (index % A_ROW) * 10, y: 35 - Math.floor(index / A_ROW) * 10 });
  shown.forEach((piece, index) => (piece.at = place(index)));
  keyed(parts.cargo, shown, (piece) => `${piece.id} ${piece.role}`,
    (piece) => h("rect", { width: 8, height: 8, rx: 1.5, fill: piece.key ? `hsl(${hue(piece.key)} 55% 52%)` : "var(--quiet)" }, h("title", {}, piece.id)),
    (box, piece) => set(box, { x: piece.at.x, y: piece.at.y, class: `${piece.role} ${piece.state}` }));
  text(parts.more, cargo.length > MAX_CARGO ? `+${cargo.length - MAX_CARGO}` : "");
  const condition = node.status !== "ready" ? node.status.replace("_", " ") : node.availability !== "active" ? node.availability : "";
  text(parts.state, condition);
  const numbers = `cpu ${percent(levels?.cpu ?? null)} · mem ${percent(levels?.memory ?? null)}`;
  text(parts.numbers, numbers);
  const is_hot = Math.max(levels?.cpu ?? 0, levels?.memory ?? 0) >= limits.trigger;
  set(element, { class: `node ${node.status} ${node.availability}${is_hot ? " hot" : ""}` });
  // For those who do not see the drawing.
  text(parts.more_said, `${cargo.length} replicas${is_hot ? ", above its load line" : ""}`);
}
