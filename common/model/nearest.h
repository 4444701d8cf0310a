// For "did you mean".
#pragma once

#include <string>
#include <vector>

namespace cairn {

// The first of the candidates with the fewest edits to `word`, upper and lower case alike, or empty where none is near.
// A pure function.
std::string Nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace cairn
