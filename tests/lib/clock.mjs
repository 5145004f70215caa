// A wall clock that a test steps while the server runs. The library of tests/support/stepped_clock.c
// is loaded into the server for it.
import assert from "node:assert/strict";
import { closeSync, existsSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { folder } from "./khala.mjs";
import { operate } from "./operator.mjs";

export class SteppedClock {
  #fd;
  offsetMs = 0;

  constructor(t) {
    const library = join(process.env.KHALA_BUILD, "libstepped_clock.so");
    assert.ok(existsSync(library), `${library} is built with the tests`);
    const path = join(folder(t), "step");
    this.#fd = openSync(path, "w+");
    t.after(() => closeSync(this.#fd));
    this.set(0);
    /** The environment of a server under this clock. */
    this.settings = { LD_PRELOAD: library, STEPPED_CLOCK_FILE: path, ASAN_OPTIONS: "verify_asan_link_order=0" };
  }

  /** Sets the clock that far ahead of the system's clock; a negative offset is behind it. */
  set(offsetMs) {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(offsetMs));
    writeSync(this.#fd, bytes, 0, 8, 0);
    this.offsetMs = offsetMs;
  }

  /** Starts a server under this clock; the tokens of its operator go by the same clock. */
  async operate(t, { settings = {}, ...options } = {}) {
    const operator = await operate(t, { ...options, settings: { ...settings, ...this.settings } });
    Object.defineProperty(operator, "offsetMs", { get: () => this.offsetMs });
    return operator;
  }
}
