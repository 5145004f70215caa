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

/**
 * The error in a body, with its policy. The context has the HTTP status or the close code. A body with a
 * code and another reason may have the message of either, so the message names both.
 */
export function errorOf(body, context) {
  const details = body?.details ?? {};
  const answered = body?.code ?? body?.error;
  const code = body?.reason_code ?? answered ?? `closed_${context?.close ?? context?.status ?? "early"}`;
  const isOther = answered !== undefined && code !== answered;
  return {
    policy: policyOf(body, context),
    code,
    message: isOther ? `${answered} (${code}): ${body.message}` : body?.message,
    request_id: body?.request_id,
    retryAfterMs: hintOf(body?.reconnect_after_ms ?? body?.retry_after_ms ?? details.reconnect_after_ms ?? details.retry_after_ms),
  };
}
