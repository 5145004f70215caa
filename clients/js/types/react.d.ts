import type { ConnectionState, Frame, Khala, Reset, Where } from "./khala.js";

export function useConnection(khala: Khala): ConnectionState;

export function useCollection<Payload = any>(khala: Khala, name: string, options?: { where?: Where; conflateMs?: number }): {
  readonly documents: ReadonlyMap<string, Payload>;
  readonly isReady: boolean;
  readonly error: Error | null;
};

/** A field of a run's summary, such as `run_id`, `status` and `latest_seq`; the server's protocol lists them. */
export type RunSummary = { run_id: string; status: string; latest_seq: number; [field: string]: any };

/** The runs that match, as they are now. */
export function useRuns(khala: Khala, options?: { where?: Where; conflateMs?: number }): {
  readonly runs: readonly RunSummary[];
  readonly isReady: boolean;
  readonly error: Error | null;
};

/** The run as it is now; null while it does not exist, or is not this reader's. */
export function useRun(khala: Khala, id: string): {
  readonly run: RunSummary | null;
  readonly isReady: boolean;
  readonly error: Error | null;
};

/** Older events whose type ends in `.delta` come joined, unless fold is false. */
export function useTopic<Payload = any>(khala: Khala, name: string, options?: { limit?: number; fold?: boolean }): {
  readonly frames: readonly Frame<Payload>[];
  readonly reset: Reset | null;
  readonly error: Error | null;
};
