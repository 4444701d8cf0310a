// The version of this program, and which programs may form a cluster.
//
// Daemons talk and store by a cluster interface: a number that is raised with every release that changes what they say
// to each other or store. A release understands its own interface, the one before it and the one after it: fields are
// only added, and a field that is not set means what it meant before it existed. So a cluster is upgraded, or taken
// back, one daemon at a time (docs/operating/nodes.md#upgrade).
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

// "0.1.0"
const char* ProgramVersion();

uint32_t ClusterInterface();

// said: the field of a message; a program that does not know the field leaves 0 and has the first interface.
inline uint32_t InterfaceOf(uint32_t said) { return said == 0 ? 1 : said; }

inline bool WorkTogether(uint32_t a, uint32_t b) { return a <= b + 1 && b <= a + 1; }

// "cairn 0.1.0 (interface 2)". version: as said by a peer; may be empty.
std::string ProgramText(const std::string& version, uint32_t interface);

}  // namespace cairn
