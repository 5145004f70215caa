// Requests over HTTP, for the fallback transports and the producer.
import { errorOf, hintOf } from "./errors.js";

/** An error answer. One without the server's own body comes from something between client and server. */
export async function refusalOf(response) {
  let body = null;
  try {
    body = JSON.parse((await response.text()).slice(0, 1 << 20));
  } catch {
    // Not JSON.
  }
  const isOurs = typeof body?.error === "string" && typeof body.request_id === "string";
  const error = isOurs ? errorOf(body, { status: response.status }) : { policy: "retry", code: "bad_gateway", message: `An answer ${response.status} that is not the server's.` };
  const seconds = response.headers.get("retry-after");
  error.retryAfterMs ??= /^\d+$/.test(seconds ?? "") ? hintOf(Number(seconds) * 1000) : undefined;
  return { ...error, status: response.status, body };
}

/** Random bytes, also in Node 18, which has no global crypto. */
export function randomBytes(count) {
  const bytes = new Uint8Array(count);
  return globalThis.crypto?.getRandomValues(bytes) ?? bytes.map(() => Math.random() * 256);
}

/**
 * Fetches with an id of the request, which the server puts into an error. An error that a cache or a
 * proxy answers again is found out by its id.
 */
export async function fetchOwn(fetch, address, { headers, ...init }) {
  const id = Array.from(randomBytes(16), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const response = await fetch(address, { ...init, redirect: "error", cache: "no-store", headers: { ...headers, "x-request-id": id } });
  if ((response.headers.get("x-request-id") ?? id) !== id) throw new Error("The answer belongs to another request.");
  return response;
}
