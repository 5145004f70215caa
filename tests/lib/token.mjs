// Sync tokens that the tests sign with the server's key, correctly or wrongly.
import { createHmac, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** A value, or a text as it is, in base64url. */
export const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** The key that a server made for itself. */
export function signingKey(data) {
  return JSON.parse(readFileSync(join(data, "sync-signing.jwk"), "utf8"));
}

/** A token of that header and those claims, signed with HS256; a text goes in as it is. */
export function seal(key, header, claims) {
  const text = `${encode(header)}.${encode(claims)}`;
  return `${text}.${createHmac("sha256", Buffer.from(key.k, "base64url")).update(text).digest("base64url")}`;
}

/** The header of a token that the key signs. */
export function headerOf(key) {
  return { alg: "HS256", typ: "JWT", kid: key.kid };
}

/** The claims that every valid token has, for a server whose clock is that far ahead. */
export function usualClaims(offsetMs = 0) {
  const now = Math.floor((Date.now() + offsetMs) / 1000);
  return { iss: "khala", aud: "openagents-sync", sub: "service", iat: now, exp: now + 900, jti: randomUUID(), oa_claims_version: "oa_sync_claims_v1" };
}

/** The claims for the principal and the grants of a request, in the form that POST /api/sync/token takes. */
export function claimsFor(request, offsetMs) {
  return {
    ...usualClaims(offsetMs), oa_user_id: request.user_id, oa_guest_scope: request.guest_scope, oa_org_id: request.org_id,
    oa_session_id: request.session_id, oa_sync_scopes: request.scopes, oa_sync_topics: request.topics, oa_sync_streams: request.streams,
  };
}

/** A token for such a request, signed here. */
export function tokenFor(operator, request) {
  const key = signingKey(operator.data);
  return seal(key, headerOf(key), claimsFor(request, operator.offsetMs));
}
