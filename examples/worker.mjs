// A worker for the board: it registers itself, reports every ten seconds that it is alive, and stops on Ctrl-C.
//   node worker.mjs WORKER
const { BACKEND = "http://127.0.0.1:4200" } = process.env;
const [worker_id = "worker-1"] = process.argv.slice(2);
const ask = (path) => fetch(BACKEND + path).then((answer) => (answer.ok ? answer : Promise.reject(new Error(`backend ${answer.status}`))));
const { url } = await (await ask("/khala.json")).json();

/** Posts until the server has it. A repetition is harmless: the same status again changes nothing. */
async function post(path, body) {
  for (let attempt = 1; ; attempt++) {
    try {
      const token = await (await ask("/token?role=writer")).text();
      const answer = await fetch(`${url}/v1/workers${path}`, { method: "POST", headers: { authorization: `Bearer ${token}` }, body: JSON.stringify(body) });
      if (answer.ok) return;
      const { error, message } = await answer.json();
      if (answer.status < 500 && answer.status !== 429) throw Object.assign(new Error(`${error}: ${message}`), { isFinal: true });
    } catch (error) {
      if (error.isFinal) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(10_000, 200 * 2 ** attempt) * Math.random()));
  }
}

await post("", { worker_id });
await post(`/${worker_id}/status`, { status: "running" });
console.log(`${worker_id} runs`);
let jobs = 0;
const beat = setInterval(() => post(`/${worker_id}/heartbeat`, { metadata_patch: { jobs: ++jobs } }), 10_000);
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    clearInterval(beat);
    await post(`/${worker_id}/status`, { status: "stopped", reason: signal });
    console.log(`${worker_id} has stopped`);
  });
}
