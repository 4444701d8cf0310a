// Reads the JSON of a Keras model: its graph, or the error.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/formats/keras_model.h"
#include "common/model/graph.h"

namespace cairn {

inline Graph ReadGraph(const std::string& json) {
  const absl::StatusOr<KerasModel> model = ReadKerasModel(json);
  EXPECT_TRUE(model.ok()) << model.status();
  const absl::StatusOr<Graph> graph = Graph::Build(model.value().model);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.value();
}

inline std::string ErrorOf(const std::string& json) {
  const absl::StatusOr<KerasModel> model = ReadKerasModel(json);
  return model.ok() ? "accepted" : std::string(model.status().message());
}

}  // namespace cairn
