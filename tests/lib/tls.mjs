// Certificates that openssl makes for one test: an authority and the certificates it issues.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1";

function openssl(...args) {
  execFileSync("openssl", args, { stdio: ["ignore", "ignore", "pipe"] });
}

export class Authority {
  constructor(folder) {
    this.folder = folder;
    this.file = join(folder, "authority.pem");
    this.#make("authority", ["-subj", "/CN=an authority of the tests"]);
    this.pem = readFileSync(this.file, "utf8");
  }

  #path(name, kind) {
    return join(this.folder, `${name}.${kind}`);
  }

  #make(name, args) {
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
      "-keyout", this.#path(name, "key"), "-out", this.#path(name, "pem"), ...args);
  }

  /** Issues a certificate for this machine, and answers the paths of the certificate and its key. */
  issue(name, { days = 30, names = NAMES } = {}) {
    this.#make(name, ["-subj", `/CN=${name}`, "-days", String(days), "-addext", names,
      "-addext", "basicConstraints=critical,CA:FALSE", "-CA", this.file, "-CAkey", this.#path("authority", "key")]);
    return { certificate: this.#path(name, "pem"), key: this.#path(name, "key") };
  }

  /** Issues a certificate that expired yesterday. */
  issueExpired(name) {
    const [request, certificate] = [this.#path(name, "csr"), this.#path(name, "pem")];
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", this.#path(name, "key"), "-out", request,
      "-subj", `/CN=${name}`, "-addext", NAMES);
    openssl("x509", "-req", "-in", request, "-CA", this.file, "-CAkey", this.#path("authority", "key"), "-days", "-1", "-copy_extensions", "copy", "-out", certificate);
    return { certificate, key: this.#path(name, "key") };
  }

  /** The settings of a server with that certificate. */
  static settings({ certificate, key }) {
    return { KHALA_TLS_CERT_FILE: certificate, KHALA_TLS_KEY_FILE: key };
  }

  /** Overwrites one pair of files with another. */
  static replace(pair, by) {
    writeFileSync(pair.certificate, readFileSync(by.certificate));
    writeFileSync(pair.key, readFileSync(by.key));
  }
}
