// A backend in a library of its own (libcairn_cudnn.so), found when the worker starts (worker/node/backend_select.h).
//
// The library exports one function, `cairn_backend_plugin`. Both sides are built from one tree: the library uses the
// Cairn symbols of the program that loads it, and is refused if its PluginVersion differs.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/backend/backend.h"
#include "worker/backend/plugin_options.h"

namespace cairn {

struct Plugin {
  // PluginVersion() of the tree that the library was built from.
  std::string (*version)() = nullptr;
  // Makes the backend of one device, or of all devices of one model. Errors: UNAVAILABLE says what this machine lacks.
  absl::StatusOr<std::unique_ptr<Backend>> (*make)(const PluginOptions& options) = nullptr;
};

inline constexpr char kPluginEntry[] = "cairn_backend_plugin";
using PluginEntry = const Plugin* (*)();

// Raise it with every change of backend.h that the sizes below do not show: a field where there was padding, a
// function, or the meaning of one.
inline constexpr int kPluginInterface = 3;

// Must be the same on both sides: it holds the release, the meaning of the calls, and the memory layout of what they
// pass to each other.
inline std::string PluginVersion() {
  return absl::StrCat(CAIRN_VERSION, "/", kPluginInterface, "/", sizeof(PluginOptions), ".", sizeof(ProgramOptions),
                      ".", sizeof(StepInfo), ".", sizeof(JoinOptions), ".", sizeof(Batch), ".", sizeof(BatchSums), ".",
                      sizeof(Graph), ".", sizeof(Node), ".", sizeof(Variable), ".", sizeof(v1::Layer), ".",
                      sizeof(v1::Loss));
}

}  // namespace cairn
