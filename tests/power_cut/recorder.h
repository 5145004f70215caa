/* The recorder inside of a program, instead of LD_PRELOAD.
 * Thread: any; begin and end with no recorded file open.
 * Errors: a trace that cannot be written ends the process. */
#ifndef POWER_CUT_RECORDER_H
#define POWER_CUT_RECORDER_H

void recorder_begin(const char *place, const char *file);
void recorder_end(void);

#endif
