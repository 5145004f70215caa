import type { ConnectionState, Frame, Khala, Reset, Where } from "./khala.js";

export function useConnection(khala: Khala): ConnectionState;

export function useCollection<Payload = any>(khala: Khala, name: string, options?: { where?: Where; conflateMs?: number }): {
  readonly documents: ReadonlyMap<string, Payload>;
  readonly isReady: boolean;
  readonly error: Error | null;
};

/** Older events whose type ends in `.delta` come joined, unless fold is false. */
export function useTopic<Payload = any>(khala: Khala, name: string, options?: { limit?: number; fold?: boolean }): {
  readonly frames: readonly Frame<Payload>[];
  readonly reset: Reset | null;
  readonly error: Error | null;
};
