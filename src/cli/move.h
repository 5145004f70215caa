/* Moves a store into another, for the verbs import and export.
 * Main thread only.
 * Owns nothing.
 * Prints the result, or the error, and returns an exit code: "no" where the move is refused.
 * Progress goes to standard error. */
#ifndef CLI_MOVE_H
#define CLI_MOVE_H

#include <stdbool.h>

int cli_move(const char *source_url, const char *target_url, bool json);

#endif
