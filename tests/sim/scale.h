// The coordinator's core with a large cluster: does membership, placement and the stream of heartbeats scale?
//
// The nodes are as thin as can be: they join, send heartbeats, answer what they are told at once, and a few die and come back.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::sim {

struct ScaleResult {
  std::string violation;      // empty: every job ran on all that it should
  uint64_t events = 0;        // steps of the core
  double wall_seconds = 0;
  double virtual_seconds = 0;
  double worst_step_ms = 0;   // the longest single step
  std::string text;           // all of that in a line
};

// A fifth of the nodes are ps, the others workers; four jobs share them for 30 s.
ScaleResult SimulateScale(int nodes, uint64_t seed);

}  // namespace cairn::sim
