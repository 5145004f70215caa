// Sync tokens as the tests make them: signed here with the server's own key, well or badly.
import { createHmac, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** The key a server made for itself. */
export function signingKey(data) {
  return JSON.parse(readFileSync(join(data, "sync-signing.jwk"), "utf8"));
}

/** A token of that header and those claims (text goes in as it stands), sealed with HS256. */
export function seal(key, header, claims) {
  const text = `${encode(header)}.${encode(claims)}`;
  return `${text}.${createHmac("sha256", Buffer.from(key.k, "base64url")).update(text).digest("base64url")}`;
}

/** The claims of a token for whom and what is asked, as POST /api/sync/token takes it. */
export function claimsFor(request, offsetMs = 0) {
  const now = Math.floor((Date.now() + offsetMs) / 1000);
  return {
    aud: "openagents-sync", sub: "tests", iat: now, exp: now + 900, jti: randomUUID(), oa_claims_version: "oa_sync_claims_v1",
    oa_user_id: request.user_id, oa_guest_scope: request.guest_scope, oa_org_id: request.org_id,
    oa_session_id: request.session_id, oa_sync_scopes: request.scopes, oa_sync_topics: request.topics, oa_sync_streams: request.streams,
  };
}

export function headerOf(key) {
  return { alg: "HS256", typ: "JWT", kid: key.kid };
}

export function tokenFor(operator, request) {
  const key = signingKey(operator.data);
  return seal(key, headerOf(key), claimsFor(request, operator.offsetMs));
}
