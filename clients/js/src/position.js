// Positions of a topic without I/O: which ranges continue a position, which frames are new.

const isSeq = (value) => Number.isSafeInteger(value) && value >= 0;

/** Shared topics number the log's epoch; the epoch without a number means number 0. */
export function isSameEpoch(one, other) {
  return one === other || one === `${other}.0` || other === `${one}.0`;
}

const STREAMS = [[/^run:(.+):events$/, "run.$1.events"], [/^worker:(.+):lifecycle$/, "worker.$1.lifecycle"],
  [/^fleet:(user|guest):(.+):workers$/, "fleet.$1.$2.workers"]];

/** The stream id of a topic: the server answers with the topic's name to a client that named the stream. */
export function streamOf(topic) {
  const [pattern, stream] = STREAMS.find(([one]) => one.test(topic)) ?? [];
  return `runtime.${pattern ? topic.replace(pattern, stream) : `topic.${topic.replaceAll(":", ".")}`}`;
}

/**
 * A position of a storage, of the application or of an answer, or null if it is not one: {epoch, seq},
 * {seq}, a number, or a text `N` or `N@EPOCH`. A position without an epoch stays without one: only the
 * server knows whether it belongs to the present history.
 */
export function readPosition(given) {
  let value = given;
  if (typeof given === "string") {
    const [, seq, epoch] = given.match(/^(\d+)(?:@(.+))?$/) ?? [];
    try {
      value = seq ? { seq: Number(seq), epoch } : JSON.parse(given);
    } catch {
      return null;
    }
  }
  const { epoch, seq } = typeof value === "number" ? { seq: value } : value ?? {};
  if (!isSeq(seq)) return null;
  if (epoch === undefined || epoch === null) return { seq };
  return typeof epoch === "string" && epoch.length > 0 && epoch.length <= 128 ? { epoch, seq } : null;
}

/** The first seq that a frame stands for: a folded one stands for several events. */
export const firstSeqOf = ({ seq, folded }) => folded?.from_seq ?? seq;

const isFold = ({ seq, folded }) => folded === undefined || (isSeq(folded?.from_seq) && folded.from_seq <= seq && folded.count === seq - folded.from_seq + 1);

/** Whether the range is well-formed: its frames ascend, do not overlap, and lie after its start, up to its end. */
export function isRange({ epoch, after, through, frames }) {
  if (typeof epoch !== "string" || !isSeq(after) || !isSeq(through) || through < after || !Array.isArray(frames)) return false;
  let last = after;
  return frames.every((frame) => {
    const isNext = isSeq(frame?.seq) && isFold(frame) && firstSeqOf(frame) > last && frame.seq <= through;
    last = frame?.seq;
    return isNext;
  });
}

/** Whether the epoch may be that of the position. The server has accepted one without an epoch. */
export function isOfEpoch(position, epoch) {
  return position.epoch === undefined || isSameEpoch(epoch, position.epoch);
}

/**
 * Whether a range continues the position. It may begin earlier, and then repeats frames. The position must not lie inside
 * a folded frame: some of its events were applied, and the others stand in no other frame.
 */
export function continues(position, range) {
  return position !== null && isRange(range) && isOfEpoch(position, range.epoch) && range.after <= position.seq &&
    !range.frames.some((frame) => firstSeqOf(frame) <= position.seq && position.seq < frame.seq);
}

/** Whether the topic is one of a run or a worker, which may not exist yet. */
export function isOfEntity(name) {
  return /^run:.+:events$|^worker:.+:lifecycle$|^runtime\.run\..+\.events$|^runtime\.worker\..+\.lifecycle$/.test(name);
}

/** Gathers the parts of a snapshot. All parts are of one epoch and watermark, in order. */
export class Parts {
  #parts = [];

  /** Whether the part is the next one of the snapshot. */
  fits(part) {
    const first = this.#parts[0] ?? part;
    return Array.isArray(part?.documents) && isSeq(part.watermark) && typeof part.epoch === "string" &&
      part.watermark === first.watermark && part.epoch === first.epoch &&
      (!isSeq(part.part) || part.part === this.#parts.length);
  }

  add(part) {
    this.#parts.push(part);
  }

  clear() {
    this.#parts = [];
  }

  /** The whole snapshot. */
  take() {
    const { epoch, watermark } = this.#parts[0];
    const documents = this.#parts.flatMap((part) => part.documents);
    this.clear();
    return { epoch, watermark, documents };
  }
}
