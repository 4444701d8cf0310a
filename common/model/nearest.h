// Finds the candidate for a "did you mean" hint.
#pragma once

#include <string>
#include <vector>

namespace cairn {

// Returns the first candidate with the smallest edit distance to `word`, ignoring case, or "" if none is close. A pure
// function.
std::string Nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace cairn
