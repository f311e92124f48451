// Asks what would come of something. Nothing is done.

import { send } from "./api.js";
import { h, percent, span, table } from "./dom.js";

const QUESTIONS = {
  "drain nodes": "nodes", "lose nodes": "nodes", "add nodes": "add", "scale services": "scale", "let the loops run": "rebalance",
};

export function page(live) {
  const kind = h("select", { id: "what" }, Object.keys(QUESTIONS).map((it) => h("option", {}, it)));
  const nodes = h("input", { id: "nodes", placeholder: "ash, birch", list: "known-nodes" });
  const known = h("datalist", { id: "known-nodes" });
  const scale = h("input", { id: "scale", placeholder: "web=6, shop/api=3" });
  const number = (id, value, label) => h("label", {}, `${label} `, h("input", { id, type: "number", min: 1, value, class: "count" }));
  const add = h("span", {}, number("add-count", 1, "nodes"), number("add-cpus", 4, "cpus"), number("add-memory", 8, "GiB"), h("label", {}, "zone ", h("input", { id: "add-zone", class: "count" })));
  const answer = h("div", { role: "status" });
  const fields = { nodes: h("label", {}, "Nodes ", nodes, known), scale: h("label", {}, "Services ", scale), add, rebalance: h("span") };
  const show = () => {
    for (const [name, field] of Object.entries(fields)) field.hidden = name !== QUESTIONS[kind.value];
  };
  const question = () => {
    const names = nodes.value.split(/[\s,]+/).filter(Boolean);
    const value = (id) => Number(document.getElementById(id).value);
    switch (kind.value) {
      case "drain nodes": return { drain: { nodes: names } };
      case "lose nodes": return { lose: { nodes: names } };
      case "add nodes": {
        const zone = document.getElementById("add-zone").value.trim();
        return { add: { count: value("add-count"), milli_cpus: value("add-cpus") * 1000, memory: value("add-memory") * 2 ** 30, ...(zone ? { zone } : {}) } };
      }
      case "scale services": return { scale: { services: Object.fromEntries(scale.value.split(",").map((it) => it.trim().split("=")).filter((it) => it.length === 2).map(([name, count]) => [name.trim(), Number(count)])) } };
      default: return "rebalance";
    }
  };
  const ask = async (event) => {
    event.preventDefault();
    answer.replaceChildren(h("p", { class: "quiet" }, "…"));
    try {
      answer.replaceChildren(...told(await send("POST", "/v1/what-if", question())));
    } catch (error) {
      answer.replaceChildren(h("p", { class: "warning" }, error.message, error.hint ? ` ${error.hint}` : ""));
    }
  };
  kind.addEventListener("change", show);
  show();
  const form = h("form", { class: "controls", onsubmit: ask }, h("label", {}, "What if we ", kind), fields.nodes, fields.scale, fields.add, fields.rebalance, h("button", {}, "Ask"));
  let count = -1;
  const draw = () => {
    if (count === live.nodes.size) return;
    count = live.nodes.size;
    known.replaceChildren(...[...live.nodes.keys()].map((name) => h("option", { value: name })));
  };
  return { element: h("section", {}, h("h1", {}, "What if"), h("p", {}, "The leader's own decisions on a copy of the cell. Nothing is done."), form, answer), draw, title: "What if" };
}

function told(it) {
  const top = (usage) => (usage?.pressure ? Math.max(usage.pressure.cpu, usage.pressure.memory) / 1e6 : null);
  const reserved = (usage) => (usage ? Math.max(usage.reserved.cpu, usage.reserved.memory) / 1e6 : null);
  const bar = (before, after, peak) => h("span", { class: "change" }, bars(before, after, it.line / 1e6), ` ${percent(before)} → ${percent(after)}`, peak !== null && peak > Math.max(before ?? 0, after ?? 0) ? ` (peak ${percent(peak)})` : "");
  const changed = it.nodes.filter((node) => node.change || JSON.stringify(node.before) !== JSON.stringify(node.after));
  return [
    h("p", {}, h("b", {}, `${it.placed.length} placed, ${it.moved.length} moved, ${it.stays.length} stay, ${it.unplaced.reduce((sum, lacking) => sum + lacking.missing, 0)} unplaced`), `; about ${span(it.estimate_ms)}`, it.is_whole ? "" : "; not followed to its end"),
    it.short.length ? h("ul", { class: "warning" }, it.short.map((short) => h("li", {}, `${short.service} falls to ${short.least} of ${short.of}`))) : h("p", {}, "Every service keeps its full count."),
    table("What finds no room", ["Service", "Missing", "Reason", "Detail"], it.unplaced.map((lacking) => [lacking.service, String(lacking.missing), lacking.reason, lacking.detail]), "Everything finds room."),
    h("h2", {}, "Nodes"),
    table("Nodes before and after", ["Node", "Change", "Replicas", "Pressure", "Reserved"], changed.map((node) => [node.node, node.change ?? "", `${node.before?.replicas ?? "–"} → ${node.after?.replicas ?? "–"}`, bar(top(node.before), top(node.after), top(node.peak)), bar(reserved(node.before), reserved(node.after), null)]), "No node changes."),
    h("h2", {}, "Moves"),
    table("Moves in order", ["Round", "Replica", "From", "To", "Cause", "How"], it.moved.map((move) => [String(move.round), move.replica, move.from, move.to, move.cause, move.is_stop_first ? "stop first" : "start first"]), "Nothing moves."),
    table("What stays", ["Replica", "Node", "Reason", "Detail"], it.stays.map((stay) => [stay.replica, stay.node, stay.reason, stay.detail]), ""),
  ];
}

function bars(before, after, line) {
  const x = (share) => 60 * Math.min(1.2, share ?? 0) / 1.2;
  return h("svg", { class: "bars", viewBox: "0 0 60 14", "aria-hidden": "true" },
    h("rect", { class: "before", x: 0, y: 1, width: x(before), height: 5 }), h("rect", { class: "then", x: 0, y: 8, width: x(after), height: 5 }),
    h("line", { class: "load-line", x1: x(line), x2: x(line), y1: 0, y2: 14 }));
}
