// The client: topics and collections of one server, over one connection.
import { Collection } from "./collection.js";
import { Connection } from "./connection.js";
import { KhalaError } from "./errors.js";
import { notify, realWorld } from "./machine.js";
import { PhoenixTransport } from "./phoenix.js";
import { memoryStorage } from "./storage.js";
import { Subscription } from "./subscription.js";
import { Log, Topic } from "./topic.js";

export { KhalaError } from "./errors.js";
export { indexedDbStorage, localStorageStorage, memoryStorage } from "./storage.js";

const CONFLATE_MS = 250;
const CONNECTIONS_MAX = 8; // of one client: collections of one topic with different filters
const TRANSPORTS = ["websocket", "sse", "poll"];

/** The start that the option from names: "head", a time, or undefined for the beginning. */
function sinceOf(from) {
  if (from === undefined || from === "start") return undefined;
  if (from === "head") return from;
  if (typeof from?.since === "string" && from.since !== "") return from.since;
  throw new TypeError("from must be \"start\", \"head\" or {since}");
}

/** What a subscription asks of the server. Members that are undefined are not sent. */
function asksOf({ form = "lean", fold, where, conflateMs, replay }) {
  return { form, fold: fold && !replay ? true : undefined, where, conflate_ms: conflateMs, replay };
}

/** A transport over HTTP, whose code is loaded when WebSockets are blocked. */
class LazyTransport {
  #real = null;
  #isClosed = false;

  constructor(name, settings, events) {
    this.name = name;
    this.settings = settings;
    this.events = events;
  }

  async open(token) {
    try {
      const { transports } = await import("./http.js");
      if (this.#isClosed) return;
      this.#real = new transports[this.name](this.settings, this.events);
      this.#real.open(token);
    } catch (error) {
      this.events.closed({ policy: "retry", code: "transport_missing", message: String(error) });
    }
  }

  close() {
    this.#isClosed = true;
    this.#real?.close();
  }

  join = () => this.#real.join();
  heartbeat = () => this.#real.heartbeat();
  refresh = (token) => this.#real.refresh(token);
  subscribe = (...call) => this.#real.subscribe(...call);
  unsubscribe = (name) => this.#real.unsubscribe(name);
}

export class Khala {
  #options;
  #world;
  #http;
  #connection;
  #more = []; // further connections, for topics that the first one follows with another filter
  #makeConnection;
  #collections = new Map();
  #logs = new Set(); // the followers of the whole log
  #listeners = new Set();
  #warners = new Set();
  #state = { status: "idle", transport: null, error: null };
  #unlisten = () => {};

  constructor(options, world = realWorld) {
    const { url, token, WebSocket = globalThis.WebSocket, fetch = globalThis.fetch, transports = TRANSPORTS } = options;
    if (typeof token !== "function") throw new TypeError("token must be a function that answers a token");
    const base = new URL(url).href.replace(/\/$/, "").replace(/^ws/, "http");
    this.#world = world;
    this.#options = { ...options, url: base, fetch: (...call) => fetch(...call), storage: options.storage ?? memoryStorage() };
    const compatibility = { protocol_version: "khala.ws.v1", schema_version: 1, ...(options.clientBuildId ? { client_build_id: options.clientBuildId } : {}) };
    const http = { url: base, fetch: this.#options.fetch, world, query: options.clientBuildId ? compatibility : {}, unknown: new Set() };
    this.#http = http;
    const makers = {
      websocket: WebSocket && ((events) => new PhoenixTransport({ url: base, WebSocket, join: compatibility, world }, events)),
      sse: (events) => new LazyTransport("sse", http, events),
      poll: (events) => new LazyTransport("poll", http, events),
    };
    const usable = transports.map((name) => makers[name]).filter(Boolean);
    if (usable.length === 0) throw new TypeError(`transports must name some of ${TRANSPORTS.join(", ")}`);
    this.#options.tokenTimeoutMs ??= 15_000;
    this.#options.connectTimeoutMs ??= 10_000;
    this.#makeConnection = () => new Connection({
      ...this.#options, transports: usable, changed: () => this.#changed(), warn: (error) => this.#warn(error),
      // Without another transport and outside of pages, nothing depends on the answer.
      inquire: usable.length > 1 || globalThis.location ? async () => (await import("./request.js")).inquire(http.fetch, base, world) : undefined,
      warnHidden: async () => this.#warn((await import("./request.js")).hiddenError(base)),
    }, world);
    this.#connection = this.#makeConnection();
    this.#listen();
  }

  /** A browser reports when its network is back or its page is shown again. */
  #listen() {
    if (typeof globalThis.addEventListener !== "function") return;
    const wake = () => [this.#connection, ...this.#more].forEach((one) => one.give("wake"));
    for (const event of ["online", "pageshow"]) globalThis.addEventListener(event, wake);
    this.#unlisten = () => {
      for (const event of ["online", "pageshow"]) globalThis.removeEventListener(event, wake);
    };
  }

  #changed() {
    const { state: status, transport, error } = this.#connection;
    if (status === this.#state.status && transport === this.#state.transport && error === this.#state.error) return;
    this.#state = { status, transport, error };
    notify(this.#listeners, this.#state);
  }

  #warn(error) {
    notify(this.#warners, error);
  }

  /** {status, transport, error}. The same object until it changes. */
  get state() {
    return this.#state;
  }

  /** Calls the listener after each change of the state; the returned function ends that. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Calls the listener for errors that the client survives: of the storage, of the token callback, of the
   * log, a topic that is pending or stale again and again, an origin that the server seems to refuse.
   */
  onWarning(listener) {
    this.#warners.add(listener);
    return () => void this.#warners.delete(listener);
  }

  topic(name, options = {}) {
    return new Topic(name, (...call) => this.#follow(...call), options);
  }

  #checkOpen(connection = this.#connection) {
    if (connection.state === "closed") throw connection.error ?? new KhalaError("closed", "The client is closed.");
  }

  /** A connection that does not follow the topic yet: a server delivers a topic once to each connection. */
  #connectionFor(name) {
    let connection = [this.#connection, ...this.#more].find((one) => !one.subscriptions.has(name));
    if (!connection && this.#more.length + 1 < CONNECTIONS_MAX) {
      connection = this.#makeConnection();
      this.#more.push(connection);
    }
    return connection ?? this.#connection;
  }

  #follow(name, options, given) {
    const { from, key = `khala:${name}`, storage = this.#options.storage, isShared } = options;
    const connection = isShared ? this.#connectionFor(name) : this.#connection;
    this.#checkOpen(connection);
    if (connection.subscriptions.has(name)) throw new KhalaError("already_followed", `The topic ${name} is followed already.`);
    const link = {
      subscribe: (one, position) => connection.subscribe(one, position),
      unsubscribe: (one) => connection.unsubscribe(one),
      isLive: () => connection.isLive,
      warn: (error) => this.#warn(error),
      changed: () => this.#changed(),
      done: (one) => connection.remove(one),
    };
    const since = sinceOf(from);
    const asks = asksOf({ ...options, form: options.form ?? this.#options.form });
    const subscription = new Subscription(name, link, { storage: given === undefined ? storage : null, key, world: this.#world, asks, since });
    connection.add(subscription);
    void subscription.load(given);
    return subscription;
  }

  /** The whole log: the events of every entity that the token may read, in the order of their commits. */
  log(options = {}) {
    return new Log((...call) => this.#followLog(...call), options);
  }

  async #followLog({ from, key = "khala-log", storage = this.#options.storage }, given) {
    this.#checkOpen();
    const { LogFollower } = await import("./log.js");
    this.#checkOpen();
    const { token, tokenTimeoutMs, connectTimeoutMs, backOff } = this.#options;
    const follower = new LogFollower({
      ...this.#http, token, tokenTimeoutMs, connectTimeoutMs, backOff, since: sinceOf(from), storage: given === undefined ? storage : null, key,
      warn: (error) => this.#warn(error), done: (one) => void this.#logs.delete(one),
    }, given);
    this.#logs.add(follower);
    return follower;
  }

  /** The documents of a summary topic that the filter matches. Every call for one name and filter answers the same collection. */
  collection(name, { where, conflateMs = CONFLATE_MS, form } = {}) {
    const filter = where && Object.keys(where).length > 0 ? Object.fromEntries(Object.entries(where).sort(([one], [other]) => (one < other ? -1 : 1))) : undefined;
    const key = JSON.stringify([name, filter, conflateMs, form]);
    if (!this.#collections.has(key)) this.#collections.set(key, new Collection((options) => this.topic(name, { ...options, where: filter, conflateMs, form, isShared: true })));
    return this.#collections.get(key);
  }

  /** Ends every topic and collection, and waits until their positions are stored. */
  async close() {
    this.#unlisten();
    const connections = [this.#connection, ...this.#more];
    const subscriptions = connections.flatMap((one) => [...one.subscriptions.values()]);
    for (const one of connections) one.give("stop");
    await Promise.all([...subscriptions.map((one) => one.saved), ...[...this.#logs].map((one) => one.stop())]);
  }
}
