// Elements from values. Text is always set as text, so nothing that a service, a node or a log says becomes markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set(["svg", "path", "rect", "circle", "line", "g", "text", "title", "polyline", "clipPath"]);

export function h(name, attributes, ...children) {
  const element = SVG_NAMES.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets only what differs: a live page sets the same values again and again. */
export function set(element, attributes) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value);
    } else if (value === null || value === undefined || value === false) {
      element.removeAttribute(key);
    } else {
      const text = value === true ? "" : String(value);
      if (element.getAttribute(key) !== text) element.setAttribute(key, text);
    }
  }
}

export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/**
 * Makes the children of a list those of the items, in their order: an element is made once for each key, and updated after that.
 * The cost of a change is that of what changed.
 */
export function keyed(parent, items, key, make, update) {
  const known = (parent.keyed ??= new Map());
  const seen = new Set();
  let at = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    seen.add(id);
    let element = known.get(id);
    if (!element) {
      element = make(item);
      known.set(id, element);
    }
    update?.(element, item);
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
  }
  for (const [id, element] of known) {
    if (!seen.has(id)) {
      element.remove();
      known.delete(id);
    }
  }
}

export function table(caption, headings, rows, empty = "none") {
  if (rows.length === 0) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, headings.map((it) => h("th", { scope: "col" }, it)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`);

export function ago(time, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

export function span(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${count < 10 && unit > 0 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}
