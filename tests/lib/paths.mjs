// The paths under which clients reach a topic in each dialect.

const query = (text) => (text ? `?${text}` : "");

/** One poll of a topic. */
export const pollPath = (topic, text) => `/internal/v1/khala/topics/${encodeURIComponent(topic)}/messages${query(text)}`;

/** The WebSocket of a topic. */
export const socketPath = (topic, text) => `/internal/v1/khala/topics/${encodeURIComponent(topic)}/ws${query(text)}`;

/** The event stream of a topic. */
export const streamPath = (topic, text) => `/v1/topics/${encodeURIComponent(topic)}/sse${query(text)}`;

/** The snapshot of a summary topic. */
export const snapshotPath = (topic) => `/v1/topics/${encodeURIComponent(topic)}/snapshot`;

/** The WebSocket of the audit log. */
export const AUDIT_SOCKET = "/api/events/stream";
