// .keras archives, as Keras 3 writes and loads them: a zip of metadata.json, config.json (the model) and
// model.weights.h5 (its weights).
//
// Free functions, blocking; any thread.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"

namespace cairn {

// Writes what model.save("m.keras") writes for a model that is not compiled. `space`: the parameter space. The file is
// complete or absent. Errors: UNIMPLEMENTED names a layer that Keras' format cannot hold; INTERNAL names the file.
// data: its augmentation becomes layers at the model's head; nullptr: none.
absl::Status WriteKerasArchive(const std::string& path, const std::string& model_name, const Graph& graph,
                               absl::Span<const float> space, const v1::Data* data = nullptr);

// The archive's config.json, equal to model.to_json(). Errors: UNIMPLEMENTED as above.
absl::StatusOr<std::string> KerasModelJson(const std::string& model_name, const Graph& graph,
                                           const v1::Data* data = nullptr);

// Writes only the weights, as model.save_weights("m.weights.h5") does.
absl::Status WriteKerasWeightsFile(const std::string& path, const Graph& graph, absl::Span<const float> space);

// config.json, for keras_model.h, with the keras_version of metadata.json. For a legacy file, which Keras 2 up to 2.11
// writes under any name: its model_config (keras_h5.h). Errors: those of zip_file.h and of keras_h5.h.
absl::StatusOr<std::string> ReadKerasArchiveConfig(const std::string& path);

// The weights under the names that the archive's own model gives them. Errors: also those of keras_model.h and
// keras_weights.h.
// model: the shapes of its inputs close the open dimensions of the archive's model; nullptr: it has none.
absl::StatusOr<SafetensorsFile> ReadKerasArchiveWeights(const std::string& path, const Graph* model = nullptr);

// Reads a .weights.h5 file, which has no names: its layers are those of `graph`, in Keras' order. Or a legacy .h5 file
// of a model or of weights (keras_h5.h).
absl::StatusOr<SafetensorsFile> ReadKerasWeightsFile(const std::string& path, const Graph& graph);

}  // namespace cairn
