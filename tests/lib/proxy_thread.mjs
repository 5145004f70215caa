// Proxies of tcp_proxy.mjs in a thread of their own, so that a busy test does not delay a database session until it
// times out. The test gives a proxy's URL as data, and sends {cut}, {repair} or {close} to it.
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { tcpProxy } from "./tcp_proxy.mjs";
import { once } from "./wait.mjs";

/** Starts a proxy in front of the server of a URL. Answers its port, and the port of the server as target. */
export async function proxyThread(t, url) {
  const worker = new Worker(new URL(import.meta.url), { workerData: url });
  t.after(() => worker.terminate());
  const { port } = await once(worker, "message", "the port of a proxy");
  return {
    port,
    target: Number(new URL(url).port),
    cut: (...directions) => worker.postMessage({ cut: directions }),
    repair: () => worker.postMessage({ repair: true }),
    close: () => worker.postMessage({ close: true }),
  };
}

if (!isMainThread) {
  const proxy = await tcpProxy({ after() {} }, workerData);
  parentPort.on("message", ({ cut, repair }) => {
    if (cut) proxy.cut(...cut);
    else if (repair) proxy.repair();
    else proxy.close();
  });
  parentPort.postMessage({ port: proxy.port });
}
