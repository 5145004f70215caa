// Import this before a suite: every server and every client of that suite then uses TLS.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaults } from "./khala.mjs";
import { Authority } from "./tls.mjs";

const folder = mkdtempSync(join(tmpdir(), "khala-tls-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
process.env.CURL_CA_BUNDLE = join(folder, "authority.pem");
defaults.authority = new Authority(folder);
defaults.settings = { ...Authority.settings(defaults.authority.issue("khala")), KHALA_CA_FILE: defaults.authority.file };
