// A backend in a library of its own, found when the worker starts (worker/node/backend_select.h): libcairn_cudnn.so.
//
// The library exports one function, `cairn_backend_plugin`. Both sides are built from one tree: the library takes
// Cairn's own symbols from the program that loads it, and is refused where PluginVersion differs.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/backend/backend.h"
#include "worker/backend/plugin_options.h"

namespace cairn {

struct Plugin {
  // Of the tree that the library was built from.
  std::string (*version)() = nullptr;
  // The backend of one device, or of all of one model. Errors: UNAVAILABLE says what this machine lacks.
  absl::StatusOr<std::unique_ptr<Backend>> (*make)(const PluginOptions& options) = nullptr;
};

inline constexpr char kPluginEntry[] = "cairn_backend_plugin";
using PluginEntry = const Plugin* (*)();

// To be raised with every change of backend.h that the sizes below do not show: a field where there was padding, a
// function or what it means.
inline constexpr int kPluginInterface = 3;

// What must be the same on both sides: the release, what calls mean, and how what they pass to each other lies in
// memory.
inline std::string PluginVersion() {
  return absl::StrCat(CAIRN_VERSION, "/", kPluginInterface, "/", sizeof(PluginOptions), ".", sizeof(ProgramOptions),
                      ".", sizeof(StepInfo), ".", sizeof(JoinOptions), ".", sizeof(Batch), ".", sizeof(BatchSums), ".",
                      sizeof(Graph), ".", sizeof(Node), ".", sizeof(Variable), ".", sizeof(v1::Layer), ".",
                      sizeof(v1::Loss));
}

}  // namespace cairn
