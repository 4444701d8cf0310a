// The page of a sweep: parallel coordinates, curves and a table, in one file that needs no network.
//
// A pure function; any thread. All words of users are in a JSON text whose "<" is escaped; the script makes text nodes
// of them, never HTML.
#pragma once

#include <string>

#include "client/cli/sweep/sweep.h"

namespace cairn {

std::string SweepPage(const std::string& job, const Sweep& sweep);

}  // namespace cairn
