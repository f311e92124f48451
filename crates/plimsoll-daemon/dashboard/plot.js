// Levels of a node over the last hour.

import { h } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 180;

export function plot(samples, limits, label) {
  if (samples.length < 2) return h("p", { class: "quiet" }, "No history yet: a leader keeps it from when it began to lead.");
  const times = samples.map((it) => Date.parse(it.at));
  const [from, to] = [times[0], times.at(-1)];
  const x = (time) => 34 + ((WIDTH - 40) * (time - from)) / Math.max(1, to - from);
  const y = (share) => HEIGHT - 18 - (HEIGHT - 30) * Math.min(1.1, share);
  const line = (field, kind) => {
    const points = samples.map((it, at) => `${x(times[at]).toFixed(1)},${y(it[field] / 1e6).toFixed(1)}`);
    return h("polyline", { class: kind, points: points.join(" ") });
  };
  const rule = (share, kind, name) => [
    h("line", { class: kind, x1: 34, x2: WIDTH - 6, y1: y(share), y2: y(share) }),
    h("text", { x: 30, y: y(share) + 3, "text-anchor": "end" }, name),
  ];
  const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const last = samples.at(-1);
  const summary = `${label}: from ${clock(from)} to ${clock(to)}, now cpu ${Math.round(last.cpu / 1e4)} % and memory ${Math.round(last.memory / 1e4)} %`;
  return h("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary },
    ...rule(0, "axis", "0"), ...rule(0.5, "axis", "50 %"), ...rule(limits.cap, "cap", "cap"), ...rule(limits.trigger, "load-line", "line"),
    line("memory", "memory"), line("cpu", "cpu"),
    h("text", { x: 34, y: HEIGHT - 4 }, clock(from)), h("text", { x: WIDTH - 6, y: HEIGHT - 4, "text-anchor": "end" }, clock(to)));
}
