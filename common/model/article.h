// A layer's type with its article, as messages have it: "a dense", "an activity_regularization", "an lstm".
#pragma once

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn {

// As it is spoken: "an up_sampling2d", "a unit_normalization", "an lstm".
inline std::string WithArticle(absl::string_view type) {
  const bool vowel = !type.empty() && absl::StrContains("aeiou", type[0]) && !absl::StartsWith(type, "uni");
  return absl::StrCat(vowel || type == "lstm" ? "an " : "a ", type);
}

}  // namespace cairn
