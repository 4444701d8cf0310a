// A libcairn_cudnn.so without a GPU: the backend's own programs on the machine of the unit tests, whose kernels, products and convolutions
// are loops on the CPU (test_backend_select).
#include <memory>
#include <utility>

#include "tests/unit/backend/cudnn_host_machine.h"
#include "worker/backend/cudnn/program.h"
#include "worker/backend/plugin.h"

namespace cairn {
namespace {

class HostBackend : public Backend {
 public:
  std::string name() const override { return "cudnn"; }
  std::string device() const override { return "gpu:0: none, loops on the CPU"; }
  std::string fingerprint() const override { return "cudnn on the host"; }
  int slots_default() const override { return 1; }

  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph, const ProgramOptions& options) override {
    CAIRN_ASSIGN_OR_RETURN(const cudnn::Precision precision, cudnn::PrecisionOf(options));
    return cudnn::MakeProgram(std::move(graph), options, precision, std::make_unique<cudnn::HostMachine>(precision));
  }
};

absl::StatusOr<std::unique_ptr<Backend>> MakeHostBackend(int) { return std::make_unique<HostBackend>(); }

}  // namespace
}  // namespace cairn

extern "C" const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{&cairn::PluginVersion, &cairn::MakeHostBackend};
  return &plugin;
}
