// Jobs whose model a program computes (model.external, docs/programs.md): what they are asked for, and what of a job
// has no meaning beside it.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Of a model that is expanded; null: Cairn computes it.
const v1::External* ExternalOf(const v1::Model& model);
inline const v1::External* ExternalOf(const v1::JobSpec& spec) { return ExternalOf(spec.model()); }

// The name of a program, of a version or of a figure: letters, digits, '-', '_' and '.', at most kProgramNameBytesMax.
bool IsProgramName(absl::string_view name);
std::string ProgramText(absl::string_view name, absl::string_view version);  // "resnet" version "1"

// As model.layers: an input layer, and the one that has the variables.
absl::Status ExpandExternal(v1::Model* model);

// data.external, with its defaults.
absl::Status CheckExternalData(v1::Data* data);
// What a job with model.external must not say, or data.external without it. Nothing else is checked of the loss, the
// metrics and the labels of such a job.
absl::Status CheckExternalJob(const v1::JobSpec& spec, const Graph& graph);

// Errors: UNIMPLEMENTED, a program computes the model, so that a file of `format` ("Keras") cannot describe it.
absl::Status CheckHasLayers(const Graph& graph, const char* format);

}  // namespace cairn
