#include "common/data/text_store.h"

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/data/limits.h"

namespace cairn {

absl::StatusOr<float> TextStore::Add(absl::string_view text) {
  if (const auto found = numbers_.find(text); found != numbers_.end()) return static_cast<float>(found->second);
  if (text.size() > kTextBytesMax) {
    return absl::DataLossError(
        absl::StrCat("a text of ", text.size(), " bytes; at most ", kTextBytesMax, " are read: cut it"));
  }
  if (!IsUtf8({text.data(), text.size()}))
    return absl::DataLossError("the text is not UTF-8; convert it, by iconv say");
  if (size() >= kTextsMax) {
    return absl::DataLossError(absl::StrCat("more than ", kTextsMax, " different texts; use fewer examples"));
  }
  const int64_t number = size();
  numbers_.emplace(texts_.emplace_back(text), number);
  return static_cast<float>(number);
}

}  // namespace cairn
