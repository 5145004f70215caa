// The connection: runs its machine, asks for tokens, chooses the transport and passes messages to topics.
import { KhalaError } from "./errors.js";
import { backOffMs, connectionStep, Machine } from "./machine.js";
import { tokenLifeMs } from "./token.js";

const TICK_MS = 1000;
const SLEEP_MS = 10_000; // a tick that late means that the machine slept
const PROBE_MS = 5000;
const STABLE_MS = 10_000; // a connection that lived so long starts the backoff anew
const REFUSALS_MAX = 4; // new tokens in a row
const ATTEMPTS_PER_TRANSPORT = 2;
const PREFER_AGAIN_MS = 300_000;
const HEARTBEAT_MS = 15_000;
const TIMER_MS_MAX = 2 ** 31 - 1; // of setTimeout

export class Connection {
  #options;
  #world;
  #machine;
  #transport = null;
  #transportIndex = 0;
  #preferAgainAt = Infinity;
  #isProven = false;
  #failedOpens = 0;
  #attempts = 0;
  #refusals = 0;
  #asks = 0;
  #token = null;
  #retry = null;
  #ticker = null;
  #last = null; // the clocks at the last tick
  #liveSince = null;
  #heardAt = 0;
  #silenceMs = Infinity;
  #beatMs = HEARTBEAT_MS;
  #beatAt = 0;
  #openedAt = 0;
  #renewer = null;
  #renewal = null; // {mono, wall, afterMs}
  subscriptions = new Map();
  error = null; // the last reason for an end

  /** options: {token, tokenTimeoutMs, connectTimeoutMs, transports: [(events) => transport], changed, warn}. */
  constructor(options, world) {
    this.#options = options;
    this.#world = world;
    this.#machine = new Machine(connectionStep, "idle", this.#actions(), () => this.#changed());
  }

  get state() {
    return this.#machine.state;
  }

  get isLive() {
    return this.state === "live" || this.state === "reauthenticating";
  }

  get transport() {
    return this.isLive ? this.#transport?.name ?? null : null;
  }

  get retryInMs() {
    return this.#retry ? Math.max(0, this.#retry.at - this.#world.now()) : null;
  }

  give(input, data) {
    this.#machine.give(input, data);
  }

  #actions() {
    return {
      ask_token: () => void this.#askToken(),
      open: () => this.#open(),
      join: () => this.#transport.join(),
      subscribe: () => this.#each("connected"),
      refresh: () => this.#transport.refresh(this.#token),
      renew_later: () => this.#renewIn(backOffMs(this.#attempts++, undefined, this.#world.random(), { maxMs: 10_000 })),
      probe: () => {
        this.#transport.heartbeat();
        this.#heardAt = Math.min(this.#heardAt, this.#world.now() - this.#silenceMs + PROBE_MS);
        this.#renewIfDue();
      },
      drop: () => this.#drop(),
      count_refusal: (error) => {
        if (++this.#refusals >= REFUSALS_MAX) this.give("exhausted", error);
      },
      back_off: (error) => this.#backOff(error),
      cancel: () => this.#cancel(),
      fail: (error) => {
        this.error = error;
        this.#each("final", error);
      },
      stop: () => this.#each("stop"),
    };
  }

  #each(input, data) {
    for (const subscription of [...this.subscriptions.values()]) subscription.give(input, data);
  }

  #changed() {
    const isQuiet = this.state === "idle" || this.state === "closed";
    if (isQuiet) {
      this.#world.clearTimeout(this.#ticker);
      this.#world.clearTimeout(this.#renewer);
      this.#ticker = null;
      this.#asks++;
    } else if (this.#ticker === null) {
      this.#last = { mono: this.#world.now(), wall: this.#world.wall() };
      this.#nextTick();
    }
    if (this.state === "live") this.error = null;
    this.#options.changed();
  }

  // ---- tokens ----

  async #askToken() {
    const ask = ++this.#asks;
    let timer;
    const late = new Promise((_, reject) => {
      timer = this.#world.setTimeout(() => reject(new KhalaError("token_timeout", "The token callback was too slow.")), this.#options.tokenTimeoutMs);
    });
    try {
      const token = await Promise.race([Promise.resolve().then(() => this.#options.token()), late]);
      if (ask !== this.#asks) return;
      if (typeof token !== "string" || token === "") throw new KhalaError("token_missing", "The token callback did not answer a token.");
      this.#token = token;
      const life = tokenLifeMs(token, this.#world.wall());
      this.#renewal = null;
      if (life !== undefined) this.#renewIn(life * 0.75);
      this.give("token");
    } catch (cause) {
      if (ask !== this.#asks) return;
      const error = cause instanceof KhalaError ? cause : new KhalaError("token_failed", "The token callback failed.", { cause });
      this.#options.warn(error);
      this.give(cause?.final ? "final" : "token_failed", error);
    } finally {
      this.#world.clearTimeout(timer);
    }
  }

  #renewIn(afterMs) {
    this.#renewal = { mono: this.#world.now(), wall: this.#world.wall(), afterMs };
    this.#world.clearTimeout(this.#renewer);
    if (afterMs < TIMER_MS_MAX) this.#renewer = this.#world.setTimeout(() => this.#renewIfDue(), afterMs + 1);
  }

  /** By the clock that has advanced further: one of them may stand still while the machine sleeps. */
  #isRenewalDue() {
    const { mono, wall, afterMs } = this.#renewal ?? { afterMs: Infinity };
    return Math.max(this.#world.now() - mono, this.#world.wall() - wall) >= afterMs;
  }

  #renewIfDue() {
    if (this.state === "live" && this.#isRenewalDue()) this.give("expiring");
  }

  // ---- transports ----

  #open() {
    const now = this.#world.now();
    if (now >= this.#preferAgainAt) {
      this.#transportIndex = 0;
      this.#preferAgainAt = Infinity;
    }
    this.#openedAt = now;
    this.#isProven = false;
    const guarded = (act) => (...data) => {
      if (this.#transport === transport) act(...data);
    };
    const topic = (act) => guarded((name, data) => {
      const subscription = this.subscriptions.get(name);
      if (subscription) act(subscription, data);
    });
    const events = {
      opened: guarded(() => this.give("opened")),
      joined: guarded((welcome) => this.#joined(welcome)),
      heard: guarded((isProof) => this.#heard(isProof)),
      expiring: guarded(() => this.give("expiring")),
      refreshed: guarded(() => this.give("refreshed")),
      closed: guarded((error) => this.#closed(error)),
      accepted: topic((one, data) => one.accepted(data)),
      started: topic((one, data) => one.started(data)),
      snapshot: topic((one, data) => one.give("snapshot", data)),
      part: topic((one, data) => one.part(data)),
      range: topic((one, data) => one.range(data)),
      covered: topic((one, data) => one.covered(data)),
      stale: topic((one, data) => one.fault("stale", data)),
      busy: topic((one, error) => one.give("busy", error)),
      refused: topic((one, { code, message }) => one.give("final", new KhalaError(code, message, { topic: one.name }))),
      position: (name) => this.subscriptions.get(name)?.received ?? null,
    };
    const transport = this.#options.transports[this.#transportIndex](events);
    this.#transport = transport;
    try {
      transport.open(this.#token);
    } catch (cause) {
      this.#closed({ policy: "retry", code: "connect_failed", message: String(cause) });
    }
  }

  #joined({ heartbeatMs, silenceMs }) {
    const isInterval = heartbeatMs >= 10 && heartbeatMs <= 3_600_000;
    this.#beatMs = isInterval ? heartbeatMs : HEARTBEAT_MS;
    this.#silenceMs = silenceMs ?? 2 * this.#beatMs + PROBE_MS;
    this.#liveSince = this.#beatAt = this.#world.now();
    this.#heard();
    this.give("joined");
  }

  /** The server sent something. The first message proves that nothing blocks the transport. */
  #heard(isProof) {
    this.#heardAt = this.#world.now();
    if (!isProof || this.#isProven) return;
    this.#isProven = true;
    this.#failedOpens = 0;
    if (this.#transportIndex > 0) this.#preferAgainAt = this.#world.now() + PREFER_AGAIN_MS;
  }

  #closed({ policy, code, message, retryAfterMs }) {
    const error = new KhalaError(code, message, { retryAfterMs });
    this.error = error;
    if (policy === "final") this.give("final", error);
    else if (policy === "reauthenticate") this.give("refused", error);
    else this.give("lost", error);
  }

  #drop() {
    const transport = this.#transport;
    this.#transport = null;
    this.#asks++; // an answer for the old connection is of no use
    if (!this.#isProven && ++this.#failedOpens >= (this.#transportIndex === 0 ? ATTEMPTS_PER_TRANSPORT : 1)) {
      // Perhaps something between client and server blocks it. If the next fails too, the first comes again.
      this.#failedOpens = 0;
      this.#transportIndex = (this.#transportIndex + 1) % this.#options.transports.length;
    }
    const isStable = this.#liveSince !== null && this.#world.now() - this.#liveSince >= STABLE_MS;
    if (isStable) this.#attempts = this.#refusals = 0;
    this.#liveSince = null;
    this.#renewal = null;
    transport?.close();
    this.#each("disconnected");
  }

  #backOff(error) {
    this.error = error ?? this.error;
    const ms = backOffMs(this.#attempts++, error?.retryAfterMs, this.#world.random(), this.#options.backOff);
    this.#retry = { at: this.#world.now() + ms, timer: this.#world.setTimeout(() => {
      this.#retry = null;
      this.give("timer");
    }, ms) };
  }

  #cancel() {
    this.#world.clearTimeout(this.#retry?.timer);
    this.#retry = null;
  }

  // ---- time ----

  #nextTick() {
    this.#ticker = this.#world.setTimeout(() => {
      this.#nextTick();
      this.#tick();
    }, TICK_MS);
  }

  #tick() {
    const now = this.#world.now();
    const wall = this.#world.wall();
    const slept = Math.max(now - this.#last.mono, wall - this.#last.wall) - TICK_MS;
    this.#last = { mono: now, wall };
    if (slept > SLEEP_MS) this.give("wake");
    for (const subscription of this.subscriptions.values()) subscription.tick(now);
    if (this.isLive) {
      this.#renewIfDue();
      if (now - this.#heardAt > this.#silenceMs) this.give("lost", new KhalaError("silent", "The server sent nothing for too long."));
      else if (now - this.#beatAt >= this.#beatMs) {
        this.#beatAt = now;
        this.#transport?.heartbeat();
      }
    } else if ((this.state === "connecting" || this.state === "joining") && now - this.#openedAt > this.#options.connectTimeoutMs) {
      this.give("lost", new KhalaError("connect_timeout", "The server did not answer in time."));
    }
  }

  // ---- topics ----

  subscribe(subscription, position) {
    this.#transport?.subscribe(subscription.name, position, { replay: subscription.replay });
  }

  unsubscribe(subscription) {
    this.#transport?.unsubscribe(subscription.name);
  }

  add(subscription) {
    this.subscriptions.set(subscription.name, subscription);
    this.give("start");
  }

  remove(subscription) {
    if (this.subscriptions.get(subscription.name) !== subscription) return;
    this.subscriptions.delete(subscription.name);
    if (this.subscriptions.size === 0) this.give("unused");
  }
}
