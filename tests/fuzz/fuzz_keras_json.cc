// Keras' description of a model, altered, as a job brings it: read, expanded, checked and built. What is read has a
// place for each layer's weights.
//
//   input := Block(text) alterations (alter_json.h)
#include "common/base/check.h"
#include "common/formats/expand_model.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_weights.h"
#include "common/model/job_check.h"
#include "tests/fuzz/alter_json.h"
#include "tests/fuzz/job_seed.h"

namespace cairn {
namespace {

void CheckError(const absl::Status& status) {
  CAIRN_CHECK(absl::IsInvalidArgument(status) && !status.message().empty(), std::string(status.message()));
}

void Check(ByteSource in) {
  const std::string_view seed = in.Block();
  const std::string text = AlteredJson(in, seed);
  const absl::StatusOr<KerasModel> read = ReadKerasModel(text);
  v1::JobSpec spec = SmallJob(false);
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_keras_json(text);
  const absl::Status expanded = ExpandJob(&spec);
  if (!read.ok()) {
    CheckError(read.status());
    CAIRN_CHECK(text.empty() || !expanded.ok(), "a job takes what the reader refuses");  // an empty one is none
    return;
  }
  CAIRN_CHECK(read->weight_paths.size() == static_cast<size_t>(read->model.layers_size()), "places of weights");
  const absl::StatusOr<Graph> graph = Graph::Build(read->model);
  if (!graph.ok()) return CheckError(graph.status());
  CAIRN_CHECK(KerasLayerPaths(*graph).size() == graph->nodes().size(), "paths");
  MustBeOk(expanded);
  if (const auto checked = CheckJob(spec); !checked.ok()) CheckError(checked.status());
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
