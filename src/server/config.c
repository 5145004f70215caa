/* Each row of the table is applied four times: its default, the value of the file, the environment
 * and the flag, the last of which wins. Then the settings are checked together, and the topic
 * policies follow, whose keys are not rows. Printing goes through the same rows. */
#include "server/config.h"

#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>

#include "auth/origin.h"
#include "base/decimal.h"
#include "base/utf8.h"
#include "server/config_options.h"
#include "server/config_table.h"
#include "server/sinks.h"
#include "wire/http1.h"
#include "wire/json.h"

__attribute__((format(printf, 2, 3))) static enum status refuse(struct config_error *error,
                                                                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return STATUS_INVALID_CONFIG;
}

static enum status set_address(struct listen_address *address, const char *text) {
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (!colon || colon == text || !decimal_parse_u64(slice_of(colon + 1), &port) ||
        port > UINT16_MAX)
        return STATUS_INVALID_CONFIG;
    const char *host = text;
    size_t size = (size_t)(colon - text);
    bool bracketed = size >= 2 && host[0] == '[' && host[size - 1] == ']';
    if (bracketed) {
        host++;
        size -= 2;
    }
    /* An IPv6 address needs brackets, because its colons look like the one before the port. */
    if (size == 0 || size >= sizeof(address->host) || strcspn(host, "[]") < size ||
        (!bracketed && memchr(host, ':', size)))
        return STATUS_INVALID_CONFIG;
    memcpy(address->host, host, size);
    address->host[size] = '\0';
    address->port = (uint16_t)port;
    return STATUS_OK;
}

static bool has_only(const char *text, unsigned char first, unsigned char last) {
    for (; *text; text++)
        if ((unsigned char)*text < first || (unsigned char)*text > last || *text == 0x7f)
            return false;
    return true;
}

static bool choice_index(const char *choices, const char *text, bool ignores_case,
                         uint64_t *index) {
    *index = 0;
    for (const char *at = choices; *at; (*index)++) {
        size_t size = strcspn(at, "|");
        if (size == strlen(text) &&
            (ignores_case ? strncasecmp(at, text, size) : strncmp(at, text, size)) == 0)
            return true;
        at += size + (at[size] == '|');
    }
    return false;
}

static enum status setting_apply(const struct setting *setting, struct config *config,
                                 const char *text, struct config_error *error) {
    void *field = (char *)config + setting->offset;
    uint64_t number = 0;
    if (!has_only(text, 0x20, UCHAR_MAX))
        return refuse(error, "%s has a control character in it", setting->name);
    switch (setting->type) {
    case SETTING_TEXT:
    case SETTING_OPTIONAL:
    case SETTING_ORIGINS:
        if ((*text == '\0' && setting->type == SETTING_TEXT) || strlen(text) >= CONFIG_TEXT_MAX)
            return refuse(error, "%s must be %d to %d characters", setting->name,
                          setting->type == SETTING_TEXT, CONFIG_TEXT_MAX - 1);
        if (setting->type == SETTING_ORIGINS && !origin_list_check(slice_of(text)))
            return refuse(error, "%s='%.200s' is not a list of origins like https://app.example",
                          setting->name, text);
        strcpy(field, text);
        return STATUS_OK;
    case SETTING_FLAG:
        if (!choice_index("0|1|false|true|no|yes|off|on", text, true, &number))
            return refuse(error, "%s='%.200s' is not true or false", setting->name, text);
        *(bool *)field = number % 2 == 1;
        return STATUS_OK;
    case SETTING_SECRET:
        /* The value is not shown, because the message may be logged. */
        if (!has_only(text, '!', '~') || strlen(text) > setting->max)
            return refuse(error, "%s must be at most %llu visible ASCII characters", setting->name,
                          (unsigned long long)setting->max);
        strcpy(field, text);
        return STATUS_OK;
    case SETTING_ADDRESS:
        /* Only a setting without a default address may be empty. */
        if (*text == '\0' && *setting->fallback == '\0') {
            *(struct listen_address *)field = (struct listen_address){.host = ""};
            return STATUS_OK;
        }
        if (set_address(field, text) != STATUS_OK)
            return refuse(error, "%s='%.200s' is not host:port", setting->name, text);
        return STATUS_OK;
    case SETTING_CHOICE:
        if (!choice_index(setting->choices, text, false, &number))
            return refuse(error, "%s='%.200s' is not one of %s", setting->name, text,
                          setting->choices);
        *(uint64_t *)field = number;
        return STATUS_OK;
    case SETTING_NUMBER:
        if (!decimal_parse_u64(slice_of(text), &number) || number < setting->min ||
            number > setting->max)
            return refuse(error, "%s='%.200s' is not a whole number from %llu to %llu",
                          setting->name, text, (unsigned long long)setting->min,
                          (unsigned long long)setting->max);
        *(uint64_t *)field = number;
        return STATUS_OK;
    }
    assert(0 && "a setting type of the table");
    return STATUS_INTERNAL_ERROR;
}

/* Prefixes the message with the row's place in the file. */
static enum status refuse_row(const struct config_file *file, const struct config_file_row *row,
                              struct config_error *error) {
    const struct config_error reason = *error;
    return config_file_refuse(file, row->line, error, "%s", reason.text);
}

static enum status policy_apply(struct config *config, const struct policy_key *key,
                                const char *text, struct config_error *error) {
    if (policy_table_set(&config->policies, slice_of(key->name), slice_of(text)) == STATUS_OK)
        return STATUS_OK;
    return refuse(error, "%s='%.200s' is not a whole number from %llu to %llu", key->name, text,
                  (unsigned long long)key->value_min, (unsigned long long)key->value_max);
}

/* What no setting shows by itself. Messages do not show URLs, which may contain passwords. */
static enum status check_together(const struct config *config, struct config_error *error) {
    char message[400];
    size_t issuer = 0;
    while (config_settings[issuer].offset != offsetof(struct config, token_issuer))
        issuer++;
    if (!*config->tls_cert_file != !*config->tls_key_file)
        return refuse(error,
                      "KHALA_TLS_CERT_FILE and KHALA_TLS_KEY_FILE go together: %s is not set",
                      *config->tls_cert_file ? "KHALA_TLS_KEY_FILE" : "KHALA_TLS_CERT_FILE");
    /* An empty range would refuse every client as soon as it is enforced. */
    if (config->compatibility_min_schema_version > config->compatibility_max_schema_version)
        return refuse(error, "OA_COMPAT_KHALA_MIN_SCHEMA_VERSION is above "
                             "OA_COMPAT_KHALA_MAX_SCHEMA_VERSION");
    if (*config->compatibility_max_client_build_id &&
        strcmp(config->compatibility_min_client_build_id,
               config->compatibility_max_client_build_id) > 0)
        return refuse(error, "OA_COMPAT_KHALA_MIN_CLIENT_BUILD_ID is above "
                             "OA_COMPAT_KHALA_MAX_CLIENT_BUILD_ID");
    /* The default issuer is the server's own. Tokens signed by a key of the file have another one.
     */
    if (*config->jwks_file && config->sources[issuer] == CONFIG_DEFAULT)
        return refuse(error, "RUNTIME_SYNC_JWKS_FILE is set, and RUNTIME_SYNC_TOKEN_ISSUER is not: "
                             "set it to the issuer (iss) of the tokens that these keys sign");
    if (sinks_check(config, message, sizeof(message)) != STATUS_OK)
        return refuse(error, "%s", message);
    /* Another scheme is refused, so that the log does not silently go to a file. */
    if (*config->db_url && strncmp(config->db_url, "postgres://", 11) != 0 &&
        strncmp(config->db_url, "postgresql://", 13) != 0)
        return refuse(error, "DB_URL must begin with postgres://; unset it to use the embedded "
                             "store in KHALA_DATA_DIR");
    enum fanout_kind kind = config_fanout_kind(config);
    const char *url = config_fanout_url(config);
    if (kind != FANOUT_MEMORY && !*url)
        return refuse(error, "RUNTIME_FANOUT_DRIVER is %s, and RUNTIME_FANOUT_URL is not set",
                      fanout_kind_name(kind));
    const char *reason = kind != FANOUT_MEMORY ? fanout_check_url(kind, url) : NULL;
    return reason ? refuse(error, "RUNTIME_FANOUT_URL %s", reason) : STATUS_OK;
}

enum status config_load(struct config *config, const struct config_file *file,
                        const char *(*environment)(const char *), const struct config_flag *flags,
                        size_t flag_count, struct config_error *error) {
    *config = (struct config){.file = file};
    for (size_t i = 0; i < config_setting_count; i++) {
        const struct setting *setting = &config_settings[i];
        const struct config_file_row *row = config_file_find(file, setting->name);
        const char *given = environment(setting->name);
        config->sources[i] = row ? CONFIG_FILE : CONFIG_DEFAULT;
        enum status status = setting_apply(setting, config, setting->fallback, error);
        /* The row is checked also if the environment or a flag overrides it. */
        if (status == STATUS_OK && row &&
            setting_apply(setting, config, row->value, error) != STATUS_OK)
            return refuse_row(file, row, error);
        if (given)
            config->sources[i] = CONFIG_ENVIRONMENT;
        for (size_t j = 0; setting->flag && j < flag_count; j++) {
            if (flags[j].value && strcmp(flags[j].name, setting->flag) == 0) {
                given = flags[j].value;
                config->sources[i] = CONFIG_FLAG;
            }
        }
        if (status == STATUS_OK && given)
            status = setting_apply(setting, config, given, error);
        if (status != STATUS_OK)
            return status;
    }
    if (check_together(config, error) != STATUS_OK)
        return STATUS_INVALID_CONFIG;
    policy_table_init(&config->policies);
    assert(policy_key_count() <= CONFIG_POLICY_KEY_MAX);
    for (size_t i = 0; i < policy_key_count(); i++) {
        struct policy_key key = policy_key_at(i);
        const struct config_file_row *row = config_file_find(file, key.name);
        const char *text = environment(key.name);
        config->policy_sources[i] = text ? CONFIG_ENVIRONMENT : row ? CONFIG_FILE : CONFIG_DEFAULT;
        if (row && policy_apply(config, &key, row->value, error) != STATUS_OK)
            return refuse_row(file, row, error);
        if (text && policy_apply(config, &key, text, error) != STATUS_OK)
            return STATUS_INVALID_CONFIG;
    }
    return STATUS_OK;
}

size_t config_flags(struct config_flag *flags) {
    size_t count = 0;
    for (size_t i = 0; i < config_setting_count; i++)
        if (config_settings[i].flag)
            flags[count++] = (struct config_flag){config_settings[i].flag, NULL};
    return count;
}

bool config_setting_at(size_t index, struct config_setting *setting) {
    if (index >= config_setting_count)
        return false;
    const struct setting *row = &config_settings[index];
    const char *last = strrchr(row->name, '_') + 1;
    const char *takes = "TEXT";
    switch (row->type) {
    case SETTING_TEXT:
    case SETTING_OPTIONAL:
    case SETTING_ORIGINS:
        if (strcmp(last, "DIR") == 0 || strcmp(last, "FILE") == 0)
            takes = last;
        break;
    case SETTING_SECRET:
        takes = "SECRET";
        break;
    case SETTING_ADDRESS:
        takes = "HOST:PORT";
        break;
    case SETTING_NUMBER:
        takes = "N";
        break;
    case SETTING_FLAG:
        takes = "true|false";
        break;
    case SETTING_CHOICE:
        takes = row->choices;
        break;
    }
    *setting = (struct config_setting){row->name, row->flag, takes, row->fallback, row->help};
    return true;
}

static const char *source_name(enum config_source source) {
    static const char *const names[] = {"default", "file", "environment", "flag"};
    return names[source];
}

/* Writes the value in the form of the environment. */
static void setting_text(const struct setting *setting, const struct config *config,
                         char text[CONFIG_TEXT_MAX]) {
    const void *field = (const char *)config + setting->offset;
    const struct listen_address *address = field;
    uint64_t index = 0;
    switch (setting->type) {
    case SETTING_TEXT:
    case SETTING_OPTIONAL:
    case SETTING_ORIGINS:
        snprintf(text, CONFIG_TEXT_MAX, "%s", (const char *)field);
        return;
    case SETTING_SECRET:
        snprintf(text, CONFIG_TEXT_MAX, "%s", *(const char *)field ? "********" : "");
        return;
    case SETTING_FLAG:
        snprintf(text, CONFIG_TEXT_MAX, "%s", *(const bool *)field ? "true" : "false");
        return;
    case SETTING_ADDRESS:
        *text = '\0';
        if (*address->host)
            snprintf(text, CONFIG_TEXT_MAX, strchr(address->host, ':') ? "[%s]:%u" : "%s:%u",
                     address->host, (unsigned)address->port);
        return;
    case SETTING_CHOICE: {
        const char *choice = setting->choices;
        for (; index < *(const uint64_t *)field; index++)
            choice += strcspn(choice, "|") + 1;
        snprintf(text, CONFIG_TEXT_MAX, "%.*s", (int)strcspn(choice, "|"), choice);
        return;
    }
    case SETTING_NUMBER:
        snprintf(text, CONFIG_TEXT_MAX, "%llu", (unsigned long long)*(const uint64_t *)field);
        return;
    }
}

struct printer {
    const struct config *config;
    FILE *out;
    bool json;
    bool has_printed; /* a setting: the next one needs a comma */
};

/* null if the text is not UTF-8. */
static void print_json(struct printer *printer, const char *value) {
    struct buffer quoted;
    buffer_init(&quoted, CONFIG_TEXT_MAX * 6 + 2);
    struct slice text = slice_of(value);
    if (!utf8_valid(text) || json_write_string(&quoted, text) != STATUS_OK)
        quoted.size = 0;
    fprintf(printer->out, "%.*s", quoted.size ? (int)quoted.size : 4,
            quoted.size ? quoted.data : "null");
    buffer_release(&quoted);
}

static void print_setting(struct printer *printer, const char *name, const char *value,
                          enum config_source source) {
    const struct config_file *file = printer->config->file;
    const struct config_file_row *row = source == CONFIG_FILE ? config_file_find(file, name) : NULL;
    if (!printer->json) {
        fprintf(printer->out, "%s=%s  # %s", name, value, source_name(source));
        if (row)
            fprintf(printer->out, " %s:%u", file->path, row->line);
        fputc('\n', printer->out);
        return;
    }
    fprintf(printer->out, "%s{\"name\":\"%s\",\"value\":", printer->has_printed ? ",\n " : "[",
            name);
    print_json(printer, value);
    fprintf(printer->out, ",\"source\":\"%s\"", source_name(source));
    if (row) {
        fputs(",\"path\":", printer->out);
        print_json(printer, file->path);
        fprintf(printer->out, ",\"line\":%u", row->line);
    }
    fputc('}', printer->out);
    printer->has_printed = true;
}

void config_print(const struct config *config, FILE *out, bool json) {
    struct printer printer = {config, out, json, false};
    for (size_t i = 0; i < config_setting_count; i++) {
        char text[CONFIG_TEXT_MAX];
        setting_text(&config_settings[i], config, text);
        print_setting(&printer, config_settings[i].name, text, config->sources[i]);
    }
    for (size_t i = 0; i < policy_key_count(); i++) {
        struct policy_key key = policy_key_at(i);
        char text[32];
        snprintf(text, sizeof(text), "%llu",
                 (unsigned long long)policy_table_get(&config->policies, &key));
        print_setting(&printer, key.name, text, config->policy_sources[i]);
    }
    if (json)
        fputs("]\n", out);
}

/* The format of KHALA_TOPICS_FILE, with the ranges that its reader checks. */
static void print_topics_file(FILE *out) {
    fprintf(out,
            "\n## The topics file\n\n"
            "`KHALA_TOPICS_FILE` has one rule per line: a pattern of topic names, then `KEY=VALUE` "
            "words. `#` begins a comment.\n\n"
            "```\n"
            "chat:*         replay_budget_events=50000 publish_rate_per_second=5000 class=chat\n"
            "tenant:*:feed  qos_tier=hot retention_seconds=604800\n"
            "run:*          publish_rate_per_second=10000\n"
            "```\n\n"
            "`*` stands for any text, `:` included, or for none. The first rule that matches a "
            "name decides, and wins over the\nsettings above. A rule whose pattern begins with "
            "`run:`, `worker:`, `fleet:` or `runtime.` is for topics that projections own,\nand "
            "takes only `replay_budget_events`, `publish_rate_per_second` and "
            "`max_payload_bytes`. Every other rule is for application\ntopics only, `*` "
            "too.\n\n"
            "| key | takes | meaning |\n|---|---|---|\n");
    for (unsigned i = 0; i < TOPIC_RULE_KEY_COUNT; i++) {
        enum topic_rule_key key = (enum topic_rule_key)i;
        fprintf(out, "| `%s` | ", topic_rule_key_name(key));
        if (key == TOPIC_RULE_CLASS)
            fprintf(out,
                    "a name of at most %d characters a-z, 0-9, _ | the class that metrics, "
                    "lists and answers show; a file names at most %d, and none that is built "
                    "in |\n",
                    TOPIC_CLASS_BYTES_MAX, TOPIC_RULE_CLASSES_MAX);
        else if (key == TOPIC_RULE_QOS_TIER)
            fputs("hot, warm, cold | how often the topic is served among those of its reader; "
                  "for subscriptions from then on |\n",
                  out);
        else
            fprintf(out, "%llu to %llu | %s |\n", (unsigned long long)policy_rule_range(key).min,
                    (unsigned long long)policy_rule_range(key).max, policy_rule_about(key));
    }
    fprintf(out,
            "\nA file has at most %d bytes and %d rules. It is refused as a whole, with its line "
            "and the reason, for an unknown or repeated\nkey, a value out of range, a class with "
            "a built-in name, and a rule that an earlier one hides.\n",
            TOPICS_FILE_BYTES_MAX, TOPIC_RULES_MAX);
}

void config_print_markdown(FILE *out) {
    fputs("# Configuration\n\n_Generated by `khala config --markdown`._\n\n"
          "A flag overrides the environment, the environment overrides the settings file, and the "
          "file overrides the default.\nThe server refuses to start with a bad value and names the "
          "setting. `khala config` prints the effective values and\ntheir sources.\n\n"
          "The settings file is the one of `--config FILE`, else `" CONFIG_FILE_DEFAULT
          "` where that exists. It has\nthe form of a systemd `EnvironmentFile`: one `KEY=value` "
          "per line, and comment lines that start with `#` or `;`. A value\nmay stand in single or "
          "double quotes, and ends on its line. An unknown key, a repeated key and a bad value are "
          "refused\nwith the key, the file and the line. A file has at most 65536 bytes, 2048 per "
          "line, and 256 settings.\n\n"
          "| key | flag | default | takes | meaning |\n|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < config_setting_count; i++) {
        const struct setting *setting = &config_settings[i];
        fprintf(out, "| `%s` | ", setting->name);
        fprintf(out, setting->flag ? "`%s` | " : "– | ", setting->flag);
        fprintf(out, *setting->fallback ? "`%s` | " : "– | ", setting->fallback);
        if (setting->type == SETTING_NUMBER)
            fprintf(out, "%llu to %llu", (unsigned long long)setting->min,
                    (unsigned long long)setting->max);
        for (const char *c = setting->choices ? setting->choices : ""; *c; c++)
            fputs(*c == '|' ? ", " : (char[]){*c, '\0'}, out);
        if (setting->type == SETTING_ADDRESS)
            fputs("host:port", out);
        if (setting->type == SETTING_TEXT)
            fputs("text", out);
        if (setting->type == SETTING_OPTIONAL)
            fputs("text or nothing", out);
        if (setting->type == SETTING_ORIGINS)
            fputs("origins", out);
        if (setting->type == SETTING_FLAG)
            fputs("true, false", out);
        if (setting->type == SETTING_SECRET)
            fputs("secret", out);
        fprintf(out, " | %s |\n", setting->help);
    }
    fputs("\n## Topic policies\n\n| key | default | takes | meaning |\n"
          "|---|---:|---|---|\n",
          out);
    for (size_t i = 0; i < policy_key_count(); i++) {
        struct policy_key key = policy_key_at(i);
        fprintf(out, "| `%s` | %llu | %llu to %llu | %s |\n", key.name,
                (unsigned long long)key.value_default, (unsigned long long)key.value_min,
                (unsigned long long)key.value_max, key.about);
    }
    print_topics_file(out);
}
