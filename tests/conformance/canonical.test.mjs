// Canonical JSON and payload hashes of the binary, compared with the published vectors and with an
// independent implementation: JSON.parse, keys sorted by code point, JSON.stringify.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { answer, run, vectors } from "../lib/khala.mjs";

function line(verb, text) {
  return answer(["json", verb], { input: text });
}

function byCodePoint(a, b) {
  const left = Array.from(a, (character) => character.codePointAt(0));
  const right = Array.from(b, (character) => character.codePointAt(0));
  for (let i = 0; i < left.length && i < right.length; i++) {
    if (left[i] !== right[i]) return left[i] - right[i];
  }
  return left.length - right.length;
}

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const keys = Object.keys(value).sort(byCodePoint);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

function hash(text) {
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}

// A generator with a fixed seed, so that a failure repeats.
let seed = 0x2545f491;
function random(below) {
  seed ^= seed << 13;
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  return (seed >>> 0) % below;
}

const bits = new DataView(new ArrayBuffer(8));

function randomDouble() {
  do {
    bits.setUint32(0, random(2 ** 32));
    bits.setUint32(4, random(2 ** 32));
  } while (!Number.isFinite(bits.getFloat64(0)));
  return bits.getFloat64(0);
}

// A literal with a fraction or exponent, so that it is read as a double.
function doubleText(number) {
  const text = random(2) ? number.toExponential(16 + random(5)) : String(number);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

function numberText() {
  const kind = random(5);
  if (kind === 0) return String(random(2) ? random(100) : -random(2 ** 32));
  if (kind === 1) return doubleText(randomDouble());
  if (kind === 2) return `${random(2) ? "-" : ""}${random(10000)}.${random(1000)}${random(2) ? "0" : ""}`;
  if (kind === 3) return `${random(1000)}${random(2) ? "e" : "E"}${["", "+", "-"][random(3)]}${random(30)}`;
  return String(Number.MAX_SAFE_INTEGER - random(1000));
}

const pieces = ["a", "b", "Z", "10", "9", "\u00e9", "e\u0301", "€", "\u{1f680}", "\uffff", "\u{10ffff}", "\u2028", "\0",
  "\u0001", "\u001f", "\u007f", "\b", "\f", "\n", "\r", "\t", '"', "\\", "/", " ", "__proto__"];

function stringText() {
  let text = "";
  for (let count = random(4); count > 0; count--) text += pieces[random(pieces.length)];
  const plain = JSON.stringify(text);
  if (random(3)) return plain;
  const escaped = Array.from({ length: text.length }, (_, i) =>
    `\\u${text.charCodeAt(i).toString(16).padStart(4, "0")}`).join("");
  return `"${random(2) ? escaped.replace(/[a-f]/g, (digit) => digit.toUpperCase()) : escaped}"`;
}

function space() {
  return random(6) ? "" : [" ", "\n", "\t", "\r\n", "  "][random(5)];
}

function memberTexts(depth) {
  const members = new Map();
  for (let count = random(7); count > 0; count--) {
    const key = stringText();
    members.set(JSON.parse(key), `${space()}${key}${space()}:${documentText(depth - 1)}`);
  }
  return [...members.values()];
}

function documentText(depth) {
  const kind = random(depth > 0 ? 9 : 5);
  let text;
  if (kind < 2) text = numberText();
  else if (kind < 4) text = stringText();
  else if (kind === 4) text = ["null", "true", "false"][random(3)];
  else if (kind < 8) text = `{${memberTexts(depth).join(",")}${space()}}`;
  else text = `[${Array.from({ length: random(5) }, () => documentText(depth - 1)).join(",")}${space()}]`;
  return `${space()}${text}${space()}`;
}

// One process handles many documents, in arrays of at most this many bytes.
const BYTES_MAX = 48 * 1024;

function compareAll(texts) {
  let compared = 0;
  while (compared < texts.length) {
    const batch = [];
    let bytes = 0;
    while (compared < texts.length && (batch.length === 0 || bytes + texts[compared].length * 4 < BYTES_MAX)) {
      bytes += Buffer.byteLength(texts[compared]) + 1;
      batch.push(texts[compared++]);
    }
    compareBatch(batch);
  }
}

function compareBatch(batch) {
  const text = `[${batch.join(",")}]`;
  const expected = canonical(JSON.parse(text));
  const actual = line("canonical", text);
  if (actual !== expected) {
    for (const one of batch) assert.equal(line("canonical", one), canonical(JSON.parse(one)), `of ${one}`);
  }
  assert.equal(actual, expected);
  assert.equal(line("canonical", actual), actual, "canonical text is its own canonical text");
  assert.equal(line("hash", text), hash(expected));
}

test("the published vectors have the expected canonical form and hash", () => {
  const rows = vectors("payload_hash").vectors;
  assert.ok(rows.length > 0);
  for (const vector of rows) {
    const text = JSON.stringify(vector.payload);
    assert.equal(canonical(vector.payload), vector.canonical_json, vector.name);
    assert.equal(line("canonical", text), vector.canonical_json, vector.name);
    assert.equal(line("hash", text), vector.sha256, vector.name);
  }
});

test("two thousand random documents have the expected canonical form", () => {
  compareAll(Array.from({ length: 2000 }, () => documentText(3)));
});

test("every power of two has the expected canonical form", () => {
  const texts = [];
  for (let exponent = -1074; exponent <= 1023; exponent++) {
    const power = 2 ** exponent;
    texts.push(power.toExponential(20), `-${power.toExponential(16)}`);
  }
  compareAll(texts);
});

test("every power of ten and the doubles next to it have the expected canonical form", () => {
  const texts = [];
  for (let exponent = -330; exponent <= 308; exponent++) {
    texts.push(`1e${exponent}`, `9.5E${exponent - 1}`);
    bits.setFloat64(0, Number(`1e${exponent}`));
    const middle = bits.getBigUint64(0);
    for (const near of [middle - 1n, middle + 1n]) {
      bits.setBigUint64(0, near < 0n ? 0n : near);
      texts.push(doubleText(bits.getFloat64(0)));
    }
  }
  compareAll(texts);
});

test("random doubles have the expected canonical form", () => {
  compareAll(Array.from({ length: 6000 }, () => doubleText(randomDouble())));
});

test("integers keep every digit", () => {
  const text = "[0,-0,9007199254740993,-123456789012345678901234567890]";
  assert.equal(line("canonical", text), "[0,0,9007199254740993,-123456789012345678901234567890]");
});

test("a text without a canonical form is refused", () => {
  for (const text of ["1E400", "-1e309", '{"a":1,"a":1}', '[{"b":{"a":1,"\\u0061":2}}]', "{", "", '"\\ud800"']) {
    for (const verb of ["canonical", "hash"]) {
      const { code, out } = run(["json", verb], { input: text });
      assert.notEqual(code, 0, text);
      assert.equal(out, "", text);
    }
  }
});
