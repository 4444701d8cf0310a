#include "worker/backend/onednn/onednn_backend.h"

#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "dnnl.hpp"
#include "worker/backend/layer_check.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/program.h"

namespace cairn {
namespace {

std::string CpuModel() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.rfind("model name", 0) != 0) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "unknown model";
}

const char* IsaName(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41: return "SSE4.1";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx2_vnni: return "AVX2 VNNI";
    case dnnl::cpu_isa::avx512_core: return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX-512 VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX-512 BF16";
    case dnnl::cpu_isa::avx512_core_amx: return "AMX";
    default: return "other";
  }
}

// Without instructions for it BFLOAT16 would be emulated, slower than FLOAT32.
absl::Status CheckCompute(v1::DataType compute) {
  if (compute == v1::FLOAT32) return absl::OkStatus();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  const bool native = isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  if (compute == v1::BFLOAT16 && native) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "compute_dtype: ", v1::DataType_Name(compute), " is not computed by this worker (", CpuModel(), ", ",
      IsaName(isa), "); ", compute == v1::FLOAT16 ? "FLOAT16 needs a GPU" : "BFLOAT16 needs AVX-512 BF16 or AMX",
      "; use FLOAT32"));
}

class OnednnBackend : public Backend {
 public:
  std::string name() const override { return "onednn"; }

  std::string device() const override {
    return absl::StrCat("cpu: ", CpuModel(), " (", IsaName(dnnl::get_effective_cpu_isa()), ")");
  }

  std::string fingerprint() const override {
    const dnnl_version_t* version = dnnl::version();
    return absl::StrCat("onednn ", version->major, ".", version->minor, ".", version->patch, " ",
                        IsaName(dnnl::get_effective_cpu_isa()), " 0x",
                        absl::Hex(static_cast<int>(dnnl::get_effective_cpu_isa())));
  }

  bool Computes(v1::DataType compute) const override { return CheckCompute(compute).ok(); }

  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph,
                                                   const ProgramOptions& options) override {
    CAIRN_RETURN_IF_ERROR(CheckCompute(options.compute));
    CAIRN_RETURN_IF_ERROR(
        CheckLayers(*graph, "onednn", [](LayerKind kind) { return onednn::FindLayer(kind) != nullptr; }));
    return onednn::MakeProgram(std::move(graph), options);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeOnednnBackend() { return std::make_unique<OnednnBackend>(); }

}  // namespace cairn
