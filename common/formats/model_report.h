// Reports which layers of a model Cairn supports, and how it can be trained. The report of a refused model is complete:
// each layer is checked by itself, so that an unsupported one hides no other.
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
  std::string why;  // why it is refused; empty: it is supported
};

// The layers of a Keras model's description, those of nested models as "outer/inner". `notes`: remarks on supported
// features, such as a mixed precision policy. Errors: INVALID_ARGUMENT: it is not a model's description.
struct KerasReport {
  std::vector<LayerReport> layers;
  std::vector<std::string> notes;
};
absl::StatusOr<KerasReport> ReportKerasModel(absl::string_view json);

// The whole model's error becomes that of the layer that it names, if no layer has one of its own: what is wrong with
// its inputs shows only in the whole model.
void NoteError(const absl::Status& whole, std::vector<LayerReport>* layers);

// The operators of an ONNX file. Errors: those of the file as a whole (onnx_file.h).
absl::StatusOr<std::vector<LayerReport>> ReportOnnxFile(const std::string& path);

// What a model can be trained with, according to the check of a job.
struct TrainingReport {
  std::vector<std::string> losses;  // empty: `why` gives the reason
  std::vector<std::string> data;    // formats, with the shape that each must have
  std::string why;
};
// model: expanded, and valid, so that a graph can be built from it.
TrainingReport ReportTraining(const v1::Model& model);

}  // namespace cairn
