#include "cli/settings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/settings_file.h"

#define OPTIONS_MAX (CONFIG_SETTINGS_MAX + 16)

static const char *environment(const char *name) {
    return getenv(name);
}

static int load(struct config *config, const struct config_flag *flags, size_t flag_count) {
    struct config_error error;
    if (config_load(config, settings_file(), environment, flags, flag_count, &error) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "%s", error.text);
    clock_move_wall_ms(config->clock_offset_ms);
    return EXIT_CODE_DONE;
}

int cli_settings_of(const char *data_dir, struct config *config) {
    struct config_flag flags[CONFIG_SETTINGS_MAX];
    size_t flag_count = config_flags(flags);
    for (size_t i = 0; i < flag_count; i++)
        if (strcmp(flags[i].name, "--data-dir") == 0)
            flags[i].value = data_dir;
    return load(config, flags, flag_count);
}

int cli_settings(int *argc, char **argv, const struct cli_option *verb_options,
                 size_t verb_option_count, struct config *config) {
    struct config_flag flags[CONFIG_SETTINGS_MAX];
    struct cli_option options[OPTIONS_MAX];
    size_t flag_count = config_flags(flags);
    size_t option_count = 0;
    assert(verb_option_count + flag_count <= OPTIONS_MAX);
    for (size_t i = 0; i < verb_option_count; i++)
        options[option_count++] = verb_options[i];
    for (size_t i = 0; i < flag_count; i++)
        options[option_count++] = (struct cli_option){flags[i].name, NULL, &flags[i].value};
    if (!cli_options(argc, argv, options, option_count))
        return EXIT_CODE_USAGE;
    return load(config, flags, flag_count);
}
