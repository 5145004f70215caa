#include "cli/open_store.h"

#include "cli/cli.h"
#include "server/config_options.h"

int cli_store_open(const struct config *config, enum store_mode mode, struct cli_store *opened) {
    struct store_message message = {""};
    *opened = (struct cli_store){.store = NULL};
    const char *url = config_store_url(config);
    enum status status = store_open(&opened->store, url, false, &message);
    if (status == STATUS_OK && mode == STORE_WRITE) {
        store_close(opened->store);
        opened->store = NULL;
        status = store_open(&opened->store, url, true, &message);
        if (status == STATUS_STORE_UNAVAILABLE) {
            opened->is_in_use = true;
            opened->message = message;
            return EXIT_CODE_UNREACHABLE;
        }
    }
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
    status = store_session_open(opened->store, mode, &opened->session);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s: %s", status_code(status),
                        status_message(status));
    return EXIT_CODE_DONE;
}

void cli_store_close(struct cli_store *opened) {
    if (opened->session)
        store_session_close(opened->session);
    if (opened->store)
        store_close(opened->store);
    *opened = (struct cli_store){.store = NULL};
}
