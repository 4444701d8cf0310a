// A graph from text, whose nodes a test finds by name.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {

class NamedGraph {
 public:
  explicit NamedGraph(const std::string& model) : graph_(Graph::Build(FromText<v1::Model>(model)).value()) {}

  const Graph& graph() const { return graph_; }
  const Node& operator[](const std::string& name) const {
    for (const Node& node : graph_.nodes()) {
      if (node.name == name) return node;
    }
    ADD_FAILURE() << "no layer is called " << name;
    return graph_.output();
  }

 private:
  Graph graph_;
};

}  // namespace cairn
