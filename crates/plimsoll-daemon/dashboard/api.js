// The cell's API. The token is kept for this tab alone and sent in a header by this code: no other page can have the browser send it.

const KEY = "plimsoll-token";

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.message);
    this.status = status;
    this.code = problem.code;
    this.hint = problem.hint;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

function headers(more) {
  const bearer = token.get();
  return bearer ? { ...more, authorization: `Bearer ${bearer}` } : { ...more };
}

async function answer(response) {
  if (response.ok) return response;
  let problem = { code: "unknown", message: `${response.status} ${response.statusText}` };
  try {
    problem = await response.json();
  } catch {
    // What is not JSON was not said by a node.
  }
  throw new Refused(response.status, problem);
}

const path = (url) => new URL(url.replace(/^\//, ""), document.baseURI);

export async function get(url, signal) {
  const response = await fetch(path(url), { headers: headers({ accept: "application/json" }), signal, cache: "no-store" });
  return (await answer(response)).json();
}

export async function send(method, url, body) {
  const response = await fetch(path(url), {
    method,
    headers: headers({ "content-type": "application/json" }),
    body: JSON.stringify(body ?? {}),
  });
  return (await answer(response)).json();
}

/** Server-sent events over fetch: an EventSource cannot send a header. Calls `on` with what each says, until it ends. */
export async function events(url, on, signal) {
  const response = await answer(await fetch(path(url), { headers: headers({ accept: "text/event-stream" }), signal, cache: "no-store" }));
  let data = [];
  for await (const line of lines(response.body)) {
    if (line === "") {
      if (data.length > 0) on(JSON.parse(data.join("\n")));
      data = [];
    } else if (line.startsWith("data:")) {
      data.push(line.slice(5).trimStart());
    }
  }
}

/** JSON, one value a line. */
export async function pieces(url, on, signal) {
  const response = await answer(await fetch(path(url), { headers: headers({}), signal, cache: "no-store" }));
  for await (const line of lines(response.body)) {
    if (line !== "") on(JSON.parse(line));
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield part.replace(/\r$/, "");
  }
  if (rest !== "") yield rest;
}
