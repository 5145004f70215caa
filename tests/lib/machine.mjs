// The kernel's view of a running server, and the limits a test sets on it. The server is given as
// `serve` answers it.
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, readlinkSync } from "node:fs";

/** The environment of a server whose memory is measured: AddressSanitizer keeps little of what was freed. */
export const MEASURED = { ASAN_OPTIONS: "quarantine_size_mb=1:thread_local_quarantine_size_kb=64" };

/** Whether the binary under test has a sanitizer, which uses more memory and time. */
export const SANITIZED = /san$/.test(process.env.KHALA_BUILD ?? "");

/** Whether the promised figures are asserted, on a machine that does nothing else. */
export const STRICT = process.env.KHALA_CHAOS_STRICT === "1";

/** The memory that the server has now, or had at most with "VmHWM", in bytes. */
export function memoryBytes(server, field = "VmRSS") {
  const status = readFileSync(`/proc/${server.child.pid}/status`, "utf8");
  return Number(status.match(new RegExp(`${field}:\\s+(\\d+)`))[1]) * 1024;
}

/** How many descriptors the server has open. */
export function openFiles(server) {
  return readdirSync(`/proc/${server.child.pid}/fd`).length;
}

/** How many of them are sockets. The store opens and closes files at any time. */
export function openSockets(server) {
  const folder = `/proc/${server.child.pid}/fd`;
  return readdirSync(folder).filter((number) => {
    try { return readlinkSync(`${folder}/${number}`).startsWith("socket:"); } catch { return false; }
  }).length;
}

/** Makes writes beyond that size of a file fail in the server, as a full disk does. */
export function limitFileSize(server, bytes) {
  execFileSync("prlimit", [`--pid=${server.child.pid}`, `--fsize=${bytes}:unlimited`]);
}
