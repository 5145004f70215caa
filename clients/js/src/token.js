// Tokens: the application's callback, and how long a token lives.
import { KhalaError } from "./errors.js";

/** Asks the callback for a token, with a time limit. Every failure is a KhalaError; final ones say so. */
export async function askToken(callback, timeoutMs, world) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = world.setTimeout(() => reject(new KhalaError("token_timeout", "The token callback was too slow.")), timeoutMs);
  });
  try {
    const token = await Promise.race([Promise.resolve().then(callback), late]);
    if (typeof token === "string" && token !== "") return token;
    throw new KhalaError("token_missing", "The token callback did not answer a token.");
  } catch (cause) {
    if (cause instanceof KhalaError) throw cause;
    throw new KhalaError("token_failed", "The token callback failed.", { cause, ...(cause?.final ? { final: true } : {}) });
  } finally {
    world.clearTimeout(timer);
  }
}

/** How long the token lives from now, by its own claims; undefined if it has none of them. */
export function tokenLifeMs(token, wall) {
  try {
    const text = atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"));
    const { iat, exp } = JSON.parse(text);
    const whole = (exp - iat) * 1000;
    const left = exp * 1000 - wall;
    // A wrong clock of this machine shows as a rest that cannot be.
    return whole > 0 ? (left > 0 && left <= whole ? left : whole) : undefined;
  } catch {
    return undefined;
  }
}
