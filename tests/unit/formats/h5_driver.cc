// What Cairn reads of legacy .h5 files, for keras_h5.py, which writes them by Keras' rule.
//
//   h5_driver FILE [MODEL.json]   prints one line: {"layers": [names], "values": {variable: [numbers]}}, or
//                                 {"error": text}. Without MODEL.json the model is the file's own.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "common/formats/weights.h"

namespace cairn {
namespace {

absl::StatusOr<std::string> ConfigOf(int argc, char** argv) {
  if (argc == 2) return ReadKerasArchiveConfig(argv[1]);
  std::stringstream text;
  text << std::ifstream(argv[2]).rdbuf();
  return text.str();
}

absl::StatusOr<nlohmann::json> Read(int argc, char** argv) {
  CAIRN_ASSIGN_OR_RETURN(const std::string config, ConfigOf(argc, argv));
  CAIRN_ASSIGN_OR_RETURN(const KerasModel model, ReadKerasModel(config));
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(model.model));
  CAIRN_ASSIGN_OR_RETURN(const SafetensorsFile weights, LoadWeights(argv[1], graph));
  nlohmann::json read;
  for (const Node& node : graph.nodes()) read["layers"].push_back(node.name);
  read["values"] = nlohmann::json::object();
  for (const Safetensor& tensor : weights.tensors) {
    const absl::Span<const float> numbers = tensor.data.floats();
    read["values"][tensor.name] = std::vector<float>(numbers.begin(), numbers.end());
  }
  return read;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  const absl::StatusOr<nlohmann::json> read = cairn::Read(argc, argv);
  const nlohmann::json out = read.ok() ? *read : nlohmann::json{{"error", std::string(read.status().message())}};
  std::printf("%s\n", out.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
  return 0;
}
