import type { BackOff, KhalaError } from "./khala.js";

export interface ProducerOptions {
  url: string;
  /** Answers a token with the scope `runtime.append`. */
  token: () => string | Promise<string>;
  fetch?: typeof fetch;
  queueItemsMax?: number;
  queueBytesMax?: number;
  batchItemsMax?: number;
  batchBytesMax?: number;
  /** How long an event waits for others. */
  batchMs?: number;
  /** How many requests may be in flight; each has events of other entities. */
  requestsMax?: number;
  requestTimeoutMs?: number;
  tokenTimeoutMs?: number;
  /** How long close() waits for answers. */
  closeTimeoutMs?: number;
  backOff?: BackOff;
}

export interface Target {
  run_id?: string;
  worker_id?: string;
  topic?: string;
}

export interface NewEvent extends Target {
  event_type?: string;
  payload?: Record<string, unknown>;
  event_id?: string;
  idempotency_key?: string;
  expected_previous_seq?: number;
  owner_user_id?: string;
  owner_guest_scope?: string;
  org_id?: string;
  status?: string;
  reason?: string;
  metadata_patch?: Record<string, unknown>;
}

export interface Appended {
  index: number;
  status: 200;
  deduplicated: boolean;
  event: { event_id: string; cursor: string; seq: number; event_type: string; payload: any; recorded_at: number };
}

export class Producer {
  constructor(options: ProducerOptions);
  readonly length: number;
  readonly isFull: boolean;
  /** Rejects with `queue_full` at once if the queue is full, or has no room for one more event of an entity that the server refuses. */
  append(event: NewEvent): Promise<Appended>;
  /** Resolves when the queue has room for an event of that entity; without one, of every entity. */
  room(target?: Target): Promise<void>;
  /** Resolves when every event that was appended before has its answer. */
  flush(): Promise<void>;
  /** Each refusal and each failed request that is repeated, in words. */
  onWarning(listener: (error: KhalaError) => void): () => void;
  /** Flushes, and rejects with `closed` what has no answer at the deadline. */
  close(options?: { timeoutMs?: number }): Promise<void>;
}

/** A UUIDv7. */
export function eventId(wall?: number): string;
