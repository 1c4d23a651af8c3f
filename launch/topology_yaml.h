/*
 * topology_yaml.h - a topology from the command line: the text form, a YAML file, or the name of
 * one of launch/topologies. YAML is turned into the text form, so that one parser judges all.
 */
#ifndef LAUNCH_TOPOLOGY_YAML_H
#define LAUNCH_TOPOLOGY_YAML_H

#include <stdbool.h>

#include <kvferry/kvf_topology.h>

#define TOPOLOGY_TEXT_BYTES 512

/*
 * False: text_out (TOPOLOGY_TEXT_BYTES long) says what is wrong. `topology_out` gives:
 * kvf_topology_free().
 */
bool topology_load(const char *text, struct kvf_topology **topology_out, char *text_out);

#endif /* LAUNCH_TOPOLOGY_YAML_H */
