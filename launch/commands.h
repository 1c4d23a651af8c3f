/*
 * commands.h - the commands of the program; one file each. argv begins after the command's name.
 * Each returns the exit code of say.h.
 *
 * May not include anything.
 */
#ifndef LAUNCH_COMMANDS_H
#define LAUNCH_COMMANDS_H

int command_run(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_plan(int argc, char **argv);

/* Prints the options of `kvferry run`. */
void command_run_help(void);
void command_bench_help(void);
void command_plan_help(void);

#endif /* LAUNCH_COMMANDS_H */
