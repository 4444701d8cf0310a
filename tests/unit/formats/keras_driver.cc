// The two directions, for keras_order.py, which lays out the weights by a rule of its own.
//
//   keras_driver DIR NAME...   reads DIR/NAME.keras and, where it is, DIR/NAME.weights.h5 as weights of that model;
//                              prints of each {"NAME.keras": {layer: the first number of its first variable}}, a line;
//                              writes the same values to DIR/NAME.out.keras and DIR/NAME.out.weights.h5
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"

namespace cairn {
namespace {

template <typename T>
T Checked(absl::StatusOr<T> value, const std::string& what) {
  CAIRN_CHECK(value.ok(), what + ": " + value.status().ToString());
  return *std::move(value);
}

// The weights as the parameter space, and a line about them.
Buffer Space(const Graph& graph, const SafetensorsFile& weights, const std::string& name) {
  Buffer space = Buffer::Zeros(static_cast<size_t>(graph.space_size()) * sizeof(float));
  std::map<std::string, float> firsts;
  for (const Variable& v : graph.variables()) {
    for (const Safetensor& tensor : weights.tensors) {
      if (tensor.name != v.name) continue;
      const absl::Span<const float> numbers = tensor.data.floats();
      std::copy(numbers.begin(), numbers.end(), space.mutable_floats().begin() + v.offset);
      firsts.emplace(graph.nodes()[static_cast<size_t>(v.node)].name, numbers[0]);
    }
  }
  std::vector<std::string> texts;
  for (const auto& [layer, number] : firsts) texts.push_back(absl::StrCat("\"", layer, "\":", number));
  std::printf("{\"%s\":{%s}}\n", name.c_str(), absl::StrJoin(texts, ",").c_str());
  return space;
}

void Convert(const std::string& dir, const std::string& name) {
  const std::string path = absl::StrCat(dir, "/", name), archive = path + ".keras", alone = path + ".weights.h5";
  const KerasModel model = Checked(ReadKerasModel(Checked(ReadKerasArchiveConfig(archive), archive)), archive);
  const Graph graph = Checked(Graph::Build(model.model), archive);
  const Buffer space = Space(graph, Checked(ReadKerasArchiveWeights(archive), archive), name + ".keras");
  if (std::filesystem::exists(alone)) {
    (void)Space(graph, Checked(ReadKerasWeightsFile(alone, graph), alone), name + ".weights.h5");
  }
  const absl::Status written = WriteKerasArchive(path + ".out.keras", "m", graph, space.floats());
  CAIRN_CHECK(written.ok(), written.ToString());
  const absl::Status written_alone = WriteKerasWeightsFile(path + ".out.weights.h5", graph, space.floats());
  CAIRN_CHECK(written_alone.ok(), written_alone.ToString());
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  CAIRN_CHECK(argc > 2, "keras_driver DIR NAME...");
  for (int i = 2; i < argc; ++i) cairn::Convert(argv[1], argv[i]);
}
