// What can be done with a model: which of its layers Cairn has, and how it can be trained. Nothing of a refused model
// is left out: each layer is looked at by itself, so that one that is refused hides no other.
//
// Free functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"

namespace cairn {

struct LayerReport {
  std::string name, type;
  std::string why;  // it is refused; empty: it is supported
};

// The layers of a Keras model's description, those of models inside models as "outer/inner". `notes`: what is right and
// yet worth saying, such as a mixed precision policy. Errors: INVALID_ARGUMENT, it is no description at all.
struct KerasReport {
  std::vector<LayerReport> layers;
  std::vector<std::string> notes;
};
absl::StatusOr<KerasReport> ReportKerasModel(absl::string_view json);

// The operators of an ONNX file. Errors: the file's own (onnx_file.h).
absl::StatusOr<std::vector<LayerReport>> ReportOnnxFile(const std::string& path);

// With what a model can be trained, as the check of a job sees it.
struct TrainingReport {
  std::vector<std::string> losses;  // none: `why` says why
  std::vector<std::string> data;    // formats, with the shape that each must have
  std::string why;
};
// model: expanded, and one that a graph can be built of.
TrainingReport ReportTraining(const v1::Model& model);

}  // namespace cairn
