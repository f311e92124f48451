// Pages of services, nodes and replicas, of moves and of the audit.

import { get, pieces, send } from "./api.js";
import { ago, bytes, h, keyed, percent, table, text } from "./dom.js";
import { hue } from "./hull.js";
import { plot } from "./plot.js";

const to_node = (name) => h("a", { href: `#/nodes/${encodeURIComponent(name)}` }, name);
const to_replica = (id) => h("a", { href: `#/replicas/${encodeURIComponent(id)}` }, id);
const to_service = (deployment, service) => h("a", { href: `#/services/${encodeURIComponent(deployment)}/${encodeURIComponent(service)}` }, `${deployment}/${service}`);
const code = (value) => h("code", {}, value);

function because(reason) {
  return reason ? h("span", { class: "reason" }, code(reason.word), " ", reason.text) : "";
}

/** Asks before it does something, with what the answer was beside it. */
export function action(label, run, confirm = null) {
  const said = h("span", { class: "said", role: "status" });
  const button = h("button", { type: "button" }, label);
  button.addEventListener("click", async () => {
    if (confirm && !window.confirm(confirm())) return;
    button.disabled = true;
    text(said, "…");
    try {
      text(said, await run());
    } catch (error) {
      text(said, `refused: ${error.message}`);
    }
    button.disabled = false;
  });
  return h("span", { class: "action" }, button, " ", said);
}

function progress(deployment) {
  const { is, doing, why } = deployment.progress;
  const more = doing ?? why ?? [];
  return h("span", {}, h("b", { class: is }, deployment.is_deleted ? "stopping" : is), more.length ? ` ${more[0].subject}: ${more[0].text}${more.length > 1 ? ` (+${more.length - 1})` : ""}` : "");
}

export function services(live) {
  const list = h("div");
  const draw = () => {
    const sections = [...live.deployments.values()].map((deployment) => h("section", {},
      h("h2", {}, deployment.name, " ", h("small", {}, `revision ${deployment.revision}, applied ${ago(deployment.applied_at)} ago by ${deployment.applied_by}`)),
      h("p", {}, progress(deployment)),
      table(`Services of ${deployment.name}`, ["Service", "Running", "Rollout", "Image", "Replicas"], deployment.services.map((service) => [
        to_service(deployment.name, service.name), `${service.running}/${service.wanted}`,
        service.rollout ? `${service.rollout.phase} r${service.rollout.revision}` : "–", code(service.image),
        h("span", { class: "dots" }, service.replicas.map((replica) => {
          const state = (replica.now ?? replica.next ?? replica.leaving[0])?.state ?? "none";
          const label = `${replica.id}: ${state}`;
          return h("a", { class: `dot ${state}${replica.next ? " moves" : ""}`, href: `#/replicas/${encodeURIComponent(replica.id)}`, title: label, "aria-label": label });
        })),
      ]))));
    list.replaceChildren(...(sections.length ? sections : [h("p", { class: "quiet" }, "Nothing is deployed: plimsoll apply -f compose.yaml")]));
  };
  return { element: h("section", {}, h("h1", {}, "Services"), list), draw, title: "Services" };
}

export function service(live, deployment_name, service_name) {
  const body = h("div");
  const count = h("input", { type: "number", min: 0, max: 100000, "aria-label": "Replicas", class: "count" });
  const base = `/v1/deployments/${encodeURIComponent(deployment_name)}`;
  const controls = live.may("deploy") ? h("div", { class: "controls" },
    h("span", { class: "action" }, count, action("Scale", async () => {
      await send("POST", `${base}/scale`, { services: { [service_name]: Number(count.value) } });
      return `scaled to ${count.value}`;
    })),
    action("Restart", async () => {
      const { replicas } = await send("POST", `${base}/restart`, { service: service_name });
      return `${replicas.length} replicas restart, one after another`;
    }, () => `Restart every replica of ${deployment_name}/${service_name}?`),
    action("Roll back", async () => {
      const applied = await send("POST", `${base}/rollback`, {});
      return `revision ${applied.revision}`;
    }, () => `Roll the whole deployment ${deployment_name} back to the revision before?`)) : null;
  let is_set = false;
  const draw = () => {
    const deployment = live.deployments.get(deployment_name);
    const found = deployment?.services.find((it) => it.name === service_name);
    if (!found) return body.replaceChildren(h("p", { class: "quiet" }, "It is gone."));
    if (!is_set) count.value = found.wanted;
    is_set = true;
    body.replaceChildren(
      h("p", {}, progress(deployment)),
      h("p", {}, `${found.running} of ${found.wanted} running, ${found.mode}, `, code(found.image), found.ports.length ? `, ports ${found.ports.join(", ")}` : ""),
      found.unplaced ? h("p", { class: "warning" }, because(found.unplaced)) : "",
      found.rollout ? h("p", {}, `rollout: ${found.rollout.phase}, revision ${found.rollout.revision}, ${found.rollout.updated} updated${found.rollout.why ? `: ${found.rollout.why}` : ""}`) : "",
      table(`Replicas of ${service_name}`, ["Replica", "State", "Node", "Since", "Fails", "CPU", "Memory", "Detail"], found.replicas.map((replica) => {
        const it = replica.now ?? replica.next ?? replica.leaving[0];
        const detail = it?.reason ?? replica.waiting;
        return [to_replica(replica.id), h("b", { class: it?.state }, it?.state ?? "–"), it ? to_node(it.node) : "–", it ? ago(it.since) : "–", String(it?.failures ?? 0),
          it?.cpu_millis != null ? `${(it.cpu_millis / 1000).toFixed(2)}` : "–", it?.memory_bytes != null ? bytes(it.memory_bytes) : "–",
          replica.next ? `moves to ${replica.next.node} (${replica.cause})` : because(detail)];
      })));
  };
  const heading = h("h1", {}, h("span", { class: "swatch" }), `${deployment_name}/${service_name}`);
  heading.firstChild.style.background = `hsl(${hue(`${deployment_name}/${service_name}`)} 55% 52%)`;
  return { element: h("section", {}, heading, controls ?? "", body), draw, title: service_name };
}

export function node(live, name) {
  const body = h("div");
  const reasons = h("div", {}, h("p", { class: "quiet" }, "…"));
  const base = `/v1/nodes/${encodeURIComponent(name)}`;
  const plan = h("div");
  const controls = live.may("admin") ? h("div", { class: "controls" },
    action("Plan a drain", async () => {
      const drain = await send("POST", `${base}/drain?dry_run=true`, {});
      plan.replaceChildren(h("h2", {}, "If it is drained"),
        table("Planned moves", ["Replica", "To", "Cause"], drain.plan.moved.map((it) => [it.replica, it.to, it.cause])),
        table("What stays", ["Replica", "Reason", "Detail"], drain.plan.stays.map((it) => [it.replica, it.reason, it.detail]), "nothing stays"));
      return `${drain.plan.moved.length} move, ${drain.plan.stays.length} stay, about ${Math.round(drain.estimate_ms / 1000)} s`;
    }),
    action("Drain", async () => {
      await send("POST", `${base}/drain`, {});
      return "draining";
    }, () => `Drain ${name}? Its replicas move to other nodes, and it takes nothing new.`),
    action("Cordon", async () => (await send("POST", `${base}/cordon`)).availability),
    action("Uncordon", async () => (await send("POST", `${base}/uncordon`)).availability)) : null;
  const explain = async () => {
    try {
      const account = await get(`${base}/explain`);
      reasons.replaceChildren(h("p", {}, account.why),
        table("Gates of the node", ["Gate", "Found", "Limit", "Result"], account.gates.map((it) => [code(it.gate), it.found, it.limit, it.passes ? "passes" : h("b", {}, "holds it back")])),
        ...account.moves.slice(0, 10).map((it) => h("details", {}, h("summary", {}, `${it.replica} → ${it.dst}: relief ${percent(it.relief / 1e6)}`),
          table(`Gates of ${it.replica}`, ["Gate", "Found", "Limit", "Result"], it.gates.map((gate) => [code(gate.gate), gate.found, gate.limit, gate.passes ? "passes" : h("b", {}, "holds it back")])))));
    } catch (error) {
      reasons.replaceChildren(h("p", { class: "quiet" }, error.message));
    }
  };
  let past = [];
  const look_back = async () => {
    const told = await get(`/v1/pressure?history=true&node=${encodeURIComponent(name)}`);
    past = told.nodes[0]?.samples ?? [];
    draw();
  };
  explain();
  look_back().catch((error) => live.failed(error));
  const timer = setInterval(() => {
    explain();
    look_back().catch((error) => live.failed(error));
  }, 30000);
  const draw = () => {
    const found = live.nodes.get(name);
    if (!found) return body.replaceChildren(h("p", { class: "quiet" }, "It is not in the cell."));
    const limits = { trigger: live.pressure.trigger / 1e6, cap: live.pressure.destination_cap / 1e6 };
    const cargo = live.cargo().get(name) ?? [];
    const levels = live.levels(name);
    body.replaceChildren(
      h("p", {}, h("b", { class: found.status }, found.status), `, ${found.availability}, ${found.role}`, found.zone ? `, zone ${found.zone}` : "", `; ${found.runtime ? `${found.runtime.name} ${found.runtime.version ?? ""}` : "no runtime known"}; plimsoll ${found.version ?? "?"}`),
      found.runtime?.trouble ? h("p", { class: "warning" }, found.runtime.trouble) : "",
      h("p", {}, `cpu ${percent(levels.now.cpu)} now, ${percent(levels.cpu)} smoothed · memory ${percent(levels.now.memory)} now, ${percent(levels.memory)} smoothed · reserved ${(found.reserved.cpu_millis / 1000).toFixed(1)} of ${(found.capacity.cpu_millis / 1000).toFixed(1)} cpu, ${bytes(found.reserved.memory_bytes)} of ${bytes(found.capacity.memory_bytes)}`),
      found.fill ? h("p", { class: "quiet" }, found.fill.text) : "",
      h("h2", {}, "The last hour"), plot(past, limits, `Levels of ${name}`),
      h("h2", {}, `Replicas (${cargo.length})`),
      table(`Replicas on ${name}`, ["Replica", "Service", "State", "Move"], cargo.map((it) => [to_replica(it.id), it.key, h("b", { class: it.state }, it.state), it.role === "runs" ? "" : it.role])));
  };
  return { element: h("section", {}, h("h1", {}, name), controls ?? "", plan, body, h("h2", {}, "Why nothing leaves it, or what does"), reasons), draw, title: name, leave: () => clearInterval(timer) };
}

export function replica(live, id) {
  const body = h("div");
  const reasons = h("div", {}, h("p", { class: "quiet" }, "…"));
  const lines = h("pre", { class: "logs", tabindex: "0", "aria-label": `Logs of ${id}` });
  const abort = new AbortController();
  const explain = async () => {
    try {
      const it = await get(`/v1/explain/${encodeURIComponent(id)}`);
      reasons.replaceChildren(h("p", {}, it.why), it.rescheduling ? h("p", {}, it.rescheduling.text) : "",
        ...it.notes.map((note) => h("p", {}, because(note))),
        table("What every node says", ["Node", "Score", "Parts", "Filter"], it.nodes.slice(0, 100).map((verdict) => [
          h("span", {}, to_node(verdict.node), verdict.is_here ? " (here)" : ""), verdict.score === null ? "–" : String(verdict.score),
          Object.entries(verdict.parts).map(([part, points]) => `${part} ${points}`).join(", "), because(verdict.filter)])),
        it.reviews.length ? h("div", {}, h("h3", {}, "What its moves were worth"), h("ul", {}, it.reviews.map((review) => h("li", {}, review.text)))) : "");
    } catch (error) {
      reasons.replaceChildren(h("p", { class: "quiet" }, error.message));
    }
  };
  const read = async () => {
    try {
      await pieces(`/v1/replicas/${encodeURIComponent(id)}/logs?follow=true&tail=200`, (piece) => {
        const is_low = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
        const line = piece.text ?? `(${piece.node}: ${piece.why ?? piece.message})`;
        lines.append(h("span", { class: piece.from ?? "missing" }, `${line}\n`));
        while (lines.childElementCount > 1000) lines.firstChild.remove();
        if (is_low) lines.scrollTop = lines.scrollHeight;
      }, abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") lines.append(h("span", { class: "missing" }, `${error.message}\n`));
    }
  };
  explain();
  read();
  const draw = () => {
    const found = [...live.replicas()].find((it) => it.replica.id === id);
    if (!found) return body.replaceChildren(h("p", { class: "quiet" }, "It is gone."));
    const { deployment, service: of, replica: it } = found;
    const row = (assignment, what) => [what, to_node(assignment.node), h("b", { class: assignment.state }, assignment.state), ago(assignment.since), `r${assignment.revision}`, String(assignment.failures), because(assignment.reason)];
    body.replaceChildren(h("p", {}, to_service(deployment.name, of.name)),
      table("Where it is", ["Which", "Node", "State", "Since", "Revision", "Fails", "Detail"], [
        ...(it.now ? [row(it.now, "now")] : []), ...(it.next ? [row(it.next, `next (${it.cause})`)] : []), ...it.leaving.map((old) => row(old, "stops"))]),
      it.waiting ? h("p", { class: "warning" }, because(it.waiting)) : "");
  };
  return { element: h("section", {}, h("h1", {}, id), body, h("h2", {}, "Why it is here"), reasons, h("h2", {}, "Logs"), lines), draw, title: id, leave: () => abort.abort() };
}

const STEPS = ["assigned", "pulling", "starting", "running"];

export function moves(live) {
  const list = h("div");
  const worth = h("div");
  const look = async () => {
    try {
      const it = await get("/v1/reschedule");
      worth.replaceChildren(
        table("The loops", ["Loop", "Held", "Failed", "Not judged", "Pending", "Pace"], it.loops.map((loop) => [loop.name, String(loop.held), String(loop.failed), String(loop.not_judged), String(loop.pending), loop.slowed === 1 ? "full" : `1 cycle in ${loop.slowed}`])),
        table("Reviews", ["Reviewed", "Move", "What it was worth"], it.reviews.slice(0, 30).map((review) => [`${ago(review.reviewed)} ago`, h("span", {}, to_replica(review.replica), ` ${review.src} → ${review.dst}`), review.text]), "No move has been looked at again yet: that is ten minutes after it began."));
    } catch (error) {
      worth.replaceChildren(h("p", { class: "quiet" }, error.message));
    }
  };
  look();
  const timer = setInterval(look, 30000);
  const draw = () => {
    list.replaceChildren(table("Moves under way", ["Replica", "From", "To", "Cause", "Step", "For"], live.moves().map((it) => [
      to_replica(it.replica), it.from ? to_node(it.from) : "–", to_node(it.to), code(it.cause ?? ""),
      h("span", {}, h("progress", { max: STEPS.length, value: STEPS.indexOf(it.state) + 1, "aria-label": it.state }), ` ${it.state}`), ago(it.since)]), "Nothing moves."));
  };
  return { element: h("section", {}, h("h1", {}, "Moves"), list, h("h2", {}, "What automatic moves were worth"), worth), draw, title: "Moves", leave: () => clearInterval(timer) };
}

export function audit(live) {
  const list = h("ol", { class: "audit" });
  const filter = h("input", { type: "search", placeholder: "Filter: web, move_started, ash …", "aria-label": "Filter the audit" });
  const is_still = h("input", { type: "checkbox", id: "hold" });
  const draw = () => {
    if (is_still.checked) return;
    const wanted = filter.value.trim().toLowerCase();
    const events = live.audit.filter((it) => !wanted || it.text.toLowerCase().includes(wanted) || it.what.includes(wanted) || it.by.toLowerCase().includes(wanted)).reverse();
    keyed(list, events, (it) => it.seq, (it) => h("li", {}, h("time", { datetime: it.at }, new Date(it.at).toLocaleTimeString()), code(it.what), h("span"), h("small", {}, `${it.writer} ${it.by}`)),
      (row, it) => text(row.children[2], it.text));
  };
  filter.addEventListener("input", draw);
  return { element: h("section", {}, h("h1", {}, "Audit"), h("div", { class: "controls" }, filter, h("label", { for: "hold" }, is_still, " hold still")), list), draw, title: "Audit" };
}
