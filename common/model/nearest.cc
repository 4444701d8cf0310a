#include "common/model/nearest.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"

namespace cairn {
namespace {

// The Levenshtein distance, computed row by row.
size_t Edits(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replace = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_edits = std::max<size_t>(1, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits = Edits(absl::AsciiStrToLower(word), absl::AsciiStrToLower(candidate));
    if (edits < best_edits) {
      best_edits = edits;
      best = candidate;
    }
  }
  return best;
}

}  // namespace cairn
