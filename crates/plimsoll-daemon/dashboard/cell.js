// The cell at a glance: every node with its levels, lines and cargo; a slider goes back over the last hour.

import { h, keyed, percent, set, text } from "./dom.js";
import * as hull from "./hull.js";

export function page(live) {
  const grid = h("div", { class: "hulls" });
  const summary = h("p", { class: "summary", role: "status" });
  const rows = h("tbody");
  const table = h("table", {},
    h("caption", { class: "hidden" }, "Nodes"),
    h("thead", {}, h("tr", {}, ["Node", "State", "Role", "Zone", "CPU", "Memory", "Replicas"].map((it) => h("th", { scope: "col" }, it)))), rows);
  const slider = h("input", { type: "range", min: 0, max: 1, value: 1, step: 1, id: "when", "aria-describedby": "moment" });
  const moment = h("output", { id: "moment", for: "when" }, "live");
  const as_table = h("input", { type: "checkbox", id: "as-table" });
  const search = h("input", { type: "search", id: "search", placeholder: "Filter nodes", "aria-label": "Filter nodes by name or zone" });
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes", hidden: true }, table);
  const order = h("select", { id: "order", "aria-label": "Order" },
    ["by name", "hottest first", "most replicas first"].map((it) => h("option", {}, it)));
  const times = () => {
    const seen = new Set();
    for (const samples of live.past?.values() ?? []) for (const sample of samples) seen.add(sample.time);
    return [...seen].sort((a, b) => a - b);
  };
  const element = h("section", {},
    h("h1", { class: "hidden" }, "Cell"), summary,
    h("div", { class: "controls" }, search, order,
      h("label", { for: "as-table" }, as_table, " as a table"),
      h("label", { class: "scrubber", for: "when" }, "Last hour ", slider, " ", moment)),
    h("p", { class: "legend" },
      h("span", { class: "key cpu" }, "cpu"), h("span", { class: "key memory" }, "memory"),
      h("span", { class: "key line" }, "load line"), h("span", { class: "key cap" }, "destination cap"),
      h("span", { class: "key after" }, "after pending moves")),
    grid, scroll);
  // Of a thousand nodes some are in sight: only those are drawn, the others when they come into it.
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      target.is_seen = isIntersecting;
      if (isIntersecting && target.item) hull.update(target, target.item);
    }
  }, { rootMargin: "300px" });
  const make = (item) => {
    const element = hull.make(item.node.name);
    sight.observe(element);
    return element;
  };
  const update = (element, item) => {
    element.item = item;
    if (element.is_seen) hull.update(element, item);
  };
  let known = [];
  const draw = () => {
    const is_live = Number(slider.value) >= Number(slider.max);
    const at = is_live ? null : known[Number(slider.value)];
    text(moment, at === null ? "live" : new Date(at).toLocaleTimeString());
    element.classList.toggle("past", at !== null);
    const limits = { trigger: live.pressure.trigger / 1e6, cap: live.pressure.destination_cap / 1e6 };
    const cargo = at === null ? live.cargo() : null;
    const wanted = search.value.trim().toLowerCase();
    const shown = [...live.nodes.values()]
      .filter((node) => !wanted || node.name.toLowerCase().includes(wanted) || (node.zone ?? "").toLowerCase().includes(wanted))
      .map((node) => {
        const levels = live.levels(node.name, at);
        const pieces = cargo ? cargo.get(node.name) ?? []
          : Array.from({ length: levels?.replicas ?? 0 }, (_, index) => ({ id: `replica ${index + 1}`, key: "", role: "runs", state: "running" }));
        return { node, levels, cargo: pieces, limits, top: Math.max(levels?.cpu ?? 0, levels?.memory ?? 0) };
      });
    const compare = [
      (a, b) => a.node.name.localeCompare(b.node.name, undefined, { numeric: true }),
      (a, b) => b.top - a.top,
      (a, b) => b.cargo.length - a.cargo.length,
    ][order.selectedIndex];
    shown.sort(compare);
    grid.hidden = as_table.checked;
    scroll.hidden = !as_table.checked;
    if (as_table.checked) {
      keyed(rows, shown, (it) => it.node.name, (it) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#/nodes/${encodeURIComponent(it.node.name)}` }, it.node.name)), ...Array.from({ length: 6 }, () => h("td"))),
        (row, { node, levels, cargo: pieces }) => {
          const cells = [node.status + (node.availability === "active" ? "" : `, ${node.availability}`), node.role, node.zone ?? "–", percent(levels?.cpu ?? null), percent(levels?.memory ?? null), String(pieces.length)];
          cells.forEach((value, index) => text(row.children[index + 1], value));
        });
    } else {
      keyed(grid, shown, (it) => it.node.name, make, update);
    }
    const down = [...live.nodes.values()].filter((node) => node.status !== "ready").length;
    let [wants, runs] = [0, 0];
    for (const deployment of live.deployments.values()) {
      for (const service of deployment.services) {
        wants += service.wanted;
        runs += service.running;
      }
    }
    const moving = live.moves().length;
    text(summary, [`${live.nodes.size} nodes${down ? `, ${down} not ready` : ""}`, `${runs} of ${wants} replicas running`, `${live.deployments.size} deployments`, moving ? `${moving} moving` : "nothing moves"].join(" · "));
  };
  // Its steps stay as they are while somebody moves it.
  const look_back = async () => {
    await live.look_back();
    const is_live = Number(slider.value) >= Number(slider.max);
    known = times();
    set(slider, { max: known.length });
    if (is_live) slider.value = known.length;
  };
  look_back().catch((error) => live.failed(error));
  slider.addEventListener("input", draw);
  slider.addEventListener("change", () => {
    if (Number(slider.value) >= Number(slider.max)) look_back().catch((error) => live.failed(error));
  });
  as_table.addEventListener("change", draw);
  search.addEventListener("input", draw);
  order.addEventListener("change", draw);
  return { element, draw, title: "Cell", leave: () => sight.disconnect() };
}
