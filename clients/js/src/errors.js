// Errors of the server and of the client, and the policy for each.
import { POLICIES } from "./tables.js";

const policies = new Map(Object.entries(POLICIES).flatMap(([policy, codes]) => codes.split(" ").map((code) => [code, policy])));

/** An error that the application sees. */
export class KhalaError extends Error {
  constructor(code, message, details) {
    super(message ?? code);
    this.name = "KhalaError";
    this.code = code;
    Object.assign(this, details);
  }
}

/** The policy for an error body, an HTTP status or a close code. A body's own code comes first. */
export function policyOf(body, { status, close } = {}) {
  const code = [body?.reason_code, body?.code, body?.error, String(status), String(close)].find((one) => policies.has(one));
  return policies.get(code) ?? "retry";
}

const HINT_MS_MAX = 300_000;

/** A server's hint in milliseconds. Anything but a number in range is no hint. */
export function hintOf(value) {
  return typeof value === "number" && value >= 0 ? Math.min(value, HINT_MS_MAX) : undefined;
}

/** The error in a body, with its policy. The context has the HTTP status or the close code. */
export function errorOf(body, context) {
  const details = body?.details ?? {};
  return {
    policy: policyOf(body, context),
    code: body?.reason_code ?? body?.code ?? body?.error ?? `closed_${context?.close ?? context?.status ?? "early"}`,
    message: body?.message,
    retryAfterMs: hintOf(body?.reconnect_after_ms ?? body?.retry_after_ms ?? details.reconnect_after_ms ?? details.retry_after_ms),
  };
}

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

/**
 * Fetches with an id of the request. A cache or a proxy that answers with an earlier response is
 * found out by its id, before its frames or acknowledgements are taken for new ones.
 */
export async function fetchOwn(fetch, address, { headers, ...init }) {
  const id = crypto.randomUUID?.() ?? String(Math.random());
  const response = await fetch(address, { ...init, redirect: "error", cache: "no-store", headers: { ...headers, "x-request-id": id } });
  if ((response.headers.get("x-request-id") ?? id) !== id) throw new Error("The answer belongs to another request.");
  return response;
}
