// What the proof of a bundle may allocate: a graph that nobody has proven may ask for any amount.
#ifndef SEQLAB_TOOLS_MEMORY_WALL_H_
#define SEQLAB_TOOLS_MEMORY_WALL_H_

#include <string>

#include "seqlab/runtime.h"

namespace seqlab::tools {

// From now on this process may allocate 1 GiB, 64 times the bundle's files and 32 times the state of a text more than it
// has: nine rows are read at once, and their numbers compared in float64. As seqlab_export.runner.memory_wall.
Status HoldMemory(const std::string& bundle);

}  // namespace seqlab::tools

#endif  // SEQLAB_TOOLS_MEMORY_WALL_H_
