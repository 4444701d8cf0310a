// TextStore: the texts of a data set. An example holds a text as its number here, so that tables, splits, caches and
// batches of examples need not know texts; TextDataset (text_dataset.h) reads the texts of the numbers.
//
// Add is called by one thread, while a data set is opened; after that any thread may read. Invariants:
//   1. Texts are UTF-8. Equal texts have one number.
//   2. Numbers are below kTextsMax, so that a float32 holds them exactly.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

class TextStore {
 public:
  // Returns the text's number. Errors (DATA_LOSS, without the place): not UTF-8, too long, too many texts.
  absl::StatusOr<float> Add(absl::string_view text);
  // number: one that Add returned.
  absl::string_view Get(float number) const { return texts_[static_cast<size_t>(number)]; }
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }

 private:
  std::deque<std::string> texts_;  // their addresses stay
  absl::flat_hash_map<absl::string_view, int64_t> numbers_;
};

}  // namespace cairn
