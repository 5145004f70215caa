/** The position of a topic, exclusive. */
export interface Position {
  epoch: string;
  seq: number;
}

/**
 * A position as an application may give it: also one without an epoch, or as a text `N` or `N@EPOCH`. The server
 * refuses one without an epoch if it may be of an earlier history; the topic then starts again.
 */
export type GivenPosition = Position | { seq: number; epoch?: string | null } | number | string;

/** Where to start without a position: at the beginning, at the next new item, or at a time such as `2h` ago or `2026-11-16T08:00:00Z`. */
export type From = "start" | "head" | { since: string };

/**
 * How much the server sends of each item. `lean` is the default: `seq`, `kind`, `event_id`, `recorded_at` and `payload`, and of a
 * summary `doc_key`, `doc_version` and `seq_range`. The other members are there only with `full`.
 */
export type Form = "lean" | "full";

/** One item of a topic. */
export interface Frame<Payload = any> {
  seq: number;
  kind: string;
  payload: Payload;
  event_id: string;
  recorded_at: number;
  /** This item stands for the events from `from_seq` to `seq`: their `delta` texts are joined. Only with `fold`. */
  folded?: { from_seq: number; count: number };
  /** The payload was erased, and is null. */
  erased?: { erasure_id: string; at: number };
  doc_key?: string | null;
  doc_version?: number;
  seq_range?: [number, number];
  topic?: string;
  payload_hash?: string;
  entity?: string;
  entity_id?: string;
  entity_seq?: number;
  cursor?: string;
  runtime_source?: Record<string, unknown>;
  projected_at?: number;
  projection_version?: string;
}

export interface Document<Payload = any> {
  doc_key: string;
  doc_version: number;
  payload: Payload;
  payload_hash?: string;
}

/** The history starts again: drop what was derived from earlier frames. */
export interface Reset {
  /** `start`, `gap`, `position_unreadable`, or the first reason of the server. */
  reason: string;
  from_seq: number;
  /** Frames before `from_seq` exist or existed, and are not delivered. */
  truncated: boolean;
  /** All documents of a summary topic. */
  documents?: Document[];
}

/** Keeps positions as texts. The functions may answer promises. */
export interface Storage {
  load(key: string): string | null | undefined | Promise<string | null | undefined>;
  save(key: string, text: string): void | Promise<void>;
}

export type Status = "idle" | "authenticating" | "connecting" | "joining" | "live" | "reauthenticating" | "backing_off" | "closed";
export type TopicState = "loading" | "waiting" | "joining" | "replaying" | "live" | "bootstrapping" | "paused" | "backing_off" | "closed";
export type TransportName = "websocket" | "sse" | "poll";

export interface ConnectionState {
  readonly status: Status;
  readonly transport: TransportName | null;
  readonly error: KhalaError | null;
}

export class KhalaError extends Error {
  readonly code: string;
  readonly topic?: string;
  readonly reset?: Reset;
  readonly status?: number;
  readonly details?: unknown;
  /** In how many milliseconds the client tries again. */
  readonly retryAfterMs?: number;
  /** The id of the request, which the server's log has too. */
  readonly request_id?: string;
  /** The event that was not appended. */
  readonly event_id?: string;
  /** The run, worker or topic whose events wait, such as `run abc`. */
  readonly entity?: string;
  /** The browser hides the cause, so the code is a guess. */
  readonly isGuess?: boolean;
}

export interface BackOff {
  baseMs?: number;
  maxMs?: number;
}

export interface KhalaOptions {
  /** The address of the server, such as `https://khala.example`. */
  url: string;
  /** Answers a new token. An error with `final: true` closes the client. */
  token: () => string | Promise<string>;
  storage?: Storage;
  /** The form of frames, where a topic or collection does not choose another; `lean`. */
  form?: Form;
  /** In the order of preference. */
  transports?: TransportName[];
  /** The WebSocket of this platform, such as that of the package `ws` before Node 22. */
  WebSocket?: new (url: string) => unknown;
  fetch?: typeof fetch;
  /** For servers that check the builds of their clients. */
  clientBuildId?: string;
  tokenTimeoutMs?: number;
  connectTimeoutMs?: number;
  backOff?: BackOff;
  /** How long a client on another transport waits before it tries the first one again: 30 s, doubled up to 5 minutes. */
  preferAgain?: BackOff;
}

export interface TopicOptions {
  /** Called before the first frame of each history. Without it, a history that lost frames ends the loop with an error. */
  reset?: (reset: Reset) => void | Promise<void>;
  /** Where to start if there is no position. `start` is the default. */
  from?: From;
  /** The position to start after, in place of the stored one; null for none. The position is then not stored. */
  after?: GivenPosition | null;
  /** Reads the whole log, with the scope `runtime.replay_all`. */
  replay?: "all";
  form?: Form;
  /**
   * Joins older events whose type ends in `.delta` into one frame; false. For views. `exactlyOnce` and `replay` never fold.
   */
  fold?: boolean;
  storage?: Storage;
  /** The key of the position in the storage. */
  key?: string;
}

export interface ExactlyOnce<Tx, Payload = any> {
  /** The position that was saved last. */
  load(): GivenPosition | null | Promise<GivenPosition | null>;
  /** Runs the work in one transaction of the application's database. */
  transaction(work: (tx: Tx) => Promise<void>): Promise<void> | void;
  apply(frame: Frame<Payload>, tx: Tx): void | Promise<void>;
  save(position: Position, tx: Tx): void | Promise<void>;
  reset?(reset: Reset, tx: Tx): void | Promise<void>;
}

export interface Topic<Payload = any> extends AsyncIterable<Frame<Payload>> {
  readonly name: string;
  readonly state: TopicState;
  /** The topic does not exist yet, or belongs to another owner. It begins when it exists. */
  readonly isPending: boolean;
  /** Behind the last frame that was applied. */
  readonly position: Position | null;
  [Symbol.asyncIterator](): AsyncGenerator<Frame<Payload>, void, void>;
  /** Calls the handler for each frame; a frame is applied when its promise resolves. */
  each(handler: (frame: Frame<Payload>) => void | Promise<void>): Promise<void>;
  exactlyOnce<Tx>(helper: ExactlyOnce<Tx, Payload>): Promise<void>;
  close(): Promise<void>;
}

/** An event of the whole log. */
export interface LogEvent<Payload = any> {
  event_id: string;
  cursor: string;
  entity: string;
  entity_id: string;
  seq: number;
  event_type: string;
  payload: Payload;
  payload_hash: string;
  owner: { user_id?: string; guest_scope?: string; org_id?: string };
  recorded_at: number;
  prev_chain_hash: string;
  chain_hash: string;
}

export interface LogOptions {
  /** Called when the log starts again at its first event, with the reason. Without it, the loop ends with an error. */
  reset?: (reset: { reason: string }) => void | Promise<void>;
  /** Where to start if there is no cursor. `start` is the default. */
  from?: From;
  /** The cursor to start after, in place of the stored one; null for none. The cursor is then not stored. */
  after?: string | null;
  storage?: Storage;
  /** The key of the cursor in the storage; `khala-log`. */
  key?: string;
}

/** The whole log, over an event stream. */
export interface Log<Payload = any> extends AsyncIterable<LogEvent<Payload>> {
  /** The cursor behind the last event that was applied. */
  readonly position: string | null;
  [Symbol.asyncIterator](): AsyncGenerator<LogEvent<Payload>, void, void>;
  /** Calls the handler for each event; an event is applied when its promise resolves. */
  each(handler: (event: LogEvent<Payload>) => void | Promise<void>): Promise<void>;
  close(): Promise<void>;
}

export type Change<Payload = any> =
  | { type: "set"; key: string; value: Payload; seq: number }
  /** The document does not match the filter of the collection any more. */
  | { type: "removed"; key: string; seq: number }
  | { type: "reset"; reason: string }
  | { type: "error"; error: Error };

/** Fields of summaries; a list means any of them. */
export interface Where {
  status?: string | string[];
  tag?: string | string[];
  parent_run_id?: string | string[];
  worker_id?: string | string[];
}

export interface CollectionOptions {
  /** The collection holds the documents that match; all without it. */
  where?: Where;
  /** The server sends the newest of each document at most this often; 250, at most 5000. */
  conflateMs?: number;
  form?: Form;
}

export interface Collection<Payload = any> {
  readonly name: string;
  readonly isReady: boolean;
  /** Resolves with the first snapshot. */
  readonly ready: Promise<Collection<Payload>>;
  readonly size: number;
  readonly error: Error | null;
  /** By key, or by the id at its end: `runtime/run_summary:demo` or `demo`. */
  get(key: string): Payload | undefined;
  /** The same Map until the next change. */
  snapshot(): ReadonlyMap<string, Payload>;
  changes(): AsyncGenerator<Change<Payload>, void, void>;
  /** Follows the topic while a listener is there. */
  subscribe(listener: (change: Change<Payload>) => void): () => void;
  /** Follows the topic until the returned function is called. */
  open(): () => void;
  close(): Promise<void>;
}

export class Khala {
  constructor(options: KhalaOptions);
  readonly state: ConnectionState;
  subscribe(listener: (state: ConnectionState) => void): () => void;
  /** Errors that the client survives, in words. */
  onWarning(listener: (error: KhalaError) => void): () => void;
  topic<Payload = any>(name: string, options?: TopicOptions): Topic<Payload>;
  collection<Payload = any>(name: string, options?: CollectionOptions): Collection<Payload>;
  /** Every event that the token may read, in the order of the commits. Needs `runtime.audit` or `runtime.read_all`. */
  log<Payload = any>(options?: LogOptions): Log<Payload>;
  close(): Promise<void>;
}

export function memoryStorage(): Storage;
export function localStorageStorage(prefix?: string): Storage;
export function indexedDbStorage(database?: string): Storage;
