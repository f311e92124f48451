// Logs in, shows the page that the address names, and draws it again when something changed, at most once a frame.

import { token, Refused } from "./api.js";
import * as cell from "./cell.js";
import { h, text } from "./dom.js";
import { Live } from "./live.js";
import * as pages from "./pages.js";
import * as what_if from "./what_if.js";

const main = document.getElementById("main");
const lead = document.getElementById("lead");
const trouble = document.getElementById("trouble");
const logout = document.getElementById("logout");

let live = null;
let page = null;
let is_planned = false;

const ROUTES = [
  [/^$/, () => cell.page(live)],
  [/^services$/, () => pages.services(live)],
  [/^services\/([^/]+)\/([^/]+)$/, (deployment, service) => pages.service(live, deployment, service)],
  [/^nodes\/([^/]+)$/, (name) => pages.node(live, name)],
  [/^replicas\/([^/]+)$/, (id) => pages.replica(live, id)],
  [/^moves$/, () => pages.moves(live)],
  [/^what-if$/, () => what_if.page(live)],
  [/^audit$/, () => pages.audit(live)],
];

function show() {
  if (!live) return;
  const path = location.hash.replace(/^#\/?/, "");
  page?.leave?.();
  for (const [pattern, make] of ROUTES) {
    const found = path.match(pattern);
    if (found) {
      page = make(...found.slice(1).map(decodeURIComponent));
      break;
    }
  }
  main.replaceChildren(page.element);
  document.title = `${page.title} · ${live.cell?.name ?? "Plimsoll"}`;
  for (const link of document.querySelectorAll("nav a")) {
    const is_here = link.getAttribute("href").replace(/^#\/?/, "") === path.split("/")[0];
    if (is_here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  draw();
}

function draw() {
  is_planned = false;
  if (!live?.cell) return;
  const began = performance.now();
  text(document.getElementById("cell"), live.cell.name);
  text(lead, `${live.cell.leader ? `${live.cell.leader} leads` : "nobody leads"} · term ${live.cell.term} · ${live.who.identity} (${live.who.role})`);
  trouble.hidden = !live.trouble;
  text(trouble, live.trouble?.message ?? "");
  page?.draw();
  performance.measure("draw", { start: began });
}

function plan() {
  if (is_planned) return;
  is_planned = true;
  requestAnimationFrame(draw);
}

async function begin() {
  const next = new Live(plan);
  try {
    await next.start();
  } catch (error) {
    next.stop();
    if (error instanceof Refused && error.status === 401) return login(token.get() ? error.message : null);
    return login(`Cannot reach the node: ${error.message}`);
  }
  live = next;
  logout.hidden = !token.get();
  show();
}

function login(why) {
  token.clear();
  const field = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true, spellcheck: "false" });
  const form = h("form", { class: "login", onsubmit: (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    begin();
  } },
  h("h1", {}, "Log in"),
  h("p", {}, "With a token of this cell: ", h("code", {}, "plimsoll token create NAME --role read"), " prints one."),
  why ? h("p", { class: "warning", role: "alert" }, why) : "",
  h("label", { for: "token" }, "Token"), field, h("button", {}, "Log in"));
  main.replaceChildren(form);
  field.focus();
}

logout.addEventListener("click", () => {
  live?.stop();
  live = null;
  token.clear();
  logout.hidden = true;
  login(null);
});
addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) live?.measure().catch((error) => live.failed(error));
});

// `plimsoll dashboard` hands its own secret over behind the hash, which no server sees.
const handed = location.hash.match(/^#token=(.+)$/);
if (handed) {
  token.set(decodeURIComponent(handed[1]));
  history.replaceState(null, "", "#/");
}
begin();
