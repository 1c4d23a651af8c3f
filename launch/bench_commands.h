/*
 * bench_commands.h - the measurements of `kvferry bench`; argv begins after the measurement's name.
 *
 * May not include anything.
 */
#ifndef LAUNCH_BENCH_COMMANDS_H
#define LAUNCH_BENCH_COMMANDS_H

int bench_plan(int argc, char **argv);
int bench_copy(int argc, char **argv);
int bench_control(int argc, char **argv);
int bench_sweep(int argc, char **argv);

/* Print their options. */
void bench_plan_help(void);
void bench_copy_help(void);
void bench_control_help(void);
void bench_sweep_help(void);

#endif /* LAUNCH_BENCH_COMMANDS_H */
