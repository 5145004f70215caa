// Storage in files, for Node.
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** One file for each topic in that folder. A file is replaced as a whole, so a crash leaves the old one or the new one. */
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
      await mkdir(folder, { recursive: true });
      await writeFile(`${path}.new`, text, { flush: true });
      await rename(`${path}.new`, path);
    },
  };
}
