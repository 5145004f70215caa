import type { Storage } from "./khala.js";

/** One file for each topic in that folder. */
export function fileStorage(folder: string): Storage;
