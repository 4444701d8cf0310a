// A .keras archive, a .weights.h5 file and a legacy .h5 file of any bytes: the model's variables in their shapes, or an
// error; never more memory than the model has variables. (What is libhdf5's own runs in another process, see
// common/formats/apart.h: it may fail there.)
//
//   input := kind:u8 (modulo 3: 0 Rest is a .keras archive, 1 a .weights.h5 file for the small job's model, 2 a legacy
//            .h5 file of a model with its weights)
#include "common/base/check.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_h5.h"
#include "common/formats/keras_weights.h"
#include "common/model/job_check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/job_seed.h"

namespace cairn {
namespace {

void CheckTensors(const SafetensorsFile& file) {
  for (const Safetensor& t : file.tensors) {
    CAIRN_CHECK(!t.name.empty() && t.data.size() == static_cast<size_t>(NumElements(t.shape)) * sizeof(float), "size");
    uint8_t all = 0;
    for (size_t i = 0; i < t.data.size(); ++i) all |= t.data.data()[i];
    static_cast<void>(all);
  }
}

void CheckLegacy(const FuzzFolder& folder, const Graph& graph, std::string_view bytes) {
  folder.Write("m.h5", bytes);
  const auto config = ReadKerasH5Config(folder / "m.h5");
  CAIRN_CHECK(config.ok() || !config.status().message().empty(), "an error without a word");
  const auto file = ReadKerasH5Weights(Buffer::CopyOf(bytes.data(), bytes.size()), "input", graph);
  if (file.ok()) return CheckTensors(*file);
  CAIRN_CHECK(file.status().message().find("input") != std::string_view::npos, "an error that names no file");
}

void Check(ByteSource in) {
  static const FuzzFolder folder;
  static const Graph graph = CheckJob(SmallJob(false))->graph;
  const uint64_t kind = in.Below(3);
  const std::string_view bytes = in.Rest();
  if (kind == 2) return CheckLegacy(folder, graph, bytes);
  if (kind == 0) {
    folder.Write("m.keras", bytes);
    const auto file = ReadKerasArchiveWeights(folder / "m.keras");
    if (file.ok()) return CheckTensors(*file);
    CAIRN_CHECK(!file.status().message().empty(), "an error without a word");
    return;
  }
  const auto file =
      ReadKerasWeights(Buffer::CopyOf(bytes.data(), bytes.size()), "input", graph, KerasLayerPaths(graph));
  if (!file.ok()) {
    CAIRN_CHECK(file.status().message().find("input") != std::string_view::npos, "an error that names no file");
    return;
  }
  CAIRN_CHECK(file->tensors.size() == graph.variables().size(), "variables");
  CheckTensors(*file);
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
