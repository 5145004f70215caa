// The suites of HTTP over TLS.
import "../../lib/secure.mjs";
import "./http.test.mjs";
import "./http_lifetime.test.mjs";
import "./http_refusals.test.mjs";
