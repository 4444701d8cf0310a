// What a terminal shows of a sweep. Pure functions; any thread.
#pragma once

#include <string>

#include "client/cli/sweep/sweep.h"

namespace cairn {

// A row for each trial, best first; at most `rows` (0: all), and then a line that says how many are left out.
std::string SweepTable(const Sweep& sweep, int rows);

// "12 of 20 trials have ended, 4 run; best: trial 3, val_accuracy: 0.9880".
std::string SweepSummary(const Sweep& sweep);

// Lines cut to a terminal's width, in columns.
std::string CutLines(const std::string& text, int width);

}  // namespace cairn
