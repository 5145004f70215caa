// Collections that clients keep of the documents which `where` selects, and the check against a full scan: at every
// position that a client reaches it must have exactly the documents that match there.
import assert from "node:assert/strict";
import { pollPath, snapshotPath, socketPath, streamPath } from "./paths.mjs";
import { Client } from "./phoenix.mjs";
import { Socket } from "./socket.mjs";
import { Stream } from "./sse.mjs";
import { within } from "./wait.mjs";

export const WORKERS = "runtime.codex_worker_summaries";

/** Whether a summary matches: of every field any value. */
export function matches(payload, where) {
  return Object.entries(where).every(([field, wanted]) => {
    const has = [payload[field]].flat();
    return [wanted].flat().some((value) => has.includes(value));
  });
}

/** The query that asks for it. */
export const queryOf = ({ where, conflate_ms }) =>
  [where && `where=${encodeURIComponent(JSON.stringify(where))}`, conflate_ms && `conflate_ms=${conflate_ms}`].filter(Boolean).join("&");

/** Every frame of a topic, and so each document as it was at each position. */
export class History {
  documents = new Map(); // by key, a list of [seq, payload, version] in order

  /** Reads the journal from its start with plain polls, which are the full scan. */
  static async read(operator, topic) {
    const history = new History();
    for (let after = 0, complete = false; !complete;) {
      const page = await operator.read(pollPath(topic, `after_seq=${after}&limit=200`));
      for (const { seq, doc_key, doc_version, payload } of page.messages) {
        if (!history.documents.has(doc_key)) history.documents.set(doc_key, []);
        history.documents.get(doc_key).push([seq, payload, doc_version]);
      }
      [after, complete] = [page.next_cursor, page.replay_complete];
    }
    return history;
  }

  /** The keys and versions of the documents that match at that position. */
  at(position, where) {
    const found = new Map();
    for (const [key, frames] of this.documents) {
      let [low, high] = [0, frames.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (frames[middle][0] <= position) low = middle + 1;
        else high = middle;
      }
      if (low > 0 && matches(frames[low - 1][1], where)) found.set(key, frames[low - 1][2]);
    }
    return found;
  }
}

/** A client's collection, and what it was at each of its positions. */
export class Collection {
  documents = new Map(); // versions by key
  position = 0;
  removals = 0;
  frames = 0;
  comparable = 0;
  begun = false;
  seen = []; // [position, copy of documents]

  constructor({ where, conflate_ms }) {
    this.where = where;
    this.conflates = conflate_ms > 0;
  }

  replace(documents, watermark) {
    for (const { payload } of documents) assert.ok(matches(payload, this.where), "a snapshot has another document");
    this.documents = new Map(documents.map(({ doc_key, doc_version }) => [doc_key, doc_version]));
    this.#moved(watermark);
  }

  apply({ seq, kind, doc_key, doc_version, payload }) {
    this.frames++;
    assert.ok(seq > this.position, `frame ${seq} after ${this.position}`);
    if (kind === "removed") {
      assert.equal(payload, undefined);
      this.documents.delete(doc_key);
      this.removals++;
    } else {
      assert.ok(matches(payload, this.where), `frame ${seq} does not match`);
      this.documents.set(doc_key, doc_version);
    }
    this.position = seq;
  }

  /** The connection broke within frames that were to lead there. Of a document of which only the newest frame is sent, the
   * frame that counts may be among those that did not come: until then there is nothing to compare. */
  broke(through) {
    if (this.conflates) this.comparable = Math.max(this.comparable, through);
  }

  /** Everything up to there was applied: the collection can be compared. */
  reached(position) {
    assert.ok(position >= this.position);
    if (position >= this.comparable) this.#moved(position);
    else this.position = position;
  }

  #moved(position) {
    this.position = position;
    this.begun = true;
    this.seen.push([position, new Map(this.documents)]);
  }

  check(history) {
    for (const [position, documents] of this.seen) {
      const expected = history.at(position, this.where);
      assert.deepEqual([...documents].sort(), [...expected].sort(), `the collection at ${position}`);
    }
    return this.seen.length;
  }
}

/** How a client follows: begins to, or goes on behind its position, and tells apply and reached. Each answers a function
 * that ends it. */
export const DIALECTS = {
  async phoenix(operator, topic, collection, asked, token) {
    const client = await Client.join(operator, { params: { token } });
    const begins = !collection.begun;
    const documents = [];
    const on = (event, act) => client.channel.on(event, (payload) => { if (!client.isOver) act(payload); });
    on("sync:snapshot", ({ documents: part, watermark, last }) => {
      documents.push(...part);
      if (last) collection.replace(documents, watermark);
    });
    on("sync:update_batch", ({ updates, through }) => {
      for (const one of updates) {
        if (collection.cut?.()) {
          collection.broke(through);
          client.isOver = true;
          return;
        }
        collection.apply(one);
      }
      collection.reached(through);
    });
    on("sync:heartbeat", ({ covered }) => { for (const { through } of covered) collection.reached(through); });
    await client.subscribe({ topics: [topic], ...asked, ...(begins ? {} : { resume_after: { [topic]: collection.position } }) });
    const end = () => {
      client.isOver = true;
      client.close();
      client.channel.rejoinTimer.reset(); // it would keep the program running
    };
    return { client, end };
  },

  async sse(operator, topic, collection, asked, token) {
    const begins = !collection.begun;
    const query = [queryOf(asked), `token=${token}`, begins ? "" : `after_seq=${collection.position}`].filter(Boolean).join("&");
    const stream = await Stream.open(operator, streamPath(topic, query));
    assert.equal(stream.status, 200, stream.refusal);
    const documents = [];
    let done = 0;
    const take = () => {
      while (done < stream.events.length && !stream.isOver) {
        const { type, data } = stream.events[done++];
        if (type === "snapshot") {
          documents.push(...data.documents);
          if (data.last) collection.replace(documents, data.watermark);
        } else if (type === "progress") {
          collection.reached(data.through);
        } else if (type === "message") {
          if (collection.cut?.()) {
            collection.broke(Infinity); // no message says where the page ends
            stream.isOver = true;
            return;
          }
          collection.apply(data);
          // The position of each message is one to resume from, and without conflate_ms one to compare at.
          if (!asked.conflate_ms) collection.reached(data.seq);
        }
      }
    };
    const changed = stream.changed.bind(stream);
    stream.changed = () => { take(); changed(); };
    take();
    return { client: stream, end: () => { stream.isOver = true; stream.close(); } };
  },

  async topic_ws(operator, topic, collection, asked, token) {
    const begins = !collection.begun;
    const query = [queryOf(asked), `token=${token}`, begins ? "" : `after_seq=${collection.position}`].filter(Boolean).join("&");
    const socket = await Socket.open(operator, socketPath(topic, query));
    const documents = [];
    let done = 0;
    const take = () => {
      while (done < socket.messages.length && !socket.isOver) {
        const one = socket.messages[done++];
        if (one.type === "snapshot") {
          documents.push(...one.documents);
          if (one.last) collection.replace(documents, one.watermark);
        } else if (one.type === "progress") {
          collection.reached(one.through);
        } else if (one.type === "message") {
          if (collection.cut?.()) {
            collection.broke(Infinity); // no message says where the page ends
            socket.isOver = true;
            return;
          }
          collection.apply(one);
          if (!asked.conflate_ms) collection.reached(one.seq);
        }
      }
    };
    const changed = socket.changed.bind(socket);
    socket.changed = () => { take(); changed(); };
    take();
    return { client: socket, end: () => { socket.isOver = true; socket.close(); } };
  },

  async poll(operator, topic, collection, asked, token) {
    const headers = { authorization: `Bearer ${token}` };
    const ask = async (path) => {
      const response = await within(fetch(new URL(path, operator.server.url), { headers }), "a poll");
      const body = await response.json();
      assert.equal(response.status, 200, JSON.stringify(body));
      return body;
    };
    let isOver = false;
    if (!collection.begun) {
      const { documents, watermark } = await ask(`${snapshotPath(topic)}?${queryOf({ where: asked.where })}`);
      collection.replace(documents, watermark);
    }
    const polling = (async () => {
      while (!isOver) {
        const page = await ask(pollPath(topic, `after_seq=${collection.position}&wait_ms=100&limit=50&${queryOf(asked)}`));
        if (isOver) return;
        for (const one of page.messages) {
          if (collection.cut?.()) {
            collection.broke(page.next_cursor);
            isOver = true;
            return;
          }
          collection.apply(one);
        }
        collection.reached(page.next_cursor);
      }
    })();
    const client = { get isOver() { return isOver; } };
    return { client, end: () => { isOver = true; return polling; }, polling };
  },
};
