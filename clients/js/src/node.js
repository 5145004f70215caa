// Storage in files, for Node.
import { mkdir, open, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";

/** A new name in a folder is durable only after the folder is synced. Windows syncs no folder. */
async function syncFolder(folder) {
  if (process.platform === "win32") return;
  const file = await open(folder);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Makes the folder and those above it, durably. */
async function makeFolder(folder) {
  const first = await mkdir(folder, { recursive: true });
  if (first === undefined) return;
  const above = dirname(resolve(first));
  for (let at = resolve(folder); at !== above; at = dirname(at)) await syncFolder(dirname(at));
}

/** One file for each topic in that folder. A file is replaced as a whole, so a crash leaves the old one or the new one. A
 * saved position survives a power failure. */
export function fileStorage(folder) {
  const pathOf = (key) => join(folder, encodeURIComponent(key).replaceAll("*", "%2A").slice(0, 200));
  return {
    async load(key) {
      try {
        return await readFile(pathOf(key), "utf8");
      } catch (error) {
        if (error.code === "ENOENT") return null;
        throw error;
      }
    },
    async save(key, text) {
      const path = pathOf(key);
      await makeFolder(folder);
      await writeFile(`${path}.new`, text, { flush: true });
      await rename(`${path}.new`, path);
      await syncFolder(folder);
    },
  };
}
