// The cases that the cuDNN backend does not compute, by what its refusal names: none at present. The list is exact: a
// test compiles every case (cudnn_program_test.cc).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace cairn {

inline const std::vector<std::string>& CudnnLacks() {
  static const std::vector<std::string> lacks;
  return lacks;
}

// What a refusal names: the text between `layer "x": ` and "not computed"; empty: it is no refusal of a layer.
inline std::string WhatCudnnLacks(const absl::Status& status) {
  const absl::string_view text = status.message();
  const size_t begin = text.find("\": ");
  if (!absl::IsUnimplemented(status) || !absl::StartsWith(text, "layer \"") || begin == text.npos) return "";
  const absl::string_view what = text.substr(begin + 3);
  for (const absl::string_view end : {", which is not computed", " is not computed"}) {
    if (const size_t at = what.find(end); at != what.npos) return std::string(what.substr(0, at));
  }
  return "";
}

inline bool IsCudnnLack(const absl::Status& status) {
  const std::vector<std::string>& lacks = CudnnLacks();
  return std::find(lacks.begin(), lacks.end(), WhatCudnnLacks(status)) != lacks.end();
}

}  // namespace cairn
