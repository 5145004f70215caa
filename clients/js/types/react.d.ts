import type { ConnectionState, Frame, Khala, Reset } from "./khala.js";

export function useConnection(khala: Khala): ConnectionState;

export function useCollection<Payload = any>(khala: Khala, name: string): {
  readonly documents: ReadonlyMap<string, Payload>;
  readonly isReady: boolean;
  readonly error: Error | null;
};

export function useTopic<Payload = any>(khala: Khala, name: string, options?: { limit?: number }): {
  readonly frames: readonly Frame<Payload>[];
  readonly reset: Reset | null;
  readonly error: Error | null;
};
