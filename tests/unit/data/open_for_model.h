// Opens a data set for a model that takes texts.
#pragma once

#include <string>

#include "common/data/text_dataset.h"
#include "common/model/inputs_check.h"
#include "common/model/model_inputs.h"
#include "tests/unit/data/open_dataset.h"
#include "tests/unit/model/model_text.h"

namespace cairn {

// One text to four words of the vocabulary a, b.
inline constexpr char kWords[] = R"(layers { name: "text" input { text: true shape: 1 } }
    layers { name: "words" text_vectorization { vocabulary: ["a", "b"] output_sequence_length: 4 } })";

// The data set as a worker opens it for the model. data: further fields of v1::Data.
inline absl::StatusOr<DatasetPtr> OpenFor(const std::string& model, const std::string& path,
                                          const std::string& data = "") {
  v1::JobSpec spec;
  *spec.mutable_model() = FromText<v1::Model>(model);
  *spec.mutable_data() = FromText<v1::Data>(data);
  spec.mutable_data()->set_path(path);
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  CAIRN_RETURN_IF_ERROR(CheckInputSources(&spec, graph));
  CAIRN_ASSIGN_OR_RETURN(DatasetPtr examples, OpenDataset(spec.data(), ModelInputShape(graph)));
  CAIRN_RETURN_IF_ERROR(CheckInputSizes(graph, spec.data(), examples->input_sizes()));
  return WithTexts(std::move(examples), graph);
}

}  // namespace cairn
