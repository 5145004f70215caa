/* A settings file: no name appears twice, names and values are texts of the buffer without line
 * ends, a refusal names the file and its line, and every row written back in quotes is read as it
 * was. */
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "server/config_file.h"

static void check_row(const struct config_file *file, const struct config_file_row *row) {
    static struct config_file again;
    struct config_error error;
    size_t size = 0;
    require(config_file_find(file, row->name) == row);
    require(*row->name && !strpbrk(row->name, " \t=#;\"'") && !strchr(row->value, '\n'));
    require(row->value >= file->text && row->value < file->text + sizeof(file->text));
    if (strlen(row->name) + 2 * strlen(row->value) + 3 > CONFIG_FILE_LINE_BYTES_MAX)
        return;
    strcpy(again.path, "again");
    size = (size_t)sprintf(again.text, "%s=\"", row->name);
    for (const char *c = row->value; *c; c++) {
        if (strchr("\"\\`$", *c))
            again.text[size++] = '\\';
        again.text[size++] = *c;
    }
    again.text[size++] = '"';
    require(config_file_parse(&again, size, &error) == STATUS_OK && again.row_count == 1);
    require(strcmp(again.rows[0].name, row->name) == 0);
    require(strcmp(again.rows[0].value, row->value) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct config_file file;
    struct config_error error = {""};
    if (size > CONFIG_FILE_BYTES_MAX)
        return 0;
    strcpy(file.path, "khala.conf");
    if (size > 0)
        memcpy(file.text, data, size);
    if (config_file_parse(&file, size, &error) != STATUS_OK) {
        require(strncmp(error.text, "khala.conf:", strlen("khala.conf:")) == 0);
        return 0;
    }
    require(file.row_count <= CONFIG_FILE_ROWS_MAX);
    for (size_t i = 0; i < file.row_count; i++)
        check_row(&file, &file.rows[i]);
    return 0;
}
