/* The table of verbs: dispatch, parsing, help, completion and the manual page follow from it. */
#include "cli/cli.h"
#include "cli/settings.h"
#include "server/config.h"

/* clang-format off */
#define OPTIONS(...) (const struct cli_option_row[]){__VA_ARGS__, {NULL, NULL, NULL}}
#define JSON_ROW     {"--json", NULL, "print JSON"}
#define CONFIG_ROW   {"--config", "FILE", "file of settings; default: " CONFIG_FILE_DEFAULT " if it exists"}
#define DATA_DIR_ROW {"--data-dir", "DIR", "data folder; also KHALA_DATA_DIR"}, CONFIG_ROW
#define URL_ROW      {"--url", "URL", "address of the server, http or https; also KHALA_URL"}
#define STORE_URL_ROW {"--url", "URL", "ask the server at this address, http or https"}
#define KEY_ROW      {"--key", "KEY", "operator key; prefer KHALA_OPERATOR_KEY, which ps does not show, or the data folder's key"}
#define CA_ROW       {"--ca", "FILE", "trusted authorities for https in PEM; also KHALA_CA_FILE; default: the system's"}
#define REMOTE_ROWS  URL_ROW, CA_ROW, KEY_ROW, DATA_DIR_ROW
#define TOKEN_ROWS  {"--operator-url", "URL", "operator address that mints the token; also KHALA_OPERATOR_URL; default: --url"}, \
                     {"--client-build-id", "ID", "build id for the compatibility gate; default: the time of the last source change"}
/* clang-format on */

const struct cli_command cli_commands[] = {
    {"serve",
     "serve [--config FILE] [--bind HOST:PORT] [--data-dir DIR] [--log text|json] "
     "[--log-level LEVEL] [--loops N]",
     "Run the server.", "khala serve\nkhala serve --config khala.conf --bind 127.0.0.1:0",
     cli_serve, NULL, OPTIONS(CONFIG_ROW), true},
    {"append",
     "append --run ID --type TYPE [--payload JSON|-] [--create] [--event-id UUID]\n"
     "append --worker ID | --topic TOPIC  (with the same options)\n"
     "append --notification [--type TYPE] [--payload JSON|-] [--event-id UUID]\n"
     "append --batch FILE|- [--progress]   (one JSON object per line, as for events:batch)\n"
     "append … [--idempotency-key KEY] [--expect-seq N] [--url URL] [--ca FILE] [--key KEY] "
     "[--data-dir DIR] [--config FILE] [--json]",
     "Append events to the server at --url, KHALA_URL or http://127.0.0.1:4100.",
     "khala append --run demo --create --type run.log --payload '{\"line\":\"hello\"}'\n"
     "khala append --run demo --create --type run.step_started --payload "
     "'{\"step_id\":\"s1\",\"name\":\"search\"}'\n"
     "echo '{\"run_id\":\"demo\",\"event_type\":\"run.log\"}' | khala append --batch -",
     cli_append, NULL,
     OPTIONS({"--run", "ID", "append to this run"}, {"--worker", "ID", "append to this worker"},
             {"--topic", "TOPIC", "append to this application topic"},
             {"--notification", NULL, "append a notification"},
             {"--type", "TYPE", "type of the event; default for a notification: notification"},
             {"--payload", "JSON|-", "payload of the event; - reads standard input"},
             {"--create", NULL, "create the run first if it does not exist"},
             {"--event-id", "UUID",
              "id of the event; a repeated append with the same id stores no second event"},
             {"--idempotency-key", "KEY", "the same with a key of your choice"},
             {"--expect-seq", "N", "append only if the last seq is N"},
             {"--batch", "FILE",
              "append the events of a file, one JSON object per line; - is standard input"},
             {"--progress", NULL, "show progress also where standard error is no terminal"},
             REMOTE_ROWS, JSON_ROW),
     false},
    {"get",
     "get run ID | worker ID | receipt RUN | replay RUN\n"
     "get events --run ID | --worker ID | --topic TOPIC [--after SEQ | --since TIME] [--limit N]\n"
     "get runs|workers [--status STATUS] [--user ID] [--guest SCOPE] [--org ID] [--where "
     "NAME=VALUE]… [--sort [-]NAME] [--watch]\n"
     "get topics [--class CLASS] [--prefix TEXT]\n"
     "get connections|principals [--prefix TEXT] [--dialect DIALECT]\n"
     "get summary run|worker ID\n"
     "get checkpoint run_summary|codex_worker_summary ID\n"
     "get drift\n"
     "get (runs|workers|topics|connections|principals) … [--after CURSOR] [--limit N]\n"
     "get … [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE] [--json]",
     "Read runs, workers, topics, events, summaries and connections from the server at --url (see "
     "append). A list says on standard error where it goes on.",
     "khala get events --run demo --after 1\nkhala get summary run demo --json\n"
     "khala get runs --status running --limit 20\n"
     "khala get runs --where status=running --where tag=nightly --sort -updated_at",
     cli_get,
     "run|worker|receipt|replay|events|summary|checkpoint|drift|runs|workers|topics|connections|"
     "principals",
     OPTIONS(
         {"--run", "ID", "events of this run"}, {"--worker", "ID", "events of this worker"},
         {"--topic", "TOPIC", "events of this topic"},
         {"--after", "SEQ|CURSOR",
          "only events after this seq or seq@epoch, or items after this cursor"},
         {"--since", "TIME", "only events since this time (RFC 3339), or since 90s, 2h or 7d ago"},
         {"--limit", "N", "maximum number of events or items, default 100"},
         {"--status", "STATUS", "only runs or workers in this state"},
         {"--user", "ID", "only runs or workers of this user"},
         {"--guest", "SCOPE", "only runs or workers of this guest"},
         {"--org", "ID", "only runs or workers of this organisation"},
         {"--where", "NAME=VALUE",
          "only runs or workers that match, such as tag=x, parent_run_id=r, title=text or "
          "updated_after=2h; may be given several times"},
         {"--sort", "NAME", "by updated_at, created_at or the id; with a - before it, descending"},
         {"--watch", NULL, "print the list again whenever it has changed"},
         {"--class", "CLASS", "only topics of this class"},
         {"--prefix", "TEXT", "only topics or principals whose name begins so"},
         {"--dialect", "DIALECT", "only connections of this dialect, such as phoenix"}, REMOTE_ROWS,
         JSON_ROW),
     false},
    {"tail",
     "tail TOPIC [--after SEQ | --since TIME | --from-start] [--fold] [--where FIELD=VALUE] "
     "[--conflate-ms N] [--json] [--url URL] "
     "[--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]\n"
     "tail --audit [--after CURSOR | --since TIME | --from-start] [--json] [--url URL] [--ca FILE] "
     "[--key KEY] [--data-dir DIR] [--config FILE]\n"
     "tail … [--cursor-file FILE] [--operator-url URL] [--client-build-id ID]",
     "Follow a topic or the whole log. Reconnects and continues after the last printed event.",
     "khala tail run:demo:events --from-start\nkhala tail --audit --since 2h --json", cli_tail,
     "TOPIC",
     OPTIONS(
         {"--after", "SEQ|CURSOR", "start after this position; default: new events only"},
         {"--cursor-file", "FILE",
          "keep the position of the last printed event in this file, and start after it"},
         {"--since", "TIME", "start at this time (RFC 3339), or 90s, 2h or 7d ago"},
         {"--from-start", NULL,
          "start with the first event; topics with a journal: with their snapshot"},
         {"--fold", NULL, "join older deltas of one text (with --json: member folded)"},
         {"--where", "FIELD=VALUE",
          "only summaries with one of these values, as status=running,failed, or a JSON object"},
         {"--conflate-ms", "N", "the newest of each summary, at most this often"},
         {"--audit", NULL, "follow the whole log"}, REMOTE_ROWS, TOKEN_ROWS, JSON_ROW),
     false},
    {"export",
     "export [--after CURSOR | --since TIME] [--until CURSOR] [--format ndjson|csv] [--progress] "
     "[--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE] [--json]\n"
     "export --store DIR [--data-dir DIR] [--config FILE] [--json]",
     "Print the whole log, or the part between two event cursors, with a manifest at the end. With "
     "--store, move the store of DB_URL into a new embedded store, with the server stopped. Repeat "
     "it to continue an interrupted move.",
     "khala export > events.ndjson\nkhala export --format csv > events.csv\n"
     "DB_URL=postgres://khala@db/khala khala export --store ./khala-data",
     cli_export, NULL,
     OPTIONS(
         {"--store", "DIR", "move the store into a new embedded store in this folder"},
         {"--after", "CURSOR", "only events after this cursor"},
         {"--since", "TIME", "only events since this time (RFC 3339), or since 90s, 2h or 7d ago"},
         {"--until", "CURSOR", "only events up to and including this cursor"},
         {"--format", "ndjson|csv", "output format, default ndjson"},
         {"--progress", NULL, "show progress also where standard error is no terminal"},
         {"--json", NULL, "the same as --format ndjson"}, REMOTE_ROWS),
     false},
    {"import",
     "import FILE [--progress] [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config "
     "FILE] [--json]\n"
     "import --from DIR [--data-dir DIR] [--config FILE] [--json]",
     "Take the events of an NDJSON export into an empty store, or into one that holds the "
     "beginning of the same log. With --from, move an embedded store into the empty store of "
     "DB_URL, with the server stopped. Repeat it to continue an interrupted import.",
     "khala import events.ndjson\n"
     "DB_URL=postgres://khala@db/khala khala import --from ./khala-data",
     cli_import, "FILE",
     OPTIONS({"--from", "DIR", "move the embedded store of this folder into the store of DB_URL"},
             {"--progress", NULL, "show progress also where standard error is no terminal"},
             REMOTE_ROWS, JSON_ROW),
     false},
    {"snapshot",
     "snapshot TOPIC [--json] [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config "
     "FILE]\n"
     "snapshot … [--operator-url URL] [--client-build-id ID]",
     "Print all documents of a summary topic, and the watermark to follow it from.",
     "khala snapshot runtime.run_summaries\n"
     "khala snapshot runtime.codex_worker_summaries --json > workers.json",
     cli_snapshot, NULL, OPTIONS(JSON_ROW, REMOTE_ROWS, TOKEN_ROWS), false},
    {"why",
     "why [--connection ID] [--principal WHO] [--topic TOPIC] [--json]\n"
     "why … [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]",
     "Explain why clients were denied or disconnected, latest first. A connection's ID is the "
     "request_id of its error.",
     "khala why --topic run:abc:events\nkhala why --principal user:42 --json", cli_why, NULL,
     OPTIONS({"--connection", "ID", "only this connection"},
             {"--principal", "WHO", "only this principal, with or without its kind: user:42 or 42"},
             {"--topic", "TOPIC", "only this topic"}, JSON_ROW, REMOTE_ROWS),
     false},
    {"nodes", "nodes [--json] [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]",
     "List the nodes over the store of the server at --url (see append). A star marks the node "
     "that "
     "answers.",
     "khala nodes\nkhala nodes --json", cli_nodes, NULL, OPTIONS(JSON_ROW, REMOTE_ROWS), false},
    {"quota",
     "quota get OWNER\n"
     "quota set OWNER QUOTA=NUMBER|null …\n"
     "quota ls [--usage] [--after OWNER] [--limit N]\n"
     "quota … [--json] [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]",
     "Show and set the quotas of an owner (user:ID, guest:SCOPE or org:ID) on the server at --url "
     "(see append), with what the owner has used. A star marks a quota that was set for the owner; "
     "null removes it.",
     "khala quota set user:alice open_runs=100 bytes_stored=1073741824\n"
     "khala quota get user:alice\nkhala quota ls --usage --json",
     cli_quota, "get|set|ls",
     OPTIONS({"--usage", NULL, "list all owners that have stored something"},
             {"--after", "OWNER", "only owners after this one"},
             {"--limit", "N", "maximum number of owners, default 100"}, JSON_ROW, REMOTE_ROWS),
     false},
    {"key",
     "key add --name NAME --role ROLE\n"
     "key ls\n"
     "key rotate NAME [--overlap SECONDS]\n"
     "key rm|revoke NAME\n"
     "key … [--json] [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]",
     "Add, list, rotate and remove operator keys of the server at --url (see append), which must "
     "run. The roles are admin, append, mint, read and metrics. A new key is printed once; the "
     "server keeps only its hash. A rotated key stays valid beside the new one for a day, or for "
     "--overlap. A removed key ends at once on every node. The keys that sign tokens are other "
     "ones: see keys.",
     "khala key add --name ci --role append\nkhala key ls\nkhala key rotate ci --overlap 3600\n"
     "khala key rm ci",
     cli_key, "add|ls|rotate|rm|revoke",
     OPTIONS({"--name", "NAME", "1 to 64 of a-z, 0-9, '.', '_' and '-'"},
             {"--role", "ROLE", "admin, append, mint, read or metrics"},
             {"--overlap", "SECONDS", "how long the old key stays valid, default 86400"}, JSON_ROW,
             REMOTE_ROWS),
     false},
    {"migrate",
     "migrate [--undo-move | --new-epoch [--fork LOG_ID]] [--json] [--data-dir DIR] [--config "
     "FILE]",
     "Bring the store's schema up to date, let a store that was moved be served again, or give a "
     "restored store a new epoch.",
     "khala migrate --data-dir ./khala-data\nkhala migrate --undo-move --data-dir ./khala-data",
     cli_migrate, NULL,
     OPTIONS({"--undo-move", NULL,
              "give up a move of this store to another; after a complete move in a new epoch"},
             {"--new-epoch", NULL,
              "after the tools of a database restored an earlier state: all clients start again"},
             {"--fork", "LOG_ID",
              "with --new-epoch: the last event that is in every earlier state of the log that "
              "clients have read; 0: not known"},
             JSON_ROW, DATA_DIR_ROW),
     false},
    {"verify", "verify [--json] [--data-dir DIR] [--config FILE]",
     "Check every hash, link, sequence and cursor of the log, every row of the journal, and every "
     "document. Works beside a running server.",
     "khala verify\nkhala verify --json", cli_verify, NULL, OPTIONS(JSON_ROW, DATA_DIR_ROW), false},
    {"reproject",
     "reproject (--run ID | --worker ID | --all) [--verify] [--json] [--data-dir DIR] [--config "
     "FILE]\n"
     "reproject --all --journal [--json] [--data-dir DIR] [--config FILE]\n"
     "reproject … [--url URL] [--ca FILE] [--key KEY]",
     "Rebuild documents from the log and write those that differ, through the server if one runs. "
     "With --verify, only list them and the damage of the journal. With --journal, make the "
     "journals of all shared topics again, in a new epoch.",
     "khala reproject --all --verify\nkhala reproject --run abc\nkhala reproject --all --journal",
     cli_reproject, NULL,
     OPTIONS({"--run", "ID", "the document of this run"},
             {"--worker", "ID", "the document of this worker"}, {"--all", NULL, "every document"},
             {"--verify", NULL, "change nothing; exit 1 if a document or the journal is damaged"},
             {"--journal", NULL, "make the journals again; clients begin again"}, JSON_ROW,
             REMOTE_ROWS),
     false},
    {"backup", "backup FILE [--force] [--json] [--data-dir DIR] [--config FILE]",
     "Copy the store as of one moment into a file. Works beside a running server.",
     "khala backup khala-backup.db\nkhala backup --force khala-backup.db", cli_backup, "FILE",
     OPTIONS({"--force", NULL, "replace the file when the new one is complete"}, JSON_ROW,
             DATA_DIR_ROW),
     false},
    {"restore", "restore FILE [--json] [--data-dir DIR] [--config FILE]",
     "Check a backup and install it as the store, with the server stopped. Keeps the old store.",
     "khala restore khala-backup.db\nkhala restore khala-backup.db --data-dir ./elsewhere",
     cli_restore, "FILE", OPTIONS(JSON_ROW, DATA_DIR_ROW), false},
    {"doctor", "doctor [--json] [--url URL] [--ca FILE] [--data-dir DIR] [--config FILE]",
     "Check settings, certificate, files, store, hash chains, server, clock, disk and limits, and "
     "say how to fix problems.",
     "khala doctor\nkhala doctor --json", cli_doctor, NULL,
     OPTIONS(JSON_ROW, URL_ROW, CA_ROW, DATA_DIR_ROW), false},
    {"retention",
     "retention run-once [--json] [--data-dir DIR] [--config FILE]\n"
     "retention … [--url URL] [--ca FILE] [--key KEY]",
     "Prune expired frames now, through the server if one runs.",
     "khala retention run-once\nkhala retention run-once --json", cli_retention, "run-once",
     OPTIONS(JSON_ROW, REMOTE_ROWS), false},
    {"keys", "keys rotate [--now] [--json] [--data-dir DIR] [--config FILE]",
     "Make a new key that signs tokens, beside a running server (the keys of operators are other "
     "ones: see key). Tokens of the old key stay valid until they "
     "end; with --now they are refused at once.",
     "khala keys rotate", cli_keys, "rotate",
     OPTIONS(JSON_ROW, DATA_DIR_ROW,
             {"--now", NULL, "end the old keys at once, with every token they signed"}),
     false},
    {"token",
     "token mint [--user ID | --guest SCOPE] [--org ID] [--scopes A,B] [--topics A,B] "
     "[--streams A,B]\n"
     "token mint … [--ttl SECONDS] [--device ID] [--session ID] [--json] [--url URL] [--ca FILE] "
     "[--key KEY] [--data-dir DIR] [--config FILE]\n"
     "token mint … --offline   (signs with the keys of the data folder or the settings)\n"
     "token inspect TOKEN|- [--json] [--data-dir DIR] [--config FILE]\n"
     "token revoke [--session ID] [--device ID] [--jti ID] [--reason TEXT] [--json] [--url URL] "
     "[--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]",
     "Mint a token for a client, show a token and whether the server would accept it, or revoke a "
     "session, a device or a token.",
     "khala token mint --user u1 --scopes runtime.run_events\n"
     "khala token mint --user u1 --scopes runtime.run_events | khala token inspect -\n"
     "khala token revoke --session s1 --reason 'signed out'",
     cli_token, "mint|inspect|revoke",
     OPTIONS({"--user", "ID", "user of the token"},
             {"--guest", "SCOPE", "guest of the token, instead of a user"},
             {"--org", "ID", "organisation of the token"},
             {"--scopes", "A,B", "scopes of the token"},
             {"--topics", "A,B", "grant only these topics"},
             {"--streams", "A,B", "grant only these streams"},
             {"--ttl", "SECONDS", "lifetime, default 300"},
             {"--device", "ID", "device of the token"}, {"--session", "ID", "session of the token"},
             {"--jti", "ID", "id of the token"}, {"--reason", "TEXT", "reason for the log"},
             {"--offline", NULL, "sign without a server"}, JSON_ROW, REMOTE_ROWS),
     false},
    {"topic",
     "topic map TOPIC [--json]\ntopic unmap STREAM [--json]\ntopic policy TOPIC [--json]\n"
     "topic … --url URL [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]",
     "Convert between topic names and stream ids, by the rule for names or, with --url, by the "
     "topics of that server. policy shows the values that hold for a topic, and why: by the "
     "settings and the topics file here, or with --url by those in force on that server.",
     "khala topic map run:abc:events\nkhala topic unmap runtime.run.abc.events\n"
     "khala topic policy chat:one",
     cli_topic, "map|unmap|policy", OPTIONS(STORE_URL_ROW, CA_ROW, KEY_ROW, DATA_DIR_ROW, JSON_ROW),
     false},
    {"cursor",
     "cursor encode TIMESTAMP_MS UUID\n"
     "cursor decode CURSOR\n"
     "cursor compare CURSOR CURSOR\n"
     "cursor plan --after SEQ [--oldest N --head N --budget N] [--epoch EPOCH --store-epoch "
     "EPOCH] [--fork SEQ]\n"
     "cursor migrate FILE [--url URL] [--ca FILE] [--key KEY] [--data-dir DIR] [--config FILE]\n"
     "cursor … [--json]",
     "Encode, decode, compare and check event cursors and topic cursors. Exits with 1 if a cursor "
     "is stale. migrate with --url asks that server what a resume would do.",
     "khala cursor plan --after 12 --oldest 10 --head 25 --budget 200\n"
     "echo '[{\"topic\":\"run:abc:events\",\"after_seq\":7}]' | khala cursor migrate -",
     cli_cursor, "encode|decode|compare|plan|migrate",
     OPTIONS({"--after", "SEQ", "the client's position: seq or seq@epoch"},
             {"--oldest", "N", "oldest seq that can be replayed"}, {"--head", "N", "newest seq"},
             {"--budget", "N", "replay budget in events"},
             {"--epoch", "EPOCH", "epoch of the client"},
             {"--store-epoch", "EPOCH", "epoch of the store"},
             {"--fork", "SEQ", "last seq that is the same in all epochs of the log"}, STORE_URL_ROW,
             CA_ROW, KEY_ROW, DATA_DIR_ROW, JSON_ROW),
     false},
    {"json", "json canonical\njson hash [--json]",
     "Print the JSON text of standard input in canonical form, or its payload hash.",
     "echo '{\"b\":2,\"a\":1}' | khala json hash", cli_json, "canonical|hash", OPTIONS(JSON_ROW),
     false},
    {"config", "config [--json] [--check] [--markdown] [--config FILE] [settings as for serve]",
     "Print the effective settings and their sources.",
     "khala config\nRUNTIME_BIND_ADDR=0.0.0.0:80 khala config --check", cli_config, NULL,
     OPTIONS(JSON_ROW,
             {"--check", NULL,
              "only check the values and files; prints nothing and exits with 0 if they are valid"},
             {"--markdown", NULL, "print docs/configuration.md"}, CONFIG_ROW),
     true},
    {"completion", "completion bash|zsh", "Print the shell completion of verbs and options.",
     "khala completion bash > khala.bash\nkhala completion zsh > _khala", cli_completion,
     "bash|zsh", NULL, false},
    {"man", "man", "Print the manual page.", "khala man > khala.1", cli_man, NULL, NULL, false},
    {"version", "version [--json]", "Print the version.", "khala version", cli_version, NULL,
     OPTIONS(JSON_ROW), false},
    {"help", "help [VERB]", "List the verbs, or describe one.", "khala help cursor", cli_help,
     "VERB", NULL, false},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, false},
};
