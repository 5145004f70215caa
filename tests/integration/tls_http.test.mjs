// The suites of plain HTTP once more, over TLS.
import "../lib/secure.mjs";
import "./http.test.mjs";
import "./http_lifetime.test.mjs";
import "./http_refusals.test.mjs";
