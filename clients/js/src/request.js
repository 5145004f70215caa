// Requests over HTTP, for the fallback transports, the log and the producer.
import { errorOf, hintOf, KhalaError } from "./errors.js";

const INQUIRY_MS = 5000;

/** An error answer. One without the server's own body comes from something between client and server. */
export async function refusalOf(response, request_id) {
  let body = null;
  try {
    body = JSON.parse((await response.text()).slice(0, 1 << 20));
  } catch {
    // Not JSON.
  }
  const isOurs = typeof body?.error === "string" && typeof body.request_id === "string";
  const error = isOurs ? errorOf(body, { status: response.status })
    : { policy: "retry", code: "bad_gateway", message: `An answer ${response.status} that is not the server's.`, request_id };
  const seconds = response.headers.get("retry-after");
  error.retryAfterMs ??= /^\d+$/.test(seconds ?? "") ? hintOf(Number(seconds) * 1000) : undefined;
  return { ...error, status: response.status, body };
}

/** Random bytes, also in Node 18, which has no global crypto. */
export function randomBytes(count) {
  const bytes = new Uint8Array(count);
  return globalThis.crypto?.getRandomValues(bytes) ?? bytes.map(() => Math.random() * 256);
}

/** An id for a request. The server logs it, and puts it into an error. */
export const newRequestId = () => Array.from(randomBytes(16), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Fetches with that id of the request. An answer that a cache or a proxy gives again is found out by its id. */
export async function fetchOwn(fetch, address, { headers, ...init }, id = newRequestId()) {
  const response = await fetch(address, { ...init, redirect: "error", cache: "no-store", headers: { ...headers, "x-request-id": id } });
  if ((response.headers.get("x-request-id") ?? id) !== id) throw new Error("The answer belongs to another request.");
  return response;
}

/** The reason of a fetch that failed. Node has it in the cause. */
export const causeOf = (error) => String(error?.cause?.code ?? error?.message ?? error);

/**
 * Finds out why a client gets no answer: "unreachable" if nothing answers over HTTP either, "hidden" if
 * the browser keeps the server's answers from this page, else "reachable".
 */
export async function inquire(fetch, url, world) {
  const late = new AbortController();
  const timer = world.setTimeout(() => late.abort(), INQUIRY_MS);
  const init = { cache: "no-store", signal: late.signal };
  // A page may always send this request; it only cannot read the answer.
  const knock = () => fetch(`${url}/healthz/live`, { ...init, mode: "no-cors" });
  try {
    const { status } = await knock();
    if (status >= 500) return "unreachable"; // a proxy without a server behind it
    const page = globalThis.location?.origin;
    if (!page || page === new URL(url).origin) return "reachable";
    // A route for clients: an allowed origin reads its error, another one nothing.
    const isRead = await fetch(`${url}/v1/topics/runtime.notifications`, init).then(() => true, () => false);
    if (isRead) return "reachable";
    await knock(); // the server may have gone meanwhile
    return "hidden";
  } catch {
    return "unreachable";
  } finally {
    world.clearTimeout(timer);
  }
}

/** The warning for a page whose answers are hidden. */
export function hiddenError(url) {
  const page = globalThis.location?.origin;
  return new KhalaError("origin_not_allowed", `${url} answers, but the browser hides its answers from this page. A guess, since a browser reports no more: the server does not allow the origin ${page}, or a proxy answers in its place. Look for origin_not_allowed and origin=${page} in the server's log, and add ${page} to RUNTIME_KHALA_ALLOWED_ORIGINS.`, { isGuess: true });
}
