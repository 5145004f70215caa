// The connection: runs its machine, asks for tokens, chooses the transport and passes messages to topics.
import { KhalaError } from "./errors.js";
import { backOffMs, connectionStep, Machine } from "./machine.js";
import { isOfEntity } from "./position.js";
import { askToken, tokenLifeMs } from "./token.js";

const TICK_MS = 1000;
const SLEEP_MS = 10_000; // a tick that late means that the machine slept
const PROBE_MS = 5000;
const STABLE_MS = 10_000; // a connection that lived so long starts the backoff anew
const REFUSALS_MAX = 4; // new tokens in a row
const PREFER_AGAIN = { baseMs: 30_000, maxMs: 300_000 };
const HIDDEN_MIN = 2; // a page sees no difference between one 502 of a proxy and a refused origin
const HEARTBEAT_MS = 15_000;
const TIMER_MS_MAX = 2 ** 31 - 1; // the limit of setTimeout

export class Connection {
  #options;
  #world;
  #machine;
  #transport = null;
  #transportIndex = 0;
  #preferAgainAt = Infinity; // the time of the next try of the first transport, while another one works
  #preferAttempts = 0;
  #candidate = null; // {transport, token, timer} of such an attempt
  #isProven = false;
  #reachableAt = Infinity; // the time since which the server answers over HTTP, as far as is known
  #hidden = 0; // attempts in a row whose answers the browser hid
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

  /**
   * options: {token, tokenTimeoutMs, connectTimeoutMs, transports: [(events) => transport], backOff, preferAgain, changed,
   * warn, inquire, warnHidden}. inquire finds out why nothing answers, as that of request.js does.
   */
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
    try {
      const token = await askToken(this.#options.token, this.#options.tokenTimeoutMs, this.#world);
      if (ask !== this.#asks) return;
      this.#takeToken(token);
      this.give("token");
    } catch (error) {
      if (ask !== this.#asks) return;
      this.#options.warn(error);
      this.give(error.final ? "final" : "token_failed", error);
    }
  }

  #takeToken(token) {
    this.#token = token;
    const life = tokenLifeMs(token, this.#world.wall());
    this.#renewal = null;
    if (life !== undefined) this.#renewIn(life * 0.75);
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
    if (this.#world.now() >= this.#preferAgainAt) {
      this.#transportIndex = 0;
      this.#preferAgainAt = Infinity;
    }
    this.#openedAt = this.#world.now();
    this.#isProven = false;
    this.#transport = this.#make(this.#transportIndex);
    try {
      this.#transport.open(this.#token);
    } catch (cause) {
      this.#closed({ policy: "retry", code: "connect_failed", message: String(cause) });
    }
  }

  /** Makes a transport, whose events count while it is the present one. A candidate only opens, joins or closes. */
  #make(index) {
    const guarded = (act, candidateAct) => (...data) => {
      if (this.#transport === transport) act(...data);
      else if (this.#candidate?.transport === transport) candidateAct?.(...data);
    };
    const topic = (act) => guarded((name, data) => {
      const subscription = this.subscriptions.get(name);
      if (subscription) act(subscription, data);
    });
    const transport = this.#options.transports[index]({
      opened: guarded(() => this.give("opened"), () => transport.join()),
      joined: guarded((welcome) => this.#joined(welcome), (welcome) => this.#moveOver(welcome)),
      heard: guarded((isProof) => this.#heard(isProof)),
      expiring: guarded(() => this.give("expiring")),
      refreshed: guarded(() => this.give("refreshed")),
      closed: guarded((error) => this.#closed(error), () => this.#dropCandidate()),
      accepted: topic((one, data) => one.accepted(data)),
      started: topic((one, data) => one.started(data)),
      pending: topic((one) => one.pend()),
      snapshot: topic((one, data) => one.give("snapshot", data)),
      part: topic((one, data) => one.part(data)),
      range: topic((one, data) => one.range(data)),
      covered: topic((one, data) => one.covered(data)),
      stale: topic((one, data) => one.fault("stale", data)),
      busy: topic((one, error) => one.give("busy", error)),
      refused: topic((one, error) => this.#refused(one, error)),
      position: (name) => this.subscriptions.get(name)?.received ?? null,
    });
    return transport;
  }

  /** An older server refuses a run or worker that does not exist, as one of another owner. Both may come. */
  #refused(one, { code, message, status, request_id, ...error }) {
    if (code === "owner_mismatch" && isOfEntity(one.name)) {
      one.pend({ request_id });
      one.give("busy", error);
    } else one.give("final", new KhalaError(code, message, { topic: one.name, status, request_id }));
  }

  #joined(welcome) {
    this.#welcomed(welcome);
    this.give("joined");
  }

  #welcomed({ heartbeatMs, silenceMs }) {
    const isInterval = heartbeatMs >= 10 && heartbeatMs <= 3_600_000;
    this.#beatMs = isInterval ? heartbeatMs : HEARTBEAT_MS;
    this.#silenceMs = silenceMs ?? 2 * this.#beatMs + PROBE_MS;
    this.#liveSince = this.#beatAt = this.#world.now();
    this.#heard();
  }

  /** The server sent something. The first message proves that nothing blocks the transport. */
  #heard(isProof) {
    this.#heardAt = this.#world.now();
    if (!isProof || this.#isProven) return;
    this.#isProven = true;
    this.#hidden = 0;
    this.#reachableAt = Infinity;
    if (this.#transportIndex === 0) this.#preferFirst();
    else if (this.#preferAgainAt === Infinity) this.#preferLater();
  }

  // ---- the way back to the first transport ----

  #preferFirst() {
    this.#transportIndex = this.#preferAttempts = 0;
    this.#preferAgainAt = Infinity;
  }

  #preferLater() {
    const { baseMs, maxMs } = { ...PREFER_AGAIN, ...this.#options.preferAgain };
    const ms = Math.min(maxMs, baseMs * 2 ** this.#preferAttempts++) * (1 + this.#world.random() / 4);
    this.#preferAgainAt = this.#world.now() + ms;
  }

  /** Opens the first transport beside the one that works. */
  async #tryFirst() {
    const candidate = { transport: null, token: null, timer: null };
    this.#candidate = candidate;
    this.#preferLater();
    const drop = () => this.#candidate === candidate && this.#dropCandidate();
    try {
      candidate.token = await askToken(this.#options.token, this.#options.tokenTimeoutMs, this.#world);
      if (this.#candidate !== candidate) return;
      candidate.timer = this.#world.setTimeout(drop, this.#options.connectTimeoutMs);
      candidate.transport = this.#make(0);
      candidate.transport.open(candidate.token);
    } catch {
      drop(); // a later attempt may succeed; the present transport goes on meanwhile
    }
  }

  #dropCandidate() {
    const { transport, timer } = this.#candidate;
    this.#candidate = null;
    this.#world.clearTimeout(timer);
    transport?.close();
  }

  /**
   * The candidate becomes the transport. Every topic subscribes on it behind the frames that arrived, and
   * what the old transport still sends is not heard, so no frame is missing or comes twice.
   */
  #moveOver(welcome) {
    const { transport, token, timer } = this.#candidate;
    const old = this.#transport;
    this.#candidate = null;
    this.#world.clearTimeout(timer);
    this.#transport = transport;
    this.#preferFirst();
    old.close();
    this.#each("disconnected");
    this.#takeToken(token);
    this.#welcomed(welcome);
    this.#each("connected");
    this.#options.changed();
  }

  /**
   * The transport ended before its first message. If the attempt began when the server answered over HTTP,
   * something between may block the transport, so the next one is tried. A server that is away says nothing
   * about a transport.
   */
  async #judge() {
    if (this.#reachableAt <= this.#openedAt) this.#transportIndex = (this.#transportIndex + 1) % this.#options.transports.length;
    const found = await this.#options.inquire?.();
    if (found === undefined || this.state === "closed" || this.#isProven) return;
    if (found === "unreachable") {
      this.#transportIndex = 0;
      this.#reachableAt = Infinity;
    } else this.#reachableAt = Math.min(this.#reachableAt, this.#world.now());
    this.#hidden = found === "hidden" ? this.#hidden + 1 : 0;
    if (this.#hidden === HIDDEN_MIN) this.#options.warnHidden();
  }

  #closed({ policy, code, message, retryAfterMs, status, request_id }) {
    const error = new KhalaError(code, message, { retryAfterMs, status, request_id });
    this.error = error;
    if (policy === "reauthenticate" && !this.#isProven && this.#transportIndex > 0) {
      // The token was the reason why the first transport failed too.
      this.#transportIndex = 0;
      this.#reachableAt = Infinity;
    }
    if (policy === "final") this.give("final", error);
    else if (policy === "reauthenticate") this.give("refused", error);
    else this.give("lost", error);
  }

  #drop() {
    const transport = this.#transport;
    this.#transport = null;
    this.#asks++; // an answer for the old connection is of no use
    if (this.#candidate) this.#dropCandidate();
    if (!this.#isProven) void this.#judge();
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
      if (now >= this.#preferAgainAt && !this.#candidate) void this.#tryFirst();
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
    this.#transport?.subscribe(subscription.name, position, { ...subscription.asks, since: subscription.since });
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
