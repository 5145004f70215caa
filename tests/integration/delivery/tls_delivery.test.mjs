// The suites of the dialects over TLS.
import "../../lib/secure.mjs";
import "./delivery.test.mjs";
import "./phoenix.test.mjs";
import "./phoenix_connection.test.mjs";
import "./topic_ws.test.mjs";
