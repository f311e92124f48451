// What is known of the cell, kept up to date: a stream says what changed, and only that is asked for again.

import { events, get } from "./api.js";

const MILLION = 1e6;

/** How many deployments are asked for one by one; beyond it everything is. */
const FEW = 6;

/** How long the audit is kept here. */
const MAX_AUDIT = 500;

export class Live {
  constructor(onchange) {
    this.onchange = onchange;
    this.nodes = new Map();
    this.deployments = new Map();
    this.pressure = { trigger: 850000, destination_cap: 750000, nodes: [] };
    this.audit = [];
    this.cell = null;
    this.trouble = null;
    this.dirty = new Set();
    this.is_all_dirty = false;
    this.abort = new AbortController();
  }

  async start() {
    this.who = await get("/v1/whoami");
    await this.look();
    await this.measure();
    this.follow("/v1/watch", (changed) => this.changed(changed));
    this.follow("/v1/audit?follow=true&limit=200", (event) => this.happened(event));
    this.timer = setInterval(() => this.measure().catch((error) => this.failed(error)), 5000);
  }

  stop() {
    this.abort.abort();
    clearInterval(this.timer);
    clearTimeout(this.pending);
  }

  may(role) {
    const order = ["read", "deploy", "admin"];
    return order.indexOf(this.who?.role) >= order.indexOf(role);
  }

  async look() {
    const began = performance.now();
    const status = await get("/v1/status", this.abort.signal);
    this.cell = status.cell;
    this.nodes = new Map(status.nodes.map((node) => [node.name, node]));
    this.deployments = new Map(status.deployments.map((it) => [it.name, it]));
    this.took = performance.now() - began;
    this.failed(status.cell.trouble ? { message: status.cell.trouble.message } : null);
  }

  /** Levels, now and over the last hour; of a large cell less often, and the nodes with them. */
  async measure() {
    if (document.hidden) return;
    this.round = (this.round ?? -1) + 1;
    if (this.nodes.size > 200 && this.round % 3 !== 0) return;
    this.pressure = await get("/v1/pressure", this.abort.signal);
    if (this.nodes.size > 0) await this.refresh_nodes();
    this.onchange();
  }

  async refresh_nodes() {
    const nodes = await get("/v1/nodes?limit=10000", this.abort.signal);
    this.nodes = new Map(nodes.map((node) => [node.name, node]));
  }

  changed(changed) {
    this.cell && (this.cell.applied = changed.index);
    if (changed.lagged || changed.nodes.length > 0) this.is_all_dirty = true;
    changed.deployments.forEach((name) => this.dirty.add(name));
    if (changed.replicas.length > 0 && changed.deployments.length === 0) this.is_all_dirty = true;
    if (this.is_all_dirty || this.dirty.size > 0) this.plan();
  }

  /** A burst of changes is one look, and looks take at most a quarter of the time. */
  plan() {
    if (this.pending) return;
    this.pending = setTimeout(async () => {
      this.pending = null;
      const names = [...this.dirty];
      const is_all = this.is_all_dirty || names.length > FEW;
      this.dirty.clear();
      this.is_all_dirty = false;
      try {
        if (is_all) await this.look();
        else await Promise.all(names.map((name) => this.look_at(name)));
        this.onchange();
      } catch (error) {
        this.failed(error);
        this.is_all_dirty = true;
        setTimeout(() => this.plan(), 2000);
      }
    }, Math.max(250, 3 * (this.took ?? 0)));
  }

  async look_at(name) {
    const status = await get(`/v1/status?deployment=${encodeURIComponent(name)}`, this.abort.signal);
    const found = status.deployments.find((it) => it.name === name);
    if (found) this.deployments.set(name, found);
    else this.deployments.delete(name);
    for (const node of status.nodes) {
      const fill = this.nodes.get(node.name)?.fill;
      this.nodes.set(node.name, { ...node, fill: node.fill ?? fill });
    }
    this.cell = status.cell;
  }

  happened(event) {
    const last = this.audit.at(-1);
    // A repeated skip is told again under its number, with a higher count.
    const at = this.audit.findIndex((known) => known.seq === event.seq);
    if (at >= 0) this.audit[at] = event;
    else if (!last || event.seq > last.seq) this.audit.push(event);
    if (this.audit.length > MAX_AUDIT) this.audit.splice(0, this.audit.length - MAX_AUDIT);
    this.onchange();
  }

  /** Follows a stream for as long as the page is open; one that ends is opened again. */
  async follow(url, on) {
    let pause = 500;
    while (!this.abort.signal.aborted) {
      try {
        await events(url, (said) => { pause = 500; on(said); }, this.abort.signal);
      } catch (error) {
        if (this.abort.signal.aborted) return;
        this.failed(error);
        if (error.status === 401) return;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(10000, pause * 2);
      this.is_all_dirty = true;
      this.plan();
    }
  }

  failed(error) {
    if (error?.name === "AbortError") return;
    this.trouble = error ? error : null;
    this.onchange();
  }

  /** Every replica with its service, once. */
  *replicas() {
    for (const deployment of this.deployments.values()) {
      for (const service of deployment.services) {
        for (const replica of service.replicas) yield { deployment, service, replica };
      }
    }
  }

  /** What each node carries, comes to it and leaves it. */
  cargo() {
    const cargo = new Map();
    const on = (node) => {
      if (!cargo.has(node)) cargo.set(node, []);
      return cargo.get(node);
    };
    for (const { deployment, service, replica } of this.replicas()) {
      const key = `${deployment.name}/${service.name}`;
      const put = (assignment, role) => on(assignment.node).push({ id: replica.id, key, role, state: assignment.state });
      if (replica.now) put(replica.now, replica.next ? "leaves" : "runs");
      if (replica.next) put(replica.next, "comes");
      replica.leaving.forEach((it) => put(it, "stops"));
    }
    for (const list of cargo.values()) list.sort((a, b) => a.key.localeCompare(b.key) || a.id.localeCompare(b.id, undefined, { numeric: true }));
    return cargo;
  }

  moves() {
    const moves = [];
    for (const { service, deployment, replica } of this.replicas()) {
      if (replica.next) {
        moves.push({
          replica: replica.id, service: `${deployment.name}/${service.name}`, cause: replica.cause,
          from: replica.now?.node, to: replica.next.node, state: replica.next.state, since: replica.next.since,
        });
      }
    }
    return moves;
  }

  /** The last hour of every node: much, so it is asked for when somebody looks back. */
  async look_back() {
    const { nodes } = await get("/v1/pressure?history=true", this.abort.signal);
    this.past = new Map(nodes.map((node) => [node.node, node.samples.map((it) => ({ ...it, time: Date.parse(it.at) }))]));
    this.onchange();
  }

  /** Levels of a node as shares, live or at a moment of the last hour. */
  levels(name, at = null) {
    const known = this.level(name);
    if (at !== null) {
      const sample = this.past?.get(name)?.findLast((it) => it.time <= at);
      return sample ? { cpu: sample.cpu / MILLION, memory: sample.memory / MILLION, replicas: sample.replicas } : null;
    }
    const now = this.nodes.get(name)?.pressure;
    const share = (value) => (value === null || value === undefined ? null : value / MILLION);
    const smoothed = known?.smoothed;
    return {
      cpu: share(smoothed?.cpu ?? now?.cpu), memory: share(smoothed?.memory ?? now?.memory),
      now: { cpu: share(now?.cpu), memory: share(now?.memory) },
      after: known?.predicted ? { cpu: share(known.predicted.cpu), memory: share(known.predicted.memory) } : null,
    };
  }

  level(name) {
    if (this.indexed !== this.pressure) {
      this.indexed = this.pressure;
      this.index = new Map(this.pressure.nodes.map((node) => [node.node, node]));
    }
    return this.index.get(name);
  }
}
