// The kind of model file to write, determined by the extension of its name.
#pragma once

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class ModelFileKind { kUnknown, kSafetensors, kKeras, kKerasWeights, kOnnx };

inline ModelFileKind ModelFileKindOf(absl::string_view path) {
  if (absl::EndsWith(path, ".safetensors")) return ModelFileKind::kSafetensors;
  if (absl::EndsWith(path, ".keras")) return ModelFileKind::kKeras;
  if (absl::EndsWith(path, ".weights.h5")) return ModelFileKind::kKerasWeights;
  if (absl::EndsWith(path, ".onnx")) return ModelFileKind::kOnnx;
  return ModelFileKind::kUnknown;
}

}  // namespace cairn
