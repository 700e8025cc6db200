// Calls of weft.v1 by the Connect protocol, with the token of this tab. https://connectrpc.com/docs/protocol
import { T } from "./texts.js";

const KEY = "weft-token";
const UNARY = "application/json", STREAM = "application/connect+json";

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY),
};

// What a server says no with. `status` is 0 where nobody answered, or not to the end. `asked` is the method, or the path.
export class Refused extends Error {
  constructor(status, { code = "", message = status ? "" : T.errors.away, details = [] } = {}, asked = "") {
    super(message);
    const debug = (type) => details.find((each) => each.type === `google.rpc.${type}`)?.debug ?? {};
    Object.assign(this, { status, code, asked, reason: debug("ErrorInfo").reason ?? "" });
    // A stream's request is in another message.
    this.field = (debug("BadRequest").fieldViolations?.[0]?.field ?? "").replace(/^request\./, "");
  }
}

// A proxy may serve all this below a path of its own.
export const urlOf = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;
export const methodUrl = (method) => urlOf(`weft.v1.${method}`);

export async function get(path, signal) {
  return await sent(urlOf(path), { signal });
}

export const getJson = async (path, signal) => await whole((await get(path, signal)).json());

export async function unary(method, message, signal) {
  const got = await sent(methodUrl(method), post(UNARY, JSON.stringify(message), signal));
  return await whole(got.json());
}

// Yields each message. Whoever ends early, or aborts, cancels the call: its slot is free.
export async function* stream(method, message, signal) {
  const got = await sent(methodUrl(method), post(STREAM, enveloped(JSON.stringify(message)), signal));
  for await (const [flags, text] of envelopes(got.body.getReader())) {
    const said = parsed(text);
    if (!(flags & 2)) { yield said; continue; }
    if (said.error) throw new Refused(200, said.error, method.replace(/.*\//, ""));
    return;
  }
  throw new Refused(0, BROKEN);
}

const BROKEN = { message: T.errors.broken };
const post = (type, body, signal) => ({ method: "POST", headers: { "content-type": type }, body, signal });

async function sent(url, about) {
  const headers = { ...about.headers, ...(token.get() ? { authorization: `Bearer ${token.get()}` } : {}) };
  const got = await whole(fetch(url, { ...about, headers }));
  if (got.ok) return got;
  const text = await got.text();
  let said = { message: `HTTP ${got.status} ${text.replace(/<[^>]*>/g, " ").trim().slice(0, 300)}`.trim() };
  try { said = JSON.parse(text); } catch { /* a proxy's page */ }
  throw new Refused(got.status, said.error ?? said, url.replace(/.*\//, ""));
}

// How long the page waits for what is told at once.
export const patience = () => AbortSignal.timeout(10_000);

// The browser says TypeError where nobody answers, or an answer breaks off. What is no JSON comes from somebody else.
async function whole(promise, about) {
  try { return await promise; } catch (error) {
    if (error instanceof SyntaxError) throw new Refused(0, { message: T.errors.strange });
    throw error instanceof TypeError || error.name === "TimeoutError" ? new Refused(0, about) : error;
  }
}

function parsed(text) {
  try { return JSON.parse(text); } catch { throw new Refused(0, { message: T.errors.strange }); }
}

function enveloped(text) {
  const message = new TextEncoder().encode(text), body = new Uint8Array(5 + message.length);
  new DataView(body.buffer).setUint32(1, message.length);
  body.set(message, 5);
  return body;
}

async function* envelopes(reader) {
  let data = new Uint8Array();
  try {
    for (let piece; !(piece = await whole(reader.read(), BROKEN)).done;) {
      const joined = new Uint8Array(data.length + piece.value.length);
      joined.set(data);
      joined.set(piece.value, data.length);
      data = joined;
      for (let end; data.length >= 5 && data.length >= (end = 5 + new DataView(data.buffer, data.byteOffset).getUint32(1));) {
        yield [data[0], new TextDecoder().decode(data.subarray(5, end))];
        data = data.subarray(end);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
