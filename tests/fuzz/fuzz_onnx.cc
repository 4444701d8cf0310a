// ONNX files: any bytes, and right ones with fields altered: a model that can be built with all of its variables, or an
// error.
//
//   input := m:u8 (alteration (alter_wire.h))* in (m modulo 48) bytes Rest(file)
#include <google/protobuf/stubs/logging.h>

#include "common/base/check.h"
#include "common/formats/onnx/onnx_import.h"
#include "common/model/graph.h"
#include "tests/fuzz/alter_wire.h"

namespace cairn {
namespace {

constexpr size_t kAlterationBytes = 48;

void Check(ByteSource in) {
  const std::string_view alterations = in.Bytes(in.Below(kAlterationBytes));
  std::string bytes(in.Rest());
  ByteSource how(reinterpret_cast<const uint8_t*>(alterations.data()), alterations.size());
  while (!how.empty()) bytes = AlterWire(how, bytes);
  const absl::StatusOr<ImportedOnnx> imported = ParseOnnx(bytes);
  if (!imported.ok()) {
    CAIRN_CHECK(!absl::IsInternal(imported.status()) && !imported.status().message().empty(),
                imported.status().ToString());
    return;
  }
  const absl::StatusOr<Graph> graph = Graph::Build(imported->model);
  MustBeOk(graph.status());
  CAIRN_CHECK(imported->variables.size() >= graph->variables().size(), "variables are missing");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);  // it tells of every text that is no UTF-8
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
