// Operations on tensors in Keras' files, for tests: their text, and that they go out as they came in.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/formats/keras_archive.h"
#include "tests/unit/formats/keras_reading.h"
#include "tests/unit/formats/keras_text.h"

namespace cairn {

// The output of the name in a model; index: of an operation with several.
inline std::string Tensor(const std::string& layer, int index = 0) {
  return absl::StrReplaceAll(Keras3Tensor(layer), {{", 0, 0]", absl::StrCat(", 0, ", index, "]")}});
}

inline std::string Node3(const std::string& module, const std::string& type, const std::string& name,
                         const std::string& config, const std::string& args, const std::string& kwargs = "") {
  return absl::StrCat(R"({"module": "keras.src.ops.)", module, R"(", "class_name": ")", type, R"(", "config": {)",
                      config, R"(}, "registered_name": ")", type, R"(", "name": ")", name,
                      R"(", "inbound_nodes": [{"args": [)", args, R"(], "kwargs": {)", kwargs, "}}]}");
}
inline std::string Numpy(const std::string& type, const std::string& name, const std::string& config,
                         const std::string& args, const std::string& kwargs = "") {
  return Node3("numpy", type, name, config, args, kwargs);
}

inline std::string ModelOf(const std::string& shape, const std::vector<std::string>& layers,
                           const std::string& output) {
  return Keras3Functional(
      absl::StrCat(Keras3Input("image", absl::StrCat("[null, ", shape, "]")), ",", absl::StrJoin(layers, ",")), output);
}

inline void ExpectRoundTrip(const Graph& graph) {
  const absl::StatusOr<std::string> json = KerasModelJson("net", graph);
  ASSERT_TRUE(json.ok()) << json.status();
  const Graph again = ReadGraph(*json);
  ASSERT_EQ(again.nodes().size(), graph.nodes().size()) << *json;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    v1::Layer a = graph.nodes()[i].layer, b = again.nodes()[i].layer;
    a.clear_inputs();
    b.clear_inputs();
    EXPECT_EQ(a.DebugString(), b.DebugString());
    EXPECT_EQ(graph.nodes()[i].inputs, again.nodes()[i].inputs);
  }
}

}  // namespace cairn
