// A server that plays the connections of a scenario of spec/client_scenarios.json, one after another.
// README.md describes the steps.
import assert from "node:assert/strict";
import http from "node:http";
import { WebSocketServer } from "ws";

const CHANNEL = "sync:v1";

/** A server of one scenario. It has failed if its error is set; it is over after the last step. */
export class ScriptedServer {
  error = null;
  listener = () => {}; // called after a failure and after the last step
  isOver = false;
  connected = 0;
  #scenario;
  #topic;
  #http = http.createServer((request, response) => response.writeHead(502, { "content-type": "text/html" }).end("<html>Bad Gateway</html>"));
  #sockets = new WebSocketServer({ noServer: true });

  static async start(t, scenario, topic) {
    const server = new ScriptedServer();
    server.#scenario = scenario;
    server.#topic = topic;
    server.#http.on("upgrade", (request, socket, head) => server.#upgrade(request, socket, head));
    await new Promise((resolve) => server.#http.listen(0, "127.0.0.1", resolve));
    server.url = `http://127.0.0.1:${server.#http.address().port}`;
    t.after(() => server.close());
    return server;
  }

  close() {
    for (const socket of this.#sockets.clients) socket.terminate();
    this.#http.closeAllConnections();
    this.#http.close();
  }

  #upgrade(request, socket, head) {
    const steps = this.#scenario.connections[this.connected++];
    socket.on("error", () => {});
    if (!steps) {
      this.#fail(new Error("one connection more than the scenario has"));
      socket.destroy();
      return;
    }
    const [first] = steps;
    if (first.http) {
      socket.end(`HTTP/1.1 ${first.http} Refused\r\nContent-Type: text/html\r\nContent-Length: ${first.body.length}\r\nConnection: close\r\n\r\n${first.body}`);
      return;
    }
    const token = new URL(request.url, this.url).searchParams.get("token");
    this.#sockets.handleUpgrade(request, socket, head, (accepted) => {
      this.#play(accepted, steps, token).catch((error) => this.#fail(error));
    });
  }

  #fail(error) {
    this.error ??= error;
    this.listener();
  }

  async #play(socket, steps, token) {
    const inbox = [];
    let wake = () => {};
    socket.on("error", () => {});
    socket.on("message", (data) => {
      const message = JSON.parse(data);
      const [join_ref, ref, channel, event] = message;
      const isRoutine = event === "heartbeat" || event === "sync:unsubscribe";
      if (isRoutine) socket.send(JSON.stringify([join_ref, ref, channel, "phx_reply", { status: "ok", response: {} }]));
      else inbox.push(message);
      wake();
    });
    const next = async (wanted) => {
      while (inbox.length === 0) await new Promise((resolve) => { wake = resolve; });
      const message = inbox.shift();
      assert.deepEqual([message[2], message[3]], [CHANNEL, wanted]);
      return message;
    };
    const reply = ([join_ref, ref], status, response) => socket.send(JSON.stringify([join_ref, ref, CHANNEL, "phx_reply", { status, response }]));
    for (const step of steps) await this.#step(step, { socket, token, next, reply });
    if (steps === this.#scenario.connections.at(-1)) {
      this.isOver = true;
      this.listener();
    }
  }

  async #step(step, { socket, token, next, reply }) {
    if (step.token) assert.equal(token, step.token);
    else if (step.join) {
      const message = await next("phx_join");
      reply(message, step.join, step.error ?? { subscription_id: "s", epoch: "epoch-1", allowed_topics: [], current_watermarks: [], server: { version: "test", heartbeat_interval_ms: 15000 } });
    } else if (step.refresh) {
      const message = await next("sync:refresh");
      assert.deepEqual(message[4], { token: step.refresh });
      reply(message, step.error ? "error" : "ok", step.error ?? { expires_at: 0 });
    } else if ("subscribe" in step) {
      const message = await next("sync:subscribe");
      const [resume] = message[4].resume_after ?? [];
      assert.deepEqual(message[4].topics, [this.#topic]);
      for (const [name, value] of Object.entries(step.asks ?? {})) assert.deepEqual(message[4][name] ?? null, value, name);
      assert.deepEqual(resume ? { ...("epoch" in resume ? { epoch: resume.epoch } : {}), seq: resume.watermark } : null, step.subscribe);
      const window = { topic: this.#topic, stream_id: "runtime.topic.room.1", oldest_seq: 1, head_seq: 100, replay_budget_events: 100, qos_tier: "warm", ...step.window };
      const answer = { subscription_id: "s", epoch: window.epoch, topics: [this.#topic], current_watermarks: [], windows: step.pending ? [] : [window] };
      reply(message, step.error ? "error" : "ok", step.error ?? { ...answer, ...(step.pending ? { pending: true } : {}) });
    } else if (step.send) socket.send(JSON.stringify([null, null, CHANNEL, step.send, step.payload]));
    else if ("text" in step) socket.send(step.text);
    else if (step.close) socket.close(step.close);
    else if (step.drop) socket.terminate();
    else throw new Error(`unknown step ${JSON.stringify(step)}`);
  }
}
