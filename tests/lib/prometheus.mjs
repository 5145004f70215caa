// A strict reader of Prometheus' text format: it fails on everything that promtool reports, and on
// some things that a scraper tolerates.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const FAMILIES = new Set(JSON.parse(readFileSync(new URL("../../spec/metrics.json", import.meta.url), "utf8"))
  .metrics.map(({ name }) => name));

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const LABEL = /^[a-zA-Z_][a-zA-Z0-9_]*$/;
const KINDS = ["counter", "gauge", "histogram", "summary", "untyped"];

function number(text) {
  if (text === "+Inf") return Infinity;
  assert.match(text, /^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/, `a number: ${text}`);
  return Number(text);
}

/** Reads {a="b",c="d"} and answers the labels and the text after them. */
function readLabels(text) {
  const labels = new Map();
  let rest = text.slice(1);
  while (!rest.startsWith("}")) {
    const [, name, tail] = rest.match(/^([^=]*)="(.*)$/s) ?? assert.fail(`a label: ${text}`);
    assert.match(name, LABEL);
    assert.ok(!labels.has(name), `the label ${name} twice: ${text}`);
    const value = tail.match(/^((?:[^"\\\n]|\\["\\n])*)"(.*)$/s) ?? assert.fail(`a value: ${text}`);
    labels.set(name, value[1].replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c)));
    rest = value[2].startsWith(",") ? value[2].slice(1) : value[2];
    assert.ok(value[2].startsWith(",") || value[2].startsWith("}"), `after a label: ${text}`);
  }
  return { labels, rest: rest.slice(1) };
}

function readSample(line) {
  const [, name, tail] = line.match(/^([^{ ]+)(.*)$/) ?? assert.fail(`a sample: ${line}`);
  assert.match(name, NAME);
  const { labels, rest } = tail.startsWith("{") ? readLabels(tail) : { labels: new Map(), rest: tail };
  assert.match(rest, /^ \S+$/, `one blank and a value: ${line}`);
  return { name, labels, value: number(rest.slice(1)) };
}

function seriesKey(name, labels) {
  return `${name}{${[...labels].map(([label, value]) => `${label}=${JSON.stringify(value)}`).sort().join()}}`;
}

function belongs(family, name) {
  if (family.kind !== "histogram") return name === family.name;
  return ["_bucket", "_sum", "_count"].some((suffix) => name === family.name + suffix);
}

function checkHistogram(family) {
  const groups = new Map();
  for (const { name, labels, value } of family.samples) {
    const own = new Map([...labels].filter(([label]) => label !== "le"));
    const key = seriesKey(family.name, own);
    if (!groups.has(key)) groups.set(key, { buckets: [] });
    const group = groups.get(key);
    if (name.endsWith("_bucket")) group.buckets.push([number(labels.get("le")), value]);
    else group[name.slice(family.name.length + 1)] = value;
    assert.equal(labels.has("le"), name.endsWith("_bucket"), key);
  }
  for (const [key, { buckets, sum, count }] of groups) {
    assert.ok(sum !== undefined && count !== undefined, `${key} has a sum and a count`);
    buckets.forEach(([bound, value], i) => {
      assert.ok(i === 0 || bound > buckets[i - 1][0], `${key}: bounds rise`);
      assert.ok(i === 0 || value >= buckets[i - 1][1], `${key}: buckets are cumulative`);
    });
    assert.deepEqual(buckets.at(-1), [Infinity, count], `${key}: +Inf is the count`);
    assert.ok(count > 0 || sum === 0, `${key}: nothing sums up to nothing`);
  }
}

const TYPE_WORDS = ["counter", "gauge", "histogram", "summary", "untyped"];
const SMALL_UNITS = /^(milli|micro|nano|kilo|mega|giga|kibi|mebi|gibi)(seconds|bytes)?$/;
const OTHER_UNITS = ["minutes", "minute", "hours", "hour", "days", "day", "weeks", "week", "percent", "bits", "celcius", "fahrenheit",
  "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];

/** Checks a name as promtool does: its words, its unit and the suffixes of its kind. */
function checkName(name, kind) {
  assert.match(name, /^[a-z0-9_]+$/, `${name}: lower case, no colons`);
  assert.equal(name.endsWith("_total"), kind === "counter", `${name} is a ${kind}`);
  assert.doesNotMatch(name, /_(bucket|count|sum)$/);
  for (const word of name.split("_").slice(1)) {
    assert.ok(!TYPE_WORDS.includes(word), `${name} says its type`);
    assert.doesNotMatch(word, SMALL_UNITS, `${name} is in base units`);
    assert.ok(!OTHER_UNITS.includes(word), `${name} has a unit that is none, or cut short`);
  }
}

function checkFamily(family) {
  assert.ok(family.help, `${family.name} has a HELP`);
  checkName(family.name, family.kind);
  for (const { labels } of family.samples) {
    for (const label of labels.keys()) {
      assert.match(label, /^[a-z0-9_]+$/, `${label}: lower case`);
      assert.ok(family.kind === "histogram" || !["le", "quantile"].includes(label), `${family.name} has the label ${label}`);
    }
  }
  if (family.kind === "histogram") checkHistogram(family);
  for (const { value } of family.samples) {
    assert.ok(family.kind === "gauge" || value >= 0, `${family.name} is not negative`);
    assert.ok(Number.isFinite(value), family.name);
  }
}

/** Reads an exposition. The families are {name, kind, help, samples}; get(name, labels) is one value, or 0. */
export function parseMetrics(text) {
  const families = new Map();
  const seen = new Set();
  let family = null;
  assert.match(text, /\n$/, "the last line ends");
  for (const line of text.slice(0, -1).split("\n")) {
    const comment = line.match(/^# (HELP|TYPE) (\S+) (.*)$/);
    if (comment) {
      const [, what, name, rest] = comment;
      assert.match(name, NAME);
      if (what === "HELP") {
        assert.ok(!families.has(name), `${name} comes once, in one piece`);
        assert.doesNotMatch(rest, /\\(?![\\n])/, "escapes of a HELP");
        family = { name, help: rest, samples: [] };
        families.set(name, family);
      } else {
        assert.equal(family?.name, name, "TYPE follows its HELP");
        assert.equal(family.kind, undefined, `${name} has one TYPE`);
        assert.equal(family.samples.length, 0, "TYPE precedes the samples");
        assert.ok(KINDS.includes(rest), rest);
        family.kind = rest;
      }
      continue;
    }
    assert.doesNotMatch(line, /^#|^\s*$/, "no other comments, no empty lines");
    const sample = readSample(line);
    assert.ok(family?.kind && belongs(family, sample.name), `${sample.name} stands below its TYPE`);
    const key = seriesKey(sample.name, sample.labels);
    assert.ok(!seen.has(key), `${key} comes once`);
    seen.add(key);
    family.samples.push(sample);
  }
  for (const each of families.values()) checkFamily(each);
  return {
    families,
    series: seen,
    /** The sum of the series of a sample that have these labels. */
    get(name, wanted = {}) {
      const of = families.get(name) ?? families.get(name.replace(/_(bucket|sum|count)$/, ""));
      assert.ok(of, `there is a family ${name}`);
      return of.samples.filter((sample) => sample.name === name &&
        Object.entries(wanted).every(([label, value]) => sample.labels.get(label) === value))
        .reduce((sum, sample) => sum + sample.value, 0);
    },
  };
}

/** Reads /metrics of a server; text is the exposition itself. */
export async function scrape(operator) {
  const { status, headers, body } = await operator.get("/metrics");
  assert.equal(status, 200, body);
  assert.equal(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
  return Object.assign(parseMetrics(body), { text: body });
}

/** The full name of a family or of a histogram's sum or count, which may be given without its prefix. */
export function familyOf(name) {
  const known = (full) => FAMILIES.has(full) || FAMILIES.has(full.replace(/_(sum|count)$/, ""));
  return ["", "openagents_runtime_", "khala_"].map((prefix) => prefix + name).find(known) ?? assert.fail(`no family ${name}`);
}
